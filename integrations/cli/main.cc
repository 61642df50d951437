// ringzero: trains models with their states travelling around a ring. `ringzero help` says how.
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <exception>
#include <memory>
#include <new>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/files.h"
#include "base/status.h"
#include "base/texts.h"
#include "integrations/cli/command_line.h"
#include "integrations/cli/provenance.h"
#include "integrations/sight/flight_desk.h"

#if defined(RINGZERO_HAVE_JEMALLOC)
// jemalloc's own name for its settings, read before main: memory is kept, as RunWorkers asks of
// glibc, and packed tighter, into huge pages (docs/decisions/0010). jemalloc looks the name up, so
// it must be visible, also where the build hides names by default.
extern "C" __attribute__((visibility("default"))) const char* malloc_conf;
const char* malloc_conf = "thp:always,dirty_decay_ms:-1,muzzy_decay_ms:-1,narenas:1";
#endif

namespace ringzero {
namespace {

// The 2 of Cancelled "interrupted by signal 2 (Interrupt)" (p2p/job/launcher.h); otherwise 0.
int SignalOf(const absl::Status& status) {
  constexpr char kWords[] = "interrupted by signal ";
  const std::string message(status.message());
  const size_t at = message.find(kWords);
  if (status.code() != absl::StatusCode::kCancelled || at == std::string::npos) return 0;
  return std::atoi(message.c_str() + at + sizeof(kWords) - 1);
}

constexpr char kErrorFile[] = "TORCHELASTIC_ERROR_FILE";
constexpr char kTerminationLog[] = "/dev/termination-log";  // Kubernetes' terminationMessagePath

// As ErrorHandler.record_exception of torch.distributed.elastic.multiprocessing.errors. torchrun's
// report shows py_callstack, and takes the failure with the smallest timestamp as the first.
absl::Status TellTorchrun(const std::string& error) {
  const char* file = std::getenv(kErrorFile);
  if (file == nullptr || *file == '\0') return absl::OkStatus();
  const OrderedJson extra = {{"py_callstack", error},
                             {"timestamp", absl::StrCat(std::time(nullptr))}};
  const OrderedJson json = {{"message", {{"message", error}, {"extraInfo", extra}}}};
  return Annotate(WriteWholeFile(file, Dump(json, -1), OutputFile::Sync::kNo), kErrorFile);
}

// Kubernetes makes the file; elsewhere there is none, and none is made.
absl::Status TellKubernetes(const std::string& error) {
  struct stat found = {};
  if (stat(kTerminationLog, &found) != 0 || !S_ISREG(found.st_mode)) return absl::OkStatus();
  RZ_ASSIGN_OR_RETURN(const std::unique_ptr<OutputFile> log,
                      OutputFile::Open(kTerminationLog, OutputFile::As::kAppended));
  RZ_RETURN_IF_ERROR(log->Write(absl::StrCat(error, "\n")));
  return log->Finish(OutputFile::Sync::kNo);
}

// The line of an error, for torchrun and Kubernetes, who report how this process ended. A file that
// cannot be written is a warning on stderr.
void TellLauncher(const std::string& error) {
  for (const absl::Status& told : {TellTorchrun(error), TellKubernetes(error)}) {
    if (told.ok()) continue;
    std::fprintf(stderr, "ringzero: warning: %s\n", std::string(told.message()).c_str());
  }
}

int Fail(const absl::Status& status) {
  const int signal = SignalOf(status);
  const std::string message = OneLine(status.message());
  std::fprintf(stderr, "ringzero: %s%s\n", signal == 0 ? "error: " : "", message.c_str());
  if (signal == 0) TellLauncher(message);
  return signal == 0 ? ExitCode(status) : kExitSignal + signal;
}

// Ends this process without allocating memory.
[[noreturn]] void EndWithoutMemory() {
  rlimit limit = {};
  getrlimit(RLIMIT_AS, &limit);
  const bool limited = limit.rlim_cur != RLIM_INFINITY;
  const char* const words =
      limited ? "ringzero: error: out of memory: `ulimit -v` allows this process too little\n"
              : "ringzero: error: out of memory\n";
  (void)!write(STDERR_FILENO, words, std::strlen(words));
  _exit(limited ? kExitBadInput : kExitInternal);
}

std::terminate_handler terminate_before = nullptr;
// std::bad_alloc that is not caught: in the libraries' static objects, or in a thread of theirs.
[[noreturn]] void OnTerminate() {
  if (std::current_exception() != nullptr) {
    try {
      throw;
    } catch (const std::bad_alloc&) {
      EndWithoutMemory();
    } catch (...) {  // terminate_before says what it was
    }
  }
  terminate_before();
  std::abort();
}

// Before any library's static objects are made: some of them crash where they get no memory.
void LookForMemory(int, char**, char**) {
  constexpr size_t kLeast = 64 << 20;  // addresses; no run has needed less
  void* const trial =
      mmap(nullptr, kLeast, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (trial == MAP_FAILED) EndWithoutMemory();
  munmap(trial, kLeast);
  terminate_before = std::set_terminate(OnTerminate);
}
[[gnu::used, gnu::section(".preinit_array")]] void (*look_for_memory)(int, char**,
                                                                      char**) = &LookForMemory;

int Main(int argc, char** argv) {
  // Before torch's libraries make threads of their own; cyclic.threads says how many a worker has.
  setenv("OMP_NUM_THREADS", "1", 1);
  setenv("MKL_NUM_THREADS", "1", 1);
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);  // a file beyond `ulimit -f`: the write says so
  BlockDeskSignals();             // before there are threads
  const absl::Status streams = CheckStandardStreams();
  if (!streams.ok()) return Fail(streams);
  const absl::StatusOr<CommandLine> line = ParseCommandLine(argc, argv);
  if (!line.ok()) return Fail(line.status());
  const absl::Status status = line->run(*line);
  return status.ok() ? kExitDone : Fail(status);
}

}  // namespace
}  // namespace ringzero

int main(int argc, char** argv) { return ringzero::Main(argc, argv); }
