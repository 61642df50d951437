// Chooses the peer that does what the run does. Two peers are in shared memory, without our
// transports: plain copies from the neighbour, and a bare wake. The third is ucx_perftest: worker 0
// starts its processes, the other workers wait.
#include "bench/ring/peer.h"

#include <arpa/inet.h>
#include <linux/futex.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "base/buffer.h"
#include "base/status.h"
#include "base/unique_fd.h"
#include "bench/ring/statistics.h"
#include "p2p/ucx/ucx_worker.h"

namespace ringzero {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kLine = 64;
constexpr size_t kPage = 4096;

size_t Round(size_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }

bool WithMemcpy(const RingOptions& options) {
  return options.mode == RingMode::kShift && options.copy;
}
bool WithWake(const RingOptions& options) {
  return options.mode == RingMode::kPingpong && !options.copy;
}

bool OverUcx(const RingOptions& options) {
  return options.transport == "ucx" && !options.copy && options.workers == 2 &&
         (options.mode == RingMode::kPingpong || options.mode == RingMode::kShift ||
          options.mode == RingMode::kStream);
}

double Microseconds(Clock::time_point since) {
  return std::chrono::duration<double, std::micro>(Clock::now() - since).count();
}

// Every worker copies from its left neighbour's part into memory of its own, all at the same time,
// and none waits for another.
class MemcpyRing final : public Peer {
 public:
  using Peer::Peer;

  std::string name() const override {
    return absl::StrCat("memcpy between shared mappings, a ring of ", setup_.options.workers);
  }

  absl::Status Prepare(const TrafficSetup& traffic) override {
    copies_.clear();
    for (int i = 0; i < traffic.buffers; ++i) copies_.push_back(MakeHeapBuffer(traffic.bytes));
    const std::span<std::byte> mine = setup_.area.BytesOf(self());
    const size_t needed = PeerBytes(traffic.bytes, traffic.buffers);
    if (needed > mine.size()) return absl::InternalError("the shared area is too small");
    FillData({self(), 0}, mine.first(needed));
    return absl::OkStatus();
  }

  absl::StatusOr<double> Measure(const TrafficSetup& traffic, int iterations) override {
    Transport& transport = setup_.waiting->transport();
    const int workers = transport.workers();
    const std::byte* from =
        setup_.area.BytesOf(WorkerId((self().value + workers - 1) % workers)).data();
    const size_t stride = PeerBytes(traffic.bytes, 1);
    std::vector<double> times;
    // One more before them that is not timed, as in ours.
    for (int i = -1; i < iterations; ++i) {
      const Clock::time_point begin = Clock::now();
      for (int a = 0; a < traffic.aggregate; ++a) {
        const int slot = ((i + 1) * traffic.aggregate + a) % traffic.buffers;
        std::memcpy(copies_[slot].data(), from + slot * stride, traffic.bytes);
      }
      if (i >= 0) times.push_back(Microseconds(begin) / traffic.aggregate);
      transport.Poll();  // a worker that polls is alive
    }
    return StatisticsOf(std::move(times)).median;
  }

 private:
  std::vector<Buffer> copies_;
};

// Two workers pass a word to and fro: asleep, or spinning if ours poll.
class Wake final : public Peer {
 public:
  using Peer::Peer;

  std::string name() const override {
    return spins() ? "a word in shared memory, both spinning"
                   : "a bare futex wake, receiver asleep";
  }

  absl::StatusOr<double> Measure(const TrafficSetup&, int iterations) override {
    std::vector<double> times;
    times.reserve(static_cast<size_t>(iterations) + 1);
    Clock::time_point last = Clock::now();
    for (int i = -1; i < iterations; ++i) {
      ++turn_;
      if (self().value == 0) Set(WorkerId(1));
      RZ_RETURN_IF_ERROR(Await());
      if (self().value == 1) Set(WorkerId(0));
      const Clock::time_point now = Clock::now();
      const std::chrono::duration<double, std::micro> time = now - last;
      if (i >= 0) times.push_back(time.count() / 2);
      last = now;
    }
    return StatisticsOf(std::move(times)).median;
  }

 private:
  bool spins() const { return setup_.options.progress == ProgressMode::kCaller; }

  void Set(WorkerId worker) {
    std::atomic<uint32_t>& word = setup_.area.WordOf(worker);
    word.store(turn_, std::memory_order_release);
    if (!spins()) Futex(word, FUTEX_WAKE, 1);
  }

  absl::Status Await() {
    std::atomic<uint32_t>& word = setup_.area.WordOf(self());
    const Clock::time_point begin = Clock::now();
    for (uint64_t turn = 1;; ++turn) {
      const uint32_t now = word.load(std::memory_order_acquire);
      if (now == turn_) return absl::OkStatus();
      if (!spins()) Futex(word, FUTEX_WAIT, now);
      if (spins() && turn % 1000000 != 0) continue;
      RZ_RETURN_IF_ERROR(setup_.waiting->transport().status());
      if (Clock::now() - begin > std::chrono::seconds(60)) {
        return absl::DeadlineExceededError("waited 60 s for a bare wake");
      }
    }
  }

  // Waits at most a second.
  static void Futex(std::atomic<uint32_t>& word, int operation, uint32_t value) {
    const timespec second{.tv_sec = 1, .tv_nsec = 0};
    syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), operation, value,
            operation == FUTEX_WAIT ? &second : nullptr, nullptr, 0);
  }

  uint32_t turn_ = 0;
};

constexpr std::chrono::seconds kLimit(120);  // of one run of the tool

// The most bytes that one run of the tool sends. It sends fewer messages than our workers to stay
// below: where the tool is slow (it sleeps, cores are few) a large size would take minutes.
constexpr size_t kMostBytes = size_t{512} << 20;
constexpr size_t kFewestMessages = 8;

// Folder of the UCX that this was built against; empty in a build without UCX.
#ifndef RINGZERO_UCX_ROOT
#define RINGZERO_UCX_ROOT ""
#endif

std::string FindTool() {
  if (const char* given = std::getenv("RINGZERO_UCX_PERFTEST")) return given;
  std::vector<std::string> folders;
  if (*RINGZERO_UCX_ROOT != '\0') folders.push_back(absl::StrCat(RINGZERO_UCX_ROOT, "/bin"));
  if (const char* path = std::getenv("PATH")) {
    for (absl::string_view folder : absl::StrSplit(path, ':')) folders.emplace_back(folder);
  }
  for (const std::string& folder : folders) {
    const std::string tool = absl::StrCat(folder, "/ucx_perftest");
    if (access(tool.c_str(), X_OK) == 0) return tool;
  }
  return "";
}

// A command of the shell whose output is read. It ends by itself, or after kLimit.
class Child {
 public:
  static absl::StatusOr<Child> Start(const std::string& command) {
    const std::string limited =
        absl::StrCat("exec timeout --foreground -s KILL ", kLimit.count(), " ", command, " 2>&1");
    Child child;
    child.output_.reset(popen(limited.c_str(), "re"));
    if (child.output_ == nullptr) return absl::ResourceExhaustedError("no process for the peer");
    return child;
  }

  // All that it writes until it ends.
  absl::StatusOr<std::string> Read(Transport& transport) {
    std::string text;
    char buffer[4096];
    while (true) {
      pollfd wait{.fd = fileno(output_.get()), .events = POLLIN, .revents = 0};
      if (poll(&wait, 1, 20) > 0) {
        const ssize_t count = read(wait.fd, buffer, sizeof(buffer));
        if (count <= 0) break;
        text.append(buffer, static_cast<size_t>(count));
      }
      transport.Poll();  // a worker that polls is alive
    }
    if (Clock::now() - begin_ < kLimit) return text;
    return absl::DeadlineExceededError(
        absl::StrCat("ucx_perftest took more than ", kLimit.count(), " s; it wrote: ", text));
  }

 private:
  struct Close {
    void operator()(FILE* output) const { pclose(output); }
  };
  Clock::time_point begin_ = Clock::now();  // before the command's own start
  std::unique_ptr<FILE, Close> output_;
};

// A port of this host that no process has now.
absl::StatusOr<int> FreePort() {
  const UniqueFd listener(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  if (bind(listener.get(), reinterpret_cast<sockaddr*>(&address), size) != 0 ||
      getsockname(listener.get(), reinterpret_cast<sockaddr*>(&address), &size) != 0) {
    return absl::UnavailableError("no free TCP port on 127.0.0.1");
  }
  return ntohs(address.sin_port);
}

// Waits until somebody listens at the port. A trial connection would be the only one that the
// server takes, and its output would not tell: into a pipe, it stays in the server's buffer.
absl::Status AwaitListener(int port, Transport& transport) {
  const std::string wanted = absl::StrFormat(":%04X 00000000:0000 0A", port);
  const Clock::time_point begin = Clock::now();
  while (Clock::now() - begin < kLimit) {
    std::ifstream file("/proc/net/tcp");
    for (std::string line; std::getline(file, line);) {
      if (line.find(wanted) != line.npos) return absl::OkStatus();
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    transport.Poll();  // a worker that polls is alive
  }
  return absl::DeadlineExceededError(
      absl::StrCat("ucx_perftest did not listen at port ", port, " within ", kLimit.count(), " s"));
}

// The named column in microseconds, of what -f -v prints: names, then numbers.
absl::StatusOr<double> Column(const std::string& text, const char* name) {
  std::vector<std::string> names;
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    const std::vector<std::string> words = absl::StrSplit(line, ',');
    const auto column = std::find(names.begin(), names.end(), name);
    double value = 0;
    if (column == names.end()) {
      names = words;
    } else if (words.size() == names.size() &&
               absl::SimpleAtod(words[column - names.begin()], &value)) {
      return value;
    }
  }
  return Internal("ucx_perftest wrote no figures: ", text);
}

size_t Messages(const TrafficSetup& traffic, int iterations) {
  const size_t wanted = static_cast<size_t>(iterations) * traffic.aggregate;
  const size_t most = std::max(kFewestMessages, kMostBytes / std::max<size_t>(traffic.bytes, 1));
  return std::min(wanted, most);
}

class UcxPerftest final : public Peer {
 public:
  explicit UcxPerftest(const PeerSetup& setup)
      : Peer(setup), tool_(FindTool()), command_(CommandOf(tool_)) {}

  std::string name() const override {
    return absl::StrCat(tool_, " -t ", test(), " -e -E ", wait(),
                        Bandwidth() ? absl::StrCat(" -O ", Outstanding()) : "",
                        TwoWays() ? ", one each way" : "");
  }
  // Single times of messages say nothing about bandwidth: the messages come in bursts.
  Typical typical() const override { return Bandwidth() ? Typical::kMean : Typical::kMedian; }

  absl::StatusOr<double> Measure(const TrafficSetup& traffic, int iterations) override {
    Transport& transport = setup_.waiting->transport();
    if (transport.self().value != 0) return 0;
    std::vector<Child> servers, clients;
    for (int way = 0; way < (TwoWays() ? 2 : 1); ++way) {
      RZ_ASSIGN_OR_RETURN(const int port, FreePort());
      const std::string words =
          absl::StrCat(" -p ", port, " -t ", test(), " -s ", traffic.bytes, " -n ",
                       Messages(traffic, iterations), " -w ", WarmUp(traffic), " -e -E ", wait(),
                       Bandwidth() ? absl::StrCat(" -O ", Outstanding()) : "");
      RZ_ASSIGN_OR_RETURN(Child server, Child::Start(absl::StrCat(command_, words, Pin(way))));
      RZ_RETURN_IF_ERROR(AwaitListener(port, transport));
      RZ_ASSIGN_OR_RETURN(Child client, Child::Start(absl::StrCat(command_, " 127.0.0.1", words,
                                                                  " -f -v", Pin(1 - way))));
      servers.push_back(std::move(server));
      clients.push_back(std::move(client));
    }
    double sum = 0;
    for (Child& client : clients) {
      RZ_ASSIGN_OR_RETURN(const std::string text, client.Read(transport));
      RZ_ASSIGN_OR_RETURN(const double time,
                          Column(text, Bandwidth() ? "overall_lat" : "50.0_percentile_lat"));
      sum += time;
    }
    return sum / static_cast<double>(clients.size());
  }

 private:
  bool TwoWays() const { return setup_.options.mode == RingMode::kShift; }
  bool Bandwidth() const { return setup_.options.mode != RingMode::kPingpong; }
  std::string test() const { return Bandwidth() ? "tag_bw" : "tag_lat"; }
  // Our workers have run for long when the clock starts; the tool's processes have only just begun.
  size_t WarmUp(const TrafficSetup& traffic) const {
    const size_t ours = static_cast<size_t>(setup_.options.warmup) * traffic.aggregate;
    const size_t window = 2 * static_cast<size_t>(Outstanding());
    return std::min(std::max({ours, window, kFewestMessages}), Messages(traffic, 1 << 20));
  }
  // As many messages under way as in ours: a shift waits for a whole iteration before the next.
  int Outstanding() const {
    return setup_.options.mode == RingMode::kShift ? setup_.options.aggregate
                                                   : setup_.options.slots;
  }
  std::string wait() const {
    return setup_.options.progress == ProgressMode::kCaller ? "poll" : "sleep";
  }

  std::string Pin(int worker) const {
    const std::vector<int>& cores = setup_.facts.cores;
    return setup_.options.pin ? absl::StrCat(" -c ", cores[worker % cores.size()]) : "";
  }

  // Sets what our transport sets for UCX unless the environment does (p2p/ucx/ucx_worker.cc), so
  // that both take the same lanes.
  static std::string CommandOf(const std::string& tool) {
    const std::filesystem::path library =
        std::filesystem::path(tool).parent_path().parent_path() / "lib";
    std::string command = absl::StrCat("env LD_LIBRARY_PATH='", library.string(),
                                       "'\"${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}\"");
    for (const auto& [name, value] : {std::pair("UCX_TLS", kUcxHostTransports),
                                      {"UCX_POSIX_ERROR_HANDLING", "y"},
                                      {"UCX_CMA_MEMORY_INVALIDATE", "y"}}) {
      if (std::getenv(name) == nullptr) absl::StrAppend(&command, " ", name, "=", value);
    }
    return absl::StrCat(command, " '", tool, "'");
  }

  const std::string tool_;
  const std::string command_;  // the tool with its environment
};

absl::Status CheckUcxPerftest() {
  const std::string tool = FindTool();
  if (!tool.empty() && access(tool.c_str(), X_OK) == 0) return absl::OkStatus();
  return absl::NotFoundError(absl::StrCat("--compare: ucx_perftest is not ",
                                          tool.empty() ? "on PATH" : tool,
                                          " (RINGZERO_UCX_PERFTEST says where it is)"));
}

}  // namespace

absl::StatusOr<SharedArea> SharedArea::Create(int workers, size_t bytes_each) {
  const size_t words = Round(static_cast<size_t>(workers) * kLine);
  const size_t bytes = words + static_cast<size_t>(workers) * Round(bytes_each);
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    return absl::ResourceExhaustedError(
        absl::StrCat("mmap of ", bytes, " bytes: ", std::strerror(errno)));
  }
  const auto unmap = [bytes](std::byte* begin) { munmap(begin, bytes); };
  return SharedArea{.memory = std::shared_ptr<std::byte>(static_cast<std::byte*>(memory), unmap),
                    .words_bytes = words,
                    .bytes_each = bytes_each};
}

std::span<std::byte> SharedArea::BytesOf(WorkerId worker) const {
  const size_t before = words_bytes + static_cast<size_t>(worker.value) * Round(bytes_each);
  return {memory.get() + before, bytes_each};
}

std::atomic<uint32_t>& SharedArea::WordOf(WorkerId worker) const {
  std::byte* line = memory.get() + static_cast<size_t>(worker.value) * kLine;
  return *reinterpret_cast<std::atomic<uint32_t>*>(line);
}

absl::Status CheckComparable(const RingOptions& options) {
  if (!options.compare) return absl::OkStatus();
  if (options.shares_memory() && (WithMemcpy(options) || WithWake(options))) {
    return absl::OkStatus();
  }
  if (OverUcx(options)) return CheckUcxPerftest();
  return InvalidArgument(
      "--compare: nothing does what --transport ", options.transport, " --mode ",
      ToString(options.mode),
      " does; there are: shm and local with --mode shift --copy (copies between shared mappings) "
      "and with --mode pingpong (a bare wake); ucx with --mode pingpong, --mode stream and "
      "--mode shift --workers 2 (ucx_perftest)");
}

absl::StatusOr<std::unique_ptr<Peer>> MakePeer(const PeerSetup& setup) {
  RZ_RETURN_IF_ERROR(CheckComparable(setup.options));
  if (OverUcx(setup.options)) return std::make_unique<UcxPerftest>(setup);
  if (setup.area.memory == nullptr) {
    return absl::InternalError("the workers have no shared area to compare in");
  }
  if (WithMemcpy(setup.options)) return std::make_unique<MemcpyRing>(setup);
  return std::make_unique<Wake>(setup);
}

size_t PeerBytes(size_t bytes, int buffers) {
  return AlignPayload(bytes) * static_cast<size_t>(buffers);
}

}  // namespace ringzero
