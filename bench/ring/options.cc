// One table of flags drives parsing, hints and help.
#include "bench/ring/options.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/status.h"
#include "zero/config/keys.h"

namespace ringzero {
namespace {

struct FlagSpec {
  const char* letter;  // "" : none
  const char* name;
  const char* value;  // what its value is called; null: it takes none
  const char* help;
};

constexpr FlagSpec kFlags[] = {
    {"-b", "--minbytes", "SIZE", "first size (32M); K, M and G are powers of 1024"},
    {"-e", "--maxbytes", "SIZE", "last size (32M)"},
    {"-i", "--stepbytes", "SIZE", "from one size to the next, added (1M)"},
    {"-f", "--stepfactor", "N", "from one size to the next, multiplied (1: added instead)"},
    {"-n", "--iters", "N", "timed iterations for each size (20)"},
    {"-w", "--warmup_iters", "N", "iterations before these, not timed (1)"},
    {"-m", "--agg_iters", "N", "operations in each iteration, all on their way at once (1)"},
    {"-c", "--check", "N", "iterations whose data are checked, after the timed ones (1)"},
    {"-d", "--datatype", "TYPE", "float, double, half, bfloat16, [u]int8, [u]int32, [u]int64, all"},
    {"-a", "--average", "0|1|2|3", "time column: worker 0's, mean, min or max of workers (1)"},
    {"-T", "--timeout", "SECONDS", "the longest that any one wait may take (0: 10 minutes)"},
    {"-J", "--output_file", "FILE", "write the results as JSON, too; FILE ends in .json"},
    {"-S", "--report_timestamps", "0|1", "a time of day at the end of each line (0)"},
    {"-N", "--run_cycles", "N", "run and print all sizes N times (1); 0: for ever"},
    {"-I", "--per_iter_timing", "0|1", "columns i_min i_max i_p99 i_cv% i_p50 (0)"},
    {"-K", "--per_iter_skip", "N", "leave the first N iterations out of these (0)"},
    {"-h", "--help", nullptr, "this text"},
    {"", "--mode", "MODE", "shift, relay, reduce, pingpong, stream or train (shift)"},
    {"", "--transport", "NAME", "local, shm, ucx, nccl or auto (shm)"},
    {"", "--memory", "KIND", "host or cuda (host; nccl: cuda)"},
    {"", "--workers", "N", "how many (4; pingpong, stream: 2; train: the plan's)"},
    {"", "--worker", "W", "this process is worker W of --workers, started by somebody else"},
    {"", "--rendezvous", "PLACE", "where they meet: file:///folder (a launcher's workers, too)"},
    {"", "--poll", nullptr, "workers poll; else a message thread sleeps until something comes"},
    {"", "--pin", nullptr, "worker w stays on the w-th of the cores that this process may use"},
    {"", "--copy", nullptr, "receivers copy what arrives into memory of their own"},
    {"", "--cached", nullptr, "one buffer, sent again and again; else they rotate past the caches"},
    {"", "--slots", "N",
     "credit of each channel (twice -m, at least 2; pingpong: 4; train: the plan's)"},
    {"", "--plan", "FILE", "train: a plan's text, as `ringzero plan CONFIG --text FILE` writes it"},
    {"", "--compare", nullptr, "run the peer tool in the same run, by turns, and print the ratio"},
    {"", "--rounds", "N", "--compare: how often ours and the peer take turns for each size (4)"},
    {"", "--skip_host", nullptr, "do not measure the host before and after"},
    {"", "--csv", "FILE", "write the results as CSV, too"},
    {"", "--inject", "flip", "test of this program: damage one checked message"},
};

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
const std::set<std::string> kNotOfTrain = {"--minbytes",   "--maxbytes",  "--stepbytes",
                                           "--stepfactor", "--agg_iters", "--datatype",
                                           "--copy",       "--cached",    "--inject"};

const FlagSpec& NearestFlag(const std::string& name) {
  const auto distance = [&name](const FlagSpec& flag) {
    const int by_name = EditDistance(name, flag.name);
    return name.starts_with("--") ? by_name : std::min(by_name, EditDistance(name, flag.letter));
  };
  return *std::min_element(
      std::begin(kFlags), std::end(kFlags),
      [&](const FlagSpec& a, const FlagSpec& b) { return distance(a) < distance(b); });
}

absl::StatusOr<const FlagSpec*> FindFlag(const std::string& name) {
  for (const FlagSpec& flag : kFlags) {
    if (name == flag.name || (name == flag.letter && !name.empty())) return &flag;
  }
  for (const auto& [letter, instead] : kForeign) {
    if (name == letter) {
      return absl::InvalidArgumentError(
          absl::StrCat(name, " of nccl-tests has no meaning here (", instead, ")"));
    }
  }
  return absl::InvalidArgumentError(
      absl::StrCat(name, ": unknown flag; the nearest known one is ", NearestFlag(name).name));
}

absl::Status Wrong(const std::string& flag, const std::string& wanted, const std::string& found) {
  return absl::InvalidArgumentError(
      absl::StrCat(flag, ": wanted ", wanted, ", found \"", found, "\""));
}

absl::StatusOr<int> ParseCount(const std::string& flag, const std::string& text, int least) {
  int number = 0;
  if (!absl::SimpleAtoi(text, &number) || number < least) {
    return Wrong(flag, absl::StrCat("a number of at least ", least), text);
  }
  return number;
}

absl::StatusOr<bool> ParseSwitch(const std::string& flag, const std::string& text) {
  if (text != "0" && text != "1") return Wrong(flag, "0 or 1", text);
  return text == "1";
}

absl::StatusOr<size_t> ParseSize(const std::string& flag, const std::string& text) {
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
    return Wrong(flag, "bytes such as 8, 64K, 1.5M or 2G", text);
  }
  if (!absl::SimpleAtod(text.substr(0, digits), &number) || number * unit > 1e15) {
    return Wrong(flag, "bytes such as 8, 64K, 1.5M or 2G", text);
  }
  return static_cast<size_t>(number * unit);
}

// The entry of `values` that `choices` ("a|b|c") has at the same place.
template <typename T>
absl::Status Choose(const std::string& flag, const std::string& text,
                    std::initializer_list<std::pair<const char*, T>> choices, T& value) {
  std::string wanted;
  for (const auto& [name, choice] : choices) {
    if (text == name) {
      value = choice;
      return absl::OkStatus();
    }
    absl::StrAppend(&wanted, wanted.empty() ? "" : ", ", name);
  }
  return Wrong(flag, absl::StrCat("one of ", wanted), text);
}

absl::Status ApplyMeasuring(const std::string& name, const std::string& text, RingOptions& to) {
  if (name == "--minbytes") {
    RZ_ASSIGN_OR_RETURN(to.min_bytes, ParseSize(name, text));
  } else if (name == "--maxbytes") {
    RZ_ASSIGN_OR_RETURN(to.max_bytes, ParseSize(name, text));
  } else if (name == "--stepbytes") {
    RZ_ASSIGN_OR_RETURN(to.step_bytes, ParseSize(name, text));
  } else if (name == "--stepfactor") {
    RZ_ASSIGN_OR_RETURN(to.step_factor, ParseCount(name, text, 1));
  } else if (name == "--iters") {
    RZ_ASSIGN_OR_RETURN(to.iterations, ParseCount(name, text, 1));
  } else if (name == "--warmup_iters") {
    RZ_ASSIGN_OR_RETURN(to.warmup, ParseCount(name, text, 0));
  } else if (name == "--agg_iters") {
    RZ_ASSIGN_OR_RETURN(to.aggregate, ParseCount(name, text, 1));
  } else if (name == "--check") {
    RZ_ASSIGN_OR_RETURN(to.check, ParseCount(name, text, 0));
  } else if (name == "--run_cycles") {
    RZ_ASSIGN_OR_RETURN(to.cycles, ParseCount(name, text, 0));
  } else if (name == "--timeout") {
    RZ_ASSIGN_OR_RETURN(to.timeout_s, ParseCount(name, text, 0));
  } else if (name == "--report_timestamps") {
    RZ_ASSIGN_OR_RETURN(to.timestamps, ParseSwitch(name, text));
  } else if (name == "--per_iter_timing") {
    RZ_ASSIGN_OR_RETURN(to.per_iteration, ParseSwitch(name, text));
  } else if (name == "--per_iter_skip") {
    RZ_ASSIGN_OR_RETURN(to.per_iteration_skip, ParseCount(name, text, 0));
  } else if (name == "--average") {
    return Choose<Average>(name, text,
                           {{"0", Average::kWorker0},
                            {"1", Average::kMean},
                            {"2", Average::kMin},
                            {"3", Average::kMax}},
                           to.average);
  } else if (name == "--datatype") {
    const std::optional<ElementType> type = ParseElementType(text);
    if (text != "all" && !type) {
      return Wrong(name, "float, double, half, bfloat16, [u]int8, [u]int32, [u]int64 or all", text);
    }
    to.types = type ? std::vector<ElementType>{*type} : AllElementTypes();
  } else if (name == "--output_file") {
    if (!text.ends_with(".json")) return Wrong(name, "a file that ends in .json", text);
    to.json_file = text;
  } else {
    return absl::InternalError(absl::StrCat(name, " is in the table and not here"));
  }
  return absl::OkStatus();
}

absl::Status Apply(const std::string& name, const std::string& text, RingOptions& to) {
  if (name == "--mode") {
    return Choose<RingMode>(name, text,
                            {{"shift", RingMode::kShift},
                             {"relay", RingMode::kRelay},
                             {"reduce", RingMode::kReduce},
                             {"pingpong", RingMode::kPingpong},
                             {"stream", RingMode::kStream},
                             {"train", RingMode::kTrain}},
                            to.mode);
  } else if (name == "--transport") {
    return Choose<std::string>(
        name, text,
        {{"local", "local"}, {"shm", "shm"}, {"ucx", "ucx"}, {"nccl", "nccl"}, {"auto", "auto"}},
        to.transport);
  } else if (name == "--memory") {
    return Choose<MemoryKind>(
        name, text, {{"host", MemoryKind::kHost}, {"cuda", MemoryKind::kCuda}}, to.memory);
  } else if (name == "--inject") {
    return Choose<Injection>(name, text, {{"flip", Injection::kFlip}}, to.injection);
  } else if (name == "--workers") {
    RZ_ASSIGN_OR_RETURN(to.workers, ParseCount(name, text, 1));
    to.identity.workers = to.workers;
  } else if (name == "--worker") {
    RZ_ASSIGN_OR_RETURN(to.identity.worker, ParseCount(name, text, 0));
  } else if (name == "--rendezvous") {
    to.identity.rendezvous = text;
  } else if (name == "--slots") {
    RZ_ASSIGN_OR_RETURN(to.slots, ParseCount(name, text, 1));
  } else if (name == "--poll") {
    to.progress = ProgressMode::kCaller;
  } else if (name == "--pin") {
    to.pinning = Pinning::kOneCoreEach;
  } else if (name == "--copy") {
    to.receiving = Receiving::kCopy;
  } else if (name == "--cached") {
    to.caching = Caching::kCached;
  } else if (name == "--rounds") {
    RZ_ASSIGN_OR_RETURN(to.rounds, ParseCount(name, text, 1));
  } else if (name == "--compare") {
    to.comparing = Comparing::kPeerTool;
  } else if (name == "--skip_host") {
    to.host_speed = HostSpeedIs::kLeftOut;
  } else if (name == "--plan") {
    to.plan_file = text;
  } else if (name == "--csv") {
    to.csv_file = text;
  } else {
    return ApplyMeasuring(name, text, to);
  }
  return absl::OkStatus();
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
  std::vector<std::string> given;
  for (size_t at = 0; at < words.size();) {
    const std::string& word = words[at++];
    if (!word.starts_with("-") || word == "-") {
      return absl::InvalidArgumentError(
          absl::StrCat("\"", word, "\" is no flag; ring_perf --help lists them"));
    }
    const bool is_long = word.starts_with("--");
    const size_t end = is_long ? word.find('=') : std::min<size_t>(2, word.size());
    std::string rest = end >= word.size() ? "" : word.substr(is_long ? end + 1 : end);
    RZ_ASSIGN_OR_RETURN(const FlagSpec* flag, FindFlag(word.substr(0, end)));
    const std::string name = flag->name;
    if (name == "--help") {
      parsed.help = true;
      return parsed;
    }
    if (flag->value == nullptr) {
      if (end < word.size())
        return absl::InvalidArgumentError(absl::StrCat(name, ": takes no value"));
    } else if (rest.empty()) {
      if (at == words.size() || (is_long && end < word.size())) {
        return absl::InvalidArgumentError(
            absl::StrCat(name, ": wanted ", flag->value, " after it"));
      }
      rest = words[at++];
    }
    RZ_RETURN_IF_ERROR(Apply(name, rest, options));
    given.push_back(name);
  }
  const bool train = options.mode == RingMode::kTrain;
  for (const std::string& name : given) {
    if (train && kNotOfTrain.contains(name)) {
      return absl::InvalidArgumentError(
          absl::StrCat(name, ": has no meaning with --mode train, whose messages are the plan's"));
    }
    if (name == "--rounds" && options.comparing == Comparing::kNothing) {
      return absl::InvalidArgumentError("--rounds: has a meaning with --compare alone");
    }
  }
  if (options.transport == "nccl") {
    const bool host = options.memory == MemoryKind::kHost;
    if (host && std::count(given.begin(), given.end(), "--memory") > 0) {
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
  std::string text =
      "usage: ring_perf [FLAG ...]      (docs/ring_perf.md explains every number)\n\n";
  for (const FlagSpec& flag : kFlags) {
    const std::string shown =
        absl::StrCat(*flag.letter ? flag.letter : "  ", *flag.letter ? ", " : "  ", flag.name,
                     flag.value ? " " : "", flag.value ? flag.value : "");
    absl::StrAppendFormat(&text, "  %-32s %s\n", shown, flag.help);
  }
  return text;
}

}  // namespace ringzero
