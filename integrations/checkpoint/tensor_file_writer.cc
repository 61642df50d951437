// Two halves of staging memory in turns; sizes and offsets that direct I/O wants.
#include "integrations/checkpoint/tensor_file_writer.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/crypto.h"
#include "base/status.h"
#include "base/unique_fd.h"

namespace ringzero {
namespace {

constexpr int64_t kHalf = TensorFileWriter::kPieceBytes;

std::string Hex(uint64_t value) { return absl::StrFormat("%016x", value); }

// Where the values of a tensor lie, one after the other, row by row.
class RowMajorWalk {
 public:
  RowMajorWalk(const std::vector<int64_t>& shape, const std::vector<int64_t>& strides,
               int64_t first)
      : shape_(shape), strides_(strides), index_(shape.size()) {
    for (size_t d = shape.size(); d-- > 0; first /= shape[d]) {
      index_[d] = first % shape[d];
      place_ += index_[d] * strides[d];
    }
  }
  int64_t Next() {
    const int64_t place = place_;
    for (size_t d = shape_.size(); d-- > 0;) {
      place_ += strides_[d];
      if (++index_[d] < shape_[d]) break;
      place_ -= shape_[d] * strides_[d];
      index_[d] = 0;
    }
    return place;
  }

 private:
  const std::vector<int64_t>& shape_;
  const std::vector<int64_t>& strides_;
  std::vector<int64_t> index_;
  int64_t place_ = 0;
};

// The values of all tensors as one stream of bytes.
class ValueStream {
 public:
  explicit ValueStream(const std::vector<TensorSource>& tensors) : tensors_(tensors) {}

  // Fills `out`, or as much of it as there is. Returns how much.
  int64_t Read(std::span<std::byte> out) {
    size_t done = 0;
    while (done < out.size() && at_ < tensors_.size()) {
      const TensorSource& tensor = tensors_[at_];
      const size_t width = WidthOf(tensor.spec.type);
      const int64_t count = NumelOf(tensor.spec.shape) - value_;
      // Pieces end between values: tensors of wide values come first.
      const auto taken = std::min<int64_t>(count, (out.size() - done) / width);
      if (taken > 0) Copy(tensor, width, taken, out.data() + done);
      done += taken * width;
      value_ += taken;
      if (taken == count) {
        ++at_;
        value_ = 0;
      }
    }
    return static_cast<int64_t>(done);
  }

 private:
  void Copy(const TensorSource& tensor, size_t width, int64_t count, std::byte* out) const {
    if (IsRowMajor(tensor.spec.shape, tensor.strides)) {
      std::memcpy(out, tensor.values + value_ * width, count * width);
      return;
    }
    RowMajorWalk walk(tensor.spec.shape, tensor.strides, value_);
    for (int64_t i = 0; i < count; ++i, out += width) {
      std::memcpy(out, tensor.values + walk.Next() * width, width);
    }
  }

  const std::vector<TensorSource>& tensors_;
  size_t at_ = 0;      // in tensors_
  int64_t value_ = 0;  // of that tensor
};

}  // namespace

TensorType TypeOf(ValueType type) {
  switch (type) {
    case ValueType::kFp16: return TensorType::kF16;
    case ValueType::kBf16: return TensorType::kBF16;
    case ValueType::kFp32: break;
  }
  return TensorType::kF32;
}

void PutRowMajor(std::span<const std::byte> from, size_t width, const std::vector<int64_t>& shape,
                 const std::vector<int64_t>& strides, std::byte* to) {
  if (IsRowMajor(shape, strides)) {
    std::memcpy(to, from.data(), from.size());
    return;
  }
  RowMajorWalk walk(shape, strides, 0);
  for (size_t at = 0; at < from.size(); at += width) {
    std::memcpy(to + walk.Next() * width, from.data() + at, width);
  }
}

bool IsRowMajor(const std::vector<int64_t>& shape, const std::vector<int64_t>& strides) {
  int64_t wanted = 1;
  for (size_t d = strides.size(); d-- > 0; wanted *= shape[d]) {
    if (shape[d] > 1 && strides[d] != wanted) return false;
  }
  return true;
}

std::string ChecksumOfHead(std::span<const std::byte> head) { return Hex(Checksum(head)); }

std::string ChecksumOf(const std::vector<uint64_t>& pieces) {
  return Hex(Checksum(std::as_bytes(std::span(pieces))));
}

std::vector<uint64_t> ChecksumsOfPieces(std::span<const std::byte> values) {
  std::vector<uint64_t> pieces;
  for (size_t at = 0; at < values.size(); at += kHalf) {
    pieces.push_back(Checksum(values.subspan(at, std::min<size_t>(kHalf, values.size() - at))));
  }
  return pieces;
}

TensorFileWriter::TensorFileWriter(const TensorFileOptions& options)
    : wait_timeout_(options.wait_timeout), staging_(MakeHeapBuffer(kStagingBytes)) {}

absl::StatusOr<std::unique_ptr<TensorFileWriter>> TensorFileWriter::Create(
    const TensorFileOptions& options) {
  std::unique_ptr<TensorFileWriter> writer(new TensorFileWriter(options));
  RZ_ASSIGN_OR_RETURN(ChosenIoEngine chosen, MakeIoEngine({}));
  writer->engine_ =
      options.decorate ? options.decorate(std::move(chosen.engine)) : std::move(chosen.engine);
  return writer;
}

TensorFileWriter::~TensorFileWriter() {
  if (!stuck_.ok()) Abandon(std::move(engine_), {std::move(staging_).Seal()});
}

absl::Status TensorFileWriter::Settle() {
  const auto deadline = std::chrono::steady_clock::now() + wait_timeout_;
  absl::Status first;
  while (engine_->under_way() > 0) {
    auto results = engine_->Wait(deadline);
    if (!results.ok()) return stuck_ = results.status();
    for (const IoResult& result : *results) {
      if (first.ok()) first = result.status;
    }
  }
  return first;
}

absl::Status TensorFileWriter::Put(int file, int64_t offset, std::span<std::byte> memory) {
  RZ_RETURN_IF_ERROR(Settle());
  return engine_->Submit(
      {{.kind = memory.empty() ? IoRequest::Kind::kSync : IoRequest::Kind::kWrite,
        .file = file,
        .offset = offset,
        .memory = memory}});
}

absl::StatusOr<std::string> TensorFileWriter::WriteValues(int file, int64_t begin,
                                                          const std::vector<TensorSource>& tensors,
                                                          const std::atomic<bool>* stop) {
  ValueStream stream(tensors);
  std::vector<uint64_t> pieces;
  for (int64_t at = 0;; at += kHalf) {
    if (stop != nullptr && *stop) return absl::CancelledError("the run ends");
    const std::span half(staging_.data() + (at / kHalf % 2) * kHalf, kHalf);
    const int64_t bytes = stream.Read(half);
    if (bytes == 0) break;
    pieces.push_back(Checksum(half.first(bytes)));
    const int64_t written = (bytes + kDirectAlignment - 1) / kDirectAlignment * kDirectAlignment;
    std::fill(half.begin() + bytes, half.begin() + written, std::byte{0});
    RZ_RETURN_IF_ERROR(Put(file, begin + at, half.first(written)));
    if (bytes < kHalf) break;
  }
  RZ_RETURN_IF_ERROR(Settle());
  return ChecksumOf(pieces);
}

absl::StatusOr<std::string> TensorFileWriter::Write(const std::string& path,
                                                    std::vector<TensorSource> tensors,
                                                    const std::atomic<bool>* stop) {
  RZ_RETURN_IF_ERROR(stuck_);
  std::ranges::stable_sort(tensors, std::ranges::greater(),
                           [](const TensorSource& each) { return WidthOf(each.spec.type); });
  std::vector<TensorSpec> specs;
  int64_t bytes = 0;
  for (const TensorSource& tensor : tensors) {
    specs.push_back(tensor.spec);
    bytes += NumelOf(tensor.spec.shape) * static_cast<int64_t>(WidthOf(tensor.spec.type));
  }
  const auto failed = [&](const char* what) {
    return absl::ErrnoToStatus(errno, absl::StrCat(path, ": ", what));
  };
  const auto head_with = [&](const std::string& checksum) {
    return SafetensorsHead(specs, {{"format", "pt"}, {"checksum", checksum}}, kDirectAlignment);
  };
  RZ_ASSIGN_OR_RETURN(std::string head, head_with(Hex(0)));
  const int flags = O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC;
  UniqueFd file(open(path.c_str(), flags | O_DIRECT, 0644));
  if (!file && errno == EINVAL) file = UniqueFd(open(path.c_str(), flags, 0644));  // tmpfs
  if (!file) return failed("cannot be made");
  const auto begin = static_cast<int64_t>(head.size());
  auto written = WriteValues(file.get(), begin, tensors, stop);
  if (!written.ok()) {
    // What is under way goes to this number of a file.
    if (stuck_.ok()) Settle().IgnoreError();
    if (!stuck_.ok()) (void)file.Release();
    return Annotate(written.status(), path);
  }
  RZ_ASSIGN_OR_RETURN(head, head_with(*written));
  for (size_t at = 0; at < head.size(); at += kHalf) {
    const size_t part = std::min<size_t>(kHalf, head.size() - at);
    std::memcpy(staging_.data(), head.data() + at, part);
    RZ_RETURN_IF_ERROR(Annotate(Put(file.get(), at, {staging_.data(), part}), path));
    RZ_RETURN_IF_ERROR(Annotate(Settle(), path));
  }
  if (ftruncate(file.get(), begin + bytes) != 0) return failed("cannot be cut to its size");
  RZ_RETURN_IF_ERROR(Annotate(Put(file.get(), 0, {}), path));
  RZ_RETURN_IF_ERROR(Annotate(Settle(), path));
  return ChecksumOfHead(std::as_bytes(std::span(head)));
}

}  // namespace ringzero
