// Edge-triggered epoll, and an eventfd to end it.
#include "p2p/shm/socket_watch.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>

#include <array>
#include <utility>

#include "base/system_names.h"

namespace ringzero {
namespace {

constexpr uint32_t kStop = 0xFFFFFFFF;  // epoll's data for stop_; otherwise a socket's place

}  // namespace

absl::StatusOr<std::unique_ptr<SocketWatch>> SocketWatch::Create(std::span<const UniqueFd> sockets,
                                                                 std::function<void()> on_news) {
  UniqueFd epoll(epoll_create1(EPOLL_CLOEXEC));
  UniqueFd stop(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!epoll || !stop) return SystemError("cannot make an epoll or an eventfd");
  epoll_event event = {};
  event.events = EPOLLIN;
  event.data.u32 = kStop;
  int rc = epoll_ctl(epoll.get(), EPOLL_CTL_ADD, stop.get(), &event);
  for (size_t i = 0; rc == 0 && i < sockets.size(); ++i) {
    if (!sockets[i]) continue;
    event.events = EPOLLIN | EPOLLET;  // what has come before counts as new
    event.data.u32 = static_cast<uint32_t>(i);
    rc = epoll_ctl(epoll.get(), EPOLL_CTL_ADD, sockets[i].get(), &event);
  }
  if (rc != 0) return SystemError("cannot watch a socket");
  return std::unique_ptr<SocketWatch>(
      new SocketWatch(std::move(epoll), std::move(stop), sockets.size(), std::move(on_news)));
}

SocketWatch::SocketWatch(UniqueFd epoll, UniqueFd stop, size_t sockets,
                         std::function<void()> on_news)
    : epoll_(std::move(epoll)),
      stop_(std::move(stop)),
      on_news_(std::move(on_news)),
      news_(sockets) {
  if (on_news_ == nullptr) return;
  thread_ = NamedThread("rz-sockets", [this] {
    while (LookFor(-1)) {
    }
  });
}

SocketWatch::~SocketWatch() {
  if (!thread_.joinable()) return;
  const uint64_t one = 1;
  (void)!write(stop_.get(), &one, sizeof(one));
  thread_.join();
}

bool SocketWatch::LookFor(int milliseconds) {
  std::array<epoll_event, 64> events;
  const int count = epoll_wait(epoll_.get(), events.data(), events.size(), milliseconds);
  for (int i = 0; i < count; ++i) {
    if (events[i].data.u32 == kStop) return false;
    news_[events[i].data.u32].store(true, std::memory_order_release);
  }
  if (count <= 0) return true;
  has_news_.store(true, std::memory_order_seq_cst);
  if (on_news_ != nullptr) on_news_();
  return true;
}

}  // namespace ringzero
