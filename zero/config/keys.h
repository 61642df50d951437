// The registry of configuration keys: the one source of parser, defaults, messages, printing,
// docs/config.md and the JSON Schema.
//
//   const KeySpec* key = FindKey("cyclic.slack");   // key->type, key->default_json, key->meaning
//   FindKey("cyclic.slak");                         // null
//   NearestKey("cyclic.slak");                      // the key of "cyclic.slack"
//   FindForeignName("max_steps");                   // HuggingFace's word for "iterations"
//
// A section is a key too. Where a section's "type" (model, data, optimizer, scheduler) decides what
// its keys mean, `types` says which of its values a key belongs to, and one path may stand twice,
// for different types. The tables are in registry/; `For`, `Only` and so on make them readable.
#ifndef RINGZERO_ZERO_CONFIG_KEYS_H_
#define RINGZERO_ZERO_CONFIG_KEYS_H_

#include <limits>
#include <span>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

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
  kStrings,  // a list of strings, or one string
  kObject,   // nothing below it is looked at
  kAny,      // nor at it
};

// "an integer", "a list of numbers", …
absl::string_view Describe(KeyType type);

enum class KeyNeed {
  kOptional,
  kRequired,  // by its section, when that is there
  kTraining,  // by `train` and `plan`; `config` does without
};

enum class KeyState {
  kWorks,     // though `built` may allow only some values
  kNoEffect,  // accepted, with one line that says why it does nothing here: `why`
  kRemoved,  // DeepSpeed (of cyclic.*: we) removed it: refused, whatever its value; `why` says what to do
  kTesting,  // for tests of this project: works, without default, in no help and no proposal
};

// How values of a section's keys convert. Sections below inherit it.
enum class Reading {
  kInherit,
  kOurs,   // as they stand; null is an error
  kRaw,    // as they stand; null is as absent (DeepSpeed's dict.get)
  kStrict  // DeepSpeed's pydantic models: "8", "true", 1.0 convert; null is an error
};

// A section that is absent: all its keys have their defaults, or it is really absent.
enum class Absent { kDefaults, kStaysAbsent };

// Numbers and each element of a list lie between min and max, the ends included where not `open`.
struct KeyRange {
  double min = -std::numeric_limits<double>::infinity();
  double max = std::numeric_limits<double>::infinity();
  bool open_min = false;
  bool open_max = false;
  int list_length = 0;  // 0: any
};

struct KeySpec {
  absl::string_view path;  // "optimizer.params.lr"
  absl::string_view meaning = "";
  absl::string_view default_json = "";  // empty: none; then absent or derived
  absl::string_view choices = "";       // strings, in any case: "shm|local"; empty: any
  absl::string_view exact = "";         // more choices, in this case only
  absl::string_view types = "";         // values of the section's "type": "SGD|AdamW"; empty: all
  absl::string_view gone = "";          // choices that DeepSpeed has removed
  absl::string_view built = "";         // what `train` can do: JSON or "a|b" of choices; empty: all
  absl::string_view deepspeed = "";     // what DeepSpeed 0.19.8 does differently
  absl::string_view why = "";           // of kNoEffect and kRemoved
  absl::string_view automatic = "";     // what "auto" takes: JSON, or "=path" of another key
  absl::string_view also = "";          // another name of it in DeepSpeed: "prefetch_bucket_size"
  KeyRange range = {};
  KeyType type = KeyType::kSection;
  KeyNeed need = KeyNeed::kOptional;
  KeyState state = KeyState::kWorks;
  Reading reading = Reading::kInherit;
  Absent absent = Absent::kDefaults;
  enum class Null { kByReading, kAllowed, kRefused } null = Null::kByReading;
  enum class Auto { kByReading, kRefused } auto_value = Auto::kByReading;
  enum class Bools { kByReading, kNumbers, kRefused } bools = Bools::kByReading;  // as numbers
  enum class Empty { kAllowed, kRefused } empty = Empty::kAllowed;  // a list without items
  enum class Scope { kEngine, kOutside } scope = Scope::kEngine;    // may ever be built, or not
  // Of kNoEffect: is its line a warning that the file's verdict shows, one that it does not, a
  // note?
  enum class Weight { kWarns, kMinor, kNote } weight = Weight::kMinor;

  absl::string_view name() const;     // "lr"
  absl::string_view parent() const;   // "optimizer.params"; empty at the top
  absl::string_view section() const;  // "optimizer"
};

// Every key, in the order in which a configuration prints.
std::span<const KeySpec> AllKeys();

// The key of that path, with its name or its other name; of several, the one for `section_type`,
// else the first. Null: unknown.
const KeySpec* FindKey(absl::string_view path, absl::string_view section_type = "");

// The known key that `path` most likely meant: few edits of the name, its first words, or its words
// in another order, preferably in the same section. Null for names that resemble none.
const KeySpec* NearestKey(absl::string_view path);

// A name of another program, and what to write here instead.
struct ForeignName {
  absl::string_view name;       // "max_steps"; "training.steps" where its section belongs to it
  absl::string_view whose;      // "HuggingFace"; empty: nobody's, but people try it
  absl::string_view key;        // the known one, or empty
  absl::string_view hint = "";  // what the key's name does not say; without a key, what to do
};

// The one table of them (registry/foreign_names.cc).
std::span<const ForeignName> ForeignNames();

// The entry of that path, else of its last name. Ignores case; "-" is as good as "_". Null: none.
const ForeignName* FindForeignName(absl::string_view path);

// Does a foreign name stand in that section: "training"?
bool IsForeignSection(absl::string_view path);

// "HuggingFace's max_steps is iterations here".
std::string ToString(const ForeignName& foreign);

// Is it the name of no key, but of a remark: "_comment", "//"?
bool IsLikeComment(absl::string_view name);

// How the values of `key` convert: its own word, or the nearest section's above it.
Reading ReadingOf(const KeySpec& key);

// Does `key` have a meaning when its section's type is `type`? Ignores case.
bool BelongsTo(const KeySpec& key, absl::string_view type);

// The values of the section's "type" for which `path` has a meaning: "SGD|Adam", of all its
// entries.
std::string TypesOf(absl::string_view path);

// Is `name` one of "a|b|c"? Ignores case; returns the listed spelling, or empty.
absl::string_view FindChoice(absl::string_view choices, absl::string_view name);

// Insertions, deletions, changes and swaps of neighbours that turn `a` into `b`; ignores case.
int EditDistance(absl::string_view a, absl::string_view b);

}  // namespace ringzero

#endif  // RINGZERO_ZERO_CONFIG_KEYS_H_
