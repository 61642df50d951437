// LosingRendezvous: one in memory whose status() a test sets, as if a worker had been lost. It keeps
// the last words of who leaves.
//
//   LosingRendezvous rendezvous;   rendezvous.Lose(absl::UnavailableError("worker 2 …"));
#ifndef RINGZERO_TESTS_P2P_LOSING_RENDEZVOUS_H_
#define RINGZERO_TESTS_P2P_LOSING_RENDEZVOUS_H_

#include <memory>
#include <mutex>
#include <string>

#include "p2p/job/rendezvous.h"

namespace ringzero {

class LosingRendezvous final : public Rendezvous {
 public:
  std::string name() const override { return inner_->name(); }
  absl::Status Put(const std::string& key, const std::string& value) override {
    return inner_->Put(key, value);
  }
  absl::StatusOr<std::string> Get(const std::string& key,
                                  std::chrono::milliseconds limit) override {
    const absl::Status lost = status();
    return lost.ok() ? inner_->Get(key, limit) : lost;
  }
  absl::Status status() override {
    const std::lock_guard<std::mutex> lock(mutex_);
    return looks_left_-- > 0 ? absl::OkStatus() : lost_;
  }
  void Leave(const absl::Status& why) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    last_words_ = why;
  }
  absl::Status last_words() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return last_words_;
  }
  // So many more looks at status() find nothing.
  void Lose(const absl::Status& lost, int looks = 0) {
    const std::lock_guard<std::mutex> lock(mutex_);
    lost_ = lost;
    looks_left_ = looks;
  }

 private:
  const std::shared_ptr<Rendezvous> inner_ = MakeLocalRendezvous();
  std::mutex mutex_;
  absl::Status lost_, last_words_;
  int looks_left_ = 0;
};

}  // namespace ringzero

#endif  // RINGZERO_TESTS_P2P_LOSING_RENDEZVOUS_H_
