// Greedy by bytes.
#include "zero/flat_shards.h"

#include <algorithm>
#include <numeric>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/buffer.h"
#include "base/status.h"

namespace ringzero {
namespace {

int64_t ValueBytes(const ParameterSpec& parameter) {
  const int64_t values = std::accumulate(parameter.shape.begin(), parameter.shape.end(), int64_t{1},
                                         std::multiplies<>());
  return values * static_cast<int64_t>(sizeof(float));
}

int64_t BytesOf(const ParameterSpec& parameter) {
  return static_cast<int64_t>(AlignPayload(static_cast<size_t>(ValueBytes(parameter))));
}

}  // namespace

absl::StatusOr<FlatShards> FlatShards::Make(const std::vector<ParameterSpec>& parameters,
                                            int workers) {
  if (workers < 1) return InvalidArgument("shards for ", workers, " workers");
  if (parameters.empty()) return absl::InvalidArgumentError("an optimizer without parameters");
  std::set<std::string> names;
  for (const ParameterSpec& parameter : parameters) {
    if (names.insert(parameter.name).second) continue;
    return InvalidArgument("two parameters are called ", parameter.name);
  }
  std::vector<int> order(parameters.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](int a, int b) { return BytesOf(parameters[a]) > BytesOf(parameters[b]); });
  FlatShards shards;
  shards.places.resize(parameters.size());
  std::vector<int64_t> bytes(static_cast<size_t>(workers));
  for (const int parameter : order) {
    const auto least = std::min_element(bytes.begin(), bytes.end()) - bytes.begin();
    bytes[least] += BytesOf(parameters[parameter]);
    shards.places[parameter].shard = static_cast<int>(least);
  }
  std::vector<std::vector<ParameterSpec>> cut(static_cast<size_t>(workers));
  for (size_t i = 0; i < parameters.size(); ++i) {
    Place& place = shards.places[i];
    place.parameter = static_cast<int>(cut[place.shard].size());
    cut[place.shard].push_back(parameters[i]);
  }
  for (std::vector<ParameterSpec>& shard : cut) {
    shards.layouts.push_back(StageLayout::Make(std::move(shard), {}));
  }
  return shards;
}

std::string DescribeOwners(const FlatShards& shards) {
  std::string text;
  int64_t most = 0;
  int64_t all = 0;
  for (int w = 0; w < shards.count(); ++w) {
    int64_t bytes = 0;
    for (const ParameterSpec& parameter : shards.layouts[w].parameters) {
      bytes += ValueBytes(parameter);
    }
    most = std::max(most, bytes);
    all += bytes;
    absl::StrAppend(&text, w == 0 ? "" : ", ", "worker ", w, w == 0 ? " owns " : " ", bytes,
                    w == 0 ? " bytes of parameters" : "");
  }
  return absl::StrFormat("%s; the fullest has %.2f times the mean", text,
                         static_cast<double>(most) * shards.count() / static_cast<double>(all));
}

}  // namespace ringzero
