// The registry's tables, one per group of sections, and the words in which they are written.
//
//   Integer("cyclic.slack", "1", "ticks between an update and its first fresh read") | kCount
//
// A table is data: a key is a value, and `|` gives it one more property.
#ifndef RINGZERO_ZERO_CONFIG_REGISTRY_TABLES_H_
#define RINGZERO_ZERO_CONFIG_REGISTRY_TABLES_H_

#include <span>

#include "zero/config/keys.h"

namespace ringzero::registry {

std::span<const KeySpec> RunKeys();        // model, data, iterations, epochs, seed
std::span<const KeySpec> BatchKeys();      // the batch triple, gradients, what is printed
std::span<const KeySpec> OptimizerKeys();  // optimizer
std::span<const KeySpec> SchedulerKeys();  // scheduler
std::span<const KeySpec> PrecisionKeys();  // fp16, bf16, torch_autocast, data_types
std::span<const KeySpec> ZeroKeys();       // zero_optimization
std::span<const KeySpec> MemoryKeys();     // activation_checkpointing, aio, checkpoint
std::span<const KeySpec> MonitorKeys();    // tensorboard, csv_monitor, …, flops_profiler, timers
std::span<const KeySpec> OtherKeys();      // what DeepSpeed has besides
std::span<const KeySpec> RemovedKeys();    // what DeepSpeed or we had
std::span<const KeySpec> CyclicKeys();     // cyclic, evaluation

using String = absl::string_view;

// What DeepSpeed does in several sections.
inline constexpr String kIgnoresUnknown = "ignores unknown keys here";

// What kind of value. An empty default: none.
constexpr KeySpec Key(KeyType type, String path, String standard, String meaning) {
  return {.path = path, .meaning = meaning, .default_json = standard, .type = type};
}
constexpr KeySpec Section(String path, String meaning) {
  return Key(KeyType::kSection, path, "", meaning);
}
constexpr KeySpec Bool(String path, String standard, String meaning) {
  return Key(KeyType::kBool, path, standard, meaning);
}
constexpr KeySpec Integer(String path, String standard, String meaning) {
  return Key(KeyType::kInteger, path, standard, meaning);
}
constexpr KeySpec Bytes(String path, String standard, String meaning) {
  return Key(KeyType::kBytes, path, standard, meaning);
}
constexpr KeySpec Number(String path, String standard, String meaning) {
  return Key(KeyType::kNumber, path, standard, meaning);
}
constexpr KeySpec Rate(String path, String standard, String meaning) {
  return Key(KeyType::kRate, path, standard, meaning);
}
constexpr KeySpec Text(String path, String standard, String meaning) {
  return Key(KeyType::kString, path, standard, meaning);
}
constexpr KeySpec Any(String path, String standard, String meaning) {
  return Key(KeyType::kAny, path, standard, meaning);
}

// Its properties.
template <typename Kind>
struct Property {
  constexpr explicit Property(String said) : text(said) {}
  String text;
};
using Choices = Property<struct ChoicesKind>;        // names, in any case
using Exact = Property<struct ExactKind>;            // names, in this case only
using Gone = Property<struct GoneKind>;              // names that DeepSpeed has removed
using For = Property<struct ForKind>;                // of these values of the section's "type"
using Only = Property<struct OnlyKind>;              // all that `train` can do
using DeepSpeed = Property<struct DeepSpeedKind>;    // what it does differently
using NoEffect = Property<struct NoEffectKind>;      // it does nothing here: why
using Collective = Property<struct CollectiveKind>;  // the same, of a detail of collectives
using Quietly = Property<struct QuietlyKind>;        // the same, worth but a note
using Removed = Property<struct RemovedKind>;        // what to do
using Auto = Property<struct AutoKind>;              // what "auto" takes
using Also = Property<struct AlsoKind>;              // another name
struct Length {
  constexpr explicit Length(int count) : items(count) {}
  int items;
};

constexpr KeySpec operator|(KeySpec key, Choices value) { return key.choices = value.text, key; }
constexpr KeySpec operator|(KeySpec key, Exact value) { return key.exact = value.text, key; }
constexpr KeySpec operator|(KeySpec key, For value) { return key.types = value.text, key; }
constexpr KeySpec operator|(KeySpec key, Only value) { return key.built = value.text, key; }
constexpr KeySpec operator|(KeySpec key, DeepSpeed value) {
  return key.deepspeed = value.text, key;
}
constexpr KeySpec operator|(KeySpec key, Auto value) { return key.automatic = value.text, key; }
constexpr KeySpec operator|(KeySpec key, Also value) { return key.also = value.text, key; }
constexpr KeySpec operator|(KeySpec key, KeyNeed need) { return key.need = need, key; }
constexpr KeySpec operator|(KeySpec key, KeyState state) { return key.state = state, key; }
constexpr KeySpec operator|(KeySpec key, Reading reading) { return key.reading = reading, key; }
constexpr KeySpec operator|(KeySpec key, Absent absent) { return key.absent = absent, key; }
constexpr KeySpec operator|(KeySpec key, KeySpec::Null null) { return key.null = null, key; }
constexpr KeySpec operator|(KeySpec key, KeySpec::Auto value) {
  return key.auto_value = value, key;
}
constexpr KeySpec operator|(KeySpec key, KeySpec::Bools value) { return key.bools = value, key; }
constexpr KeySpec operator|(KeySpec key, KeySpec::Empty value) { return key.empty = value, key; }
constexpr KeySpec operator|(KeySpec key, KeySpec::Weight value) { return key.weight = value, key; }
constexpr KeySpec operator|(KeySpec key, KeySpec::Scope value) { return key.scope = value, key; }
constexpr KeySpec operator|(KeySpec key, Length value) {
  return key.range.list_length = value.items, key;
}
constexpr KeySpec operator|(KeySpec key, KeyRange range) {
  range.list_length = key.range.list_length;
  return key.range = range, key;
}
constexpr KeySpec operator|(KeySpec key, NoEffect value) {
  return key.state = KeyState::kNoEffect, key.why = value.text, key;
}
constexpr KeySpec operator|(KeySpec key, Collective value) {
  return key.weight = KeySpec::Weight::kWarns, key | NoEffect(value.text);
}
constexpr KeySpec operator|(KeySpec key, Quietly value) {
  return key.weight = KeySpec::Weight::kNote, key | NoEffect(value.text);
}
constexpr KeySpec operator|(KeySpec key, Gone value) { return key.gone = value.text, key; }
constexpr KeySpec operator|(KeySpec key, Removed value) {
  return key.state = KeyState::kRemoved, key.why = value.text, key;
}

inline constexpr KeyRange kPositive{.min = 1, .max = 2147483647};
inline constexpr KeyRange kCount{.min = 0, .max = 2147483647};
inline constexpr KeyRange kNotNegative{.min = 0};
inline constexpr KeyRange kAboveZero{.min = 0, .open_min = true};
inline constexpr KeyRange kShare{.min = 0, .max = 1};  // both ends included
inline constexpr KeyRange kBelowOne{.min = 0, .max = 1, .open_max = true};

inline constexpr KeySpec::Null kOrNull = KeySpec::Null::kAllowed;
inline constexpr KeySpec::Null kNotNull = KeySpec::Null::kRefused;
inline constexpr KeySpec::Auto kNotAuto = KeySpec::Auto::kRefused;
inline constexpr KeySpec::Bools kNoBool = KeySpec::Bools::kRefused;
inline constexpr KeySpec::Bools kBoolIsNumber = KeySpec::Bools::kNumbers;
inline constexpr KeySpec::Empty kNotEmpty = KeySpec::Empty::kRefused;
inline constexpr KeySpec::Scope kOutside = KeySpec::Scope::kOutside;

}  // namespace ringzero::registry

#endif  // RINGZERO_ZERO_CONFIG_REGISTRY_TABLES_H_
