// A fixed header, the kind, the text.
#include "p2p/launch/record_stream.h"

#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace ringzero {
namespace {

struct Header {
  uint32_t type = 0;
  int32_t code = 0;
  uint64_t kind_bytes = 0;
  uint64_t text_bytes = 0;
};

void Append(const Record& record, std::string& bytes) {
  const Header header = {static_cast<uint32_t>(record.type), record.code, record.kind.size(),
                         record.text.size()};
  bytes.append(reinterpret_cast<const char*>(&header), sizeof(header));
  absl::StrAppend(&bytes, record.kind, record.text);
}

}  // namespace

absl::Status RecordWriter::Write(const Record& record) {
  if (waiting_.size() > kMaxWaitingBytes) {
    RZ_RETURN_IF_ERROR(Send(MSG_DONTWAIT));
    if (waiting_.size() > kMaxWaitingBytes) {
      return absl::ResourceExhaustedError("the launching process does not read its reports");
    }
  }
  Append(record, waiting_);
  return Send(MSG_DONTWAIT);
}

absl::Status RecordWriter::Finish(const Record& record) {
  Append(record, waiting_);
  return Send(0);
}

absl::Status RecordWriter::Send(int flags) {
  size_t written = 0;
  int error = 0;
  while (written < waiting_.size()) {
    const ssize_t sent =
        send(socket_, waiting_.data() + written, waiting_.size() - written, flags | MSG_NOSIGNAL);
    if (sent >= 0) written += static_cast<size_t>(sent);
    if (sent < 0 && errno != EINTR) {
      error = errno;
      break;
    }
  }
  waiting_.erase(0, written);
  if (error == 0 || error == EAGAIN || error == EWOULDBLOCK) return absl::OkStatus();
  return absl::UnavailableError(
      absl::StrCat("cannot report to the launching process: ", std::strerror(error)));
}

RecordReader::State RecordReader::Read(int socket, std::vector<Record>& records) {
  std::array<char, 65536> chunk;
  while (true) {
    const ssize_t got = recv(socket, chunk.data(), chunk.size(), MSG_DONTWAIT);
    if (got > 0) {
      buffer_.append(chunk.data(), static_cast<size_t>(got));
      TakeComplete(records);
      continue;
    }
    if (got < 0 && errno == EINTR) continue;
    const bool open = got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK);
    return open ? State::kOpen : State::kClosed;
  }
}

void RecordReader::TakeComplete(std::vector<Record>& records) {
  size_t at = 0;
  Header header;
  while (buffer_.size() - at >= sizeof(header)) {
    std::memcpy(&header, buffer_.data() + at, sizeof(header));
    const size_t rest = buffer_.size() - at - sizeof(header);
    if (rest < header.kind_bytes || rest - header.kind_bytes < header.text_bytes) break;
    const size_t kind_at = at + sizeof(header);
    Record record;
    record.type = static_cast<Record::Type>(header.type);
    record.code = header.code;
    record.kind = buffer_.substr(kind_at, header.kind_bytes);
    record.text = buffer_.substr(kind_at + header.kind_bytes, header.text_bytes);
    records.push_back(std::move(record));
    at = kind_at + header.kind_bytes + header.text_bytes;
  }
  buffer_.erase(0, at);
}

}  // namespace ringzero
