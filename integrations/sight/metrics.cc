// CSV, JSON lines, and TensorBoard's event files: records with masked checksums, each a protobuf of
// four fields.
//
// A record: length (8 bytes, little endian), its masked CRC-32C, the bytes, theirs. An Event has
// wall_time (1, double), step (2, int64), file_version (3, string) or summary (5); a Summary has
// values (1), a value its tag (1) and simple_value (2, float). So little of protobuf is written
// here.
#include "integrations/sight/metrics.h"

#include <unistd.h>

#include <array>
#include <bit>
#include <chrono>
#include <cmath>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/string_view.h"
#include "base/files.h"
#include "base/status.h"

namespace ringzero {
namespace {

class CsvWriter : public MetricsWriter {
 public:
  explicit CsvWriter(std::string folder) : folder_(std::move(folder)) {}

  absl::Status Write(const MetricsMoment& moment, const std::vector<Scalar>& scalars) override {
    for (const Scalar& scalar : scalars) {
      auto found = files_.find(scalar.name);
      if (found == files_.end()) {
        const std::string name = absl::StrReplaceAll(scalar.name, {{"/", "_"}, {" ", "_"}});
        RZ_ASSIGN_OR_RETURN(auto file, OutputFile::Open(absl::StrCat(folder_, "/", name, ".csv"),
                                                        OutputFile::As::kAppended));
        RZ_RETURN_IF_ERROR(file->Write(
            absl::StrCat("step,", scalar.name.substr(scalar.name.rfind('/') + 1), "\n")));
        found = files_.emplace(scalar.name, std::move(file)).first;
      }
      RZ_RETURN_IF_ERROR(found->second->Write(
          absl::StrFormat("%d,%.17g\n", moment.samples, WithoutNanSign(scalar.value))));
    }
    return absl::OkStatus();
  }

 private:
  const std::string folder_;
  std::map<std::string, std::unique_ptr<OutputFile>> files_;
};

class JsonLinesWriter : public MetricsWriter {
 public:
  explicit JsonLinesWriter(std::unique_ptr<OutputFile> file) : file_(std::move(file)) {}

  absl::Status Write(const MetricsMoment& moment, const std::vector<Scalar>& scalars) override {
    nlohmann::ordered_json line = {{"iteration", moment.iteration},
                                   {"samples", moment.samples},
                                   {"wall_seconds", moment.wall_seconds},
                                   {"scalars", nlohmann::ordered_json::object()}};
    for (const Scalar& scalar : scalars) {
      const bool number = std::isfinite(scalar.value);
      line["scalars"][scalar.name] =
          number ? nlohmann::ordered_json(scalar.value) : nlohmann::ordered_json(nullptr);
    }
    return file_->Write(line.dump() + "\n");
  }

 private:
  const std::unique_ptr<OutputFile> file_;
};

constexpr uint32_t kCastagnoli = 0x82f63b78;  // reflected

constexpr std::array<uint32_t, 256> MakeTable() {
  std::array<uint32_t, 256> table = {};
  for (uint32_t i = 0; i < 256; ++i) {
    uint32_t value = i;
    for (int bit = 0; bit < 8; ++bit) value = (value >> 1) ^ ((value & 1) != 0 ? kCastagnoli : 0);
    table[i] = value;
  }
  return table;
}

uint32_t MaskedCrc(absl::string_view bytes) {
  static constexpr std::array<uint32_t, 256> kTable = MakeTable();
  uint32_t crc = ~0u;
  for (const char c : bytes) crc = kTable[(crc ^ static_cast<uint8_t>(c)) & 0xff] ^ (crc >> 8);
  return std::rotr(~crc, 15) + 0xa282ead8u;
}

template <typename T>
void AppendLittleEndian(std::string& to, T value) {
  for (size_t i = 0; i < sizeof(T); ++i) to.push_back(static_cast<char>(value >> (8 * i)));
}

void AppendVarint(std::string& to, uint64_t value) {
  for (; value >= 0x80; value >>= 7) to.push_back(static_cast<char>(value | 0x80));
  to.push_back(static_cast<char>(value));
}

enum class WireType : uint32_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };
void AppendKey(std::string& to, uint32_t field, WireType type) {
  AppendVarint(to, field << 3 | static_cast<uint32_t>(type));
}
void AppendBytes(std::string& to, uint32_t field, absl::string_view bytes) {
  AppendKey(to, field, WireType::kBytes);
  AppendVarint(to, bytes.size());
  to.append(bytes.data(), bytes.size());
}
void AppendDouble(std::string& to, uint32_t field, double value) {
  AppendKey(to, field, WireType::kFixed64);
  AppendLittleEndian(to, std::bit_cast<uint64_t>(value));
}
void AppendFloat(std::string& to, uint32_t field, float value) {
  AppendKey(to, field, WireType::kFixed32);
  AppendLittleEndian(to, std::bit_cast<uint32_t>(value));
}

std::string Record(absl::string_view event) {
  std::string length;
  AppendLittleEndian(length, static_cast<uint64_t>(event.size()));
  std::string record = length;
  AppendLittleEndian(record, MaskedCrc(length));
  record.append(event.data(), event.size());
  AppendLittleEndian(record, MaskedCrc(event));
  return record;
}

double WallSeconds() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

class TensorBoardWriter : public MetricsWriter {
 public:
  explicit TensorBoardWriter(std::unique_ptr<OutputFile> file) : file_(std::move(file)) {}

  absl::Status Begin() {
    std::string event;
    AppendDouble(event, 1, WallSeconds());
    AppendBytes(event, 3, "brain.Event:2");
    return file_->Write(Record(event));
  }

  absl::Status Write(const MetricsMoment& moment, const std::vector<Scalar>& scalars) override {
    std::string summary;
    for (const Scalar& scalar : scalars) {
      std::string value;
      AppendBytes(value, 1, scalar.name);
      AppendFloat(value, 2, static_cast<float>(scalar.value));
      AppendBytes(summary, 1, value);
    }
    std::string event;
    AppendDouble(event, 1, moment.wall_seconds);
    AppendKey(event, 2, WireType::kVarint);
    AppendVarint(event, static_cast<uint64_t>(moment.samples));
    AppendBytes(event, 5, summary);
    return file_->Write(Record(event));
  }

 private:
  const std::unique_ptr<OutputFile> file_;
};

}  // namespace

absl::StatusOr<std::string> MakeMonitorFolder(const MonitorConfig& monitor) {
  const std::string folder =
      absl::StrCat(monitor.output_path.empty() ? "." : monitor.output_path, "/", monitor.job_name);
  RZ_RETURN_IF_ERROR(MakeFolders(folder));
  return folder;
}

absl::StatusOr<std::unique_ptr<MetricsWriter>> MakeCsvWriter(const MonitorConfig& monitor) {
  RZ_ASSIGN_OR_RETURN(std::string folder, MakeMonitorFolder(monitor));
  return std::make_unique<CsvWriter>(std::move(folder));
}

absl::StatusOr<std::unique_ptr<MetricsWriter>> MakeJsonLinesWriter(const std::string& path) {
  RZ_ASSIGN_OR_RETURN(auto file, OutputFile::Open(path, OutputFile::As::kGrowing));
  return std::make_unique<JsonLinesWriter>(std::move(file));
}

absl::StatusOr<std::unique_ptr<MetricsWriter>> MakeTensorBoardWriter(const MonitorConfig& monitor) {
  RZ_ASSIGN_OR_RETURN(const std::string folder, MakeMonitorFolder(monitor));
  char host[256] = "host";
  gethostname(host, sizeof(host) - 1);
  const std::string path =
      absl::StrFormat("%s/events.out.tfevents.%010d.%s.%d.0", folder,
                      static_cast<int64_t>(WallSeconds()), std::string(host), getpid());
  RZ_ASSIGN_OR_RETURN(auto file, OutputFile::Open(path, OutputFile::As::kGrowing));
  auto writer = std::make_unique<TensorBoardWriter>(std::move(file));
  RZ_RETURN_IF_ERROR(writer->Begin());
  return writer;
}

}  // namespace ringzero
