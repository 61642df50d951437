// The loops.
#include "tests/support/reference_updates.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/check.h"

namespace ringzero {
namespace {

void UpdateSgd(const OptimizerOptions& options, float divisor, ReferenceState& s) {
  const SgdOptions& sgd = options.sgd;
  const float rate = float(options.learning_rate), momentum = float(sgd.momentum);
  const float decay = float(sgd.weight_decay), undamped = float(1 - sgd.dampening);
  float* theta = s.now.mutable_data_ptr<float>();
  float* moment = s.first.mutable_data_ptr<float>();
  const float* sum = s.sum.const_data_ptr<float>();
  for (int64_t i = 0; i < s.now.numel(); ++i) {
    float g = sum[i] / divisor * s.clip;
    if (decay != 0) g = std::fma(decay, theta[i], g);
    if (momentum != 0) {
      moment[i] = s.updates == 0 ? g : std::fma(undamped, g, moment[i] * momentum);
      g = sgd.nesterov == SgdOptions::Nesterov::kOn ? std::fma(momentum, moment[i], g) : moment[i];
    }
    theta[i] = std::fma(-rate, g, theta[i]);
  }
}

void UpdateAdam(const OptimizerOptions& options, float divisor, ReferenceState& s) {
  const AdamWOptions& adamw = options.adamw;
  const double correction1 = 1 - std::pow(adamw.beta1, double(s.updates + 1));
  const double correction2 = 1 - std::pow(adamw.beta2, double(s.updates + 1));
  const float beta1 = float(adamw.beta1), beta2 = float(adamw.beta2);
  const float rest1 = float(1 - adamw.beta1), rest2 = float(1 - adamw.beta2);
  const bool decoupled = options.type == OptimizerOptions::Type::kAdamW;
  const float keep = decoupled ? float(1 - options.learning_rate * adamw.weight_decay) : 1;
  const float decay = decoupled ? 0 : float(adamw.weight_decay);
  const float step = float(options.learning_rate / correction1);
  const float root = float(std::sqrt(correction2)), epsilon = float(adamw.epsilon);
  float* theta = s.now.mutable_data_ptr<float>();
  float* m = s.first.mutable_data_ptr<float>();
  float* v = s.second.mutable_data_ptr<float>();
  const float* sum = s.sum.const_data_ptr<float>();
  for (int64_t i = 0; i < s.now.numel(); ++i) {
    float g = sum[i] / divisor * s.clip;
    if (decay != 0) g = std::fma(decay, theta[i], g);
    const float decayed = theta[i] * keep;
    m[i] = std::fma(rest1, g, m[i] * beta1);
    v[i] = std::fma(rest2 * g, g, v[i] * beta2);
    theta[i] = decayed - step * m[i] / (std::sqrt(v[i]) / root + epsilon);
  }
}

void UpdateLion(const OptimizerOptions& options, float divisor, ReferenceState& s) {
  const LionOptions& lion = options.lion;
  const float rate = float(options.learning_rate);
  const float keep = float(1 - options.learning_rate * lion.weight_decay);
  const float beta1 = float(lion.beta1), rest1 = float(1 - lion.beta1);
  const float beta2 = float(lion.beta2), rest2 = float(1 - lion.beta2);
  float* theta = s.now.mutable_data_ptr<float>();
  float* m = s.first.mutable_data_ptr<float>();
  const float* sum = s.sum.const_data_ptr<float>();
  for (int64_t i = 0; i < s.now.numel(); ++i) {
    const float g = sum[i] / divisor * s.clip;
    const float direction = std::fma(rest1, g, m[i] * beta1);
    const bool stays = direction == 0 && lion.form == UpdateForm::kPaper;
    const float moved = stays ? 0 : std::isnan(direction) ? NAN : std::copysign(rate, direction);
    theta[i] = theta[i] * keep - moved;
    m[i] = std::fma(rest2, g, m[i] * beta2);
  }
}

void UpdateAdagrad(const OptimizerOptions& options, float divisor, ReferenceState& s) {
  const AdagradOptions& adagrad = options.adagrad;
  const float rate = float(options.learning_rate / (1 + s.updates * adagrad.rate_decay));
  const float decay = float(adagrad.weight_decay), epsilon = float(adagrad.epsilon);
  float* theta = s.now.mutable_data_ptr<float>();
  float* squares = s.first.mutable_data_ptr<float>();
  const float* sum = s.sum.const_data_ptr<float>();
  for (int64_t i = 0; i < s.now.numel(); ++i) {
    float g = sum[i] / divisor * s.clip;
    if (decay != 0) g = std::fma(decay, theta[i], g);
    squares[i] = std::fma(g, g, squares[i]);
    theta[i] -= rate * g / (std::sqrt(squares[i]) + epsilon);
  }
}

// Σ v² as norms take it: blocks of 65,536 values, 16 sums in double in each.
double SquaresOf(const std::vector<float>& values) {
  double all = 0;
  for (size_t begin = 0; begin < values.size(); begin += 65536) {
    double lanes[16] = {}, block = 0;
    for (size_t i = begin; i < std::min(begin + 65536, values.size()); ++i) {
      lanes[(i - begin) % 16] += double(values[i]) * double(values[i]);
    }
    for (const double lane : lanes) block += lane;
    all += block;
  }
  return all;
}

void UpdateLamb(const OptimizerOptions& options, float divisor, ReferenceState& s) {
  const LambOptions& lamb = options.lamb;
  const double start1 = 1 - std::pow(lamb.beta1, double(s.updates + 1));
  const double start2 = 1 - std::pow(lamb.beta2, double(s.updates + 1));
  const bool paper = lamb.form == UpdateForm::kPaper;
  const float beta1 = float(lamb.beta1), rest1 = float(1 - lamb.beta1);
  const float beta2 = float(lamb.beta2), rest2 = float(1 - lamb.beta2);
  const float decay = float(lamb.weight_decay), epsilon = float(lamb.epsilon);
  float* theta = s.now.mutable_data_ptr<float>();
  float* m = s.first.mutable_data_ptr<float>();
  float* v = s.second.mutable_data_ptr<float>();
  const float* sum = s.sum.const_data_ptr<float>();
  std::vector<float> update(s.now.numel());
  for (size_t i = 0; i < update.size(); ++i) {
    const float g = sum[i] / divisor * s.clip;
    m[i] = std::fma(rest1, g, m[i] * beta1);
    v[i] = std::fma(rest2 * g, g, v[i] * beta2);
    const float adam = paper ? (m[i] / float(start1)) / (std::sqrt(v[i] / float(start2)) + epsilon)
                             : m[i] / (std::sqrt(v[i]) + epsilon);
    update[i] = std::fma(decay, theta[i], adam);
  }
  const double theta_squares = SquaresOf({theta, theta + update.size()});
  const double update_squares = SquaresOf(update);
  double ratio = 1;
  if (theta_squares > 0 && update_squares > 0) {
    ratio = std::clamp(std::sqrt(theta_squares) / std::sqrt(update_squares), lamb.min_ratio,
                       lamb.max_ratio);
  }
  const double corrected =
      paper ? options.learning_rate : options.learning_rate * std::sqrt(start2) / start1;
  const float rate = float(corrected * ratio);
  for (size_t i = 0; i < update.size(); ++i) theta[i] = std::fma(-rate, update[i], theta[i]);
}

// Rows of equal length, one after the other.
struct Rows {
  int64_t rows, columns;
  std::vector<float> values;
  float& at(int64_t i, int64_t j) { return values[i * columns + j]; }
};

// <row i, row j>: term k in sum k % 16.
float Dot(Rows& x, int64_t i, int64_t j) {
  float lanes[16] = {}, dot = 0;
  for (int64_t k = 0; k < x.columns; ++k) {
    lanes[k % 16] = std::fma(x.at(i, k), x.at(j, k), lanes[k % 16]);
  }
  for (const float lane : lanes) dot += lane;
  return dot;
}

Rows Transposed(Rows& x) {
  Rows out{x.columns, x.rows, std::vector<float>(x.values.size())};
  for (int64_t i = 0; i < x.rows; ++i) {
    for (int64_t j = 0; j < x.columns; ++j) out.at(j, i) = x.at(i, j);
  }
  return out;
}

Rows NewtonSchulz(Rows& x) {
  const int64_t n = x.rows;
  Rows a{n, n, std::vector<float>(n * n)}, b = a, next = x;
  for (int64_t i = 0; i < n; ++i) {
    for (int64_t j = 0; j < n; ++j) a.at(i, j) = Dot(x, i, j);
  }
  for (int64_t i = 0; i < n; ++i) {
    for (int64_t j = 0; j < n; ++j) {
      b.at(i, j) = std::fma(2.0315f, Dot(a, i, j), -4.7750f * a.at(i, j));
    }
  }
  for (int64_t i = 0; i < n; ++i) {
    for (int64_t j = 0; j < x.columns; ++j) {
      float value = 3.4445f * x.at(i, j);
      for (int64_t k = 0; k < n; ++k) value = std::fma(b.at(i, k), x.at(k, j), value);
      next.at(i, j) = value;
    }
  }
  return next;
}

void UpdateMuon(const OptimizerOptions& options, float divisor, ReferenceState& s) {
  const MuonOptions& muon = options.muon;
  const float share = float(1 - muon.momentum);
  const float keep = float(1 - options.learning_rate * muon.weight_decay);
  float* theta = s.now.mutable_data_ptr<float>();
  float* m = s.first.mutable_data_ptr<float>();
  const float* sum = s.sum.const_data_ptr<float>();
  // As it lies in memory: outputs first, but for a matrix that is stored by columns.
  const bool by_columns = s.now.dim() == 2 && s.now.stride(0) < s.now.stride(1);
  const int64_t outputs = s.now.size(0), inputs = s.now.numel() / outputs;
  Rows x{by_columns ? inputs : outputs, by_columns ? outputs : inputs, {}};
  for (int64_t i = 0; i < s.now.numel(); ++i) {
    const float g = sum[i] / divisor * s.clip;
    m[i] = std::fma(share, g - m[i], m[i]);
    x.values.push_back(std::fma(-share, m[i] - g, m[i]));
  }
  const float scale = float(1 / (std::sqrt(SquaresOf(x.values)) + 1e-7));
  for (float& value : x.values) value *= scale;
  const bool stands = x.rows > x.columns;
  if (stands) x = Transposed(x);
  for (int step = 0; step < 5; ++step) x = NewtonSchulz(x);
  if (stands) x = Transposed(x);
  const double tall = double(s.now.size(-2)) / double(s.now.size(-1));
  const float rate = float(options.learning_rate * std::sqrt(std::max(1.0, tall)));
  for (int64_t i = 0; i < s.now.numel(); ++i) {
    theta[i] = std::fma(-rate, x.values[i], theta[i] * keep);
  }
}

// Muon's matrices: not what embeds, and not the head.
bool IsMatrix(const std::string& name, const at::Tensor& parameter) {
  return (parameter.dim() == 2 || parameter.dim() == 4) &&
         name.find("embed") == std::string::npos && name.rfind("head.", 0) != 0;
}

}  // namespace

void UpdateReference(const OptimizerOptions& options, const std::string& name, float divisor,
                     ReferenceState& s) {
  switch (options.type) {
    case OptimizerOptions::Type::kSgd: return UpdateSgd(options, divisor, s);
    case OptimizerOptions::Type::kAdamW:
    case OptimizerOptions::Type::kAdam: return UpdateAdam(options, divisor, s);
    case OptimizerOptions::Type::kLion: return UpdateLion(options, divisor, s);
    case OptimizerOptions::Type::kAdagrad: return UpdateAdagrad(options, divisor, s);
    case OptimizerOptions::Type::kLamb: return UpdateLamb(options, divisor, s);
    case OptimizerOptions::Type::kMuon: {
      if (IsMatrix(name, s.now)) return UpdateMuon(options, divisor, s);
      OptimizerOptions rest = options;
      rest.type = OptimizerOptions::Type::kAdamW;
      rest.learning_rate *= options.muon.rest_factor;
      return UpdateAdam(rest, divisor, s);
    }
    case OptimizerOptions::Type::kCustom: break;
  }
  RZ_CHECK(false, "an optimizer that the reference does not have");
}

std::pair<std::string, std::string> ReferenceStateNames(const OptimizerOptions& options,
                                                        const std::string& name,
                                                        const at::Tensor& parameter) {
  switch (options.type) {
    case OptimizerOptions::Type::kSgd:
      return {options.sgd.momentum != 0 ? "momentum_buffer" : "", ""};
    case OptimizerOptions::Type::kAdamW:
    case OptimizerOptions::Type::kAdam:
    case OptimizerOptions::Type::kLamb: return {"exp_avg", "exp_avg_sq"};
    case OptimizerOptions::Type::kMuon:
      if (IsMatrix(name, parameter)) return {"momentum_buffer", ""};
      return {"exp_avg", "exp_avg_sq"};
    case OptimizerOptions::Type::kLion: return {"exp_avg", ""};
    case OptimizerOptions::Type::kAdagrad: return {"sum", ""};
    case OptimizerOptions::Type::kCustom: break;
  }
  return {};
}

double LargestDifferenceInUlps(const at::Tensor& a, const at::Tensor& b, const at::Tensor& before) {
  const at::Tensor scale =
      at::maximum(at::maximum(a.abs(), b.abs()), at::maximum(before.abs(), (b - before).abs()));
  const at::Tensor ulp = at::nextafter(scale, at::full_like(scale, INFINITY)) - scale;
  return ((a.to(at::kDouble) - b.to(at::kDouble)).abs() / ulp).max().item<double>();
}

}  // namespace ringzero
