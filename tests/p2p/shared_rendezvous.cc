// A table that only grows; an entry is written before it is marked as ready.
#include "tests/p2p/shared_rendezvous.h"

#include <atomic>
#include <cstring>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "p2p/mapping.h"

namespace ringzero {
namespace {

constexpr int kEntries = 256;

struct Entry {
  std::atomic<bool> ready;
  char key[64];
  uint32_t bytes;
  char value[8192];
};
struct Table {
  std::atomic<int> used;
  Entry entries[kEntries];
};

class SharedRendezvous final : public Rendezvous {
 public:
  explicit SharedRendezvous(Mapping memory) : memory_(std::move(memory)) {}
  std::string name() const override { return "shared"; }

  absl::Status Put(const std::string& key, const std::string& value) override {
    const int i = table().used.fetch_add(1);
    RZ_CHECK(
        i < kEntries && key.size() < sizeof(Entry::key) && value.size() <= sizeof(Entry::value),
        "a test's rendezvous has no room for " + key);
    Entry& entry = table().entries[i];
    std::memcpy(entry.key, key.data(), key.size());
    std::memcpy(entry.value, value.data(), value.size());
    entry.bytes = static_cast<uint32_t>(value.size());
    entry.ready.store(true, std::memory_order_release);
    return absl::OkStatus();
  }

  absl::StatusOr<std::string> Get(const std::string& key,
                                  std::chrono::milliseconds limit) override {
    const auto end = std::chrono::steady_clock::now() + limit;
    while (true) {
      for (const Entry& entry : table().entries) {
        if (!entry.ready.load(std::memory_order_acquire) || key != entry.key) continue;
        return std::string(entry.value, entry.bytes);
      }
      if (std::chrono::steady_clock::now() > end) {
        return absl::DeadlineExceededError(absl::StrCat("nobody put '", key, "'"));
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }

 private:
  Table& table() const { return *reinterpret_cast<Table*>(memory_.data()); }
  const Mapping memory_;  // zeroed: an empty table
};

}  // namespace

std::shared_ptr<Rendezvous> MakeSharedRendezvous() {
  absl::StatusOr<Mapping> memory = Mapping::SharedWithChildren(sizeof(Table));
  RZ_CHECK(memory.ok(), memory.status().ToString());
  return std::make_shared<SharedRendezvous>(*std::move(memory));
}

}  // namespace ringzero
