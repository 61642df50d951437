// Gathering at a store, and puts and gets under the name of the start.
#include "p2p/rendezvous/store_rendezvous.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "base/sha256.h"
#include "base/status.h"
#include "p2p/deadline.h"
#include "p2p/random_bytes.h"

namespace ringzero {
namespace {

// Looks often first: most of the time the others are nearly there. No store can wake us that has to
// work on a network's folder, too.
class Patience {
 public:
  explicit Patience(std::chrono::milliseconds limit) : deadline_(limit) {}
  bool over() const { return deadline_.over(); }
  void Wait() {
    std::this_thread::sleep_for(std::min<std::chrono::microseconds>(pause_, deadline_.Left()));
    pause_ = std::min<std::chrono::microseconds>(pause_ * 3 / 2, std::chrono::milliseconds(50));
  }

 private:
  const Deadline deadline_;
  std::chrono::microseconds pause_ = std::chrono::milliseconds(1);
};

std::string DigestOf(absl::string_view key, absl::string_view value) {
  Sha256 digest;
  const std::string text = absl::StrCat(key.size(), ":", key, value);
  digest.Update(std::as_bytes(std::span(text)));
  return digest.FinishHex();
}

constexpr absl::string_view kMagic = "ringzero 1 ";

std::string Seal(absl::string_view key, absl::string_view value) {
  return absl::StrCat(kMagic, DigestOf(key, value), "\n", value);
}

// Nothing for what no worker of ours has written.
std::optional<std::string> Open(absl::string_view key, absl::string_view sealed) {
  constexpr size_t kDigestDigits = 64;
  const size_t start = kMagic.size() + kDigestDigits + 1;
  if (sealed.size() < start || sealed.substr(0, kMagic.size()) != kMagic) return std::nullopt;
  if (sealed[start - 1] != '\n') return std::nullopt;
  const absl::string_view value = sealed.substr(start);
  if (sealed.substr(kMagic.size(), kDigestDigits) != DigestOf(key, value)) return std::nullopt;
  return std::string(value);
}

constexpr char kJoin[] = "join.";
constexpr char kAccepted[] = "accepted.";
constexpr char kStartKey[] = "start";
std::string JoinKey(int worker) { return absl::StrCat(kJoin, worker); }
std::string AcceptedKey(int worker) { return absl::StrCat(kAccepted, worker); }

double Seconds(std::chrono::milliseconds limit) {
  return std::chrono::duration<double>(limit).count();
}

// "worker 2", "workers 2, 3".
std::string Workers(const std::vector<int>& workers) {
  return absl::StrCat(workers.size() == 1 ? "worker " : "workers ", absl::StrJoin(workers, ", "));
}

// One worker's side of the gathering; its result is the name of the start.
class Gatherer {
 public:
  Gatherer(RendezvousStore& store, const Gathering& gathering)
      : store_(store), gathering_(gathering), numbers_(gathering.workers) {}

  absl::StatusOr<std::string> Run() {
    const bool leads = gathering_.self.value == 0;
    RZ_ASSIGN_OR_RETURN(number_, RandomHex(16));
    if (leads) {
      RZ_ASSIGN_OR_RETURN(const std::string name, RandomHex(8));
      start_ = absl::StrCat("r", gathering_.restart, "-", name);
      store_.Clear("");  // whatever earlier starts have left
    }
    RZ_RETURN_IF_ERROR(Write(JoinKey(gathering_.self.value), number_));
    Patience patience(gathering_.limit);
    while (true) {
      RZ_RETURN_IF_ERROR(StayJoined());
      RZ_ASSIGN_OR_RETURN(const bool done, leads ? Lead() : Follow());
      if (done) return start_;
      if (patience.over()) return Missing();
      patience.Wait();
    }
  }

 private:
  absl::Status Write(const std::string& key, const std::string& value) {
    return store_.Write(key, Seal(key, value));
  }
  // What lies there and is no worker's counts as nothing: it may be gone as soon as worker 0 comes.
  absl::StatusOr<std::string> Read(const std::string& key) {
    RZ_ASSIGN_OR_RETURN(const std::optional<std::string> sealed, store_.Read(key));
    return sealed.has_value() ? Open(key, *sealed).value_or("") : "";
  }

  // Worker 0 clears the store when it comes, maybe after us.
  absl::Status StayJoined() {
    const std::string key = JoinKey(gathering_.self.value);
    RZ_ASSIGN_OR_RETURN(const std::string there, Read(key));
    if (there == number_) return absl::OkStatus();
    if (there.empty()) return Write(key, number_);
    return absl::AlreadyExistsError(absl::StrCat(
        "rendezvous ", store_.name(), ": another process is worker ", gathering_.self.value,
        " there, too: another job needs another place, or a job id of its own (RINGZERO_JOB_ID)"));
  }

  absl::StatusOr<bool> Lead() {
    for (int w = 0; w < gathering_.workers; ++w) {
      RZ_ASSIGN_OR_RETURN(numbers_[w], Read(JoinKey(w)));
      if (numbers_[w].empty()) return false;
    }
    const std::string answer = absl::StrCat(start_, " ", absl::StrJoin(numbers_, " "));
    RZ_ASSIGN_OR_RETURN(const std::string there, Read(kStartKey));
    if (there != answer) RZ_RETURN_IF_ERROR(Write(kStartKey, answer));
    for (int w = 1; w < gathering_.workers; ++w) {
      RZ_ASSIGN_OR_RETURN(const std::string accepted, Read(AcceptedKey(w)));
      if (accepted != start_) return false;
    }
    return true;
  }

  absl::StatusOr<bool> Follow() {
    RZ_ASSIGN_OR_RETURN(const std::string answer, Read(kStartKey));
    const std::vector<std::string> words = absl::StrSplit(answer, ' ');
    const size_t mine = static_cast<size_t>(gathering_.self.value) + 1;
    if (words.size() <= mine || words[mine] != number_) return false;
    if (const size_t theirs = words.size() - 1; theirs != numbers_.size()) {
      return absl::InvalidArgumentError(
          absl::StrCat("rendezvous ", store_.name(), ": worker ", gathering_.self.value,
                       " was told of ", numbers_.size(), " workers, worker 0 of ", theirs));
    }
    start_ = words[0];
    RZ_RETURN_IF_ERROR(Write(AcceptedKey(gathering_.self.value), start_));
    return true;
  }

  absl::Status Missing() {
    std::vector<int> missing;
    std::vector<int> silent;  // left a number, maybe long ago, and did not take the answer
    for (int w = 0; w < gathering_.workers; ++w) {
      RZ_ASSIGN_OR_RETURN(const std::string number, Read(JoinKey(w)));
      if (number.empty()) missing.push_back(w);
      if (gathering_.self.value != 0 || w == 0) continue;
      RZ_ASSIGN_OR_RETURN(const std::string accepted, Read(AcceptedKey(w)));
      if (accepted != start_) silent.push_back(w);
    }
    if (missing.empty()) missing = silent;
    // All have left their numbers; then it is worker 0 who did not answer.
    if (missing.empty()) missing.push_back(0);
    return absl::DeadlineExceededError(
        absl::StrCat("rendezvous ", store_.name(), ": ", Workers(missing), " of ",
                     gathering_.workers, " did not come within ", Seconds(gathering_.limit), " s"));
  }

  RendezvousStore& store_;
  const Gathering gathering_;
  std::string number_;                // mine
  std::vector<std::string> numbers_;  // worker 0: all
  std::string start_;
};

class StoreRendezvous final : public Rendezvous {
 public:
  StoreRendezvous(std::unique_ptr<RendezvousStore> store, const Gathering& gathering,
                  std::string start)
      : store_(std::move(store)), gathering_(gathering), start_(std::move(start)) {}
  ~StoreRendezvous() override { Leave(); }

  std::string name() const override { return store_->name(); }

  absl::Status Put(const std::string& key, const std::string& value) override {
    if (value.size() > kMaxRendezvousValueBytes) {
      return absl::InvalidArgumentError(absl::StrCat("rendezvous ", name(), ": '", key, "' has ",
                                                     value.size(), " bytes; ",
                                                     kMaxRendezvousValueBytes, " are the most"));
    }
    const std::string full = Full(key);
    const std::string sealed = Seal(full, value);
    RZ_ASSIGN_OR_RETURN(const std::string there, store_->WriteOnce(full, sealed));
    if (there == sealed) return absl::OkStatus();
    if (!Open(full, there).has_value()) return Foreign(key, there.size());
    return absl::AlreadyExistsError(
        absl::StrCat("rendezvous ", name(), ": '", key, "' was put before"));
  }

  absl::StatusOr<std::string> Get(const std::string& key,
                                  std::chrono::milliseconds limit) override {
    const std::string full = Full(key);
    Patience patience(limit);
    while (true) {
      RZ_ASSIGN_OR_RETURN(const std::optional<std::string> sealed, store_->Read(full));
      if (sealed.has_value()) {
        std::optional<std::string> value = Open(full, *sealed);
        if (!value.has_value()) return Foreign(key, sealed->size());
        return *std::move(value);
      }
      if (patience.over()) {
        return absl::DeadlineExceededError(absl::StrCat("rendezvous ", name(), ": nobody put '",
                                                        key, "' within ", limit.count(), " ms"));
      }
      patience.Wait();
    }
  }

 private:
  std::string Full(const std::string& key) const { return absl::StrCat(start_, "/", key); }
  std::string LeftKey(int worker) const { return Full(absl::StrCat("left.", worker)); }

  absl::Status Foreign(const std::string& key, size_t bytes) const {
    return absl::InvalidArgumentError(
        absl::StrCat("rendezvous ", name(), ": '", key, "' holds ", bytes,
                     " bytes that no worker of this version has written"));
  }

  bool AllHaveLeft() const {
    for (int w = 0; w < gathering_.workers; ++w) {
      const auto left = store_->Read(LeftKey(w));
      if (!left.ok() || !left->has_value()) return false;
    }
    return true;
  }

  void Leave() {
    const std::string key = LeftKey(gathering_.self.value);
    if (!store_->Write(key, Seal(key, "")).ok()) return;
    Patience patience(gathering_.leave_limit);
    bool all = AllHaveLeft();
    while (!all && !patience.over()) {
      patience.Wait();
      all = AllHaveLeft();
    }
    if (!all) return;
    store_->Clear(Full(""));
    // Unless the job has started again meanwhile.
    const absl::StatusOr<std::optional<std::string>> start = store_->Read(kStartKey);
    if (!start.ok() || !start->has_value() || !absl::StrContains(**start, start_)) return;
    for (const char* prefix : {kJoin, kAccepted, kStartKey}) store_->Clear(prefix);
  }

  const std::unique_ptr<RendezvousStore> store_;
  const Gathering gathering_;
  const std::string start_;
};

}  // namespace

absl::StatusOr<std::shared_ptr<Rendezvous>> GatherAt(std::unique_ptr<RendezvousStore> store,
                                                     const Gathering& gathering) {
  if (gathering.workers < 1 || gathering.self.value < 0 ||
      gathering.self.value >= gathering.workers) {
    return absl::InvalidArgumentError(
        absl::StrCat("there is no worker ", gathering.self.value, " among ", gathering.workers));
  }
  RZ_ASSIGN_OR_RETURN(std::string start, Gatherer(*store, gathering).Run());
  store->Gathered();
  return std::make_shared<StoreRendezvous>(std::move(store), gathering, std::move(start));
}

}  // namespace ringzero
