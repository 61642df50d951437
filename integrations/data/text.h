// Text as bytes: a token is a byte, its target the next byte.
//
// The file may be plain, gzip, or a data file of the Bible Retrieval System (see bible_text.h:
// Debian's package bible-kjv-text has the King James Bible in /usr/lib/bible.data). The last tenth
// of the bytes is held out. Sample i of a split is the bytes [i·sequence, (i+1)·sequence) with the
// targets one byte further; the bytes that fill no sample are left out.
#ifndef RINGZERO_INTEGRATIONS_DATA_TEXT_H_
#define RINGZERO_INTEGRATIONS_DATA_TEXT_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "integrations/data/dataset.h"

namespace ringzero {

// InvalidArgument or NotFound, naming the file, or the key "model.seq" when it is not positive
// or so large that a split has no sample.
absl::StatusOr<std::unique_ptr<Dataset>> OpenText(const std::string& path, int64_t sequence);

}  // namespace ringzero

#endif  // RINGZERO_INTEGRATIONS_DATA_TEXT_H_
