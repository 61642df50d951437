// One table of options. CLI11 parses by it and prints the help; the man page and the completion are
// made from it. Above the table: the commands that only read (config, blame, trace, report).
#include "integrations/cli/command_line.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <functional>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "base/files.h"
#include "base/status.h"
#include "base/texts.h"
#include "integrations/cli/provenance.h"
#include "integrations/cli/run_metrics.h"
#include "integrations/sight/chrome_trace.h"
#include "integrations/sight/report.h"
#include "zero/config/keys.h"
#include "zero/flight/flight_record.h"

namespace ringzero {
namespace {

const char* Word(Finding::Kind kind) {
  if (kind == Finding::Kind::kError) return "error";
  return kind == Finding::Kind::kNoEffect || kind == Finding::Kind::kMinor ? "warning" : "note";
}

void PrintLine(absl::string_view kind, absl::string_view line) {
  std::fputs(absl::StrCat("ringzero: ", kind, OneLine(line), "\n").c_str(), stderr);
}

// The records in `folder` itself, or in the flight folder of a run with --metrics. A folder that a
// command was told to read and cannot is bad input.
absl::StatusOr<std::vector<FlightRecord>> ReadFolder(const std::string& folder) {
  absl::StatusOr<std::vector<FlightRecord>> records = ReadFlightFolder(folder);
  if (absl::IsNotFound(records.status())) {
    auto of_metrics = ReadFlightFolder(MetricsFlights(folder));
    if (!absl::IsNotFound(of_metrics.status())) records = std::move(of_metrics);
  }
  if (records.ok()) return records;
  return absl::InvalidArgumentError(records.status().message());
}

absl::Status RunVersion(const CommandLine&) { return PrintToStdout(VersionText() + "\n"); }

// What a configuration means, or what any configuration may hold. Errors, warnings and notes go to
// stderr, a line each. InvalidArgument when the file is refused: all its errors are on stderr then.
absl::Status RunConfig(const CommandLine& line) {
  if (line.schema) return PrintToStdout(ConfigSchema());
  if (line.markdown) return PrintToStdout(ConfigMarkdown());
  RZ_ASSIGN_OR_RETURN(const std::optional<Identity> identity,
                      FindIdentity(line.identity, CurrentEnvironment()));
  const ConfigSource source = SourceOf(line, identity);
  RZ_ASSIGN_OR_RETURN(const std::string text, ReadConfigFile(source.file));
  CheckedConfig checked = CheckConfig(text, source);
  for (const Finding& finding : checked.findings.all()) {
    if (RefusedByTraining(finding.kind)) continue;
    PrintLine(absl::StrCat(Word(finding.kind), ": "), finding.line);
  }
  const std::vector<std::string> refused = FillForTraining(checked);
  if (!refused.empty()) {
    PrintLine("", absl::StrCat(source.file, ": train refuses it, for ", refused.size(),
                               refused.size() == 1 ? " reason:" : " reasons:"));
  }
  for (const std::string& line : refused) PrintLine("  ", line);
  const int errors = checked.findings.Count(Finding::Kind::kError);
  if (errors > 0) {
    return InvalidArgument(source.file, ": refused, for ", errors,
                           errors == 1 ? " error" : " errors");
  }
  return PrintToStdout(checked.config.Print());
}

absl::Status RunBlame(const CommandLine& line) {
  RZ_ASSIGN_OR_RETURN(const std::vector<FlightRecord> records, ReadFolder(line.config));
  return PrintToStdout(BlameFlights(records));
}

absl::Status RunTrace(const CommandLine& line) {
  const std::string out = line.out.empty() ? absl::StrCat(line.config, "/trace.json") : line.out;
  RZ_ASSIGN_OR_RETURN(const std::vector<FlightRecord> records, ReadFolder(line.config));
  std::vector<NamedPath> inputs;
  for (const FlightRecord& record : records) {
    inputs.push_back({"FOLDER", FlightPath(line.config, record.worker)});
  }
  RZ_RETURN_IF_ERROR(CheckOutputFiles({{"--out", out}}, inputs));
  RZ_RETURN_IF_ERROR(WriteTrace(out, ChromeTrace(records)));
  return PrintText(line, absl::StrCat(out, ": open it at ui.perfetto.dev\n"));
}

absl::Status RunReport(const CommandLine& line) {
  const std::string out = line.out.empty() ? absl::StrCat(line.config, "/report.html") : line.out;
  std::vector<std::string> folders = {line.config};
  folders.insert(folders.end(), line.others.begin(), line.others.end());
  std::vector<RunFolder> runs;
  std::vector<NamedPath> inputs;
  for (const std::string& folder : folders) {
    absl::StatusOr<RunFolder> run = ReadRunFolder(folder);
    if (!run.ok()) return absl::InvalidArgumentError(run.status().message());
    runs.push_back(*std::move(run));
    for (const char* const name : {"/run.json", "/metrics.jsonl", "/config.json", "/flight"}) {
      inputs.push_back({"FOLDER", absl::StrCat(folder, name)});
    }
  }
  RZ_RETURN_IF_ERROR(CheckOutputFiles({{"--out", out}}, inputs));
  RZ_RETURN_IF_ERROR(WriteWholeFile(out, Report(runs)));
  return PrintText(line, absl::StrCat(out, ": open it in a browser\n"));
}

// As written in a configuration: no sign, no leading 0.
bool IsNumber(const std::string& text, int least, int& number) {
  return absl::SimpleAtoi(text, &number) && number >= least && text == absl::StrCat(number);
}

// "100:103" or "signal:4".
TraceIterations ParseTraceIterations(const std::string& text) {
  const std::vector<std::string> parts = absl::StrSplit(text, ':');
  int first = 0, last = 0;
  if (parts.size() == 2 && IsNumber(parts[1], 1, last)) {
    if (parts[0] == "signal") return {.on_signal = last};
    if (IsNumber(parts[0], 1, first) && first <= last) return {.first = first, .last = last};
  }
  throw CLI::ValidationError(
      "--trace-iterations",
      absl::StrCat("wanted FIRST:LAST, as 100:103, or signal:COUNT, as signal:4, found \"", text,
                   "\""));
}

// What the command line may hold, and where in a CommandLine it goes.
class Table {
 public:
  explicit Table(CommandLine& line) : line_(line) {
    app_.get_formatter()->column_width(32);
    app_.require_subcommand(0, 1);
    app_.allow_extras();
    app_.set_version_flag("--version", "", "print the version and exit");
    AddCommands();
    AddOptions();
    AddPlanOptions();
  }
  CLI::App& app() { return app_; }
  std::vector<CLI::App*> commands() { return app_.get_subcommands({}); }

 private:
  struct Row {
    const char* name;
    absl::Status (*run)(const CommandLine&);
    const char* argument;
    const char* help;
  };
  void AddCommands() {
    constexpr Row kRows[] = {
        {"train", RunTrain, "CONFIG", "train a model"},
        {"plan", RunPlan, "CONFIG", "show partition and schedule without training"},
        {"config", RunConfig, "CONFIG", "check it and show every value with its origin"},
        {"blame", RunBlame, "FOLDER",
         "who waits for whom, from flight records, and the first cause"},
        {"trace", RunTrace, "FOLDER",
         "flight records as a trace for Perfetto; for blame and trace FOLDER may be that of "
         "--metrics"},
        {"report", RunReport, "FOLDER",
         "a run's metrics as one page of HTML; of several folders the page compares the runs"},
        {"checkpoint", RunCheckpoint, "ACTION",
         "list, verify, export or diff the checkpoints of a run: ringzero checkpoint list run"},
        {"help", RunHelp, "COMMAND",
         "this text, or that of COMMAND; of `man` a man page, of `bash` bash's completion"}};
    for (const Row& row : kRows) {
      CLI::App* const added = app_.add_subcommand(row.name, row.help);
      added->allow_extras();
      added->set_version_flag("--version", "", "print the version and exit");
      added->callback([this, run = row.run] { line_.run = run; });
      added->add_option(row.argument, row.run == RunHelp ? line_.help_of : line_.config)
          ->type_name("");
    }
    for (const char* const command : {"report", "checkpoint"}) {
      app_.get_subcommand(command)->add_option("FOLDERS", line_.others, "")->type_name("");
    }
  }

  // An option is read each time that it comes: the last value counts. `commands`: "train|plan".
  void Read(const char* commands, const std::string& name, const std::string& value,
            const char* help, const std::function<void(const std::string&)>& read) {
    for (const absl::string_view command : absl::StrSplit(commands, '|')) {
      const auto checked = [=](const std::string& text) {
        if (text.empty()) throw CLI::ValidationError(name, absl::StrCat(value, " is empty"));
        read(text);
      };
      app_.get_subcommand(std::string(command))
          ->add_option_function<std::string>(name, checked, help)
          ->type_name(value)
          ->trigger_on_parse();
    }
  }
  void Text(const char* commands, const char* name, const char* value, std::string& to,
            const char* help) {
    Read(commands, name, value, help, [&to](const std::string& text) { to = text; });
  }
  void Number(const char* commands, const char* name, const char* value, int least,
              const char* help, const std::function<void(int)>& take) {
    Read(commands, name, value, help, [=](const std::string& text) {
      int number = 0;
      if (IsNumber(text, least, number)) return take(number);
      throw CLI::ValidationError(
          name, absl::StrCat("wanted a number of at least ", least, ", found \"", text, "\""));
    });
  }
  void Flag(const char* command, const char* name, bool& to, const char* help) {
    app_.get_subcommand(command)->add_flag(name, to, help)->disable_flag_override();
  }

  void AddOptions() {
    Number("train|plan|config", "--workers", "N", 1,
           "number of workers (cyclic.workers, 4 unless configured)", [this](int workers) {
             line_.overrides.push_back(absl::StrCat("cyclic.workers=", workers));
             line_.identity.workers = workers;
           });
    Number("train", "--worker", "W", 0, "be worker W of a job of --workers that others start, too",
           [this](int worker) { line_.identity.worker = worker; });
    Text("train", "--rendezvous", "PLACE", line_.identity.rendezvous,
         "where they meet: file:///folder or tcp://host:port");
    Read("train|plan|config", "--set", "KEY.PATH=VALUE",
         "override a value of the configuration; repeatable",
         [this](const std::string& text) { line_.overrides.push_back(text); });
    Text("train", "--again", "FOLDER", line_.again,
         "in place of CONFIG: run again what --metrics FOLDER has kept");
    Text("train", "--summary", "FILE", line_.summary, "write the run's numbers as JSON");
    app_.get_subcommand("train")
        ->add_option_function<std::string>(
            "--resume", [this](const std::string& path) { line_.resume = path; },
            "go on from the newest checkpoint, or from that of PATH (after CONFIG)")
        ->type_name("[PATH]")
        ->expected(0, 1);
    Flag("train", "--new-batch", line_.new_batch,
         "resume, although an update has another number of micro-batches");
    Text("train", "--init", "PATH", line_.init,
         "take initial parameters from safetensors: a file, an index, or a folder with one");
    Read("train", "--init-partial", "PATH", "the same, where names may be missing or unexpected",
         [this](const std::string& text) {
           line_.init = text;
           line_.init_partial = true;
         });
    Text("train", "--dump-parameters", "FILE", line_.dump_parameters,
         "write the trained parameters as safetensors");
    Text("train", "--flight", "FOLDER", line_.flight, "where flight records go (ringzero-flight)");
    Text("train", "--metrics", "FOLDER", line_.metrics,
         "write each iteration's numbers: TensorBoard, CSV, JSON lines");
    Text("train|plan", "--trace", "FILE", line_.trace,
         "write what happens when, measured or predicted, for Perfetto");
    Read("train", "--trace-iterations", "FIRST:LAST",
         "trace these alone; or signal:COUNT, so many after each SIGUSR2",
         [this](const std::string& text) { line_.trace_iterations = ParseTraceIterations(text); });
    Text("trace|report|checkpoint", "--out", "FILE", line_.out, "where to write it");
    Text("checkpoint", "--dtype", "TYPE", line_.dtype, "export: fp32, bf16 or fp16 (fp32)");
    Flag("config", "--schema", line_.schema, "print the JSON Schema of any configuration");
    Flag("config", "--markdown", line_.markdown, "print docs/config_keys.md: every key");
  }

  void AddPlanOptions() {
    Text("plan", "--svg", "FILE", line_.svg,
         "draw the schedule, and over time what is sent and the activations");
    Text("plan", "--text", "FILE", line_.text,
         "write the plan as text (for ring_perf --mode train --plan FILE)");
    Text("plan", "--profile", "FILE", line_.profile,
         "times from a measured profile: FILE if it is there, else measured now and kept in it");
    Flag("plan", "--freeze", line_.freeze, "let --profile's costs make the plan (cyclic.profile)");
    Read("train|plan", "--efficiency", "FILE",
         "more studied cases for rule auto, like data/rules.json (cyclic.efficiency)",
         [this](const std::string& text) {
           line_.overrides.push_back(absl::StrCat("cyclic.efficiency=", text));
         });
    Number("plan", "--hosts", "H", 1, "say what carries messages if the workers are on H hosts (1)",
           [this](int hosts) { line_.hosts = hosts; });
    Number("plan", "--program", "WORKER", 0, "print what one worker does in the first iterations",
           [this](int worker) { line_.program = worker; });
    Number("plan", "--blocks", "WORKER", 0, "print the memory that one worker allocates, by block",
           [this](int worker) { line_.blocks = worker; });
    Flag("plan", "--grid", line_.grid, "print the worker x time grid");
  }

  CommandLine& line_;
  CLI::App app_{"Trains models with their states travelling around a ring.", "ringzero"};
};

// "; the nearest known one is --summary"; empty where none is like `word`.
std::string NearestOf(const std::vector<std::string>& names, absl::string_view word) {
  const std::string all = absl::StrJoin(names, "|");
  const absl::string_view nearest = NearestChoice(all, word);
  const bool like = EditDistance(nearest, word) <= std::max(2, static_cast<int>(word.size()) / 3);
  return nearest.empty() || !like ? "" : absl::StrCat("; the nearest known one is ", nearest);
}

// "--summary", …, of a command.
std::vector<std::string> OptionNames(const CLI::App& command) {
  std::vector<std::string> names;
  for (const CLI::Option* option : command.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  }
  return names;
}

absl::Status UnknownOption(Table& table, const std::string& command, const std::string& name) {
  std::vector<std::string> all;
  for (const CLI::App* other : table.commands()) {
    for (std::string& known : OptionNames(*other)) all.push_back(std::move(known));
  }
  if (std::find(all.begin(), all.end(), name) != all.end()) {
    return InvalidArgument(name, ": not an option of `ringzero ", command, "`");
  }
  const absl::string_view key =
      absl::string_view(name).substr(std::min(name.find_first_not_of('-'), name.size()));
  if (const ForeignName* foreign = FindForeignName(key); foreign != nullptr) {
    const std::string set =
        foreign->key.empty() ? "" : absl::StrCat("; write --set ", foreign->key, "=VALUE");
    return InvalidArgument(name, ": unknown option; ", ToString(*foreign), set);
  }
  return InvalidArgument(name, ": unknown option", NearestOf(all, name));
}

absl::Status UnknownCommand(Table& table, const std::string& word) {
  std::vector<std::string> names = {"--version", "--help"};
  for (const CLI::App* command : table.commands()) names.push_back(command->get_name());
  return InvalidArgument(word, ": unknown command", NearestOf(names, word), "; try ringzero help");
}

// Refuses words that CLI11 could not place.
absl::Status CheckWords(Table& table, const CommandLine& line) {
  const std::vector<CLI::App*> given = table.app().get_subcommands();
  if (given.empty()) {
    const std::vector<std::string> words = table.app().remaining();
    return words.empty() ? absl::InvalidArgumentError("no command; try ringzero help")
                         : UnknownCommand(table, words[0]);
  }
  for (const std::string& word : given[0]->remaining()) {
    if (word.starts_with("-") && word != "-") {
      return UnknownOption(table, given[0]->get_name(), word.substr(0, word.find('=')));
    }
    return InvalidArgument(word, ": one argument is enough (", line.config, "); try ringzero help");
  }
  return absl::OkStatus();
}

// Checks what CLI11 cannot, and finds the configuration of --again.
absl::Status CheckTogether(CommandLine& line, const std::string& command) {
  if (!line.again.empty()) {
    if (!line.config.empty()) {
      return InvalidArgument("--again ", line.again, ": has the configuration; leave out ",
                             line.config);
    }
    line.config = absl::StrCat(line.again, "/config.json");
  }
  if (line.trace.empty() && line.trace_iterations.has_value()) {
    return absl::InvalidArgumentError("--trace-iterations: wants --trace FILE, too");
  }
  if (line.config.empty() && !line.schema && !line.markdown && line.run != RunHelp) {
    const bool folder = command == "blame" || command == "trace" || command == "report";
    return InvalidArgument("ringzero ", command, ": which ",
                           folder ? absl::StrCat("FOLDER? For example ", line.flight)
                           : line.run == RunCheckpoint
                               ? "ACTION? For example list"
                               : "CONFIG? For example examples/fashion_mnist.json");
  }
  return absl::OkStatus();
}

std::string Keys() {
  std::string text =
      "keys of CONFIG beside DeepSpeed's (all: ringzero config --markdown, docs/config_keys.md):\n";
  for (const KeySpec& key : AllKeys()) {
    const bool works = key.state == KeyState::kWorks && key.built.empty();
    if (!works || key.type == KeyType::kSection || !IsOurs(key)) continue;
    const std::string standard =
        key.default_json.empty() ? "" : absl::StrCat(" [", key.default_json, "]");
    absl::StrAppendFormat(&text, "  %-32s %s%s\n", key.path, key.meaning, standard);
  }
  return text;
}

std::string ManPage(Table& table) {
  const auto escaped = [](const std::string& text) {
    return absl::StrReplaceAll(text, {{"\\", "\\\\"}, {"-", "\\-"}});
  };
  std::string text = absl::StrCat(
      ".TH RINGZERO 1\n.SH NAME\nringzero \\- trains models with their states travelling around a "
      "ring\n.SH SYNOPSIS\n.B ringzero\nCOMMAND [CONFIG or FOLDER] [OPTION ...]\n.SH COMMANDS\n");
  for (const CLI::App* command : table.commands()) {
    absl::StrAppend(&text, ".SS ", command->get_name(), "\n", escaped(command->get_description()),
                    "\n");
    for (const CLI::Option* option : command->get_options()) {
      if (option->get_positional()) continue;
      const bool takes_value = option->get_items_expected_max() > 0;
      absl::StrAppend(&text, ".TP\n.B ", escaped(option->get_name()), " ",
                      takes_value ? option->get_type_name() : "", "\n",
                      escaped(option->get_description()), "\n");
    }
  }
  return text;
}

std::string BashCompletion(Table& table) {
  std::vector<std::string> names;
  std::string cases;
  for (const CLI::App* command : table.commands()) {
    names.push_back(command->get_name());
    absl::StrAppend(&cases, "    *:", command->get_name(), ") words='",
                    absl::StrJoin(OptionNames(*command), " "), "' ;;\n");
  }
  return absl::StrCat("_ringzero() {\n  local words\n  case $COMP_CWORD:${COMP_WORDS[1]} in\n",
                      "    1:*) words='", absl::StrJoin(names, " "), " --version' ;;\n", cases,
                      "  esac\n",
                      "  COMPREPLY=($(compgen -W \"$words\" -- \"${COMP_WORDS[COMP_CWORD]}\"))\n",
                      "}\ncomplete -o default -F _ringzero ringzero\n");
}

}  // namespace

absl::StatusOr<CommandLine> ParseCommandLine(int argc, const char* const* argv) {
  CommandLine line;
  line.words.assign(argv, argv + argc);
  // CLI11 takes the next word in place of an empty value.
  for (const std::string& word : line.words) {
    if (!word.starts_with("--") || word.find('=') + 1 != word.size()) continue;
    return InvalidArgument(word, ": the value is empty");
  }
  Table table(line);
  CLI::App& app = table.app();
  const auto command = [&app] {
    const std::vector<CLI::App*> given = app.get_subcommands();
    return given.empty() ? "" : given[0]->get_name();
  };
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    return CommandLine{.run = RunHelp, .help_of = command()};
  } catch (const CLI::CallForVersion&) {
    return CommandLine{.run = RunVersion};
  } catch (const CLI::ParseError& error) {
    const std::string what = error.what();  // of a flag with a value: "grid was given …"
    return InvalidArgument(what.starts_with("--") ? "" : "--", what);
  }
  RZ_RETURN_IF_ERROR(CheckWords(table, line));
  RZ_RETURN_IF_ERROR(CheckTogether(line, command()));
  return line;
}

absl::StatusOr<std::string> HelpText(const std::string& of) {
  CommandLine unused;
  Table table(unused);
  if (of == "man") return ManPage(table);
  if (of == "bash") return BashCompletion(table);
  if (of.empty()) return absl::StrCat(table.app().help("", CLI::AppFormatMode::All), Keys());
  for (const CLI::App* command : table.commands()) {
    if (of == command->get_name()) return command->help("ringzero");
  }
  return UnknownCommand(table, of);
}

absl::Status RunHelp(const CommandLine& line) {
  RZ_ASSIGN_OR_RETURN(const std::string text, HelpText(line.help_of));
  return PrintToStdout(text);
}

ConfigSource SourceOf(const CommandLine& line, const std::optional<Identity>& identity) {
  ConfigSource source{.file = line.config, .overrides = line.overrides, .environment = {}};
  if (identity.has_value()) {
    source.environment.push_back(absl::StrCat("cyclic.workers=", identity->workers));
  }
  return source;
}

absl::Status PrintText(const CommandLine& line, absl::string_view text) {
  for (const std::string& path : {line.summary, line.dump_parameters, line.trace, line.out,
                                  line.svg, line.text, line.profile}) {
    if (path != "-") continue;
    std::fwrite(text.data(), 1, text.size(), stderr);
    return absl::OkStatus();
  }
  return PrintToStdout(text);
}

std::string TraceParts(const std::string& file) {
  return absl::StrCat(WrittenInPlace(file) ? "ringzero-trace" : file, ".parts");
}

}  // namespace ringzero
