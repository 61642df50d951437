// The header of a safetensors file: JSON, checked before anything in it is believed.
#ifndef RINGZERO_INTEGRATIONS_DATA_SAFETENSORS_HEADER_H_
#define RINGZERO_INTEGRATIONS_DATA_SAFETENSORS_HEADER_H_

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "integrations/data/safetensors.h"

namespace ringzero::safetensors_internal {

inline constexpr uint64_t kMostHeaderBytes = 100'000'000;  // the format's own limit

struct Header {
  std::vector<SafetensorsReader::Entry> entries;  // in the order of their values
  std::map<std::string, std::string> metadata;
};

// Bytes of `spec`'s values, or an error: a negative extent, more bytes than 2^62, an unknown type.
absl::StatusOr<uint64_t> ByteSize(const TensorSpec& spec, std::string_view type_name);
std::string TypeName(TensorType type);
std::string ShapeText(const std::vector<int64_t>& shape);  // "{256, 784}"

// `value_bytes`: how many bytes follow the header. Errors name the tensor, not the file.
absl::StatusOr<Header> ParseHeader(std::string_view text, uint64_t value_bytes);
// The header and the eight bytes before it, filled up with spaces to a multiple of eight.
absl::StatusOr<std::string> MakeHeader(const std::vector<TensorSpec>& tensors,
                                       const std::map<std::string, std::string>& metadata);

}  // namespace ringzero::safetensors_internal

#endif  // RINGZERO_INTEGRATIONS_DATA_SAFETENSORS_HEADER_H_
