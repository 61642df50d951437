// Moves storages.
#include "integrations/torch/parameter_memory.h"

#include <algorithm>
#include <cstring>

#include "base/status.h"

namespace ringzero {

absl::StatusOr<std::unique_ptr<ParameterMemory>> ParameterMemory::Create(
    const std::string& what, const StageLayout& layout) {
  std::vector<std::pair<size_t, std::string>> parts;
  for (const ParameterSpec& spec : layout.parameters) {
    parts.emplace_back(static_cast<size_t>(spec.offset_bytes), spec.name);
  }
  RZ_ASSIGN_OR_RETURN(
      ReleasedRange released,
      ReleasedRange::Reserve(what, static_cast<size_t>(layout.parameter_bytes), std::move(parts)));
  return std::unique_ptr<ParameterMemory>(new ParameterMemory(layout, std::move(released)));
}

ParameterMemory::ParameterMemory(const StageLayout& layout, ReleasedRange released)
    : layout_(layout), released_(std::move(released)), bound_(layout.parameters.size()) {}

ParameterMemory::~ParameterMemory() {
  for (const Bound& bound : bound_) {
    for (const at::Tensor& tensor : bound.tensors) {
      c10::StorageImpl* storage = tensor.storage().unsafeGetStorageImpl();
      storage->set_data_ptr_noswap(at::DataPtr(nullptr, at::Device(at::kCPU)));
      storage->set_nbytes(static_cast<size_t>(0));
    }
  }
}

void ParameterMemory::Bind(int parameter, const at::Tensor& tensor) {
  bound_[parameter].tensors.push_back(tensor);
  // Resizing would ask torch's allocator for memory that is not ours.
  tensor.storage().unsafeGetStorageImpl()->set_resizable(false);
  Point(parameter, released_.data());
}

void ParameterMemory::Point(int parameter, const std::byte* base) {
  std::byte* data = const_cast<std::byte*>(base) + layout_.parameters[parameter].offset_bytes;
  for (const at::Tensor& tensor : bound_[parameter].tensors) {
    // No deleter: the version belongs to the engine.
    tensor.storage().unsafeGetStorageImpl()->set_data_ptr_noswap(
        at::DataPtr(data, at::Device(at::kCPU)));
  }
}

void ParameterMemory::PointAt(const std::byte* version) {
  for (size_t i = 0; i < bound_.size(); ++i) Point(static_cast<int>(i), version);
}

void ParameterMemory::PointSharedAt(const std::byte* version) {
  for (size_t i = 0; i < bound_.size(); ++i) {
    if (bound_[i].tensors.size() > 1) Point(static_cast<int>(i), version);
  }
}

void ParameterMemory::Release() { PointAt(released_.data()); }

void ParameterMemory::ReleaseUnshared() {
  for (size_t i = 0; i < bound_.size(); ++i) {
    if (bound_[i].tensors.size() == 1) Point(static_cast<int>(i), released_.data());
  }
}

uint64_t ParameterMemory::Fingerprint(const std::byte* version) const {
  constexpr int64_t kWords = 64;
  uint64_t hash = 0xcbf29ce484222325ULL;
  for (const ParameterSpec& spec : layout_.parameters) {
    const std::byte* values = version + spec.offset_bytes;
    const int64_t bytes = spec.numel * SizeOf(layout_.parameter_type), words = (bytes + 3) / 4;
    const int64_t stride = std::max<int64_t>(1, words / kWords);
    for (int64_t i = 0; i < words; i += stride) {
      uint32_t word = 0;
      std::memcpy(&word, values + i * 4, static_cast<size_t>(std::min<int64_t>(4, bytes - i * 4)));
      hash = (hash ^ word) * 0x100000001b3ULL;
    }
  }
  return hash;
}

}  // namespace ringzero
