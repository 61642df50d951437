// Records of any size over a stream socket: what a worker process tells the one that launched it,
// and what that one answers.
//
//   RecordWriter writer(socket);
//   writer.Write({Record::Type::kReport, 0, "progress", "step 7"});               // does not block
//   writer.Finish({Record::Type::kResult, 0, "", "my summary"});                  // blocks
//   RecordReader reader;   reader.Read(socket, records);                          // does not
//
// A reader that does not read (it is stopped, or its terminal is) holds up nobody who Writes.
// Not thread-safe.
#ifndef RINGZERO_P2P_LAUNCH_RECORD_STREAM_H_
#define RINGZERO_P2P_LAUNCH_RECORD_STREAM_H_

#include <sys/socket.h>

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace ringzero {

struct Record {
  enum class Type : uint32_t {
    kReport = 1,  // kind and text, while it runs
    kResult,      // text: the body's value; the last record
    kFailure,     // code and text: an error of the body, which goes on to its end
    kPut,         // of p2p/rendezvous/launch_rendezvous.h, like the next two
    kGet,
    kAnswer,
  };
  Type type = Type::kReport;
  int32_t code = 0;  // absl::StatusCode
  std::string kind;
  std::string text;
};

class RecordWriter {
 public:
  static constexpr size_t kMaxWaitingBytes = 1 << 20;

  explicit RecordWriter(int socket) : socket_(socket) {}
  // ResourceExhausted, and the record is dropped, when so much waits already; Unavailable when the
  // reader is gone.
  absl::Status Write(const Record& record);
  // Sends what waits, as far as the reader takes it; does not block.
  absl::Status Flush() { return Send(MSG_DONTWAIT); }
  bool waits() const { return !waiting_.empty(); }
  // The last record, and all that waits. Unavailable as above.
  absl::Status Finish(const Record& record);

 private:
  absl::Status Send(int flags);  // until nothing waits or, not blocking, the socket is full

  int socket_;
  std::string waiting_;
};

class RecordReader {
 public:
  enum class State { kOpen, kClosed };
  // Appends what has completely arrived. kClosed: nothing more will come.
  State Read(int socket, std::vector<Record>& records);

 private:
  void TakeComplete(std::vector<Record>& records);

  std::string buffer_;
};

}  // namespace ringzero

#endif  // RINGZERO_P2P_LAUNCH_RECORD_STREAM_H_
