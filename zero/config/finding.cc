// Findings are lines, and none grows without bound.
#include "zero/config/finding.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"

namespace ringzero {
namespace {

constexpr size_t kMaxLine = 1000;  // bytes
constexpr size_t kMaxFindings = 1000;

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

}  // namespace ringzero
