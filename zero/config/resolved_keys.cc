// Values by path: getters, places for errors, and printing.
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "zero/config/resolve.h"
#include "zero/config/values.h"

namespace ringzero {

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

const JsonValue& ResolvedKeys::at(absl::string_view path) const {
  const auto found = values_.find(path);
  RZ_CHECK(found != values_.end(), absl::StrCat("no value of ", path));
  return found->second.json;
}

std::vector<int64_t> ResolvedKeys::Integers(absl::string_view path) const {
  std::vector<int64_t> out;
  for (const JsonValue& item : at(path).children) out.push_back(item.integer);
  return out;
}

std::vector<double> ResolvedKeys::Numbers(absl::string_view path) const {
  std::vector<double> out;
  for (const JsonValue& item : at(path).children) out.push_back(item.number);
  return out;
}

Origin ResolvedKeys::origin(absl::string_view path) const {
  const auto found = values_.find(path);
  RZ_CHECK(found != values_.end(), absl::StrCat("no value of ", path));
  return found->second.origin;
}

bool ResolvedKeys::Given(absl::string_view path) const {
  const auto found = values_.find(path);
  if (found == values_.end()) return false;
  const Origin origin = found->second.origin;
  return origin == Origin::kFile || origin == Origin::kCommandLine ||
         origin == Origin::kEnvironment;
}

bool ResolvedKeys::MustBeSet(absl::string_view path) const {
  const auto found = values_.find(path);
  return found != values_.end() && found->second.origin == Origin::kAuto &&
         IsAuto(found->second.json);
}

bool ResolvedKeys::IsOn(absl::string_view path) const {
  const auto found = values_.find(path);
  return found != values_.end() && found->second.json.kind == JsonValue::Kind::kBool &&
         found->second.json.boolean;
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
    return ringzero::PlaceOf(found->second.json, file_);
  }
  for (const auto* given : {&sections_, &nulls_}) {
    if (const auto found = given->find(path); found != given->end()) {
      return ringzero::PlaceOf(found->second, file_);
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
      absl::StrAppend(&out, WriteJson(at(path)), comma, "  // ", ToString(origin(path)),
                      MustBeSet(path) ? ", must be set for a run" : "", "\n");
    } else {
      absl::StrAppend(&out, "{\n");
      PrintSection(path, depth + 1, out);
      absl::StrAppend(&out, indent, "}", comma, "\n");
    }
  }
}

}  // namespace ringzero
