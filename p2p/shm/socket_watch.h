// SocketWatch: tells that something has come on one of a few sockets, or that one has closed.
//
//   RZ_ASSIGN_OR_RETURN(auto watch, SocketWatch::Create(sockets, [bell] { bell->RingForSure(); }));
//   if (watch->HasNews()) for (…) if (watch->Take(i)) …;     // read sockets[i] until it is empty
//
// A thread sleeps until something happens, so whoever waits for something else (a futex) need not
// look at sockets. Or there is none, and the caller Looks now and then: one that polls must not
// have to rely on another thread's turn. Thread-safe; Begin, Take and Look by one thread.
#ifndef RINGZERO_P2P_SHM_SOCKET_WATCH_H_
#define RINGZERO_P2P_SHM_SOCKET_WATCH_H_

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
  // `on_news` is called on the watch's own thread; nullptr: there is none. Empty descriptors are
  // left out; the others may be closed at any time. ResourceExhausted when the system refuses.
  static absl::StatusOr<std::unique_ptr<SocketWatch>> Create(std::span<const UniqueFd> sockets,
                                                             std::function<void()> on_news);
  ~SocketWatch();

  // Looks once, without waiting.
  void Look() { LookFor(0); }
  bool HasNews() const { return has_news_.load(std::memory_order_seq_cst); }
  // HasNews is false from now on until there is more.
  void Begin() { has_news_.store(false, std::memory_order_seq_cst); }
  // Whether there has been something new on sockets[i] since the last call.
  bool Take(size_t i) { return news_[i].exchange(false, std::memory_order_acq_rel); }

 private:
  SocketWatch(UniqueFd epoll, UniqueFd stop, size_t sockets, std::function<void()> on_news);
  bool LookFor(int milliseconds);  // false when it is to stop

  const UniqueFd epoll_;
  const UniqueFd stop_;
  const std::function<void()> on_news_;
  std::vector<std::atomic<bool>> news_;
  std::atomic<bool> has_news_{false};
  std::thread thread_;
};

}  // namespace ringzero

#endif  // RINGZERO_P2P_SHM_SOCKET_WATCH_H_
