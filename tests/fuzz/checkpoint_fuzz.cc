// The readers of a checkpoint, fed with anything: state.json, or a safetensors file. No crash, no hang; what is read is written
// and read back as the same.
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <string>

#include "base/files.h"
#include "integrations/checkpoint/checkpoint_folder.h"
#include "integrations/data/safetensors.h"
#include "tests/fuzz/check.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace ringzero;  // NOLINT: there is nothing else here
  const std::string bytes(reinterpret_cast<const char*>(data), size);
  static_cast<void>(ParseCheckpointState(bytes));
  // With its checksum, too: without, little else would be looked at.
  if (const auto state =
          ParseCheckpointState(SealCheckpointState(bytes.substr(0, bytes.rfind("\n}"))));
      state.ok()) {
    const std::string text = WriteCheckpointState(*state);
    const auto again = ParseCheckpointState(text);
    FuzzCheck(again.ok() && WriteCheckpointState(*again) == text,
              "reads back differently: " + text);
    return 0;
  }
  static const std::string path = "/dev/shm/ringzero-fuzz-" + std::to_string(getpid());
  FuzzCheck(WriteWholeFile(path, bytes, OutputFile::Sync::kNo).ok(), "no file");
  const auto file = SafetensorsReader::Open(path);
  unlink(path.c_str());
  if (!file.ok()) return 0;
  for (const SafetensorsReader::Entry& entry : (*file)->entries()) {
    FuzzCheck(entry.end <= (*file)->values().size() && entry.begin <= entry.end,
              "outside of the file");
  }
  return 0;
}
