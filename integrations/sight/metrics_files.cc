// CSV and JSON lines.
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "base/files.h"
#include "base/status.h"
#include "integrations/sight/metrics.h"

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
        RZ_ASSIGN_OR_RETURN(auto file, OutputFile::Open(absl::StrCat(folder_, "/", name, ".csv"),
                                                        OutputFile::As::kAppended));
        RZ_RETURN_IF_ERROR(file->Write(
            absl::StrCat("step,", scalar.name.substr(scalar.name.rfind('/') + 1), "\n")));
        found = files_.emplace(scalar.name, std::move(file)).first;
      }
      RZ_RETURN_IF_ERROR(found->second->Write(
          absl::StrFormat("%d,%.17g\n", moment.samples, WithoutNanSign(scalar.value))));
    }
    return absl::OkStatus();
  }

 private:
  const std::string folder_;
  std::map<std::string, std::unique_ptr<OutputFile>> files_;
};

class JsonLinesWriter : public MetricsWriter {
 public:
  explicit JsonLinesWriter(std::unique_ptr<OutputFile> file) : file_(std::move(file)) {}

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
    return file_->Write(line.dump() + "\n");
  }

 private:
  const std::unique_ptr<OutputFile> file_;
};

}  // namespace

absl::StatusOr<std::string> MakeMonitorFolder(const MonitorConfig& monitor) {
  const std::string folder =
      absl::StrCat(monitor.output_path.empty() ? "." : monitor.output_path, "/", monitor.job_name);
  RZ_RETURN_IF_ERROR(MakeFolders(folder));
  return folder;
}

absl::StatusOr<std::unique_ptr<MetricsWriter>> MakeCsvWriter(const MonitorConfig& monitor) {
  RZ_ASSIGN_OR_RETURN(std::string folder, MakeMonitorFolder(monitor));
  return std::make_unique<CsvWriter>(std::move(folder));
}

absl::StatusOr<std::unique_ptr<MetricsWriter>> MakeJsonLinesWriter(const std::string& path) {
  RZ_ASSIGN_OR_RETURN(auto file, OutputFile::Open(path, OutputFile::As::kGrowing));
  return std::make_unique<JsonLinesWriter>(std::move(file));
}

}  // namespace ringzero
