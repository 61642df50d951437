// Keys of DeepSpeed's (0.19) that we know and refuse: not built yet, or removed there too.
#include "zero/config/keys.h"

namespace ringzero {
namespace {

constexpr absl::string_view kNotBuilt[] = {
    "optimizer.params.torch_adam",
    "optimizer.legacy_fusion",
    "scheduler",
    "communication_data_type",
    "seq_parallel_communication_data_type",
    "gradient_predivide_factor",
    "sparse_gradients",
    "disable_allgather",
    "dump_state",
    "memory_breakdown",
    "data_types",
    "grad_accum_dtype",
    "bfloat16",
    "torch_autocast",
    "zero_allow_untested_optimizer",
    "zero_force_ds_cpu_optimizer",
    "use_data_before_expert_parallelism",
    "use_node_local_storage",
    "aio",
    "activation_checkpointing",
    "checkpoint",
    "tensorboard",
    "csv_monitor",
    "wandb",
    "comet",
    "comms_logger",
    "flops_profiler",
    "autotuning",
    "pipeline",
    "inference",
    "tensor_parallel",
    "sequence_parallel_size",
    "sparse_attention",
    "data_efficiency",
    "curriculum_learning",
    "hybrid_engine",
    "eigenvalue",
    "weight_quantization",
    "compile",
    "timers",
    "dataloader_drop_last",
    "graph_harvesting",
    "checkpoint_parallel_write_pipeline",
    "fp16.auto_cast",
    "fp16.loss_scale",
    "fp16.initial_scale_power",
    "fp16.loss_scale_window",
    "fp16.hysteresis",
    "fp16.consecutive_hysteresis",
    "fp16.min_loss_scale",
    "fp16.fp16_master_weights_and_grads",
    "bf16.immediate_grad_update",
    "bf16.check_grad_overflow",
    "bf16.bf16_master_weights_and_grads",
    "bf16.bf16_optimizer_states",
    "zero_optimization.contiguous_gradients",
    "zero_optimization.reduce_scatter",
    "zero_optimization.reduce_bucket_size",
    "zero_optimization.use_multi_rank_bucket_allreduce",
    "zero_optimization.allgather_partitions",
    "zero_optimization.allgather_bucket_size",
    "zero_optimization.overlap_comm",
    "zero_optimization.load_from_fp32_weights",
    "zero_optimization.elastic_checkpoint",
    "zero_optimization.offload_param",
    "zero_optimization.offload_optimizer",
    "zero_optimization.cpu_offload",
    "zero_optimization.cpu_offload_param",
    "zero_optimization.cpu_offload_use_pin_memory",
    "zero_optimization.sub_group_size",
    "zero_optimization.stage3_max_live_parameters",
    "zero_optimization.stage3_max_reuse_distance",
    "zero_optimization.stage3_prefetch_bucket_size",
    "zero_optimization.stage3_param_persistence_threshold",
    "zero_optimization.stage3_model_persistence_threshold",
    "zero_optimization.stage3_gather_16bit_weights_on_model_save",
    "zero_optimization.stage3_module_granularity_threshold",
    "zero_optimization.stage3_use_all_reduce_for_fetch_params",
    "zero_optimization.use_all_reduce_for_fetch_params",
    "zero_optimization.ignore_unused_parameters",
    "zero_optimization.legacy_stage1",
    "zero_optimization.round_robin_gradients",
    "zero_optimization.zero_hpz_partition_size",
    "zero_optimization.zero_quantized_weights",
    "zero_optimization.zero_quantized_nontrainable_weights",
    "zero_optimization.zero_quantized_gradients",
    "zero_optimization.memory_efficient_linear",
    "zero_optimization.pipeline_loading_checkpoint",
    "zero_optimization.override_module_apply",
    "zero_optimization.log_trace_cache_warnings",
};

constexpr absl::string_view kRemoved[] = {
    "amp",
    "nebula",
    "elasticity",
    "compression_training",
    "quantize_training",
    "progressive_layer_drop",
    "zero_optimization.mics_shard_size",
    "zero_optimization.mics_hierarchical_params_gather",
};

}  // namespace

std::vector<KeySpec> RefusedKeys() {
  std::vector<KeySpec> keys;
  for (absl::string_view path : kNotBuilt) {
    keys.push_back({.path = path, .state = KeyState::kNotBuilt});
  }
  for (absl::string_view path : kRemoved) {
    keys.push_back({.path = path, .state = KeyState::kRemoved});
  }
  return keys;
}

}  // namespace ringzero
