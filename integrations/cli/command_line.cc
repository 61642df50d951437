// One table of options drives parsing, hints and help.
#include "integrations/cli/command_line.h"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <optional>
#include <span>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "base/status.h"
#include "integrations/cli/run_again.h"
#include "zero/config/keys.h"

namespace ringzero {
namespace {

using Command = CommandLine::Command;

constexpr size_t kMaxWord = 64;  // of an unknown word that is compared with the known ones

struct CommandSpec {
  const char* name;
  Command command;
  const char* argument;  // what it needs; null: nothing
  const char* help;
};

constexpr CommandSpec kCommands[] = {
    {"train", Command::kTrain, "CONFIG", "train CONFIG: train a model"},
    {"plan", Command::kPlan, "CONFIG", "plan CONFIG: show partition and schedule without training"},
    {"config", Command::kConfig, "CONFIG",
     "config CONFIG: check it and show every value with its origin"},
    {"blame", Command::kBlame, "FOLDER",
     "blame FOLDER: who waits for whom, from flight records, and the first cause"},
    {"trace", Command::kTrace, "FOLDER",
     "trace FOLDER: flight records as a trace for Perfetto; for both FOLDER may be that of "
     "--metrics"},
    {"report", Command::kReport, "FOLDER", "report FOLDER: a run's metrics as one page of HTML"},
    {"help", Command::kHelp, nullptr, "help: this text; COMMAND --help: that of one command"},
    {"--version", Command::kVersion, nullptr, "--version: the version"},
};

struct OptionSpec {
  const char* name;
  const char* value;     // what its value is called; null: it takes none
  const char* commands;  // "train|plan"
  const char* help;
};

constexpr OptionSpec kOptions[] = {
    {"--workers", "N", "train|plan|config",
     "number of workers (cyclic.workers, 4 unless configured)"},
    {"--worker", "W", "train", "be worker W of a job of --workers that others start, too"},
    {"--rendezvous", "PLACE", "train", "where they meet: file:///folder or tcp://host:port"},
    {"--set", "KEY.PATH=VALUE", "train|plan|config",
     "override a value of the configuration; repeatable"},
    {"--again", "FOLDER", "train", "in place of CONFIG: run again what --metrics FOLDER has kept"},
    {"--summary", "FILE", "train", "write the run's numbers as JSON"},
    {"--init", "FILE", "train", "take initial parameters from a safetensors file"},
    {"--dump-parameters", "FILE", "train", "write the trained parameters as safetensors"},
    {"--flight", "FOLDER", "train", "where flight records go (ringzero-flight)"},
    {"--metrics", "FOLDER", "train",
     "write each iteration's numbers: TensorBoard, CSV, JSON lines"},
    {"--trace", "FILE", "train|plan",
     "write what happens when, measured or predicted, for Perfetto"},
    {"--trace-iterations", "FIRST:LAST", "train",
     "trace these alone; or signal:COUNT, so many after each SIGUSR2"},
    {"--out", "FILE", "trace|report", "where to write it"},
    {"--svg", "FILE", "plan", "draw the schedule, and what is sent and held over time"},
    {"--text", "FILE", "plan", "write the plan as text (for ring_perf --mode train --plan FILE)"},
    {"--profile", "FILE", "plan",
     "times from a measured profile: FILE if it is there, else measured now and kept in it"},
    {"--freeze", nullptr, "plan", "let --profile's costs make the plan (cyclic.profile)"},
    {"--hosts", "H", "plan", "say what carries messages if the workers are on H hosts (1)"},
    {"--program", "WORKER", "plan", "print what one worker does in the first iterations"},
    {"--grid", nullptr, "plan", "print the worker x time grid"},
    {"--schema", nullptr, "config", "print the JSON Schema of any configuration"},
    {"--markdown", nullptr, "config", "print docs/config.md: every key"},
};

struct PlannedOption {
  absl::string_view name;
  const char* instead;
};

constexpr const char* kNoCheckpoints =
    "checkpoints are not built yet; --dump-parameters and --init write and read parameters alone";
constexpr PlannedOption kPlannedOptions[] = {{"--resume", kNoCheckpoints},
                                             {"--save", kNoCheckpoints}};

// "; the nearest known one is --summary", of the entry of `table` with the fewest edits from
// `name`; empty where none is like it.
template <typename Spec>
std::string NearestOf(std::span<const Spec> table, absl::string_view name) {
  if (name.size() > kMaxWord) return "";
  int fewest = std::max(2, static_cast<int>(name.size()) / 3) + 1;
  const char* nearest = nullptr;
  for (const Spec& entry : table) {
    const int edits = EditDistance(name, entry.name);
    if (edits >= fewest) continue;
    fewest = edits;
    nearest = entry.name;
  }
  return nearest == nullptr ? "" : absl::StrCat("; the nearest known one is ", nearest);
}

absl::Status UnknownOption(absl::string_view name) {
  for (const PlannedOption& option : kPlannedOptions) {
    if (option.name != name) continue;
    return absl::UnimplementedError(absl::StrCat(name, ": ", option.instead));
  }
  const absl::string_view key = name.substr(std::min(name.find_first_not_of('-'), name.size()));
  if (const ForeignName* foreign = FindForeignName(key); foreign != nullptr) {
    const std::string set =
        foreign->key.empty() ? "" : absl::StrCat("; write --set ", foreign->key, "=VALUE");
    return absl::InvalidArgumentError(
        absl::StrCat(name, ": unknown option; ", ToString(*foreign), set));
  }
  return absl::InvalidArgumentError(
      absl::StrCat(name, ": unknown option", NearestOf<OptionSpec>(kOptions, name)));
}

const OptionSpec* FindOption(const std::string& name) {
  for (const OptionSpec& option : kOptions) {
    if (name == option.name) return &option;
  }
  return nullptr;
}

absl::StatusOr<int> ParseNumber(const std::string& option, const std::string& text, int least) {
  int number = 0;
  // As written in a configuration: no sign, no leading 0.
  if (!absl::SimpleAtoi(text, &number) || number < least || text != absl::StrCat(number)) {
    return absl::InvalidArgumentError(
        absl::StrCat(option, ": wanted a number of at least ", least, ", found \"", text, "\""));
  }
  return number;
}

// "100:103" or "signal:4".
absl::StatusOr<TraceIterations> ParseTraceIterations(const std::string& text) {
  const std::vector<std::string> parts = absl::StrSplit(text, ':');
  const bool on_signal = parts[0] == "signal";
  if (parts.size() == 2) {
    const absl::StatusOr<int> last = ParseNumber("", parts[1], 1);
    const absl::StatusOr<int> first = on_signal ? 1 : ParseNumber("", parts[0], 1);
    if (first.ok() && last.ok() && on_signal) return TraceIterations{.on_signal = *last};
    if (first.ok() && last.ok() && *first <= *last) {
      return TraceIterations{.first = *first, .last = *last};
    }
  }
  return absl::InvalidArgumentError(
      absl::StrCat("--trace-iterations: wanted FIRST:LAST, as 100:103, or signal:COUNT, as "
                   "signal:4, found \"",
                   text, "\""));
}

absl::Status Apply(const std::string& name, const std::string& value, CommandLine& line) {
  if (name == "--workers") {
    RZ_ASSIGN_OR_RETURN(const int workers, ParseNumber(name, value, 1));
    line.overrides.push_back(absl::StrCat("cyclic.workers=", workers));
    line.identity.workers = workers;
  } else if (name == "--worker") {
    RZ_ASSIGN_OR_RETURN(line.identity.worker, ParseNumber(name, value, 0));
  } else if (name == "--rendezvous") {
    line.identity.rendezvous = value;
  } else if (name == "--set") {
    line.overrides.push_back(value);
  } else if (name == "--again") {
    line.again = value;
  } else if (name == "--summary") {
    line.summary = value;
  } else if (name == "--init") {
    line.init = value;
  } else if (name == "--dump-parameters") {
    line.dump_parameters = value;
  } else if (name == "--flight") {
    line.flight = value;
  } else if (name == "--metrics") {
    line.metrics = value;
  } else if (name == "--trace") {
    line.trace = value;
  } else if (name == "--trace-iterations") {
    RZ_ASSIGN_OR_RETURN(line.trace_iterations, ParseTraceIterations(value));
  } else if (name == "--out") {
    line.out = value;
  } else if (name == "--svg") {
    line.svg = value;
  } else if (name == "--text") {
    line.text = value;
  } else if (name == "--profile") {
    line.profile = value;
  } else if (name == "--freeze") {
    line.freeze = true;
  } else if (name == "--hosts") {
    RZ_ASSIGN_OR_RETURN(line.hosts, ParseNumber(name, value, 1));
  } else if (name == "--program") {
    RZ_ASSIGN_OR_RETURN(line.program, ParseNumber(name, value, 0));
  } else if (name == "--schema") {
    line.schema = true;
  } else if (name == "--markdown") {
    line.markdown = true;
  } else {
    line.grid = true;
  }
  return absl::OkStatus();
}

// Reads the option at argv[at] and moves `at` behind it and its value.
absl::Status ReadOption(std::span<const std::string> words, const CommandSpec& command, size_t& at,
                        CommandLine& line) {
  const std::string& word = words[at];
  const size_t equals = word.find('=');
  const std::string name = word.substr(0, equals);
  const OptionSpec* option = FindOption(name);
  if (option == nullptr) return UnknownOption(name);
  if (FindChoice(option->commands, command.name).empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, ": not an option of `ringzero ", command.name, "`"));
  }
  ++at;
  std::string value;
  if (equals != std::string::npos) {
    value = word.substr(equals + 1);
    if (option->value == nullptr) {
      return absl::InvalidArgumentError(absl::StrCat(name, ": takes no value"));
    }
  } else if (option->value != nullptr) {
    if (at == words.size()) {
      return absl::InvalidArgumentError(
          absl::StrCat(name, ": wanted ", option->value, " after it"));
    }
    value = words[at++];
  }
  if (option->value != nullptr && value.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(name, ": ", option->value, " is empty"));
  }
  return Apply(name, value, line);
}

absl::StatusOr<CommandSpec> FindCommand(const std::string& word) {
  const absl::string_view name =
      word == "--help" || word == "-h" ? "help" : absl::string_view(word);
  for (const CommandSpec& command : kCommands) {
    if (name == command.name) return command;
  }
  return absl::InvalidArgumentError(absl::StrCat(
      word, ": unknown command", NearestOf<CommandSpec>(kCommands, word), "; try ringzero help"));
}

}  // namespace

absl::StatusOr<CommandLine> ParseCommandLine(int argc, const char* const* argv) {
  const std::vector<std::string> words(argv + 1, argv + argc);
  CommandLine line;
  line.words.assign(argv, argv + argc);
  if (words.empty()) {
    return absl::InvalidArgumentError("no command; try ringzero help");
  }
  RZ_ASSIGN_OR_RETURN(const CommandSpec command, FindCommand(words[0]));
  line.command = command.command;
  if (command.argument == nullptr) return line;
  for (size_t at = 1; at < words.size();) {
    if (words[at] == "--help" || words[at] == "-h") {
      return CommandLine{.command = Command::kHelp, .help_of = command.name};
    }
    if (words[at] == "--version") return CommandLine{.command = Command::kVersion};
    if (words[at].starts_with("-") && words[at] != "-") {
      RZ_RETURN_IF_ERROR(ReadOption(words, command, at, line));
    } else if (line.config.empty()) {
      line.config = words[at++];
    } else {
      return absl::InvalidArgumentError(absl::StrCat(words[at], ": one ", command.argument,
                                                     " is enough (", line.config,
                                                     "); try ringzero help"));
    }
  }
  if (!line.again.empty()) {
    if (!line.config.empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat("--again ", line.again, ": has the configuration; leave out ", line.config));
    }
    line.config = RecordedConfig(line.again);
  }
  if (line.trace.empty() && line.trace_iterations.has_value()) {
    return absl::InvalidArgumentError("--trace-iterations: wants --trace FILE, too");
  }
  if (line.config.empty() && !line.schema && !line.markdown) {
    const bool config = std::string(command.argument) == "CONFIG";
    return absl::InvalidArgumentError(
        absl::StrCat("ringzero ", command.name, ": which ", command.argument, "? For example ",
                     config ? "examples/fashion_mnist.json" : line.flight));
  }
  return line;
}

std::string HelpText(absl::string_view command) {
  const bool all = command.empty();
  std::string text = "usage: ringzero COMMAND [CONFIG or FOLDER] [OPTION ...]\n\n";
  for (const CommandSpec& spec : kCommands) {
    if (!all && command != spec.name) continue;
    if (!all) {
      text = absl::StrCat("usage: ringzero ", spec.name, " ", spec.argument, " [OPTION ...]\n\n");
    }
    absl::StrAppend(&text, "  ", spec.help, "\n");
  }
  absl::StrAppend(&text, "\noptions:\n");
  for (const OptionSpec& option : kOptions) {
    if (!all && FindChoice(option.commands, command).empty()) continue;
    const std::string shown =
        option.value == nullptr ? option.name : absl::StrCat(option.name, " ", option.value);
    absl::StrAppendFormat(&text, "  %-29s %s%s\n", shown, option.help,
                          all ? absl::StrCat(" (", option.commands, ")") : "");
  }
  if (!all) return text;
  absl::StrAppend(&text,
                  "\nkeys of CONFIG beside DeepSpeed's (all: ringzero config --markdown, "
                  "docs/config.md):\n");
  for (const KeySpec& key : AllKeys()) {
    const bool works = key.state == KeyState::kWorks && key.built.empty();
    if (!works || key.type == KeyType::kSection || ReadingOf(key) != Reading::kOurs) continue;
    const std::string standard =
        key.default_json.empty() ? "" : absl::StrCat(" [", key.default_json, "]");
    absl::StrAppendFormat(&text, "  %-32s %s%s\n", key.path, key.meaning, standard);
  }
  return text;
}

}  // namespace ringzero
