// A configuration's values by path, and what a check of them has found.
//
//   Findings findings;
//   ResolvedKeys keys = ResolveKeys(text, {.file = "gpt.json"}, findings);
//   keys.Integer("cyclic.slack");      // 1
//   keys.origin("cyclic.slack");       // Origin::kDefault
//   findings.all().front().line;       // "gpt.json:3: fp16.enabled: wanted true or false, found 2"
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
#include "base/status.h"
#include "zero/config/json_value.h"

namespace ringzero {

struct Finding {
  enum class Kind {
    kError,     // the configuration is refused
    kNoEffect,  // a key that does nothing here, and why
    kMinor,     // as kNoEffect, for a key that hardly matters elsewhere either
    kOutside,   // known, but outside of this engine: `train` refuses it
    kNotBuilt,  // known, but not built yet: `train` refuses it
    kAuto,      // "auto", and what it became
    kMustSet,   // "auto" that nothing here gives a value: `train` asks for one
    kNote,
  };
  Kind kind;
  std::string path;
  std::string line;  // "place: path: message", one line
  int file_line;     // of the place
};

// Is it a kind that is no error, but that `train` refuses?
bool RefusedByTraining(Finding::Kind kind);

class Findings {
 public:
  // Left out where there are too many.
  void Add(Finding::Kind kind, const Place& place, absl::string_view path,
           absl::string_view message);
  // In the order of the file's lines; findings that belong to no line come last.
  void Sort();
  const std::vector<Finding>& all() const { return all_; }
  std::vector<Finding>& all() { return all_; }
  const Finding* First(Finding::Kind kind) const;  // null: none
  int Count(Finding::Kind kind) const;
  bool IsFull() const;  // then only a first error is added

 private:
  std::vector<Finding> all_;
};

class ResolvedKeys {
 public:
  explicit ResolvedKeys(std::string file) : file_(std::move(file)) {}

  const std::string& file() const { return file_; }
  // Has a value: given, derived or by default. The getters below need one, of that type.
  bool Has(absl::string_view path) const { return values_.contains(path); }
  bool Bool(absl::string_view path) const { return Json(path).boolean; }
  int64_t Integer(absl::string_view path) const { return Json(path).integer; }
  double Number(absl::string_view path) const { return Json(path).number; }
  const std::string& String(absl::string_view path) const { return Json(path).text; }
  const JsonValue& Json(absl::string_view path) const;
  Origin origin(absl::string_view path) const { return Json(path).origin; }
  // Was it given: in the file, on the command line, by the environment?
  bool Given(absl::string_view path) const;
  // Is it "auto", and nothing has given it a value?
  bool MustBeSet(absl::string_view path) const;
  // Is it there, by default too, and true?
  bool IsOn(absl::string_view path) const;

  void Set(absl::string_view path, JsonValue value, Origin origin);
  void Erase(absl::string_view path) { values_.erase(std::string(path)); }
  // The sections that are given, each with its place.
  void SetSection(absl::string_view path, const Place& place) {
    sections_.insert_or_assign(std::string(path), place);
  }
  bool HasSection(absl::string_view path) const { return sections_.contains(path); }
  // The keys that are given as null, each with its place.
  void SetNull(absl::string_view path, const Place& place) {
    nulls_.insert_or_assign(std::string(path), place);
  }
  bool IsNull(absl::string_view path) const { return nulls_.contains(path); }
  // A section that does nothing here: what it holds is kept and not spoken of.
  void Silence(absl::string_view path) { silent_.emplace(path); }
  bool IsSilent(absl::string_view path) const { return silent_.contains(path); }

  // InvalidArgument: the place where `path` was given, its name and the message.
  template <typename... Parts>
  absl::Status Error(absl::string_view path, const Parts&... message) const {
    return InvalidArgument(PlaceOf(path).text, ": ", path, ": ", message...);
  }
  // Where `path` was given, or the file when it was not.
  Place PlaceOf(absl::string_view path) const;

  // Every value with its origin, as JSON with comments; reads back equal.
  std::string Print() const;
  // "cyclic.slack = 1", a line each: what the workers of a job must have alike. Without what may
  // differ between them: where a worker finds its data, how often it prints.
  std::string SharedLines() const;

 private:
  bool HasBelow(absl::string_view section) const;  // is there a value in it?
  void PrintSection(absl::string_view parent, int depth, std::string& out) const;

  std::string file_;
  std::map<std::string, JsonValue, std::less<>> values_;
  std::map<std::string, Place, std::less<>> sections_;
  std::map<std::string, Place, std::less<>> nulls_;
  std::set<std::string, std::less<>> silent_;
};

struct ConfigSource {
  std::string file;                      // its name in errors
  std::vector<std::string> overrides;    // --set KEY.PATH=VALUE (resolve.cc)
  std::vector<std::string> environment;  // overrides, too, from what a launcher says
};

// Reads `text` and checks what is given against the registry, each key by itself, then by the rules
// over several keys. Findings begin with the place: "gpt.json:12: " or "--set cyclic.slack=x: ".
// Finds all errors, not only the first; a wrong key then has no value.
ResolvedKeys ResolveKeys(absl::string_view text, const ConfigSource& source, Findings& findings);

// Gives the other keys their defaults.
void FillDefaults(ResolvedKeys& keys);

// Defaults, contradictions, "auto", the batch triple (if workers are not given: for any number).
void ApplyRules(ResolvedKeys& keys, Findings& findings);

}  // namespace ringzero

#endif  // RINGZERO_ZERO_CONFIG_RESOLVE_H_
