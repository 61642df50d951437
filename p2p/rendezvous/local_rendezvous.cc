// A map, a lock and a condition variable.
#include <condition_variable>
#include <map>
#include <mutex>

#include "absl/strings/str_cat.h"
#include "p2p/deadline.h"
#include "p2p/rendezvous/rendezvous.h"

namespace ringzero {
namespace {

class LocalRendezvous final : public Rendezvous {
 public:
  std::string name() const override { return "local"; }

  absl::Status Put(const std::string& key, const std::string& value) override {
    if (value.size() > kMaxRendezvousValueBytes) {
      return absl::InvalidArgumentError(absl::StrCat("rendezvous local: '", key, "' has ",
                                                     value.size(), " bytes; ",
                                                     kMaxRendezvousValueBytes, " are the most"));
    }
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto [entry, is_new] = values_.emplace(key, value);
    if (!is_new && entry->second != value) {
      return absl::AlreadyExistsError(absl::StrCat("rendezvous local: '", key, "' was put before"));
    }
    changed_.notify_all();
    return absl::OkStatus();
  }

  absl::StatusOr<std::string> Get(const std::string& key,
                                  std::chrono::milliseconds limit) override {
    std::unique_lock<std::mutex> lock(mutex_);
    const auto came = [&] { return values_.count(key) != 0; };
    if (WaitUntil(lock, changed_, Deadline(limit), came)) return values_[key];
    return absl::DeadlineExceededError(
        absl::StrCat("rendezvous local: nobody put '", key, "' within ", limit.count(), " ms"));
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, std::string> values_;
};

}  // namespace

std::shared_ptr<Rendezvous> MakeLocalRendezvous() { return std::make_shared<LocalRendezvous>(); }

}  // namespace ringzero
