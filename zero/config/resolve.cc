// The file with what --set replaces in it: the options are parsed, then what they replace is
// dropped, then their values are written. The check of each key by itself: is it known, has it a
// meaning here, is its value right? Then defaults; findings as lines, none of which grows without
// bound; and printing.
#include "zero/config/resolve.h"

#include <algorithm>

#include "absl/status/statusor.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/check.h"
#include "base/texts.h"
#include "zero/config/keys.h"

namespace ringzero {
namespace {

constexpr size_t kMaxLine = 1000;  // bytes
constexpr size_t kMaxFindings = 1000;
constexpr size_t kMaxShownOverride = 200;  // bytes of one in messages

using Found = Finding::Kind;

constexpr absl::string_view kBf16 = "bf16";
constexpr absl::string_view kZero = "zero_optimization";
constexpr absl::string_view kStage = "zero_optimization.stage";
constexpr absl::string_view kPredict = "cyclic.predict";
constexpr absl::string_view kOffloadedParameters = "zero_optimization.offload_param";

struct Override {
  std::string path;
  JsonValue value;
};

void SetPlace(JsonValue& value, const Place& place, Origin origin) {
  value.place = place;
  value.origin = origin;
  for (JsonValue& child : value.children) SetPlace(child, place, origin);
}

// The option as messages show it. Short, because each value that the option gives keeps it.
std::string Shown(absl::string_view text) {
  if (text.size() <= kMaxShownOverride) return std::string(text);
  const absl::string_view shown = text.substr(0, kMaxShownOverride);
  return absl::StrCat(shown.substr(0, WholeUtf8(shown)), "...");
}

absl::StatusOr<Override> ParseOverride(const std::string& text, Origin origin) {
  const size_t equals = text.find('=');
  const Place place = {.text = origin == Origin::kEnvironment
                                   ? absl::StrCat("environment (", Shown(text), ")")
                                   : absl::StrCat("--set ", Shown(text))};
  const auto error = [&](absl::string_view message) {
    return InvalidArgument(place.text, ": ", message);
  };
  if (equals == std::string::npos || equals == 0) {
    return error("wanted KEY.PATH=VALUE, as in --set cyclic.rule=dp");
  }
  Override result{.path = text.substr(0, equals), .value = {}};
  const std::vector<absl::string_view> names = absl::StrSplit(result.path, '.');
  if (names.size() > size_t{kMaxJsonDepth}) {
    return error(absl::StrCat("more than ", kMaxJsonDepth, " levels"));
  }
  for (const absl::string_view name : names) {
    if (name.empty()) return error("an empty key");
  }
  const std::string value = text.substr(equals + 1);
  const absl::StatusOr<JsonValue> json = ReadJson(value, "value");
  result.value = json.ok() ? *json : JsonValue::String(value);
  SetPlace(result.value, place, origin);
  return result;
}

void Drop(JsonValue& object, absl::string_view key) {
  std::erase_if(object.children, [&](const JsonValue& child) { return child.key == key; });
}

// Drops from `object` (at `path`) what does not belong to `type`. Unknown keys stay: the check
// reports them.
void DropOtherTypes(JsonValue& object, const std::string& path, absl::string_view type) {
  std::erase_if(object.children, [&](const JsonValue& child) {
    const KeySpec* key = FindKey(absl::StrCat(path, ".", child.key), type);
    return key != nullptr && !BelongsTo(*key, type);
  });
  for (JsonValue& child : object.children) {
    if (child.is_object()) DropOtherTypes(child, absl::StrCat(path, ".", child.key), type);
  }
}

absl::Status Write(const Override& change, JsonValue& root) {
  JsonValue* at = &root;
  const std::vector<std::string> names = absl::StrSplit(change.path, '.');
  std::string path;
  for (size_t i = 0; i < names.size(); ++i) {
    if (!at->is_object()) {
      return InvalidArgument(change.value.place.text, ": ", path, " is ", Describe(*at),
                             " and has no keys");
    }
    path = Join(path, names[i]);
    JsonValue* next = at->Find(names[i]);
    if (next == nullptr) {
      at->children.push_back(change.value.With({.kind = JsonValue::Kind::kObject}));
      at->children.back().key = names[i];
      next = &at->children.back();
    }
    at = next;
  }
  *at = change.value;
  at->key = names.back();
  return absl::OkStatus();
}

// --set KEY.PATH=VALUE: VALUE is JSON where it parses as JSON, else a string. `X.type=…` replaces
// section X: keys that do not belong to the new type are dropped, unless they are set too.
// `iterations=…` drops `epochs` and the other way round. The order of the overrides does not
// matter, but of two for one key the last wins.
absl::Status ApplyOverrides(const std::vector<std::string>& overrides, Origin origin,
                            JsonValue& root) {
  std::vector<Override> changes;
  for (const std::string& text : overrides) {
    RZ_ASSIGN_OR_RETURN(Override change, ParseOverride(text, origin));
    std::erase_if(changes, [&](const Override& earlier) { return earlier.path == change.path; });
    changes.push_back(std::move(change));
  }
  for (const Override& change : changes) {
    if (change.path == "iterations") Drop(root, "epochs");
    if (change.path == "epochs") Drop(root, "iterations");
    const auto [section, name] = SplitOnce(change.path, ".");
    if (name != "type" || change.value.kind != JsonValue::Kind::kString) continue;
    if (JsonValue* object = root.Find(section); object != nullptr && object->is_object()) {
      DropOtherTypes(*object, std::string(section), change.value.text);
    }
  }
  // Whole sections before their keys, so that the order of the options does not matter.
  std::ranges::stable_sort(
      changes, {}, [](const Override& change) { return std::ranges::count(change.path, '.'); });
  for (const Override& change : changes) RZ_RETURN_IF_ERROR(Write(change, root));
  return absl::OkStatus();
}

absl::StatusOr<JsonValue> ReadSource(absl::string_view text, const ConfigSource& source) {
  RZ_ASSIGN_OR_RETURN(JsonValue root, ReadHjson(text, source.file));
  if (!root.is_object()) return root;  // the file is to blame, not what is set in it
  RZ_RETURN_IF_ERROR(ApplyOverrides(source.overrides, Origin::kCommandLine, root));
  RZ_RETURN_IF_ERROR(ApplyOverrides(source.environment, Origin::kEnvironment, root));
  return root;
}

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

class Resolver {
 public:
  Resolver(const JsonValue& root, const std::string& file, Findings& findings)
      : root_(root), findings_(findings), keys_(file) {}

  ResolvedKeys Run() {
    CheckObject(root_, "", Voice::kAloud);
    CheckRequired();
    return std::move(keys_);
  }

 private:
  // Inside of a section that does nothing here, one line for the section is enough.
  enum class Voice { kAloud, kSilent };

  template <typename... Parts>
  void Add(Found kind, const JsonValue& value, absl::string_view path, const Parts&... message) {
    findings_.Add(kind, value.place, absl::Utf8SafeCEscape(path), absl::StrCat(message...));
  }

  std::string TypeOf(absl::string_view path) const { return SectionType(keys_, path); }

  // Has the section of `path` a "type" to tell its keys by, but not a known one?
  bool TypeIsMissing(absl::string_view path) const {
    const absl::string_view section = path.substr(0, path.find('.'));
    return FindKey(absl::StrCat(section, ".type")) != nullptr && TypeOf(path).empty();
  }

  void CheckObject(const JsonValue& object, absl::string_view parent, Voice voice) {
    // First the type, which says what the other keys mean, and the stage.
    for (const char* first : {"type", "stage"}) {
      if (const JsonValue* member = object.Find(first)) CheckMember(*member, parent, voice);
    }
    if (TypeIsMissing(parent) && parent.find('.') != absl::string_view::npos) return;
    for (const JsonValue& member : object.children) {
      if (member.key != "type" && member.key != "stage") CheckMember(member, parent, voice);
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
    if (value.key.empty()) return Add(Found::kError, value, parent, "an empty key");
    const std::string given = Join(parent, value.key);
    const KeySpec* key = Find(parent, value.key);
    if (key == nullptr) return AddUnknown(value, given);
    if (key->state == KeyState::kRemoved) {
      const absl::string_view by = key->section() == "cyclic" ? "; " : " from DeepSpeed; ";
      return Add(Found::kError, value, given, "removed", by, key->why);
    }
    if (!key->types.empty() && !BelongsTo(*key, TypeOf(key->path))) {
      if (TypeIsMissing(key->path)) return;
      Add(Found::kError, value, given, "has no meaning for ", key->section(), ".type ",
          TypeOf(key->path), ", only for ", OneOf(TypesOf(key->path)));
      return;
    }
    if (key->name() == "*") {  // its type is not built: the line of the type says so
      return keys_.Set(given, value, IsAuto(value) ? Origin::kAuto : value.origin);
    }
    // DeepSpeed looks at the old name of bf16 only if bf16 itself is null.
    const JsonValue* now = root_.Find(kBf16);
    if (given == key->also && key->path == kBf16 && now != nullptr && !IsNull(*now)) {
      return Add(Found::kMinor, value, given, "does nothing here: bf16 is given, too");
    }
    if (given == kBf16 && IsNull(value)) return keys_.SetNull(given, value.place);
    if (absl::StartsWith(value.key, "cpu_offload") && !key->is_idle() && !IsAuto(value)) {
      return ReplaceOffload(value, *key, voice);
    }
    if (!IsFirst(value, given, *key)) return;
    if (voice == Voice::kAloud && key->is_idle()) return TakeIdle(value, *key);
    Take(value, *key, voice);
  }

  void Take(const JsonValue& value, const KeySpec& key, Voice voice) {
    if (IsAuto(value) && TakesAuto(key)) return SetAuto(value, key, voice);
    if (IsNull(value)) return keys_.SetNull(key.path, value.place);
    if (key.type == KeyType::kSection) return CheckSection(value, key, voice);
    SetValue(value, key, voice);
  }

  static bool IsNull(const JsonValue& value) { return value.kind == JsonValue::Kind::kNull; }

  // A key that does nothing here: one line says so, unless its value is an error.
  void TakeIdle(const JsonValue& value, const KeySpec& key) {
    const Found kind = key.state == KeyState::kWarns   ? Found::kNoEffect
                       : key.state == KeyState::kMinor ? Found::kMinor
                                                       : Found::kNote;
    const std::string idle = absl::StrCat("does nothing here: ", key.why);
    if (IsAuto(value) && TakesAuto(key)) {
      Add(kind, value, key.path, idle, "; \"auto\" needs no value");
      return keys_.Set(key.path, value, value.origin);
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
    Add(Found::kError, value, given, "is ", at->second, ", which is given, too");
    return false;
  }

  // cpu_offload and cpu_offload_param are old words for sections with device cpu.
  void ReplaceOffload(const JsonValue& value, const KeySpec& key, Voice voice) {
    JsonValue section = value;
    section.kind = JsonValue::Kind::kObject;
    section.key = absl::EndsWith(key.path, "param") ? "offload_param" : "offload_optimizer";
    const KeySpec& now = *FindKey(Join(key.parent(), section.key));
    const absl::StatusOr<JsonValue> on = ConvertValue(value, key);
    if (!IsFirst(value, key.path, now) || IsNull(value)) return;
    if (!on.ok()) return Add(Found::kError, value, key.path, on.status().message());
    Add(Found::kNote, value, key.path, "an old word for ", now.path);
    section.children = {value.With(JsonValue::String(on->boolean ? "cpu" : "none"))};
    section.children[0].key = "device";
    Take(section, now, voice);
  }

  void AddUnknown(const JsonValue& value, const std::string& path) {
    if (findings_.IsFull() && findings_.First(Found::kError) != nullptr) return;
    if (value.is_object() && !value.children.empty() && IsForeignSection(path)) {
      for (const JsonValue& member : value.children) AddUnknown(member, Join(path, member.key));
      return;
    }
    Add(Found::kError, value, path, UnknownKey(path, value.key));
  }

  // The rules (rules.cc) say what "auto" becomes: they may need other keys for it.
  void SetAuto(const JsonValue& value, const KeySpec& key, Voice voice) {
    const bool idle = voice == Voice::kSilent || key.type == KeyType::kAny;
    if (idle) Add(Found::kAuto, value, key.path, "\"auto\" needs no value here");
    keys_.Set(key.path, value, idle ? value.origin : Origin::kAuto);
  }

  void CheckSection(const JsonValue& value, const KeySpec& key, Voice voice) {
    if (key.path == kZero && value.kind == JsonValue::Kind::kBool) return SetOldZero(value);
    if (key.path == kPredict && value.kind == JsonValue::Kind::kBool) return SetPredict(value);
    const bool list = value.kind == JsonValue::Kind::kArray;
    if (key.is_list && list) return keys_.Set(key.path, value, value.origin);  // read by FillRun
    if (key.is_list || !value.is_object()) return WrongType(value, key);
    const bool sharded = keys_.Has(kStage) && keys_.Json(kStage).integer == 3;
    if (key.path == kOffloadedParameters && !sharded && voice == Voice::kAloud) {
      Add(IsOffloaded(value) ? Found::kNoEffect : Found::kNote, value, key.path,
          "does nothing here: only stage 3 shards parameters; DeepSpeed ignores it, too");
      voice = Voice::kSilent;
    }
    keys_.SetSection(key.path, value.place);
    if (voice == Voice::kSilent) keys_.Silence(key.path);
    CheckObject(value, key.path, voice);
    // A section without a stage means stage 0, as in DeepSpeed; no section means the ring's own 3.
    if (key.path == kZero && (!names_.contains(std::string(kStage)) || keys_.IsNull(kStage))) {
      keys_.Set(kStage, JsonValue::Integer(0), Origin::kDefault);
    }
  }

  static bool IsOffloaded(const JsonValue& section) {
    const JsonValue* device = section.Find("device");
    return device != nullptr && device->text != "none";
  }

  // zero_optimization: true is an old way to say stage 1.
  void SetOldZero(const JsonValue& value) {
    Add(Found::kNote, value, kZero, "an old form: write {\"stage\": 1} for true, 0 for false");
    SetValue(value, *FindKey(kStage), Voice::kAloud);
  }

  // true is an empty section, false one with a factor of 0.
  void SetPredict(const JsonValue& value) {
    keys_.SetSection(kPredict, value.place);
    if (!value.boolean) keys_.Set(Join(kPredict, "factor"), JsonValue::Integer(0), value.origin);
  }

  // A section may be another program's name for one value ("bf16": true): the error says so.
  void WrongType(const JsonValue& value, const KeySpec& key) {
    const ForeignName* foreign = FindForeignName(key.path);
    Add(Found::kError, value, key.path, "wanted ",
        key.is_list ? "a list of objects" : Describe(key.type), ", found ", Describe(value),
        foreign == nullptr ? "" : absl::StrCat("; ", ToString(*foreign)));
  }

  void SetValue(const JsonValue& value, const KeySpec& key, Voice voice) {
    absl::StatusOr<JsonValue> converted = ConvertValue(value, key);
    if (!converted.ok()) return Add(Found::kError, value, key.path, converted.status().message());
    // A section that does nothing may still ask for what is refused (aio.use_gds). DeepSpeed does
    // not look at offload_param below stage 3.
    const bool unread = voice == Voice::kSilent && key.parent() == kOffloadedParameters;
    if (!unread) CheckBuilt(value, *converted, key);
    keys_.Set(key.path, *std::move(converted), value.origin);
  }

  void CheckBuilt(const JsonValue& value, const JsonValue& converted, const KeySpec& key) {
    if (IsBuilt(converted, key)) return;
    Add(key.outside ? Found::kOutside : Found::kNotBuilt, value, key.path, WriteJson(converted),
        key.outside ? " is outside of this engine" : " is not built yet", ", only ",
        OneOf(key.built));
  }

  void CheckRequired() {
    for (const KeySpec& key : AllKeys()) {
      if (!key.required || !keys_.HasSection(key.section())) continue;
      const KeySpec* const parent = FindKey(key.parent());
      if (parent->may_be_absent && !keys_.HasSection(parent->path)) continue;
      if (names_.contains(key.path) && !keys_.IsNull(key.path)) continue;
      if (!BelongsTo(key, TypeOf(key.path))) continue;
      const std::string choices = AllChoices(key);
      findings_.Add(Found::kError, keys_.PlaceOf(key.section()), key.path,
                    choices.empty() ? absl::StrCat("missing (", key.meaning, ")")
                                    : absl::StrCat("missing; ", OneOf(choices)));
    }
  }

  const JsonValue& root_;
  Findings& findings_;
  ResolvedKeys keys_;
  std::map<std::string, std::string> names_;  // by path: the name under which it was given
};

}  // namespace

bool RefusedByTraining(Finding::Kind kind) {
  return kind == Finding::Kind::kNotBuilt || kind == Finding::Kind::kOutside ||
         kind == Finding::Kind::kMustSet;
}

void Findings::Add(Finding::Kind kind, const Place& place, absl::string_view path,
                   absl::string_view message) {
  // The first error is never left out: it decides whether the file is taken.
  if (IsFull() && (kind != Found::kError || First(kind) != nullptr)) return;
  std::string line = absl::StrCat(place.text, place.text.empty() ? "" : ": ", path,
                                  path.empty() ? "" : ": ", message);
  if (line.size() > kMaxLine) {
    line = absl::StrCat(line.substr(0, WholeUtf8(line.substr(0, kMaxLine))), "...");
  }
  all_.push_back(
      {.kind = kind, .path = std::string(path), .line = std::move(line), .file_line = place.line});
}

void Findings::Sort() { std::ranges::stable_sort(all_, {}, &Finding::file_line); }

const Finding* Findings::First(Finding::Kind kind) const {
  const auto found = std::ranges::find(all_, kind, &Finding::kind);
  return found == all_.end() ? nullptr : &*found;
}

int Findings::Count(Finding::Kind kind) const {
  return static_cast<int>(std::ranges::count(all_, kind, &Finding::kind));
}

bool Findings::IsFull() const { return all_.size() >= kMaxFindings; }

const JsonValue& ResolvedKeys::Json(absl::string_view path) const {
  const auto found = values_.find(path);
  RZ_CHECK(found != values_.end(), absl::StrCat("no value of ", path));
  return found->second;
}

bool ResolvedKeys::Given(absl::string_view path) const {
  return Has(path) && origin(path) <= Origin::kEnvironment;
}

bool ResolvedKeys::MustBeSet(absl::string_view path) const {
  return Has(path) && origin(path) == Origin::kAuto && IsAuto(Json(path));
}

bool ResolvedKeys::IsOn(absl::string_view path) const {
  return Has(path) && Json(path).kind == JsonValue::Kind::kBool && Bool(path);
}

void ResolvedKeys::Set(absl::string_view path, JsonValue value, Origin origin) {
  value.origin = origin;
  values_.insert_or_assign(std::string(path), std::move(value));
}

Place ResolvedKeys::PlaceOf(absl::string_view path) const {
  if (Has(path) && !Json(path).place.text.empty()) return Json(path).place;
  for (const auto* given : {&sections_, &nulls_}) {
    if (const auto found = given->find(path); found != given->end()) return found->second;
  }
  return {.text = file_};
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
    absl::StrAppend(&lines, path, " = ", WriteJson(value), "\n");
  }
  return lines;
}

bool ResolvedKeys::HasBelow(absl::string_view section) const {
  const std::string prefix = absl::StrCat(section, ".");
  const auto first = values_.lower_bound(prefix);
  return first != values_.end() && absl::StartsWith(first->first, prefix);
}

void ResolvedKeys::PrintSection(absl::string_view parent, int depth, std::string& out) const {
  // In the registry's order, each path once; then the paths that only a wildcard knows.
  std::vector<std::string> paths;
  const auto add = [&](const std::string& path) {
    if (std::find(paths.begin(), paths.end(), path) == paths.end()) paths.push_back(path);
  };
  for (const KeySpec& key : AllKeys()) {
    const bool shown = Has(key.path) || HasBelow(key.path) || HasSection(key.path);
    if (key.parent() == parent && shown) add(key.path);
  }
  const std::string prefix = absl::StrCat(parent, ".");
  for (const auto& [path, value] : values_) {
    const bool direct = path.find('.', prefix.size()) == std::string::npos;
    if (absl::StartsWith(path, prefix) && direct) add(path);
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

ResolvedKeys ResolveKeys(absl::string_view text, const ConfigSource& source, Findings& findings) {
  ResolvedKeys keys(source.file);
  const absl::StatusOr<JsonValue> root = ReadSource(text, source);
  if (!root.ok()) {
    findings.Add(Found::kError, {}, "", root.status().message());
  } else if (!root->is_object()) {
    findings.Add(Found::kError, root->place, "",
                 absl::StrCat("wanted an object at the top, found ", Describe(*root)));
  } else {
    keys = Resolver(*root, source.file, findings).Run();
    ApplyRules(keys, findings);
    findings.Sort();
  }
  return keys;
}

void FillDefaults(ResolvedKeys& keys) {
  for (const KeySpec& key : AllKeys()) {
    if (key.default_json.empty() || key.state != KeyState::kWorks || keys.Has(key.path)) continue;
    if (!BelongsTo(key, SectionType(keys, key.path)) || !IsPresent(key, keys)) continue;
    keys.Set(key.path, key.standard, Origin::kDefault);
  }
}

}  // namespace ringzero
