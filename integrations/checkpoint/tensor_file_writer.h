// TensorFileWriter: writes safetensors files past the page cache, through a little staging memory.
//
//   RZ_ASSIGN_OR_RETURN(auto writer, TensorFileWriter::Create({}));
//   RZ_ASSIGN_OR_RETURN(std::string checksum, writer->Write("m.safetensors", tensors));
//
// A piece is copied into staging memory while the piece before is written from there: the memory of
// a whole tensor is never needed twice. A file's head holds the checksum of its values ("checksum"
// in its metadata), and the checksum of the head stands for the file. The file is durable when
// Write returns. One thread.
#ifndef RINGZERO_INTEGRATIONS_CHECKPOINT_TENSOR_FILE_WRITER_H_
#define RINGZERO_INTEGRATIONS_CHECKPOINT_TENSOR_FILE_WRITER_H_

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/buffer.h"
#include "integrations/data/safetensors.h"
#include "offload/io_engine.h"
#include "zero/precision.h"

namespace ringzero {

// Where a tensor's values lie in memory.
struct TensorSource {
  TensorSpec spec;
  const std::byte* values = nullptr;
  std::vector<int64_t> strides;  // in values, dense and without overlap; empty: row-major
};

TensorType TypeOf(ValueType type);

// The other way: row-major values into memory of such strides.
void PutRowMajor(std::span<const std::byte> from, size_t width, const std::vector<int64_t>& shape,
                 const std::vector<int64_t>& strides, std::byte* to);

// Strides of values row by row.
bool IsRowMajor(const std::vector<int64_t>& shape, const std::vector<int64_t>& strides);

// Of a file's values: XXH3 of the XXH3s of its pieces, which are of kPieceBytes.
std::vector<uint64_t> ChecksumsOfPieces(std::span<const std::byte> values);
std::string ChecksumOf(const std::vector<uint64_t>& pieces);
inline std::string ChecksumOfValues(std::span<const std::byte> values) {
  return ChecksumOf(ChecksumsOfPieces(values));
}
// Of the head, in which the checksum of the values stands.
std::string ChecksumOfHead(std::span<const std::byte> head);

struct TensorFileOptions {
  // Wraps the engine, for tests and measurements.
  std::function<std::unique_ptr<IoEngine>(std::unique_ptr<IoEngine>)> decorate;
  std::chrono::milliseconds wait_timeout{std::chrono::minutes(10)};  // of one piece
};

class TensorFileWriter {
 public:
  static constexpr int64_t kPieceBytes = 1 << 20;  // what one checksum is of
  static constexpr int64_t kStagingBytes = 2 * kPieceBytes;

  static absl::StatusOr<std::unique_ptr<TensorFileWriter>> Create(const TensorFileOptions& options);
  ~TensorFileWriter();

  // A new file, or in place of an old one. Returns ChecksumOfHead. Cancelled, once `stop` is set.
  // DeadlineExceeded: the disk does not answer, and no later Write tries it. Errors name the file.
  absl::StatusOr<std::string> Write(const std::string& path, std::vector<TensorSource> tensors,
                                    const std::atomic<bool>* stop = nullptr);

 private:
  explicit TensorFileWriter(const TensorFileOptions& options);
  absl::StatusOr<std::string> WriteValues(int file, int64_t begin,
                                          const std::vector<TensorSource>& tensors,
                                          const std::atomic<bool>* stop);
  absl::Status Put(int file, int64_t offset, std::span<std::byte> memory);
  absl::Status Settle();

  const std::chrono::milliseconds wait_timeout_;
  Buffer staging_;  // two halves
  std::unique_ptr<IoEngine> engine_;
  absl::Status stuck_;
};

}  // namespace ringzero

#endif  // RINGZERO_INTEGRATIONS_CHECKPOINT_TENSOR_FILE_WRITER_H_
