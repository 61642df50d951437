// CSV, JSON lines, and TensorBoard's event files, made of records: length (8 bytes, little endian),
// its masked CRC-32C, a protobuf Event, its masked CRC-32C. An Event has wall_time (1, double),
// step (2, int64), file_version (3, string), summary (5) or a session (7), which has its status
// (1). A Summary has values (1); a value has its tag (1) and simple_value (2, float).
#include "integrations/sight/metrics.h"

#include <sys/utsname.h>
#include <unistd.h>

#include <bit>
#include <chrono>
#include <concepts>
#include <map>
#include <nlohmann/json.hpp>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "base/files.h"
#include "base/status.h"

namespace ringzero {
namespace {

// What TensorBoard checks records by: CRC-32C, masked.
uint32_t MaskedCrc(absl::string_view bytes) {
  constexpr uint32_t kCastagnoli = 0x82f63b78;  // reflected
  uint32_t crc = ~0u;
  for (const char c : bytes) {
    crc ^= static_cast<uint8_t>(c);
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? kCastagnoli : 0);
  }
  return std::rotr(~crc, 15) + 0xa282ead8u;
}

// As it lies in memory: little endian.
template <typename T>
std::string BytesOf(T value) {
  return std::string(reinterpret_cast<const char*>(&value), sizeof(T));
}

void AppendVarint(std::string& to, uint64_t value) {
  for (; value >= 0x80; value >>= 7) to.push_back(static_cast<char>(value | 0x80));
  to.push_back(static_cast<char>(value));
}

// A protobuf's field: its number and kind, and its value.
template <std::floating_point T>
void AppendField(std::string& to, uint32_t field, T value) {
  AppendVarint(to, field << 3 | (sizeof(T) == 8 ? 1u : 5u));
  to += BytesOf(value);
}
void AppendField(std::string& to, uint32_t field, int64_t value) {
  AppendVarint(to, field << 3);
  AppendVarint(to, static_cast<uint64_t>(value));
}
void AppendField(std::string& to, uint32_t field, absl::string_view bytes) {
  AppendVarint(to, field << 3 | 2);
  AppendVarint(to, bytes.size());
  absl::StrAppend(&to, bytes);
}

std::string Record(const std::string& event) {
  const std::string length = BytesOf(uint64_t{event.size()});
  return absl::StrCat(length, BytesOf(MaskedCrc(length)), event, BytesOf(MaskedCrc(event)));
}

// Whether a line stays in a run that goes on from `resumed`, in iterations or samples.
bool Stays(int64_t at, int64_t resumed, bool evaluation) {
  return at < resumed || (at == resumed && !evaluation);
}

// Of a file that may be missing.
absl::Status CutLines(const std::string& path, const std::function<bool(absl::string_view)>& keep) {
  const absl::StatusOr<std::string> text = ReadWholeFile(path);
  if (absl::IsNotFound(text.status())) return absl::OkStatus();
  RZ_RETURN_IF_ERROR(text.status());
  std::string kept;
  for (const absl::string_view line : absl::StrSplit(*text, '\n', absl::SkipEmpty())) {
    if (keep(line)) absl::StrAppend(&kept, line, "\n");
  }
  return WriteWholeFile(path, kept);
}

}  // namespace

double WallSeconds() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

absl::StatusOr<std::string> MakeMonitorFolder(const MonitorConfig& monitor) {
  const std::string folder =
      absl::StrCat(monitor.output_path.empty() ? "." : monitor.output_path, "/", monitor.job_name);
  RZ_RETURN_IF_ERROR(MakeFolders(folder));
  return folder;
}

absl::StatusOr<MetricsWriter> MakeCsvWriter(const MonitorConfig& monitor,
                                            const std::optional<MetricsMoment>& resumed) {
  RZ_ASSIGN_OR_RETURN(const std::string folder, MakeMonitorFolder(monitor));
  return [folder, resumed, files = std::map<std::string, std::shared_ptr<OutputFile>>()](
             const MetricsMoment& moment, const std::vector<Metric>& scalars) mutable {
    for (const auto& [name, value] : scalars) {
      std::shared_ptr<OutputFile>& file = files[name];
      if (file == nullptr) {
        const std::string flat = absl::StrReplaceAll(name, {{"/", "_"}, {" ", "_"}});
        const std::string path = absl::StrCat(folder, "/", flat, ".csv");
        const bool evaluation = absl::StrContains(name, "/eval_");
        const auto stays = [&](absl::string_view line) {
          int64_t samples = 0;
          const bool header = !absl::SimpleAtoi(line.substr(0, line.find(',')), &samples);
          return header || Stays(samples, resumed->samples, evaluation);
        };
        if (resumed.has_value()) RZ_RETURN_IF_ERROR(CutLines(path, stays));
        const bool goes_on = resumed.has_value() && ReadWholeFile(path, 1).ok();
        RZ_ASSIGN_OR_RETURN(file, OutputFile::Open(path, OutputFile::As::kAppended));
        const std::string header = absl::StrCat("step,", name.substr(name.rfind('/') + 1), "\n");
        if (!goes_on) RZ_RETURN_IF_ERROR(file->Write(header));
      }
      RZ_RETURN_IF_ERROR(
          file->Write(absl::StrFormat("%d,%.17g\n", moment.samples, WithoutNanSign(value))));
    }
    return absl::OkStatus();
  };
}

absl::StatusOr<MetricsWriter> MakeJsonLinesWriter(const std::string& path,
                                                  const std::optional<MetricsMoment>& resumed) {
  const auto stays = [&](absl::string_view line) {
    const auto json = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
    return json.is_object() && Stays(json.value("iteration", INT64_MAX), resumed->iteration,
                                     absl::StrContains(line, "/eval_"));
  };
  if (resumed.has_value()) RZ_RETURN_IF_ERROR(CutLines(path, stays));
  RZ_ASSIGN_OR_RETURN(std::shared_ptr<OutputFile> file,
                      OutputFile::Open(path, resumed.has_value() ? OutputFile::As::kAppended
                                                                 : OutputFile::As::kGrowing));
  return [file](const MetricsMoment& moment, const std::vector<Metric>& scalars) {
    nlohmann::ordered_json line = {{"iteration", moment.iteration},
                                   {"samples", moment.samples},
                                   {"wall_seconds", moment.wall_seconds}};
    for (const auto& [name, value] : scalars) line["scalars"][name] = value;
    return file->Write(line.dump() + "\n");  // null for a NaN
  };
}

absl::StatusOr<MetricsWriter> MakeTensorBoardWriter(const MonitorConfig& monitor,
                                                    const std::optional<MetricsMoment>& resumed) {
  RZ_ASSIGN_OR_RETURN(const std::string folder, MakeMonitorFolder(monitor));
  utsname system{};
  uname(&system);
  const std::string path =
      absl::StrFormat("%s/events.out.tfevents.%010d.%s.%d.0", folder,
                      static_cast<int64_t>(WallSeconds()), system.nodename, getpid());
  RZ_ASSIGN_OR_RETURN(std::shared_ptr<OutputFile> file,
                      OutputFile::Open(path, OutputFile::As::kGrowing));
  std::string version;
  AppendField(version, 1, WallSeconds());
  AppendField(version, 3, absl::string_view("brain.Event:2"));
  RZ_RETURN_IF_ERROR(file->Write(Record(version)));
  if (resumed.has_value()) {
    // A session that starts: TensorBoard leaves out what earlier files have from its step on.
    std::string start, session;
    AppendField(session, 1, int64_t{1});
    AppendField(start, 1, WallSeconds());
    AppendField(start, 2, resumed->samples + 1);
    AppendField(start, 7, absl::string_view(session));
    RZ_RETURN_IF_ERROR(file->Write(Record(start)));
  }
  return [file](const MetricsMoment& moment, const std::vector<Metric>& scalars) {
    std::string summary, event;
    for (const auto& [name, number] : scalars) {
      std::string value;
      AppendField(value, 1, absl::string_view(name));
      AppendField(value, 2, static_cast<float>(number));
      AppendField(summary, 1, absl::string_view(value));
    }
    AppendField(event, 1, moment.wall_seconds);
    AppendField(event, 2, moment.samples);
    AppendField(event, 5, absl::string_view(summary));
    return file->Write(Record(event));
  };
}

}  // namespace ringzero
