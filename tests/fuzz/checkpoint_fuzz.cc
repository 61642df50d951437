// The readers of a checkpoint, fed with anything: state.json, or a safetensors file. No crash, no hang; what is read is written
// and read back as the same.
#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <string>

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
  static const int memory = memfd_create("ringzero-fuzz", 0);
  static const std::string path = "/proc/self/fd/" + std::to_string(memory);
  FuzzCheck(ftruncate(memory, 0) == 0 && pwrite(memory, data, size, 0) == ssize_t(size), "no file");
  const auto file = SafetensorsReader::Open(path);
  if (!file.ok()) return 0;
  for (const SafetensorsReader::Entry& entry : (*file)->entries()) {
    FuzzCheck(entry.end <= (*file)->values().size() && entry.begin <= entry.end,
              "outside of the file");
  }
  return 0;
}
