// Turns the plan's merged order into names of messages.
#include "zero/long_hops.h"

#include <memory>
#include <optional>

#include "base/check.h"
#include "sharding/merged_order.h"
#include "sharding/op.h"
#include "zero/message_key.h"

namespace ringzero {

LongHopOrder LongHopsOf(const Plan& plan, WorkerId self) {
  // Shared: std::function copies what it holds.
  const auto orderer = std::make_shared<LongHopOrderer>(plan, self);
  return [orderer](int64_t) -> std::optional<LongHop> {
    const absl::StatusOr<std::optional<MergedHop>> next = orderer->Next();
    RZ_CHECK(next.ok(), next.status().ToString());  // the engine's own programs come from this plan
    if (!next->has_value()) return std::nullopt;
    const Op& op = (*next)->receive;
    return LongHop{(*next)->from, (*next)->to, MessageKeyOf(op)};
  };
}

}  // namespace ringzero
