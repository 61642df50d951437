// activation_checkpointing, aio and checkpoint.
#include "zero/config/registry/tables.h"

namespace ringzero::registry {
namespace {

constexpr KeySpec kMemoryKeys[] = {
    Section("activation_checkpointing", "activations computed again instead of kept") |
        Reading::kRaw |
        DeepSpeed("ignores unknown keys here; does nothing unless the model calls its functions"),
    Bool("activation_checkpointing.partition_activations", "false",
         "split kept activations over the workers that share a model") |
        Only("false"),
    Integer("activation_checkpointing.number_checkpoints", "", "how many are kept") | kCount |
        Quietly("all activations are kept, none is computed again"),
    Bool("activation_checkpointing.contiguous_memory_optimization", "false",
         "keep them in one buffer") |
        Only("false"),
    Bool("activation_checkpointing.cpu_checkpointing", "false", "keep them in host memory") |
        Only("false"),
    Bool("activation_checkpointing.synchronize_checkpoint_boundary", "false",
         "wait for the device at each") |
        Only("false"),
    Bool("activation_checkpointing.profile", "false", "print times") | Only("false"),

    Section("aio", "reads and writes of NVMe") | Reading::kRaw | kOrNull |
        DeepSpeed(kIgnoresUnknown),
    Integer("aio.block_size", "1048576", "bytes of one request") | kPositive,
    Integer("aio.queue_depth", "8", "requests at once") | kPositive,
    Integer("aio.intra_op_parallelism", "1", "threads per transfer") | kPositive |
        DeepSpeed("was thread_count, which it now ignores"),
    Bool("aio.single_submit", "false", "submit requests one by one"),
    Bool("aio.overlap_events", "true", "submit while others complete"),
    Bool("aio.use_gds", "false", "straight into the GPU") | Only("false"),

    Section("checkpoint", "how DeepSpeed writes checkpoints; there are none here yet") |
        Reading::kRaw | DeepSpeed(kIgnoresUnknown),
    Text("checkpoint.tag_validation", "\"WARN\"", "workers that name a checkpoint differently") |
        Choices("WARN|IGNORE|FAIL") | kNotNull | Quietly("there are no checkpoints yet"),
    Bool("checkpoint.load_universal", "false", "read DeepSpeed's universal format") | Only("false"),
    Bool("checkpoint.use_node_local_storage", "false", "each host keeps its own part") |
        Only("false"),
    Bool("checkpoint.checkpoint_serialization", "true", "torch.save's format") |
        Quietly("there are no checkpoints yet"),
    Section("checkpoint.parallel_write", "who writes"),
    Bool("checkpoint.parallel_write.pipeline_stage", "false", "all pipeline stages at once") |
        kNotAuto | kNotNull | Quietly("there are no checkpoints yet"),
    Section("checkpoint.writer", "DeepSpeed's writers of files") | kOrNull | Absent::kStaysAbsent |
        Quietly("there are no checkpoints yet"),
    Text("checkpoint.writer.type", "\"FAST\"", "which") | Choices("MOCK|PYTHON|FAST"),
    Integer("checkpoint.writer.io_buffer_size", "67108864", "bytes") | kPositive,
    Bool("checkpoint.writer.io_buffer_double", "true", "two of them"),
    Bool("checkpoint.writer.show_statistics", "false", "print how fast"),
    Text("checkpoint.writer.data_parallel", "", "who shares the work") | kOrNull |
        Choices("REPLICA|SOCKET|MACHINE"),
    Bool("checkpoint.writer.decoupled", "false", "write beside computing"),
    Integer("checkpoint.writer.io_multiplier", "1", "more of them") | kPositive,
    Any("datastates_ckpt", "", "an external writer of checkpoints") | Reading::kRaw |
        Only("false|null"),
};

}  // namespace

std::span<const KeySpec> MemoryKeys() { return kMemoryKeys; }

}  // namespace ringzero::registry
