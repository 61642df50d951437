// CgroupFolders: where the kernel keeps the limits of this process' control groups.
//
//   for (const CgroupFolder& group : CgroupFolders("/", "cpu")) { … group.folder + "/cpu.max" … }
//
// Both versions of cgroups. Reads anew at each call.
#ifndef RINGZERO_INTEGRATIONS_CLI_CGROUPS_H_
#define RINGZERO_INTEGRATIONS_CLI_CGROUPS_H_

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace ringzero {

struct CgroupFolder {
  std::string folder;    // "/sys/fs/cgroup/jobs/mine"
  std::string name;      // "/jobs/mine"
  bool unified = false;  // version 2
};

// The groups of `controller` ("memory", "cpu") that limit this process: its own, and every group
// above, up to the top. `root`: where proc and sys lie, for tests. A folder may be missing: in a
// container the path can be the host's.
std::vector<CgroupFolder> CgroupFolders(const std::string& root, absl::string_view controller);

}  // namespace ringzero

#endif  // RINGZERO_INTEGRATIONS_CLI_CGROUPS_H_
