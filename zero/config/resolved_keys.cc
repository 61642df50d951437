// Values by path: getters, places for errors, and printing.
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "zero/config/resolve.h"

namespace ringzero {

absl::string_view ToString(Origin origin) {
  switch (origin) {
    case Origin::kFile: return "file";
    case Origin::kCommandLine: return "command line";
    case Origin::kDefault: return "default";
    case Origin::kDerived: return "derived";
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
  return found != values_.end() &&
         (found->second.origin == Origin::kFile || found->second.origin == Origin::kCommandLine);
}

void ResolvedKeys::Set(absl::string_view path, JsonValue value, Origin origin) {
  values_.insert_or_assign(std::string(path), Value{.json = std::move(value), .origin = origin});
}

std::string ResolvedKeys::Place(absl::string_view path) const {
  const auto found = values_.find(path);
  if (found == values_.end()) return file_;
  const JsonValue& json = found->second.json;
  if (!json.override_text.empty()) return absl::StrCat("--set ", json.override_text);
  return json.line > 0 ? absl::StrCat(file_, ":", json.line) : file_;
}

absl::Status ResolvedKeys::Error(absl::string_view path, absl::string_view message) const {
  return absl::InvalidArgumentError(absl::StrCat(Place(path), ": ", path, ": ", message));
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

bool ResolvedKeys::HasBelow(const KeySpec& section) const {
  if (section.type != KeyType::kSection) return false;
  for (const KeySpec& key : AllKeys()) {
    if (key.parent() == section.path && Has(key.path)) return true;
  }
  return false;
}

void ResolvedKeys::PrintSection(absl::string_view parent, int depth, std::string& out) const {
  std::vector<const KeySpec*> keys;
  for (const KeySpec& key : AllKeys()) {
    if (key.parent() != parent) continue;
    const bool section = key.type == KeyType::kSection && key.state == KeyState::kBuilt;
    if (section || Has(key.path) || HasBelow(key)) keys.push_back(&key);
  }
  const std::string indent(2 * static_cast<size_t>(depth), ' ');
  for (const KeySpec* key : keys) {
    const absl::string_view comma = key == keys.back() ? "" : ",";
    absl::StrAppend(&out, indent, "\"", key->name(), "\": ");
    if (key->type == KeyType::kSection) {
      absl::StrAppend(&out, "{\n");
      PrintSection(key->path, depth + 1, out);
      absl::StrAppend(&out, indent, "}", comma, "\n");
    } else {
      absl::StrAppend(&out, WriteJson(at(key->path)), comma, "  // ", ToString(origin(key->path)),
                      "\n");
    }
  }
}

}  // namespace ringzero
