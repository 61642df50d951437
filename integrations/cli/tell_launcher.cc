// torchelastic's JSON, and Kubernetes' file.
#include "integrations/cli/tell_launcher.h"

#include <sys/stat.h>

#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <memory>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "base/output_file.h"
#include "base/status.h"

namespace ringzero {
namespace {

constexpr char kErrorFile[] = "TORCHELASTIC_ERROR_FILE";
constexpr char kTerminationLog[] = "/dev/termination-log";  // Kubernetes' terminationMessagePath

// As ErrorHandler.record_exception of torch.distributed.elastic.multiprocessing.errors. torchrun's
// report shows py_callstack, and takes the failure with the smallest timestamp as the first.
std::string TorchelasticJson(const std::string& error) {
  using Json = nlohmann::ordered_json;
  const Json extra = {{"py_callstack", error}, {"timestamp", absl::StrCat(std::time(nullptr))}};
  const Json json = {{"message", {{"message", error}, {"extraInfo", extra}}}};
  // Names of files need not be UTF-8.
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

absl::Status TellTorchrun(const std::string& error) {
  const char* file = std::getenv(kErrorFile);
  if (file == nullptr || *file == '\0') return absl::OkStatus();
  return Annotate(WriteWholeFile(file, TorchelasticJson(error), OutputFile::Sync::kNo), kErrorFile);
}

// Kubernetes makes the file; elsewhere there is none, and none is made.
absl::Status TellKubernetes(const std::string& error) {
  struct stat found = {};
  if (stat(kTerminationLog, &found) != 0 || !S_ISREG(found.st_mode)) return absl::OkStatus();
  RZ_ASSIGN_OR_RETURN(const std::unique_ptr<OutputFile> log,
                      OutputFile::Open(kTerminationLog, OutputFile::As::kAppended));
  RZ_RETURN_IF_ERROR(log->Write(absl::StrCat(error, "\n")));
  return log->Finish(OutputFile::Sync::kNo);
}

}  // namespace

void TellLauncher(const std::string& error) {
  for (const absl::Status& told : {TellTorchrun(error), TellKubernetes(error)}) {
    if (told.ok()) continue;
    std::fprintf(stderr, "ringzero: warning: %s\n", std::string(told.message()).c_str());
  }
}

}  // namespace ringzero
