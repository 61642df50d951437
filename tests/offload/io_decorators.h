// An I/O engine of memory. Engines around another one: one that fails on purpose, one that looks at how it is used, one that
// writes down what it is asked for.
#ifndef RINGZERO_TESTS_OFFLOAD_IO_DECORATORS_H_
#define RINGZERO_TESTS_OFFLOAD_IO_DECORATORS_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "offload/io_engine.h"

namespace ringzero {

// Files in memory, which grow as they are written. The descriptor may be any number.
std::unique_ptr<IoEngine> MakeMemoryEngine();

// Gives the request an error in place of its result; OK: the result stands. The request itself is done.
using IoFault = std::function<absl::Status(const IoRequest&)>;
std::unique_ptr<IoEngine> MakeFaultyIo(std::unique_ptr<IoEngine> engine, IoFault fault);

// Adds to `misuses`, which outlives it, a line for each: a tag that is under way already, memory that two requests under way
// have in common where one reads into it, memory that was changed while it was written, an end with requests under way.
std::unique_ptr<IoEngine> MakeCheckedIo(std::unique_ptr<IoEngine> engine,
                                        std::vector<std::string>& misuses);

// Adds to `lines` "write 0+4096" or "sync" for each request, in the order of Submit.
std::unique_ptr<IoEngine> MakeTracedIo(std::unique_ptr<IoEngine> engine,
                                       std::vector<std::string>& lines);

}  // namespace ringzero

#endif  // RINGZERO_TESTS_OFFLOAD_IO_DECORATORS_H_
