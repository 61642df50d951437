// The transformer's layers, costs and initial values.
#include <torch/nn/modules/normalization.h>

#include <cmath>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "integrations/torch/models/models.h"

namespace ringzero {
namespace {

torch::nn::LayerNorm MakeNorm(int64_t dim) {
  return torch::nn::LayerNorm(torch::nn::LayerNormOptions({dim}));
}

// "token" {vocab, dim} and "position" {seq, dim}.
class EmbeddingLayer final : public Layer {
 public:
  explicit EmbeddingLayer(const GptOptions& options)
      : token_(register_parameter("token", at::empty({options.vocab, options.dim}))),
        position_(register_parameter("position", at::empty({options.seq, options.dim}))),
        dropout_(register_module("dropout", std::make_shared<Dropout>(options.dropout))) {}

  TensorList forward(TensorList inputs) override {
    const at::Tensor& tokens = inputs[0];
    TORCH_CHECK(tokens.dim() == 2 && tokens.size(1) <= position_.size(0), "embedding: tokens ",
                tokens.sizes(), " instead of {batch, at most ", position_.size(0), "}");
    inputs[0] =
        dropout_->forward(at::embedding(token_, tokens) + position_.slice(0, 0, tokens.size(1)));
    return inputs;
  }

 private:
  at::Tensor token_;
  at::Tensor position_;
  std::shared_ptr<Dropout> dropout_;
};

// x + project(attention(norm(x))), each position looking at itself and those before it.
class AttentionLayer final : public Layer {
 public:
  explicit AttentionLayer(const GptOptions& o)
      : norm_(register_module("norm", MakeNorm(o.dim))),
        qkv_(register_module("qkv", std::make_shared<LinearPart>(o.dim, 3 * o.dim))),
        project_(register_module("project", std::make_shared<LinearPart>(o.dim, o.dim))),
        dropout_(register_module("dropout", std::make_shared<Dropout>(o.dropout))),
        heads_(o.heads) {}

  TensorList forward(TensorList inputs) override {
    const at::Tensor& x = inputs[0];
    const int64_t batch = x.size(0), length = x.size(1), dim = x.size(2);
    // {batch, length, 3, heads, dim/heads} -> three of {batch, heads, length, dim/heads}
    const at::Tensor qkv = qkv_->forward(norm_->forward(x))
                               .view({batch, length, 3, heads_, dim / heads_})
                               .permute({2, 0, 3, 1, 4});
    const at::Tensor mixed = at::scaled_dot_product_attention(
        qkv[0], qkv[1], qkv[2], /*attn_mask=*/{}, /*dropout_p=*/0.0, /*is_causal=*/true);
    const at::Tensor joined = mixed.transpose(1, 2).reshape({batch, length, dim});
    inputs[0] = x + dropout_->forward(project_->forward(joined));
    return inputs;
  }

 private:
  torch::nn::LayerNorm norm_;
  std::shared_ptr<LinearPart> qkv_;
  std::shared_ptr<LinearPart> project_;
  std::shared_ptr<Dropout> dropout_;
  int64_t heads_;
};

// x + project(gelu(expand(norm(x)))), four times as wide inside.
class MlpLayer final : public Layer {
 public:
  explicit MlpLayer(const GptOptions& o)
      : norm_(register_module("norm", MakeNorm(o.dim))),
        expand_(register_module("expand", std::make_shared<LinearPart>(o.dim, 4 * o.dim))),
        project_(register_module("project", std::make_shared<LinearPart>(4 * o.dim, o.dim))),
        dropout_(register_module("dropout", std::make_shared<Dropout>(o.dropout))) {}

  TensorList forward(TensorList inputs) override {
    const at::Tensor hidden = at::gelu(expand_->forward(norm_->forward(inputs[0])), "tanh");
    inputs[0] = inputs[0] + dropout_->forward(project_->forward(hidden));
    return inputs;
  }

 private:
  torch::nn::LayerNorm norm_;
  std::shared_ptr<LinearPart> expand_;
  std::shared_ptr<LinearPart> project_;
  std::shared_ptr<Dropout> dropout_;
};

// The final norm, then one matrix {vocab, dim} without bias.
class GptHead final : public Layer {
 public:
  explicit GptHead(const GptOptions& o)
      : norm_(register_module("norm", MakeNorm(o.dim))),
        weight_(register_parameter("weight", at::empty({o.vocab, o.dim}))) {}

  TensorList forward(TensorList inputs) override {
    return {Linear(norm_->forward(inputs[0]), weight_)};
  }

 private:
  torch::nn::LayerNorm norm_;
  at::Tensor weight_;
};

// As GPT-2: matrices N(0, 0.02), those that add to the residual stream smaller by 1/sqrt(2·layers).
auto Initializer(int64_t layers) {
  const double residual = 0.02 / std::sqrt(2.0 * static_cast<double>(layers));
  return [residual](const std::string& parameter, at::Tensor values, at::Generator generator) {
    if (values.dim() == 2) {
      values.normal_(0.0, parameter == "project.weight" ? residual : 0.02, generator);
    } else {
      StartAsIdentity(parameter, values);
    }
  };
}

// Costs are of a whole sequence. Attention's two products count all pairs of positions, not the
// half that the mask leaves, since that is what kernels compute or nearly so.
LayerCost AttentionCost(const GptOptions& o) {
  const LayerCost products = ProductCost(o.seq * o.dim * 4 * o.dim + 2 * o.seq * o.seq * o.dim);
  const LayerCost softmax = ElementwiseCost(5 * o.seq * o.seq * o.heads);
  return NormCost(o.seq * o.dim) + products + softmax + ElementwiseCost(o.seq * o.dim);
}

LayerCost MlpCost(const GptOptions& o) {
  const int64_t hidden = 4 * o.seq * o.dim;
  return NormCost(o.seq * o.dim) + ProductCost(2 * hidden * o.dim) +
         LayerCost{.forward = 8 * hidden, .backward = 12 * hidden} +  // GELU
         ElementwiseCost(o.seq * o.dim);
}

absl::Status CheckGpt(const GptOptions& options) {
  RZ_RETURN_IF_ERROR(CheckRange("model.layers", options.layers, 1, 1000));
  RZ_RETURN_IF_ERROR(CheckRange("model.dim", options.dim, 1, 1 << 16));
  RZ_RETURN_IF_ERROR(CheckRange("model.heads", options.heads, 1, options.dim));
  RZ_RETURN_IF_ERROR(CheckRange("model.vocab", options.vocab, 1, 1 << 24));
  RZ_RETURN_IF_ERROR(CheckRange("model.seq", options.seq, 1, 1 << 20));
  if (options.dim % options.heads != 0) {
    return InvalidArgument("model.dim is ", options.dim, ", which model.heads = ", options.heads,
                           " does not divide");
  }
  if (!(options.dropout >= 0 && options.dropout < 1)) {
    return InvalidArgument("model.dropout is ", options.dropout, ": wanted 0 to below 1");
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<LayerFactory>> MakeGpt(const GptOptions& options) {
  RZ_RETURN_IF_ERROR(CheckGpt(options));
  const int64_t elements = options.seq * options.dim;
  std::vector<LayerFactory> layers;
  const auto add = [&](std::string name, LayerCost cost, auto build) {
    layers.push_back({.name = std::move(name),
                      .build = std::move(build),
                      .cost = cost,
                      .initialize = Initializer(options.layers)});
  };
  add("embedding", {.forward = elements, .backward = 2 * elements},
      [=] { return std::make_shared<EmbeddingLayer>(options); });
  for (int64_t i = 0; i < options.layers; ++i) {
    add(absl::StrCat("block", i, ".attention"), AttentionCost(options),
        [=] { return std::make_shared<AttentionLayer>(options); });
    add(absl::StrCat("block", i, ".mlp"), MlpCost(options),
        [=] { return std::make_shared<MlpLayer>(options); });
  }
  add("head", NormCost(elements) + ProductCost(elements * options.vocab),
      [=] { return std::make_shared<GptHead>(options); });
  if (options.tied) layers.back().tied = {{.parameter = "weight", .target = "embedding.token"}};
  return layers;
}

}  // namespace ringzero
