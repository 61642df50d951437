// SocketWatch: a thread that sleeps until something comes on one of a few sockets, or one closes.
//
//   RZ_ASSIGN_OR_RETURN(auto watch, SocketWatch::Create(sockets, [bell] { bell->RingForSure(); }));
//   if (watch->HasNews()) for (…) if (watch->Take(i)) …;     // read sockets[i] until it is empty
//
// It costs nothing while nothing happens; whoever waits for something else (a futex, a poll of
// rings) need not look at sockets. Thread-safe; Take by one thread.
#ifndef RINGZERO_P2P_SOCKET_WATCH_H_
#define RINGZERO_P2P_SOCKET_WATCH_H_

#include <atomic>
#include <functional>
#include <memory>
#include <span>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "p2p/unique_fd.h"

namespace ringzero {

class SocketWatch {
 public:
  // `on_news` is called on the watch's own thread. Empty descriptors are left out; the others may
  // be closed at any time. ResourceExhausted when the system refuses.
  static absl::StatusOr<std::unique_ptr<SocketWatch>> Create(std::span<const UniqueFd> sockets,
                                                             std::function<void()> on_news);
  ~SocketWatch();

  bool HasNews() const { return has_news_.load(std::memory_order_seq_cst); }
  // HasNews is false from now on until there is more.
  void Begin() { has_news_.store(false, std::memory_order_seq_cst); }
  // Whether there has been something new on sockets[i] since the last call.
  bool Take(size_t i) { return news_[i].exchange(false, std::memory_order_acq_rel); }

 private:
  SocketWatch(UniqueFd epoll, UniqueFd stop, size_t sockets, std::function<void()> on_news);
  void Run();

  const UniqueFd epoll_;
  const UniqueFd stop_;
  const std::function<void()> on_news_;
  std::vector<std::atomic<bool>> news_;
  std::atomic<bool> has_news_{false};
  std::thread thread_;
};

}  // namespace ringzero

#endif  // RINGZERO_P2P_SOCKET_WATCH_H_
