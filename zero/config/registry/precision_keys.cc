// fp16, bf16 (also by its old name), torch_autocast and data_types.
#include "zero/config/registry/tables.h"

namespace ringzero::registry {
namespace {

constexpr String kTypes =
    "torch.float16|fp16|float16|half|torch.float32|fp32|float32|float|torch.bfloat16|bf16|"
    "bfloat16|torch.int8|int8";
constexpr String kSingle = "torch.float32|fp32|float32|float";
constexpr String kSums = "torch.float32|fp32|float32|float|torch.bfloat16|bf16|bfloat16";

constexpr KeySpec kPrecisionKeys[] = {
    Section("fp16", "half precision with a loss scale") | Reading::kStrict,
    Bool("fp16.enabled", "false", "compute in fp16") | Auto("false"),
    Bool("fp16.auto_cast", "false", "cast a model's inputs to half") |
        Quietly("floating inputs are always cast to the type that computes"),
    Number("fp16.loss_scale", "0", "a fixed loss scale; 0: a dynamic one") | kNotNegative | kNoBool,
    Integer("fp16.initial_scale_power", "16",
            "the dynamic scale begins at 2 to this power; a run takes -126 to 127"),
    Integer("fp16.loss_scale_window", "1000", "updates without overflow after which it doubles") |
        kNoBool | DeepSpeed("checks that it is positive only where fp16 is on and dynamic"),
    Integer("fp16.hysteresis", "2", "overflows before the scale is halved") |
        DeepSpeed("0 and less: the scale is never lowered. In zero_optimization.stage 0 it does "
                  "nothing: each overflow halves the scale. Here, too"),
    Bool("fp16.consecutive_hysteresis", "false", "a good update makes the hysteresis whole again") |
        Only("false|true") | DeepSpeed("does nothing in zero_optimization.stage 0; here, too"),
    Integer("fp16.min_loss_scale", "1", "the dynamic scale's floor") | kNoBool |
        DeepSpeed("an integer even where fp16 is off: 0.5 is an error; positive only where on. An "
                  "overflow there ends the run; in zero_optimization.stage 0 it is skipped as all "
                  "are; here, too"),
    Bool("fp16.fp16_master_weights_and_grads", "false", "the owner's masters are fp16, too") |
        Only("false"),

    Section("bf16", "bfloat16 for computing, fp32 for masters") | Reading::kStrict | kOrNull |
        Also("bfloat16"),
    Bool("bf16.enabled", "false", "compute in bf16") | Auto("false"),
    Bool("bf16.immediate_grad_update", "false", "add gradients to fp32 sums as they come") |
        Only("false|true") | DeepSpeed("false: they are first added in bf16"),
    Bool("bf16.check_grad_overflow", "true", "skip an update whose gradients are not finite") |
        Only("false|true"),
    Bool("bf16.bf16_master_weights_and_grads", "false", "the owner's masters are bf16, too") |
        Only("false"),
    Bool("bf16.bf16_optimizer_states", "false", "the owner's moments are bf16, too") |
        Only("false"),

    Section("torch_autocast", "PyTorch's choice of a type per operation") | Reading::kRaw |
        Absent::kStaysAbsent,
    Bool("torch_autocast.enabled", "false", "run forwards under autocast") | Only("false") |
        kOutside,
    Text("torch_autocast.dtype", "", "its type") | Exact(kTypes) | kNotNull |
        DeepSpeed("ignores unknown keys here; one of its own names is an error from Enum"),
    Key(KeyType::kStringList, "torch_autocast.lower_precision_safe_modules", "",
        "modules that may run in the lower precision") |
        kNotNull,

    Section("data_types", "types of what the engine keeps") | Reading::kRaw,
    Text("data_types.grad_accum_dtype", "",
         "type of gradient sums; absent: fp32; bf16 sums are rounded stochastically") |
        Exact(kTypes) | Only(kSums) | DeepSpeed("ignores unknown keys here; absent: the model's"),
    Text("data_types.param_dtype", "", "type of the model's parameters; absent: fp32") |
        Exact(kTypes) | Only(kSingle),
    Text("data_types.buffer_dtype", "", "type of the model's buffers; absent: fp32") |
        Exact(kTypes) | Only(kSingle),
    Key(KeyType::kStringList, "data_types.keep_in_fp32_modules", "", "modules that stay in fp32") |
        kNotNull | Quietly("all masters are fp32"),
};

}  // namespace

std::span<const KeySpec> PrecisionKeys() { return kPrecisionKeys; }

}  // namespace ringzero::registry
