// /proc/self/cgroup, line by line.
#include "integrations/cli/cgroups.h"

#include <algorithm>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace ringzero {

std::vector<CgroupFolder> CgroupFolders(const std::string& root, absl::string_view controller) {
  std::vector<CgroupFolder> folders;
  std::ifstream groups(absl::StrCat(root, "proc/self/cgroup"));
  for (std::string line; std::getline(groups, line);) {
    const std::vector<std::string> parts = absl::StrSplit(line, absl::MaxSplits(':', 2));
    if (parts.size() != 3) continue;
    const bool unified = parts[0] == "0" && parts[1].empty();
    const std::vector<std::string> controllers = absl::StrSplit(parts[1], ',');
    const bool found =
        std::find(controllers.begin(), controllers.end(), controller) != controllers.end();
    if (!unified && !found) continue;
    std::string mount = absl::StrCat(root, "sys/fs/cgroup");
    if (!unified) absl::StrAppend(&mount, "/", controller);
    // Every group above limits this one, too.
    for (std::string path = parts[2] == "/" ? "" : parts[2];; path.resize(path.rfind('/'))) {
      folders.push_back(
          {.folder = mount + path, .name = path.empty() ? "/" : path, .unified = unified});
      if (path.rfind('/') == std::string::npos) break;
    }
  }
  return folders;
}

}  // namespace ringzero
