// Maps and reads safetensors files, whose header is checked before anything in it is believed.
#include "integrations/data/safetensors.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>
#include <string_view>
#include <system_error>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/files.h"
#include "base/status.h"
#include "base/unique_fd.h"
#include "zero/optimizer/arithmetic.h"
#include "zero/optimizer/kernels.h"

namespace ringzero {
namespace {

using Json = nlohmann::ordered_json;
using Entry = SafetensorsReader::Entry;

static_assert(std::endian::native == std::endian::little, "values are stored little-endian");

constexpr uint64_t kMostHeaderBytes = 100'000'000;  // the format's own limit
constexpr uint64_t kMostBytes = uint64_t{1} << 62;

struct TypeInfo {
  std::string_view name;
  TensorType type;
  uint64_t bytes;
};
constexpr TypeInfo kTypes[] = {
    {"F32", TensorType::kF32, 4},       {"F16", TensorType::kF16, 2},
    {"BF16", TensorType::kBF16, 2},     {"I64", TensorType::kI64, 8},
    {"F64", TensorType::kOther, 8},     {"U64", TensorType::kOther, 8},
    {"I32", TensorType::kOther, 4},     {"U32", TensorType::kOther, 4},
    {"I16", TensorType::kOther, 2},     {"U16", TensorType::kOther, 2},
    {"I8", TensorType::kOther, 1},      {"U8", TensorType::kOther, 1},
    {"F8_E4M3", TensorType::kOther, 1}, {"F8_E5M2", TensorType::kOther, 1},
    {"BOOL", TensorType::kOther, 1}};

std::string ShapeText(const std::vector<int64_t>& shape) {
  return absl::StrCat("{", absl::StrJoin(shape, ", "), "}");
}

// Bytes of `spec`'s values, or an error: a negative extent, more bytes than 2^62.
absl::StatusOr<uint64_t> ByteSize(const TensorSpec& spec, const TypeInfo& type) {
  unsigned __int128 bytes = type.bytes;
  for (const int64_t extent : spec.shape) {
    if (extent < 0) return InvalidArgument("its shape has the extent ", extent);
    // A zero later on does not excuse a product that no file can hold.
    bytes *= static_cast<uint64_t>(extent);
    if (bytes > kMostBytes) {
      return InvalidArgument("its shape ", ShapeText(spec.shape), " is too large");
    }
  }
  return static_cast<uint64_t>(bytes);
}

// JSON lets a name stand twice and the parser would keep the last: refused while parsing.
absl::StatusOr<Json> ParseJson(std::string_view text) {
  std::string twice;
  std::set<std::string> names;
  const auto watch = [&](int depth, Json::parse_event_t event, Json& value) {
    if (event == Json::parse_event_t::key && depth == 1) {
      const std::string name = value.get<std::string>();
      if (!names.insert(name).second && twice.empty()) twice = name;
    }
    return true;
  };
  Json json = Json::parse(text, watch, /*allow_exceptions=*/false);
  if (json.is_discarded()) return InvalidArgument("its header is not valid JSON");
  if (!json.is_object()) return InvalidArgument("its header is not a JSON object");
  if (!twice.empty()) return InvalidArgument("tensor '", twice, "' stands twice in the header");
  return json;
}

absl::Status CheckMetadata(const Json& json) {
  if (!json.is_object()) return InvalidArgument("__metadata__ is not a JSON object");
  for (const auto& [key, value] : json.items()) {
    if (!value.is_string()) return InvalidArgument("__metadata__.", key, " is not a string");
  }
  return absl::OkStatus();
}

bool AreSizes(const Json& json) {
  return std::all_of(json.begin(), json.end(), [](const Json& size) {
    return size.is_number_integer() && size.get<int64_t>() >= 0 &&
           (!size.is_number_unsigned() || size.get<uint64_t>() <= kMostBytes);
  });
}

absl::StatusOr<Entry> ParseEntry(const std::string& name, const Json& json, uint64_t value_bytes) {
  if (!json.is_object()) return InvalidArgument("not a JSON object");
  for (const auto& [key, value] : json.items()) {
    if (key != "dtype" && key != "shape" && key != "data_offsets") {
      return InvalidArgument("unknown key '", key, "'");
    }
  }
  const Json type = json.value("dtype", Json()), shape = json.value("shape", Json());
  const Json offsets = json.value("data_offsets", Json());
  if (!type.is_string()) return InvalidArgument("no dtype");
  if (!shape.is_array()) return InvalidArgument("no shape");
  if (!offsets.is_array()) return InvalidArgument("no data_offsets");
  if (!AreSizes(shape)) return InvalidArgument("its shape is not a list of sizes");
  if (offsets.size() != 2 || !AreSizes(offsets)) {
    return InvalidArgument("its data_offsets are not two sizes");
  }
  Entry entry = {.spec = {.name = name, .shape = shape}, .type_name = type};
  const TypeInfo* info = std::ranges::find(kTypes, entry.type_name, &TypeInfo::name);
  if (info == std::end(kTypes)) return InvalidArgument("unknown dtype '", entry.type_name, "'");
  entry.spec.type = info->type;
  entry.begin = offsets[0].get<uint64_t>();
  entry.end = offsets[1].get<uint64_t>();
  if (entry.begin > entry.end || entry.end > value_bytes) {
    return InvalidArgument("its values lie at bytes ", entry.begin, " to ", entry.end,
                           ", but the file has ", value_bytes, " bytes of values");
  }
  RZ_ASSIGN_OR_RETURN(const uint64_t wanted, ByteSize(entry.spec, *info));
  if (entry.end - entry.begin != wanted) {
    return InvalidArgument("its values have ", entry.end - entry.begin, " bytes, but ",
                           entry.type_name, " ", ShapeText(entry.spec.shape), " wants ", wanted);
  }
  return entry;
}

// Values in a file may lie at any address.
void Widen(ValueType type, const std::byte* from, std::span<float> out) {
  for (float& value : out) {
    uint16_t bits;
    std::memcpy(&bits, from, sizeof bits);
    from += sizeof bits;
    value = FromWire(type, bits);
  }
}

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

TensorSpec SpecOf(const ParameterSpec& parameter) {
  return {.name = parameter.name, .type = TensorType::kF32, .shape = parameter.shape};
}

TensorSpec SpecOf(const StatisticSpec& statistic) {
  if (statistic.kind == StatisticSpec::Kind::kCount) return {statistic.name, TensorType::kI64, {}};
  return {statistic.name, TensorType::kF32, {statistic.numel}};
}

size_t WidthOf(TensorType type) {
  return type == TensorType::kI64 ? 8 : type == TensorType::kF32 ? 4 : 2;
}

int64_t NumelOf(const std::vector<int64_t>& shape) {
  return std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<int64_t>());
}

absl::StatusOr<std::string> SafetensorsHead(const std::vector<TensorSpec>& tensors,
                                            const std::map<std::string, std::string>& metadata,
                                            size_t multiple) {
  Json json = Json::object();
  if (!metadata.empty()) json["__metadata__"] = metadata;
  uint64_t at = 0;
  for (const TensorSpec& spec : tensors) {
    if (spec.name == "__metadata__") {
      return InvalidArgument("no tensor may be called '__metadata__'");
    }
    if (json.contains(spec.name)) return InvalidArgument("tensor '", spec.name, "' stands twice");
    if (spec.type == TensorType::kOther) {
      return InvalidArgument("tensor '", spec.name, "': a type that cannot be written");
    }
    const TypeInfo& type = *std::ranges::find(kTypes, spec.type, &TypeInfo::type);
    RZ_ASSIGN_OR_RETURN(const uint64_t bytes,
                        Annotate(ByteSize(spec, type), absl::StrCat("tensor '", spec.name, "'")));
    json[spec.name] = {
        {"dtype", type.name}, {"shape", spec.shape}, {"data_offsets", {at, at + bytes}}};
    at += bytes;
  }
  std::string text = json.dump(-1, ' ', false, Json::error_handler_t::replace);
  text.resize((8 + text.size() + multiple - 1) / multiple * multiple - 8, ' ');
  std::string length(8, '\0');
  for (int i = 0; i < 8; ++i) length[i] = static_cast<char>(text.size() >> (8 * i));
  return length + text;
}

SafetensorsReader::~SafetensorsReader() {
  munmap(const_cast<std::byte*>(file_.data()), file_.size());
}

absl::StatusOr<std::unique_ptr<SafetensorsReader>> SafetensorsReader::Open(
    const std::string& path) {
  // A FIFO does not keep this waiting: it is refused below.
  const UniqueFd file(open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  if (!file) {
    const std::string message = absl::StrCat(path, ": cannot be opened: ", std::strerror(errno));
    return errno == ENOENT ? absl::NotFoundError(message) : absl::InvalidArgumentError(message);
  }
  struct stat info;
  if (fstat(file.get(), &info) != 0 || !S_ISREG(info.st_mode)) {
    return InvalidArgument(path, ": is not a regular file");
  }
  const auto size = static_cast<size_t>(info.st_size);
  if (size < 8) {
    return InvalidArgument(path, ": truncated: ", size, " bytes; the header's length has 8");
  }
  void* memory = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.get(), 0);
  if (memory == MAP_FAILED) {
    return InvalidArgument(path, ": cannot be mapped: ", std::strerror(errno));
  }
  std::unique_ptr<SafetensorsReader> reader(
      new SafetensorsReader(path, {static_cast<const std::byte*>(memory), size}));
  // Only the head is read here. The kernel would read values ahead, also where a commit opens
  // files that were written past the page cache.
  (void)madvise(memory, size, MADV_RANDOM);
  RZ_RETURN_IF_ERROR(Annotate(reader->Parse(), path));
  (void)madvise(memory, size, MADV_NORMAL);
  return reader;
}

absl::Status SafetensorsReader::Parse() {
  uint64_t header_bytes;
  std::memcpy(&header_bytes, file_.data(), 8);
  if (header_bytes > kMostHeaderBytes) {
    return InvalidArgument("its header would have ", header_bytes, " bytes: the most is ",
                           kMostHeaderBytes, " (is it a safetensors file?)");
  }
  if (header_bytes > file_.size() - 8) {
    return InvalidArgument("truncated: a header of ", header_bytes, " bytes in a file of ",
                           file_.size());
  }
  values_ = file_.subspan(8 + header_bytes);
  const std::string_view text(reinterpret_cast<const char*>(file_.data()) + 8, header_bytes);
  RZ_ASSIGN_OR_RETURN(const Json json, ParseJson(text));
  for (const auto& [name, value] : json.items()) {
    if (name == "__metadata__") {
      RZ_RETURN_IF_ERROR(CheckMetadata(value));
      metadata_ = value;
      continue;
    }
    RZ_ASSIGN_OR_RETURN(Entry entry, Annotate(ParseEntry(name, value, values_.size()),
                                              absl::StrCat("tensor '", name, "'")));
    entries_.push_back(std::move(entry));
  }
  std::ranges::sort(entries_, {}, [](const Entry& e) { return std::pair(e.begin, e.end); });
  // Values follow one another without gap or overlap, to the end.
  uint64_t at = 0;
  for (const Entry& entry : entries_) {
    if (entry.begin != at) {
      return InvalidArgument("tensor '", entry.spec.name, "': its values begin at byte ",
                             entry.begin, ", but those before it end at ", at);
    }
    at = entry.end;
  }
  if (at == values_.size()) return absl::OkStatus();
  return InvalidArgument(values_.size() - at, " bytes follow the last tensor's values");
}

absl::Status SafetensorsReader::Check(const Entry& entry, const std::vector<int64_t>& shape,
                                      size_t values) const {
  const TensorSpec& spec = entry.spec;
  if (spec.shape == shape && NumelOf(shape) == int64_t(values)) return absl::OkStatus();
  return InvalidArgument(path_, ": tensor '", spec.name, "' has the shape ", ShapeText(spec.shape),
                         ", wanted ", ShapeText(shape), " (", values, " values)");
}

absl::Status SafetensorsReader::Read(const Entry& entry, const std::vector<int64_t>& shape,
                                     std::span<float> out) const {
  RZ_RETURN_IF_ERROR(Check(entry, shape, out.size()));
  const std::byte* from = values_.data() + entry.begin;
  switch (entry.spec.type) {
    case TensorType::kF32:
      if (!out.empty()) std::memcpy(out.data(), from, out.size_bytes());
      return absl::OkStatus();
    case TensorType::kF16: Widen(ValueType::kFp16, from, out); return absl::OkStatus();
    case TensorType::kBF16: Widen(ValueType::kBf16, from, out); return absl::OkStatus();
    case TensorType::kI64:
    case TensorType::kOther: break;
  }
  return InvalidArgument(path_, ": tensor '", entry.spec.name, "' is ", entry.type_name,
                         ": wanted F32, F16 or BF16");
}

absl::Status SafetensorsReader::Read(const Entry& entry, const std::vector<int64_t>& shape,
                                     std::span<int64_t> out) const {
  RZ_RETURN_IF_ERROR(Check(entry, shape, out.size()));
  if (entry.spec.type != TensorType::kI64) {
    return InvalidArgument(path_, ": tensor '", entry.spec.name, "' is ", entry.type_name,
                           ": wanted I64");
  }
  if (!out.empty()) std::memcpy(out.data(), values_.data() + entry.begin, out.size_bytes());
  return absl::OkStatus();
}

absl::Status TensorFiles::Add(const std::shared_ptr<const SafetensorsReader>& file) {
  for (const SafetensorsReader::Entry& entry : file->entries()) {
    const bool added = tensors_.try_emplace(entry.spec.name, Place{file, &entry}).second;
    if (!added) return InvalidArgument("tensor '", entry.spec.name, "' stands in two files");
  }
  return absl::OkStatus();
}

absl::StatusOr<TensorFiles> TensorFiles::Open(const std::string& path) {
  std::error_code missing;
  if (std::filesystem::is_directory(path, missing)) {
    const std::string model = absl::StrCat(path, "/model.safetensors");
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
    const auto found = files.tensors_.find(tensor);
    if (found != files.tensors_.end() && found->second.file == opened[name]) continue;
    return InvalidArgument(path, ": tensor '", tensor, "' is not in ", name);
  }
  return files;
}

}  // namespace ringzero
