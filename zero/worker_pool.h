// WorkerPool: one thread that adds first and updates after, a block at a time.
//
//   WorkerPool pool;
//   pool.Add([] { … });                       // gradient adds, folds, a saver's files; in order
//   pool.Update([step = 0]() mutable { …; return ++step < 10; });   // one block a call; true: more
//
// An update yields to adds between blocks (about 256 KiB). The destructor drops what has not begun.
// Thread-safe.
#ifndef RINGZERO_ZERO_WORKER_POOL_H_
#define RINGZERO_ZERO_WORKER_POOL_H_

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

namespace ringzero {

class WorkerPool {
 public:
  WorkerPool();
  ~WorkerPool();
  void Add(std::function<void()> work);
  void Update(std::function<bool()> block);

 private:
  void Push(std::deque<std::function<bool()>>& queue, std::function<bool()> block);
  void Run();

  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::function<bool()>> adds_, updates_;
  bool stop_ = false;
  std::thread thread_;
};

// An update that takes longer than it computes, to measure what hides updates. Not thread-safe.
//
//   SlowedUpdate slowed(10);
//   while (slowed.Step([&] { return update.Step(); })) {}   // nine tenths of it asleep
class SlowedUpdate {
 public:
  // `slowness`: how many times as long as its steps it takes; 1: no longer.
  explicit SlowedUpdate(double slowness) : slowness_(slowness) {}

  // Does the next step, which says whether there are more; then sleeps, at most 100 us a call, so
  // that the caller may do something else between. True until both are over.
  bool Step(const std::function<bool()>& next) {
    using Clock = std::chrono::steady_clock;
    if (!worked_) {
      const Clock::time_point begin = Clock::now();
      worked_ = !next();
      took_ += Clock::now() - begin;
      if (!worked_) return true;
      until_ = Clock::now() + std::chrono::duration_cast<Clock::duration>((slowness_ - 1) * took_);
    }
    const Clock::duration left = until_ - Clock::now();
    if (left <= Clock::duration::zero()) return false;
    std::this_thread::sleep_for(std::min<Clock::duration>(left, std::chrono::microseconds(100)));
    return true;
  }

 private:
  double slowness_;
  bool worked_ = false;
  std::chrono::duration<double> took_{0};
  std::chrono::steady_clock::time_point until_;
};

}  // namespace ringzero

#endif  // RINGZERO_ZERO_WORKER_POOL_H_
