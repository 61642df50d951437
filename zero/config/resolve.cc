// The check of each key by itself: is it known, has it a meaning here, is its value one. Then
// defaults; findings as lines, none of which grows without bound; and printing.
#include "zero/config/resolve.h"

#include <algorithm>
#include <limits>

#include "absl/status/statusor.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "zero/config/keys.h"
#include "zero/config/steps.h"

namespace ringzero {
namespace {

constexpr size_t kMaxLine = 1000;  // bytes
constexpr size_t kMaxFindings = 1000;

using Kind = Finding::Kind;

constexpr absl::string_view kBf16 = "bf16";
constexpr absl::string_view kClipping = "gradient_clipping";
constexpr absl::string_view kZero = "zero_optimization";
constexpr absl::string_view kStage = "zero_optimization.stage";
constexpr absl::string_view kOffloadedParameters = "zero_optimization.offload_param";

// The canonical "type" of a path's section, or empty when it has none.
std::string SectionType(const ResolvedKeys& keys, absl::string_view path) {
  const std::string type = absl::StrCat(path.substr(0, path.find('.')), ".type");
  return keys.Has(type) ? keys.String(type) : "";
}

// Is every section that `key` is in given, or one that is as good as given?
bool IsPresent(const KeySpec& key, const ResolvedKeys& keys) {
  for (const KeySpec* at = FindKey(key.parent()); at != nullptr; at = FindKey(at->parent())) {
    if (at->may_be_absent && !keys.HasSection(at->path)) return false;
    if (at->state != KeyState::kWorks || keys.IsSilent(at->path)) return false;
  }
  return true;
}

// Where `value` comes from.
Place PlaceOfValue(const JsonValue& value, const std::string& file) {
  if (value.from_environment) {
    return {.text = absl::StrCat("environment (", value.override_text, ")")};
  }
  if (!value.override_text.empty()) return {.text = absl::StrCat("--set ", value.override_text)};
  if (value.line == 0) return {.text = file};
  return {.text = absl::StrCat(file, ":", value.line), .line = value.line};
}

class Resolver {
 public:
  Resolver(const JsonValue& root, const std::string& file, Findings& findings)
      : root_(root), file_(file), findings_(findings), keys_(file) {}

  ResolvedKeys Run() {
    if (!root_.is_object()) {
      findings_.Add(Kind::kError, PlaceOfValue(root_, file_), "",
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
    return findings_.Add(kind, PlaceOfValue(value, file_), absl::Utf8SafeCEscape(path), message);
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
    if (voice == Voice::kAloud && key->is_idle()) return TakeIdle(value, *key);
    Take(value, *key, voice);
  }

  void Take(const JsonValue& value, const KeySpec& key, Voice voice) {
    if (IsAuto(value) && TakesAuto(key)) return SetAuto(value, key, voice);
    if (IsNull(value)) return keys_.SetNull(key.path, value);
    if (key.type == KeyType::kSection) return CheckSection(value, key, voice);
    SetValue(value, key, voice);
  }

  static bool IsNull(const JsonValue& value) { return value.kind == JsonValue::Kind::kNull; }

  // A key that does nothing here: one line says so, unless its value is an error.
  void TakeIdle(const JsonValue& value, const KeySpec& key) {
    const Kind kind = key.state == KeyState::kWarns   ? Kind::kNoEffect
                      : key.state == KeyState::kMinor ? Kind::kMinor
                                                      : Kind::kNote;
    const std::string idle = absl::StrCat("does nothing here: ", key.why);
    if (IsAuto(value) && TakesAuto(key)) {
      Finding* said = Add(kind, value, key.path, absl::StrCat(idle, "; \"auto\" needs no value"));
      if (said != nullptr) said->is_auto = true;
      return keys_.Set(key.path, value, OriginOf(value));
    }
    const bool section = key.type == KeyType::kSection;
    const bool right = section ? value.is_object() : ConvertValue(value, key).ok();
    if (IsNull(value) || right) Add(kind, value, key.path, idle);
    Take(value, key, Voice::kSilent);
  }

  // A key may have two names, but stand only once.
  bool IsFirst(const JsonValue& value, const std::string& given, const KeySpec& key) {
    const auto [at, fresh] = names_.emplace(key.path, given);
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
    // A section without a stage means 0, as in DeepSpeed; no section at all, the ring's own 3.
    if (key.path == kZero && (!names_.contains(std::string(kStage)) || keys_.IsNull(kStage))) {
      keys_.Set(kStage, JsonValue::Integer(0), Origin::kDefault);
    }
  }

  static bool IsOffloaded(const JsonValue& section) {
    const JsonValue* device = section.Find("device");
    return device != nullptr &&
           !(device->kind == JsonValue::Kind::kString && device->text == "none");
  }

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
    SetValue(value, *FindKey(kStage), Voice::kAloud);
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
    if (key.outside) {
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
      if (names_.contains(key.path) && !keys_.IsNull(key.path)) continue;
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

bool RefusedByTraining(Finding::Kind kind) {
  return kind == Finding::Kind::kNotBuilt || kind == Finding::Kind::kOutside ||
         kind == Finding::Kind::kMustSet;
}

Finding* Findings::Add(Finding::Kind kind, const Place& place, absl::string_view path,
                       absl::string_view message) {
  // The first error is never left out: it decides.
  if (IsFull() && (kind != Finding::Kind::kError || First(kind) != nullptr)) {
    return nullptr;
  }
  std::string line = absl::StrCat(place.text, ": ", path, path.empty() ? "" : ": ", message);
  if (line.size() > kMaxLine) {
    size_t end = kMaxLine;
    while ((static_cast<unsigned char>(line[end]) & 0xc0) == 0x80) --end;  // not inside UTF-8
    line = absl::StrCat(line.substr(0, end), "...");
  }
  all_.push_back(
      {.kind = kind, .path = std::string(path), .line = std::move(line), .file_line = place.line});
  return &all_.back();
}

void Findings::Sort() {
  const auto order = [](const Finding& finding) {
    return finding.file_line == 0 ? std::numeric_limits<int>::max() : finding.file_line;
  };
  std::stable_sort(all_.begin(), all_.end(),
                   [&](const Finding& a, const Finding& b) { return order(a) < order(b); });
}

const Finding* Findings::First(Finding::Kind kind) const {
  for (const Finding& finding : all_) {
    if (finding.kind == kind) return &finding;
  }
  return nullptr;
}

int Findings::Count(Finding::Kind kind) const {
  return static_cast<int>(
      std::count_if(all_.begin(), all_.end(), [&](const Finding& f) { return f.kind == kind; }));
}

bool Findings::IsFull() const { return all_.size() >= kMaxFindings; }

bool Findings::HasAuto() const {
  return std::any_of(all_.begin(), all_.end(), [](const Finding& f) {
    return f.is_auto || f.kind == Finding::Kind::kAuto || f.kind == Finding::Kind::kMustSet;
  });
}

absl::string_view ToString(Verdict verdict) {
  switch (verdict) {
    case Verdict::kAccept: return "accept";
    case Verdict::kAcceptAuto: return "accept_auto";
    case Verdict::kWarn: return "warn";
    case Verdict::kReject: return "reject";
  }
  return "";
}

absl::string_view ToString(Origin origin) {
  switch (origin) {
    case Origin::kFile: return "user";
    case Origin::kCommandLine: return "user (--set)";
    case Origin::kEnvironment: return "environment";
    case Origin::kDefault: return "default";
    case Origin::kDerived: return "derived";
    case Origin::kAuto: return "auto";
  }
  return "";
}

const ResolvedKeys::Value& ResolvedKeys::at(absl::string_view path) const {
  const auto found = values_.find(path);
  RZ_CHECK(found != values_.end(), absl::StrCat("no value of ", path));
  return found->second;
}

bool ResolvedKeys::Given(absl::string_view path) const {
  if (!Has(path)) return false;
  const Origin from = origin(path);
  return from == Origin::kFile || from == Origin::kCommandLine || from == Origin::kEnvironment;
}

bool ResolvedKeys::MustBeSet(absl::string_view path) const {
  return Has(path) && origin(path) == Origin::kAuto && IsAuto(Json(path));
}

bool ResolvedKeys::IsOn(absl::string_view path) const {
  return Has(path) && Json(path).kind == JsonValue::Kind::kBool && Bool(path);
}

void ResolvedKeys::Set(absl::string_view path, JsonValue value, Origin origin) {
  values_.insert_or_assign(std::string(path), Value{.json = std::move(value), .origin = origin});
}

void ResolvedKeys::SetSection(absl::string_view path, const JsonValue& value) {
  JsonValue place = value;
  place.children.clear();
  sections_.insert_or_assign(std::string(path), std::move(place));
}

Place ResolvedKeys::PlaceOf(absl::string_view path) const {
  if (const auto found = values_.find(path); found != values_.end()) {
    return PlaceOfValue(found->second.json, file_);
  }
  for (const auto* given : {&sections_, &nulls_}) {
    if (const auto found = given->find(path); found != given->end()) {
      return PlaceOfValue(found->second, file_);
    }
  }
  return {.text = file_};
}

absl::Status ResolvedKeys::Error(absl::string_view path, absl::string_view message) const {
  return absl::InvalidArgumentError(absl::StrCat(PlaceOf(path).text, ": ", path, ": ", message));
}

std::string ResolvedKeys::Print() const {
  std::string out = "{\n";
  PrintSection("", 1, out);
  return out + "}\n";
}

std::string ResolvedKeys::SharedLines() const {
  std::string lines;
  for (const auto& [path, value] : values_) {
    const KeySpec* key = FindKey(path);
    const bool testing = key != nullptr && key->state == KeyState::kTesting;
    if (testing || path == "data.path" || path == "steps_per_print") continue;
    if (key != nullptr && key->type == KeyType::kSection) continue;
    absl::StrAppend(&lines, path, " = ", WriteJson(value.json), "\n");
  }
  return lines;
}

bool ResolvedKeys::HasBelow(absl::string_view section) const {
  const std::string prefix = absl::StrCat(section, ".");
  const auto first = values_.lower_bound(prefix);
  return first != values_.end() && absl::StartsWith(first->first, prefix);
}

void ResolvedKeys::PrintSection(absl::string_view parent, int depth, std::string& out) const {
  // In the registry's order, each path once; then what only a wildcard knows.
  std::vector<std::string> paths;
  std::set<std::string> seen;
  for (const KeySpec& key : AllKeys()) {
    if (key.parent() != parent) continue;
    const bool shown = Has(key.path) || HasBelow(key.path) || HasSection(key.path);
    if (shown && seen.insert(std::string(key.path)).second) paths.emplace_back(key.path);
  }
  const std::string prefix = absl::StrCat(parent, ".");
  for (auto at = values_.lower_bound(prefix); !parent.empty() && at != values_.end(); ++at) {
    if (!absl::StartsWith(at->first, prefix)) break;
    const bool direct = at->first.find('.', prefix.size()) == std::string::npos;
    if (direct && seen.insert(at->first).second) paths.push_back(at->first);
  }
  const std::string indent(2 * static_cast<size_t>(depth), ' ');
  for (const std::string& path : paths) {
    const absl::string_view comma = &path == &paths.back() ? "" : ",";
    const std::string name = WriteJson(JsonValue::String(path.substr(path.rfind('.') + 1)));
    absl::StrAppend(&out, indent, name, ": ");
    if (Has(path)) {
      absl::StrAppend(&out, WriteJson(Json(path)), comma, "  // ", ToString(origin(path)),
                      MustBeSet(path) ? ", must be set for a run" : "", "\n");
    } else {
      absl::StrAppend(&out, "{\n");
      PrintSection(path, depth + 1, out);
      absl::StrAppend(&out, indent, "}", comma, "\n");
    }
  }
}

ResolvedKeys ResolveKeys(const JsonValue& root, const std::string& file, Findings& findings) {
  return Resolver(root, file, findings).Run();
}

void FillDefaults(ResolvedKeys& keys) {
  using Defaults = std::vector<std::pair<const KeySpec*, JsonValue>>;
  static const Defaults* const defaults = [] {
    auto* all = new Defaults;
    for (const KeySpec& key : AllKeys()) {
      if (key.default_json.empty() || key.state != KeyState::kWorks) continue;
      absl::StatusOr<JsonValue> value = ReadJson(key.default_json, key.path);
      if (value.ok()) value = ConvertValue(*value, key);
      RZ_CHECK(value.ok(), std::string(value.status().message()));
      value->line = 0;
      all->emplace_back(&key, *std::move(value));
    }
    return all;
  }();
  for (const auto& [key, value] : *defaults) {
    if (keys.Has(key->path) || !BelongsTo(*key, SectionType(keys, key->path))) continue;
    if (IsPresent(*key, keys)) keys.Set(key->path, value, Origin::kDefault);
  }
}

}  // namespace ringzero
