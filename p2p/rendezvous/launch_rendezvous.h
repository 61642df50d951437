// The rendezvous of launched processes: the launching process keeps the values, its children ask it
// over their record streams.
//
//   LaunchStore store;                                        // in the launching process
//   if (store.Takes(record)) store.Handle(child, record);     // its answers: TakeAnswers(child)
//   auto rendezvous = std::make_shared<LaunchRendezvous>(socket, [&](const Record& r) { … });
//
// Its own children are the only ones who can ask: nothing here is checked as a stranger's would be.
#ifndef RINGZERO_P2P_RENDEZVOUS_LAUNCH_RENDEZVOUS_H_
#define RINGZERO_P2P_RENDEZVOUS_LAUNCH_RENDEZVOUS_H_

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "base/ids.h"
#include "p2p/launch/record_stream.h"
#include "p2p/rendezvous/rendezvous.h"

namespace ringzero {

// One thread. A question for a key that nobody has put waits until somebody does.
class LaunchStore {
 public:
  static bool Takes(const Record& record);
  void Handle(WorkerId from, const Record& record);
  // What is to be sent to this child now.
  std::vector<Record> TakeAnswers(WorkerId to);

 private:
  std::map<std::string, std::string> values_;
  // Key → who waits for it, with the number of the question.
  std::map<std::string, std::vector<std::pair<WorkerId, int32_t>>> waiting_;
  std::map<WorkerId, std::vector<Record>> answers_;
};

// A child's side. One thread at a time. `ask` sends a record, as far as the socket takes it, and
// `flush` more of it; true while something still waits. `socket` is where answers arrive, and
// outlives this.
class LaunchRendezvous final : public Rendezvous {
 public:
  using Ask = std::function<absl::Status(const Record&)>;
  using Flush = std::function<absl::StatusOr<bool>()>;
  LaunchRendezvous(int socket, Ask ask, Flush flush)
      : socket_(socket), ask_(std::move(ask)), flush_(std::move(flush)) {}

  std::string name() const override { return "launcher"; }
  absl::Status Put(const std::string& key, const std::string& value) override;
  absl::StatusOr<std::string> Get(const std::string& key, std::chrono::milliseconds limit) override;

 private:
  absl::StatusOr<Record> AwaitAnswer(std::chrono::milliseconds limit);

  const int socket_;
  const Ask ask_;
  const Flush flush_;
  RecordReader reader_;
  std::vector<Record> arrived_;
  int32_t question_ = 0;  // the latest; answers to earlier ones come too late
};

}  // namespace ringzero

#endif  // RINGZERO_P2P_RENDEZVOUS_LAUNCH_RENDEZVOUS_H_
