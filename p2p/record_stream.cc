// A fixed header, the kind, the text.
#include "p2p/record_stream.h"

#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"

namespace ringzero {
namespace {

struct Header {
  uint32_t type = 0;
  int32_t code = 0;
  uint64_t kind_bytes = 0;
  uint64_t text_bytes = 0;
};

}  // namespace

absl::Status WriteRecord(int socket, const Record& record) {
  const Header header = {static_cast<uint32_t>(record.type), record.code, record.kind.size(),
                         record.text.size()};
  std::string bytes(reinterpret_cast<const char*>(&header), sizeof(header));
  absl::StrAppend(&bytes, record.kind, record.text);
  for (size_t written = 0; written < bytes.size();) {
    const ssize_t sent = send(socket, bytes.data() + written, bytes.size() - written, MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0) {
      return absl::UnavailableError(
          absl::StrCat("cannot report to the launching process: ", std::strerror(errno)));
    }
    written += static_cast<size_t>(sent);
  }
  return absl::OkStatus();
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
