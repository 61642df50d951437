// Mutex and MutexLock: a std::mutex with the attributes by which clang checks what each mutex
// guards (-Wthread-safety, cmake/clang_tidy.sh).
//
//   Mutex mutex_;
//   int left_ ABSL_GUARDED_BY(mutex_) = 0;      // absl/base/thread_annotations.h
//
//   const MutexLock lock(mutex_);
//   gone_.wait(mutex_, [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return left_ == 0; });
//
// A std::condition_variable_any waits on the Mutex itself, by the steady clock.
#ifndef RINGZERO_BASE_MUTEX_H_
#define RINGZERO_BASE_MUTEX_H_

#include <mutex>

#include "absl/base/thread_annotations.h"

namespace ringzero {

class ABSL_LOCKABLE Mutex {
 public:
  void lock() ABSL_EXCLUSIVE_LOCK_FUNCTION() { mutex_.lock(); }
  void unlock() ABSL_UNLOCK_FUNCTION() { mutex_.unlock(); }

 private:
  std::mutex mutex_;
};

// Holds the mutex while it lives.
class ABSL_SCOPED_LOCKABLE MutexLock {
 public:
  explicit MutexLock(Mutex& mutex) ABSL_EXCLUSIVE_LOCK_FUNCTION(mutex) : mutex_(mutex) {
    mutex.lock();
  }
  ~MutexLock() ABSL_UNLOCK_FUNCTION() { mutex_.unlock(); }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

 private:
  Mutex& mutex_;
};

}  // namespace ringzero

#endif  // RINGZERO_BASE_MUTEX_H_
