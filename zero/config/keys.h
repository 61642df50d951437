// The registry of configuration keys: one table that drives parser, defaults, messages and
// printing.
//
//   const KeySpec* key = FindKey("cyclic.slack");   // key->type, key->default_json, key->meaning
//   FindKey("cyclic.slak");                         // null
//   NearestKey("cyclic.slak");                         // the key of "cyclic.slack"
//
// A section is a key too. Sections whose meaning depends on their "type" (model, data, optimizer)
// say in `types` which of its values a key belongs to.
#ifndef RINGZERO_ZERO_CONFIG_KEYS_H_
#define RINGZERO_ZERO_CONFIG_KEYS_H_

#include <limits>
#include <span>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace ringzero {

enum class KeyType { kSection, kBool, kInteger, kNumber, kString, kIntegerList, kNumberList };

// "an integer", "a list of numbers", …
absl::string_view Describe(KeyType type);

enum class KeyNeed { kOptional, kRequired };

enum class KeyState {
  kBuilt,
  kNotBuilt,  // a key of DeepSpeed's that we know and have not built: refused
  kRemoved,   // a key that DeepSpeed itself has removed: refused
  kTesting,   // for tests of this project: works, without default, in no help and no proposal
};

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
  KeyType type = KeyType::kSection;
  absl::string_view meaning = "";
  absl::string_view default_json = "";  // empty: none; then absent or derived
  KeyRange range = {};
  absl::string_view choices = "";     // strings: "shm|local"; empty: any
  absl::string_view types = "";       // values of the section's "type": "SGD|AdamW"; empty: all
  absl::string_view only_value = "";  // the one value (JSON) that is built; others are refused
  absl::string_view refused = "";     // strings: values that are known but not built, "Lion|Lamb"
  absl::string_view alias = "";       // a wrong name that people try: the nearest key finds it
  KeyNeed need = KeyNeed::kOptional;
  KeyState state = KeyState::kBuilt;

  absl::string_view name() const;     // "lr"
  absl::string_view parent() const;   // "optimizer.params"; empty at the top
  absl::string_view section() const;  // "optimizer"
};

// Every key, built ones first and in the order in which a configuration prints.
std::span<const KeySpec> AllKeys();
std::span<const KeySpec> BuiltKeys();
std::vector<KeySpec> RefusedKeys();

const KeySpec* FindKey(absl::string_view path);

// The known key that `path` most likely meant: few edits of the name, preferably in the same
// section.
const KeySpec* NearestKey(absl::string_view path);

// Does `key` have a meaning when its section's type is `type`? Ignores case.
bool BelongsTo(const KeySpec& key, absl::string_view type);

// Is `name` one of "a|b|c"? Ignores case; returns the listed spelling, or empty.
absl::string_view FindChoice(absl::string_view choices, absl::string_view name);

// Insertions, deletions, changes and swaps of neighbours that turn `a` into `b`; ignores case.
int EditDistance(absl::string_view a, absl::string_view b);

}  // namespace ringzero

#endif  // RINGZERO_ZERO_CONFIG_KEYS_H_
