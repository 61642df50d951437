// OutputFile: a file that is written piece by piece and flushed after each, with its name in
// errors.
//
//   RZ_ASSIGN_OR_RETURN(OutputFile file, OutputFile::Open("run/metrics.jsonl", "wbe"));
//   RZ_RETURN_IF_ERROR(file.Write("{}\n"));
#ifndef RINGZERO_INTEGRATIONS_SIGHT_OUTPUT_FILE_H_
#define RINGZERO_INTEGRATIONS_SIGHT_OUTPUT_FILE_H_

#include <cstdio>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "integrations/sight/metrics.h"

namespace ringzero {

class OutputFile {
 public:
  static absl::StatusOr<OutputFile> Open(const std::string& path, const char* mode);
  absl::Status Write(absl::string_view bytes);

 private:
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  OutputFile(std::string path, std::FILE* file) : path_(std::move(path)), file_(file) {}
  std::string path_;
  std::unique_ptr<std::FILE, Close> file_;
};

// Makes the folder and those above it.
absl::Status MakeFolders(const std::string& folder);
// output_path/job_name, made.
absl::StatusOr<std::string> MakeMonitorFolder(const MonitorConfig& monitor);

}  // namespace ringzero

#endif  // RINGZERO_INTEGRATIONS_SIGHT_OUTPUT_FILE_H_
