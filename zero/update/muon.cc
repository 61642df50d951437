// Muon: momentum of a matrix, made orthogonal (Keller Jordan, kellerjordan.github.io/posts/muon).
#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>

#include "zero/update/kernels.h"
#include "zero/update/matrix_kernels.h"
#include "zero/update/phased_updates.h"

namespace ringzero {
namespace {

constexpr int kSteps = 5;
constexpr float kLinear = 3.4445f, kCubic = -4.7750f, kQuintic = 2.0315f;
constexpr double kEpsilon = 1e-7;
constexpr int64_t kBlockProducts = int64_t{4} << 20;  // about a millisecond

int64_t AlignBytes(int64_t bytes) { return (bytes + 63) / 64 * 64; }

// Working memory: X and the next X (rows by columns, no more rows than columns), A = X Xᵀ and
// B = b A + c A A (rows by rows), and in front of them the scale and a squared norm per block, in
// lanes.
class MuonUpdate final : public ParameterUpdate {
 public:
  MuonUpdate(const MuonOptions& options, const ParameterSpec& parameter)
      : ParameterUpdate({{"momentum_buffer"}}), options_(options) {
    const std::vector<int64_t>& shape = parameter.shape;
    const int64_t outputs = shape[0];
    const int64_t inputs =
        std::accumulate(shape.begin() + 1, shape.end(), int64_t{1}, std::multiplies<>());
    // A matrix that is stored by columns is its transpose stored by rows.
    const bool by_columns = shape.size() == 2 && !parameter.strides.empty() &&
                            parameter.strides[0] < parameter.strides[1];
    stored_rows_ = by_columns ? inputs : outputs;
    stored_columns_ = by_columns ? outputs : inputs;
    rows_ = std::min(outputs, inputs);
    columns_ = std::max(outputs, inputs);
    turns_ = stored_rows_ > stored_columns_;
    // As published: of the last two dimensions, also where the matrix has more.
    const double tall =
        double(shape[shape.size() - 2]) / double(std::max<int64_t>(1, shape.back()));
    scale_ = std::sqrt(std::max(1.0, tall));
  }

  std::vector<UpdatePhase> Phases(int64_t values) const override {
    const UpdatePhase all{.items = values, .block_items = kUpdateBlockValues};
    std::vector<UpdatePhase> phases = {all, {.items = 1}, Rows(rows_, columns_)};
    for (int step = 0; step < kSteps; ++step) {
      phases.push_back(Rows(rows_, rows_ * columns_));
      phases.push_back(Rows(rows_, rows_ * rows_));
      phases.push_back(Rows(rows_, rows_ * columns_));
    }
    if (turns_) phases.push_back(Rows(stored_rows_, stored_columns_));
    phases.push_back(all);
    return phases;
  }

  int64_t ScratchBytes(int64_t values) const override {
    return AlignBytes(NumberBytes(values) + 2 * AlignBytes(values * 4) +
                      2 * AlignBytes(rows_ * rows_ * 4));
  }

  void Run(const UpdatePart& part, const UpdateMoment& moment, const UpdateSpan& whole,
           std::byte* scratch) const override {
    const Memory memory = MemoryAt(scratch, whole.count);
    const int last = 3 + 3 * kSteps + (turns_ ? 1 : 0);
    if (part.phase == 0) return TakeMoment(part, moment, whole, memory);
    if (part.phase == 1) return FoldNorm(whole.count, memory);
    if (part.phase == 2) return Normalize(part, memory);
    if (part.phase < 3 + 3 * kSteps) return Step(part, memory);
    if (part.phase < last) return TurnBack(part, memory);
    UpdateSpan span = BlockOf(whole, part);
    span.sum = (turns_ ? memory.x : memory.next) + part.begin;
    MovePass({.keep = float(1 - moment.rate * options_.weight_decay),
              .rate = float(moment.rate * scale_)},
             span);
  }

 private:
  struct Memory {
    double* numbers;  // 1 / norm, then lanes of squares by block
    float* x;
    float* next;
    float* a;
    float* b;
  };

  static int64_t NumberBytes(int64_t values) {
    return AlignBytes((1 + UpdateBlocks(values)) * kSquareLanes * int64_t{sizeof(double)});
  }
  static UpdatePhase Rows(int64_t rows, int64_t row_products) {
    return {.items = rows,
            .block_items =
                std::max<int64_t>(4, kBlockProducts / std::max<int64_t>(1, row_products) / 4 * 4)};
  }

  Memory MemoryAt(std::byte* scratch, int64_t values) const {
    std::byte* at = scratch + NumberBytes(values);
    const auto take = [&](int64_t count) {
      auto* const found = reinterpret_cast<float*>(at);
      at += AlignBytes(count * 4);
      return found;
    };
    Memory memory{.numbers = reinterpret_cast<double*>(scratch)};
    memory.x = take(values);
    memory.next = take(values);
    memory.a = take(rows_ * rows_);
    memory.b = take(rows_ * rows_);
    return memory;
  }

  // The momentum, and its Nesterov form into `next`, as it is stored.
  void TakeMoment(const UpdatePart& part, const UpdateMoment& moment, const UpdateSpan& whole,
                  const Memory& memory) const {
    UpdateSpan span = BlockOf(whole, part);
    span.out = memory.next + part.begin;
    MuonMomentPass({.divisor = moment.divides_by(),
                    .clip = moment.clip,
                    .one_minus_momentum = float(1 - options_.momentum)},
                   span);
    double* const lanes = memory.numbers + kSquareLanes * (1 + part.begin / kUpdateBlockValues);
    if (part.begin % kUpdateBlockValues == 0) std::fill_n(lanes, kSquareLanes, 0.0);
    SquaresPass(span.out, span.count, lanes);
  }

  static void FoldNorm(int64_t values, const Memory& memory) {
    double squares = 0;
    for (int64_t block = 1; block <= UpdateBlocks(values); ++block) {
      squares += FoldLanes(memory.numbers + block * kSquareLanes);
    }
    memory.numbers[0] = 1 / (std::sqrt(squares) + kEpsilon);
  }

  // X = `next` / norm, lying down.
  void Normalize(const UpdatePart& part, const Memory& memory) const {
    const float scale = float(memory.numbers[0]);
    const int64_t down = turns_ ? 1 : columns_, along = turns_ ? rows_ : 1;
    for (int64_t i = part.begin; i < part.end; ++i) {
      const float* const from = memory.next + i * down;
      float* const to = memory.x + i * columns_;
      for (int64_t j = 0; j < columns_; ++j) to[j] = scale * from[j * along];
    }
  }

  // One of the three products of one step: X becomes a X + (b A + c A A) X.
  void Step(const UpdatePart& part, const Memory& memory) const {
    const int step = (part.phase - 3) / 3;
    float* const now = step % 2 == 0 ? memory.x : memory.next;
    float* const next = step % 2 == 0 ? memory.next : memory.x;
    switch ((part.phase - 3) % 3) {
      case 0:
        return GramPass({.x = now, .rows = rows_, .columns = columns_, .out = memory.a}, part.begin,
                        part.end);
      case 1:
        return GramPass({.x = memory.a,
                         .rows = rows_,
                         .columns = rows_,
                         .scale = kQuintic,
                         .linear = kCubic,
                         .out = memory.b},
                        part.begin, part.end);
      default:
        return MixPass({.x = now,
                        .rows = rows_,
                        .columns = columns_,
                        .weights = memory.b,
                        .keep = kLinear,
                        .out = next},
                       part.begin, part.end);
    }
  }

  // Into `x`, as the parameter is stored.
  void TurnBack(const UpdatePart& part, const Memory& memory) const {
    for (int64_t i = part.begin; i < part.end; ++i) {
      float* const to = memory.x + i * stored_columns_;
      for (int64_t j = 0; j < stored_columns_; ++j) to[j] = memory.next[j * columns_ + i];
    }
  }

  const MuonOptions options_;
  int64_t stored_rows_ = 0, stored_columns_ = 0;  // of the parameter's values, one after the other
  int64_t rows_ = 0, columns_ = 0;                // of X
  bool turns_ = false;                            // X is what is stored, transposed
  double scale_ = 1;
};

}  // namespace

std::shared_ptr<const ParameterUpdate> MakeMuonUpdate(const MuonOptions& options,
                                                      const ParameterSpec& parameter) {
  return std::make_shared<const MuonUpdate>(options, parameter);
}

}  // namespace ringzero
