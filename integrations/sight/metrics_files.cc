// CSV and JSON lines.
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "base/status.h"
#include "integrations/sight/metrics.h"
#include "integrations/sight/output_file.h"

namespace ringzero {
namespace {

class CsvWriter : public MetricsWriter {
 public:
  explicit CsvWriter(std::string folder) : folder_(std::move(folder)) {}

  absl::Status Write(const MetricsMoment& moment, const std::vector<Scalar>& scalars) override {
    for (const Scalar& scalar : scalars) {
      auto found = files_.find(scalar.name);
      if (found == files_.end()) {
        const std::string name = absl::StrReplaceAll(scalar.name, {{"/", "_"}, {" ", "_"}});
        RZ_ASSIGN_OR_RETURN(OutputFile file,
                            OutputFile::Open(absl::StrCat(folder_, "/", name, ".csv"), "abe"));
        RZ_RETURN_IF_ERROR(file.Write(
            absl::StrCat("step,", scalar.name.substr(scalar.name.rfind('/') + 1), "\n")));
        found = files_.emplace(scalar.name, std::move(file)).first;
      }
      RZ_RETURN_IF_ERROR(found->second.Write(
          absl::StrFormat("%d,%.17g\n", moment.samples, WithoutNanSign(scalar.value))));
    }
    return absl::OkStatus();
  }

 private:
  const std::string folder_;
  std::map<std::string, OutputFile> files_;
};

class JsonLinesWriter : public MetricsWriter {
 public:
  explicit JsonLinesWriter(OutputFile file) : file_(std::move(file)) {}

  absl::Status Write(const MetricsMoment& moment, const std::vector<Scalar>& scalars) override {
    nlohmann::ordered_json line = {{"iteration", moment.iteration},
                                   {"samples", moment.samples},
                                   {"wall_seconds", moment.wall_seconds},
                                   {"scalars", nlohmann::ordered_json::object()}};
    for (const Scalar& scalar : scalars) {
      const bool number = std::isfinite(scalar.value);
      line["scalars"][scalar.name] =
          number ? nlohmann::ordered_json(scalar.value) : nlohmann::ordered_json(nullptr);
    }
    return file_.Write(line.dump() + "\n");
  }

 private:
  OutputFile file_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<MetricsWriter>> MakeCsvWriter(const MonitorConfig& monitor) {
  RZ_ASSIGN_OR_RETURN(std::string folder, MakeMonitorFolder(monitor));
  return std::make_unique<CsvWriter>(std::move(folder));
}

absl::StatusOr<std::unique_ptr<MetricsWriter>> MakeJsonLinesWriter(const std::string& path) {
  RZ_ASSIGN_OR_RETURN(OutputFile file, OutputFile::Open(path, "wbe"));
  return std::make_unique<JsonLinesWriter>(std::move(file));
}

}  // namespace ringzero
