// One maker per transport, and those around them.
#include "tests/p2p/transports.h"

#include <algorithm>
#include <atomic>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/philox.h"
#include "base/status.h"
#include "p2p/nccl/lane_transport.h"
#include "p2p/nccl/nccl_transport.h"
#include "p2p/shm/shm_endpoint.h"
#include "p2p/shm/shm_transport.h"
#include "p2p/transport.h"
#include "p2p/transport_decorator.h"
#include "p2p/ucx/ucx_transport.h"
#include "tests/p2p/memory_lane.h"

namespace ringzero {
namespace {

absl::StatusOr<Transports> MakeShm(const std::vector<TransportOptions>& options) {
  RZ_ASSIGN_OR_RETURN(std::vector<ShmEndpoint> endpoints,
                      MakeShmEndpoints(static_cast<int>(options.size())));
  Transports transports;
  for (size_t w = 0; w < options.size(); ++w) {
    RZ_ASSIGN_OR_RETURN(std::unique_ptr<Transport> transport,
                        CreateShmTransport(std::move(endpoints[w]), options[w]));
    transports.push_back(std::move(transport));
  }
  return transports;
}

// The words of transports over lanes, and what they tell of themselves.
struct Words {
  std::vector<std::shared_ptr<LaneNews>> news;
  Transports transports;
};
absl::StatusOr<Words> MakeWords(const MakeTransports& make,
                                const std::vector<TransportOptions>& options) {
  Words words;
  std::vector<TransportOptions> words_options;
  for (const TransportOptions& each : options) {
    words.news.push_back(std::make_shared<LaneNews>());
    words_options.push_back(LaneWordsOptions(each, words.news.back()));
  }
  RZ_ASSIGN_OR_RETURN(words.transports, make(words_options));
  return words;
}

// By worker: the lanes of all ordered pairs that it is one of, and their routes.
struct LaneEnds {
  std::vector<std::unique_ptr<Lane>> lanes;
  LaneRoutes routes;
};

struct Pair {
  int from;
  int to;
};
void AddPair(std::vector<LaneEnds>& ends, Pair pair, const PayloadMemory& memory) {
  const auto [from, to] = pair;
  const auto group = MakeMemoryLaneGroup(std::to_string(from) + " -> " + std::to_string(to),
                                         {WorkerId(from), WorkerId(to)}, memory);
  ends[from].routes.to[to] = static_cast<int>(ends[from].lanes.size());
  ends[from].lanes.push_back(MakeMemoryLane(group, WorkerId(from)));
  if (from == to) {
    ends[from].routes.from[from] = ends[from].routes.to[from];
    return;
  }
  ends[to].routes.from[from] = static_cast<int>(ends[to].lanes.size());
  ends[to].lanes.push_back(MakeMemoryLane(group, WorkerId(to)));
}

std::vector<LaneEnds> MakeEnds(int workers) {
  std::vector<LaneEnds> ends(workers);
  for (LaneEnds& each : ends) {
    each.routes.to.assign(workers, kNoLane);
    each.routes.from.assign(workers, kNoLane);
  }
  return ends;
}

struct OverLanes {
  MakeTransports words;
  PayloadMemory memory;
  std::vector<uint8_t> word_kinds;
};
absl::StatusOr<Transports> MakeOverLanes(const OverLanes& with,
                                         const std::vector<TransportOptions>& options,
                                         std::vector<LaneEnds> ends) {
  RZ_ASSIGN_OR_RETURN(Words words, MakeWords(with.words, options));
  Transports transports;
  for (size_t w = 0; w < options.size(); ++w) {
    LaneParts parts = {.name = "lanes",
                       .words = std::move(words.transports[w]),
                       .news = words.news[w],
                       .lanes = std::move(ends[w].lanes),
                       .routes = std::move(ends[w].routes),
                       .memory = with.memory,
                       .word_kinds = with.word_kinds};
    RZ_ASSIGN_OR_RETURN(std::unique_ptr<Transport> transport,
                        CreateLaneTransport(std::move(parts), options[w]));
    transports.push_back(std::move(transport));
  }
  return transports;
}

// What `transports` makes, each wrapped.
using Wrap = std::function<std::unique_ptr<Transport>(std::unique_ptr<Transport>)>;
MakeTransports Each(MakeTransports transports, Wrap wrap) {
  return [transports = std::move(transports), wrap = std::move(wrap)](
             const std::vector<TransportOptions>& options) -> absl::StatusOr<Transports> {
    RZ_ASSIGN_OR_RETURN(Transports made, transports(options));
    for (std::unique_ptr<Transport>& transport : made) transport = wrap(std::move(transport));
    return made;
  };
}

// Somebody who calls Poll, as a program with ProgressMode::kCaller does.
class PolledTransport final : public TransportDecorator {
 public:
  explicit PolledTransport(std::unique_ptr<Transport> inner)
      : TransportDecorator(std::move(inner)), poller_([this] { Run(); }) {}
  ~PolledTransport() override {
    stopping_ = true;
    poller_.join();
    DestroyInner();
  }
  bool Poll() override { return false; }

 private:
  void Run() {
    while (!stopping_) {
      // Workers outnumber cores: one that has nothing to do lets the others run.
      if (!inner().Poll()) std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
  }

  std::atomic<bool> stopping_{false};
  std::thread poller_;
};

}  // namespace

absl::StatusOr<Transports> MakeTogether(const std::vector<TransportOptions>& options,
                                        const MakeOne& make) {
  const auto workers = static_cast<int>(options.size());
  JobSeat seat = {
      .workers = workers, .secret = "of this test", .rendezvous = MakeLocalRendezvous()};
  std::vector<absl::StatusOr<std::unique_ptr<Transport>>> made(options.size());
  std::vector<std::thread> threads;
  for (int w = 0; w < workers; ++w) {
    threads.emplace_back([&, seat, w]() mutable {
      seat.self = WorkerId(w);
      made[w] = make(seat, options[w]);
    });
  }
  for (std::thread& thread : threads) thread.join();
  Transports transports;
  for (auto& each : made) {
    RZ_RETURN_IF_ERROR(each.status());
    transports.push_back(*std::move(each));
  }
  return transports;
}

MakeTransports LocalTransports() { return CreateLocalTransports; }

MakeTransports ShmTransports() { return MakeShm; }

MakeTransports LaneTransports(MakeTransports words, PayloadMemory memory) {
  const OverLanes with = {.words = std::move(words), .memory = std::move(memory)};
  return [with](const std::vector<TransportOptions>& options) {
    const int workers = static_cast<int>(options.size());
    std::vector<LaneEnds> ends = MakeEnds(workers);
    for (int from = 0; from < workers; ++from) {
      for (int to = 0; to < workers; ++to) AddPair(ends, {from, to}, with.memory);
    }
    return MakeOverLanes(with, options, std::move(ends));
  };
}

MakeTransports LaneTransportsOf(std::vector<WorkerPair> pairs, std::vector<uint8_t> word_kinds) {
  const OverLanes with = {
      .words = LocalTransports(), .memory = HostMemory(), .word_kinds = std::move(word_kinds)};
  return [pairs = std::move(pairs), with](const std::vector<TransportOptions>& options) {
    const int workers = static_cast<int>(options.size());
    std::vector<LaneEnds> ends = MakeEnds(workers);
    for (int w = 0; w < workers; ++w) AddPair(ends, {w, w}, with.memory);
    for (const auto& [from, to] : pairs) {
      const bool are_there = from.value < workers && to.value < workers;
      if (are_there) AddPair(ends, {from.value, to.value}, with.memory);
    }
    return MakeOverLanes(with, options, std::move(ends));
  };
}

MakeTransports UcxTransports() {
  return [](const std::vector<TransportOptions>& options) -> absl::StatusOr<Transports> {
    RZ_ASSIGN_OR_RETURN(std::vector<ShmEndpoint> ends,
                        MakeShmEndpoints(static_cast<int>(options.size())));
    return MakeTogether(options, [&](const JobSeat& seat, const TransportOptions& each) {
      ShmEndpoint& mine = ends[static_cast<size_t>(seat.self.value)];
      return CreateUcxTransport(
          seat, each, {.board = std::move(mine.board), .sockets = std::move(mine.sockets)});
    });
  };
}

MakeTransports MixedTransports(int hosts) {
  return [hosts](const std::vector<TransportOptions>& options) {
    const MakeOne make =
        [hosts](const JobSeat& seat,
                const TransportOptions& each) -> absl::StatusOr<std::unique_ptr<Transport>> {
      std::vector<WorkerId> peers;
      const auto host = [&](int w) { return w * hosts / seat.workers; };
      for (int w = 0; w < seat.workers; ++w) {
        const bool here = host(w) == host(seat.self.value);
        if (here && w != seat.self.value) peers.push_back(WorkerId(w));
      }
      RZ_ASSIGN_OR_RETURN(ShmEndpoint endpoint, ConnectShmEndpoint(seat, peers));
      return CreateMixedTransport(seat, std::move(endpoint), each);
    };
    return MakeTogether(options, make);
  };
}

MakeTransports UcxTcpTransports() {
  return [](const std::vector<TransportOptions>& options) {
    return MakeTogether(options, [](const JobSeat& seat, const TransportOptions& each) {
      return CreateUcxTransport(seat, each, {.settings = {{"TLS", "tcp,self"}}});
    });
  };
}

MakeTransports UcxHostsTransports() {
  return [](const std::vector<TransportOptions>& options) {
    return MakeTogether(options, [](const JobSeat& seat, const TransportOptions& each) {
      UcxOptions ucx = {.interfaces = {"lo"}};
      for (int w = 0; w < seat.workers; ++w) {
        if (w != seat.self.value) ucx.elsewhere.emplace_back(w);
      }
      return CreateUcxTransport(seat, each, std::move(ucx));
    });
  };
}

std::string NcclMissing(int workers) {
  const absl::StatusOr<int> devices = NcclDevices();
  if (!devices.ok()) return std::string(devices.status().message());
  if (*devices >= workers) return "";
  return absl::StrCat("transport nccl: ", workers, " workers need a GPU each; there are ",
                      *devices);
}

MakeTransports NcclTransports() {
  return [](const std::vector<TransportOptions>& options) -> absl::StatusOr<Transports> {
    RZ_ASSIGN_OR_RETURN(Words words, MakeWords(LocalTransports(), options));
    std::vector<WorkerPair> all;
    for (size_t from = 0; from < options.size(); ++from) {
      for (size_t to = 0; to < options.size(); ++to) {
        if (from != to) all.emplace_back(static_cast<int>(from), static_cast<int>(to));
      }
    }
    return MakeTogether(options, [&](const JobSeat& seat, const TransportOptions& each) {
      const int w = seat.self.value;
      return CreateNcclTransport(seat,
                                 {.words = std::move(words.transports[w]),
                                  .news = words.news[w],
                                  .gpu = {.device = w, .pairs = all},
                                  .place = CudaPlace::kManaged},
                                 each);
    });
  };
}

MakeTransports Delayed(MakeTransports transports, uint64_t seed,
                       std::chrono::microseconds max_delay) {
  return Each(std::move(transports), [seed, max_delay](std::unique_ptr<Transport> transport) {
    // Depends on the message alone, not on timing.
    const auto delay = [seed, max_delay, self = transport->self()](WorkerId to, MessageKey key) {
      const uint64_t random =
          MixKeys({seed, uint64_t(self.value), uint64_t(to.value), uint64_t{key.kind}, key.tag});
      return std::chrono::microseconds(random % (max_delay.count() + 1));
    };
    return MakeFaulty(std::move(transport), {.delay = delay});
  });
}

MakeTransports Checksummed(MakeTransports transports) {
  const auto with_room = [transports =
                              std::move(transports)](std::vector<TransportOptions> options) {
    for (TransportOptions& each : options) each = WithChecksumRoom(std::move(each));
    return transports(options);
  };
  return Each(with_room, [](std::unique_ptr<Transport> transport) {
    return MakeChecksummed(std::move(transport));
  });
}

MakeTransports Polled(MakeTransports transports) {
  const auto by_caller = [transports =
                              std::move(transports)](std::vector<TransportOptions> options) {
    for (TransportOptions& each : options) each.progress = ProgressMode::kCaller;
    return transports(options);
  };
  return Each(by_caller, [](std::unique_ptr<Transport> transport) {
    return std::make_unique<PolledTransport>(std::move(transport));
  });
}

MakeTransports Damaged(MakeTransports transports, const Damage& damage) {
  return Each(std::move(transports), [damage](std::unique_ptr<Transport> transport) {
    if (transport->self() != damage.worker) return transport;
    return MakeFaulty(std::move(transport), {.seed = damage.seed, .flip_message = damage.message});
  });
}

}  // namespace ringzero
