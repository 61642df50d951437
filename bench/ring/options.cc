// One table of flags. CLI11 parses by it and prints the help.
#include "bench/ring/options.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <iterator>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status.h"
#include "zero/config/keys.h"

namespace ringzero {
namespace {

using Names = std::vector<std::string>;

// Flags that nccl-tests has and ring_perf has not, each with what stands for it here.
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

// Flags that choose the messages: refused with --mode train, whose messages are the plan's.
constexpr const char* kNotOfTrain[] = {"--minbytes",   "--maxbytes",  "--stepbytes",
                                       "--stepfactor", "--agg_iters", "--datatype",
                                       "--copy",       "--cached",    "--inject"};
// Flags that each worker of an outside job may have for itself.
constexpr const char* kOwn[] = {"worker", "workers", "rendezvous", "output_file", "csv", "plan"};

// In the order of their enumerators.
constexpr const char* kModes[] = {"shift", "relay", "reduce", "pingpong", "stream", "train"};
constexpr const char* kAverages[] = {"worker 0", "mean of workers", "fastest worker",
                                     "slowest worker"};

std::string Wanted(const std::string& wanted, const std::string& found) {
  return absl::StrCat("wanted ", wanted, ", found \"", found, "\"");
}

CLI::Validator AtLeast(int least) {
  const auto check = [least](const std::string& text) {
    int number = 0;
    const bool good = absl::SimpleAtoi(text, &number) && number >= least;
    return good ? "" : Wanted(absl::StrCat("a number of at least ", least), text);
  };
  return CLI::Validator(check, "");
}

CLI::Validator OneOf(const Names& names) {
  const auto check = [names](const std::string& text) {
    const bool good = std::find(names.begin(), names.end(), text) != names.end();
    return good ? "" : Wanted(absl::StrCat("one of ", absl::StrJoin(names, ", ")), text);
  };
  return CLI::Validator(check, "");
}

// Turns "64K", or "64KiB" and "64KB" as others write it, into a number of bytes.
CLI::Validator SizeInBytes() {
  const auto take = [](std::string& text) {
    const size_t digits = std::min(text.find_first_not_of("0123456789."), text.size());
    const std::string unit = absl::AsciiStrToUpper(text.substr(digits));
    const size_t power = std::string("KMG").find(unit.substr(0, 1));
    const std::string rest = unit.substr(std::min<size_t>(unit.size(), 1));
    double number = 0;
    if (!absl::SimpleAtod(text.substr(0, digits), &number) || power == std::string::npos ||
        (rest != "" && rest != "B" && rest != "IB")) {
      return Wanted("bytes such as 8, 64K, 1.5M or 2G", text);
    }
    if (!unit.empty()) number *= std::pow(1024.0, static_cast<double>(power) + 1);
    if (number > 1e15) return Wanted("bytes such as 8, 64K, 1.5M or 2G", text);
    text = absl::StrCat(static_cast<size_t>(number));
    return std::string();
  };
  return CLI::Validator(take, "");
}

// Adds the flags, each with its place in RingOptions. Of a flag given twice the last one counts.
class Flags {
 public:
  Flags(CLI::App& app, RingOptions& to) : app_(app), to_(to) {
    app_.get_formatter()->column_width(34);
    app_.allow_extras();
    app_.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
    AddMeasuring();
    AddOutput();
    AddRing();
  }

 private:
  // `name`: "-b,--minbytes".
  template <typename T>
  CLI::Option* Value(const char* name, const char* value, T& to, const char* help) {
    return app_.add_option(name, to, help)->type_name(value);
  }
  void Size(const char* name, size_t& to, const char* help) {
    Value(name, "SIZE", to, help)->transform(SizeInBytes());
  }
  template <typename T>  // an integer, or optional
  void Count(const char* name, const char* value, int least, T& to, const char* help) {
    Value(name, value, to, help)->check(AtLeast(least));
  }
  template <typename T>  // `names`: in the order of T's values
  void Choice(const char* name, const char* value, T& to, const char* help, const Names& names) {
    const auto take = [&to, names](const std::string& text) {
      to = static_cast<T>(std::find(names.begin(), names.end(), text) - names.begin());
    };
    app_.add_option_function<std::string>(name, take, help)->type_name(value)->check(OneOf(names));
  }
  void Flag(const char* name, bool& to, const char* help) {
    app_.add_flag(name, to, help)->disable_flag_override();
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
    Names types = {"all"};
    for (const ElementType type : AllElementTypes()) types.push_back(ToString(type));
    app_.add_option_function<std::string>(
            "-d,--datatype",
            [this](const std::string& name) {
              const std::optional<ElementType> type = ParseElementType(name);
              to_.types = type ? std::vector<ElementType>{*type} : AllElementTypes();
            },
            "float, double, half, bfloat16, [u]int8, [u]int32, [u]int64, all")
        ->type_name("TYPE")
        ->check(OneOf(types));
    Choice("-a,--average", "0|1|2|3", to_.average,
           "time column: worker 0's, mean, min or max of workers (1)", {"0", "1", "2", "3"});
    Count("-T,--timeout", "SECONDS", 0, to_.timeout_s,
          "the longest that any one wait may take (0: 10 minutes)");
    Count("-N,--run_cycles", "N", 0, to_.cycles,
          "run and print all sizes N times (1); 0: for ever");
  }

  void AddOutput() {
    Value("-J,--output_file", "FILE", to_.json_file,
          "write the results as JSON, too; FILE ends in .json")
        ->check([](const std::string& text) {
          return text.ends_with(".json") ? "" : Wanted("a file that ends in .json", text);
        });
    Value("--csv", "FILE", to_.csv_file, "write the results as CSV, too");
    Choice("-S,--report_timestamps", "0|1", to_.timestamps,
           "a time of day at the end of each line (0)", {"0", "1"});
    Choice("-I,--per_iter_timing", "0|1", to_.per_iteration,
           "columns i_min i_max i_p99 i_cv% i_p50 (0)", {"0", "1"});
    Count("-K,--per_iter_skip", "N", 0, to_.per_iteration_skip,
          "leave the first N iterations out of these (0)");
    Flag("--compare", to_.compare,
         "run the peer tool in the same run, by turns, and print the ratio");
    Count("--rounds", "N", 1, to_.rounds,
          "--compare: how often ours and the peer take turns for each size (4)");
    Flag("--skip_host", to_.skip_host, "do not measure the host before and after");
  }

  void AddRing() {
    Choice("--mode", "MODE", to_.mode, "shift, relay, reduce, pingpong, stream or train (shift)",
           Names(std::begin(kModes), std::end(kModes)));
    Value("--transport", "NAME", to_.transport, "local, shm, ucx, nccl or auto (shm)")
        ->check(OneOf({"local", "shm", "ucx", "nccl", "auto"}));
    Choice("--memory", "KIND", to_.memory, "host or cuda (host; nccl: cuda)", {"host", "cuda"});
    Count("--workers", "N", 1, to_.identity.workers,
          "how many (4; pingpong, stream: 2; train: the plan's)");
    Count("--worker", "W", 0, to_.identity.worker,
          "this process is worker W of --workers, started by somebody else");
    Value("--rendezvous", "PLACE", to_.identity.rendezvous,
          "where they meet: file:///folder (a launcher's workers, too)");
    app_.add_flag_callback(
            "--poll", [this] { to_.progress = ProgressMode::kCaller; },
            "workers poll; else a message thread sleeps until something comes")
        ->disable_flag_override();
    Flag("--pin", to_.pin, "worker w stays on the w-th of the cores that this process may use");
    Flag("--copy", to_.copy, "receivers copy what arrives into memory of their own");
    Flag("--cached", to_.cached,
         "one buffer, sent again and again; else they rotate past the caches");
    Count(
        "--slots", "N", 1, to_.slots,
        "blocks to receive into, or words expected (twice -m, at least 2; pingpong: 4; train: W)");
    Value("--plan", "FILE", to_.plan_file,
          "train: a plan's text, as `ringzero plan CONFIG --text FILE` writes it");
    Choice("--inject", "flip", to_.inject_flip, "test of this program: damage one checked message",
           {"nothing", "flip"});
  }

  CLI::App& app_;
  RingOptions& to_;
};

// The error for a word that is none of the flags.
absl::Status UnknownFlag(const CLI::App& app, const std::string& word) {
  if (!word.starts_with("-") || word == "-") {
    return InvalidArgument("\"", word, "\" is no flag; ring_perf --help lists them");
  }
  const std::string name =
      word.starts_with("--") ? word.substr(0, word.find('=')) : word.substr(0, 2);
  for (const auto& [letter, instead] : kForeign) {
    if (name != letter) continue;
    return InvalidArgument(name, " of nccl-tests has no meaning here (", instead, ")");
  }
  std::string nearest;
  for (const CLI::Option* option : app.get_options()) {
    const std::string known = "--" + option->get_lnames().at(0);
    if (nearest.empty() || EditDistance(name, known) < EditDistance(name, nearest)) nearest = known;
  }
  return InvalidArgument(name, ": unknown flag; the nearest known one is ", nearest);
}

bool BetweenTwo(RingMode mode) { return mode == RingMode::kPingpong || mode == RingMode::kStream; }

absl::Status CheckTogether(const CLI::App& app, const RingOptions& options) {
  const bool train = options.mode == RingMode::kTrain;
  for (const char* const name : kNotOfTrain) {
    if (!train || app.count(name) == 0) continue;
    return InvalidArgument(name,
                           ": has no meaning with --mode train, whose messages are the plan's");
  }
  if (app.count("--rounds") > 0 && !options.compare) {
    return InvalidArgument("--rounds: has a meaning with --compare alone");
  }
  if (options.transport == "nccl" && options.memory == MemoryKind::kHost) {
    return InvalidArgument("--memory: host is not for --transport nccl, only cuda");
  }
  if (options.min_bytes > options.max_bytes) {
    return InvalidArgument("-b ", options.min_bytes, " is more than -e ", options.max_bytes);
  }
  for (const ElementType type : options.types) {
    if (options.min_bytes < SizeOf(type)) {
      return InvalidArgument("-b ", options.min_bytes, ": not one element of type ",
                             ToString(type));
    }
    if (options.mode == RingMode::kReduce && !CanAdd(type)) {
      return InvalidArgument("-d ", ToString(type), ": --mode reduce cannot add it");
    }
  }
  if (options.step_factor == 1 && options.step_bytes == 0) {
    return InvalidArgument("-i 0: sizes would never grow");
  }
  if (options.per_iteration_skip >= options.iterations) {
    return InvalidArgument("-K ", options.per_iteration_skip, ": wanted less than -n ",
                           options.iterations);
  }
  RZ_RETURN_IF_ERROR(CheckWorkers(options));
  if (train == options.plan_file.empty()) {
    return InvalidArgument(train ? "--mode train: which plan? --plan FILE is missing"
                                 : "--plan: has a meaning with --mode train alone");
  }
  return absl::OkStatus();
}

// Lines "--iters = 10".
std::string AgreedFlags(const CLI::App& app) {
  std::string text;
  for (const CLI::Option* option : app.get_options()) {
    const std::string name = option->get_lnames().at(0);
    if (option->count() == 0 || std::find(std::begin(kOwn), std::end(kOwn), name) != std::end(kOwn))
      continue;
    absl::StrAppend(&text, "--", name, " = ", option->results().back(), "\n");
  }
  return text;
}

}  // namespace

absl::Status CheckWorkers(const RingOptions& options) {
  if (!BetweenTwo(options.mode) || options.workers == 2) return absl::OkStatus();
  return InvalidArgument("--workers ", options.workers, ": --mode ", ToString(options.mode),
                         " is between 2 workers");
}

std::string ToString(RingMode mode) { return kModes[static_cast<size_t>(mode)]; }
std::string ToString(Average average) { return kAverages[static_cast<size_t>(average)]; }

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
  CLI::App app("docs/ring_perf.md explains every number.", "ring_perf");
  const Flags flags(app, options);
  try {
    app.parse(std::vector<std::string>(words.rbegin(), words.rend()));
  } catch (const CLI::CallForHelp&) {
    return ParsedOptions{.help = app.help()};
  } catch (const CLI::ParseError& error) {
    const std::string what = error.what();  // of a flag with a value: "poll was given …"
    return InvalidArgument(what.starts_with("--") ? "" : "--", what);
  }
  if (const std::vector<std::string> rest = app.remaining(); !rest.empty()) {
    return UnknownFlag(app, rest[0]);
  }
  const bool train = options.mode == RingMode::kTrain;
  options.workers = options.identity.workers.value_or(train ? 0 : BetweenTwo(options.mode) ? 2 : 4);
  if (options.transport == "nccl" && app.count("--memory") == 0) options.memory = MemoryKind::kCuda;
  const int least = options.mode == RingMode::kPingpong ? 4 : 2;
  if (options.slots == 0 && !train) options.slots = std::max(least, 2 * options.aggregate);
  if (options.types.size() > 1 && options.mode == RingMode::kReduce) {  // -d all: all that it can
    std::erase_if(options.types, [](ElementType type) { return !CanAdd(type); });
  }
  options.agreed = AgreedFlags(app);
  RZ_RETURN_IF_ERROR(CheckTogether(app, options));
  return parsed;
}

}  // namespace ringzero
