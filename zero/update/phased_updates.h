// The updates that need more of a parameter than one value: LAMB its norms, Muon the matrix.
//
//   MakeUpdate(options, parameter);   // of Type::kLamb or kMuon: one of these
#ifndef RINGZERO_ZERO_UPDATE_PHASED_UPDATES_H_
#define RINGZERO_ZERO_UPDATE_PHASED_UPDATES_H_

#include <memory>

#include "zero/layout.h"
#include "zero/update/optimizer_options.h"

namespace ringzero {

// States exp_avg and exp_avg_sq. Phases: moments, with partial norms of θ and of the update per
// block; the trust ratio; the new values, from the moments once more, so that no update is kept.
std::shared_ptr<const ParameterUpdate> MakeLambUpdate(const LambOptions& options);

// State momentum_buffer. Of a parameter of two or four dimensions.
std::shared_ptr<const ParameterUpdate> MakeMuonUpdate(const MuonOptions& options,
                                                      const ParameterSpec& parameter);

}  // namespace ringzero

#endif  // RINGZERO_ZERO_UPDATE_PHASED_UPDATES_H_
