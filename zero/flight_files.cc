// Flight records as files of a folder.
#include <dirent.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/files.h"
#include "base/status.h"
#include "zero/flight_record.h"

namespace ringzero {
namespace {

constexpr char kEnding[] = ".flight";

}  // namespace

std::string FlightPath(const std::string& folder, WorkerId worker) {
  return absl::StrCat(folder, "/worker-", worker.value, kEnding);
}

absl::Status WriteFlightFile(const std::string& folder, const FlightRecord& record) {
  RZ_RETURN_IF_ERROR(MakeFolders(folder));
  // Not synced: a worker that ends is given a fraction of a second for its record.
  return WriteWholeFile(FlightPath(folder, record.worker), FlightToString(record),
                        OutputFile::Sync::kNo);
}

absl::StatusOr<FlightRecord> ReadFlightFile(const std::string& path) {
  RZ_ASSIGN_OR_RETURN(const std::string text, ReadWholeFile(path));
  absl::StatusOr<FlightRecord> record = ParseFlight(text);
  if (!record.ok()) return Annotate(record.status(), path);
  return record;
}

absl::StatusOr<std::vector<FlightRecord>> ReadFlightFolder(const std::string& folder) {
  DIR* const entries = opendir(folder.c_str());
  if (entries == nullptr) {
    return absl::NotFoundError(absl::StrCat(folder, ": ", std::strerror(errno)));
  }
  std::vector<std::string> names;
  while (const dirent* const entry = readdir(entries)) {
    if (absl::EndsWith(entry->d_name, kEnding)) names.emplace_back(entry->d_name);
  }
  closedir(entries);
  std::vector<FlightRecord> records;
  for (const std::string& name : names) {
    RZ_ASSIGN_OR_RETURN(FlightRecord record, ReadFlightFile(absl::StrCat(folder, "/", name)));
    records.push_back(std::move(record));
  }
  if (records.empty()) {
    return absl::NotFoundError(
        absl::StrCat(folder, ": no flight record (worker-0", kEnding, ", …) is there"));
  }
  std::sort(records.begin(), records.end(), [](const FlightRecord& a, const FlightRecord& b) {
    return a.worker.value < b.worker.value;
  });
  for (size_t i = 1; i < records.size(); ++i) {
    if (records[i].worker == records[i - 1].worker || records[i].workers != records[0].workers) {
      return InvalidArgument(folder, ": holds records of several runs: worker ",
                             records[i - 1].worker.value, " of ", records[i - 1].workers,
                             ", worker ", records[i].worker.value, " of ", records[i].workers);
    }
  }
  return records;
}

}  // namespace ringzero
