// The registry of configuration keys (keys.txt), and the reading of one value.
//
//   const KeySpec* key = FindKey("cyclic.slack");   // key->type, key->default_json, key->meaning
//   FindKey("cyclic.slak");                         // null
//   UnknownKey("cyclic.slak", "slak");              // …; the nearest known one is cyclic.slack
//   FindForeignName("max_steps");                   // HuggingFace's word for "iterations"
//   absl::StatusOr<JsonValue> slack = ConvertValue(value, *key);
//
// A section is a key too. The "type" of some sections (model, data, optimizer, scheduler) decides
// what their keys mean: then `types` says to which types a key belongs. One path may stand several
// times, for different types.
#ifndef RINGZERO_ZERO_CONFIG_KEYS_H_
#define RINGZERO_ZERO_CONFIG_KEYS_H_

#include <limits>
#include <span>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "zero/config/json_value.h"

namespace ringzero {

enum class KeyType {
  kSection,
  kBool,
  kInteger,
  kBytes,  // an integer, or "12GiB" (KiB, MiB, GiB, TiB; a fraction, too)
  kNumber,
  kRate,  // a number, or a list of one per group of parameters: this engine has one group
  kString,
  kIntegerList,
  kNumberList,
  kStringList,
  kObject,  // nothing in the object is looked at
  kAny,     // the value is not looked at
  kNull,    // nothing but null
};

// "an integer", "a list of numbers", …
absl::string_view Describe(KeyType type);

// What is done with a key. A key that does nothing here is accepted, with one line that says `why`.
enum class KeyState {
  kWorks,    // though `built` may allow only some values
  kWarns,    // does nothing here: a warning
  kMinor,    // does nothing here: a lesser warning
  kNote,     // does nothing here; a remark
  kRemoved,  // DeepSpeed has, or we have: refused, whatever its value; `why` says what to do
  kTesting,  // for tests of this project: works, without default, in no help and no proposal
};

// Numbers and each element of a list lie between min and max, the ends included unless `open`.
struct KeyRange {
  double min = -std::numeric_limits<double>::infinity();
  double max = std::numeric_limits<double>::infinity();
  bool open_min = false;
  bool open_max = false;
};

struct KeySpec {
  std::string path;          // "optimizer.params.lr"
  std::string meaning;       // a sentence
  std::string default_json;  // empty: none; then absent or derived
  JsonValue standard;        // default_json as a value
  std::string choices;       // strings, in any case: "shm|local"; empty: any
  std::string exact;         // more choices, only as they are written here
  std::string types;         // values of the section's "type": "SGD|AdamW"; empty: all
  std::string built;         // what `train` can do: JSON or "a|b" of choices; empty: all
  std::string deepspeed;     // what DeepSpeed 0.19.8 does differently
  std::string why;           // why it does nothing here; what to do if it is removed
  std::string automatic;     // what "auto" takes: JSON, or "=path" of another key
  std::string also;          // other names of it in DeepSpeed: "prefetch_bucket_size"
  KeyRange range;
  int list_length = 0;         // 0: any
  bool needs_items = false;    // an empty list or text is an error
  bool required = false;       // in its section, if the section is given
  bool training = false;       // required by `train` and `plan`; `config` does without
  bool outside = false;        // what is not `built` is outside of this engine, for good
  bool unquoted = false;       // a number in quotes is an error, as in DeepSpeed
  bool is_list = false;        // a section that is a list of such objects
  bool may_be_absent = false;  // a section whose keys have no defaults if it is not given
  KeyType type = KeyType::kAny;
  KeyState state = KeyState::kWorks;

  absl::string_view name() const;     // "lr"
  absl::string_view parent() const;   // "optimizer.params"; empty at the top
  absl::string_view section() const;  // "optimizer"
  bool is_idle() const;               // does it nothing here?
};

// "optimizer.params" of "optimizer" and "params"; a key at the top has no parent.
std::string Join(absl::string_view parent, absl::string_view name);

// Every key, in the order in which a configuration prints.
std::span<const KeySpec> AllKeys();

// The key at `path`, by its name or its other name. If several keys share the path: the key for
// `section_type`, otherwise the first. Null: unknown.
const KeySpec* FindKey(absl::string_view path, absl::string_view section_type = "");

// A name of another program, and what to write here instead.
struct ForeignName {
  std::string name;   // "max_steps"; "training.steps" if its section belongs to the name
  std::string whose;  // "HuggingFace"; empty: of no program, but people try it
  std::string key;    // the known key, or empty
  std::string hint;   // what the key's name does not say; without a key, what to do
};
std::span<const ForeignName> ForeignNames();

// The entry of `path`, otherwise of its last name. Ignores case; "-" counts as "_". Null: none.
const ForeignName* FindForeignName(absl::string_view path);

// Does a foreign name ("training.steps") stand in the section `path` ("training")?
bool IsForeignSection(absl::string_view path);

// "HuggingFace's max_steps is iterations here".
std::string ToString(const ForeignName& foreign);

// What an error says of the unknown key at `path`: the known key that it most likely meant, if any.
// `name`: the last name of `path`.
std::string UnknownKey(absl::string_view path, absl::string_view name);

// Is it a key of this engine alone? Then it does not take "auto".
bool IsOurs(const KeySpec& key);

// Does `key` have a meaning when its section's type is `type`? Ignores case.
bool BelongsTo(const KeySpec& key, absl::string_view type);

// The values of the section's "type" for which `path` has a meaning: "SGD|Adam", from all keys of
// that path.
std::string TypesOf(absl::string_view path);

// Is `name` one of "a|b|c"? Ignores case; returns the listed spelling, or empty.
absl::string_view FindChoice(absl::string_view choices, absl::string_view name);

// The choice of "a|b|c" that `text` most likely meant, the first of equally near ones; empty: none.
absl::string_view NearestChoice(absl::string_view choices, absl::string_view text);

// Insertions, deletions, changes and swaps of neighbours that turn `a` into `b`; ignores case.
int EditDistance(absl::string_view a, absl::string_view b);

// Converts one value from what stands in the file to what its key wants. Takes what DeepSpeed
// takes, in every section: a number in quotes, a whole float for an integer, true for 1, and for a
// bool also 0, 1 and pydantic's words ("yes"). InvalidArgument in words, without place or key:
// "wanted an integer, found 1.5".
absl::StatusOr<JsonValue> ConvertValue(const JsonValue& value, const KeySpec& key);

// Is `value`, already converted, one that `train` can do?
bool IsBuilt(const JsonValue& value, const KeySpec& key);

// May it be "auto", to be given a value by another key or the command line?
bool TakesAuto(const KeySpec& key);
// Is it the string "auto"?
bool IsAuto(const JsonValue& value);

// "a, b or c" of "a|b|c".
std::string OneOf(absl::string_view choices);
// All its choices, however they are compared: "a|b|c".
std::string AllChoices(const KeySpec& key);
// "at least 0 and less than 1"; empty when any number will do.
std::string DescribeRange(const KeyRange& range);

}  // namespace ringzero

#endif  // RINGZERO_ZERO_CONFIG_KEYS_H_
