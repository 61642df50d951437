// Records of any size over a stream socket: what a worker process tells the one that launched it.
//
//   WriteRecord(socket, {Record::Type::kReport, 0, "progress", "step 7"});        // blocks
//   RecordReader reader;   reader.Read(socket, records);                          // does not
//
// Value types and functions; one writer and one reader at a time.
#ifndef RINGZERO_P2P_RECORD_STREAM_H_
#define RINGZERO_P2P_RECORD_STREAM_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace ringzero {

struct Record {
  enum class Type : uint32_t {
    kReport = 1,  // kind and text, while it runs
    kResult,      // text: the body's value; the last record
    kFailure,     // code and text: the body's error; the last record
  };
  Type type = Type::kReport;
  int32_t code = 0;  // absl::StatusCode
  std::string kind;
  std::string text;
};

// Unavailable when the reader is gone.
absl::Status WriteRecord(int socket, const Record& record);

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

#endif  // RINGZERO_P2P_RECORD_STREAM_H_
