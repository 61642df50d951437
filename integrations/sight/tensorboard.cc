// TensorBoard's event files: records with masked checksums, each a protobuf of four fields.
//
// A record: length (8 bytes, little endian), its masked CRC-32C, the bytes, theirs. An Event has
// wall_time (1, double), step (2, int64), file_version (3, string) or summary (5); a Summary has
// values (1), a value its tag (1) and simple_value (2, float). So little of protobuf is written
// here.
#include <unistd.h>

#include <array>
#include <bit>
#include <chrono>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/files.h"
#include "base/status.h"
#include "integrations/sight/metrics.h"

namespace ringzero {
namespace {

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
