// Chooses the reader by type, and orders epochs.
#include "integrations/data/dataset.h"

#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/philox.h"
#include "integrations/data/cifar10.h"
#include "integrations/data/idx.h"
#include "integrations/data/random.h"
#include "integrations/data/text.h"

namespace ringzero {

absl::StatusOr<std::unique_ptr<Dataset>> OpenDataset(const DatasetOptions& options) {
  if (options.type == "random") return OpenRandom(options);
  const bool known = options.type == "idx" || options.type == "cifar10" || options.type == "text";
  if (!known) {
    return absl::InvalidArgumentError(
        absl::StrCat("data.type is \"", options.type,
                     "\": wanted \"idx\", \"cifar10\", \"text\" or \"random\""));
  }
  if (options.path.empty()) {
    return absl::InvalidArgumentError(absl::StrCat("data.path is missing: data of type \"",
                                                   options.type, "\" are read from ",
                                                   options.type == "text" ? "a file" : "a folder"));
  }
  if (options.type == "idx") return OpenIdx(options.path);
  if (options.type == "cifar10") return OpenCifar10(options.path);
  return OpenText(options.path, options.sequence);
}

// Fisher and Yates, from the end: for i = size-1 down to 1, exchange order[i] with order[j], where
// j is floor(r_i · (i+1) / 2^64) and r_i the first 64 bits (low word first) of block i of the
// stream `epoch` under the key of (seed, "epoch order"). The bias of j is below 2^-64 · size.
std::vector<int64_t> EpochOrder(uint64_t seed, int64_t epoch, int64_t size) {
  std::vector<int64_t> order(static_cast<size_t>(size));
  std::iota(order.begin(), order.end(), int64_t{0});
  const uint64_t key = MixKeys({seed, HashName("epoch order")});
  for (int64_t i = size - 1; i > 0; --i) {
    const PhiloxBlock block = PhiloxAt(key, static_cast<uint64_t>(epoch), static_cast<uint64_t>(i));
    const uint64_t r = uint64_t{block[1]} << 32 | block[0];
    const unsigned __int128 bound = static_cast<uint64_t>(i) + 1;
    std::swap(order[i], order[static_cast<int64_t>(r * bound >> 64)]);
  }
  return order;
}

}  // namespace ringzero
