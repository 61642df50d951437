// The check of each key by itself: is it known, has it a meaning here, is its value one; then
// defaults.
#include "zero/config/resolve.h"

#include <set>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "zero/config/values.h"

namespace ringzero {
namespace {

using Kind = Finding::Kind;

constexpr absl::string_view kBf16 = "bf16";
constexpr absl::string_view kClipping = "gradient_clipping";
constexpr absl::string_view kZero = "zero_optimization";
constexpr absl::string_view kStage = "zero_optimization.stage";
constexpr absl::string_view kOffloadedParameters = "zero_optimization.offload_param";

std::string Join(absl::string_view parent, absl::string_view name) {
  return absl::StrCat(parent, parent.empty() ? "" : ".", name);
}

// The canonical "type" of a path's section, or empty when it has none.
std::string SectionType(const ResolvedKeys& keys, absl::string_view path) {
  const std::string type = absl::StrCat(path.substr(0, path.find('.')), ".type");
  return keys.Has(type) ? keys.String(type) : "";
}

// Is every section that `key` is in given, or one that is as good as given?
bool IsPresent(const KeySpec& key, const ResolvedKeys& keys) {
  for (const KeySpec* at = FindKey(key.parent()); at != nullptr; at = FindKey(at->parent())) {
    if (at->absent == Absent::kStaysAbsent && !keys.HasSection(at->path)) return false;
    if (at->state != KeyState::kWorks || keys.IsSilent(at->path)) return false;
  }
  return true;
}

struct Default {
  const KeySpec* key;
  JsonValue value;
};

std::vector<Default> ReadDefaults() {
  std::vector<Default> defaults;
  for (const KeySpec& key : AllKeys()) {
    if (key.default_json.empty() || key.state != KeyState::kWorks) continue;
    const absl::StatusOr<JsonValue> json = ReadJson(key.default_json, std::string(key.path));
    RZ_CHECK(json.ok(), std::string(json.status().message()));
    absl::StatusOr<JsonValue> value = ConvertValue(*json, key);
    RZ_CHECK(value.ok(), std::string(value.status().message()));
    value->line = 0;
    defaults.push_back({&key, *std::move(value)});
  }
  return defaults;
}

class Resolver {
 public:
  Resolver(const JsonValue& root, const std::string& file, Findings& findings)
      : root_(root), file_(file), findings_(findings), keys_(file) {}

  ResolvedKeys Run() {
    if (!root_.is_object()) {
      findings_.Add(Kind::kError, PlaceOf(root_, file_), "",
                    absl::StrCat("wanted an object at the top, found ", Describe(root_)));
      return std::move(keys_);
    }
    CheckObject(root_, "", Voice::kAloud);
    CheckRequired();
    return std::move(keys_);
  }

 private:
  // Inside of a section that does nothing here, one line for the section is enough.
  enum class Voice { kAloud, kSilent };

  Finding* Add(Kind kind, const JsonValue& value, absl::string_view path,
               absl::string_view message) {
    return findings_.Add(kind, PlaceOf(value, file_), absl::Utf8SafeCEscape(path), message);
  }

  std::string TypeOf(absl::string_view path) const { return SectionType(keys_, path); }

  // Has the section of `path` a "type" to tell its keys by, but not a known one?
  bool TypeIsMissing(absl::string_view path) const {
    const absl::string_view section = path.substr(0, path.find('.'));
    return FindKey(absl::StrCat(section, ".type")) != nullptr && TypeOf(path).empty();
  }

  void CheckObject(const JsonValue& object, absl::string_view parent, Voice voice) {
    // The type first: it says what the other keys mean.
    if (const JsonValue* type = object.Find("type"); type != nullptr) {
      CheckMember(*type, parent, voice);
    }
    if (TypeIsMissing(parent) && parent.find('.') != absl::string_view::npos) return;
    for (const JsonValue& member : object.children) {
      if (member.key != "type") CheckMember(member, parent, voice);
    }
  }

  const KeySpec* Find(absl::string_view parent, const std::string& name) const {
    if (name.find_first_of(".*") != std::string::npos) return nullptr;
    const std::string type = TypeOf(parent);
    const KeySpec* key = FindKey(Join(parent, name), type);
    if (key != nullptr && (BelongsTo(*key, type) || parent.empty())) return key;
    const KeySpec* any = FindKey(Join(parent, "*"), type);
    return any != nullptr && BelongsTo(*any, type) ? any : key;
  }

  void CheckMember(const JsonValue& value, absl::string_view parent, Voice voice) {
    if (value.key.empty()) return (void)Add(Kind::kError, value, parent, "an empty key");
    const std::string given = Join(parent, value.key);
    const KeySpec* key = Find(parent, value.key);
    if (key == nullptr) return UnknownKey(value, given);
    if (key->state == KeyState::kRemoved) {
      const bool ours = key->section() == "cyclic";
      Add(Kind::kError, value, given,
          absl::StrCat(ours ? "removed; " : "removed from DeepSpeed; ", key->why));
      return;
    }
    if (!key->types.empty() && !BelongsTo(*key, TypeOf(key->path))) {
      if (TypeIsMissing(key->path)) return;
      Add(Kind::kError, value, given,
          absl::StrCat("has no meaning for ", key->section(), ".type ", TypeOf(key->path),
                       ", only for ", OneOf(TypesOf(key->path))));
      return;
    }
    if (key->name() == "*") return SetAny(value, given);
    if (YieldsToNewName(value, given, *key) || !IsFirst(value, given, *key)) return;
    if (voice == Voice::kAloud && key->state == KeyState::kNoEffect) return TakeIdle(value, *key);
    Take(value, *key, voice);
  }

  void Take(const JsonValue& value, const KeySpec& key, Voice voice) {
    if (IsAuto(value) && TakesAuto(key)) return SetAuto(value, key, voice);
    if (IsNull(value) && TakesNull(key)) return keys_.SetNull(key.path, value);
    if (key.type == KeyType::kSection) return CheckSection(value, key, voice);
    SetValue(value, key, voice);
  }

  static bool IsNull(const JsonValue& value) { return value.kind == JsonValue::Kind::kNull; }

  // A key that does nothing here: one line says so, unless its value is an error.
  void TakeIdle(const JsonValue& value, const KeySpec& key) {
    const std::string idle = absl::StrCat("does nothing here: ", key.why);
    if (IsAuto(value) && TakesAuto(key)) {
      Finding* said =
          Add(KindOf(key.weight), value, key.path, absl::StrCat(idle, "; \"auto\" needs no value"));
      if (said != nullptr) said->is_auto = true;
      return keys_.Set(key.path, value, OriginOf(value));
    }
    const bool section = key.type == KeyType::kSection && value.is_object();
    const bool null = IsNull(value) && TakesNull(key);
    const bool plain = key.type != KeyType::kSection && ConvertValue(value, key).ok();
    if (section || null || plain) Add(KindOf(key.weight), value, key.path, idle);
    Take(value, key, Voice::kSilent);
  }

  static Kind KindOf(KeySpec::Weight weight) {
    switch (weight) {
      case KeySpec::Weight::kWarns: return Kind::kNoEffect;
      case KeySpec::Weight::kMinor: return Kind::kMinor;
      case KeySpec::Weight::kNote: break;
    }
    return Kind::kNote;
  }

  // A key may have two names, but stand only once.
  bool IsFirst(const JsonValue& value, const std::string& given, const KeySpec& key) {
    const auto [at, fresh] = names_.emplace(std::string(key.path), given);
    if (fresh) return true;
    Add(Kind::kError, value, given, absl::StrCat("is ", at->second, ", which is given, too"));
    return false;
  }

  // bf16 and its old name bfloat16, both given: DeepSpeed looks at the old one only where the new
  // one is null.
  bool YieldsToNewName(const JsonValue& value, const std::string& given, const KeySpec& key) {
    if (key.path != kBf16) return false;
    const JsonValue* other = root_.Find(given == kBf16 ? key.also : kBf16);
    if (other == nullptr) return false;
    if (given == kBf16) return IsNull(value);
    if (IsNull(*other)) return false;
    Add(Kind::kMinor, value, given, "does nothing here: bf16, its new name, is given, too");
    return true;
  }

  void UnknownKey(const JsonValue& value, const std::string& path) {
    if (findings_.IsFull() && findings_.First(Kind::kError) != nullptr) return;
    if (value.is_object() && !value.children.empty() && IsForeignSection(path)) {
      for (const JsonValue& member : value.children) UnknownKey(member, Join(path, member.key));
      return;
    }
    std::string message = "unknown key";
    if (const ForeignName* foreign = FindForeignName(path); foreign != nullptr) {
      absl::StrAppend(&message, "; ", ToString(*foreign));
    } else if (value.key.find('.') != std::string::npos) {
      absl::StrAppend(&message, "; a section is an object of its own, not a name with a dot");
    } else if (IsLikeComment(value.key)) {
      absl::StrAppend(&message, "; a comment is written // or #");
    } else if (const KeySpec* nearest = NearestKey(path); nearest != nullptr) {
      absl::StrAppend(&message, "; the nearest known one is ", nearest->path);
    }
    Add(Kind::kError, value, path, message);
  }

  static Origin OriginOf(const JsonValue& value) {
    if (value.from_environment) return Origin::kEnvironment;
    return value.override_text.empty() ? Origin::kFile : Origin::kCommandLine;
  }

  // What it becomes, the rules say (rules.cc): other keys may be needed for it.
  void SetAuto(const JsonValue& value, const KeySpec& key, Voice voice) {
    if (voice == Voice::kSilent || key.type == KeyType::kAny) {
      Add(Kind::kAuto, value, key.path, "\"auto\" needs no value here");
      keys_.Set(key.path, value, OriginOf(value));
    } else {
      keys_.Set(key.path, value, Origin::kAuto);
    }
  }

  // What a type takes that is not built: its own line says so.
  void SetAny(const JsonValue& value, const std::string& path) {
    keys_.Set(path, value, IsAuto(value) ? Origin::kAuto : OriginOf(value));
  }

  void CheckSection(const JsonValue& value, const KeySpec& key, Voice voice) {
    if (key.path == kZero && value.kind == JsonValue::Kind::kBool) return SetOldZero(value);
    if (!value.is_object()) return WrongType(value, key);
    if (key.path == kOffloadedParameters && GivenStage() != 3 && voice == Voice::kAloud) {
      Add(IsOffloaded(value) ? Kind::kNoEffect : Kind::kNote, value, key.path,
          absl::StrCat("does nothing here: ", kOnlyStage3Shards));
      voice = Voice::kSilent;
    }
    keys_.SetSection(key.path, value);
    if (voice == Voice::kSilent) keys_.Silence(key.path);
    CheckObject(value, key.path, voice);
    if (key.path == kZero && !names_.contains(std::string(kStage))) SetAbsentStage();
  }

  static bool IsOffloaded(const JsonValue& section) {
    const JsonValue* device = section.Find("device");
    return device != nullptr &&
           !(device->kind == JsonValue::Kind::kString && device->text == "none");
  }

  // A section without a stage means 0, as in DeepSpeed; no section at all, the ring's own 3.
  void SetAbsentStage() { keys_.Set(kStage, JsonValue::Integer(0), Origin::kDefault); }

  // The stage that the file says, as DeepSpeed reads it: 0 unless given.
  int64_t GivenStage() const {
    const JsonValue* zero = root_.Find(kZero);
    const JsonValue* stage = zero == nullptr ? nullptr : zero->Find("stage");
    if (stage == nullptr) return 0;
    const absl::StatusOr<JsonValue> value = ConvertValue(*stage, *FindKey(kStage));
    return value.ok() ? value->integer : 0;
  }

  // zero_optimization: true is an old way to say stage 1.
  void SetOldZero(const JsonValue& value) {
    Add(Kind::kNote, value, kZero, "an old form: write {\"stage\": 1} for true, 0 for false");
    JsonValue stage = value;
    stage.key = "stage";
    stage.kind = JsonValue::Kind::kInteger;
    stage.integer = value.boolean ? 1 : 0;
    stage.number = static_cast<double>(stage.integer);
    SetValue(stage, *FindKey(kStage), Voice::kAloud);
  }

  // A section that is another program's name for one value says so: "bf16": true.
  void WrongType(const JsonValue& value, const KeySpec& key) {
    const ForeignName* foreign = FindForeignName(key.path);
    Add(Kind::kError, value, key.path,
        absl::StrCat("wanted ", Describe(key.type), ", found ", Describe(value),
                     foreign == nullptr ? "" : absl::StrCat("; ", ToString(*foreign))));
  }

  void SetValue(const JsonValue& value, const KeySpec& key, Voice voice) {
    absl::StatusOr<JsonValue> converted = ConvertValue(value, key);
    if (!converted.ok()) {
      Add(Kind::kError, value, key.path, converted.status().message());
      return;
    }
    if (key.path == kClipping && converted->number < 0) {
      Add(Kind::kNote, value, key.path,
          absl::StrCat(WriteJson(value), " is as good as 0: off, as in DeepSpeed"));
      converted->number = 0;
    }
    if (voice == Voice::kAloud) CheckBuilt(value, *converted, key);
    keys_.Set(key.path, *std::move(converted), OriginOf(value));
  }

  void CheckBuilt(const JsonValue& value, const JsonValue& converted, const KeySpec& key) {
    if (IsBuilt(converted, key)) return;
    const std::string found = WriteJson(converted);
    if (key.scope == KeySpec::Scope::kOutside) {
      Add(Kind::kOutside, value, key.path,
          absl::StrCat(found, " is outside of this engine, only ", OneOf(key.built)));
      return;
    }
    Add(Kind::kNotBuilt, value, key.path,
        absl::StrCat(found, " is not built yet, only ", OneOf(key.built)));
  }

  void CheckRequired() {
    for (const KeySpec& key : AllKeys()) {
      if (key.need != KeyNeed::kRequired || !keys_.HasSection(key.section())) continue;
      if (names_.contains(std::string(key.path))) continue;
      if (!BelongsTo(key, TypeOf(key.path))) continue;
      const std::string choices = AllChoices(key);
      findings_.Add(Kind::kError, keys_.PlaceOf(key.section()), key.path,
                    choices.empty() ? absl::StrCat("missing (", key.meaning, ")")
                                    : absl::StrCat("missing; ", OneOf(choices)));
    }
  }

  const JsonValue& root_;
  const std::string& file_;
  Findings& findings_;
  ResolvedKeys keys_;
  std::map<std::string, std::string> names_;  // by path: the name under which it was given
};

}  // namespace

Place PlaceOf(const JsonValue& value, const std::string& file) {
  if (value.from_environment) {
    return {.text = absl::StrCat("environment (", value.override_text, ")")};
  }
  if (!value.override_text.empty()) return {.text = absl::StrCat("--set ", value.override_text)};
  if (value.line == 0) return {.text = file};
  return {.text = absl::StrCat(file, ":", value.line), .line = value.line};
}

ResolvedKeys ResolveKeys(const JsonValue& root, const std::string& file, Findings& findings) {
  return Resolver(root, file, findings).Run();
}

void FillDefaults(ResolvedKeys& keys) {
  static const std::vector<Default>* const defaults = new std::vector<Default>(ReadDefaults());
  for (const auto& [key, value] : *defaults) {
    if (keys.Has(key->path) || !BelongsTo(*key, SectionType(keys, key->path))) continue;
    if (IsPresent(*key, keys)) keys.Set(key->path, value, Origin::kDefault);
  }
}

}  // namespace ringzero
