// ucx_perftest as a peer: worker 0 starts its two processes, the others wait.
#include <arpa/inet.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
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

// Bytes that one run of the tool sends: beyond them it sends fewer messages than ours does, for
// where it is slow (it sleeps, cores are few) a large size would take minutes.
constexpr size_t kMostBytes = size_t{512} << 20;
constexpr size_t kFewestMessages = 8;

// The built-against UCX's folder; empty in a build without it.
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

// A child whose output is read; killed and reaped at the end if it still lives.
class Child {
 public:
  Child() = default;
  Child(Child&& other) noexcept
      : pid_(std::exchange(other.pid_, -1)), output_(std::move(other.output_)) {}
  Child& operator=(Child&&) = delete;
  ~Child() {
    if (pid_ <= 0) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }

  static absl::StatusOr<Child> Start(const std::vector<std::string>& words,
                                     const std::vector<std::string>& environment) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) return absl::ResourceExhaustedError("no pipe");
    Child child;
    child.output_ = UniqueFd(ends[0]);
    const UniqueFd writing(ends[1]);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(&actions, ends[1], STDERR_FILENO);
    const int error = posix_spawn(&child.pid_, words[0].c_str(), &actions, nullptr,
                                  Pointers(words).data(), Pointers(environment).data());
    posix_spawn_file_actions_destroy(&actions);
    if (error == 0) return child;
    child.pid_ = -1;
    return absl::NotFoundError(absl::StrCat(words[0], ": ", std::strerror(error)));
  }

  // All that it writes until it ends.
  absl::StatusOr<std::string> Read(Transport& transport) {
    const Clock::time_point begin = Clock::now();
    char buffer[4096];
    while (true) {
      if (Clock::now() - begin > kLimit) {
        return absl::DeadlineExceededError(
            absl::StrCat("ucx_perftest took more than ", kLimit.count(), " s; it wrote: ", text_));
      }
      pollfd wait{.fd = output_.get(), .events = POLLIN, .revents = 0};
      if (poll(&wait, 1, 20) > 0) {
        const ssize_t count = read(output_.get(), buffer, sizeof(buffer));
        if (count <= 0) break;
        text_.append(buffer, static_cast<size_t>(count));
      }
      transport.Poll();  // a worker that polls is alive
    }
    return text_;
  }

 private:
  static std::vector<char*> Pointers(const std::vector<std::string>& words) {
    std::vector<char*> pointers;
    for (const std::string& word : words) pointers.push_back(const_cast<char*>(word.c_str()));
    pointers.push_back(nullptr);
    return pointers;
  }

  pid_t pid_ = -1;
  UniqueFd output_;
  std::string text_;
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

// Until somebody listens at the port. Trying to connect would be the one connection that the server
// takes, and what it writes stays in its buffer when it writes to a pipe.
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
  return absl::InternalError(absl::StrCat("ucx_perftest wrote no figures: ", text));
}

size_t Messages(const TrafficSetup& traffic, int iterations) {
  const size_t wanted = static_cast<size_t>(iterations) * traffic.aggregate;
  const size_t most = std::max(kFewestMessages, kMostBytes / std::max<size_t>(traffic.bytes, 1));
  return std::min(wanted, most);
}

class UcxPerftest final : public Peer {
 public:
  explicit UcxPerftest(const PeerSetup& setup)
      : setup_(setup), tool_(FindTool()), environment_(Environment()) {}

  std::string name() const override {
    return absl::StrCat(tool_, " -t ", test(), " -e -E ", wait(),
                        Bandwidth() ? absl::StrCat(" -O ", Outstanding()) : "",
                        TwoWays() ? ", one each way" : "");
  }
  // Of a bandwidth the messages' single times say nothing: they come in bursts.
  Typical typical() const override { return Bandwidth() ? Typical::kMean : Typical::kMedian; }
  absl::Status Prepare(const TrafficSetup&) override { return absl::OkStatus(); }

  absl::StatusOr<double> Measure(const TrafficSetup& traffic, int iterations) override {
    Transport& transport = setup_.waiting->transport();
    if (transport.self().value != 0) return 0;
    std::vector<Child> servers, clients;
    for (int way = 0; way < (TwoWays() ? 2 : 1); ++way) {
      RZ_ASSIGN_OR_RETURN(const int port, FreePort());
      std::vector<std::string> words = {tool_,
                                        "-p",
                                        std::to_string(port),
                                        "-t",
                                        test(),
                                        "-s",
                                        std::to_string(traffic.bytes),
                                        "-n",
                                        std::to_string(Messages(traffic, iterations)),
                                        "-w",
                                        std::to_string(WarmUp(traffic)),
                                        "-e",
                                        "-E",
                                        wait()};
      if (Bandwidth()) words.insert(words.end(), {"-O", std::to_string(Outstanding())});
      RZ_ASSIGN_OR_RETURN(Child server, Child::Start(Pinned(words, way), environment_));
      RZ_RETURN_IF_ERROR(AwaitListener(port, transport));
      words.insert(words.begin() + 1, "127.0.0.1");
      words.insert(words.end(), {"-f", "-v"});
      RZ_ASSIGN_OR_RETURN(Child client, Child::Start(Pinned(words, 1 - way), environment_));
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
  // Ours have run long since when the clock starts; its processes have only just begun.
  size_t WarmUp(const TrafficSetup& traffic) const {
    const size_t ours = static_cast<size_t>(setup_.options.warmup) * traffic.aggregate;
    const size_t window = 2 * static_cast<size_t>(Outstanding());
    return std::min(std::max({ours, window, kFewestMessages}), Messages(traffic, 1 << 20));
  }
  // As many messages under way as ours: a shift waits for all of an iteration's before the next.
  int Outstanding() const {
    return setup_.options.mode == RingMode::kShift ? setup_.options.aggregate
                                                   : setup_.options.slots;
  }
  std::string wait() const {
    return setup_.options.progress == ProgressMode::kCaller ? "poll" : "sleep";
  }

  std::vector<std::string> Pinned(std::vector<std::string> words, int worker) const {
    if (setup_.options.pinning == Pinning::kNone) return words;
    const std::vector<int>& cores = setup_.facts.cores;
    words.insert(words.end(), {"-c", std::to_string(cores[worker % cores.size()])});
    return words;
  }

  // Ours, with what our transport tells UCX unless the environment does (p2p/ucx/ucx_worker.cc).
  std::vector<std::string> Environment() const {
    const std::string library =
        (std::filesystem::path(tool_).parent_path().parent_path() / "lib").string();
    std::vector<std::string> all;
    std::string path = library;
    for (char** each = environ; *each != nullptr; ++each) {
      const absl::string_view word = *each;
      if (word.substr(0, 16) == "LD_LIBRARY_PATH=") {
        absl::StrAppend(&path, ":", word.substr(16));
      } else {
        all.emplace_back(word);
      }
    }
    all.push_back(absl::StrCat("LD_LIBRARY_PATH=", path));
    // As our transport tells UCX, so that both take the same lanes.
    for (const auto& [name, value] : {std::pair("UCX_TLS", kUcxHostTransports),
                                      {"UCX_POSIX_ERROR_HANDLING", "y"},
                                      {"UCX_CMA_MEMORY_INVALIDATE", "y"}}) {
      if (std::getenv(name) == nullptr) all.push_back(absl::StrCat(name, "=", value));
    }
    return all;
  }

  const PeerSetup setup_;
  const std::string tool_;
  const std::vector<std::string> environment_;
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
