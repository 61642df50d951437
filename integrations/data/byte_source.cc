// Reads plain files and inflates gzip ones, piece by piece.
#include "integrations/data/byte_source.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace ringzero {

class ByteSource::Impl {
 public:
  Impl(std::string path, int fd) : path_(std::move(path)), fd_(fd) {}
  ~Impl() {
    if (packed_) inflateEnd(&stream_);
    close(fd_);
  }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  // Looks at the first bytes.
  absl::Status Start() {
    RZ_RETURN_IF_ERROR(Refill());
    packed_ = StartsMember();
    // 15: the largest window; 16: a gzip header and trailer are wanted.
    if (packed_ && inflateInit2(&stream_, 15 + 16) != Z_OK) return Error("zlib does not start");
    return absl::OkStatus();
  }

  absl::StatusOr<size_t> Read(std::span<uint8_t> out) {
    size_t done = 0;
    while (done < out.size()) {
      RZ_ASSIGN_OR_RETURN(const size_t got,
                          packed_ ? ReadPacked(out.subspan(done)) : ReadPlain(out.subspan(done)));
      if (got == 0) break;
      done += got;
    }
    return done;
  }

  absl::Status Error(const std::string& what) const {
    return absl::InvalidArgumentError(absl::StrCat(path_, ": ", what));
  }

  const std::string& path() const { return path_; }

 private:
  bool StartsMember() const {
    return end_ - begin_ >= 2 && in_[begin_] == 0x1f && in_[begin_ + 1] == 0x8b;
  }

  // Keeps what is unread and adds what fits; no new byte means the end of the file.
  absl::Status Refill() {
    std::memmove(in_.data(), in_.data() + begin_, end_ - begin_);
    end_ -= begin_;
    begin_ = 0;
    while (end_ < in_.size()) {
      const ssize_t got = read(fd_, in_.data() + end_, in_.size() - end_);
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) return Error(absl::StrCat("cannot be read: ", std::strerror(errno)));
      if (got == 0) break;
      end_ += static_cast<size_t>(got);
    }
    return absl::OkStatus();
  }

  absl::StatusOr<size_t> ReadPlain(std::span<uint8_t> out) {
    if (begin_ == end_) RZ_RETURN_IF_ERROR(Refill());
    const size_t taken = std::min(out.size(), end_ - begin_);
    std::memcpy(out.data(), in_.data() + begin_, taken);
    begin_ += taken;
    return taken;
  }

  // One call of inflate that gives bytes, or 0 at the proper end of the last member.
  absl::StatusOr<size_t> ReadPacked(std::span<uint8_t> out) {
    constexpr size_t kMost = 1 << 30;  // zlib counts in unsigned int
    const size_t wanted = std::min(out.size(), kMost);
    while (!ended_) {
      if (begin_ == end_) RZ_RETURN_IF_ERROR(Refill());
      if (begin_ == end_) return Error("the gzip data end too early: the file is truncated");
      stream_.next_in = in_.data() + begin_;
      stream_.avail_in = static_cast<uInt>(end_ - begin_);
      stream_.next_out = out.data();
      stream_.avail_out = static_cast<uInt>(wanted);
      const int result = inflate(&stream_, Z_NO_FLUSH);
      begin_ = end_ - stream_.avail_in;
      if (result != Z_OK && result != Z_STREAM_END && result != Z_BUF_ERROR) {
        return Error(absl::StrCat("the gzip data are damaged: ",
                                  stream_.msg != nullptr ? stream_.msg : zError(result)));
      }
      if (result == Z_STREAM_END) RZ_RETURN_IF_ERROR(NextMember());
      if (const size_t got = wanted - stream_.avail_out; got > 0) return got;
    }
    return size_t{0};
  }

  absl::Status NextMember() {
    RZ_RETURN_IF_ERROR(Refill());
    if (begin_ == end_) {
      ended_ = true;
    } else if (!StartsMember()) {
      return Error("bytes that are not gzip follow the gzip data");
    } else if (inflateReset(&stream_) != Z_OK) {
      return Error("zlib does not start again");
    }
    return absl::OkStatus();
  }

  std::string path_;
  int fd_;
  std::array<uint8_t, 128 << 10> in_;
  size_t begin_ = 0, end_ = 0;  // the unread part of in_
  bool packed_ = false;
  bool ended_ = false;  // after the last member
  z_stream stream_ = {};
};

ByteSource::ByteSource(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
ByteSource::ByteSource(ByteSource&&) noexcept = default;
ByteSource& ByteSource::operator=(ByteSource&&) noexcept = default;
ByteSource::~ByteSource() = default;

absl::StatusOr<ByteSource> ByteSource::Open(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) {
    const std::string message = absl::StrCat(path, ": cannot be opened: ", std::strerror(errno));
    return errno == ENOENT ? absl::NotFoundError(message) : absl::InvalidArgumentError(message);
  }
  ByteSource source(std::make_unique<Impl>(path, fd));
  struct stat info;
  if (fstat(fd, &info) == 0 && S_ISDIR(info.st_mode)) {
    return source.impl_->Error("is a folder where a file is wanted");
  }
  RZ_RETURN_IF_ERROR(source.impl_->Start());
  return source;
}

const std::string& ByteSource::path() const { return impl_->path(); }

absl::StatusOr<size_t> ByteSource::Read(std::span<uint8_t> out) { return impl_->Read(out); }

absl::Status ByteSource::ReadExactly(std::span<uint8_t> out, const std::string& what) {
  RZ_ASSIGN_OR_RETURN(const size_t got, Read(out));
  if (got == out.size()) return absl::OkStatus();
  return impl_->Error(
      absl::StrCat("truncated: ", what, " wanted ", out.size(), " bytes, found ", got));
}

absl::Status ByteSource::ReadExactly(uint64_t count, const std::string& what,
                                     std::vector<uint8_t>& out) {
  constexpr uint64_t kPiece = 16 << 20;
  out.clear();
  while (out.size() < count) {
    const size_t before = out.size();
    out.resize(before + std::min(kPiece, count - before));
    RZ_ASSIGN_OR_RETURN(const size_t got, Read(std::span(out).subspan(before)));
    if (before + got == out.size()) continue;
    return impl_->Error(
        absl::StrCat("truncated: ", what, " wanted ", count, " bytes, found ", before + got));
  }
  return absl::OkStatus();
}

absl::Status ByteSource::ExpectEnd(const std::string& what) {
  uint8_t byte;
  RZ_ASSIGN_OR_RETURN(const size_t got, Read(std::span(&byte, 1)));
  if (got == 0) return absl::OkStatus();
  return impl_->Error(absl::StrCat("bytes follow ", what, ", where the file should end"));
}

absl::StatusOr<std::vector<uint8_t>> ReadAllBytes(const std::string& path) {
  RZ_ASSIGN_OR_RETURN(ByteSource source, ByteSource::Open(path));
  constexpr size_t kPiece = 1 << 20;
  std::vector<uint8_t> bytes;
  for (size_t got = kPiece; got == kPiece;) {
    const size_t before = bytes.size();
    bytes.resize(before + kPiece);
    RZ_ASSIGN_OR_RETURN(got, source.Read(std::span(bytes).subspan(before)));
    bytes.resize(before + got);
  }
  return bytes;
}

}  // namespace ringzero
