// hosts_link: joins network namespaces by one switch with delay, rate and losses, in user space.
//
//   hosts_link --delay-ms 2 --loss 0.001 --gbit 1 --seed 1 NAMESPACE_FILE...
//
// Makes a TAP device eth0 in every namespace (its file in /run/netns) and prints "ready". A frame
// goes to the port that the last byte of its destination's address names (1 for the first); others
// are dropped: no broadcasts. Commands on standard input, one a line, each answered by one line:
//   cut A B, join A B    ports from 0
//   counts               delivered, bytes, lost, overflow, cut
// Ends with its standard input: its maker cannot leave it behind. The devices go with it.
#include <fcntl.h>
#include <linux/if.h>
#include <linux/if_tun.h>
#include <poll.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <iostream>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "tests/hosts/switch.h"

namespace ringzero {
namespace {

constexpr size_t kLargestFrame = 65536 + 64;
// In front of every frame: says whether its checksum is still to be computed (virtio_net_hdr, whose
// header is no C++).
constexpr size_t kOffloadHeader = 10;
constexpr int kFramesPerTurn = 16;  // of one port, before others have their turn

absl::Status SystemError(const std::string& what) { return absl::ErrnoToStatus(errno, what); }

int64_t NowNs() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

// The device belongs to the namespace in which the file was opened.
absl::StatusOr<int> MakeDevice(const std::string& namespace_file) {
  const int space = open(namespace_file.c_str(), O_RDONLY | O_CLOEXEC);
  if (space < 0) return SystemError(namespace_file);
  const int entered = setns(space, CLONE_NEWNET);
  close(space);
  if (entered != 0) return SystemError(absl::StrCat("entering ", namespace_file));
  const int device = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);
  if (device < 0) return SystemError("/dev/net/tun");
  ifreq request = {};
  std::strncpy(request.ifr_name, "eth0", IFNAMSIZ - 1);
  request.ifr_flags = IFF_TAP | IFF_NO_PI | IFF_VNET_HDR;
  if (ioctl(device, TUNSETIFF, &request) != 0) return SystemError("making a TAP device");
  // A checksum that was never computed need not be looked at: nothing flips bits here.
  if (ioctl(device, TUNSETOFFLOAD, TUN_F_CSUM) != 0)
    return SystemError("checksum offload of a TAP device");
  return device;
}

class Link {
 public:
  Link(const SwitchOptions& options, std::vector<int> devices)
      : wire_(options), devices_(std::move(devices)), polled_(devices_.size() + 1) {}

  // Until standard input ends.
  absl::Status Run() {
    while (!is_ended_) {
      RZ_RETURN_IF_ERROR(Wait());
      if (polled_[0].revents != 0) ReadCommands();
      for (size_t port = 0; port < devices_.size(); ++port) {
        if (polled_[port + 1].revents != 0) ReadFrames(static_cast<int>(port));
      }
      WriteFrames();
    }
    return absl::OkStatus();
  }

 private:
  // Sleeps until a frame is due, a busy line is free, or something can be read.
  absl::Status Wait() {
    const int64_t now_ns = NowNs();
    int64_t until_ns = wire_.NextDue().value_or(now_ns + 1'000'000'000);
    polled_[0] = {.fd = STDIN_FILENO, .events = POLLIN, .revents = 0};
    for (size_t port = 0; port < devices_.size(); ++port) {
      const int64_t free_at_ns = wire_.FreeAt(static_cast<int>(port));
      const bool is_free = free_at_ns <= now_ns;
      polled_[port + 1] = {.fd = is_free ? devices_[port] : -1, .events = POLLIN, .revents = 0};
      if (!is_free) until_ns = std::min(until_ns, free_at_ns);
    }
    const int64_t wait_ns = std::max<int64_t>(until_ns - now_ns, 0);
    const timespec limit = {.tv_sec = wait_ns / 1'000'000'000, .tv_nsec = wait_ns % 1'000'000'000};
    if (ppoll(polled_.data(), polled_.size(), &limit, nullptr) < 0 && errno != EINTR)
      return SystemError("ppoll");
    return absl::OkStatus();
  }

  void ReadFrames(int from) {
    for (int i = 0; i < kFramesPerTurn && wire_.FreeAt(from) <= NowNs(); ++i) {
      Frame frame = wire_.Recycled();
      frame.resize(kLargestFrame);
      const ssize_t size = read(devices_[from], frame.data(), frame.size());
      if (size < static_cast<ssize_t>(kOffloadHeader + 14)) {
        wire_.Recycle(std::move(frame));
        return;
      }
      frame.resize(static_cast<size_t>(size));
      const bool is_for_all = (frame[kOffloadHeader] & 1) != 0;
      const int to = frame[kOffloadHeader + 5] - 1;
      if (is_for_all || to < 0 || to >= static_cast<int>(devices_.size())) {
        wire_.Recycle(std::move(frame));
        continue;
      }
      wire_.Accept(from, to, std::move(frame), NowNs());
    }
  }

  void WriteFrames() {
    while (std::optional<Delivery> delivery = wire_.TakeDue(NowNs())) {
      // A device that is down, or has no memory, loses the frame: networks do.
      [[maybe_unused]] const ssize_t written =
          write(devices_[delivery->to], delivery->frame.data(), delivery->frame.size());
      wire_.Recycle(std::move(delivery->frame));
    }
  }

  void ReadCommands() {
    char buffer[4096];
    const ssize_t size = read(STDIN_FILENO, buffer, sizeof(buffer));
    if (size <= 0) {
      is_ended_ = true;
      return;
    }
    typed_.append(buffer, static_cast<size_t>(size));
    for (size_t end; (end = typed_.find('\n')) != std::string::npos; typed_.erase(0, end + 1)) {
      std::cout << Obey(typed_.substr(0, end)) << std::endl;
    }
  }

  std::string Obey(const std::string& line) {
    std::istringstream words(line);
    std::string command;
    words >> command;
    if (command == "counts") {
      const SwitchCounts& counts = wire_.counts();
      return absl::StrCat("counts ", counts.delivered, " ", counts.delivered_bytes, " ",
                          counts.lost, " ", counts.overflow, " ", counts.cut);
    }
    const int ports = static_cast<int>(devices_.size());
    int a = -1, b = -1;
    words >> a >> b;
    if ((command != "cut" && command != "join") || a < 0 || b < 0 || a >= ports || b >= ports ||
        a == b) {
      return absl::StrCat("error: cannot obey '", line, "'");
    }
    wire_.SetCut(a, b, command == "cut");
    return line;
  }

  Switch wire_;
  std::vector<int> devices_;    // one per port
  std::vector<pollfd> polled_;  // standard input, then the ports
  std::string typed_;           // what has no line's end yet
  bool is_ended_ = false;
};

absl::Status Join(const SwitchOptions& wire, const std::vector<std::string>& namespaces) {
  std::vector<int> devices;
  for (const std::string& name : namespaces) {
    RZ_ASSIGN_OR_RETURN(devices.emplace_back(), MakeDevice(name));
  }
  // A cable does not wait for a core: woken at the time it asked for, and before those who compute.
  prctl(PR_SET_TIMERSLACK, 1);
  const sched_param first = {.sched_priority = 1};
  if (sched_setscheduler(0, SCHED_RR, &first) != 0) setpriority(PRIO_PROCESS, 0, -15);
  std::cout << "ready" << std::endl;
  return Link(wire, std::move(devices)).Run();
}

}  // namespace
}  // namespace ringzero

int main(int argc, char** argv) {
  CLI::App app("Joins network namespaces by one switch.");
  ringzero::SwitchOptions wire;
  std::vector<std::string> namespaces;
  double delay_ms = 0, gbit = 0;
  app.add_option("--delay-ms", delay_ms)->check(CLI::NonNegativeNumber);
  app.add_option("--loss", wire.loss)->check(CLI::NonNegativeNumber);
  app.add_option("--gbit", gbit)->check(CLI::NonNegativeNumber);
  app.add_option("--seed", wire.seed);
  app.add_option("NAMESPACE_FILE", namespaces)->required()->expected(2, -1);
  CLI11_PARSE(app, argc, argv);
  wire.delay_ns = static_cast<int64_t>(delay_ms * 1e6);
  wire.bits_per_second = gbit * 1e9;
  wire.ports = static_cast<int>(namespaces.size());
  const absl::Status status = ringzero::Join(wire, namespaces);
  if (!status.ok()) std::cerr << "hosts_link: error: " << status.message() << std::endl;
  return status.ok() ? 0 : 1;
}
