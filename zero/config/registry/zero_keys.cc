// zero_optimization: what is sharded, offload, and many details of collectives, which a ring has
// not.
#include "zero/config/registry/tables.h"

namespace ringzero::registry {
namespace {

constexpr String kNoBuckets = "sums travel stage by stage: there are no buckets";
constexpr String kNoGather = "parameters go around the ring stage by stage: nothing is gathered";
constexpr String kPlanned = "the plan says when a stage arrives and when it is released";
constexpr String kNoQuantizing = "what travels is not quantised";
constexpr String kOffloadDetail = "a detail of DeepSpeed's offload; this engine's has its own";
constexpr String kNoTrace = "there is no trace of modules: the plan is made before the run";

constexpr KeySpec Switch(String name, String standard, String meaning, String why) {
  return Bool(name, standard, meaning) | NoEffect(why);
}
constexpr KeySpec Size(String path, String standard, String meaning, String why) {
  return Integer(path, standard, meaning) | kNotNegative | NoEffect(why);
}

constexpr KeySpec kZeroKeys[] = {
    Section("zero_optimization", "what is sharded") | Reading::kStrict |
        DeepSpeed("takes true for stage 1 and false for stage 0, too (deprecated)"),
    Integer("zero_optimization.stage", "3",
            "0: nothing; 1: optimizer state; 2: and gradients; 3: and parameters") |
        KeyRange{.min = 0, .max = 3} |
        DeepSpeed("absent: 0; here so, too, within the section, and 3 without it. \"auto\": 0; "
                  "here it must be set"),
    Bool("zero_optimization.compute_grad_norm", "true", "the gradients' norm is computed") |
        DeepSpeed("false only in stages 1 and 2"),
    Bool("zero_optimization.stage3_gather_16bit_weights_on_model_save", "false",
         "export the parameters in one piece") |
        Also("gather_16bit_weights_on_model_save") | Only("false"),
    Switch("zero_optimization.ignore_unused_parameters", "true",
           "do not check that every parameter got a gradient",
           "a parameter without a gradient is carried over, as in PyTorch"),

    // Offload.
    Section("zero_optimization.offload_param", "parameters in host memory or on NVMe") |
        Absent::kStaysAbsent | kOrNull,
    Text("zero_optimization.offload_param.device", "\"none\"", "where to") |
        Exact("none|cpu|nvme") | Only("none") | kNotNull,
    Text("zero_optimization.offload_param.nvme_path", "", "folder for nvme") | kOrNull,
    Bool("zero_optimization.offload_param.pin_memory", "true", "page-locked host memory"),
    Integer("zero_optimization.offload_param.buffer_count", "5", "buffers for NVMe") | kNotNegative,
    Integer("zero_optimization.offload_param.buffer_size", "1e8", "elements of one") | kNotNegative,
    Integer("zero_optimization.offload_param.max_in_cpu", "1e9",
            "elements that stay in host memory with nvme") |
        kNotNegative,
    Section("zero_optimization.offload_optimizer", "optimizer state in host memory or on NVMe") |
        Absent::kStaysAbsent | kOrNull,
    Text("zero_optimization.offload_optimizer.device", "\"none\"", "where to") |
        Exact("none|cpu|nvme") | Only("none") | kNotNull,
    Text("zero_optimization.offload_optimizer.nvme_path", "", "folder for nvme") | kOrNull,
    Bool("zero_optimization.offload_optimizer.pin_memory", "true", "page-locked host memory"),
    Integer("zero_optimization.offload_optimizer.buffer_count", "4", "buffers for NVMe") |
        kNotNegative,
    Bool("zero_optimization.offload_optimizer.pipeline_read", "false", "read ahead"),
    Bool("zero_optimization.offload_optimizer.pipeline_write", "false", "write behind"),
    Bool("zero_optimization.offload_optimizer.fast_init", "false", "faster start with nvme"),
    Number("zero_optimization.offload_optimizer.ratio", "1",
           "share of the state that is offloaded") |
        kShare | DeepSpeed("below 1 only in stage 3"),
    Switch("zero_optimization.offload_optimizer.super_offload", "false", "for superchips",
           kOffloadDetail),
    Number("zero_optimization.offload_optimizer.cpuadam_cores_perc", "0.8",
           "share of the cores for super_offload") |
        kShare | NoEffect(kOffloadDetail),
    Bool("zero_optimization.cpu_offload", "", "old word for offload_optimizer {device: cpu}") |
        kOrNull,
    Bool("zero_optimization.cpu_offload_param", "", "old word for offload_param {device: cpu}") |
        kOrNull,
    Switch("zero_optimization.cpu_offload_use_pin_memory", "", "old word for pin_memory",
           "offload_param and offload_optimizer have their own pin_memory; DeepSpeed ignores it") |
        kOrNull,
    Bool("zero_optimization.stage3_gather_fp16_weights_on_model_save", "",
         "old word for stage3_gather_16bit_weights_on_model_save"),

    // How collectives do their work.
    Switch("zero_optimization.contiguous_gradients", "true", "copy gradients into one buffer",
           "a stage's gradients go straight into its travelling sum") |
        KeySpec::Weight::kWarns,
    Switch("zero_optimization.reduce_scatter", "true", "scatter sums instead of spreading them",
           "a stage's sum goes around the ring and ends at its owner") |
        KeySpec::Weight::kWarns,
    Integer("zero_optimization.reduce_bucket_size", "5e8", "elements summed at once") | kAboveZero |
        Collective(kNoBuckets),
    Switch("zero_optimization.use_multi_rank_bucket_allreduce", "true",
           "sum several owners' buckets at once", kNoBuckets) |
        KeySpec::Weight::kWarns,
    Switch("zero_optimization.allgather_partitions", "true", "gather instead of broadcasts",
           kNoGather) |
        KeySpec::Weight::kWarns,
    Size("zero_optimization.allgather_bucket_size", "5e8", "elements gathered at once", kNoGather) |
        KeySpec::Weight::kWarns,
    Switch("zero_optimization.overlap_comm", "", "exchange beside the backward",
           "messages always travel beside computing") |
        kOrNull | KeySpec::Weight::kWarns,
    Switch("zero_optimization.round_robin_gradients", "false", "order of copies to the host",
           "the schedule says the order") |
        KeySpec::Weight::kWarns,
    Switch("zero_optimization.load_from_fp32_weights", "true", "restart from fp32 masters",
           "masters are always fp32"),
    Switch("zero_optimization.elastic_checkpoint", "false", "a checkpoint for other worlds",
           "there are no checkpoints yet"),
    Size("zero_optimization.sub_group_size", "1e9", "elements updated at once",
         "an owner updates stage by stage, in small blocks"),
    Size("zero_optimization.stage3_prefetch_bucket_size", "5e7", "elements fetched ahead",
         kPlanned) |
        Also("prefetch_bucket_size"),
    Size("zero_optimization.stage3_param_persistence_threshold", "1e5",
         "smaller parameters stay whole", kPlanned) |
        Also("param_persistence_threshold"),
    Size("zero_optimization.stage3_model_persistence_threshold", "",
         "how many elements may stay whole", kPlanned) |
        Also("model_persistence_threshold"),
    Size("zero_optimization.stage3_max_live_parameters", "1e9",
         "elements that may be there at once", kPlanned) |
        Also("max_live_parameters"),
    Size("zero_optimization.stage3_max_reuse_distance", "1e9",
         "how soon a parameter must be needed again to stay", kPlanned) |
        Also("max_reuse_distance"),
    Integer("zero_optimization.stage3_module_granularity_threshold", "0",
            "smaller modules are fetched as one") |
        NoEffect(kPlanned) | Also("module_granularity_threshold"),
    Switch("zero_optimization.stage3_use_all_reduce_for_fetch_params", "false",
           "another way to gather", kNoGather) |
        Also("use_all_reduce_for_fetch_params"),
    Switch("zero_optimization.stage3_allgather_sequential", "false", "gathers one by one",
           kNoGather) |
        Also("allgather_sequential"),
    Bool("zero_optimization.legacy_stage1", "false", "an old stage 1: true is an error above 0") |
        DeepSpeed("the same, when its engine is built"),
    Switch("zero_optimization.parameter_alignment", "false", "parts begin at 16 bytes",
           "payload always begins at a cache line"),
    Size("zero_optimization.zero_hpz_partition_size", "1", "a second copy within each node",
         "hpZ shortens gathers between nodes; on a ring each hop goes to a neighbour"),
    Switch("zero_optimization.zero_quantized_weights", "false", "int8 in gathers", kNoQuantizing),
    Switch("zero_optimization.zero_quantized_nontrainable_weights", "false", "int8 in gathers",
           kNoQuantizing),
    Switch("zero_optimization.zero_quantized_gradients", "false", "int4 in sums", kNoQuantizing),
    Switch("zero_optimization.memory_efficient_linear", "true", "a Linear that keeps less",
           "a stage's parameters are swapped under autograd, which so keeps no copies"),
    Switch("zero_optimization.pipeline_loading_checkpoint", "false", "read while copying",
           "there are no checkpoints yet"),
    Switch("zero_optimization.override_module_apply", "true", "gathers in Module.apply", kNoGather),
    Switch("zero_optimization.log_trace_cache_warnings", "false", "warn of changing traces",
           kNoTrace),
    Switch("zero_optimization.enable_sanity_checks", "false", "more checks of gathers",
           "the plan is verified before every run"),
    Switch("zero_optimization.save_muon_momentum_buffer_in_memory", "false", "of Muon",
           "an owner keeps all its moments in memory"),

    Section("zero_optimization.zenflow", "updates the most important gradients first") |
        Absent::kStaysAbsent | kOrNull |
        NoEffect("every gradient is summed whole, on its way around the ring"),
    Number("zero_optimization.zenflow.topk_ratio", "0.1", "share of important gradients") |
        KeyRange{.min = 0, .max = 1, .open_min = true, .open_max = true},
    Text("zero_optimization.zenflow.select_strategy", "\"auto\"", "when they are chosen") |
        Exact("auto|step|epoch"),
    Integer("zero_optimization.zenflow.select_interval", "", "how often they are chosen"),
    Integer("zero_optimization.zenflow.update_interval", "", "how often the others update") |
        kPositive,
    Bool("zero_optimization.zenflow.overlap_step", "false", "update beside computing"),
    Bool("zero_optimization.zenflow.offload", "false", "keep them on the host"),
    Number("zero_optimization.zenflow.auto_ratio", "0.99", "threshold of \"auto\"") | kShare,
    Integer("zero_optimization.zenflow.full_warm_up_rounds", "0", "iterations without it"),
    Number("zero_optimization.zenflow.pt_reserved_cores_perc", "0.5", "cores for PyTorch") | kShare,
    Integer("zero_optimization.zenflow.steps_per_epoch", "", "iterations of an epoch") | kOrNull,

    Section("zero_optimization.leaf_module", "modules that are fetched as one") |
        Absent::kStaysAbsent | kOrNull | NoEffect(kPlanned),
    Key(KeyType::kStrings, "zero_optimization.leaf_module.classes", "", "by class"),
    Key(KeyType::kStrings, "zero_optimization.leaf_module.names", "", "by name"),
    Key(KeyType::kStrings, "zero_optimization.leaf_module.name_suffixes", "", "by suffix"),
};

}  // namespace

std::span<const KeySpec> ZeroKeys() { return kZeroKeys; }

}  // namespace ringzero::registry
