// WorkerReport as JSON and back; numbers keep all their digits, and a NaN is null.
#include "integrations/cli/worker_report.h"

#include <limits>
#include <nlohmann/json.hpp>

namespace ringzero {
namespace {

using Json = nlohmann::json;

double ToDouble(const Json& value) {
  return value.is_number() ? value.get<double>() : std::numeric_limits<double>::quiet_NaN();
}

std::optional<double> ToOptional(const Json& list) {
  if (list.empty()) return std::nullopt;
  return ToDouble(list[0]);
}

Json FromOptional(const std::optional<double>& value) {
  return value.has_value() ? Json::array({*value}) : Json::array();
}

Json MemoryToJson(const MemoryBytes& memory) {
  Json json;
  for (const MemoryCategory& category : MemoryCategories()) {
    json[category.name] = memory.*category.bytes;
  }
  return json;
}

Json CostsToJson(const std::optional<MeasuredCosts>& costs) {
  if (!costs.has_value()) return nullptr;
  Json stages = Json::array();
  for (const LayerTimes& stage : costs->stages) {
    const StageTicks& times = stage.nanoseconds;
    stages.push_back({stage.name, times.forward, times.backward, times.add, times.update});
  }
  return {{"stages", stages},
          {"lap", costs->lap_nanoseconds},
          {"other", costs->other_nanoseconds},
          {"messages", costs->messages}};
}

std::optional<MeasuredCosts> CostsFromJson(const Json& json) {
  if (json.is_null()) return std::nullopt;
  MeasuredCosts costs{.lap_nanoseconds = json["lap"].get<int64_t>(),
                      .other_nanoseconds = json["other"].get<int64_t>(),
                      .messages = json["messages"].get<int>()};
  for (const Json& stage : json["stages"]) {
    costs.stages.push_back({.name = stage[0].get<std::string>(),
                            .nanoseconds = {.forward = stage[1].get<int64_t>(),
                                            .backward = stage[2].get<int64_t>(),
                                            .add = stage[3].get<int64_t>(),
                                            .update = stage[4].get<int64_t>()}});
  }
  return costs;
}

}  // namespace

std::string ToJson(const WorkerReport& report) {
  Json evaluations = Json::array();
  for (const EvaluationResult& result : report.evaluations) {
    evaluations.push_back({result.iteration, result.loss, FromOptional(result.accuracy)});
  }
  Json activations = Json::array();
  for (const ActivationPoint& point : report.activations) {
    activations.push_back({point.seconds, point.bytes, point.peak});
  }
  const WaitSeconds& waits = report.waits;
  return Json{
      {"worker", report.worker},
      {"place", ToJson(report.place)},
      {"interrupted", report.interrupted},
      {"not_written", report.not_written},
      {"iterations", report.iterations},
      {"dump_trouble", report.dump_trouble},
      {"measured", report.measured},
      {"steps", {report.step_median, report.step_min, report.step_max, report.step_mean}},
      {"waits", {waits.parameters, waits.gradient_sums, waits.update, waits.other}},
      {"on_core_seconds", report.on_core_seconds},
      {"cpu_seconds", report.resources.cpu_seconds},
      {"minor_faults", report.resources.minor_faults},
      {"pss_peak_mib", report.pss_peak_mib},
      {"training_bytes", report.training_bytes},
      {"other_bytes", report.other_bytes},
      {"copied_bytes", report.copied_bytes},
      {"skipped_updates", report.skipped_updates},
      {"loss_scale", report.loss_scale},
      {"memory", MemoryToJson(report.memory)},
      {"forecast", MemoryToJson(report.forecast)},
      {"activations", activations},
      {"costs", CostsToJson(report.costs)},
      {"parameters", report.parameters},
      {"lr", report.lr},
      {"gradient_norm", FromOptional(report.gradient_norm)},
      {"pss_mib", report.pss_mib},
      {"mfu", FromOptional(report.mfu)},
      {"first_loss", FromOptional(report.first_loss)},
      {"last_loss", FromOptional(report.last_loss)},
      {"evaluations", evaluations},
      {"parameters_sha256", report.parameters_sha256},
  }
      .dump(-1, ' ', false, Json::error_handler_t::replace);  // a path may be of any bytes
}

absl::StatusOr<WorkerReport> FromJson(const std::string& text) {
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || !json.contains("parameters_sha256")) {
    return absl::InternalError("a worker's report cannot be read");
  }
  WorkerReport report;
  report.worker = json["worker"].get<int>();
  report.place = PlaceFromJson(json["place"].get<std::string>());
  report.interrupted = json["interrupted"].get<bool>();
  report.not_written = json["not_written"].get<NotWritten>();
  report.iterations = json["iterations"].get<int>();
  report.dump_trouble = json["dump_trouble"].get<std::string>();
  report.measured = json["measured"].get<int>();
  const Json& steps = json["steps"];
  report.step_median = ToDouble(steps[0]);
  report.step_min = ToDouble(steps[1]);
  report.step_max = ToDouble(steps[2]);
  report.step_mean = ToDouble(steps[3]);
  const Json& waits = json["waits"];
  report.waits = {.parameters = ToDouble(waits[0]),
                  .gradient_sums = ToDouble(waits[1]),
                  .update = ToDouble(waits[2]),
                  .other = ToDouble(waits[3])};
  report.on_core_seconds = ToDouble(json["on_core_seconds"]);
  report.resources = {.cpu_seconds = ToDouble(json["cpu_seconds"]),
                      .minor_faults = json["minor_faults"].get<int64_t>()};
  report.pss_peak_mib = ToDouble(json["pss_peak_mib"]);
  report.training_bytes = json["training_bytes"].get<uint64_t>();
  report.other_bytes = json["other_bytes"].get<uint64_t>();
  report.copied_bytes = json["copied_bytes"].get<uint64_t>();
  report.skipped_updates = json["skipped_updates"].get<int>();
  report.loss_scale = ToDouble(json["loss_scale"]);
  for (const MemoryCategory& category : MemoryCategories()) {
    report.memory.*category.bytes = json["memory"][category.name].get<int64_t>();
    report.forecast.*category.bytes = json["forecast"][category.name].get<int64_t>();
  }
  for (const Json& point : json["activations"]) {
    report.activations.push_back({.seconds = ToDouble(point[0]),
                                  .bytes = point[1].get<int64_t>(),
                                  .peak = point[2].get<int64_t>()});
  }
  report.costs = CostsFromJson(json["costs"]);
  report.parameters = json["parameters"].get<int64_t>();
  report.lr = ToDouble(json["lr"]);
  report.gradient_norm = ToOptional(json["gradient_norm"]);
  report.pss_mib = ToDouble(json["pss_mib"]);
  report.mfu = ToOptional(json["mfu"]);
  report.first_loss = ToOptional(json["first_loss"]);
  report.last_loss = ToOptional(json["last_loss"]);
  for (const Json& result : json["evaluations"]) {
    report.evaluations.push_back({.iteration = result[0].get<int>(),
                                  .loss = ToDouble(result[1]),
                                  .accuracy = ToOptional(result[2])});
  }
  report.parameters_sha256 = json["parameters_sha256"].get<std::string>();
  return report;
}

}  // namespace ringzero
