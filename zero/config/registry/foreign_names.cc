// Names of other programs: whose each is, and what to write here instead.
#include <span>

#include "absl/strings/string_view.h"
#include "zero/config/keys.h"

namespace ringzero {
namespace {

// Whose.
constexpr absl::string_view kHuggingFace = "HuggingFace";
constexpr absl::string_view kTorchtitan = "torchtitan";
constexpr absl::string_view kNanoGpt = "nanoGPT";
constexpr absl::string_view kMegatron = "Megatron";
constexpr absl::string_view kPyTorch = "PyTorch";
constexpr absl::string_view kNobody = "";  // people try it all the same

// Keys that several names mean, and hints that several names need.
constexpr absl::string_view kMicroBatchKey = "train_micro_batch_size_per_gpu";
constexpr absl::string_view kRateKey = "optimizer.params.lr";
constexpr absl::string_view kBetasKey = "optimizer.params.betas";
constexpr absl::string_view kWarmupKey = "scheduler.params.warmup_num_steps";
constexpr absl::string_view kLeastRateKey = "scheduler.params.min_lr_ratio";
constexpr absl::string_view kSumTypeKey = "data_types.grad_accum_dtype";
constexpr absl::string_view kRecomputeKey = "activation_checkpointing";
constexpr absl::string_view kNoKey = "";

constexpr absl::string_view kBoth = "a list of both";
constexpr absl::string_view kUpdates = "a number of updates, not a share";
constexpr absl::string_view kShareOfRate = "a share of optimizer.params.lr";
constexpr absl::string_view kOrFp16 = "or fp16.enabled";
constexpr absl::string_view kSamples = "a number of samples, not of batches";
constexpr absl::string_view kFourTimes = "the hidden layer is always 4 x model.dim wide";
constexpr absl::string_view kKept = "no activation is computed again yet";
constexpr absl::string_view kMetrics = "ringzero train --metrics FOLDER writes TensorBoard and CSV";
constexpr absl::string_view kFiles =
    "ringzero train --metrics FOLDER, --summary FILE and --dump-parameters FILE say what goes "
    "where";
constexpr absl::string_view kNoCheckpoints =
    "there are no checkpoints yet; --dump-parameters and --init write and read parameters";
constexpr absl::string_view kNotSplit = "layers are not split: every worker computes all of them";
constexpr absl::string_view kNotCompiled = "models are not compiled";

// One line per name: the name, whose it is, our key, and what the key's name does not say. Where
// there is no key, what to do instead.
constexpr ForeignName kForeignNames[] = {
    // How long.
    {"max_steps", kHuggingFace, "iterations"},
    {"num_train_epochs", kHuggingFace, "epochs"},
    {"training.steps", kTorchtitan, "iterations"},
    {"max_iters", kNanoGpt, "iterations"},
    {"train_iters", kMegatron, "iterations"},
    {"train_samples", kMegatron, "iterations", "the samples divided by train_batch_size"},

    // Batches.
    {"per_device_train_batch_size", kHuggingFace, kMicroBatchKey},
    {"per_device_eval_batch_size", kHuggingFace, "evaluation.batch_size"},
    {"training.local_batch_size", kTorchtitan, kMicroBatchKey},
    {"training.global_batch_size", kTorchtitan, "train_batch_size"},
    {"batch_size", kNanoGpt, kMicroBatchKey, "train_batch_size is that of a whole update"},
    {"micro_batch_size", kMegatron, kMicroBatchKey},
    {"global_batch_size", kMegatron, "train_batch_size"},

    // The model.
    {"num_hidden_layers", kHuggingFace, "model.layers"},
    {"num_attention_heads", kHuggingFace, "model.heads"},
    {"hidden_size", kHuggingFace, "model.dim"},
    {"intermediate_size", kHuggingFace, kNoKey, kFourTimes},
    {"max_position_embeddings", kHuggingFace, "model.seq"},
    {"n_positions", kHuggingFace, "model.seq"},
    {"vocab_size", kHuggingFace, "model.vocab"},
    {"tie_word_embeddings", kHuggingFace, "model.tied"},
    {"resid_pdrop", kHuggingFace, "model.dropout"},
    {"model_name_or_path", kHuggingFace, "model.type", "--init FILE reads its parameters"},
    {"model.name", kTorchtitan, "model.type"},
    {"model.flavor", kTorchtitan, kNoKey, "give model.layers, model.dim and model.heads"},
    {"training.seq_len", kTorchtitan, "model.seq"},
    {"n_layer", kNanoGpt, "model.layers"},
    {"n_head", kNanoGpt, "model.heads"},
    {"n_embd", kNanoGpt, "model.dim"},
    {"block_size", kNanoGpt, "model.seq"},
    {"num_layers", kMegatron, "model.layers"},
    {"ffn_hidden_size", kMegatron, kNoKey, kFourTimes},
    {"seq_length", kMegatron, "model.seq"},
    {"hidden_dropout", kMegatron, "model.dropout"},
    {"untie_embeddings_and_output_weights", kMegatron, "model.tied", "its opposite"},

    // Data.
    {"data_seed", kHuggingFace, "seed"},
    {"training.dataset", kTorchtitan, "data.path"},
    {"training.dataset_path", kTorchtitan, "data.path"},
    {"training.seed", kTorchtitan, "seed"},
    {"dataset", kNanoGpt, "data.path"},
    {"data_path", kMegatron, "data.path"},

    // The optimizer.
    {"optim", kHuggingFace, "optimizer.type"},
    {"learning_rate", kHuggingFace, kRateKey},
    {"adam_beta1", kHuggingFace, kBetasKey, kBoth},
    {"adam_beta2", kHuggingFace, kBetasKey, kBoth},
    {"adam_epsilon", kHuggingFace, "optimizer.params.eps"},
    {"correct_bias", kHuggingFace, "optimizer.params.bias_correction"},
    {"max_grad_norm", kHuggingFace, "gradient_clipping"},
    {"optimizer.name", kTorchtitan, "optimizer.type"},
    {"training.max_norm", kTorchtitan, "gradient_clipping"},
    {"weight_decay", kNanoGpt, "optimizer.params.weight_decay"},
    {"beta1", kNanoGpt, kBetasKey, kBoth},
    {"beta2", kNanoGpt, kBetasKey, kBoth},
    {"grad_clip", kNanoGpt, "gradient_clipping"},
    {"optimizer", kMegatron, "optimizer.type"},
    {"lr", kMegatron, kRateKey},
    {"adam_eps", kMegatron, "optimizer.params.eps"},
    {"sgd_momentum", kMegatron, "optimizer.params.momentum"},
    {"clip_grad", kMegatron, "gradient_clipping"},
    {"param_groups", kPyTorch, "optimizer.groups"},
    {"parameter_groups", kNobody, "optimizer.groups"},
    {"decays", kNobody, "optimizer.decay"},

    // The learning rate's curve.
    {"lr_scheduler_type", kHuggingFace, "scheduler.type"},
    {"warmup_steps", kHuggingFace, kWarmupKey},
    {"warmup_ratio", kHuggingFace, kWarmupKey, kUpdates},
    {"lr_scheduler.warmup_steps", kTorchtitan, kWarmupKey},
    {"lr_scheduler.decay_ratio", kTorchtitan, "scheduler.params.decay_num_steps", kUpdates},
    {"lr_scheduler.decay_type", kTorchtitan, "scheduler.params.decay_type"},
    {"lr_scheduler.lr_min", kTorchtitan, kLeastRateKey},
    {"lr_scheduler.min_lr_factor", kTorchtitan, kLeastRateKey},
    {"decay_lr", kNanoGpt, "scheduler", "without it the rate is constant"},
    {"warmup_iters", kNanoGpt, kWarmupKey},
    {"lr_decay_iters", kNanoGpt, "scheduler.params.total_num_steps"},
    {"min_lr", kNanoGpt, kLeastRateKey, kShareOfRate},
    {"lr_decay_style", kMegatron, "scheduler.type"},
    {"lr_warmup_iters", kMegatron, kWarmupKey},
    {"lr_warmup_fraction", kMegatron, kWarmupKey, kUpdates},

    // Number types.
    {"bf16", kHuggingFace, "bf16.enabled"},
    {"fp16", kHuggingFace, "fp16.enabled"},
    {"mixed_precision", kHuggingFace, "bf16.enabled", kOrFp16},
    {"training.mixed_precision_param", kTorchtitan, "bf16.enabled"},
    {"training.mixed_precision_reduce", kTorchtitan, kSumTypeKey},
    {"dtype", kNanoGpt, "bf16.enabled", kOrFp16},
    {"initial_loss_scale", kMegatron, "fp16.initial_scale_power", "the power of 2"},
    {"accumulate_allreduce_grads_in_fp32", kMegatron, kSumTypeKey},
    {"accumulate_grads_in_fp32", kNobody, kSumTypeKey},
    {"precision", "Lightning", "bf16.enabled", kOrFp16},

    // Evaluation and what is printed.
    {"eval_steps", kHuggingFace, "evaluation.every"},
    {"eval_strategy", kHuggingFace, "evaluation.every", "a number of iterations"},
    {"logging_steps", kHuggingFace, "steps_per_print"},
    {"logging_dir", kHuggingFace, "tensorboard.output_path"},
    {"report_to", kHuggingFace, "tensorboard.enabled", "or csv_monitor.enabled"},
    {"validation.freq", kTorchtitan, "evaluation.every"},
    {"validation.steps", kTorchtitan, "evaluation.samples", kSamples},
    {"metrics.log_freq", kTorchtitan, "steps_per_print"},
    {"metrics.enable_tensorboard", kTorchtitan, "tensorboard.enabled"},
    {"eval_interval", kNanoGpt, "evaluation.every"},
    {"eval_iters", kNanoGpt, "evaluation.samples", kSamples},
    {"log_interval", kNanoGpt, "steps_per_print"},
    {"wandb_log", kNanoGpt, kNoKey, kMetrics},
    {"wandb_project", kNanoGpt, kNoKey, kMetrics},
    {"tensorboard_dir", kMegatron, "tensorboard.output_path"},
    {"monitor", kNobody, "tensorboard"},
    {"monitor_config", kNobody, "tensorboard"},

    // Files.
    {"output_dir", kHuggingFace, kNoKey, kFiles},
    {"save_steps", kHuggingFace, kNoKey, kNoCheckpoints},
    {"save_strategy", kHuggingFace, kNoKey, kNoCheckpoints},
    {"resume_from_checkpoint", kHuggingFace, kNoKey, kNoCheckpoints},
    {"job.dump_folder", kTorchtitan, kNoKey, kFiles},
    {"checkpoint.interval", kTorchtitan, kNoKey, kNoCheckpoints},
    {"out_dir", kNanoGpt, kNoKey, kFiles},
    {"always_save_checkpoint", kNanoGpt, kNoKey, kNoCheckpoints},
    {"init_from", kNanoGpt, kNoKey, kNoCheckpoints},
    {"save_interval", kMegatron, kNoKey, kNoCheckpoints},

    // Workers and memory.
    {"fsdp", kHuggingFace, "zero_optimization.stage"},
    {"zero_stage", kHuggingFace, "zero_optimization.stage"},
    {"ddp_backend", kHuggingFace, "cyclic.transport"},
    {"gradient_checkpointing", kHuggingFace, kRecomputeKey, kKept},
    {"torch_compile", kHuggingFace, kNoKey, kNotCompiled},
    {"parallelism.data_parallel_shard_degree", kTorchtitan, "cyclic.workers"},
    {"parallelism.tensor_parallel_degree", kTorchtitan, kNoKey, kNotSplit},
    {"parallelism.pipeline_parallel_degree", kTorchtitan, kNoKey, kNotSplit},
    {"activation_checkpoint.mode", kTorchtitan, kRecomputeKey, kKept},
    {"training.compile", kTorchtitan, kNoKey, kNotCompiled},
    {"backend", kNanoGpt, "cyclic.transport"},
    {"compile", kNanoGpt, kNoKey, kNotCompiled},
    {"use_distributed_optimizer", kMegatron, "zero_optimization.stage"},
    {"distributed_backend", kMegatron, "cyclic.transport"},
    {"tensor_model_parallel_size", kMegatron, kNoKey, kNotSplit},
    {"pipeline_model_parallel_size", kMegatron, kNoKey, kNotSplit},
    {"recompute_granularity", kMegatron, kRecomputeKey, kKept},
    {"find_unused_parameters", kPyTorch, "zero_optimization.ignore_unused_parameters"},
    {"offload", kNobody, "zero_optimization.offload_optimizer"},
};

}  // namespace

std::span<const ForeignName> ForeignNames() { return kForeignNames; }

}  // namespace ringzero
