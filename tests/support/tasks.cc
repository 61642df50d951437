// Small models, written out.
#include "tests/support/tasks.h"

#include <torch/nn/modules.h>

#include <string>

#include "base/philox.h"

namespace ringzero {
namespace {

// conv-bn-relu-conv-bn plus its input.
struct ResidualImpl : torch::nn::Module {
  explicit ResidualImpl(int64_t width)
      : conv1(torch::nn::Conv2dOptions(width, width, 3).padding(1).bias(false)),
        bn1(width),
        conv2(torch::nn::Conv2dOptions(width, width, 3).padding(1).bias(false)),
        bn2(width) {
    register_module("conv1", conv1);
    register_module("bn1", bn1);
    register_module("conv2", conv2);
    register_module("bn2", bn2);
  }
  at::Tensor forward(at::Tensor x) {
    const at::Tensor y = bn2(conv2(bn1(conv1(x)).relu_()));
    return (y + x).relu_();
  }
  torch::nn::Conv2d conv1;
  torch::nn::BatchNorm2d bn1;
  torch::nn::Conv2d conv2;
  torch::nn::BatchNorm2d bn2;
};
TORCH_MODULE(Residual);

struct BlockImpl : torch::nn::Module {
  BlockImpl(int64_t dim, int64_t heads)
      : heads(heads),
        ln1(torch::nn::LayerNormOptions({dim})),
        qkv(dim, 3 * dim),
        out(dim, dim),
        ln2(torch::nn::LayerNormOptions({dim})),
        up(dim, 2 * dim),
        down(2 * dim, dim) {
    register_module("ln1", ln1);
    register_module("qkv", qkv);
    register_module("out", out);
    register_module("ln2", ln2);
    register_module("up", up);
    register_module("down", down);
  }
  at::Tensor forward(at::Tensor x) {
    const int64_t b = x.size(0), t = x.size(1), d = x.size(2);
    const auto split = qkv(ln1(x)).view({b, t, 3, heads, d / heads}).permute({2, 0, 3, 1, 4});
    const at::Tensor y =
        at::scaled_dot_product_attention(split[0], split[1], split[2], {}, 0.0, true);
    x = x + out(y.transpose(1, 2).reshape({b, t, d}));
    return x + down(at::gelu(up(ln2(x))));
  }
  int64_t heads;
  torch::nn::LayerNorm ln1;
  torch::nn::Linear qkv, out;
  torch::nn::LayerNorm ln2;
  torch::nn::Linear up, down;
};
TORCH_MODULE(Block);

struct LastOfLstm : Layer {
  LastOfLstm() : lstm(torch::nn::LSTMOptions(6, 8).batch_first(true)) {
    register_module("lstm", lstm);
  }
  TensorList forward(TensorList inputs) override {
    inputs[0] = std::get<0>(lstm(inputs[0])).select(1, -1);
    return inputs;
  }
  torch::nn::LSTM lstm;
};

}  // namespace

at::Tensor KeyedValues(at::IntArrayRef shape, uint64_t key) {
  at::Tensor values = at::empty(shape, at::kFloat);
  float* data = values.mutable_data_ptr<float>();
  for (int64_t i = 0; i < values.numel(); ++i) {
    data[i] = float(SplitMix64(SplitMix64(key) + uint64_t(i)) >> 40) / float(1 << 23) - 1.0f;
  }
  return values;
}

at::Tensor KeyedClasses(at::IntArrayRef shape, int64_t classes, uint64_t key) {
  at::Tensor values = at::empty(shape, at::kLong);
  int64_t* data = values.mutable_data_ptr<int64_t>();
  for (int64_t i = 0; i < values.numel(); ++i) {
    data[i] = int64_t(SplitMix64(SplitMix64(key) + uint64_t(i)) % uint64_t(classes));
  }
  return values;
}

uint64_t BatchKey(int64_t iteration, int64_t micro_batch, bool evaluation) {
  return uint64_t(iteration) * 1000 + uint64_t(micro_batch) * 2 + (evaluation ? 1 : 0);
}

std::function<TaskBatch(int64_t, int64_t, bool)> KeyedBatches(std::vector<int64_t> shape,
                                                              int64_t classes) {
  return [shape, classes](int64_t iteration, int64_t micro_batch, bool evaluation) {
    const uint64_t key = BatchKey(iteration, micro_batch, evaluation);
    return TaskBatch{{KeyedValues(shape, key)}, KeyedClasses({shape[0]}, classes, ~key)};
  };
}

TaskBatch FirstSamples(const TaskBatch& batch, int64_t samples, int64_t full) {
  TaskBatch some = batch;
  for (at::Tensor& input : some.inputs) input = input.narrow(0, 0, samples);
  some.target = batch.target.narrow(0, 0, batch.target.size(0) / full * samples);
  return some;
}

at::Tensor CrossEntropy(const TensorList& outputs, const at::Tensor& target) {
  return at::cross_entropy_loss(outputs[0], target);
}

TrainingTask MakeTask(std::vector<LayerFactory> layers, std::vector<int64_t> shape,
                      int64_t classes) {
  TrainingTask task;
  task.layers = std::move(layers);
  task.batch = KeyedBatches(shape, classes);
  shape[0] = 1;
  task.example = {at::zeros(shape)};
  task.loss = CrossEntropy;
  task.optimizer = {.type = OptimizerOptions::Type::kSgd, .learning_rate = 0.1};
  return task;
}

LayerFactory LinearLayer(const std::string& name, int64_t in, int64_t out) {
  return {.name = name, .build = [in, out] { return MakeLayer(torch::nn::Linear(in, out)); }};
}

LayerFactory OneToOne(const std::string& name, std::function<at::Tensor(at::Tensor)> f) {
  return {.name = name, .build = [f] { return MakeLayer(f); }};
}

TrainingTask MlpTask(int layers) {
  TrainingTask task = MakeTask({}, {3, 7}, 4);
  const int64_t width = 9;
  for (int i = 0; i < layers; ++i) {
    const int64_t in = i == 0 ? 7 : width + i - 1, out = i == layers - 1 ? 4 : width + i;
    task.layers.push_back(LinearLayer("linear" + std::to_string(i), in, out));
    if (i == layers - 1) continue;
    task.layers.push_back(
        OneToOne("act" + std::to_string(i), [](at::Tensor x) { return x.relu(); }));
  }
  task.optimizer.sgd = {.momentum = 0.9, .weight_decay = 0.01};
  return task;
}

TrainingTask ConvTask() {
  TrainingTask task = MakeTask({}, {4, 2, 6, 6}, 3);
  static constexpr int64_t width = 4;
  task.layers.push_back({.name = "stem", .build = [] {
                           torch::nn::Conv2d conv(torch::nn::Conv2dOptions(2, width, 3).padding(1));
                           conv->weight.set_data(
                               conv->weight.detach().contiguous(at::MemoryFormat::ChannelsLast));
                           return MakeLayer(conv);
                         }});
  task.layers.push_back({.name = "norm", .build = [] {
                           return MakeLayer(torch::nn::BatchNorm2d(
                               torch::nn::BatchNorm2dOptions(width).momentum(0.3)));
                         }});
  for (int i = 0; i < 2; ++i) {
    task.layers.push_back(
        {.name = "block" + std::to_string(i), .build = [] { return MakeLayer(Residual(width)); }});
  }
  task.layers.push_back(OneToOne("pool", [](at::Tensor x) { return x.mean({2, 3}); }));
  task.layers.push_back(LinearLayer("head", width, 3));
  task.optimizer.learning_rate = 0.05;
  task.optimizer.sgd = {.momentum = 0.9, .nesterov = SgdOptions::Nesterov::kOn};
  return task;
}

TrainingTask GptTask() {
  TrainingTask task;
  static constexpr int64_t vocab = 11, dim = 8, length = 5;
  task.layers.push_back(
      {.name = "tokens", .build = [] { return MakeLayer(torch::nn::Embedding(vocab, dim)); }});
  struct Positions : Layer {
    Positions() { table = register_parameter("table", torch::randn({length, dim}) * 0.1); }
    TensorList forward(TensorList inputs) override {
      inputs[0] = inputs[0] + table;
      return inputs;
    }
    at::Tensor table;
  };
  task.layers.push_back({.name = "positions",
                         .build = [] { return std::make_shared<Positions>(); },
                         .cost = LayerCost{40, 80}});
  for (int i = 0; i < 2; ++i) {
    task.layers.push_back(
        {.name = "block" + std::to_string(i), .build = [] { return MakeLayer(Block(dim, 2)); }});
  }
  task.layers.push_back({.name = "norm", .build = [] {
                           return MakeLayer(
                               torch::nn::LayerNorm(torch::nn::LayerNormOptions({dim})));
                         }});
  task.layers.push_back(
      {.name = "head",
       .build =
           [] {
             return MakeLayer(torch::nn::Linear(torch::nn::LinearOptions(dim, vocab).bias(false)));
           },
       .tied = {{"weight", "tokens.weight"}}});
  task.example = {at::zeros({1, length}, at::kLong)};
  task.batch = [](int64_t iteration, int64_t micro_batch, bool evaluation) {
    const uint64_t key = BatchKey(iteration, micro_batch, evaluation);
    return TaskBatch{{KeyedClasses({2, length}, vocab, key)},
                     KeyedClasses({2 * length}, vocab, ~key)};
  };
  task.loss = [](const TensorList& outputs, const at::Tensor& target) {
    return at::cross_entropy_loss(outputs[0].flatten(0, 1), target);
  };
  task.optimizer = {.type = OptimizerOptions::Type::kAdamW, .learning_rate = 0.01};
  return task;
}

TrainingTask LstmTask() {
  TrainingTask task = MakeTask({LinearLayer("in", 5, 6),
                                {.name = "lstm",
                                 .build = [] { return std::make_shared<LastOfLstm>(); },
                                 .cost = LayerCost{2000, 4000}},
                                LinearLayer("out", 8, 3)},
                               {3, 4, 5}, 3);
  task.optimizer = {.type = OptimizerOptions::Type::kLion, .learning_rate = 0.003};
  task.optimizer.lion.weight_decay = 0.1;
  return task;
}

}  // namespace ringzero
