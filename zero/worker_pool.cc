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
  {
    std::lock_guard lock(mutex_);
    adds_.push_back(std::move(work));
  }
  wake_.notify_one();
}

void WorkerPool::Update(std::function<bool()> block) {
  {
    std::lock_guard lock(mutex_);
    updates_.push_back(std::move(block));
  }
  wake_.notify_one();
}

void WorkerPool::Run() {
  std::unique_lock lock(mutex_);
  while (true) {
    wake_.wait(lock, [this] { return stop_ || !adds_.empty() || !updates_.empty(); });
    if (stop_) return;
    if (!adds_.empty()) {
      std::function<void()> work = std::move(adds_.front());
      adds_.pop_front();
      lock.unlock();
      work();
      work = nullptr;  // what it holds is dropped without the lock
      lock.lock();
      continue;
    }
    std::function<bool()> block = std::move(updates_.front());
    updates_.pop_front();
    lock.unlock();
    const bool more = block();
    if (!more) block = nullptr;
    lock.lock();
    if (more) updates_.push_front(std::move(block));
  }
}

}  // namespace ringzero
