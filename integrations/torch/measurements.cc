// Times each piece of work a few times by the clock. Runs a plan for one worker that exchanges
// nothing, on parameters that take no memory; listens to torch's allocations, and asks the
// allocator how it rounds.
#include "integrations/torch/measurements.h"

#include <ATen/Version.h>
#include <c10/core/Allocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>
#include <torch/version.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <limits>
#include <utility>
#include <vector>

#include "base/buffer.h"
#include "base/status.h"
#include "integrations/torch/layer_parts.h"
#include "integrations/torch/torch.h"
#include "p2p/mapping.h"

// jemalloc's function, if the program has jemalloc: the bytes that it takes for `size`. `flags`:
// the logarithm of the alignment.
extern "C" size_t nallocx(size_t size, int flags) __attribute__((weak));

namespace ringzero {
namespace {

// The fastest of at most 8 calls, none of which begins after `most` seconds. A first call is not
// counted: in it the library makes what it keeps.
double FastestSeconds(const std::function<void()>& work, double most) {
  work();
  constexpr int kTimes = 8;
  double fastest = std::numeric_limits<double>::infinity(), all = 0;
  for (int i = 0; i < kTimes && all < most; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    work();
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    fastest = std::min(fastest, took.count());
    all += took.count();
  }
  return std::max(fastest, 1e-9);
}

double SecondsOfProduct(ValueType type, int64_t side, double most) {
  const at::NoGradGuard no_grad;
  const at::Tensor a = at::ones({side, side}, ScalarTypeOf(type)), b = at::ones_like(a);
  at::Tensor product = at::empty_like(a);
  return FastestSeconds([&] { at::mm_out(product, a, b); }, most);
}

constexpr int kPasses = 4;  // of one micro-batch each

// While a guard of this kind lives, its listener hears of torch's allocations on this thread. One
// at a time per thread, and not together with torch's profiler.
constexpr auto kListening = c10::DebugInfoKind::PROFILER_STATE;

uint64_t AddressOf(const void* data) { return reinterpret_cast<uint64_t>(data); }

// The bytes that the allocator takes for a tensor of `bytes`: jemalloc's size class, if it is the
// allocator. What torch's operators keep outside of tensors is not seen.
int64_t AllocatedBytes(int64_t bytes) {
  constexpr int kLogAlignment = 6;  // c10's of tensors
  if (bytes <= 0) return 0;
  if (nallocx != nullptr) {
    return static_cast<int64_t>(nallocx(static_cast<size_t>(bytes), kLogAlignment));
  }
  // glibc: a header and the alignment.
  constexpr int64_t kUnit = int64_t{1} << kLogAlignment;
  return (bytes + 16 + kUnit - 1) / kUnit * kUnit;
}

// Every allocation and release of CPU tensors, as a timeline.
class AllocationRecorder : public c10::MemoryReportingInfoBase {
 public:
  // alloc_size is negative when memory is freed.
  void reportMemoryUsage(void* data, int64_t alloc_size, size_t, size_t, c10::Device) override {
    if (alloc_size > 0) {
      timeline_.Allocate(AddressOf(data), AllocatedBytes(alloc_size));
    } else {
      timeline_.Free(AddressOf(data));
    }
  }
  bool memoryProfilingEnabled() const override { return true; }

  // The backward of a stage is over; these are the addresses of its gradients.
  void EndStage(const std::vector<const void*>& gradients) {
    std::vector<uint64_t> blocks;
    for (const void* gradient : gradients) blocks.push_back(AddressOf(gradient));
    timeline_.EndStage(blocks);
  }
  // The timeline so far; a new one begins.
  PassTimeline Take() { return std::exchange(timeline_, {}); }

 private:
  PassTimeline timeline_;
};

// Zeros that are only read: the kernel has one page of them for all.
absl::StatusOr<Buffer> MakeZeros(size_t bytes) {
  RZ_ASSIGN_OR_RETURN(Mapping memory, Mapping::Anonymous(bytes));
  const auto kept = std::make_shared<const Mapping>(std::move(memory));
  return Buffer({kept->data(), bytes}, kept);
}

// Memory as large as the gradients that wait in a run. Here gradients are dropped at once, so this
// memory leaves the same gaps in the heap. By malloc, which the recorder does not see.
class WaitingGradients {
 public:
  explicit WaitingGradients(const PlannedModel& planned)
      : layouts_(planned.layouts),
        value_bytes_(static_cast<size_t>(SizeOf(planned.precision.compute))),
        pending_(static_cast<size_t>(planned.plan.pending)) {}

  void EndStage(const StageDone& done) {
    if (done.gradient_bytes == 0) return;
    Stage stage;
    for (const ParameterSpec& parameter : layouts_[done.stage.value].parameters) {
      if (!parameter.trainable) continue;
      const size_t bytes = static_cast<size_t>(parameter.numel) * value_bytes_;
      void* memory = std::malloc(std::max<size_t>(bytes, 1));
      if (memory == nullptr) continue;
      std::memset(memory, 1, bytes);
      stage.emplace_back(memory, &std::free);
    }
    waiting_.push_back(std::move(stage));
    if (waiting_.size() > pending_) waiting_.pop_front();
  }

 private:
  using Stage = std::vector<std::unique_ptr<void, decltype(&std::free)>>;
  const std::vector<StageLayout>& layouts_;
  const size_t value_bytes_;
  const size_t pending_;
  std::deque<Stage> waiting_;
};

// One worker with the run's stages, ZeRO stage and window, and no exchange.
absl::StatusOr<std::unique_ptr<RingModel>> MakeAlone(const PlannedRun& run,
                                                     const PassMemoryOptions& options,
                                                     AllocationRecorder& recorder,
                                                     WaitingGradients& waiting) {
  RingModelOptions model{.layers = run.layers,
                         .planned = run.planned,
                         .engine = {.metrics_count = options.metrics_count}};
  const Plan& plan = run.planned.plan;
  model.planned.plan = {.zero_stage = plan.zero_stage,
                        .rule = Rule::kDp,
                        .slack = 0,
                        .window = plan.window,
                        .exchange = false,
                        .iterations = kPasses + 1,
                        .stages = plan.stages};
  for (StagePlan& stage : model.planned.plan.stages) {
    stage.owner = WorkerId(0);
    stage.streams_parameters = false;
  }
  model.engine.parameter_memory = MakeZeros;
  model.on_stage_done = [&recorder, &waiting](const StageDone& done) {
    recorder.EndStage(done.gradients);
    waiting.EndStage(done);
  };
  return RingModel::Create(std::move(model));
}

}  // namespace

double MeasureFlops(ValueType type) {
  constexpr int64_t kSide = 512;
  return 2.0 * kSide * kSide * kSide / SecondsOfProduct(type, kSide, /*most=*/0.05);
}

double SlownessOf(ValueType type) {
  constexpr int64_t kSide = 128;
  constexpr double kHalf = 0.025;
  const double plain = SecondsOfProduct(ValueType::kFp32, kSide, kHalf);
  return SecondsOfProduct(type, kSide, kHalf) / plain;
}

MachineSpeed MeasureSpeed() {
  const at::NoGradGuard no_grad;
  constexpr int64_t kValues = int64_t{16} << 20;
  const at::Tensor from = at::ones({kValues});
  at::Tensor to = at::empty({kValues});
  const double copied = FastestSeconds([&] { to.copy_(from); }, /*most=*/1);
  return {.flops_per_second = MeasureFlops(), .bytes_per_second = 2.0 * 4 * kValues / copied};
}

std::string LibTorchVersion() { return TORCH_VERSION; }

std::string LibTorchInstructions() { return at::get_cpu_capability(); }

absl::StatusOr<PassBytes> MeasurePass(const PlannedRun& run, const PassMemoryOptions& options) {
  using Gradients = PassTimeline::Gradients;
  const auto shared_recorder = std::make_shared<AllocationRecorder>();
  const c10::DebugInfoGuard listening(kListening, shared_recorder);
  AllocationRecorder& recorder = *shared_recorder;
  WaitingGradients waiting(run.planned);
  PassBytes memory;
  RZ_ASSIGN_OR_RETURN(const std::unique_ptr<RingModel> ring,
                      MakeAlone(run, options, recorder, waiting));
  memory.setup = recorder.Take().Peak(Gradients::kDropped);
  // The first micro-batches make what the libraries keep for later ones, and the heap's gaps.
  for (int i = 0; i < kPasses; ++i) {
    recorder.Take();
    RZ_ASSIGN_OR_RETURN(const LapTask lap, ring->NextLap());
    RZ_RETURN_IF_ERROR(Guard([&] { return options.train(*ring, lap); }));
  }
  const PassTimeline pass = recorder.Take();
  memory.activations = pass.Peak(Gradients::kNone);
  memory.with_waiting_gradients = pass.Peak(Gradients::kWait, run.planned.plan.pending);
  RZ_ASSIGN_OR_RETURN(const LapTask lap, ring->NextLap());
  if (options.evaluate) {
    const at::NoGradGuard no_grad;
    RZ_RETURN_IF_ERROR(Guard([&] { return options.evaluate(*ring, lap); }));
    memory.evaluation = recorder.Take().Peak(Gradients::kNone);
  }
  return memory;
}

struct LiveTensorBytes::Counter : c10::MemoryReportingInfoBase {
  // alloc_size is negative when memory is freed.
  void reportMemoryUsage(void*, int64_t alloc_size, size_t, size_t, c10::Device) override {
    bytes += alloc_size;
    peak = std::max(peak, bytes);
  }
  bool memoryProfilingEnabled() const override { return true; }

  int64_t bytes = 0;
  int64_t peak = 0;
};

LiveTensorBytes::LiveTensorBytes()
    : counter_(std::make_shared<Counter>()),
      listening_(std::make_shared<c10::DebugInfoGuard>(kListening, counter_)) {}

int64_t LiveTensorBytes::bytes() const { return counter_->bytes; }

int64_t LiveTensorBytes::TakePeak() { return std::exchange(counter_->peak, counter_->bytes); }

void LiveTensorBytes::HandedOver(int64_t bytes) { counter_->bytes -= bytes; }

}  // namespace ringzero
