// WorkerPool: one thread that adds first and updates after, a block at a time.
//
//   WorkerPool pool;
//   pool.Add([] { … });                       // short work: gradient adds, folds; in order
//   pool.Update([step = 0]() mutable { …; return ++step < 10; });   // one block a call; true: more
//
// An update yields to adds between blocks (about 256 KiB). The destructor drops what has not begun.
// Thread-safe.
#ifndef RINGZERO_ZERO_WORKER_POOL_H_
#define RINGZERO_ZERO_WORKER_POOL_H_

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
  void Run();

  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::function<void()>> adds_;
  std::deque<std::function<bool()>> updates_;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace ringzero

#endif  // RINGZERO_ZERO_WORKER_POOL_H_
