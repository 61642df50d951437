// c10d::TCPStore behind RendezvousStore; its exceptions end here.
#include "integrations/torch/tcp_rendezvous.h"

#include <c10/util/Logging.h>

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstdlib>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/status.h"

namespace ringzero {
namespace {

using Bytes = std::vector<uint8_t>;
constexpr int kFatal = 3;
constexpr std::chrono::seconds kAnswerLimit(10);

Bytes ToBytes(const std::string& text) { return {text.begin(), text.end()}; }

// Torch's words, without its backtraces.
std::string FirstLine(const std::exception& error) {
  const absl::string_view words = error.what();
  return std::string(words.substr(0, words.find('\n')));
}

// Runs calls one after the other, on a thread of its own.
class CallThread {
 public:
  CallThread() : thread_([queue = queue_] { Run(*queue); }) {}
  ~CallThread() {
    Post(nullptr);
    if (thread_.joinable()) thread_.join();
  }

  void Post(std::function<void()> call) {
    const std::lock_guard<std::mutex> lock(queue_->mutex);
    queue_->calls.push_back(std::move(call));
    queue_->changed.notify_one();
  }
  // It hangs in a call, and is not waited for.
  void Abandon() { thread_.detach(); }

 private:
  struct Queue {
    std::mutex mutex;
    std::condition_variable changed;
    std::deque<std::function<void()>> calls;  // an empty one: the end
  };
  static void Run(Queue& queue) {
    while (true) {
      std::unique_lock<std::mutex> lock(queue.mutex);
      queue.changed.wait(lock, [&] { return !queue.calls.empty(); });
      const std::function<void()> call = std::move(queue.calls.front());
      queue.calls.pop_front();
      lock.unlock();
      if (!call) return;
      call();
    }
  }

  const std::shared_ptr<Queue> queue_ =
      std::make_shared<Queue>();  // an abandoned thread has it, too
  std::thread thread_;
};

// torch's calls wait for their server without a limit: one whose host is cut off never answers.
// They are made by a thread that can be left behind.
class TcpStore final : public RendezvousStore {
 public:
  explicit TcpStore(const TcpPlace& place)
      : name_(absl::StrCat("tcp://", place.host, ":", place.port)),
        prefix_(absl::StrCat("ringzero/", place.job, "/")) {}

  absl::Status Open(const TcpPlace& place) {
    // Torch logs each failed try with a backtrace; ours is one line, when all have failed.
    if (std::getenv("TORCH_CPP_LOG_LEVEL") == nullptr) FLAGS_caffe2_log_level = kFatal;
    try {
      c10d::TCPStoreOptions options;
      options.port = static_cast<uint16_t>(place.port);
      options.isServer = place.side == TcpPlace::Side::kServe;
      options.waitWorkers = false;
      options.timeout = place.limit;
      // torchrun's static rendezvous may have a server of its own in this process' place.
      options.multiTenant = true;
      store_ = c10::make_intrusive<c10d::TCPStore>(place.host, options);
    } catch (const std::exception& error) {
      return Unavailable("cannot connect", FirstLine(error));
    }
    return absl::OkStatus();
  }

  std::string name() const override { return name_; }

  absl::Status Write(const std::string& key, const std::string& value) override {
    return Call<bool>(absl::StrCat("cannot put '", key, "'"),
                      [key = prefix_ + key, bytes = ToBytes(value)](c10d::TCPStore& store) {
                        store.set(key, bytes);
                        return true;
                      })
        .status();
  }

  absl::StatusOr<std::string> WriteOnce(const std::string& key, const std::string& value) override {
    return Call<std::string>(absl::StrCat("cannot put '", key, "'"),
                             [key = prefix_ + key, bytes = ToBytes(value)](c10d::TCPStore& store) {
                               const Bytes there = store.compareSet(key, Bytes(), bytes);
                               return std::string(there.begin(), there.end());
                             });
  }

  absl::StatusOr<std::optional<std::string>> Read(const std::string& key) override {
    using Value = std::optional<std::string>;
    return Call<Value>(absl::StrCat("cannot read '", key, "'"),
                       [key = prefix_ + key](c10d::TCPStore& store) -> Value {
                         if (!store.check({key})) return std::nullopt;
                         const Bytes bytes = store.get(key);
                         // A larger one was written by no worker of ours.
                         if (bytes.size() > kMaxStoredBytes) return std::string();
                         return std::string(bytes.begin(), bytes.end());
                       });
  }

  // The store ends with its server; what is in it is small.
  void Clear(const std::string&) override {}

 private:
  absl::Status Unavailable(const std::string& what, const std::string& why) const {
    return absl::UnavailableError(absl::StrCat("rendezvous ", name_, ": ", what, ": ", why));
  }

  // `body` owns all that it needs: it may outlive this.
  template <typename T>
  absl::StatusOr<T> Call(const std::string& what, std::function<T(c10d::TCPStore&)> body) {
    struct Outcome {
      std::mutex mutex;
      std::condition_variable done;
      std::optional<T> value;
      std::optional<std::string> error;
    };
    if (silent_) return Unavailable(what, "it has fallen silent");
    const auto outcome = std::make_shared<Outcome>();
    thread_.Post([outcome, store = store_, body = std::move(body)] {
      std::optional<T> value;
      std::optional<std::string> error;
      try {
        value = body(*store);
      } catch (const std::exception& thrown) {
        error = FirstLine(thrown);
      }
      const std::lock_guard<std::mutex> lock(outcome->mutex);
      outcome->value = std::move(value);
      outcome->error = std::move(error);
      outcome->done.notify_all();
    });
    std::unique_lock<std::mutex> lock(outcome->mutex);
    if (!outcome->done.wait_for(lock, kAnswerLimit, [&] {
          return outcome->value.has_value() || outcome->error.has_value();
        })) {
      silent_ = true;
      thread_.Abandon();
      return Unavailable(what, absl::StrCat("no answer within ", kAnswerLimit.count(), " s"));
    }
    if (outcome->error.has_value()) return Unavailable(what, *outcome->error);
    return *std::move(outcome->value);
  }

  const std::string name_;
  const std::string prefix_;
  c10::intrusive_ptr<c10d::TCPStore> store_;
  bool silent_ = false;
  CallThread thread_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<RendezvousStore>> OpenTcpStore(const TcpPlace& place) {
  auto store = std::make_unique<TcpStore>(place);
  RZ_RETURN_IF_ERROR(store->Open(place));
  return store;
}

}  // namespace ringzero
