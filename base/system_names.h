// Threads that are made with a name, and the names that ps, top and perf show.
//
//   thread_ = NamedThread("rz-pool", [this] { Run(); });
//   NameProcess("ringzero worker 2");   // ps -f, top -c: in place of the command line
//   NameThread("ringzero w2");          // ps, top, perf; the first thread names the process, too
#ifndef RINGZERO_BASE_SYSTEM_NAMES_H_
#define RINGZERO_BASE_SYSTEM_NAMES_H_

#include <functional>
#include <string>
#include <thread>

#include "absl/strings/string_view.h"

namespace ringzero {

// The calling thread. Linux keeps 15 bytes: more are cut off.
void NameThread(const std::string& name);
std::string ThreadName();

// A thread that has its name before `body` runs. std::system_error, as std::thread has it, also
// where few addresses are left (`ulimit -v`).
std::thread NamedThread(const std::string& name, std::function<void()> body);

// Overwrites the words of main's argv, so argv must not be read afterwards. A title longer than the
// words is cut off. Does nothing if the kernel does not tell where the words lie.
void NameProcess(absl::string_view title);

}  // namespace ringzero

#endif  // RINGZERO_BASE_SYSTEM_NAMES_H_
