// One thread per worker: making communicators takes all of them at once.
#include "tests/p2p/nccl_transports.h"

#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "p2p/local_transport.h"
#include "p2p/nccl/nccl_transport.h"

namespace ringzero {
namespace {

constexpr size_t kLaneReceivedBytes = 16 << 20;

absl::StatusOr<std::vector<std::unique_ptr<Transport>>> MakeNccl(
    const std::vector<TransportOptions>& options) {
  const int workers = static_cast<int>(options.size());
  std::vector<std::shared_ptr<LaneNews>> news;
  std::vector<TransportOptions> words_options;
  for (const TransportOptions& each : options) {
    news.push_back(std::make_shared<LaneNews>());
    words_options.push_back(LaneWordsOptions(each, news.back()));
  }
  RZ_ASSIGN_OR_RETURN(std::vector<std::unique_ptr<Transport>> words,
                      CreateLocalTransports(words_options));
  const std::shared_ptr<Rendezvous> rendezvous = MakeLocalRendezvous();
  std::vector<absl::StatusOr<std::unique_ptr<Transport>>> made(workers);
  std::vector<std::thread> threads;
  for (int w = 0; w < workers; ++w) {
    threads.emplace_back([&, w] {
      const JobSeat seat{.self = WorkerId(w), .workers = workers, .rendezvous = rendezvous};
      made[w] = CreateNcclTransport(seat,
                                    {.words = std::move(words[w]),
                                     .news = news[w],
                                     .lane = {.device = w, .place = CudaPlace::kManaged},
                                     .pairs = NcclPairs::kAll,
                                     .received_bytes = kLaneReceivedBytes},
                                    options[w]);
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::vector<std::unique_ptr<Transport>> transports;
  for (auto& each : made) {
    RZ_RETURN_IF_ERROR(each.status());
    transports.push_back(*std::move(each));
  }
  return transports;
}

}  // namespace

std::string NcclMissing(int workers) {
  const absl::StatusOr<int> devices = NcclDevices();
  if (!devices.ok()) return std::string(devices.status().message());
  if (*devices >= workers) return "";
  return absl::StrCat("transport nccl: ", workers, " workers need a GPU each; there are ",
                      *devices);
}

MakeTransports NcclTransports() { return MakeNccl; }

}  // namespace ringzero
