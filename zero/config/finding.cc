// Findings are lines, and none grows without bound.
#include "zero/config/finding.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace ringzero {
namespace {

constexpr size_t kMaxLine = 1000;  // bytes
constexpr size_t kMaxFindings = 1000;

}  // namespace

void Findings::Add(Finding::Kind kind, absl::string_view place, absl::string_view path,
                   absl::string_view message) {
  // The first error is never left out: it decides.
  if (all_.size() >= kMaxFindings && (kind != Finding::Kind::kError || First(kind) != nullptr)) {
    return;
  }
  std::string line = absl::StrCat(place, ": ", path, path.empty() ? "" : ": ", message);
  if (line.size() > kMaxLine) {
    size_t end = kMaxLine;
    while ((static_cast<unsigned char>(line[end]) & 0xc0) == 0x80) --end;  // not inside UTF-8
    line = absl::StrCat(line.substr(0, end), "...");
  }
  all_.push_back({.kind = kind, .path = std::string(path), .line = std::move(line)});
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
