// How fast IoEngine reads and writes a file, past the page cache.
//
//   build/bin/disk_perf --file FILE [--mode read|write|both] [--engine uring|threads] [--bytes N] [--block N]
//                       [--depth N] [--seconds S]
//
// The file is made and filled if it is not there. Blocks come one after the other, from the file's begin
// again when its end is reached; in mode both, reads and writes by turns. Prints one line of JSON: bytes per
// second in each direction. `./rz bench disk` compares this with fio.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "offload/io_engine.h"

namespace ringzero {
namespace {

using Clock = std::chrono::steady_clock;
using Kind = IoRequest::Kind;

struct Options {
  std::string file, mode = "read", engine = "uring";
  int64_t bytes = 512 << 20;
  double seconds = 3;
  IoEngineOptions io;
};

// One file, its engine, and a block of memory for each request under way.
class Disk {
 public:
  static absl::StatusOr<std::unique_ptr<Disk>> Open(const Options& options) {
    auto disk = std::unique_ptr<Disk>(new Disk(options));
    RZ_ASSIGN_OR_RETURN(ChosenIoEngine chosen, MakeIoEngine(options.io));
    disk->engine_ = std::move(chosen.engine);
    disk->file_ = open(options.file.c_str(), O_RDWR | O_CREAT | O_DIRECT, 0600);
    if (disk->file_ < 0) return absl::ErrnoToStatus(errno, options.file);
    struct stat found = {};
    fstat(disk->file_, &found);
    if (found.st_size < options.bytes) RZ_RETURN_IF_ERROR(disk->Run("write", 0).status());
    return disk;
  }
  ~Disk() {
    engine_.reset();
    if (file_ >= 0) close(file_);
  }

  struct Moved {
    double read = 0, written = 0;  // bytes per second
  };
  // At least once through the file; for so many seconds.
  absl::StatusOr<Moved> Run(const std::string& mode, double seconds) {
    const int64_t block = options_.io.block_bytes, blocks = options_.bytes / block;
    const auto begin = Clock::now();
    const auto end =
        begin + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
    int64_t next = 0, read = 0, written = 0;
    std::vector<size_t> free;
    for (size_t i = 0; i < memory_.size(); ++i) free.push_back(i);
    while (true) {
      const bool more = seconds == 0 ? next < blocks : Clock::now() < end;
      std::vector<IoRequest> requests;
      for (; more && !free.empty(); free.pop_back(), ++next) {
        const bool reads = mode == "read" || (mode == "both" && next % 2 == 0);
        requests.push_back({.kind = reads ? Kind::kRead : Kind::kWrite,
                            .file = file_,
                            .offset = next % blocks * block,
                            .memory = {memory_[free.back()].get(), static_cast<size_t>(block)},
                            .tag = free.back()});
        (reads ? read : written) += block;
      }
      RZ_RETURN_IF_ERROR(engine_->Submit(std::span<const IoRequest>(requests)));
      if (engine_->under_way() == 0) break;
      RZ_ASSIGN_OR_RETURN(const auto results,
                          engine_->Wait(Clock::now() + std::chrono::minutes(1)));
      for (const IoResult& result : results) {
        RZ_RETURN_IF_ERROR(result.status);
        free.push_back(result.tag);
      }
    }
    const std::chrono::duration<double> took = Clock::now() - begin;
    return Moved{static_cast<double>(read) / took.count(),
                 static_cast<double>(written) / took.count()};
  }

 private:
  explicit Disk(const Options& options) : options_(options) {
    for (int i = 0; i < options.io.depth; ++i) {
      const auto size = static_cast<size_t>(options.io.block_bytes);
      auto* const memory = static_cast<std::byte*>(std::aligned_alloc(4096, size));
      std::memset(memory, i + 1, size);
      memory_.emplace_back(memory, &std::free);
    }
  }

  const Options options_;
  std::vector<std::unique_ptr<std::byte, void (*)(void*)>> memory_;
  std::unique_ptr<IoEngine> engine_;
  int file_ = -1;
};

int Main(int argc, char** argv) {
  Options options;
  CLI::App app("How fast IoEngine reads and writes a file");
  app.add_option("--file", options.file)->required();
  app.add_option("--mode", options.mode)->check(CLI::IsMember({"read", "write", "both"}));
  app.add_option("--engine", options.engine)->check(CLI::IsMember({"uring", "threads"}));
  app.add_option("--bytes", options.bytes)->check(CLI::PositiveNumber);
  app.add_option("--block", options.io.block_bytes)->check(CLI::Range(4096, 1 << 26));
  app.add_option("--depth", options.io.depth)->check(CLI::Range(1, 1024));
  app.add_option("--seconds", options.seconds)->check(CLI::PositiveNumber);
  CLI11_PARSE(app, argc, argv);
  options.io.kind =
      options.engine == "uring" ? IoEngineOptions::Kind::kUring : IoEngineOptions::Kind::kThreads;
  options.io.threads = options.io.depth;
  if (options.io.block_bytes % 4096 != 0 || options.bytes % options.io.block_bytes != 0) {
    std::cerr << "--block: wanted a multiple of 4096 that divides --bytes\n";
    return 2;
  }
  const auto disk = Disk::Open(options);
  const auto moved = disk.ok() ? (*disk)->Run(options.mode, options.seconds) : disk.status();
  if (!moved.ok()) {
    std::cerr << "disk_perf: " << moved.status().message() << "\n";
    return 1;
  }
  std::printf("{\"read\": %.0f, \"write\": %.0f}\n", moved->read, moved->written);
  return 0;
}

}  // namespace
}  // namespace ringzero

int main(int argc, char** argv) { return ringzero::Main(argc, argv); }
