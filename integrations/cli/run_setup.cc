// Opens data, checks it against the model, and counts iterations and evaluation laps.
#include "integrations/cli/run_setup.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status.h"

namespace ringzero {
namespace {

absl::Status CheckModelFitsData(const Config& config, const SampleShape& shape) {
  const ModelConfig& model = config.model;
  const std::string found = absl::StrJoin(shape.input, " x ");
  switch (model.type) {
    case ModelConfig::Type::kGpt:
      if (shape.classes > model.vocab) {
        return config.Error(
            "model.vocab",
            absl::StrCat("the data has tokens up to ", shape.classes - 1, ", so at least ",
                         shape.classes, " are needed, found ", model.vocab));
      }
      return absl::OkStatus();
    case ModelConfig::Type::kResNet:
      if (shape.input.size() != 3 || shape.input[1] != shape.input[2]) {
        return config.Error("model.type",
                            absl::StrCat("resnet wants square images, the data has ", found));
      }
      if (shape.input[0] != 1 && shape.input[0] != 3) {
        return config.Error("data.input",
                            absl::StrCat("wanted images of 1 or 3 channels, found ", found));
      }
      if (model.channels != 0 && model.channels != shape.input[0]) {
        return config.Error(
            "model.channels",
            absl::StrCat("the data's images have ", shape.input[0], ", found ", model.channels));
      }
      return absl::OkStatus();
    case ModelConfig::Type::kMlp: return absl::OkStatus();
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<Dataset>> OpenData(const Config& config) {
  const bool tokens = config.model.type == ModelConfig::Type::kGpt;
  DatasetOptions options;
  options.type = config.data.type;
  options.path = config.data.path;
  options.sequence = config.model.seq;
  if (tokens) options.vocabulary = config.model.vocab;
  options.random_input = config.data.input;
  options.random_kind = tokens ? SampleShape::Kind::kTokens : SampleShape::Kind::kImage;
  options.random_classes = config.data.classes;
  options.random_samples = config.data.samples;
  options.seed = config.seed;
  RZ_ASSIGN_OR_RETURN(std::unique_ptr<Dataset> data, OpenDataset(options));
  RZ_RETURN_IF_ERROR(CheckModelFitsData(config, data->shape()));
  return data;
}

absl::StatusOr<RunLength> MeasureRun(const Config& config, const Dataset& data) {
  RunLength length;
  const int64_t samples = data.train().size();
  const int64_t batch = config.batch.train_batch;
  length.iterations_per_epoch = samples / batch;
  if (length.iterations_per_epoch == 0) {
    return config.Error("train_batch_size", absl::StrCat(batch,
                                                         " samples per update, but the data "
                                                         "has only ",
                                                         samples));
  }
  const int64_t rest = samples % batch;
  if (rest != 0 && !config.data.drop_last) {
    ++length.iterations_per_epoch;
    length.epoch_samples = samples;
  }
  const int64_t iterations = config.iterations.has_value()
                                 ? *config.iterations
                                 : *config.epochs * length.iterations_per_epoch;
  if (iterations > std::numeric_limits<int>::max() - 1) {
    return config.Error(config.epochs.has_value() ? "epochs" : "iterations",
                        absl::StrCat(iterations, " iterations are too many"));
  }
  length.iterations = static_cast<int>(iterations);
  if (rest != 0 && iterations >= length.iterations_per_epoch) {
    length.notes.push_back(
        config.data.drop_last
            ? absl::StrCat("the last ", rest, " of ", samples,
                           " samples of each epoch's order are left out: batches have ", batch)
            : absl::StrCat("the last batch of each epoch has ", rest, " samples, the others ",
                           batch));
  }
  length.test_samples = data.test().size();
  if (config.evaluation.samples != 0) {
    length.test_samples = std::min(length.test_samples, config.evaluation.samples);
  }
  const int64_t per_lap = int64_t{config.evaluation.batch_size} * config.cyclic.workers;
  const int every = config.evaluation.every.value_or(length.iterations);
  if (every == 0 || !config.cyclic.exchange) return length;
  if (length.test_samples == 0) {
    length.notes.push_back("the data has no held-out samples: no evaluation");
    return length;
  }
  length.evaluation.every = std::min(every, length.iterations);
  length.evaluation.laps = static_cast<int>((length.test_samples + per_lap - 1) / per_lap);
  return length;
}

BatchesOptions BatchesOf(const Config& config, const RunLength& length) {
  return {.seed = config.seed,
          .micro_batch = config.batch.micro_batch,
          .train_batch = config.batch.train_batch,
          .iterations_per_epoch = length.iterations_per_epoch,
          .evaluation_batch = config.evaluation.batch_size,
          .test_samples = length.test_samples};
}

int64_t TokensPerSample(const Config& config) {
  return config.model.type == ModelConfig::Type::kGpt ? config.model.seq : 0;
}

void EndCurve(int iterations, Config& config) {
  if (config.curve_ends_with_run) EndCurve(iterations, config.optimizer.curve);
}

TransportChoice ChoiceOf(CyclicConfig::Transport transport) {
  switch (transport) {
    case CyclicConfig::Transport::kShm: return TransportChoice::kShm;
    case CyclicConfig::Transport::kUcx: return TransportChoice::kUcx;
    case CyclicConfig::Transport::kNccl: return TransportChoice::kNccl;
    case CyclicConfig::Transport::kAuto:
    case CyclicConfig::Transport::kLocal: break;
  }
  return TransportChoice::kAuto;
}

}  // namespace ringzero
