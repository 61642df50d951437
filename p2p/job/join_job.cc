// One table of launchers, and the checks of the launcher that is taken. Joining opens the store
// that an identity names, gathers, and shares the secret and the hosts.
#include "p2p/job/join_job.h"

#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "base/crypto.h"
#include "base/status.h"
#include "p2p/failure.h"
#include "p2p/job/hosts.h"

namespace ringzero {
namespace {

using Names = std::vector<const char*>;  // the first that is set counts

// The variables of one launcher.
struct Launcher {
  absl::string_view source;
  Names worker;
  Names workers;
  Names local_worker;
  Names local_workers;
  Names job;  // all that are set together make the id
  Names restart;
  Names others;  // more variables of its workers, which hardly any other process has
};

constexpr absl::string_view kSlurm = "Slurm";
constexpr absl::string_view kKubernetes = "Kubernetes";

const std::vector<Launcher>& Launchers() {
  static const std::vector<Launcher>& launchers = *new std::vector<Launcher>{
      {.source = "torchrun",
       .worker = {"RANK"},
       .workers = {"WORLD_SIZE"},
       .local_worker = {"LOCAL_RANK"},
       .local_workers = {"LOCAL_WORLD_SIZE"},
       .job = {"TORCHELASTIC_RUN_ID"},
       .restart = {"TORCHELASTIC_RESTART_COUNT"},
       .others = {"WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "PET_NODE_RANK",
                  "TORCHELASTIC_RUN_ID", "MASTER_ADDR", "MASTER_PORT"}},
      {.source = "Open MPI",
       .worker = {"OMPI_COMM_WORLD_RANK"},
       .workers = {"OMPI_COMM_WORLD_SIZE"},
       .local_worker = {"OMPI_COMM_WORLD_LOCAL_RANK"},
       .local_workers = {"OMPI_COMM_WORLD_LOCAL_SIZE"},
       .job = {"PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"},
       .others = {"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
                  "OMPI_COMM_WORLD_LOCAL_SIZE"}},
      {.source = "PMI",
       .worker = {"PMI_RANK"},
       .workers = {"PMI_SIZE"},
       .local_worker = {"MPI_LOCALRANKID", "PMI_LOCAL_RANK"},
       .local_workers = {"MPI_LOCALNRANKS", "PMI_LOCAL_SIZE"},
       .job = {"PMI_JOBID", "SLURM_JOB_ID", "SLURM_STEP_ID"},
       .others = {"PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"}},
      // PMIx itself has no variable for the number of workers; its launchers have their own.
      {.source = "PMIx",
       .worker = {"PMIX_RANK"},
       .workers = {"PMIX_SIZE", "SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"},
       .local_worker = {"PMIX_LOCAL_RANK", "SLURM_LOCALID"},
       .local_workers = {"PMIX_LOCAL_SIZE"},
       .job = {"PMIX_NAMESPACE"},
       .others = {"PMIX_NAMESPACE"}},
      {.source = kSlurm,
       .worker = {"SLURM_PROCID"},
       .workers = {"SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"},
       .local_worker = {"SLURM_LOCALID"},
       .job = {"SLURM_JOB_ID", "SLURM_STEP_ID"},
       .restart = {"SLURM_RESTART_COUNT"},
       .others = {"SLURM_STEP_ID", "SLURM_LOCALID"}},
      // Pods of an indexed Job or a JobSet know their number; its manifest says how many there are.
      {.source = kKubernetes, .worker = {"JOB_COMPLETION_INDEX"}, .workers = {"WORLD_SIZE"}},
  };
  return launchers;
}

// MPICH gives its ranks no name of their job, but all ranks of one host have one proxy process
// above them. Returns "hydra-PID" of the proxy, or "" if there is none.
std::string HydraProxy() {
  for (pid_t process = getppid(); process > 1;) {
    std::string stat;  // "17 (hydra_pmi_proxy) S 16 …"; a name may have spaces and brackets
    std::getline(std::ifstream(absl::StrCat("/proc/", process, "/stat")), stat);
    const size_t name_end = stat.rfind(')');
    if (name_end == std::string::npos) break;
    if (absl::StrContains(stat, "(hydra_pmi_proxy)")) return absl::StrCat("hydra-", process);
    char state = 0;
    process = 0;
    std::istringstream(stat.substr(name_end + 1)) >> state >> process;
  }
  return "";
}

// Where workers meet: a folder, or a TCPStore.
struct MeetingPlace {
  std::string folder;  // of file:///folder; else empty
  std::string host;    // of tcp://host:port; an IPv6 address without its brackets
  int port = 0;
};

absl::StatusOr<MeetingPlace> ParseMeetingPlace(absl::string_view text) {
  absl::string_view rest = text;
  if (absl::StartsWith(text, "file:///")) {
    return MeetingPlace{.folder = std::string(absl::StripPrefix(text, "file://"))};
  }
  const bool tcp = absl::ConsumePrefix(&rest, "tcp://");
  const size_t colon = rest.rfind(':');
  int port = 0;
  if (!tcp || colon == 0 || colon == absl::string_view::npos ||
      !absl::SimpleAtoi(rest.substr(colon + 1), &port) || port < 1 || port > 65535) {
    return InvalidArgument("rendezvous: wanted file:///folder or tcp://host:port, found \"", text,
                           "\"");
  }
  absl::string_view host = rest.substr(0, colon);
  if (absl::ConsumePrefix(&host, "[")) absl::ConsumeSuffix(&host, "]");
  return MeetingPlace{.host = std::string(host), .port = port};
}

class Reader {
 public:
  Reader(const IdentityFlags& flags, const Environment& environment)
      : flags_(flags), environment_(environment) {}

  absl::StatusOr<std::optional<Identity>> Read() {
    const Launcher* launcher = Find();
    if (launcher != nullptr) {
      RZ_RETURN_IF_ERROR(ReadLauncher(*launcher));
      RZ_RETURN_IF_ERROR(CheckFlags(*launcher));
    } else if (flags_.worker.has_value()) {
      if (!flags_.workers.has_value()) {
        return InvalidArgument("--worker ", *flags_.worker, " of how many? --workers N says it");
      }
      RZ_RETURN_IF_ERROR(TakeNumbers("--worker", *flags_.worker, *flags_.workers));
    } else if (!flags_.rendezvous.empty() || Set({"RINGZERO_RENDEZVOUS"}) != nullptr) {
      return InvalidArgument(
          flags_.rendezvous.empty() ? "RINGZERO_RENDEZVOUS" : "--rendezvous",
          ": which worker is this? --worker W says it, or a launcher (torchrun, mpirun, srun)");
    } else {
      RZ_RETURN_IF_ERROR(CheckNoPart());
      return std::nullopt;
    }
    if (flags_.worker.has_value()) identity_.source = "command line";
    if (const char* job = Set({"RINGZERO_JOB_ID"})) identity_.job = ValueOf(job);
    RZ_ASSIGN_OR_RETURN(identity_.rendezvous, FindPlace());
    if (!identity_.rendezvous.empty()) {
      RZ_RETURN_IF_ERROR(ParseMeetingPlace(identity_.rendezvous).status());
    }
    return identity_;
  }

 private:
  // The first of `names` that is set; null: none. An empty value counts as not set.
  const char* Set(const Names& names) const {
    for (const char* name : names) {
      const auto found = environment_.find(name);
      if (found != environment_.end() && !found->second.empty()) return name;
    }
    return nullptr;
  }
  const std::string& ValueOf(const char* name) const { return environment_.at(name); }

  // The number of the first of `names` that is set.
  absl::StatusOr<std::optional<int>> Number(const Names& names) const {
    const char* name = Set(names);
    if (name == nullptr) return std::nullopt;
    int number = 0;
    if (!absl::SimpleAtoi(ValueOf(name), &number) || number < 0) {
      return InvalidArgument(name, ": wanted a number from 0, found \"", ValueOf(name), "\"");
    }
    return number;
  }

  const Launcher* Find() const {
    for (const Launcher& launcher : Launchers()) {
      if (Set(launcher.worker) == nullptr) continue;
      if (launcher.source == kSlurm) {
        // A batch script's own environment looks like a task's; only srun makes steps.
        if (Set({"SLURM_STEP_ID"}) == nullptr) continue;
        const char* workers = Set(launcher.workers);
        if (workers != nullptr && ValueOf(workers) == "1") continue;
      }
      // A pod may hold several workers, which --worker tells apart.
      if (launcher.source == kKubernetes && flags_.worker.has_value()) continue;
      return &launcher;
    }
    return nullptr;
  }

  // Whether this is a container of a Slurm task that was given only some of the task's variables. A
  // batch script has no step either, but it has its job's id and the number 0.
  bool IsStrayTask() const {
    const char* task = Set({"SLURM_PROCID"});
    const char* tasks = Set({"SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"});
    if (task == nullptr || (tasks != nullptr && ValueOf(tasks) == "1")) return false;
    return Set({"SLURM_STEP_ID"}) == nullptr &&
           (Set({"SLURM_JOB_ID"}) == nullptr || ValueOf(task) != "0");
  }

  // For a process without a worker number. A launcher's other variables are an error then:
  // otherwise each process of its job would train a job of its own.
  absl::Status CheckNoPart() const {
    const auto part = [](absl::string_view source, absl::string_view found,
                         absl::string_view missing) {
      return Alone(found, missing,
                   absl::StrCat(": a worker of ", source,
                                " has both. --worker W and --workers N would say who this is"));
    };
    for (const Launcher& launcher : Launchers()) {
      const char* found = Set(launcher.others);
      if (found == nullptr || Set(launcher.worker) != nullptr) continue;
      return part(launcher.source, found, launcher.worker.front());
    }
    if (IsStrayTask()) return part(kSlurm, "SLURM_PROCID", "SLURM_STEP_ID");
    return absl::OkStatus();
  }

  static absl::Status Alone(absl::string_view found, absl::string_view missing,
                            absl::string_view hint) {
    return InvalidArgument(found, " is set, but ", missing, " is not", hint, ". Without ", found,
                           " in the environment this process starts a job of its own");
  }

  // `by`: the variable or flag that says which worker this is.
  absl::Status TakeNumbers(absl::string_view by, int worker, int workers) {
    identity_.self = WorkerId(worker);
    identity_.workers = workers;
    if (worker < workers) return absl::OkStatus();
    return InvalidArgument(by, " is ", worker, ", but there are only ", workers, " workers");
  }

  absl::Status ReadLauncher(const Launcher& launcher) {
    const char* const by = Set(launcher.worker);
    RZ_ASSIGN_OR_RETURN(const std::optional<int> worker, Number(launcher.worker));
    RZ_ASSIGN_OR_RETURN(std::optional<int> workers, Number(launcher.workers));
    if (!workers.has_value()) workers = flags_.workers;
    if (!workers.has_value()) {
      return Alone(by, absl::StrJoin(launcher.workers, " or "),
                   "; --workers N would say how many there are");
    }
    RZ_RETURN_IF_ERROR(TakeNumbers(by, *worker, *workers));
    identity_.source = std::string(launcher.source);
    RZ_ASSIGN_OR_RETURN(identity_.local_worker, Number(launcher.local_worker));
    RZ_ASSIGN_OR_RETURN(identity_.local_workers, Number(launcher.local_workers));
    RZ_ASSIGN_OR_RETURN(const std::optional<int> restart, Number(launcher.restart));
    identity_.restart = restart.value_or(0);
    for (const char* name : launcher.job) {
      if (Set({name}) == nullptr) continue;
      absl::StrAppend(&identity_.job, identity_.job.empty() ? "" : ".", ValueOf(name));
    }
    return absl::OkStatus();
  }

  absl::Status CheckFlags(const Launcher& launcher) const {
    const auto check = [&](const char* flag, const std::optional<int>& given, const Names& names,
                           int found) {
      if (given.value_or(found) == found) return absl::OkStatus();
      return InvalidArgument(flag, " ", *given, " contradicts ", launcher.source, ", whose ",
                             Set(names), " is ", found);
    };
    RZ_RETURN_IF_ERROR(check("--worker", flags_.worker, launcher.worker, identity_.self.value));
    return check("--workers", flags_.workers, launcher.workers, identity_.workers);
  }

  absl::StatusOr<std::string> FindPlace() {
    if (!flags_.rendezvous.empty()) return flags_.rendezvous;
    if (const char* given = Set({"RINGZERO_RENDEZVOUS"})) return ValueOf(given);
    const char* host = Set({"MASTER_ADDR"});
    const char* port = Set({"MASTER_PORT"});
    if (host != nullptr && port != nullptr) {
      const char* agent = Set({"TORCHELASTIC_USE_AGENT_STORE"});
      if (identity_.source == "torchrun" && agent != nullptr && ValueOf(agent) == "True") {
        identity_.store = Identity::Store::kAgent;
      }
      // An IPv6 address has colons of its own.
      const bool v6 = absl::StrContains(ValueOf(host), ":");
      return absl::StrCat("tcp://", v6 ? "[" : "", ValueOf(host), v6 ? "]:" : ":", ValueOf(port));
    }
    if (host != nullptr || port != nullptr) {
      return InvalidArgument(host != nullptr ? host : port, " is set, but ",
                             host != nullptr ? "MASTER_PORT" : "MASTER_ADDR", " is not");
    }
    if (identity_.workers == 1) return std::string();
    std::string place = PlaceOnOneHost();
    if (!place.empty()) return place;
    const std::string here =
        identity_.local_workers.has_value()
            ? absl::StrCat(" (", *identity_.local_workers, " of them are on this host)")
            : "";
    return InvalidArgument(
        identity_.source, " says that this is worker ", identity_.self.value, " of ",
        identity_.workers, here,
        ", but nobody says where they meet: give --rendezvous file:///a/folder/that/all/see, or "
        "MASTER_ADDR and MASTER_PORT");
  }

  // A folder of the user's; "" if workers may be on other hosts, or if nothing names the job.
  std::string PlaceOnOneHost() {
    if (identity_.local_workers != identity_.workers) return "";
    if (identity_.job.empty()) identity_.job = HydraProxy();
    if (identity_.job.empty()) return "";
    const char* folder = Set({"TMPDIR"});
    return absl::StrCat("file://", folder == nullptr ? "/tmp" : ValueOf(folder), "/ringzero-",
                        getuid());
  }

  const IdentityFlags& flags_;
  const Environment& environment_;
  Identity identity_;
};

constexpr char kMadeSecretKey[] = "secret";
constexpr char kSecretVariable[] = "RINGZERO_JOB_SECRET";

// The HMAC of `what` and the start's name.
std::string Hmac(const std::string& secret, absl::string_view what, const JobSeat& seat) {
  const Digest digest = HmacSha256(secret, absl::StrCat(what, seat.rendezvous->start()));
  return {digest.begin(), digest.end()};
}

absl::StatusOr<std::unique_ptr<RendezvousStore>> OpenStore(const Identity& identity,
                                                           const MeetingPlace& place,
                                                           const JoinOptions& options) {
  if (!place.folder.empty()) return OpenFileStore(place.folder, identity.job);
  if (!options.open_tcp) {
    return InvalidArgument("rendezvous ", identity.rendezvous,
                           ": this program has no TCPStore (LibTorch); a "
                           "folder would do: file:///…");
  }
  TcpPlace tcp{.host = place.host, .port = place.port, .job = identity.job, .limit = options.limit};
  tcp.of_worker_0 = identity.store == Identity::Store::kWorker0;
  if (tcp.of_worker_0 && identity.self.value == 0) tcp.side = TcpPlace::Side::kServe;
  return options.open_tcp(tcp);
}

// The error names the first worker whose mark differs from that of most; of two workers, worker 1.
absl::Status CompareSecretMarks(const std::vector<std::string>& marks) {
  const auto count = [&](const std::string& mark) { return std::ranges::count(marks, mark); };
  const auto usual = std::ranges::max_element(marks, {}, count);
  const auto odd = std::ranges::find_if(marks, [&](const auto& mark) { return mark != *usual; });
  if (odd == marks.end()) return absl::OkStatus();
  const std::string one = absl::StrCat("worker ", odd - marks.begin());
  const std::string others = absl::StrCat("worker ", usual - marks.begin());
  const std::string what = odd->empty()     ? absl::StrCat("none, ", others, " has one")
                           : usual->empty() ? absl::StrCat("one, ", others, " has none")
                                            : absl::StrCat("another than ", others);
  return InvalidArgument(kSecretVariable, ": ", one, " has ", what);
}

// Each worker shows a mark of the secret that it was given: an HMAC, or "" for no secret. Equal
// secrets have equal marks, and no mark says what the secret is.
absl::StatusOr<std::string> ShareSecret(const JobSeat& seat, const JoinOptions& options) {
  const std::string mine =
      options.secret.empty() ? "" : Hmac(options.secret, "ringzero mark ", seat);
  RZ_ASSIGN_OR_RETURN(const std::vector<std::string> marks,
                      TellAll(seat, "secret", mine, "has not shown its secret"));
  RZ_RETURN_IF_ERROR(CompareSecretMarks(marks));
  if (!options.secret.empty()) return options.secret;
  if (seat.self.value != 0) return seat.rendezvous->Get(kMadeSecretKey, options.limit);
  const std::string made = RandomBytes(kSecretBytes);
  RZ_RETURN_IF_ERROR(seat.rendezvous->Put(kMadeSecretKey, made));
  return made;
}

// What all workers know of each other before they plan.
absl::Status ShareFacts(const JoinOptions& options, JobSeat& seat) {
  RZ_ASSIGN_OR_RETURN(const std::string secret, ShareSecret(seat, options));
  seat.secret = Hmac(secret, "ringzero start ", seat);
  if (seat.workers == 1) return absl::OkStatus();
  RZ_ASSIGN_OR_RETURN(seat.hosts, HostsOfWorkers(seat));
  return absl::OkStatus();
}

}  // namespace

Environment CurrentEnvironment() {
  Environment environment;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const absl::string_view text = *entry;
    const size_t equals = text.find('=');
    if (equals == absl::string_view::npos) continue;
    environment[std::string(text.substr(0, equals))] = std::string(text.substr(equals + 1));
  }
  return environment;
}

absl::StatusOr<std::optional<Identity>> FindIdentity(const IdentityFlags& flags,
                                                     const Environment& environment) {
  return Reader(flags, environment).Read();
}

std::string Describe(const Identity& identity) {
  std::string text = absl::StrCat("worker ", identity.self.value, " of ", identity.workers, " (",
                                  identity.source, ")");
  if (identity.local_worker.has_value()) {
    absl::StrAppend(&text, ", ", *identity.local_worker, " on this host");
    if (identity.local_workers.has_value()) absl::StrAppend(&text, " of ", *identity.local_workers);
  }
  if (!identity.rendezvous.empty()) absl::StrAppend(&text, ", rendezvous ", identity.rendezvous);
  if (identity.restart > 0) absl::StrAppend(&text, ", restart ", identity.restart);
  return text;
}

absl::StatusOr<JobSeat> JoinJob(const Identity& identity, const JoinOptions& options) {
  JobSeat seat{.self = identity.self, .workers = identity.workers, .join_limit = options.limit};
  if (identity.workers == 1) {
    seat.rendezvous = MakeLocalRendezvous();
  } else {
    RZ_ASSIGN_OR_RETURN(const MeetingPlace place, ParseMeetingPlace(identity.rendezvous));
    RZ_ASSIGN_OR_RETURN(auto store, OpenStore(identity, place, options));
    seat.store_host = place.host;
    Gathering gathering{.self = identity.self,
                        .workers = identity.workers,
                        .restart = identity.restart,
                        .limit = options.limit,
                        .peer_timeout = options.peer_timeout};
    if (!place.host.empty() && identity.self.value == 0 &&
        identity.store == Identity::Store::kWorker0) {
      // The store ends with this worker; others may still be reading there why it ended.
      gathering.leave_limit = std::chrono::seconds(1);
    }
    RZ_ASSIGN_OR_RETURN(seat.rendezvous, GatherAt(std::move(store), gathering));
  }
  const absl::Status shared = ShareFacts(options, seat);
  if (!shared.ok()) Disagree(seat, shared);  // the others wait for our statement
  RZ_RETURN_IF_ERROR(shared);
  return seat;
}

absl::StatusOr<std::optional<OutsideJob>> JoinOutsideJob(const std::optional<Identity>& identity,
                                                         JoinOptions options) {
  if (!identity.has_value()) return std::nullopt;
  if (const char* secret = std::getenv(kSecretVariable)) options.secret = secret;
  if (const char* limit = std::getenv("RINGZERO_JOIN_TIMEOUT")) {
    double seconds = 0;
    if (!absl::SimpleAtod(limit, &seconds) || !(seconds > 0) || seconds > 1e6) {
      return InvalidArgument("RINGZERO_JOIN_TIMEOUT: wanted seconds above 0, found \"", limit,
                             "\"");
    }
    options.limit = std::chrono::milliseconds(static_cast<int64_t>(seconds * 1000) + 1);
  }
  absl::StatusOr<JobSeat> seat = JoinJob(*identity, options);
  if (!seat.ok()) return SaidBy(identity->self, seat.status());
  return OutsideJob{*identity, *std::move(seat)};
}

}  // namespace ringzero
