// Names for what lies in a tier file, in the order of the file.
#include "integrations/checkpoint/tier_image.h"

#include <unistd.h>

#include <cstring>
#include <span>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "integrations/checkpoint/tensor_file_writer.h"
#include "integrations/data/safetensors.h"
#include "zero/optimizer/optimizer.h"

namespace ringzero {

static_assert(kTierStageBytes % TensorFileWriter::kPieceBytes == 0);

namespace {

// The states of a parameter, as its piece has them.
std::vector<std::string> NamesOf(const StateLayout& states, const ParameterSpec& parameter,
                                 const StatePiece& piece) {
  std::vector<std::string> names;
  for (const StateSpec& spec : states.specs) {
    if (spec.parameter != piece.parameter || spec.kind == StateSpec::Kind::kStep) continue;
    names.push_back(absl::StrCat(parameter.name, ".", spec.name));
  }
  if (piece.masters) names.push_back(absl::StrCat(parameter.name, ".master"));
  return names;
}

// What is between two tensors, or behind the last one, is one, too.
std::vector<TensorSpec> TensorsOf(const TierLayout& tier, const std::vector<StageLayout>& layouts,
                                  const OptimizerOptions& optimizer) {
  std::vector<TensorSpec> tensors;
  int64_t end = tier.head_bytes;
  constexpr auto kValue = static_cast<int64_t>(sizeof(float));
  const auto fill = [&](int64_t until) {
    if (until == end) return;
    const std::string name = absl::StrCat(".padding.", tier.pieces.begin()->first.value, ".", end);
    tensors.push_back({.name = name, .shape = {(until - end) / kValue}});
    end = until;
  };
  for (const auto& [stage, pieces] : tier.pieces) {
    const StateLayout states = StateLayout::Make(optimizer, layouts[stage.value]);
    const StoreGroup& group = tier.groups[tier.group_of.at(stage)];
    for (size_t i = 0; i < pieces.size(); ++i) {
      if (pieces[i].begin > 0) continue;
      const ParameterSpec& parameter = layouts[stage.value].parameters[pieces[i].parameter];
      const std::vector<std::string> names = NamesOf(states, parameter, pieces[i]);
      for (size_t s = 0; s < names.size(); ++s) {
        fill(group.pieces[i].extents[s].offset);
        tensors.push_back({.name = names[s], .shape = parameter.shape});
        end += parameter.numel * kValue;
      }
    }
  }
  fill(tier.bytes);
  return tensors;
}

}  // namespace

absl::Status MayTakeTier(const TierLayout& tier, const std::vector<StageLayout>& layouts,
                         const std::string& tier_folder, const std::string& folder) {
  for (const auto& [stage, pieces] : tier.pieces) {
    for (const StatePiece& piece : pieces) {
      const ParameterSpec& parameter = layouts[stage.value].parameters[piece.parameter];
      if (IsRowMajor(parameter.shape, parameter.strides)) continue;
      return InvalidArgument(parameter.name, " does not lie row by row");
    }
  }
  const std::string tried =
      absl::StrCat(folder, "/tried-", tier.pieces.begin()->first.value, ".tmp");
  RZ_ASSIGN_OR_RETURN(const TierFile file, TierFile::Create(tier_folder, kDirectAlignment));
  RZ_RETURN_IF_ERROR(file.Link(tried));
  unlink(tried.c_str());
  return absl::OkStatus();
}

absl::StatusOr<std::string> LinkTier(const TierLayout& tier,
                                     const std::vector<StageLayout>& layouts,
                                     const OptimizerOptions& optimizer,
                                     const std::map<StageId, std::vector<uint64_t>>& checksums,
                                     const TierFile& file, const std::string& path) {
  std::vector<uint64_t> pieces;  // stages begin with one
  for (const auto& [stage, each] : checksums) pieces.insert(pieces.end(), each.begin(), each.end());
  const auto head_bytes = static_cast<size_t>(tier.head_bytes);
  RZ_ASSIGN_OR_RETURN(
      const std::string head,
      SafetensorsHead(TensorsOf(tier, layouts, optimizer),
                      {{"format", "pt"}, {"checksum", ChecksumOf(pieces)}}, head_bytes));
  if (head.size() != head_bytes) {
    return Internal(path, ": its head has ", head.size(), " bytes, and room for ", head_bytes);
  }
  std::memcpy(file.mapped(), head.data(), head.size());
  RZ_RETURN_IF_ERROR(file.Link(path));
  return ChecksumOfHead(std::as_bytes(std::span(head)));
}

Streams::LeftFile TierTaker::Take(const SavedPart& part, const std::string& folder) {
  if (part.streams == nullptr) return {};
  const TierLayout& tier = part.streams->layout();
  const auto copies = [&](const absl::Status& why) {
    takes_ = false;
    if (!std::exchange(noted_, true)) {
      note_(absl::StrCat("checkpoints copy the states on NVMe: ", why.message()));
    }
    return Streams::LeftFile();
  };
  if (std::exchange(version_, part.version) != part.version) {
    takes_ = true;
    checksums_.clear();
    const absl::Status may = MayTakeTier(tier, layouts_, part.streams->folder(), folder);
    if (!may.ok()) return copies(may);
  }
  if (!takes_) return {};
  absl::StatusOr<Streams::LeftFile> left = part.streams->Leave(part.stage, part.version);
  if (!left.ok()) return copies(left.status());
  const auto [begin, end] = tier.RunOf(part.stage);
  checksums_[part.stage] =
      ChecksumsOfPieces({left->file->mapped() + begin, static_cast<size_t>(end - begin)});
  return *std::move(left);
}

}  // namespace ringzero
