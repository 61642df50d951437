// Metrics: scalars by name, written where people look: TensorBoard, CSV files, JSON lines.
//
//   RZ_ASSIGN_OR_RETURN(const MetricsWriter write,
//                       MakeTensorBoardWriter({.output_path = "runs", .job_name = "a"}));
//   RZ_RETURN_IF_ERROR(write({.samples = 2048, .iteration = 16, .wall_seconds = now},
//                            {{"Train/Samples/train_loss", 0.7}}));
//
// As DeepSpeed's monitor: the x axis is the number of samples so far, a file is flushed at each
// write, and a folder is output_path/job_name. One thread.
#ifndef RINGZERO_INTEGRATIONS_SIGHT_METRICS_H_
#define RINGZERO_INTEGRATIONS_SIGHT_METRICS_H_

#include <cmath>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "zero/config/config.h"

namespace ringzero {

struct Metric {
  std::string name;  // "Train/Samples/lr"
  double value = 0;
};

// For writing a NaN: its sign means nothing, but printf shows the sign ("-nan").
inline double WithoutNanSign(double value) { return std::isnan(value) ? NAN : value; }

// The seconds since 1970, by the system clock.
double WallSeconds();

struct MetricsMoment {
  int64_t samples = 0;      // iterations so far × train_batch_size
  int64_t iteration = 0;    // how many iterations are over
  double wall_seconds = 0;  // since 1970
};

// Writes `scalars`. An error is PermissionDenied and names the file.
using MetricsWriter =
    std::function<absl::Status(const MetricsMoment& moment, const std::vector<Metric>& scalars)>;

// Makes the folder output_path/job_name and returns it.
absl::StatusOr<std::string> MakeMonitorFolder(const MonitorConfig& monitor);

// Each Make… takes the moment from which a run goes on, if it goes on from a checkpoint. What an
// earlier run has written from there on is cut away; evaluations at this moment are, too, as they
// are made again.

// One event file, as `tensorboard --logdir` reads it. A NaN stays a NaN.
absl::StatusOr<MetricsWriter> MakeTensorBoardWriter(
    const MonitorConfig& monitor, const std::optional<MetricsMoment>& resumed = std::nullopt);
// One file per scalar: Train_Samples_lr.csv, "step,lr" and then a line per write. An old file
// is appended to. Values that are not finite are nan, inf or -inf.
absl::StatusOr<MetricsWriter> MakeCsvWriter(
    const MonitorConfig& monitor, const std::optional<MetricsMoment>& resumed = std::nullopt);
// One object per write: {"iteration": 16, "samples": 2048, "wall_seconds": …, "scalars": {…}}.
// Values that are not finite are null. An old file is emptied, unless the run goes on.
absl::StatusOr<MetricsWriter> MakeJsonLinesWriter(
    const std::string& path, const std::optional<MetricsMoment>& resumed = std::nullopt);

}  // namespace ringzero

#endif  // RINGZERO_INTEGRATIONS_SIGHT_METRICS_H_
