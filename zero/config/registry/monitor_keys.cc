// What is recorded of a run: tensorboard, csv_monitor, wandb, comet, comms_logger, flops_profiler,
// timers.
#include "zero/config/registry/tables.h"

namespace ringzero::registry {
namespace {

constexpr String kSpoken = "each message's time is in the run's own trace and metrics";
constexpr String kTimers = "an iteration's time is always measured";

constexpr KeySpec kMonitorKeys[] = {
    Section("tensorboard", "metrics as TensorBoard's event files") | Reading::kStrict,
    Bool("tensorboard.enabled", "false", "write them"),
    Text("tensorboard.output_path", "\"\"", "folder; empty: the working folder"),
    Text("tensorboard.job_name", "\"DeepSpeedJobName\"", "folder within it"),
    Section("csv_monitor", "metrics as a CSV file each") | Reading::kStrict,
    Bool("csv_monitor.enabled", "false", "write them"),
    Text("csv_monitor.output_path", "\"\"", "folder; empty: the working folder"),
    Text("csv_monitor.job_name", "\"DeepSpeedJobName\"", "folder within it"),
    Section("wandb", "metrics to Weights & Biases") | Reading::kStrict | Absent::kStaysAbsent,
    Bool("wandb.enabled", "false", "send them") | Only("false") | kOutside,
    Text("wandb.group", "", "group of runs") | kOrNull,
    Text("wandb.team", "", "team") | kOrNull,
    Text("wandb.project", "\"deepspeed\"", "project"),
    Section("comet", "metrics to Comet") | Reading::kStrict | Absent::kStaysAbsent,
    Bool("comet.enabled", "false", "send them") | Only("false") | kOutside,
    Integer("comet.samples_log_interval", "100", "samples between two values"),
    Text("comet.project", "", "project") | kOrNull,
    Text("comet.workspace", "", "workspace") | kOrNull,
    Text("comet.api_key", "", "key") | kOrNull,
    Text("comet.experiment_name", "", "name") | kOrNull,
    Text("comet.experiment_key", "", "key of an earlier one") | kOrNull,
    Bool("comet.online", "", "while it runs") | kOrNull,
    Text("comet.mode", "", "create or continue") | kOrNull,

    Section("comms_logger", "times of collectives") | Reading::kStrict | NoEffect(kSpoken) |
        DeepSpeed("is on as soon as it is there, even with enabled false"),
    Bool("comms_logger.enabled", "false", "log them"),
    Bool("comms_logger.prof_all", "true", "all of them"),
    Key(KeyType::kStringList, "comms_logger.prof_ops", "[]", "only these"),
    Bool("comms_logger.verbose", "false", "each of them"),
    Bool("comms_logger.debug", "false", "with names of functions"),

    Section("flops_profiler", "operations of one iteration") | Reading::kRaw |
        DeepSpeed("ignores unknown keys here"),
    Bool("flops_profiler.enabled", "false", "print them") | Only("false") | kNotNull |
        DeepSpeed("turns wall_clock_breakdown on as well"),
    Number("flops_profiler.recompute_fwd_factor", "0", "share of forwards that is repeated"),
    Integer("flops_profiler.profile_step", "1", "of this iteration"),
    Integer("flops_profiler.module_depth", "-1", "down to this depth of modules"),
    Integer("flops_profiler.top_modules", "1", "only the largest"),
    Bool("flops_profiler.detailed", "true", "every module"),
    Text("flops_profiler.output_file", "", "where to; absent: the terminal"),

    Section("timers", "what is measured") | Reading::kRaw | NoEffect(kTimers) |
        DeepSpeed("ignores unknown keys beside throughput"),
    Section("timers.throughput", "samples per second") | Reading::kStrict,
    Bool("timers.throughput.enabled", "true", "measure it"),
    Bool("timers.throughput.synchronized", "true", "wait for the device first"),
};

}  // namespace

std::span<const KeySpec> MonitorKeys() { return kMonitorKeys; }

}  // namespace ringzero::registry
