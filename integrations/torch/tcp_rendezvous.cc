// c10d::TCPStore behind RendezvousStore; its exceptions end here.
#include "integrations/torch/tcp_rendezvous.h"

#include <c10/util/Logging.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <exception>
#include <functional>
#include <future>
#include <optional>
#include <string>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "base/system_names.h"
#include "base/texts.h"
#include "p2p/deadline.h"

namespace ringzero {
namespace {

using Bytes = std::vector<uint8_t>;
constexpr int kFatal = 3;

Bytes ToBytes(const std::string& text) { return {text.begin(), text.end()}; }

using Store = c10::intrusive_ptr<c10d::TCPStore>;

// The result of a call of torch's, if it comes within `limit`. Torch waits for an answer without a
// limit, and a network that drops everything gives no answer. Then the waiting thread is left
// behind, with all that it needs, and the caller goes on.
template <typename T>
absl::StatusOr<T> Within(std::chrono::milliseconds limit, std::function<T()> call) {
  auto promise = std::make_shared<std::promise<absl::StatusOr<T>>>();
  std::future<absl::StatusOr<T>> result = promise->get_future();
  NamedThread("rz-store", [promise, call = std::move(call)] {
    try {
      promise->set_value(call());
    } catch (const std::exception& error) {
      // Torch's words, without its backtraces.
      promise->set_value(absl::UnavailableError(SplitOnce(error.what(), "\n").first));
    }
  }).detach();
  const Deadline deadline(limit);
  while (result.wait_for(deadline.Look()) != std::future_status::ready) {
    if (!deadline.over()) continue;
    const double seconds = std::chrono::duration<double>(limit).count();
    return Unavailable("no answer within ", seconds, " s");
  }
  return result.get();
}

class TcpStore final : public RendezvousStore {
 public:
  explicit TcpStore(const TcpPlace& place)
      : place_(place),
        name_(absl::StrCat("tcp://", place.host, ":", place.port)),
        prefix_(absl::StrCat("ringzero/", place.job, "/")) {}

  absl::Status Open() {
    // Torch logs each failed try with a backtrace; ours is one line, when all have failed.
    if (std::getenv("TORCH_CPP_LOG_LEVEL") == nullptr) FLAGS_caffe2_log_level = kFatal;
    const std::chrono::milliseconds limit = place_.limit + place_.answer_limit;
    absl::StatusOr<Store> store = Within<Store>(limit, [place = place_] {
      c10d::TCPStoreOptions options;
      options.port = static_cast<uint16_t>(place.port);
      options.isServer = place.side == TcpPlace::Side::kServe;
      options.waitWorkers = false;
      options.timeout = place.limit;
      // torchrun's static rendezvous may have a server of its own in this process' place.
      options.multiTenant = true;
      return c10::make_intrusive<c10d::TCPStore>(place.host, options);
    });
    if (!store.ok()) return Lost("cannot connect", store.status());
    store_ = *std::move(store);
    join_deadline_.emplace(limit);
    return absl::OkStatus();
  }

  std::string name() const override { return name_; }

  absl::Status Write(const std::string& key, const std::string& value) override {
    const auto call = [store = store_, key = prefix_ + key, value] {
      store->set(key, ToBytes(value));
      return true;
    };
    return Ask<bool>(absl::StrCat("cannot put '", key, "'"), call).status();
  }

  absl::StatusOr<std::string> WriteOnce(const std::string& key, const std::string& value) override {
    const auto call = [store = store_, key = prefix_ + key, value] {
      const Bytes there = store->compareSet(key, Bytes(), ToBytes(value));
      return std::string(there.begin(), there.end());
    };
    return Ask<std::string>(absl::StrCat("cannot put '", key, "'"), call);
  }

  absl::StatusOr<std::optional<std::string>> Read(const std::string& key) override {
    const auto call = [store = store_, key = prefix_ + key]() -> std::optional<std::string> {
      if (!store->check({key})) return std::nullopt;
      const Bytes bytes = store->get(key);
      if (bytes.size() > kMaxStoredBytes) return std::string();  // no worker of ours wrote it
      return std::string(bytes.begin(), bytes.end());
    };
    return Ask<std::optional<std::string>>(absl::StrCat("cannot read '", key, "'"), call);
  }

  // The store ends with its server; what is in it is small.
  void Clear(const std::string&) override {}

  void Gathered() override { join_deadline_.reset(); }

 private:
  absl::Status Lost(const std::string& what, const absl::Status& why) const {
    const bool is_worker_0s = place_.of_worker_0 && place_.side == TcpPlace::Side::kConnect;
    return Unavailable(
        is_worker_0s ? "worker 0, which serves the rendezvous, is gone or cannot be reached: " : "",
        "rendezvous ", name_, ": ", what, ": ", why.message());
  }

  // The server looks up the name of each client's address before it answers anybody again, and a
  // name server that does not answer keeps it for 10 s or more (resolv.conf(5): timeout, attempts).
  // So as long as workers arrive, no answer for a while does not mean that the store is lost.
  std::chrono::milliseconds AnswerLimit() const {
    if (!join_deadline_.has_value()) return place_.answer_limit;
    return std::max(place_.answer_limit, join_deadline_->Left());
  }

  // After a call without an answer the connection is somewhere in the middle of that call: no other
  // call follows.
  template <typename T>
  absl::StatusOr<T> Ask(const std::string& what, std::function<T()> call) {
    if (!lost_.ok()) return Lost(what, lost_);
    absl::StatusOr<T> answer = Within<T>(AnswerLimit(), std::move(call));
    if (answer.ok()) return answer;
    lost_ = answer.status();
    return Lost(what, lost_);
  }

  const TcpPlace place_;
  const std::string name_;
  const std::string prefix_;
  std::optional<Deadline> join_deadline_;  // until all have come
  Store store_;
  absl::Status lost_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<RendezvousStore>> OpenTcpStore(const TcpPlace& place) {
  auto store = std::make_unique<TcpStore>(place);
  RZ_RETURN_IF_ERROR(store->Open());
  return store;
}

}  // namespace ringzero
