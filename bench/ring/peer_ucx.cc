// ucx_perftest as a peer: worker 0 starts its processes, the other workers wait.
#include <arpa/inet.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "base/status.h"
#include "bench/ring/peer.h"
#include "p2p/ucx/ucx_worker.h"
#include "p2p/unique_fd.h"

namespace ringzero {
namespace {

using Clock = std::chrono::steady_clock;

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
      : setup_(setup), tool_(FindTool()), command_(CommandOf(tool_)) {}

  std::string name() const override {
    return absl::StrCat(tool_, " -t ", test(), " -e -E ", wait(),
                        Bandwidth() ? absl::StrCat(" -O ", Outstanding()) : "",
                        TwoWays() ? ", one each way" : "");
  }
  // Single times of messages say nothing about bandwidth: the messages come in bursts.
  Typical typical() const override { return Bandwidth() ? Typical::kMean : Typical::kMedian; }
  absl::Status Prepare(const TrafficSetup&) override { return absl::OkStatus(); }

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

  const PeerSetup setup_;
  const std::string tool_;
  const std::string command_;  // the tool with its environment
};

}  // namespace

absl::Status CheckUcxPerftest() {
  const std::string tool = FindTool();
  if (!tool.empty() && access(tool.c_str(), X_OK) == 0) return absl::OkStatus();
  return absl::NotFoundError(absl::StrCat("--compare: ucx_perftest is not ",
                                          tool.empty() ? "on PATH" : tool,
                                          " (RINGZERO_UCX_PERFTEST says where it is)"));
}

std::unique_ptr<Peer> MakeUcxPerftest(const PeerSetup& setup) {
  return std::make_unique<UcxPerftest>(setup);
}

}  // namespace ringzero
