// Maps a safetensors file, checks its header and converts values.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <bit>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "integrations/data/safetensors.h"
#include "integrations/data/safetensors_header.h"

namespace ringzero {
namespace {

using safetensors_internal::ShapeText;

static_assert(std::endian::native == std::endian::little, "values are stored little-endian");

// Closes a file descriptor on the way out.
struct Closer {
  ~Closer() { close(fd); }
  int fd;
};

float FromBF16(uint16_t bits) { return std::bit_cast<float>(uint32_t{bits} << 16); }

// Exact: every half is a float.
float FromF16(uint16_t bits) {
  const uint32_t sign = (bits & 0x8000u) << 16;
  const uint32_t exponent = bits >> 10 & 31, fraction = bits & 1023;
  if (exponent == 0) {  // zero or subnormal: fraction · 2^-24
    const float magnitude = static_cast<float>(fraction) * 0x1p-24f;
    return std::bit_cast<float>(std::bit_cast<uint32_t>(magnitude) | sign);
  }
  const uint32_t wide = exponent == 31 ? 255 : exponent + 112;
  return std::bit_cast<float>(sign | wide << 23 | fraction << 13);
}

// Values in a file may lie at any address.
template <typename Convert>
void ConvertHalves(const std::byte* from, std::span<float> out, Convert convert) {
  for (float& value : out) {
    uint16_t bits;
    std::memcpy(&bits, from, sizeof bits);
    from += sizeof bits;
    value = convert(bits);
  }
}

}  // namespace

SafetensorsReader::SafetensorsReader(std::string path, std::span<const std::byte> file)
    : path_(std::move(path)), file_(file) {}

SafetensorsReader::~SafetensorsReader() {
  munmap(const_cast<std::byte*>(file_.data()), file_.size());
}

absl::Status SafetensorsReader::Error(const std::string& what) const {
  return absl::InvalidArgumentError(absl::StrCat(path_, ": ", what));
}

absl::StatusOr<std::unique_ptr<SafetensorsReader>> SafetensorsReader::Open(
    const std::string& path) {
  // A FIFO does not keep this waiting: it is refused below.
  const Closer file = {.fd = open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC)};
  if (file.fd < 0) {
    const std::string message = absl::StrCat(path, ": cannot be opened: ", std::strerror(errno));
    return errno == ENOENT ? absl::NotFoundError(message) : absl::InvalidArgumentError(message);
  }
  struct stat info;
  if (fstat(file.fd, &info) != 0 || !S_ISREG(info.st_mode)) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": is not a regular file"));
  }
  const auto size = static_cast<size_t>(info.st_size);
  if (size < 8) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": truncated: ", size,
                     " bytes, where a safetensors file begins with 8 for the header's length"));
  }
  void* memory = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.fd, 0);
  if (memory == MAP_FAILED) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": cannot be mapped: ", std::strerror(errno)));
  }
  std::unique_ptr<SafetensorsReader> reader(
      new SafetensorsReader(path, {static_cast<const std::byte*>(memory), size}));
  RZ_RETURN_IF_ERROR(reader->Parse());
  return reader;
}

absl::Status SafetensorsReader::Parse() {
  uint64_t header_bytes;
  std::memcpy(&header_bytes, file_.data(), 8);
  if (header_bytes > safetensors_internal::kMostHeaderBytes) {
    return Error(absl::StrCat("its header would have ", header_bytes, " bytes: the most is ",
                              safetensors_internal::kMostHeaderBytes,
                              " (is it a safetensors file?)"));
  }
  if (header_bytes > file_.size() - 8) {
    return Error(absl::StrCat("truncated: a header of ", header_bytes, " bytes in a file of ",
                              file_.size()));
  }
  values_ = file_.subspan(8 + header_bytes);
  const std::string_view text(reinterpret_cast<const char*>(file_.data()) + 8, header_bytes);
  absl::StatusOr<safetensors_internal::Header> header =
      safetensors_internal::ParseHeader(text, values_.size());
  if (!header.ok()) return Annotate(header.status(), path_);
  entries_ = std::move(header->entries);
  metadata_ = std::move(header->metadata);
  for (size_t i = 0; i < entries_.size(); ++i) by_name_[entries_[i].spec.name] = i;
  return absl::OkStatus();
}

const SafetensorsReader::Entry* SafetensorsReader::Find(const std::string& name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : &entries_[found->second];
}

absl::StatusOr<const SafetensorsReader::Entry*> SafetensorsReader::FindAs(
    const std::string& name, const std::vector<int64_t>& shape, size_t values) const {
  const Entry* entry = Find(name);
  if (entry == nullptr) {
    return absl::NotFoundError(absl::StrCat(path_, ": has no tensor '", name, "'"));
  }
  size_t wanted = 1;
  for (int64_t extent : entry->spec.shape) wanted *= static_cast<size_t>(extent);
  if (entry->spec.shape != shape || wanted != values) {
    return Error(absl::StrCat("tensor '", name, "' has the shape ", ShapeText(entry->spec.shape),
                              ", wanted ", ShapeText(shape), " (", values, " values)"));
  }
  return entry;
}

absl::Status SafetensorsReader::Read(const std::string& name, const std::vector<int64_t>& shape,
                                     std::span<float> out) const {
  RZ_ASSIGN_OR_RETURN(const Entry* entry, FindAs(name, shape, out.size()));
  const std::byte* from = values_.data() + entry->begin;
  switch (entry->spec.type) {
    case TensorType::kF32:
      if (!out.empty()) std::memcpy(out.data(), from, out.size_bytes());
      return absl::OkStatus();
    case TensorType::kF16: ConvertHalves(from, out, FromF16); return absl::OkStatus();
    case TensorType::kBF16: ConvertHalves(from, out, FromBF16); return absl::OkStatus();
    case TensorType::kI64:
    case TensorType::kOther: break;
  }
  return Error(
      absl::StrCat("tensor '", name, "' is ", entry->type_name, ": wanted F32, F16 or BF16"));
}

absl::Status SafetensorsReader::Read(const std::string& name, const std::vector<int64_t>& shape,
                                     std::span<int64_t> out) const {
  RZ_ASSIGN_OR_RETURN(const Entry* entry, FindAs(name, shape, out.size()));
  if (entry->spec.type != TensorType::kI64) {
    return Error(absl::StrCat("tensor '", name, "' is ", entry->type_name, ": wanted I64"));
  }
  if (!out.empty()) std::memcpy(out.data(), values_.data() + entry->begin, out.size_bytes());
  return absl::OkStatus();
}

}  // namespace ringzero
