// One table of flags. CLI11 parses by it and prints the help.
#include "bench/ring/options.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <functional>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "zero/config/keys.h"

namespace ringzero {
namespace {

// What nccl-tests has and a ring of workers has not.
constexpr std::pair<const char*, const char*> kForeign[] = {
    {"-t", "threads per process: here --workers N"},
    {"-g", "GPUs per thread: here --workers N"},
    {"-o", "the reduction: --mode reduce adds"},
    {"-r", "the root: worker 0 begins"},
    {"-p", "parallel initialisation: workers always start at once"},
    {"-z", "blocking collectives: see -m"},
    {"-G", "CUDA graphs: there is none here"},
    {"-C", "processor time: see --poll"},
    {"-R", "registered buffers: they always are"},
    {"-M", "memory report: there is none here"},
    {"-u", "misaligned buffers: they never are"},
};

// Flags that say which messages there are.
constexpr const char* kNotOfTrain[] = {"--minbytes",   "--maxbytes",  "--stepbytes",
                                       "--stepfactor", "--agg_iters", "--datatype",
                                       "--copy",       "--cached",    "--inject"};

[[noreturn]] void Refuse(const std::string& flag, const std::string& wanted,
                         const std::string& found) {
  throw CLI::ValidationError(flag, absl::StrCat("wanted ", wanted, ", found \"", found, "\""));
}

size_t ParseSize(const std::string& flag, const std::string& text) {
  const size_t digits = std::min(text.find_first_not_of("0123456789."), text.size());
  double number = 0;
  double unit = 1;
  std::string suffix = text.substr(digits);
  for (const char* tail : {"iB", "B"}) {  // 64KiB, 64KB: what others write for 64K
    if (suffix.size() > 1 && suffix.ends_with(tail)) {
      suffix.resize(suffix.size() - std::string(tail).size());
      break;
    }
  }
  const size_t power =
      std::string("KMG").find(suffix.size() == 1 ? static_cast<char>(suffix[0] & ~0x20) : ' ');
  if (power != std::string::npos) {
    unit = std::pow(1024.0, static_cast<double>(power) + 1);
  } else if (!suffix.empty()) {
    Refuse(flag, "bytes such as 8, 64K, 1.5M or 2G", text);
  }
  if (!absl::SimpleAtod(text.substr(0, digits), &number) || number * unit > 1e15) {
    Refuse(flag, "bytes such as 8, 64K, 1.5M or 2G", text);
  }
  return static_cast<size_t>(number * unit);
}

// The flags, each with the place in RingOptions where it goes. Of two the last one counts.
class Flags {
 public:
  explicit Flags(RingOptions& to) : to_(to) {
    app_.get_formatter()->column_width(34);
    app_.allow_extras();
    AddMeasuring();
    AddOutput();
    AddRing();
  }
  CLI::App& app() { return app_; }

 private:
  using Reader = std::function<void(const std::string& name, const std::string& text)>;
  template <typename T>
  using Choices = std::vector<std::pair<std::string, T>>;

  // `name`: "-b,--minbytes".
  void Read(const std::string& name, const char* value, const char* help, const Reader& read) {
    const std::string called = name.substr(name.find("--"));
    app_.add_option_function<std::string>(
            name, [=](const std::string& text) { read(called, text); }, help)
        ->type_name(value)
        ->trigger_on_parse();
  }
  void Size(const std::string& name, size_t& to, const char* help) {
    Read(name, "SIZE", help,
         [&to](const std::string& flag, const std::string& text) { to = ParseSize(flag, text); });
  }
  template <typename T>  // an integer, or optional
  void Count(const std::string& name, const char* value, int least, T& to, const char* help) {
    Read(name, value, help, [&to, least](const std::string& flag, const std::string& text) {
      int number = 0;
      if (!absl::SimpleAtoi(text, &number) || number < least) {
        Refuse(flag, absl::StrCat("a number of at least ", least), text);
      }
      to = number;
    });
  }
  void Text(const std::string& name, const char* value, std::string& to, const char* help) {
    Read(name, value, help, [&to](const std::string&, const std::string& text) { to = text; });
  }
  template <typename T>
  void Choice(const std::string& name, const char* value, T& to, const char* help,
              const Choices<T>& choices) {
    Read(name, value, help, [&to, choices](const std::string& flag, const std::string& text) {
      std::string names;
      for (const auto& [choice, chosen] : choices) {
        if (text == choice) return void(to = chosen);
        absl::StrAppend(&names, names.empty() ? "" : ", ", choice);
      }
      Refuse(flag, absl::StrCat("one of ", names), text);
    });
  }
  template <typename T>
  void Flag(const std::string& name, T& to, T set, const char* help) {
    app_.add_flag_callback(
            name, [&to, set] { to = set; }, help)
        ->disable_flag_override();
  }

  void AddMeasuring() {
    Size("-b,--minbytes", to_.min_bytes, "first size (32M); K, M and G are powers of 1024");
    Size("-e,--maxbytes", to_.max_bytes, "last size (32M)");
    Size("-i,--stepbytes", to_.step_bytes, "from one size to the next, added (1M)");
    Count("-f,--stepfactor", "N", 1, to_.step_factor,
          "from one size to the next, multiplied (1: added instead)");
    Count("-n,--iters", "N", 1, to_.iterations, "timed iterations for each size (20)");
    Count("-w,--warmup_iters", "N", 0, to_.warmup, "iterations before these, not timed (1)");
    Count("-m,--agg_iters", "N", 1, to_.aggregate,
          "operations in each iteration, all on their way at once (1)");
    Count("-c,--check", "N", 0, to_.check,
          "iterations whose data are checked, after the timed ones (1)");
    Read("-d,--datatype", "TYPE", "float, double, half, bfloat16, [u]int8, [u]int32, [u]int64, all",
         [this](const std::string& flag, const std::string& text) {
           const std::optional<ElementType> type = ParseElementType(text);
           if (text != "all" && !type) {
             Refuse(flag, "float, double, half, bfloat16, [u]int8, [u]int32, [u]int64 or all",
                    text);
           }
           to_.types = type ? std::vector<ElementType>{*type} : AllElementTypes();
         });
    Choice("-a,--average", "0|1|2|3", to_.average,
           "time column: worker 0's, mean, min or max of workers (1)",
           Choices<Average>{{"0", Average::kWorker0},
                            {"1", Average::kMean},
                            {"2", Average::kMin},
                            {"3", Average::kMax}});
    Count("-T,--timeout", "SECONDS", 0, to_.timeout_s,
          "the longest that any one wait may take (0: 10 minutes)");
    Count("-N,--run_cycles", "N", 0, to_.cycles,
          "run and print all sizes N times (1); 0: for ever");
  }

  void AddOutput() {
    const Choices<bool> off_or_on = {{"0", false}, {"1", true}};
    Read("-J,--output_file", "FILE", "write the results as JSON, too; FILE ends in .json",
         [this](const std::string& flag, const std::string& text) {
           if (!text.ends_with(".json")) Refuse(flag, "a file that ends in .json", text);
           to_.json_file = text;
         });
    Text("--csv", "FILE", to_.csv_file, "write the results as CSV, too");
    Choice("-S,--report_timestamps", "0|1", to_.timestamps,
           "a time of day at the end of each line (0)", off_or_on);
    Choice("-I,--per_iter_timing", "0|1", to_.per_iteration,
           "columns i_min i_max i_p99 i_cv% i_p50 (0)", off_or_on);
    Count("-K,--per_iter_skip", "N", 0, to_.per_iteration_skip,
          "leave the first N iterations out of these (0)");
    Flag("--compare", to_.comparing, Comparing::kPeerTool,
         "run the peer tool in the same run, by turns, and print the ratio");
    Count("--rounds", "N", 1, to_.rounds,
          "--compare: how often ours and the peer take turns for each size (4)");
    Flag("--skip_host", to_.host_speed, HostSpeedIs::kLeftOut,
         "do not measure the host before and after");
  }

  void AddRing() {
    Choice("--mode", "MODE", to_.mode, "shift, relay, reduce, pingpong, stream or train (shift)",
           Choices<RingMode>{{"shift", RingMode::kShift},
                             {"relay", RingMode::kRelay},
                             {"reduce", RingMode::kReduce},
                             {"pingpong", RingMode::kPingpong},
                             {"stream", RingMode::kStream},
                             {"train", RingMode::kTrain}});
    Choice("--transport", "NAME", to_.transport, "local, shm, ucx, nccl or auto (shm)",
           Choices<std::string>{{"local", "local"},
                                {"shm", "shm"},
                                {"ucx", "ucx"},
                                {"nccl", "nccl"},
                                {"auto", "auto"}});
    Choice("--memory", "KIND", to_.memory, "host or cuda (host; nccl: cuda)",
           Choices<MemoryKind>{{"host", MemoryKind::kHost}, {"cuda", MemoryKind::kCuda}});
    Count("--workers", "N", 1, to_.identity.workers,
          "how many (4; pingpong, stream: 2; train: the plan's)");
    Count("--worker", "W", 0, to_.identity.worker,
          "this process is worker W of --workers, started by somebody else");
    Text("--rendezvous", "PLACE", to_.identity.rendezvous,
         "where they meet: file:///folder (a launcher's workers, too)");
    Flag("--poll", to_.progress, ProgressMode::kCaller,
         "workers poll; else a message thread sleeps until something comes");
    Flag("--pin", to_.pinning, Pinning::kOneCoreEach,
         "worker w stays on the w-th of the cores that this process may use");
    Flag("--copy", to_.receiving, Receiving::kCopy,
         "receivers copy what arrives into memory of their own");
    Flag("--cached", to_.caching, Caching::kCached,
         "one buffer, sent again and again; else they rotate past the caches");
    Count("--slots", "N", 1, to_.slots,
          "credit of each channel (twice -m, at least 2; pingpong: 4; train: the plan's)");
    Text("--plan", "FILE", to_.plan_file,
         "train: a plan's text, as `ringzero plan CONFIG --text FILE` writes it");
    Choice("--inject", "flip", to_.injection, "test of this program: damage one checked message",
           Choices<Injection>{{"flip", Injection::kFlip}});
  }

  RingOptions& to_;
  CLI::App app_{"docs/ring_perf.md explains every number.", "ring_perf"};
};

// Of a word that is none of the flags.
absl::Status UnknownFlag(const CLI::App& app, const std::string& word) {
  if (!word.starts_with("-") || word == "-") {
    return absl::InvalidArgumentError(
        absl::StrCat("\"", word, "\" is no flag; ring_perf --help lists them"));
  }
  const std::string name =
      word.starts_with("--") ? word.substr(0, word.find('=')) : word.substr(0, 2);
  for (const auto& [letter, instead] : kForeign) {
    if (name != letter) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(name, " of nccl-tests has no meaning here (", instead, ")"));
  }
  std::string nearest;
  for (const CLI::Option* option : app.get_options()) {
    const std::string known = "--" + option->get_lnames().at(0);
    if (nearest.empty() || EditDistance(name, known) < EditDistance(name, nearest)) nearest = known;
  }
  return absl::InvalidArgumentError(
      absl::StrCat(name, ": unknown flag; the nearest known one is ", nearest));
}

absl::Status CheckTogether(const RingOptions& options) {
  if (options.min_bytes > options.max_bytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("-b ", options.min_bytes, " is more than -e ", options.max_bytes));
  }
  for (const ElementType type : options.types) {
    if (options.min_bytes < SizeOf(type)) {
      return absl::InvalidArgumentError(
          absl::StrCat("-b ", options.min_bytes, ": not one element of type ", ToString(type)));
    }
    if (options.mode == RingMode::kReduce && !CanAdd(type)) {
      return absl::InvalidArgumentError(
          absl::StrCat("-d ", ToString(type), ": --mode reduce cannot add it"));
    }
  }
  if (options.step_factor == 1 && options.step_bytes == 0) {
    return absl::InvalidArgumentError("-i 0: sizes would never grow");
  }
  if (options.per_iteration_skip >= options.iterations) {
    return absl::InvalidArgumentError(absl::StrCat("-K ", options.per_iteration_skip,
                                                   ": wanted less than -n ", options.iterations));
  }
  RZ_RETURN_IF_ERROR(CheckWorkers(options));
  if ((options.mode == RingMode::kTrain) == options.plan_file.empty()) {
    return absl::InvalidArgumentError(options.plan_file.empty()
                                          ? "--mode train: which plan? --plan FILE is missing"
                                          : "--plan: has a meaning with --mode train alone");
  }
  return absl::OkStatus();
}

bool BetweenTwo(RingMode mode) { return mode == RingMode::kPingpong || mode == RingMode::kStream; }

}  // namespace

absl::Status CheckWorkers(const RingOptions& options) {
  if (!BetweenTwo(options.mode) || options.workers == 2) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("--workers ", options.workers, ": --mode ",
                                                 ToString(options.mode), " is between 2 workers"));
}

std::string ToString(RingMode mode) {
  switch (mode) {
    case RingMode::kShift: return "shift";
    case RingMode::kRelay: return "relay";
    case RingMode::kReduce: return "reduce";
    case RingMode::kPingpong: return "pingpong";
    case RingMode::kStream: return "stream";
    case RingMode::kTrain: return "train";
  }
  return "";
}

std::string ToString(Average average) {
  switch (average) {
    case Average::kWorker0: return "worker 0";
    case Average::kMean: return "mean of workers";
    case Average::kMin: return "fastest worker";
    case Average::kMax: return "slowest worker";
  }
  return "";
}

std::vector<size_t> RingOptions::Sizes() const {
  std::vector<size_t> sizes;
  for (size_t size = min_bytes; size <= max_bytes;
       size = step_factor > 1 ? size * static_cast<size_t>(step_factor) : size + step_bytes) {
    sizes.push_back(size);
  }
  return sizes;
}

absl::StatusOr<ParsedOptions> ParseRingOptions(const std::vector<std::string>& words) {
  ParsedOptions parsed;
  RingOptions& options = parsed.options;
  Flags flags(options);
  CLI::App& app = flags.app();
  try {
    app.parse(std::vector<std::string>(words.rbegin(), words.rend()));
  } catch (const CLI::CallForHelp&) {
    return ParsedOptions{.help = true};
  } catch (const CLI::ParseError& error) {
    const std::string what = error.what();  // of a flag with a value: "poll was given …"
    return absl::InvalidArgumentError(absl::StrCat(what.starts_with("--") ? "" : "--", what));
  }
  if (const std::vector<std::string> rest = app.remaining(); !rest.empty()) {
    return UnknownFlag(app, rest[0]);
  }
  options.workers = options.identity.workers.value_or(0);
  const bool train = options.mode == RingMode::kTrain;
  for (const char* const name : kNotOfTrain) {
    if (!train || app.count(name) == 0) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(name, ": has no meaning with --mode train, whose messages are the plan's"));
  }
  if (app.count("--rounds") > 0 && options.comparing == Comparing::kNothing) {
    return absl::InvalidArgumentError("--rounds: has a meaning with --compare alone");
  }
  if (options.transport == "nccl") {
    if (options.memory == MemoryKind::kHost && app.count("--memory") > 0) {
      return absl::InvalidArgumentError("--memory: host is not for --transport nccl, only cuda");
    }
    options.memory = MemoryKind::kCuda;
  }
  if (options.workers == 0 && !train) options.workers = BetweenTwo(options.mode) ? 2 : 4;
  const int least = options.mode == RingMode::kPingpong ? 4 : 2;
  if (options.slots == 0 && !train) options.slots = std::max(least, 2 * options.aggregate);
  if (options.types.size() > 1 && options.mode == RingMode::kReduce) {  // -d all: all that it can
    std::erase_if(options.types, [](ElementType type) { return !CanAdd(type); });
  }
  RZ_RETURN_IF_ERROR(CheckTogether(options));
  return parsed;
}

std::string RingHelp() {
  RingOptions unused;
  return Flags(unused).app().help();
}

}  // namespace ringzero
