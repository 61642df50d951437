// nlohmann's JSON, read strictly.
#include "integrations/cli/profile_file.h"

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "base/files.h"
#include "base/status.h"

namespace ringzero {
namespace {

using Json = nlohmann::json;

constexpr char kFormat[] = "ringzero cost profile 1";

struct LayerField {
  const char* name;
  int64_t StageTicks::*field;
};
constexpr LayerField kLayerFields[] = {{"forward_ns", &StageTicks::forward},
                                       {"backward_ns", &StageTicks::backward},
                                       {"add_ns", &StageTicks::add},
                                       {"update_ns", &StageTicks::update}};

// A whole number of 0 to a day's nanoseconds.
absl::StatusOr<int64_t> Count(const Json& object, const std::string& key) {
  constexpr int64_t kMost = int64_t{86400} * 1000000000;
  const auto found = object.find(key);
  if (found == object.end()) {
    return absl::InvalidArgumentError(absl::StrCat("\"", key, "\" is missing"));
  }
  if (!found->is_number_integer() || *found < 0 || *found > kMost) {
    return absl::InvalidArgumentError(absl::StrCat(
        "\"", key, "\": wanted a whole number from 0 to ", kMost, ", found ", found->dump()));
  }
  return found->get<int64_t>();
}

absl::StatusOr<LayerTimes> ReadLayer(const Json& json) {
  if (!json.is_object() || !json.contains("name") || !json["name"].is_string()) {
    return absl::InvalidArgumentError("\"layers\": each wants a \"name\"");
  }
  LayerTimes layer{.name = json["name"].get<std::string>()};
  for (const LayerField& field : kLayerFields) {
    const absl::StatusOr<int64_t> value = Count(json, field.name);
    if (!value.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat("layer \"", layer.name, "\": ", value.status().message()));
    }
    layer.nanoseconds.*field.field = *value;
  }
  return layer;
}

absl::StatusOr<SavedProfile> ParseProfile(const std::string& text) {
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || json.value("format", Json()) != kFormat) {
    return absl::InvalidArgumentError(
        absl::StrCat("wanted JSON with \"format\": \"", kFormat, "\""));
  }
  SavedProfile saved;
  if (!json.contains("frozen") || !json["frozen"].is_boolean()) {
    return absl::InvalidArgumentError("\"frozen\": wanted true or false");
  }
  saved.frozen = json["frozen"].get<bool>();
  CostProfile& profile = saved.profile;
  RZ_ASSIGN_OR_RETURN(const int64_t micro_batch, Count(json, "micro_batch"));
  RZ_ASSIGN_OR_RETURN(const int64_t threads, Count(json, "threads"));
  RZ_ASSIGN_OR_RETURN(const int64_t workers, Count(json, "workers"));
  profile.micro_batch = static_cast<int>(micro_batch);
  profile.threads = static_cast<int>(threads);
  profile.workers = static_cast<int>(workers);
  RZ_ASSIGN_OR_RETURN(profile.lap_nanoseconds, Count(json, "lap_ns"));
  RZ_ASSIGN_OR_RETURN(profile.message_nanoseconds, Count(json, "message_ns"));
  if (!json.contains("layers") || !json["layers"].is_array()) {
    return absl::InvalidArgumentError("\"layers\": wanted a list");
  }
  for (const Json& entry : json["layers"]) {
    RZ_ASSIGN_OR_RETURN(LayerTimes layer, ReadLayer(entry));
    profile.layers.push_back(std::move(layer));
  }
  return saved;
}

}  // namespace

absl::Status WriteProfile(const std::string& path, const SavedProfile& saved) {
  const CostProfile& profile = saved.profile;
  nlohmann::ordered_json json = {{"format", kFormat},
                                 {"frozen", saved.frozen},
                                 {"micro_batch", profile.micro_batch},
                                 {"threads", profile.threads},
                                 {"workers", profile.workers},
                                 {"lap_ns", profile.lap_nanoseconds},
                                 {"message_ns", profile.message_nanoseconds},
                                 {"layers", nlohmann::ordered_json::array()}};
  for (const LayerTimes& layer : profile.layers) {
    nlohmann::ordered_json entry = {{"name", layer.name}};
    for (const LayerField& field : kLayerFields) entry[field.name] = layer.nanoseconds.*field.field;
    json["layers"].push_back(entry);
  }
  return WriteWholeFile(path, json.dump(2) + "\n");
}

absl::StatusOr<SavedProfile> ReadProfile(const std::string& path) {
  RZ_ASSIGN_OR_RETURN(const std::string text, ReadWholeFile(path));
  absl::StatusOr<SavedProfile> saved = ParseProfile(text);
  if (!saved.ok()) return Annotate(saved.status(), path);
  return saved;
}

absl::Status CheckProfile(const SavedProfile& saved, const Config& config,
                          const ModelDescription& model) {
  const CostProfile& profile = saved.profile;
  const auto differs = [](const std::string& what, const auto& wanted, const auto& found) {
    return absl::InvalidArgumentError(absl::StrCat("it was measured for another run: wanted ", what,
                                                   " ", wanted, ", found ", found));
  };
  if (profile.layers.size() != model.layers.size()) {
    return differs("layers", model.layers.size(), profile.layers.size());
  }
  for (size_t i = 0; i < model.layers.size(); ++i) {
    if (profile.layers[i].name != model.layers[i].name) {
      return differs(absl::StrCat("layer ", i), model.layers[i].name, profile.layers[i].name);
    }
  }
  if (profile.micro_batch != config.batch.micro_batch) {
    return differs("micro-batches of", config.batch.micro_batch, profile.micro_batch);
  }
  if (profile.threads != config.cyclic.threads) {
    return differs("threads", config.cyclic.threads, profile.threads);
  }
  return absl::OkStatus();
}

}  // namespace ringzero
