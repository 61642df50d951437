// `ringzero checkpoint list | verify | export | diff`: what a run has saved, for a person and for
// other programs.
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/files.h"
#include "base/status.h"
#include "integrations/checkpoint/checkpoint.h"
#include "integrations/checkpoint/tensor_file_writer.h"
#include "integrations/cli/command_line.h"
#include "sharding/study/render.h"
#include "zero/optimizer/arithmetic.h"

namespace ringzero {
namespace {

using Opened = absl::StatusOr<std::shared_ptr<const Checkpoint>>;

int64_t BytesIn(const std::string& folder) {
  std::error_code gone;
  int64_t bytes = 0;
  for (const std::string& name : NamesIn(folder)) {
    const auto size = std::filesystem::file_size(absl::StrCat(folder, "/", name), gone);
    if (!gone) bytes += static_cast<int64_t>(size);
  }
  return bytes;
}

// A run's checkpoints, or `path` itself if it is one. InvalidArgument: neither.
absl::StatusOr<std::vector<std::string>> CheckpointsAt(const std::string& path) {
  std::error_code error;
  if (std::filesystem::exists(absl::StrCat(path, "/", kStateFile), error)) {
    return std::vector<std::string>{path};
  }
  std::vector<std::string> found;
  for (const Version version : CheckpointsIn(path)) {
    found.push_back(absl::StrCat(path, "/", CheckpointName(version)));
  }
  if (!found.empty()) return found;
  return InvalidArgument(path, ": wanted a checkpoint, or a run's folder of checkpoints");
}

// The newest one of a run's folder, or `path` itself.
Opened OpenOne(const std::string& path) {
  RZ_ASSIGN_OR_RETURN(const std::vector<std::string> found, CheckpointsAt(path));
  if (found.front() == path) return Checkpoint::Open(path);
  return Checkpoint::OpenNewest(path, [](const absl::Status& why) {
    std::fprintf(stderr, "not whole: %s\n", std::string(why.message()).c_str());
  });
}

// A line for each. The error of the last one that is not whole.
absl::Status Describe(const CommandLine& line, Checkpoint::Check check) {
  RZ_ASSIGN_OR_RETURN(const std::vector<std::string> found, CheckpointsAt(line.others.at(0)));
  std::string text;
  absl::Status status;
  for (const std::string& path : found) {
    const Opened opened = Checkpoint::Open(path, check);
    if (!opened.ok()) {
      status = InvalidArgument(opened.status().message());
      absl::StrAppend(&text, path, ": not whole: ", opened.status().message(), "\n");
      continue;
    }
    const CheckpointState& state = (*opened)->state();
    absl::StrAppendFormat(&text, "%s: %s, %s; %s, %d workers, %d stages, batches of %d%s\n", path,
                          SizeText(static_cast<double>(BytesIn(path))), state.optimizer, state.rule,
                          state.workers, state.stages, state.train_batch,
                          check == Checkpoint::Check::kValues ? "; whole" : "");
  }
  RZ_RETURN_IF_ERROR(PrintToStdout(text));
  return status;
}

// A tensor's values as fp32, or nothing if they are no floating-point numbers.
absl::StatusOr<std::vector<float>> ValuesOf(const TensorFiles::Place& at) {
  if (at.entry->spec.type == TensorType::kI64) return std::vector<float>();
  std::vector<float> values(at.values().size() / WidthOf(at.entry->spec.type));
  RZ_RETURN_IF_ERROR(at.file->Read(*at.entry, at.entry->spec.shape, std::span(values)));
  return values;
}

// The model in one file.
absl::Status Export(const CommandLine& line) {
  if (line.out.empty()) return InvalidArgument("checkpoint export: wanted --out FILE");
  constexpr ValueType kTypes[] = {ValueType::kFp32, ValueType::kBf16, ValueType::kFp16};
  const ValueType* const type =
      std::ranges::find(kTypes, line.dtype, [](ValueType each) { return ToString(each); });
  if (type == std::end(kTypes)) {
    return InvalidArgument("--dtype: wanted fp32, bf16 or fp16, found \"", line.dtype, "\"");
  }
  RZ_ASSIGN_OR_RETURN(const auto checkpoint, OpenOne(line.others.at(0)));
  std::vector<TensorSource> tensors;
  std::vector<std::vector<uint16_t>> narrow;  // keeps what is not as in the file
  for (const auto& [name, at] : checkpoint->model().tensors()) {
    TensorSource& tensor = tensors.emplace_back();
    tensor.spec = at.entry->spec;
    tensor.values = at.values().data();
    if (*type == ValueType::kFp32) continue;
    RZ_ASSIGN_OR_RETURN(const std::vector<float> values, ValuesOf(at));
    if (values.empty()) continue;
    std::vector<uint16_t>& bits = narrow.emplace_back(values.size());
    std::ranges::transform(values, bits.begin(), [&](float v) { return ToWire(*type, v); });
    tensor.spec.type = TypeOf(*type);
    tensor.values = std::as_bytes(std::span(bits)).data();
  }
  RZ_ASSIGN_OR_RETURN(const auto writer, TensorFileWriter::Create({}));
  const std::string unfinished = absl::StrCat(line.out, ".tmp");
  absl::Status written = writer->Write(unfinished, std::move(tensors)).status();
  if (written.ok() && std::rename(unfinished.c_str(), line.out.c_str()) != 0) {
    written = absl::ErrnoToStatus(errno, absl::StrCat(line.out, ": cannot be written"));
  }
  if (!written.ok()) {
    unlink(unfinished.c_str());
    return absl::PermissionDeniedError(written.message());
  }
  return PrintText(line,
                   absl::StrCat(line.out, ": ", checkpoint->path(), " in ", line.dtype, "\n"));
}

// One line for each tensor that differs.
absl::Status Diff(const CommandLine& line) {
  if (line.others.size() != 2) return InvalidArgument("checkpoint diff: wanted two checkpoints");
  RZ_ASSIGN_OR_RETURN(const auto a, OpenOne(line.others[0]));
  RZ_ASSIGN_OR_RETURN(const auto b, OpenOne(line.others[1]));
  std::string text;
  for (const auto& [name, at] : a->model().tensors()) {
    const auto other = b->model().tensors().find(name);
    if (other == b->model().tensors().end()) {
      absl::StrAppend(&text, name, ": only in ", a->path(), "\n");
      continue;
    }
    if (std::ranges::equal(at.values(), other->second.values())) continue;
    RZ_ASSIGN_OR_RETURN(const std::vector<float> mine, ValuesOf(at));
    RZ_ASSIGN_OR_RETURN(const std::vector<float> theirs, ValuesOf(other->second));
    if (mine.size() != theirs.size()) {
      absl::StrAppend(&text, name, ": of another shape\n");
      continue;
    }
    size_t differ = 0;
    double most = 0;
    for (size_t i = 0; i < mine.size(); ++i) {
      differ += std::bit_cast<uint32_t>(mine[i]) != std::bit_cast<uint32_t>(theirs[i]);
      most = std::fmax(most, std::fabs(double{mine[i]} - theirs[i]));
    }
    absl::StrAppendFormat(&text, "%s: %d of %d values differ, by at most %g\n", name, differ,
                          mine.size(), most);
  }
  for (const auto& [name, at] : b->model().tensors()) {
    if (a->model().tensors().contains(name)) continue;
    absl::StrAppend(&text, name, ": only in ", b->path(), "\n");
  }
  return PrintToStdout(text.empty() ? "the same parameters and running statistics\n" : text);
}

}  // namespace

absl::Status RunCheckpoint(const CommandLine& line) {
  if (line.config != "diff" && line.others.size() != 1) {
    return InvalidArgument("ringzero checkpoint ", line.config, ": wanted one folder, found ",
                           line.others.size());
  }
  if (line.config == "list") return Describe(line, Checkpoint::Check::kHeads);
  if (line.config == "verify") return Describe(line, Checkpoint::Check::kValues);
  if (line.config == "export") return Export(line);
  if (line.config == "diff") return Diff(line);
  return InvalidArgument("ringzero checkpoint ", line.config,
                         ": wanted list, verify, export or diff");
}

}  // namespace ringzero
