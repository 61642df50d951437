// scheduler: DeepSpeed's five, by their exact names; torch's are known.
#include "zero/config/registry/tables.h"

namespace ringzero::registry {
namespace {

constexpr String kWarmups = "WarmupLR|WarmupDecayLR|WarmupCosineLR";
constexpr String kTotals = "WarmupDecayLR|WarmupCosineLR|Cosine|WarmupStableDecay";
constexpr String kDeepSpeeds = "WarmupLR|WarmupDecayLR|WarmupCosineLR|OneCycle|LRRangeTest";
constexpr String kPhases = "Cosine|WarmupStableDecay";
constexpr String kOurs =
    "WarmupLR|WarmupDecayLR|WarmupCosineLR|OneCycle|LRRangeTest|Cosine|WarmupStableDecay";
#define RINGZERO_TORCH_SCHEDULERS                                                                \
  "LambdaLR|MultiplicativeLR|StepLR|MultiStepLR|ConstantLR|LinearLR|ExponentialLR|SequentialLR|" \
  "CosineAnnealingLR|ChainedScheduler|ReduceLROnPlateau|CyclicLR|CosineAnnealingWarmRestarts|"   \
  "OneCycleLR|PolynomialLR"
constexpr String kTorch = RINGZERO_TORCH_SCHEDULERS;
constexpr String kAll =
    "WarmupLR|WarmupDecayLR|WarmupCosineLR|OneCycle|LRRangeTest|Cosine|"
    "WarmupStableDecay|" RINGZERO_TORCH_SCHEDULERS;

constexpr KeySpec kSchedulerKeys[] = {
    Section("scheduler", "the learning rate of each update") | Reading::kRaw |
        Absent::kStaysAbsent | kNotNull | DeepSpeed("ignores unknown keys beside type and params"),
    Text("scheduler.type", "", "which curve") | Exact(kAll) | Only(kOurs) | kNotAuto |
        DeepSpeed("takes torch.optim.lr_scheduler's names, too; has neither Cosine nor "
                  "WarmupStableDecay"),
    Section("scheduler.params", "its numbers") | kOrNull |
        DeepSpeed("an unknown one is a TypeError when the engine is built"),

    Rate("scheduler.params.warmup_min_lr", "0", "rate of the first two updates") | kNotNegative |
        Auto("0") | For("WarmupLR|WarmupDecayLR"),
    Rate("scheduler.params.warmup_max_lr", "", "rate after the warm-up; absent: the optimizer's") |
        kNotNegative | kOrNull | Auto("=optimizer.params.lr") | For("WarmupLR"),
    Rate("scheduler.params.warmup_max_lr", "0.001",
         "rate after the warm-up; null: the optimizer's") |
        kNotNegative | kOrNull | Auto("=optimizer.params.lr") | For("WarmupDecayLR"),
    Integer("scheduler.params.warmup_num_steps", "1000", "updates of the warm-up; 1 counts as 2") |
        kPositive | kNotNull | For(kWarmups) |
        DeepSpeed("the constructor's rate counts too: the first two updates run at the minimum; "
                  "1e3 is an error, as it is no int"),
    Integer("scheduler.params.warmup_num_steps", "0", "updates of the warm-up, a straight line") |
        kCount | kNotNull | For(kPhases),
    Integer("scheduler.params.decay_num_steps", "", "updates of the decay, the last ones") |
        kPositive | KeyNeed::kRequired | For("WarmupStableDecay"),
    Text("scheduler.params.decay_type", "\"linear\"", "curve of the decay; sqrt: 1 - sqrt(x)") |
        Exact("linear|cosine|sqrt") | For("WarmupStableDecay"),
    Number("scheduler.params.min_lr_ratio", "0", "share of the optimizer's rate at the end") |
        kShare | For(kPhases),
    Text("scheduler.params.warmup_type", "\"log\"", "curve of the warm-up") | Exact("log|linear") |
        For(kWarmups) | DeepSpeed("takes any other word for log, with a warning"),
    Integer("scheduler.params.total_num_steps", "", "updates until the rate is at its lowest") |
        kPositive | KeyNeed::kRequired | Auto("the run's length") | For(kTotals),
    Number(
        "scheduler.params.warmup_min_ratio", "0",
        "share of the optimizer's rate at which the warm-up begins; the first update runs at 0") |
        kNotNegative | For("WarmupCosineLR"),
    Number("scheduler.params.cos_min_ratio", "0.0001", "share of it at the end") | kNotNegative |
        For("WarmupCosineLR"),

    Rate("scheduler.params.cycle_min_lr", "", "lowest rate of the cycle") | kNotNegative |
        KeyNeed::kRequired | For("OneCycle"),
    Rate("scheduler.params.cycle_max_lr", "", "highest rate of the cycle") | kNotNegative |
        KeyNeed::kRequired | For("OneCycle"),
    Number("scheduler.params.decay_lr_rate", "0", "decay of the rate after the cycle") |
        kNotNegative | For("OneCycle"),
    Number("scheduler.params.cycle_first_step_size", "2000", "updates from lowest to highest") |
        kAboveZero | For("OneCycle"),
    Number("scheduler.params.cycle_second_step_size", "",
           "updates from highest to lowest; absent: as many") |
        kNotNegative | kOrNull | For("OneCycle"),
    Integer("scheduler.params.cycle_first_stair_count", "0", "stairs on the way up; 0: none") |
        kCount | For("OneCycle"),
    Integer("scheduler.params.cycle_second_stair_count", "",
            "stairs on the way down; absent: as many") |
        kCount | kOrNull | For("OneCycle"),
    Number("scheduler.params.decay_step_size", "0", "updates per decay; 0: no decay") |
        kNotNegative | For("OneCycle"),
    Bool("scheduler.params.cycle_momentum", "true",
         "beta1 cycles against the rate, and beta2 is 0.99 (optimizers with betas)") |
        For("OneCycle"),
    Number("scheduler.params.cycle_min_mom", "0.8", "lowest beta1") | kBelowOne | For("OneCycle"),
    Number("scheduler.params.cycle_max_mom", "0.9", "highest beta1") | kBelowOne | For("OneCycle"),
    Number("scheduler.params.decay_mom_rate", "0", "growth of beta1 after the cycle") |
        kNotNegative | For("OneCycle"),

    Rate("scheduler.params.lr_range_test_min_lr", "0.001", "rate at the start") | kNotNegative |
        For("LRRangeTest"),
    Integer("scheduler.params.lr_range_test_step_size", "2000", "updates per step") | kPositive |
        For("LRRangeTest"),
    Number("scheduler.params.lr_range_test_step_rate", "1", "growth per step") | kNotNegative |
        For("LRRangeTest"),
    Bool("scheduler.params.lr_range_test_staircase", "false", "grow in stairs") |
        For("LRRangeTest"),

    Integer("scheduler.params.last_batch_iteration", "-1", "where it continues") |
        For(kDeepSpeeds) | KeyRange{.min = -1, .max = 2147483647} | Only("-1"),
    Any("scheduler.params.*", "", "what that class takes, unchecked") | For(kTorch),
};

}  // namespace

std::span<const KeySpec> SchedulerKeys() { return kSchedulerKeys; }

}  // namespace ringzero::registry
