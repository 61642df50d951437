// Configuration: DeepSpeed's JSON keys where they exist, and one section of our own, "cyclic".
//
//   RZ_ASSIGN_OR_RETURN(Config config, LoadConfig("examples/gpt_text.json", {"cyclic.workers=2"}));
//   config.batch.micro_batch; config.cyclic.rule; config.Print();
//
// Strict: an unknown key, a wrong type or something not built yet is an InvalidArgument that names
// the file, the line and the key. What the numbers mean is said once, in the registry (keys.h).
#ifndef RINGZERO_ZERO_CONFIG_CONFIG_H_
#define RINGZERO_ZERO_CONFIG_CONFIG_H_

#include <array>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "offload/io_engine.h"
#include "p2p/connect.h"
#include "sharding/plan.h"
#include "zero/config/resolve.h"
#include "zero/model_plan.h"
#include "zero/optimizer/optimizer.h"

namespace ringzero {

inline constexpr char kTrainBatchKey[] = "train_batch_size";
inline constexpr char kMicroBatchKey[] = "train_micro_batch_size_per_gpu";
inline constexpr char kLapsKey[] = "gradient_accumulation_steps";
inline constexpr char kNvmePathKey[] = "zero_optimization.offload_optimizer.nvme_path";
inline constexpr char kParameterPathKey[] = "zero_optimization.offload_param.nvme_path";

struct BatchTriple {
  int64_t train_batch = 0;  // samples per update; 0: not given
  int64_t micro_batch = 0;  // samples per worker and lap (train_micro_batch_size_per_gpu)
  int64_t laps = 0;         // K accumulation steps (gradient_accumulation_steps)
};

// Derives the missing numbers (0): two of the three give the third; one batch size alone has K = 1.
// InvalidArgument, without a place, if they do not agree or make more than 2^31 - 1 samples.
absl::StatusOr<BatchTriple> CompleteBatch(BatchTriple given, int64_t workers);

// The options of a GPT (integrations/torch/models/models.h).
struct GptOptions {
  int64_t layers = 4;  // blocks
  int64_t dim = 128;   // a multiple of heads
  int64_t heads = 4;
  int64_t vocab = 256;
  int64_t seq = 128;   // tokens: the most that positions are learned for
  bool tied = false;   // the head's matrix is the token embedding
  double dropout = 0;  // of the embedding and of what each part adds; 0 <= dropout < 1
};

struct ModelConfig {
  enum class Type { kResNet, kGpt, kMlp } type = Type::kMlp;
  // resnet
  int64_t depth = 0;
  int64_t width = 0;
  int64_t channels = 0;  // 0: those of the data
  GptOptions gpt;
  // mlp
  std::vector<int64_t> hidden;
};

struct DataConfig {
  bool drop_last = false;  // drop an epoch's last batch if it is incomplete
  std::string type;        // "idx", "cifar10", "text", "random"
  std::string path;
  // random
  int64_t samples = 0;
  std::vector<int64_t> input;
  int64_t classes = 0;
};

struct EvaluationConfig {
  std::optional<int> every;  // iterations; 0: never; absent: at the end only
  int batch_size = 1;        // samples per worker and accumulation step
  int64_t samples = 0;       // 0: all
};

// One fault on purpose (cyclic.inject), for the project's own tests; and delays, for benchmarks.
struct InjectConfig {
  enum class Action { kNone, kKill, kStop, kFlip, kSlow, kHang } action = Action::kNone;
  enum class Point {
    kPlan,
    kStart,
    kConnect,
    kMessage,
    kLap,
    kSave,
    kFinish,
    kEnd
  } at = Point::kStart;
  int worker = 0;
  // Of the message (sent; kFlip: arrived), the lap or the step of saving, from 1.
  uint64_t number = 1;
  uint64_t seed = 0;
  std::chrono::microseconds delay{0};  // of every message of every worker, without computing
  double update_slowness = 1;          // how many times as long every update takes, asleep
  // {iteration, stage, micro-batch of the iteration}: its gradient is made infinite.
  std::vector<std::array<int, 3>> overflows;
};

struct CyclicConfig {
  std::optional<Rule> rule = Rule::kDp;                // absent: "auto"
  std::string efficiency;                              // a file of studied cases, for "auto"
  std::optional<double> link_seconds, link_bandwidth;  // between hosts; GB/s
  int slack = 1;
  std::optional<int> warmup_updates;  // absent: chosen by MeasureRun, likewise
  std::optional<bool> predict;        // with optimizer.prediction_factor
  bool strict = false;
  Clipping clipping = Clipping::kOff;  // by optimizer.max_norm
  int stages = 0;                      // 0: chosen
  int workers = 4;
  // kLocal: a thread per worker. Others: a process each. kAuto: what the workers' hosts allow.
  TransportChoice transport = TransportChoice::kAuto;
  int window = 0;  // 0: chosen
  int pending = 1;
  bool stagger = false;
  int retain = 0;
  bool exchange = true;
  bool track_activations = false;
  bool flight_recorder = true;
  enum class OnNonfinite { kWarn, kStop } on_nonfinite = OnNonfinite::kWarn;
  Balance balance = Balance::kCost;
  std::vector<int> boundaries;  // empty: balanced
  std::string profile;          // a file of frozen costs; empty: costs are counted
  int threads = 1;
  bool products_first = false;  // RingModelOptions
  std::chrono::milliseconds wait_timeout{std::chrono::minutes(10)};
  std::chrono::milliseconds peer_timeout{std::chrono::seconds(5)};
  bool checksums = false;
  // cyclic.memory_budget: bytes; absent: what is found.
  struct {
    std::optional<int64_t> host, device, disk;
  } memory_budget;
  // cyclic.checkpoint
  struct {
    std::string folder;                     // empty: no checkpoints
    int every = 0;                          // 0: none of these
    std::chrono::milliseconds interval{0};  // 0: none of these
    int keep = 2;                           // 0: all
    bool at_end = true;
    bool on_signal = true;
    std::chrono::milliseconds grace{std::chrono::minutes(2)};
    std::optional<double> bandwidth;  // GB/s of each worker's disk, for measuring
    bool on_request() const { return !folder.empty() && (interval.count() > 0 || on_signal); }
  } checkpoint;
  InjectConfig inject;
};

// zero_optimization.offload_optimizer and offload_param, aio and cyclic.offload.
struct OffloadConfig {
  enum class Device { kNone, kCpu, kNvme } device = Device::kNone;
  std::string nvme_path;  // of both
  Device parameter_device = Device::kNone;
  int64_t max_in_cpu = 1'000'000'000;
  int slots = 3;
  double ratio = 1;           // share of the states' bytes
  int64_t staging_bytes = 0;  // 0: chosen
  std::vector<int> stages;    // empty: by ratio
  bool require_hidden = false;
  std::optional<double> endurance;  // TB
  IoEngineOptions io;
  std::optional<double> bandwidth;  // GB/s of each worker's disk, for measuring
  bool streams() const { return device == Device::kNvme; }
  bool streams_parameters() const { return parameter_device == Device::kNvme; }
  const char* path_key() const { return streams() ? kNvmePathKey : kParameterPathKey; }
};

// DeepSpeed's sections tensorboard and csv_monitor: files in output_path/job_name.
struct MonitorConfig {
  std::string output_path;  // empty: the working folder
  std::string job_name;
};

struct Config {
  ModelConfig model;
  DataConfig data;
  std::optional<int> iterations;  // exactly one of these two
  std::optional<int> epochs;
  uint64_t seed = 0;
  BatchTriple batch;  // complete
  OptimizerOptions optimizer;
  Precision precision;
  int zero_stage = 3;  // zero_optimization.stage: what is sharded
  // optimizer.curve ends with the run, and only the data says how many updates the run has.
  bool curve_ends_with_run = false;
  EvaluationConfig evaluation;
  int steps_per_print = 0;                   // 0: by time
  std::optional<MonitorConfig> tensorboard;  // if enabled
  std::optional<MonitorConfig> csv_monitor;  // if enabled
  CyclicConfig cyclic;
  OffloadConfig offload;

  std::vector<std::string> notes;  // for the user: what does nothing here, old words, "auto"
  ResolvedKeys keys{""};           // every value with its origin

  std::string Print() const { return keys.Print(); }
  // For a fault found later (a model that does not fit its data): file, line, key, message.
  template <typename... Parts>
  absl::Status Error(absl::string_view path, const Parts&... message) const {
    return keys.Error(path, message...);
  }
};

// A configuration that `train` may refuse: any file of DeepSpeed's can be read. In `config`, what
// could not be read or is not given stays at its default; config.keys has all the rest.
struct CheckedConfig {
  Config config;
  Findings findings;
};

CheckedConfig CheckConfig(absl::string_view text, const ConfigSource& source);

// Who brings model and data: the configuration, or the program that reads it. With kProgram the
// configuration has neither section, and may leave the run's length to the program.
enum class ModelFrom { kConfig, kProgram };

// All that `train` and `plan` refuse, a line each, as far as no data are needed to tell. For a
// configuration without errors also what a run lacks; then what a run needs is filled in.
std::vector<std::string> FillForTraining(CheckedConfig& checked,
                                         ModelFrom model = ModelFrom::kConfig);

// Reads the file, applies the overrides and checks everything that needs no data. The result is
// what `train` and `plan` take. NotFound if there is no such file.
absl::StatusOr<Config> LoadConfig(const ConfigSource& source);

// As LoadConfig, from `text`.
absl::StatusOr<Config> ParseConfig(absl::string_view text, const ConfigSource& source,
                                   ModelFrom model = ModelFrom::kConfig);

// Nanoseconds, as configured, or as is common where the transport carries messages. Without hosts.
LinkTicks LinkOf(const CyclicConfig& cyclic);

struct RunLength {
  int iterations = 0;
  int64_t iterations_per_epoch = 0;
  int64_t epoch_samples = 0;  // 0: every batch is complete; otherwise an epoch's last is not
  int64_t test_samples = 0;   // how many an evaluation reads
  EvaluationPlan evaluation;
  int warmup_updates = 0;  // of dp, before a cyclic rule
  bool predict = false;
  std::string rule_choice;               // these two in words, and why; empty for dp
  std::optional<RuleQuestion> question;  // of rule "auto", without hosts, cores and profile
  std::vector<std::string> notes;  // for the user: the configuration's notes, and what is dropped
};

// From the configuration and the number of its samples. InvalidArgument names the key.
absl::StatusOr<RunLength> MeasureRun(const Config& config, int64_t train_samples,
                                     int64_t test_samples);

// The built-in data/rules.json, and `file` if given. InvalidArgument names file and row; NotFound.
absl::StatusOr<std::vector<StudiedRule>> ReadStudiedRules(const std::string& file);

// The plan that a configuration asks for. What is collected, and hosts are the caller's.
PlanRequest PlanRequestOf(const Config& config, const RunLength& length);

absl::StatusOr<std::string> ReadConfigFile(const std::string& file);

// The registry as documents: docs/config_keys.md, and a JSON Schema 2020-12. The schema knows
// types, ranges, choices and keys, but no rules over several keys. Pure functions.
std::string ConfigMarkdown();
std::string ConfigSchema();

}  // namespace ringzero

#endif  // RINGZERO_ZERO_CONFIG_CONFIG_H_
