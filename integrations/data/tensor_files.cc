// One name, one file: single files, indices and folders.
#include "integrations/data/tensor_files.h"

#include <filesystem>
#include <nlohmann/json.hpp>
#include <system_error>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/files.h"
#include "base/status.h"

namespace ringzero {
namespace {

constexpr char kModelFile[] = "/model.safetensors";

// What the index says: file by tensor.
absl::StatusOr<std::map<std::string, std::string>> ReadIndex(const std::string& path) {
  RZ_ASSIGN_OR_RETURN(const std::string text, ReadWholeFile(path));
  const auto json = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  const auto map = json.is_object() ? json.value("weight_map", nlohmann::json()) : json;
  if (!map.is_object()) {
    return InvalidArgument(path, ": wanted JSON with \"weight_map\": a file's name by tensor");
  }
  std::map<std::string, std::string> files;
  for (const auto& [tensor, file] : map.items()) {
    if (!file.is_string()) return InvalidArgument(path, ": weight_map: ", tensor, " has no file");
    files[tensor] = file;
  }
  return files;
}

}  // namespace

absl::Status TensorFiles::Missing(const std::string& name) {
  return absl::NotFoundError(absl::StrCat("there is no tensor '", name, "'"));
}

absl::Status TensorFiles::Add(std::shared_ptr<const SafetensorsReader> file) {
  for (const SafetensorsReader::Entry& entry : file->entries()) {
    const bool added = tensors_.try_emplace(entry.spec.name, Place{file, &entry}).second;
    if (!added) return InvalidArgument("tensor '", entry.spec.name, "' stands in two files");
  }
  return absl::OkStatus();
}

absl::StatusOr<TensorFiles> TensorFiles::Open(const std::string& path) {
  std::error_code missing;
  if (std::filesystem::is_directory(path, missing)) {
    const std::string model = absl::StrCat(path, kModelFile);
    const std::string index = absl::StrCat(model, ".index.json");
    return Open(std::filesystem::exists(index, missing) ? index : model);
  }
  TensorFiles files;
  if (!absl::EndsWith(path, ".json")) {
    RZ_ASSIGN_OR_RETURN(auto file, SafetensorsReader::Open(path));
    RZ_RETURN_IF_ERROR(files.Add(std::move(file)));
    return files;
  }
  RZ_ASSIGN_OR_RETURN(const auto index, ReadIndex(path));
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  std::map<std::string, std::shared_ptr<const SafetensorsReader>> opened;
  for (const auto& [tensor, name] : index) {
    if (opened.contains(name)) continue;
    RZ_ASSIGN_OR_RETURN(opened[name], SafetensorsReader::Open(folder / name));
    RZ_RETURN_IF_ERROR(Annotate(files.Add(opened[name]), path));
  }
  for (const auto& [tensor, name] : index) {
    if (opened[name]->Find(tensor) != nullptr) continue;
    return InvalidArgument(path, ": tensor '", tensor, "' is not in ", name);
  }
  return files;
}

}  // namespace ringzero
