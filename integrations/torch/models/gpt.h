// GPT: a decoder-only transformer with learned positions and norms before each part (pre-norm).
//
//   GptOptions options = {.layers = 4, .dim = 128, .heads = 4, .vocab = 256, .seq = 128};
//   RZ_RETURN_IF_ERROR(CheckGpt(options));
//   std::vector<LayerFactory> layers = MakeGpt(options);   // 2 · 4 + 2 layers
//
// Layers: "embedding", for each of the blocks "block<i>.attention" and "block<i>.mlp", "head". Maps
// int64 tokens {batch, sequence} to logits {batch, sequence, vocab}; a sequence may be shorter than
// `seq`.
#ifndef RINGZERO_INTEGRATIONS_TORCH_MODELS_GPT_H_
#define RINGZERO_INTEGRATIONS_TORCH_MODELS_GPT_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "integrations/torch/layer_factory.h"

namespace ringzero {

struct GptOptions {
  int64_t layers = 4;  // blocks
  int64_t dim = 128;   // a multiple of heads
  int64_t heads = 4;
  int64_t vocab = 256;
  int64_t seq = 128;   // tokens: the most that positions are learned for
  bool tied = false;   // the head's matrix is the token embedding
  double dropout = 0;  // of the embedding and of what each part adds; 0 <= dropout < 1
};

// InvalidArgument names the key of the configuration: "model.heads …".
absl::Status CheckGpt(const GptOptions& options);

// Options must have passed CheckGpt. A tied head has a parameter "weight" that says so in
// LayerFactory::tied.
std::vector<LayerFactory> MakeGpt(const GptOptions& options);

}  // namespace ringzero

#endif  // RINGZERO_INTEGRATIONS_TORCH_MODELS_GPT_H_
