// Checks a configuration's tree against the registry and fills in defaults: every key, one value.
//
//   RZ_ASSIGN_OR_RETURN(ResolvedKeys keys, ResolveKeys(root, "gpt.json"));
//   keys.Integer("cyclic.slack");                       // 1
//   keys.origin("cyclic.slack");                        // Origin::kDefault
//
// Errors are InvalidArgument and begin with the place: "gpt.json:12: " or "--set cyclic.slack=x: ".
#ifndef RINGZERO_ZERO_CONFIG_RESOLVE_H_
#define RINGZERO_ZERO_CONFIG_RESOLVE_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "zero/config/json_value.h"
#include "zero/config/keys.h"

namespace ringzero {

enum class Origin { kFile, kCommandLine, kDefault, kDerived };
absl::string_view ToString(Origin origin);  // "file", "command line", "default", "derived"

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
  Origin origin(absl::string_view path) const;
  // Was it given, in the file or on the command line?
  bool Given(absl::string_view path) const;

  void Set(absl::string_view path, JsonValue value, Origin origin);

  // InvalidArgument: the place where `path` was given, its name and `message`.
  absl::Status Error(absl::string_view path, absl::string_view message) const;
  // "run.json:12", "--set a.b=1", or the file when `path` was not given.
  std::string Place(absl::string_view path) const;

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
  bool HasBelow(const KeySpec& section) const;  // is there a value in it?
  void PrintSection(absl::string_view parent, int depth, std::string& out) const;

  std::string file_;
  std::map<std::string, Value, std::less<>> values_;
};

absl::StatusOr<ResolvedKeys> ResolveKeys(const JsonValue& root, const std::string& file);

}  // namespace ringzero

#endif  // RINGZERO_ZERO_CONFIG_RESOLVE_H_
