// What a check of a configuration has found: errors, and lines for the user.
//
//   findings.Add(Finding::Kind::kError, {.text = "run.json:3", .line = 3}, "fp16.enabled",
//                "wanted true or false, found 2");
//   findings.Sort();
//   findings.all().front().line;   // "run.json:3: fp16.enabled: wanted true or false, found 2"
#ifndef RINGZERO_ZERO_CONFIG_FINDING_H_
#define RINGZERO_ZERO_CONFIG_FINDING_H_

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace ringzero {

// Where something was given: "run.json:12", "--set a.b=1", "run.json".
struct Place {
  std::string text;
  int line = 0;  // in the file; 0: of no line of it
};

struct Finding {
  enum class Kind {
    kError,     // the configuration is refused
    kNoEffect,  // a key that does nothing here, and why
    kMinor,     // the same, of a key that hardly matters elsewhere either
    kOutside,   // known, but outside of this engine: `train` refuses it
    kNotBuilt,  // known, but not built yet: `train` refuses it
    kAuto,      // "auto", and what it became
    kMustSet,   // "auto" that nothing here gives a value: `train` asks for one
    kNote,
  };
  Kind kind;
  std::string path;
  std::string line;      // "place: path: message", one line
  int file_line = 0;     // the place's
  bool is_auto = false;  // of what does nothing here: its value is "auto", and the line says so
};

// Of a kind that is no error, but that `train` refuses?
bool RefusedByTraining(Finding::Kind kind);

class Findings {
 public:
  // Returns it, until the next change; null when it is left out, as there are too many.
  Finding* Add(Finding::Kind kind, const Place& place, absl::string_view path,
               absl::string_view message);
  // In the order of the file's lines; what belongs to none of them comes last.
  void Sort();
  const std::vector<Finding>& all() const { return all_; }
  std::vector<Finding>& all() { return all_; }
  const Finding* First(Finding::Kind kind) const;  // null: none
  int Count(Finding::Kind kind) const;
  bool IsFull() const;   // then only a first error is added
  bool HasAuto() const;  // is any value "auto", whatever became of it?

 private:
  std::vector<Finding> all_;
};

// What an engine that ignores nothing says of a whole configuration.
enum class Verdict {
  kAccept,
  kAcceptAuto,  // once its "auto" values (or a batch size) are given
  kWarn,        // with a line for each key that does nothing here
  kReject,
};
absl::string_view ToString(Verdict verdict);  // "accept", "accept_auto", "warn", "reject"

}  // namespace ringzero

#endif  // RINGZERO_ZERO_CONFIG_FINDING_H_
