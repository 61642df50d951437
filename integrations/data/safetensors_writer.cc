// Writes tensors one after the other, and names the file when it is whole.
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/status.h"
#include "integrations/data/safetensors.h"
#include "integrations/data/safetensors_header.h"

namespace ringzero {
SafetensorsWriter::SafetensorsWriter(std::string path, std::vector<TensorSpec> tensors,
                                     std::unique_ptr<OutputFile> file)
    : path_(std::move(path)), tensors_(std::move(tensors)), file_(std::move(file)) {}

absl::Status SafetensorsWriter::Error(const std::string& what) const {
  return absl::InvalidArgumentError(absl::StrCat(path_, ": ", what));
}

absl::StatusOr<std::unique_ptr<SafetensorsWriter>> SafetensorsWriter::Create(
    const std::string& path, std::vector<TensorSpec> tensors,
    const std::map<std::string, std::string>& metadata) {
  const absl::StatusOr<std::string> header = safetensors_internal::MakeHeader(tensors, metadata);
  if (!header.ok()) return Annotate(header.status(), path);
  RZ_ASSIGN_OR_RETURN(auto file, OutputFile::Open(path, OutputFile::As::kWhole));
  RZ_RETURN_IF_ERROR(file->Write(*header));
  std::unique_ptr<SafetensorsWriter> writer(
      new SafetensorsWriter(path, std::move(tensors), std::move(file)));
  writer->written_ = header->size();
  return writer;
}

absl::Status SafetensorsWriter::WriteNext(const std::string& name, TensorType type,
                                          std::span<const std::byte> bytes) {
  if (file_ == nullptr || next_ == tensors_.size() || tensors_[next_].name != name) {
    return Error(absl::StrCat("tensor '", name, "' is written where ",
                              file_ == nullptr || next_ == tensors_.size()
                                  ? "no tensor is left"
                                  : absl::StrCat("'", tensors_[next_].name, "' is next")));
  }
  const TensorSpec& spec = tensors_[next_];
  const std::string type_name = safetensors_internal::TypeName(spec.type);
  RZ_ASSIGN_OR_RETURN(const uint64_t wanted, safetensors_internal::ByteSize(spec, type_name));
  if (type != spec.type || bytes.size() != wanted) {
    return Error(absl::StrCat("tensor '", name, "': ", bytes.size(), " bytes of ",
                              safetensors_internal::TypeName(type), " given, but ", type_name, " ",
                              safetensors_internal::ShapeText(spec.shape), " wants ", wanted));
  }
  RZ_RETURN_IF_ERROR(
      file_->Write(absl::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size())));
  ++next_;
  written_ += wanted;
  return absl::OkStatus();
}

absl::Status SafetensorsWriter::Write(const std::string& name, std::span<const float> values) {
  return WriteNext(name, TensorType::kF32, std::as_bytes(values));
}

absl::Status SafetensorsWriter::Write(const std::string& name, std::span<const int64_t> values) {
  return WriteNext(name, TensorType::kI64, std::as_bytes(values));
}

absl::Status SafetensorsWriter::Finish() {
  if (file_ == nullptr) return Error("is finished already");
  if (next_ < tensors_.size()) {
    return Error(absl::StrCat("tensor '", tensors_[next_].name, "' was not written"));
  }
  RZ_RETURN_IF_ERROR(file_->Finish());
  file_ = nullptr;
  return absl::OkStatus();
}

absl::Status SafetensorsWriter::MoveTo(const std::string& path) {
  if (file_ == nullptr) return Error("is finished already");
  RZ_ASSIGN_OR_RETURN(file_, file_->CopyTo(path, written_));
  path_ = path;
  return absl::OkStatus();
}

}  // namespace ringzero
