// TemporaryFolder: a folder of a test's own, removed with all that is in it.
//
//   TemporaryFolder folder;   folder.path("meeting");   folder.Write("meeting/file", "text");
#ifndef RINGZERO_TESTS_P2P_TEMPORARY_FOLDER_H_
#define RINGZERO_TESTS_P2P_TEMPORARY_FOLDER_H_

#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "base/check.h"

namespace ringzero {

class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "ringzero-test-XXXXXX").string();
    RZ_CHECK(mkdtemp(name.data()) != nullptr, name);
    root_ = name;
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(root_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  std::string path(const std::string& name = "") const {
    return name.empty() ? root_.string() : (root_ / name).string();
  }
  std::string operator/(const std::string& name) const { return path(name); }
  void Write(const std::string& name, const std::string& text) const {
    std::ofstream(root_ / name, std::ios::binary) << text;
  }
  // Everything below `name`, by path from there, without folders' contents' order.
  std::vector<std::string> List(const std::string& name) const {
    std::vector<std::string> found;
    if (!std::filesystem::exists(root_ / name)) return found;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(root_ / name)) {
      found.push_back(std::filesystem::relative(entry.path(), root_ / name).string());
    }
    return found;
  }

 private:
  std::filesystem::path root_;
};

}  // namespace ringzero

#endif  // RINGZERO_TESTS_P2P_TEMPORARY_FOLDER_H_
