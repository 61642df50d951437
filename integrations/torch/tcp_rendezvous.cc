// c10d::TCPStore behind RendezvousStore; its exceptions end here.
#include "integrations/torch/tcp_rendezvous.h"

#include <c10/util/Logging.h>

#include <cstdint>
#include <cstdlib>
#include <exception>
#include <optional>
#include <string>
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

Bytes ToBytes(const std::string& text) { return {text.begin(), text.end()}; }

// Torch's words, without its backtraces.
std::string FirstLine(const std::exception& error) {
  const absl::string_view words = error.what();
  return std::string(words.substr(0, words.find('\n')));
}

class TcpStore final : public RendezvousStore {
 public:
  explicit TcpStore(const TcpPlace& place)
      : name_(absl::StrCat("tcp://", place.host, ":", place.port)),
        prefix_(absl::StrCat("ringzero/", place.job, "/")) {}

  absl::Status Open(const TcpPlace& place) {
    // Torch logs each failed try with a backtrace; ours is one line, when all have failed.
    if (std::getenv("TORCH_CPP_LOG_LEVEL") == nullptr) FLAGS_caffe2_log_level = kFatal;
    return Guarded("cannot connect", [&] {
      c10d::TCPStoreOptions options;
      options.port = static_cast<uint16_t>(place.port);
      options.isServer = place.side == TcpPlace::Side::kServe;
      options.waitWorkers = false;
      options.timeout = place.limit;
      // torchrun's static rendezvous may have a server of its own in this process' place.
      options.multiTenant = true;
      store_ = c10::make_intrusive<c10d::TCPStore>(place.host, options);
    });
  }

  std::string name() const override { return name_; }

  absl::Status Write(const std::string& key, const std::string& value) override {
    return Guarded(absl::StrCat("cannot put '", key, "'"),
                   [&] { store_->set(prefix_ + key, ToBytes(value)); });
  }

  absl::StatusOr<std::string> WriteOnce(const std::string& key, const std::string& value) override {
    Bytes there;
    RZ_RETURN_IF_ERROR(Guarded(absl::StrCat("cannot put '", key, "'"), [&] {
      there = store_->compareSet(prefix_ + key, Bytes(), ToBytes(value));
    }));
    return std::string(there.begin(), there.end());
  }

  absl::StatusOr<std::optional<std::string>> Read(const std::string& key) override {
    std::optional<std::string> value;
    RZ_RETURN_IF_ERROR(Guarded(absl::StrCat("cannot read '", key, "'"), [&] {
      if (!store_->check({prefix_ + key})) return;
      const Bytes bytes = store_->get(prefix_ + key);
      if (bytes.size() > kMaxStoredBytes) {
        value.emplace();  // no worker of ours wrote it
      } else {
        value.emplace(bytes.begin(), bytes.end());
      }
    }));
    return value;
  }

  // The store ends with its server; what is in it is small.
  void Clear(const std::string&) override {}

 private:
  template <typename Body>
  absl::Status Guarded(const std::string& what, const Body& body) const {
    try {
      body();
      return absl::OkStatus();
    } catch (const std::exception& error) {
      return absl::UnavailableError(
          absl::StrCat("rendezvous ", name_, ": ", what, ": ", FirstLine(error)));
    }
  }

  const std::string name_;
  const std::string prefix_;
  c10::intrusive_ptr<c10d::TCPStore> store_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<RendezvousStore>> OpenTcpStore(const TcpPlace& place) {
  auto store = std::make_unique<TcpStore>(place);
  RZ_RETURN_IF_ERROR(store->Open(place));
  return store;
}

}  // namespace ringzero
