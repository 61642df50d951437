// The one way in which files are written (OutputFile), and read.
//
//   RZ_ASSIGN_OR_RETURN(const std::string text, ReadWholeFile("run/run.json"));
//   RZ_RETURN_IF_ERROR(WriteWholeFile("summary.json", json));   // all of it, or the old file stays
//
//   RZ_ASSIGN_OR_RETURN(auto file, OutputFile::Open("m.safetensors", OutputFile::As::kWhole));
//   RZ_RETURN_IF_ERROR(file->Write(bytes));                     // the same, in pieces
//   RZ_RETURN_IF_ERROR(file->Finish());
//
// What lies at a path decides: a symlink is followed, a device or a FIFO is written to. "-" is
// standard output, and so is any other name of it (/dev/stdout). Only regular files are replaced.
// Errors are PermissionDenied and name the path as it was given.
#ifndef RINGZERO_BASE_FILES_H_
#define RINGZERO_BASE_FILES_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace ringzero {

// One thread.
class OutputFile {
 public:
  enum class As {
    kWhole,     // a regular file gets its name in Finish; without Finish the old file stays
    kGrowing,   // emptied now, and read by others while it grows; once deleted, it takes no more
    kAppended,  // as kGrowing, but not emptied: written behind what is there
  };
  enum class Sync { kYes, kNo };

  // A whole file is written beside `path` under a new, random name (O_EXCL), and has the
  // permissions of the file that it replaces. Open waits 10 s for the reader of a FIFO.
  static absl::StatusOr<std::unique_ptr<OutputFile>> Open(const std::string& path, As as);
  ~OutputFile();
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  // Writes all of `bytes` at once: nothing is buffered here.
  absl::Status Write(absl::string_view bytes);
  // The next Write begins at the first byte again. Regular files only.
  absl::Status Rewind();
  // Called once. With kYes a whole file survives a power failure from here on.
  absl::Status Finish(Sync sync = Sync::kYes);
  // Makes a whole file at `path` with the first `bytes` of this file, which cannot go on: its disk
  // is full, or its folder was deleted. An error for what is written in place: the bytes are gone.
  absl::StatusOr<std::unique_ptr<OutputFile>> CopyTo(const std::string& path, uint64_t bytes) const;

  // OK if a whole file may have so many bytes, and its disk has room for them.
  absl::Status CheckRoom(uint64_t bytes) const;

 private:
  explicit OutputFile(std::string path) : path_(std::move(path)) {}

  const std::string path_;
  std::string target_;     // of a whole file: where path_'s symlinks lead
  std::string temporary_;  // the name of a whole file until Finish; empty otherwise
  bool grows_ = false;     // a regular file of kGrowing or kAppended
  int fd_ = -1;            // -1 again after Finish
};

absl::Status WriteWholeFile(const std::string& path, absl::string_view contents,
                            OutputFile::Sync sync = OutputFile::Sync::kYes);

// Returns now the error that a whole file at `path` would meet later: no folder, no permission, a
// full disk, too little space for `bytes`. Leaves nothing behind; `path` stays as it is.
absl::Status CheckWritable(const std::string& path, uint64_t bytes = 0);

// A path to write to if `path` cannot be written: the last part of its name, in a new folder for
// this user only. The folder lies in $TMPDIR, or in /tmp if it cannot be made in $TMPDIR.
absl::StatusOr<std::string> MakeSparePath(const std::string& path);
// For a path of MakeSparePath where nothing was written: removes its folder.
void DropSparePath(const std::string& spare);

// Whether `path` is written in place, not replaced: a device, a FIFO, standard output.
bool WrittenInPlace(const std::string& path);

// A path, and the option or key that names it: "--summary", "data.path". Empty path: not named.
struct NamedPath {
  std::string by;
  std::string path;
};

// Called before anything is written. InvalidArgument if two outputs are one file ("--summary and
// CONFIG name one file: a.json"), or an output is an input or would replace a file of an input
// folder. Otherwise the error of CheckWritable for an output. Paths are compared by the file they
// lead to; any number of paths may name one device.
absl::Status CheckOutputFiles(const std::vector<NamedPath>& outputs,
                              const std::vector<NamedPath>& inputs);

// InvalidArgument if a file is where `folder`, or a folder above it, is to be made later.
absl::Status CheckFolder(const NamedPath& folder);

// Makes the folder and the folders above it.
absl::Status MakeFolders(const std::string& folder);

// Prints to standard output, and leaves nothing in a buffer.
absl::Status PrintToStdout(absl::string_view text);

// Called first in main. An error if standard output cannot be written. Standard input and standard
// error, if closed, lead nowhere from here on. Otherwise the next file to be opened would get the
// number of a closed stream, and with it what is printed.
absl::Status CheckStandardStreams();

// The file, or its first `most` bytes: a device may have no end. Errors name the file. NotFound: it
// is not there. InvalidArgument: it is a FIFO, which could keep its reader waiting for ever.
// PermissionDenied: anything else. Thread-safe.
absl::StatusOr<std::string> ReadWholeFile(const std::string& path, size_t most = SIZE_MAX);

// The value of `name` in a file of lines "name : value" or "name value", as /proc has them. The
// first line of that name counts. Empty: there is no such line, or no such file. Thread-safe.
std::string FieldOfFile(const std::string& path, absl::string_view name);

}  // namespace ringzero

#endif  // RINGZERO_BASE_FILES_H_
