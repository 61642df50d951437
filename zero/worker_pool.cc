// The pool's thread: adds before updates.
#include "zero/worker_pool.h"

#include <utility>

#include "base/system_names.h"

namespace ringzero {

WorkerPool::WorkerPool() : thread_(NamedThread("rz-pool", [this] { Run(); })) {}

WorkerPool::~WorkerPool() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_one();
  thread_.join();
}

void WorkerPool::Add(std::function<void()> work) {
  Push(adds_, [work = std::move(work)] {
    work();
    return false;
  });
}

void WorkerPool::Update(std::function<bool()> block) { Push(updates_, std::move(block)); }

void WorkerPool::Push(std::deque<std::function<bool()>>& queue, std::function<bool()> block) {
  {
    std::lock_guard lock(mutex_);
    queue.push_back(std::move(block));
  }
  wake_.notify_one();
}

void WorkerPool::Run() {
  std::unique_lock lock(mutex_);
  while (true) {
    wake_.wait(lock, [this] { return stop_ || !adds_.empty() || !updates_.empty(); });
    if (stop_) return;
    std::deque<std::function<bool()>>& queue = adds_.empty() ? updates_ : adds_;
    std::function<bool()> block = std::move(queue.front());
    queue.pop_front();
    lock.unlock();
    const bool more = block();
    if (!more) block = nullptr;  // what it holds is dropped without the lock
    lock.lock();
    if (more) queue.push_front(std::move(block));
  }
}

}  // namespace ringzero
