// WorkerProcess: one forked child that runs a body and reports; ended and reaped by its owner.
//
//   WorkerProcess child(worker);
//   RZ_RETURN_IF_ERROR(child.Fork(signal_mask, body));
//   poll(child.socket()) ...; child.ReadRecords(records);   child.Signal(SIGTERM);
//
// In the child: records.Write({Record::Type::kReport, "progress", "step 7"});
#ifndef RINGZERO_P2P_LAUNCH_WORKER_PROCESS_H_
#define RINGZERO_P2P_LAUNCH_WORKER_PROCESS_H_

#include <signal.h>
#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/ids.h"
#include "p2p/unique_fd.h"

namespace ringzero {

struct Record {
  enum class Type {
    kReport = 1,  // kind and text, while it runs
    kResult,      // text: the body's value; the last record
    kFailure,     // an error: kind is its code in digits; the body goes on to its end
  };
  Type type = Type::kReport;
  std::string kind;
  std::string text;
};

Record FailureRecord(const absl::Status& why);

// Sends records of any size over a stream socket. Not thread-safe.
class RecordWriter {
 public:
  static constexpr size_t kMaxWaitingBytes = 1 << 20;

  explicit RecordWriter(int socket) : socket_(socket) {}
  // Does not block: a reader that does not read (it is stopped, or its terminal is) holds up no
  // writer. ResourceExhausted, and the record is dropped, if more than kMaxWaitingBytes wait
  // already; Unavailable if the reader is gone.
  absl::Status Write(const Record& record);
  // Sends all that waits and the last record; blocks. Unavailable if the reader is gone.
  absl::Status Finish(const Record& record);

 private:
  absl::Status Send(int flags);  // until nothing waits or, not blocking, the socket is full

  int socket_;
  std::string waiting_;
};

// Used by one thread, in a process that has no other thread when it forks.
class WorkerProcess {
 public:
  // Runs in the child. What it returns becomes the last record. A body first closes everything that
  // the child must not keep open.
  using Body = std::function<absl::StatusOr<std::string>(RecordWriter& records)>;

  explicit WorkerProcess(WorkerId worker) : worker_(worker) {}
  WorkerProcess(const WorkerProcess&) = delete;
  WorkerProcess& operator=(const WorkerProcess&) = delete;
  // Kills (SIGKILL) and reaps the child if it still lives.
  ~WorkerProcess();

  // Once, before anything else. `signal_mask`: the child's. ResourceExhausted when the system
  // refuses.
  absl::Status Fork(const sigset_t& signal_mask, const Body& body);

  WorkerId worker() const { return worker_; }
  // For poll; -1 once it is closed.
  int socket() const { return socket_.get(); }
  // True until Reap has said how the child ended.
  bool alive() const { return pid_ > 0 || end_.has_value(); }

  // Appends the records that have completely arrived; does not block.
  void ReadRecords(std::vector<Record>& records);
  // How the child ended, once, as soon as it has: "was killed by signal 9 (Killed)", "exited with
  // code 3". ": out of memory, says the kernel (…)" is added if its counter rose since the fork.
  struct End {
    int signal = 0;
    std::string words;
  };
  std::optional<End> Reap();
  // Whether the child is stopped (SIGSTOP, SIGTSTP, …) now.
  struct Stop {
    int signal = 0;  // 0: it runs
    int count = 0;   // of all its stops so far
  };
  Stop Stopped();
  void Signal(int signal);
  // In another child: closes what belongs to the parent, and leaves the process alone.
  void Abandon();

 private:
  void AskSystem();
  std::string OomWords() const;

  const WorkerId worker_;
  pid_t pid_ = -1;          // -1: not forked yet, or reaped
  std::string oom_file_;    // where the kernel counts the processes it has ended for lack of memory
  int64_t oom_kills_ = -1;  // its count at the fork
  Stop stop_;
  std::optional<End> end_;
  UniqueFd socket_;
  std::string arrived_;  // the first part of a record
};

}  // namespace ringzero

#endif  // RINGZERO_P2P_LAUNCH_WORKER_PROCESS_H_
