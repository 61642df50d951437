// What DeepSpeed has besides: known, checked, and far from a ring.
#include "zero/config/registry/tables.h"

namespace ringzero::registry {
namespace {

constexpr String kTuner = "an external tuner's keys: this engine plans before it runs";
constexpr String kPipeline = "there are no pipeline stages: every worker computes every stage";

constexpr KeySpec Detail(String path) { return Any(path, "", "a detail; not looked at"); }

constexpr KeySpec kOtherKeys[] = {
    Section("autotuning", "DeepSpeed's search for fast settings") | Reading::kRaw |
        NoEffect(kTuner) | DeepSpeed("ignores unknown keys here; when on, a run ends after it"),
    Bool("autotuning.enabled", "false", "search"),
    Bool("autotuning.fast", "true", "only some settings"),
    Text("autotuning.results_dir", "\"autotuning_results\"", "folder") | kNotNull,
    Text("autotuning.exps_dir", "\"autotuning_exps\"", "folder") | kNotNull,
    Bool("autotuning.overwrite", "true", "anew"),
    Integer("autotuning.start_profile_step", "3", "first iteration measured"),
    Integer("autotuning.end_profile_step", "5", "last one"),
    Text("autotuning.metric", "\"throughput\"", "what is to be best"),
    Text("autotuning.metric_path", "", "file with it"),
    Text("autotuning.tuner_type", "\"gridsearch\"", "how"),
    Integer("autotuning.tuner_early_stopping", "5", "tries without progress"),
    Integer("autotuning.tuner_num_trials", "50", "tries"),
    Key(KeyType::kObject, "autotuning.arg_mappings", "",
        "keys to a program's options; not looked at"),
    Key(KeyType::kObject, "autotuning.model_info", "", "sizes of the model; not looked at"),
    Text("autotuning.model_info_path", "", "file with them"),
    Integer("autotuning.mp_size", "1", "workers that share a model"),
    Integer("autotuning.max_train_batch_size", "", "limit"),
    Integer("autotuning.min_train_batch_size", "1", "limit"),
    Integer("autotuning.max_train_micro_batch_size_per_gpu", "1024", "limit"),
    Integer("autotuning.min_train_micro_batch_size_per_gpu", "1", "limit"),
    Integer("autotuning.num_tuning_micro_batch_sizes", "3", "how many are tried"),

    Section("hybrid_engine", "generation between updates") | Reading::kStrict |
        Absent::kStaysAbsent,
    Bool("hybrid_engine.enabled", "false", "use it") | Only("false") | kOutside,
    Integer("hybrid_engine.max_out_tokens", "512", "tokens") | kAboveZero,
    Integer("hybrid_engine.inference_tp_size", "1", "workers that share a layer"),
    Bool("hybrid_engine.release_inference_cache", "false", "free its cache"),
    Bool("hybrid_engine.pin_parameters", "true", "keep parameters"),
    Integer("hybrid_engine.tp_gather_partition_size", "8", "gathered at once"),
    Bool("hybrid_engine.enable_cuda_graph", "false", "CUDA graphs"),

    Section("pipeline", "DeepSpeed's pipeline engine") | Reading::kRaw | NoEffect(kPipeline),
    Any("pipeline.stages", "", "how many"),
    Text("pipeline.partition", "\"best\"", "how layers are shared"),
    Bool("pipeline.seed_layers", "false", "a seed per layer"),
    Integer("pipeline.activation_checkpoint_interval", "0", "layers between two"),
    Bool("pipeline.pipe_partitioned", "true", "split activations"),
    Bool("pipeline.grad_partitioned", "true", "split gradients"),
    Bool("pipeline.use_reentrant", "true", "PyTorch's old recomputation"),

    Section("tensor_parallel", "layers shared by workers") | Reading::kStrict |
        Absent::kStaysAbsent,
    Any("tensor_parallel.dtype", "", "a type; DeepSpeed takes no JSON value but \"auto\""),
    Integer("tensor_parallel.autotp_size", "0", "workers that share a layer") | Only("0|1") |
        kOutside,
    Bool("tensor_parallel.tp_overlap_comm", "false", "exchange beside computing"),
    Bool("tensor_parallel.vocab_parallel_lm_head", "", "split the head") | kOrNull,
    Text("tensor_parallel.vocab_parallel_ce_backend", "", "whose loss") | Exact("torch|liger"),
    Section("tensor_parallel.tp", "sizes") | Also("tensor_parallel") | Absent::kStaysAbsent,
    Integer("tensor_parallel.tp.tp_size", "1", "workers that share a layer") | Only("0|1") |
        kOutside,
    Integer("tensor_parallel.tp.tp_grain_size", "1", "smallest part"),
    Any("tensor_parallel.tp.mpu", "", "a Python object"),
    Any("tensor_parallel.tp.tp_group", "", "a Python object"),
    Key(KeyType::kStringList, "tensor_parallel.injection_policy_tuple", "", "what is replaced") |
        kOrNull,
    Key(KeyType::kObject, "tensor_parallel.partition_config", "", "how layers are split") | kOrNull,
    Text("tensor_parallel.preset_model", "", "a known model") | kOrNull |
        Quietly("layers are not shared by workers"),
    Bool("tensor_parallel.keep_module_on_host", "false", "load on the host"),
    Bool("tensor_parallel.kernel_inject", "false", "replace kernels") | Only("false") | kOutside |
        Also("replace_with_kernel_inject"),

    Section("expert_parallel", "experts shared by workers") | Reading::kRaw | Absent::kStaysAbsent |
        DeepSpeed(kIgnoresUnknown),
    Bool("expert_parallel.enabled", "false", "use it") | Only("false") | kOutside,
    Detail("expert_parallel.autoep_size"),
    Detail("expert_parallel.expert_tensor_parallel_size"),
    Detail("expert_parallel.validate_folding_routing"),
    Detail("expert_parallel.async_split_plan"),
    Detail("expert_parallel.preset_model"),
    Detail("expert_parallel.moe_layer_pattern"),
    Detail("expert_parallel.expert_pattern"),
    Detail("expert_parallel.router_pattern"),
    Detail("expert_parallel.use_grouped_mm"),
    Detail("expert_parallel.disable_triton_grouped_mm"),
    Detail("expert_parallel.route_norm"),
    Detail("expert_parallel.route_scale"),
    Detail("expert_parallel.score_apply"),
    Detail("expert_parallel.combine_impl"),
    Detail("expert_parallel.row_weighting_impl"),
    Detail("expert_parallel.gate_up_impl"),
    Detail("expert_parallel.comm_backend"),
    Detail("expert_parallel.comm_num_sm"),
    Detail("expert_parallel.comm_qp_margin"),
    Detail("expert_parallel.comm_max_tokens_per_rank"),
    Detail("expert_parallel.num_expert_groups"),
    Detail("expert_parallel.num_limited_groups"),
    Detail("expert_parallel.score_func"),
    Detail("expert_parallel.top_k"),
    Detail("expert_parallel.load_balance_coeff"),
    Detail("expert_parallel.routed_scaling_factor"),
    Detail("expert_parallel.expert_w1"),
    Detail("expert_parallel.expert_w2"),
    Detail("expert_parallel.expert_w3"),
    Detail("expert_parallel.num_experts_attr"),
    Detail("expert_parallel.top_k_attr"),
    Detail("expert_parallel.has_shared_experts"),
    Detail("expert_parallel.shared_experts_pattern"),
    Detail("expert_parallel.shared_experts_gate_pattern"),
    Detail("expert_parallel.expert_activation"),

    Section("compile", "DeepCompile") | Reading::kStrict | Absent::kStaysAbsent,
    Bool("compile.deepcompile", "false", "use it") | Only("false") | kOutside,
    Bool("compile.autoep_non_moe", "false", "detail"),
    Bool("compile.free_activation", "false", "detail"),
    Integer("compile.free_activation_threshold", "10485760", "bytes"),
    Bool("compile.offload_activation", "false", "detail"),
    Bool("compile.offload_activation_pin_memory", "true", "detail"),
    Bool("compile.offload_opt_states", "false", "detail"),
    Bool("compile.double_buffer", "true", "detail"),
    Bool("compile.symmetric_memory", "false", "detail"),
    Bool("compile.debug_log", "false", "detail"),
    Bool("compile.offload_parameters", "false", "detail"),
    Bool("compile.sync_before_reduce", "false", "detail"),
    Bool("compile.sync_after_reduce", "false", "detail"),
    Bool("compile.sync_before_allgather", "false", "detail"),
    Bool("compile.sync_after_allgather", "false", "detail"),
    Bool("compile.keep_int_input_tensors", "true", "detail"),
    Bool("compile.keep_all_input_tensors", "false", "detail"),
    Key(KeyType::kStringList, "compile.passes", "", "passes by name") | kOrNull |
        Exact("z1|z3|autosp|autotp"),

    Section("data_efficiency", "sampling and routing of data") | Reading::kRaw |
        Absent::kStaysAbsent | DeepSpeed(kIgnoresUnknown),
    Bool("data_efficiency.enabled", "false", "use it") | Only("false") | kOutside,
    Integer("data_efficiency.seed", "1234", "of its sampling"),
    Key(KeyType::kObject, "data_efficiency.data_sampling", "", "its curriculum; not looked at") |
        kNotNull,
    Key(KeyType::kObject, "data_efficiency.data_routing", "", "its random_ltd; not looked at") |
        kNotNull,

    Section("weight_quantization", "for inference") | Reading::kStrict | Absent::kStaysAbsent,
    Bool("weight_quantization.enabled", "true", "use it"),
    Integer("weight_quantization.num_bits", "8", "bits"),
    Text("weight_quantization.q_type", "\"symmetric\"", "how") | Exact("symmetric|asymmetric"),
    Integer("weight_quantization.q_groups", "1", "groups"),
    Key(KeyType::kObject, "weight_quantization.quantized_initialization", "",
        "at loading; not looked at"),
    Key(KeyType::kObject, "weight_quantization.post_init_quant", "", "after it; not looked at"),
};

}  // namespace

std::span<const KeySpec> OtherKeys() { return kOtherKeys; }

}  // namespace ringzero::registry
