// Keys that DeepSpeed or we have removed: refused, whatever their value.
#include "zero/config/registry/tables.h"

namespace ringzero::registry {
namespace {

constexpr KeySpec Gone(String path, String why) { return Any(path, "", "") | Removed(why); }

constexpr KeySpec kRemovedKeys[] = {
    Gone("amp", "use fp16, bf16 or torch_autocast"),
    Gone("compression_training", "the compression library is gone: the model would train whole"),
    Gone("curriculum_learning", "its place was data_efficiency.data_sampling"),
    Gone("eigenvalue", "it served quantize_training, which is gone too"),
    Gone("elasticity", "give the batch sizes themselves"),
    Gone("graph_harvesting", "there is nothing in its place"),
    Gone("nebula", "there are no checkpoints yet"),
    Gone("progressive_layer_drop", "there is nothing in its place"),
    Gone("quantize_training", "there is nothing in its place"),
    Gone("sparse_attention", "there is nothing in its place"),
    Gone("sparse_gradients", "gradients of embeddings are summed dense"),
    Gone("zero_optimization.mics_shard_size", "MiCS sharding is gone"),
    Gone("zero_optimization.mics_hierarchical_params_gather", "MiCS sharding is gone"),
    Gone("zero_optimization.zeropp_loco_param", "LoCo error feedback is gone"),
    Gone("aio.thread_count", "use aio.intra_op_parallelism"),
    Gone("compile.enabled", "the section's keys are others now, for example deepcompile"),
    Gone("compile.backend", "the section's keys are others now, for example deepcompile"),
    Gone("compile.kwargs", "the section's keys are others now, for example deepcompile"),
    Gone("cyclic.sum_windows",
         "leave it out: an update sums the micro-batches of its iteration, as \"iteration\" did; "
         "docs/studies/balanced-sum-windows.md tells what \"balanced\" was"),
};

}  // namespace

std::span<const KeySpec> RemovedKeys() { return kRemovedKeys; }

}  // namespace ringzero::registry
