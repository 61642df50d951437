// Images of versions, and where they lie.
#include "zero/version_files.h"

#include <sys/mman.h>

#include <cstring>
#include <functional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/crypto.h"
#include "base/status.h"
#include "sharding/memory/block_table.h"
#include "sharding/program/operands.h"
#include "sharding/rules/schedule.h"

namespace ringzero {
namespace {

struct Trailer {
  int64_t label;
  uint64_t checksum;
  bool operator==(const Trailer&) const = default;
};
static_assert(sizeof(Trailer) <= kPayloadAlignment);

Trailer TrailerOf(std::span<const std::byte> image, int64_t parameter_bytes, Version label) {
  return {StampOf(label), Checksum(image.first(static_cast<size_t>(parameter_bytes)))};
}

constexpr MemoryBlock kHandle{.kind = BlockKind::kVersionFile};
static_assert(sizeof(TierFile::Handle) <= kFileNameBytes);

}  // namespace

VersionLayout LayOutVersions(const Plan& plan, WorkerId home) {
  VersionLayout layout;
  for (int j = 0; j < plan.stage_count(); ++j) {
    const StageId stage(j);
    if (!plan.stages[j].streams_parameters || plan.owner(stage) != home) continue;
    for (const Version label : {Version(0), Version(1), Prediction(0), Prediction(1)}) {
      if (IsPrediction(label) && !IsPredicted(plan, stage)) continue;
      const MemoryBlock version = VersionBlock(plan, stage, label);
      if (!layout.begins.try_emplace(version, layout.bytes).second) continue;  // made in place
      layout.bytes += ImageBytes(plan.stages[j].parameter_bytes);
    }
  }
  return layout;
}

void SealImage(std::span<std::byte> image, int64_t parameter_bytes, Version label) {
  const Trailer trailer = TrailerOf(image, parameter_bytes, label);
  std::memcpy(image.data() + TrailerOffset(parameter_bytes), &trailer, sizeof trailer);
}

absl::Status CheckImage(std::span<const std::byte> image, int64_t parameter_bytes, Version label) {
  Trailer found;
  std::memcpy(&found, image.data() + TrailerOffset(parameter_bytes), sizeof found);
  if (found == TrailerOf(image, parameter_bytes, label)) return absl::OkStatus();
  return absl::DataLossError("what was read is not what was written there last");
}

MappedMemory VersionFiles::Home::At(const Plan& plan, const MemoryBlock& version) const {
  const auto bytes = static_cast<size_t>(plan.stage(version.stage).parameter_bytes);
  return {{file->mapped() + layout.begins.at(version), bytes}, file};
}

bool VersionFiles::Home::Contains(const std::byte* values) const {
  const std::byte* const begin = file->mapped();
  return !std::less<>()(values, begin) && std::less<>()(values, begin + file->bytes());
}

absl::Status VersionFiles::Begin(std::shared_ptr<const TierFile> file) {
  Home home{std::move(file), LayOutVersions(plan_, self_)};
  if (home.layout.bytes == 0) return absl::OkStatus();
  if (home.file == nullptr) {
    return absl::InvalidArgumentError("a plan whose parameters stream needs a file for them");
  }
  for (const auto& [version, begin] : home.layout.begins) {
    blocks_.Map(version, home.At(plan_, version));
  }
  if (blocks_.Has(kHandle)) {
    const TierFile::Handle handle = home.file->handle();
    std::memcpy(blocks_.Write(kHandle), &handle, sizeof handle);
  }
  homes_[self_] = std::move(home);
  return absl::OkStatus();
}

absl::StatusOr<MappedMemory> VersionFiles::Of(const LentBlock& lent, const std::byte* handle) {
  const auto known = homes_.find(lent.home);
  if (known != homes_.end()) return known->second.At(plan_, lent.block);
  TierFile::Handle named;
  std::memcpy(&named, handle, sizeof named);
  absl::StatusOr<TierFile> opened = TierFile::Open(named);
  const std::string whose = absl::StrCat("the file with parameters of worker ", lent.home.value);
  if (!opened.ok()) return Annotate(opened.status(), whose);
  const Home home{std::make_shared<const TierFile>(*std::move(opened)),
                  LayOutVersions(plan_, lent.home)};
  return homes_.try_emplace(lent.home, home).first->second.At(plan_, lent.block);
}

std::span<std::byte> VersionFiles::ImageOf(StageId stage, const std::byte* values) const {
  const auto own = homes_.find(self_);
  if (own == homes_.end() || !own->second.Contains(values)) return {};
  return {const_cast<std::byte*>(values),
          static_cast<size_t>(ImageBytes(plan_.stage(stage).parameter_bytes))};
}

void VersionFiles::Seal(StageId stage, const std::byte* values, Version label) const {
  const std::span<std::byte> image = ImageOf(stage, values);
  if (image.empty()) return;
  SealImage(image, plan_.stage(stage).parameter_bytes, label);
  (void)msync(image.data(), image.size(), MS_SYNC);
  homes_.at(self_).file->Forget(image);
}

absl::Status VersionFiles::Check(StageId stage, const std::byte* values, Version label) const {
  const std::span<std::byte> image = ImageOf(stage, values);
  if (image.empty()) return absl::OkStatus();
  const absl::Status whole = CheckImage(image, plan_.stage(stage).parameter_bytes, label);
  const TierFile& file = *homes_.at(self_).file;
  file.Forget(image);
  return Annotate(whole, absl::StrCat("parameters, version ", LabelText(label), " at offset ",
                                      image.data() - file.mapped()));
}

StateStore::Run VersionFiles::RunOf(const Instruction& op) const {
  const bool loads = op.kind == OpKind::kLoad;
  const MemoryBlock& from = op.uses[0].block;
  const MemoryBlock& to = op.uses[1].block;
  const std::byte* const image = blocks_.Read(loads ? from : to);
  const TierFile* file = nullptr;
  for (const auto& [owner, home] : homes_) file = home.Contains(image) ? home.file.get() : file;
  const StagePlan& stage = plan_.stage(op.stage);
  const auto bytes = static_cast<size_t>(ImageBytes(stage.parameter_bytes));
  return {.kind = loads ? IoRequest::Kind::kRead : IoRequest::Kind::kWrite,
          .file = file->descriptor(),
          .offset = image - file->mapped(),
          .memory = blocks_.Bytes(loads ? to : from).first(bytes),
          .keeper = blocks_.Lend(loads ? to : from),
          .name = absl::StrCat("parameters of stage ", op.stage.value, " (", stage.name,
                               "), version ", LabelText(op.version))};
}

}  // namespace ringzero
