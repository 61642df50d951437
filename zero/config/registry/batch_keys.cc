// Keys at DeepSpeed's top level that hold one value: batch sizes, gradients, what is printed.
#include "zero/config/registry/tables.h"

namespace ringzero::registry {
namespace {

constexpr String kReducesNothing =
    "nothing is gathered from all workers: stages go around the ring";

constexpr KeySpec kBatchKeys[] = {
    // The batch triple: two of them and the number of workers give the third.
    Integer("train_batch_size", "", "samples per update: micro-batch x accumulation x workers") |
        kPositive | Auto("the batch triple"),
    Integer("train_micro_batch_size_per_gpu", "",
            "samples per forward and backward of one worker") |
        kPositive | Auto("the batch triple"),
    Integer("gradient_accumulation_steps", "", "K: micro-batches per worker and update") |
        kPositive | Auto("the batch triple"),
    Bool("managed_gradient_accumulation", "true",
         "the engine, not the user's loop, ends an iteration after K laps") |
        Only("true"),

    Number("gradient_clipping", "1",
           "greatest norm of a gradient, which is scaled down to it; 0 or less: off") |
        kBoolIsNumber |
        DeepSpeed("the same default (since 0.19). true counts as 1; below 0 is off, here, too"),
    Text("communication_data_type", "",
         "type in which gradients travel; absent: fp32, as they are summed") |
        Choices("fp32|fp16|bf16") | Only("fp32") | kNotAuto |
        DeepSpeed("absent: the type of the gradients"),
    Text("seq_parallel_communication_data_type", "\"fp32\"",
         "type of what sequence parallelism exchanges") |
        Choices("fp32|fp16|bf16") | kNotAuto | NoEffect("sequences are not split over workers"),
    Bool("prescale_gradients", "false", "divide gradients before they are summed") | Only("false") |
        DeepSpeed("refused by its engine in stages 2 and 3 with reduce_scatter"),
    Number("gradient_predivide_factor", "1",
           "with prescale_gradients: divide by it before the sum, by the rest after") |
        kAboveZero | Only("1"),
    Text("gradient_allreduce_op", "\"mean\"", "mean or sum of the workers' gradients") |
        Choices("mean|sum") | Only("mean") | kNotAuto | kNotNull,

    Number("allgather_size", "500000000", "bucket of the gather that zero_optimization true does") |
        NoEffect(kReducesNothing),
    Bool("disable_allgather", "false", "broadcasts instead of a gather") |
        NoEffect(kReducesNothing) | DeepSpeed("reads it and uses it nowhere"),
    Bool("zero_allow_untested_optimizer", "false", "lifts a check of DeepSpeed's") |
        NoEffect("every optimizer that is built here works with every stage"),
    Bool("zero_force_ds_cpu_optimizer", "true", "lifts a check of DeepSpeed's") |
        NoEffect("the owner's update is always this engine's own"),
    Bool("disable_python_gc", "false", "stops Python's collector of cycles") |
        NoEffect("there is no Python in a run"),
    Bool("use_data_before_expert_parallelism", "false", "order of the process groups") |
        NoEffect("there are no groups of experts"),
    Integer("sequence_parallel_size", "", "workers that share a sequence") | kPositive | kNotNull |
        Only("1"),
    Integer("data_parallel_size", "", "workers that have a micro-batch each") | kPositive |
        NoEffect("every worker has its own micro-batches: cyclic.workers says how many there are"),
    Integer("vocabulary_size", "", "only warns when it is not a multiple of 8") |
        Quietly("model.vocab is the model's own"),

    Integer("steps_per_print", "0",
            "iterations between two progress lines of a log; 0: about every 10 s") |
        kNotNegative | DeepSpeed("null (since 0.19): no such line; 0 is a division by zero"),
    Bool("wall_clock_breakdown", "false", "print times by part") | Only("false") | kNotNull,
    Bool("memory_breakdown", "false", "print memory by part") | Only("false"),
    Bool("dump_state", "false", "print the engine's state at its start") | Only("false"),
    Text("log_level", "", "what is logged") | Choices("debug|info|warning|error|critical") |
        Quietly("messages of a run are few and all of them matter"),
    Bool("dataloader_drop_last", "false",
         "leave out an epoch's last, incomplete batch; else an update is made from its samples") |
        DeepSpeed("without it: the next epoch's first micro-batches complete the batch, and a "
                  "smaller micro-batch weighs as much as the others"),
};

}  // namespace

std::span<const KeySpec> BatchKeys() { return kBatchKeys; }

}  // namespace ringzero::registry
