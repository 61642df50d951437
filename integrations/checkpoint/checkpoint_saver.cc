// One thread with a queue: parts of versions into files, and all parts' files into a checkpoint.
#include <sys/stat.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <deque>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/crypto.h"
#include "base/files.h"
#include "base/status.h"
#include "base/system_names.h"
#include "integrations/checkpoint/checkpoint.h"
#include "integrations/checkpoint/tier_image.h"
#include "sharding/memory/block_table.h"
#include "zero/worker_pool.h"

namespace ringzero {
namespace {

// What a worker tells worker 0 of a version: zeros, until it has written something.
struct Receipt {
  uint64_t failed = 0;  // parts
  uint64_t files = 0;
  uint64_t heads = 0;  // the sum of a number for each file, by its head

  void Add(const std::string& checksum) {
    ++files;
    heads += Checksum(std::as_bytes(std::span(checksum)));
  }
  void Add(const Receipt& other) {
    failed += other.failed;
    files += other.files;
    heads += other.heads;
  }
  bool operator==(const Receipt&) const = default;
};
static_assert(sizeof(Receipt) <= kReceiptBytes);

// The tensors of a part, by kind of file. Steps are no tensors of the optimizer's: they are copied.
struct PartTensors {
  std::map<std::string, std::vector<TensorSource>> files;
  std::deque<int64_t> steps;
};

// Without values that stream, if their file is `taken` over.
void AddState(const SavedPart& part, const StageLayout& layout, const OptimizerOptions& optimizer,
              bool taken, PartTensors& tensors) {
  std::vector<TensorSource>& file = tensors.files["optimizer"];
  std::set<int> in_file;
  if (taken) {
    for (const StatePiece& piece : part.optimizer->pieces()) in_file.insert(piece.parameter);
  }
  for (const StateSpec& spec : StateLayout::Make(optimizer, layout).specs) {
    const ParameterSpec& parameter = layout.parameters[spec.parameter];
    const StageOptimizer::ParameterState& state = part.optimizer->state(spec.parameter);
    const std::string name = absl::StrCat(parameter.name, ".", spec.name);
    if (spec.kind == StateSpec::Kind::kStep) {
      const int64_t* const step = &tensors.steps.emplace_back(state.updates);
      file.push_back({.spec = {.name = name, .type = TensorType::kI64},
                      .values = reinterpret_cast<const std::byte*>(step)});
      continue;
    }
    if (in_file.contains(spec.parameter)) continue;
    const bool first = spec.kind == StateSpec::Kind::kFirst;
    file.push_back({.spec = {.name = name, .shape = parameter.shape},
                    .values = std::as_bytes(first ? state.first : state.second).data(),
                    .strides = parameter.strides});
  }
}

PartTensors TensorsOf(const SavedPart& part, const StageLayout& layout,
                      const OptimizerOptions& optimizer, bool taken) {
  PartTensors tensors;
  if (part.statistics != nullptr) {
    for (const StatisticSpec& statistic : layout.statistics) {
      tensors.files["buffers"].push_back(
          {.spec = SpecOf(statistic), .values = part.statistics + statistic.offset_bytes});
    }
    return tensors;
  }
  for (size_t i = 0; i < layout.parameters.size(); ++i) {
    const ParameterSpec& parameter = layout.parameters[i];
    tensors.files["model"].push_back({.spec = SpecOf(parameter),
                                      .values = part.MastersOf(layout, static_cast<int>(i)),
                                      .strides = parameter.strides});
    for (const auto& [label, values] : part.others) {
      tensors.files["stale"].push_back({.spec = {.name = StaleName(parameter.name, label),
                                                 .type = TypeOf(layout.parameter_type),
                                                 .shape = parameter.shape},
                                        .values = values + parameter.offset_bytes,
                                        .strides = parameter.strides});
    }
  }
  if (part.optimizer != nullptr) AddState(part, layout, optimizer, taken, tensors);
  return tensors;
}

class CheckpointSaver final : public Saver {
 public:
  CheckpointSaver(CheckpointSaverOptions options, std::unique_ptr<TensorFileWriter> writer)
      : options_(std::move(options)), writer_(std::move(writer)) {
    pool_.Add([] { NameThread("ringzero saver"); });
  }

  ~CheckpointSaver() override { stop_ = true; }

  void Save(const SavedPart& part, std::span<std::byte> receipt, Done done) override {
    Later([=, this] { SavePart(part, receipt); }, std::move(done));
  }

  void Commit(Version v, const SavedScalars& scalars,
              const std::vector<std::span<const std::byte>>& receipts, Done done) override {
    Later([=, this] { EndVersion(v, scalars, receipts); }, std::move(done));
  }

 private:
  void Later(std::function<void()> work, Done done) {
    pool_.Add([this, work = std::move(work), done = std::move(done)] {
      if (!stop_) work();
      if (!stop_) done();
    });
  }

  absl::Status WriteFiles(const SavedPart& part, Receipt& receipt) {
    const std::string folder = UnfinishedFolder(options_.folder, part.version);
    const bool is_there = mkdir(folder.c_str(), 0755) == 0 || errno == EEXIST;
    const absl::Status missing =
        is_there ? absl::OkStatus()
                 : absl::ErrnoToStatus(errno, absl::StrCat(folder, ": cannot be made"));
    // In any case: either all stages leave their file, or none.
    const Streams::LeftFile left = tier_.Take(part, folder);
    RZ_RETURN_IF_ERROR(missing);
    const auto path = [&](const std::string& kind) {
      return absl::StrFormat("%s/%s-%05d-of-%05d.safetensors", folder, kind, part.stage.value + 1,
                             options_.layouts.size());
    };
    const PartTensors tensors = TensorsOf(part, options_.layouts[part.stage.value],
                                          options_.optimizer, left.file != nullptr);
    for (const auto& [kind, file] : tensors.files) {
      options_.moment();
      RZ_ASSIGN_OR_RETURN(const std::string checksum, writer_->Write(path(kind), file, &stop_));
      receipt.Add(checksum);
    }
    if (!left.is_whole) return absl::OkStatus();
    options_.moment();
    RZ_ASSIGN_OR_RETURN(const std::string checksum,
                        tier_.Link(part, *left.file, path("optimizer-tier")));
    receipt.Add(checksum);
    return absl::OkStatus();
  }

  void SavePart(const SavedPart& part, std::span<std::byte> memory) {
    Receipt receipt;
    std::memcpy(&receipt, memory.data(), sizeof receipt);
    const absl::Status written = WriteFiles(part, receipt);
    if (!written.ok() && !stop_) {
      ++receipt.failed;
      options_.failed(part.version, written);
    }
    std::memcpy(memory.data(), &receipt, sizeof receipt);
  }

  // Reads the heads of the files, which must be those that the receipts speak of.
  absl::Status FinishFolder(const std::string& folder, CheckpointState& state,
                            const Receipt& promised) {
    if (promised.failed > 0) {
      return InvalidArgument(promised.failed, " of its parts could not be written");
    }
    Receipt found;
    std::map<std::string, std::string> index;
    int64_t bytes = 0;
    for (const std::string& name : NamesIn(folder)) {
      RZ_ASSIGN_OR_RETURN(const auto reader,
                          SafetensorsReader::Open(absl::StrCat(folder, "/", name)));
      found.Add(state.files[name] = ChecksumOfHead(reader->head()));
      if (!absl::StartsWith(name, "model-") && !absl::StartsWith(name, "buffers-")) continue;
      for (const SafetensorsReader::Entry& tensor : reader->entries())
        index[tensor.spec.name] = name;
      bytes += static_cast<int64_t>(reader->values().size());
    }
    if (found != promised) {
      return InvalidArgument(folder, ": the workers have written ", promised.files,
                             " files, but here are ", found.files,
                             " of them (the folder must be one that all hosts share)");
    }
    const nlohmann::ordered_json json = {{"metadata", {{"total_size", bytes}}},
                                         {"weight_map", index}};
    RZ_RETURN_IF_ERROR(
        WriteWholeFile(absl::StrCat(folder, "/model.safetensors.index.json"), json.dump(2) + "\n"));
    return WriteWholeFile(absl::StrCat(folder, "/", kStateFile), WriteCheckpointState(state));
  }

  void EndVersion(Version v, const SavedScalars& scalars,
                  const std::vector<std::span<const std::byte>>& receipts) {
    Receipt sum;
    for (const std::span<const std::byte> memory : receipts) {
      Receipt receipt;
      std::memcpy(&receipt, memory.data(), sizeof receipt);
      sum.Add(receipt);
    }
    CheckpointState state = options_.run;
    state.version = v;
    state.norm = scalars.norm;
    state.loss_scale = scalars.loss_scale;
    const std::string folder = UnfinishedFolder(options_.folder, v);
    options_.moment();
    absl::Status status = FinishFolder(folder, state, sum);
    if (status.ok()) {
      status = CommitCheckpoint(options_.folder, v, options_.keep, options_.moment);
    }
    if (status.ok()) return;
    options_.failed(v, status);
    std::error_code ignored;
    std::filesystem::remove_all(folder, ignored);
  }

  const CheckpointSaverOptions options_;
  const std::unique_ptr<TensorFileWriter> writer_;
  std::atomic<bool> stop_ = false;
  TierTaker tier_{options_.layouts, options_.optimizer, options_.note};
  WorkerPool pool_;  // last: its thread uses all of the above
};

}  // namespace

absl::StatusOr<std::unique_ptr<Saver>> MakeCheckpointSaver(CheckpointSaverOptions options) {
  RZ_ASSIGN_OR_RETURN(auto writer, TensorFileWriter::Create(options.files));
  return std::make_unique<CheckpointSaver>(std::move(options), std::move(writer));
}

}  // namespace ringzero
