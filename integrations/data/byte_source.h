// The bytes of a file in order, unpacked on the way when it is a gzip file.
//
//   RZ_ASSIGN_OR_RETURN(ByteSource source, ByteSource::Open("/data/train-images-idx3-ubyte.gz"));
//   RZ_ASSIGN_OR_RETURN(size_t got, source.Read(std::span(header)));   // fewer only at the end
//
// What a file is, is told by its first bytes, not by its name. A gzip file may have several
// members. Not thread-safe; holds 128 KiB.
#ifndef RINGZERO_INTEGRATIONS_DATA_BYTE_SOURCE_H_
#define RINGZERO_INTEGRATIONS_DATA_BYTE_SOURCE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace ringzero {

class ByteSource {
 public:
  // NotFound for a missing file, else InvalidArgument; both name the path.
  static absl::StatusOr<ByteSource> Open(const std::string& path);
  ByteSource(ByteSource&&) noexcept;
  ByteSource& operator=(ByteSource&&) noexcept;
  ~ByteSource();

  // Fills `out`, or as much of it as there is before the end. InvalidArgument names the file: bad
  // or truncated gzip, bytes after the last member, a wrong checksum.
  absl::StatusOr<size_t> Read(std::span<uint8_t> out);
  // Like Read, but fewer bytes than asked for are an error that names `what`.
  absl::Status ReadExactly(std::span<uint8_t> out, const std::string& what);
  // Grows `out` as the bytes come, so that a header which lies about a size allocates nothing.
  absl::Status ReadExactly(uint64_t count, const std::string& what, std::vector<uint8_t>& out);
  // InvalidArgument if there is another byte.
  absl::Status ExpectEnd(const std::string& what);

  const std::string& path() const;

 private:
  class Impl;
  explicit ByteSource(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// All bytes of a file, unpacked if it is a gzip file.
absl::StatusOr<std::vector<uint8_t>> ReadAllBytes(const std::string& path);

}  // namespace ringzero

#endif  // RINGZERO_INTEGRATIONS_DATA_BYTE_SOURCE_H_
