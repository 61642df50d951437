// Parses and makes the header of a safetensors file.
#include "integrations/data/safetensors_header.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status.h"

namespace ringzero::safetensors_internal {
namespace {

using Json = nlohmann::ordered_json;

constexpr uint64_t kMostBytes = uint64_t{1} << 62;

struct TypeInfo {
  const char* name;
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

const TypeInfo* FindType(std::string_view name) {
  for (const TypeInfo& info : kTypes) {
    if (name == info.name) return &info;
  }
  return nullptr;
}

absl::Status Bad(const std::string& what) { return absl::InvalidArgumentError(what); }

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
  if (json.is_discarded()) return Bad("its header is not valid JSON");
  if (!json.is_object()) return Bad("its header is not a JSON object");
  if (!twice.empty()) return Bad(absl::StrCat("tensor '", twice, "' stands twice in the header"));
  return json;
}

absl::Status ParseMetadata(const Json& json, std::map<std::string, std::string>& metadata) {
  if (!json.is_object()) return Bad("__metadata__ is not a JSON object");
  for (const auto& [key, value] : json.items()) {
    if (!value.is_string()) return Bad(absl::StrCat("__metadata__.", key, " is not a string"));
    metadata[key] = value.get<std::string>();
  }
  return absl::OkStatus();
}

bool IsSize(const Json& json) {
  return json.is_number_integer() && json.get<int64_t>() >= 0 &&
         (!json.is_number_unsigned() || json.get<uint64_t>() <= kMostBytes);
}

absl::StatusOr<SafetensorsReader::Entry> ParseEntry(const std::string& name, const Json& json,
                                                    uint64_t value_bytes) {
  if (!json.is_object()) return Bad("not a JSON object");
  for (const auto& [key, value] : json.items()) {
    if (key != "dtype" && key != "shape" && key != "data_offsets") {
      return Bad(absl::StrCat("unknown key '", key, "'"));
    }
  }
  if (!json.contains("dtype") || !json["dtype"].is_string()) return Bad("no dtype");
  if (!json.contains("shape") || !json["shape"].is_array()) return Bad("no shape");
  if (!json.contains("data_offsets") || !json["data_offsets"].is_array())
    return Bad("no data_offsets");
  SafetensorsReader::Entry entry = {.spec = {.name = name}, .type_name = json["dtype"]};
  const TypeInfo* type = FindType(entry.type_name);
  if (type == nullptr) return Bad(absl::StrCat("unknown dtype '", entry.type_name, "'"));
  entry.spec.type = type->type;
  for (const Json& extent : json["shape"]) {
    if (!IsSize(extent)) return Bad("its shape is not a list of sizes");
    entry.spec.shape.push_back(extent.get<int64_t>());
  }
  const Json& offsets = json["data_offsets"];
  if (offsets.size() != 2 || !IsSize(offsets[0]) || !IsSize(offsets[1])) {
    return Bad("its data_offsets are not two sizes");
  }
  entry.begin = offsets[0].get<uint64_t>();
  entry.end = offsets[1].get<uint64_t>();
  if (entry.begin > entry.end || entry.end > value_bytes) {
    return Bad(absl::StrCat("its values lie at bytes ", entry.begin, " to ", entry.end,
                            ", but the file has ", value_bytes, " bytes of values"));
  }
  RZ_ASSIGN_OR_RETURN(const uint64_t wanted, ByteSize(entry.spec, entry.type_name));
  if (entry.end - entry.begin != wanted) {
    return Bad(absl::StrCat("its values have ", entry.end - entry.begin, " bytes, but ",
                            entry.type_name, " ", ShapeText(entry.spec.shape), " wants ", wanted));
  }
  return entry;
}

// Values follow one another without gap or overlap, to the end.
absl::Status CheckLayout(const std::vector<SafetensorsReader::Entry>& entries,
                         uint64_t value_bytes) {
  uint64_t at = 0;
  for (const auto& entry : entries) {
    if (entry.begin != at) {
      return Bad(absl::StrCat("tensor '", entry.spec.name, "': its values begin at byte ",
                              entry.begin, ", but those before it end at ", at));
    }
    at = entry.end;
  }
  if (at == value_bytes) return absl::OkStatus();
  return Bad(absl::StrCat(value_bytes - at, " bytes follow the last tensor's values"));
}

}  // namespace

absl::StatusOr<uint64_t> ByteSize(const TensorSpec& spec, std::string_view type_name) {
  const TypeInfo* type = FindType(type_name);
  if (type == nullptr) return Bad("a type that cannot be written");
  unsigned __int128 bytes = type->bytes;
  for (const int64_t extent : spec.shape) {
    if (extent < 0) return Bad(absl::StrCat("its shape has the extent ", extent));
    // A zero later on does not excuse a product that no file can hold.
    bytes *= static_cast<uint64_t>(extent);
    if (bytes > kMostBytes)
      return Bad(absl::StrCat("its shape ", ShapeText(spec.shape), " is too large"));
  }
  return static_cast<uint64_t>(bytes);
}

std::string TypeName(TensorType type) {
  for (const TypeInfo& info : kTypes) {
    if (info.type == type && type != TensorType::kOther) return info.name;
  }
  return "another type";
}

std::string ShapeText(const std::vector<int64_t>& shape) {
  return absl::StrCat("{", absl::StrJoin(shape, ", "), "}");
}

absl::StatusOr<Header> ParseHeader(std::string_view text, uint64_t value_bytes) {
  RZ_ASSIGN_OR_RETURN(const Json json, ParseJson(text));
  Header header;
  for (const auto& [name, value] : json.items()) {
    if (name == "__metadata__") {
      RZ_RETURN_IF_ERROR(ParseMetadata(value, header.metadata));
      continue;
    }
    absl::StatusOr<SafetensorsReader::Entry> entry = ParseEntry(name, value, value_bytes);
    if (!entry.ok()) return Annotate(entry.status(), absl::StrCat("tensor '", name, "'"));
    header.entries.push_back(*std::move(entry));
  }
  std::sort(header.entries.begin(), header.entries.end(), [](const auto& a, const auto& b) {
    return std::tie(a.begin, a.end) < std::tie(b.begin, b.end);
  });
  RZ_RETURN_IF_ERROR(CheckLayout(header.entries, value_bytes));
  return header;
}

absl::StatusOr<std::string> MakeHeader(const std::vector<TensorSpec>& tensors,
                                       const std::map<std::string, std::string>& metadata) {
  Json json = Json::object();
  if (!metadata.empty()) json["__metadata__"] = metadata;
  uint64_t at = 0;
  for (const TensorSpec& spec : tensors) {
    const std::string type = TypeName(spec.type);
    if (spec.type != TensorType::kF32 && spec.type != TensorType::kI64) {
      return Bad(
          absl::StrCat("tensor '", spec.name, "': ", type, " is not written, only F32 and I64"));
    }
    if (spec.name == "__metadata__") return Bad("no tensor may be called '__metadata__'");
    if (json.contains(spec.name)) return Bad(absl::StrCat("tensor '", spec.name, "' stands twice"));
    const absl::StatusOr<uint64_t> bytes = ByteSize(spec, type);
    if (!bytes.ok()) return Annotate(bytes.status(), absl::StrCat("tensor '", spec.name, "'"));
    json[spec.name] = {{"dtype", type}, {"shape", spec.shape}, {"data_offsets", {at, at + *bytes}}};
    at += *bytes;
  }
  std::string text = json.dump(-1, ' ', false, Json::error_handler_t::replace);
  text.resize((text.size() + 7) / 8 * 8, ' ');
  std::string length(8, '\0');
  for (int i = 0; i < 8; ++i) length[i] = static_cast<char>(text.size() >> (8 * i));
  return length + text;
}

}  // namespace ringzero::safetensors_internal
