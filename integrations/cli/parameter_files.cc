// Names and shapes of a model, compared with those of a file and written into one.
#include "integrations/cli/parameter_files.h"

#include <bit>
#include <map>
#include <span>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status.h"
#include "zero/config/keys.h"

namespace ringzero {
namespace {

static_assert(std::endian::native == std::endian::little, "digests are of little-endian values");

std::vector<TensorSpec> SpecsOf(const std::vector<StageLayout>& layouts) {
  std::vector<TensorSpec> tensors;
  for (const StageLayout& layout : layouts) {
    for (const ParameterSpec& parameter : layout.parameters) tensors.push_back(SpecOf(parameter));
    for (const StatisticSpec& statistic : layout.statistics) tensors.push_back(SpecOf(statistic));
  }
  return tensors;
}

uint64_t BytesOf(const TensorSpec& tensor) {
  return static_cast<uint64_t>(NumelOf(tensor.shape)) * WidthOf(tensor.type);
}

std::string Shape(const std::vector<int64_t>& shape) {
  return absl::StrCat("[", absl::StrJoin(shape, ", "), "]");
}

template <typename... Parts>
absl::Status Mismatch(const std::string& path, const std::string& tensor, const Parts&... parts) {
  return InvalidArgument(path, ": tensor \"", tensor, "\": ", parts...);
}

absl::Status CheckInitFile(const std::string& path, const TensorFiles& files,
                           const std::map<std::string, TensorSpec>& all,
                           std::vector<std::string>* strays) {
  for (const auto& [known, place] : files.tensors()) {
    if (all.contains(known)) continue;
    if (strays != nullptr) {
      strays->push_back(absl::StrCat("unexpected: ", known));
      continue;
    }
    const auto name = [](std::string* to, const auto& each) { to->append(each.first); };
    const std::string names = absl::StrJoin(all, "|", name);
    const absl::string_view nearest = NearestChoice(names, known);
    return Mismatch(path, known, "the model has no such parameter",
                    nearest.empty() ? "" : "; the nearest is ", nearest);
  }
  for (const auto& [name, spec] : all) {
    const auto found_at = files.tensors().find(name);
    if (found_at == files.tensors().end()) {
      if (strays == nullptr) return Mismatch(path, name, "missing; the model has it");
      strays->push_back(absl::StrCat("missing: ", name));
      continue;
    }
    const SafetensorsReader::Entry* entry = found_at->second.entry;
    if (entry->spec.shape != spec.shape) {
      return Mismatch(path, name, "wanted the shape ", Shape(spec.shape), ", found ",
                      Shape(entry->spec.shape));
    }
    const bool count = spec.type == TensorType::kI64;
    const TensorType found = entry->spec.type;
    if (found == TensorType::kOther || count != (found == TensorType::kI64)) {
      return Mismatch(path, name, "wanted ", count ? "I64" : "F32, F16 or BF16", ", found ",
                      entry->type_name);
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Preset> OpenInitFile(const std::string& path, const ModelDescription& model,
                                    std::vector<std::string>* strays) {
  RZ_ASSIGN_OR_RETURN(TensorFiles files, TensorFiles::Open(path));
  return PresetOf(path, std::move(files), model, strays);
}

absl::StatusOr<Preset> PresetOf(const std::string& path, TensorFiles files,
                                const ModelDescription& model, std::vector<std::string>* strays) {
  std::map<std::string, TensorSpec> wanted;
  for (const LayerDescription& layer : model.layers) {
    for (const ParameterSpec& p : layer.parameters) wanted[p.name] = SpecOf(p);
    for (const StatisticSpec& s : layer.statistics) wanted[s.name] = SpecOf(s);
  }
  RZ_RETURN_IF_ERROR(CheckInitFile(path, files, wanted, strays));
  return [wanted, files = std::move(files)](const std::string& name,
                                            std::vector<float>& values) -> absl::StatusOr<bool> {
    const auto found = wanted.find(name);
    if (found == wanted.end() || !files.tensors().contains(name)) return false;
    const TensorSpec& spec = found->second;
    if (spec.type == TensorType::kI64) {
      int64_t count = 0;
      RZ_RETURN_IF_ERROR(files.Read(name, spec.shape, std::span(&count, 1)));
      values = {static_cast<float>(count)};
      return true;
    }
    values.resize(static_cast<size_t>(NumelOf(spec.shape)));
    RZ_RETURN_IF_ERROR(files.Read(name, spec.shape, std::span<float>(values)));
    return true;
  };
}

uint64_t DumpBytes(const std::vector<StageLayout>& layouts) {
  uint64_t bytes = 0;
  for (const TensorSpec& tensor : SpecsOf(layouts)) bytes += BytesOf(tensor);
  return bytes;
}

absl::StatusOr<std::unique_ptr<ParameterCollector>> ParameterCollector::Create(
    const std::string& path, const std::vector<StageLayout>& layouts) {
  std::unique_ptr<ParameterCollector> collector(new ParameterCollector(path));
  if (path.empty()) return collector;
  collector->tensors_ = SpecsOf(layouts);
  RZ_ASSIGN_OR_RETURN(const std::string head,
                      Annotate(SafetensorsHead(collector->tensors_, {{"format", "pt"}}), path));
  RZ_RETURN_IF_ERROR(collector->OrElsewhere(
      [&] { return collector->file_ == nullptr ? collector->GoOnIn(path) : absl::OkStatus(); }));
  RZ_RETURN_IF_ERROR(collector->Write(head));
  return collector;
}

ParameterCollector::~ParameterCollector() {
  file_ = nullptr;
  if (!spare_.empty()) DropSparePath(spare_);  // the folder stays if the file is in it
}

absl::Status ParameterCollector::GoOnIn(const std::string& path) {
  RZ_ASSIGN_OR_RETURN(file_, file_ == nullptr ? OutputFile::Open(path, OutputFile::As::kWhole)
                                              : file_->CopyTo(path, written_));
  return absl::OkStatus();
}

absl::Status ParameterCollector::OrElsewhere(const std::function<absl::Status()>& write) {
  const absl::Status tried = write();
  if (!absl::IsPermissionDenied(tried)) return tried;
  why_.emplace_back(tried.message());
  if (spare_.empty()) {
    const absl::StatusOr<std::string> spare = MakeSparePath(path_);
    absl::Status moved = spare.ok() ? GoOnIn(*spare) : spare.status();
    if (moved.ok()) moved = write();
    if (moved.ok()) spare_ = *spare;
    if (!absl::IsPermissionDenied(moved)) return moved;
    file_ = nullptr;
    if (spare.ok()) DropSparePath(*spare);
    why_.emplace_back(moved.message());
  }
  file_ = nullptr;
  return absl::OkStatus();
}

absl::Status ParameterCollector::Write(absl::string_view bytes) {
  if (file_ == nullptr) return absl::OkStatus();
  RZ_RETURN_IF_ERROR(OrElsewhere([&] { return file_->Write(bytes); }));
  written_ += bytes.size();
  return absl::OkStatus();
}

absl::Status ParameterCollector::Add(const NamedValues& values) {
  const auto floats = std::as_bytes(std::span<const float>(values.values));
  if (values.kind == NamedValues::Kind::kParameter) digest_.Update(floats);
  if (file_ == nullptr) return absl::OkStatus();
  const auto bytes = values.count >= 0 ? std::as_bytes(std::span(&values.count, 1)) : floats;
  if (next_ == tensors_.size() || tensors_[next_].name != values.name ||
      BytesOf(tensors_[next_]) != bytes.size()) {
    return Internal(path_, ": \"", values.name, "\" is not the tensor that comes next");
  }
  ++next_;
  return Write({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
}

absl::StatusOr<std::string> ParameterCollector::Finish() {
  if (file_ != nullptr) {
    if (next_ < tensors_.size()) return Internal(path_, ": ", tensors_[next_].name, " is missing");
    RZ_RETURN_IF_ERROR(OrElsewhere([this] { return file_->Finish(); }));
  }
  return digest_.FinishHex();
}

std::string ParameterCollector::trouble() const {
  if (why_.empty()) return "";
  return absl::StrCat(absl::StrJoin(why_, "; "),
                      file_ == nullptr ? "; the parameters are lost"
                                       : absl::StrCat("; the parameters are in ", spare_));
}

}  // namespace ringzero
