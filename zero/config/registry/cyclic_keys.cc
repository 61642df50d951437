// Keys of ours: the ring, and evaluation.
#include "zero/config/registry/tables.h"

namespace ringzero::registry {
namespace {

constexpr KeySpec kCyclicKeys[] = {
    Section("evaluation", "accuracy or perplexity on held-out samples") | Reading::kOurs,
    Integer("evaluation.every", "", "iterations between two; 0: never; absent: once, at the end") |
        kCount,
    Integer("evaluation.batch_size", "", "samples per worker and lap; absent: the micro-batch") |
        kPositive,
    Integer("evaluation.samples", "0", "only the first so many; 0: all") | kCount,

    Section("cyclic", "the ring") | Reading::kOurs,
    Text("cyclic.rule", "\"dp\"",
         "which version a micro-batch reads; dp: the newest, as DeepSpeed does") |
        Choices("dp|cdp_v1|cdp_v2"),
    Integer("cyclic.slack", "",
            "cdp_v2 alone: ticks between an update and its first fresh read; absent: 1, or 0 if "
            "strict") |
        kCount,
    Bool("cyclic.predict", "false",
         "cdp_v1, cdp_v2 with SGD and momentum: what would be read stale is a prediction of the "
         "newest version"),
    Bool("cyclic.strict", "",
         "cdp_v2: nobody reads what an iteration's sums make before all of them are complete; "
         "absent: where exact clipping needs it"),
    Text("cyclic.clipping", "\"exact\"",
         "gradient_clipping by the global norm of the same iteration, by each stage's own, or by "
         "the global one of the iteration before") |
        Choices("exact|per_stage|previous"),
    Integer("cyclic.stages", "0",
            "S; 0: k x workers with the largest k <= 4 that the layers allow") |
        kCount,
    Integer("cyclic.workers", "4", "N; absent: 4, or what the batch sizes leave room for") |
        KeyRange{.min = 1, .max = 1024},
    Text("cyclic.transport", "\"auto\"",
         "what carries messages: shm within a host, ucx also between hosts, nccl between GPUs, "
         "auto by the workers' places; local: a thread per worker") |
        Choices("auto|local|shm|ucx|nccl"),
    Integer("cyclic.window", "0",
            "W, messages of credit per channel; 0: the plan chooses, over shm and local as many as "
            "the step needs") |
        kCount,
    Integer("cyclic.pending", "1", "gradients that may wait for their sum") | kPositive,
    Bool("cyclic.stagger", "false",
         "keep workers 1/N of a lap apart, operation by operation, so that the activations of "
         "all together stay level"),
    Integer("cyclic.retain", "0", "last stages that keep their forward copy for the backward") |
        kCount,
    Bool("cyclic.exchange", "true",
         "false: compute only, no exchange and no update (for measuring)"),
    Bool("cyclic.track_activations", "false",
         "the summary lists each worker's bytes of tensors after every stage (for measuring)"),
    Bool("cyclic.flight_recorder", "true",
         "false: nothing is recorded for flight records and the report's schedule (for measuring)"),
    Text("cyclic.balance", "\"cost\"", "stages of equal cost or of equal bytes") |
        Choices("cost|bytes"),
    Key(KeyType::kIntegerList, "cyclic.boundaries", "",
        "first layer of each stage, by hand; the first is 0; absent: by balance") |
        kCount | kNotEmpty,
    Text("cyclic.profile", "",
         "file of measured costs, frozen by `ringzero plan --profile FILE --freeze`, that make the "
         "plan instead of counted FLOPs: the same file for every worker"),
    Integer("cyclic.threads", "1", "computing threads per worker; part of the bits") |
        KeyRange{.min = 1, .max = 1024},
    Bool("cyclic.products_first", "false",
         "true: a matrix's gradient is always a product first, then added; false: where its sum "
         "has come, the product adds itself, on shapes where that gives the same bits"),
    Number("cyclic.wait_timeout", "600", "seconds that one wait may take before the run ends") |
        KeyRange{.min = 0, .max = 1e6, .open_min = true},
    Number("cyclic.peer_timeout", "5",
           "seconds without a sign of life after which a worker is lost") |
        KeyRange{.min = 0.1, .max = 1e6},
    Text(
        "cyclic.on_nonfinite", "\"warn\"",
        "a loss or a gradient norm that is not finite: warn, or stop, which ends the run with exit "
        "code 6") |
        Choices("warn|stop"),
    Bool("cyclic.checksums", "false",
         "check every payload where it arrives; costs two passes over what travels"),
    Section("cyclic.wire", "types of what travels"),
    Text("cyclic.wire.parameters", "",
         "of parameters; absent: the type that computes, and no other yet") |
        Choices("fp32|bf16|fp16"),
    Text("cyclic.wire.sums", "",
         "of gradient sums; absent: data_types.grad_accum_dtype; bf16 sums are rounded "
         "stochastically") |
        Choices("fp32|bf16"),
    Section("cyclic.memory_budget",
            "what a run may take of each host; it does not begin if it needs more"),
    Bytes("cyclic.memory_budget.host", "",
          "of the host's memory; absent: what is free, within the limit of its cgroup") |
        KeyRange{.min = 1},
    Bytes("cyclic.memory_budget.device", "", "of GPUs' memory; absent: not looked at") |
        KeyRange{.min = 1},
    Bytes("cyclic.memory_budget.disk", "", "of disks; absent: not looked at") | KeyRange{.min = 1},
    Section("cyclic.inject", "one fault, on purpose") | KeyState::kTesting,
    Integer("cyclic.inject.worker", "", "whose fault") | kCount | KeyState::kTesting,
    Text("cyclic.inject.action", "",
         "what happens: SIGKILL, SIGSTOP, a flipped bit, computing 10 times slower or never") |
        Choices("kill|stop|flip|slow|hang") | KeyState::kTesting,
    Text("cyclic.inject.at", "", "where in the run") |
        Choices("plan|start|connect|message|lap|finish|end") | KeyState::kTesting,
    Integer("cyclic.inject.number", "", "which message or lap, from 1") | kPositive |
        KeyState::kTesting,
    Number("cyclic.inject.delay", "", "seconds that every message takes longer") |
        KeyRange{.min = 0, .max = 100} | KeyState::kTesting,
    Number("cyclic.inject.update_slowness", "", "how many times as long every update takes") |
        KeyRange{.min = 1, .max = 1000} | KeyState::kTesting,
    Key(KeyType::kIntegerList, "cyclic.inject.overflows", "",
        "gradients made infinite: iteration, stage and micro-batch, from 0, three for each") |
        KeyState::kTesting,
    Integer("cyclic.inject.seed", "", "chooses the bit") | kCount | KeyState::kTesting,
};

}  // namespace

std::span<const KeySpec> CyclicKeys() { return kCyclicKeys; }

}  // namespace ringzero::registry
