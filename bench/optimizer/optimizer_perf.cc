// How fast an update is: AdamW, fp32, beside torch's fused one.
//
//   build/bin/optimizer_perf [--elements N] [--threads N] [--rounds N] [--deepspeed LIBRARY]
//
// Each round runs every way twice and times the second, one way after the other, so that a machine
// that changes its speed changes it for all; medians are printed. `beside torch` is the median of
// the rounds' ratios to the way of torch's that does the same. `torch fused` is at::_fused_adamw_,
// what torch.optim.AdamW(fused=True) calls; `DeepSpeedCPUAdam` its kernel in a library that
// `./rz bench optimizer` builds (deepspeed_adam.cc). Bytes: what an update must read and write at
// least, 28 for each element (θ, gradient and moments read; θ and moments written). `copy` is this
// host's copy of as much memory, past the caches: 8 bytes for each element. `streams alone` reads
// and writes what an update in place must, with additions in between: what memory allows.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/ops/_fused_adamw.h>
#include <dlfcn.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "base/buffer.h"
#include "bench/ring/statistics.h"
#include "zero/gradient_sum.h"
#include "zero/optimizer/kernels.h"
#include "zero/optimizer/optimizer.h"

namespace ringzero {
namespace {

constexpr double kUpdateBytes = 28;
constexpr double kCopyBytes = 8;

// Does `work` with so many threads, each with its number. They are new ones, which costs some tens
// of microseconds of the milliseconds that an update takes.
void InThreads(int threads, const std::function<void(int)>& work) {
  std::vector<std::jthread> others;
  for (int i = 1; i < threads; ++i) others.emplace_back(work, i);
  work(0);
}

// What an update reads and writes, and nothing to wait for. Vectors also where -O2 makes none.
__attribute__((optimize("O3"))) void AddStreams(const float* __restrict gradient,
                                                float* __restrict theta, float* __restrict first,
                                                float* __restrict second, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    theta[i] += gradient[i];
    first[i] += gradient[i];
    second[i] += gradient[i];
  }
}

struct Way {
  std::string name;
  double bytes;        // an element
  std::string beside;  // the way of torch that does the same; empty: none
  std::function<void()> run;
  std::vector<double> seconds = {};
};

// How often it is done while the other is done once: median over rounds.
double Beside(const Way& way, const Way& other) {
  std::vector<double> ratios;
  for (size_t i = 0; i < way.seconds.size(); ++i) {
    ratios.push_back(other.seconds[i] / way.seconds[i]);
  }
  return StatisticsOf(ratios).median;
}

// θ, its next version, sum and state, as an owner has them.
struct Ours {
  Ours(int64_t elements, const OptimizerOptions& options)
      : layout(StageLayout::Make({{.name = "w", .shape = {elements}}}, {})),
        theta(MakeHeapBuffer(layout.parameter_bytes)),
        next(MakeHeapBuffer(layout.parameter_bytes)),
        sum(MakeHeapBuffer(layout.sum_bytes)),
        first(MakeHeapBuffer(layout.parameter_bytes)),
        second(MakeHeapBuffer(layout.parameter_bytes)),
        optimizer(options, layout) {
    StartSum(layout, sum.data());
    const std::vector<float> gradient(elements, 1e-3f);
    AddContribution(layout, 0, {gradient.data()}, {}, sum.data());
  }
  void EachBlock(int threads, const std::function<void(const UpdateBlock&)>& work) {
    const std::vector<UpdateBlock>& blocks = optimizer.blocks();
    InThreads(threads, [&](int thread) {
      const size_t to = blocks.size() * (thread + 1) / threads;
      for (size_t i = blocks.size() * thread / threads; i < to; ++i) work(blocks[i]);
    });
  }
  void Update(int threads, std::byte* out) {
    const UpdateInput input{.divisor = 4, .theta = theta.data(), .sum = sum.data()};
    optimizer.Begin(input);
    EachBlock(threads, [&](const UpdateBlock& block) { optimizer.Block(block, input, out); });
  }
  // The same, with the next version's bf16 copy in the same pass.
  void UpdateWithCopy(int threads, const ParameterUpdate& update, uint16_t* wire) {
    const UpdateSpan all{.theta = theta.as<float>().data(),
                         .out = next.as<float>().data(),
                         .first = first.as<float>().data(),
                         .second = second.as<float>().data(),
                         .wire = wire,
                         .wire_type = ValueType::kBf16,
                         .count = layout.parameters[0].numel};
    EachBlock(threads, [&](const UpdateBlock& block) {
      UpdateSpan whole = all;
      whole.sum = sum.as<float>().data() + block.begin;
      update.Run({.begin = block.begin, .end = block.end}, {.rate = 1e-3, .divisor = 4}, whole,
                 nullptr);
    });
  }
  StageLayout layout;
  Buffer theta, next, sum, first, second;
  StageOptimizer optimizer;
};

struct Torch {
  explicit Torch(int64_t elements)
      : theta(at::zeros({elements})),
        gradient(at::full({elements}, 1e-3)),
        first(at::zeros({elements})),
        second(at::zeros({elements})),
        step(at::ones({})),
        copy(at::empty({elements}, at::kBFloat16)) {}
  void Update() {
    at::_fused_adamw_({theta}, {gradient}, {first}, {second}, {}, {step}, 1e-3, 0.9, 0.999, 0.01,
                      1e-8, false, false);
  }
  void UpdateWithCopy() {
    Update();
    copy.copy_(theta);
  }
  at::Tensor theta, gradient, first, second, step, copy;
};

// deepspeed_adam.cc.
using DeepSpeedStep = void (*)(float* theta, float* gradient, float* first, float* second,
                               size_t count, size_t step);

struct Options {
  int64_t elements = 25'000'000;
  int threads = 2;
  int rounds = 15;
  std::string deepspeed;
};

int Run(const Options& options, DeepSpeedStep deepspeed) {
  const int64_t elements = options.elements;
  const int threads = options.threads;
  const at::InferenceMode guard;
  at::set_num_threads(threads);
  Ours ours(elements, {});
  Torch torch(elements), theirs(deepspeed != nullptr ? elements : 1);
  const auto update = MakeUpdate({}, ours.layout.parameters[0]);
  Buffer wire = MakeHeapBuffer(static_cast<size_t>(elements) * sizeof(uint16_t));
  size_t step = 0;
  const auto copy = [&] {
    InThreads(threads, [&](int thread) {
      const auto place = [&](int64_t i) { return elements * i / threads / 16 * 16; };
      const int64_t from = place(thread), to = place(thread + 1);
      StreamCopy(ours.next.as<float>().data() + from, ours.theta.as<float>().data() + from,
                 static_cast<size_t>(to - from) * sizeof(float));
    });
  };
  const auto streams = [&] {
    InThreads(threads, [&](int thread) {
      const int64_t from = elements * thread / threads, to = elements * (thread + 1) / threads;
      AddStreams(ours.sum.as<float>().data() + from, ours.theta.as<float>().data() + from,
                 ours.first.as<float>().data() + from, ours.second.as<float>().data() + from,
                 to - from);
    });
  };
  const std::string fused = "torch fused", cast = "torch fused, cast";
  std::vector<Way> ways = {
      {"ringzero", kUpdateBytes, fused, [&] { ours.Update(threads, ours.next.data()); }},
      {"ringzero in place", kUpdateBytes, fused, [&] { ours.Update(threads, ours.theta.data()); }},
      {fused, kUpdateBytes, fused, [&] { torch.Update(); }},
      {"ringzero + bf16", kUpdateBytes + 2, cast,
       [&] { ours.UpdateWithCopy(threads, *update, wire.as<uint16_t>().data()); }},
      {cast, kUpdateBytes + 2, cast, [&] { torch.UpdateWithCopy(); }},
      {"streams alone", kUpdateBytes, fused, streams},
      {"copy", kCopyBytes, "", copy},
  };
  if (deepspeed != nullptr) {
    const auto data = [](at::Tensor& tensor) { return tensor.mutable_data_ptr<float>(); };
    ways.insert(ways.end() - 2, {"DeepSpeedCPUAdam", kUpdateBytes, fused, [&, data] {
                                   deepspeed(data(theirs.theta), data(theirs.gradient),
                                             data(theirs.first), data(theirs.second),
                                             static_cast<size_t>(elements), ++step);
                                 }});
  }
  for (int round = -1; round < options.rounds; ++round) {
    for (Way& way : ways) {
      way.run();  // meanwhile the threads of torch stop spinning
      const auto begin = std::chrono::steady_clock::now();
      way.run();
      const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
      if (round >= 0) way.seconds.push_back(took.count());  // the first time takes pages
    }
  }
  const double copied =
      kCopyBytes * static_cast<double>(elements) / StatisticsOf(ways.back().seconds).median;
  std::printf("AdamW, %lld elements, %d threads, %d rounds, kernels for %s\n",
              static_cast<long long>(elements), threads, options.rounds, KernelTarget());
  std::printf("%-20s %12s %10s %14s %14s\n", "", "G elements/s", "GB/s", "share of copy",
              "beside torch");
  for (const Way& way : ways) {
    const double rate = static_cast<double>(elements) / StatisticsOf(way.seconds).median;
    std::printf("%-20s %12.3f %10.1f %14.2f", way.name.c_str(), 1e-9 * rate,
                1e-9 * rate * way.bytes, rate * way.bytes / copied);
    for (const Way& other : ways) {
      if (other.name == way.beside) std::printf(" %14.3f", Beside(way, other));
    }
    std::printf("\n");
  }
  return 0;
}

}  // namespace
}  // namespace ringzero

int main(int argc, char** argv) {
  ringzero::Options options;
  CLI::App app("How fast an update is: AdamW, fp32, beside torch's fused one.", "optimizer_perf");
  app.add_option("--elements", options.elements)
      ->check(CLI::Range(int64_t{1}, int64_t{4000000000}));
  app.add_option("--threads", options.threads)->check(CLI::Range(1, 100000));
  app.add_option("--rounds", options.rounds)->check(CLI::Range(1, 100000));
  app.add_option("--deepspeed", options.deepspeed)->type_name("LIBRARY");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  ringzero::DeepSpeedStep deepspeed = nullptr;
  if (!options.deepspeed.empty()) {
    void* library = dlopen(options.deepspeed.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library != nullptr) {
      deepspeed =
          reinterpret_cast<ringzero::DeepSpeedStep>(dlsym(library, "ringzero_deepspeed_adamw"));
    }
    if (deepspeed == nullptr) {
      std::fprintf(stderr, "optimizer_perf: --deepspeed: %s\n", dlerror());
      return 2;
    }
  }
  return ringzero::Run(options, deepspeed);
}
