// Checks a configuration's tree against the registry and fills in defaults: every key, one value.
//
//   Findings findings;
//   ResolvedKeys keys = ResolveKeys(root, "gpt.json", findings);
//   FillDefaults(keys);
//   keys.Integer("cyclic.slack");                       // 1
//   keys.origin("cyclic.slack");                        // Origin::kDefault
//
// Findings begin with the place: "gpt.json:12: " or "--set cyclic.slack=x: ". All are found, not
// only the first; what is wrong has no value then.
#ifndef RINGZERO_ZERO_CONFIG_RESOLVE_H_
#define RINGZERO_ZERO_CONFIG_RESOLVE_H_

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "zero/config/finding.h"
#include "zero/config/json_value.h"
#include "zero/config/keys.h"

namespace ringzero {

enum class Origin { kFile, kCommandLine, kEnvironment, kDefault, kDerived, kAuto };
// "user", "user (--set)", "environment", "default", "derived", "auto"
absl::string_view ToString(Origin origin);

class ResolvedKeys {
 public:
  explicit ResolvedKeys(std::string file) : file_(std::move(file)) {}

  const std::string& file() const { return file_; }
  // Has a value: given, derived or by default. The getters below need one, of that type.
  bool Has(absl::string_view path) const { return values_.contains(path); }
  bool Bool(absl::string_view path) const { return at(path).boolean; }
  int64_t Integer(absl::string_view path) const { return at(path).integer; }
  double Number(absl::string_view path) const { return at(path).number; }
  const std::string& String(absl::string_view path) const { return at(path).text; }
  std::vector<int64_t> Integers(absl::string_view path) const;
  std::vector<double> Numbers(absl::string_view path) const;
  const JsonValue& Json(absl::string_view path) const { return at(path); }
  Origin origin(absl::string_view path) const;
  // Was it given: in the file, on the command line, by the environment?
  bool Given(absl::string_view path) const;
  // Is it "auto", and nothing has given it a value?
  bool MustBeSet(absl::string_view path) const;
  // Is it given, and on: true?
  bool IsOn(absl::string_view path) const;

  void Set(absl::string_view path, JsonValue value, Origin origin);
  void Erase(absl::string_view path) { values_.erase(std::string(path)); }
  // Is there a section of that path? `value` is where it was given.
  void SetSection(absl::string_view path, const JsonValue& value);
  bool HasSection(absl::string_view path) const { return sections_.contains(path); }
  // Was it given as null?
  void SetNull(absl::string_view path, JsonValue value) {
    nulls_.insert_or_assign(std::string(path), std::move(value));
  }
  bool IsNull(absl::string_view path) const { return nulls_.contains(path); }
  // A section that does nothing here: what it holds is kept and not spoken of.
  void Silence(absl::string_view path) { silent_.emplace(path); }
  bool IsSilent(absl::string_view path) const { return silent_.contains(path); }

  // InvalidArgument: the place where `path` was given, its name and `message`.
  absl::Status Error(absl::string_view path, absl::string_view message) const;
  // Where `path` was given, or the file when it was not.
  Place PlaceOf(absl::string_view path) const;

  // Every value with its origin, as JSON with comments; reads back equal.
  std::string Print() const;
  // "cyclic.slack = 1", a line each: what the workers of a job must have alike. Without what may
  // differ between them: where a worker finds its data, how often it prints.
  std::string SharedLines() const;

 private:
  struct Value {
    JsonValue json;
    Origin origin = Origin::kDefault;
  };
  const JsonValue& at(absl::string_view path) const;
  bool HasBelow(absl::string_view section) const;  // is there a value in it?
  void PrintSection(absl::string_view parent, int depth, std::string& out) const;

  std::string file_;
  std::map<std::string, Value, std::less<>> values_;
  std::map<std::string, JsonValue, std::less<>> sections_;  // without their members
  std::set<std::string, std::less<>> silent_;
  std::map<std::string, JsonValue, std::less<>> nulls_;
};

// Where `value` comes from.
Place PlaceOf(const JsonValue& value, const std::string& file);

inline constexpr absl::string_view kOnlyStage3Shards =
    "only stage 3 shards parameters; DeepSpeed ignores it, too";

// What is given, checked.
ResolvedKeys ResolveKeys(const JsonValue& root, const std::string& file, Findings& findings);

// And the rest.
void FillDefaults(ResolvedKeys& keys);

}  // namespace ringzero

#endif  // RINGZERO_ZERO_CONFIG_RESOLVE_H_
