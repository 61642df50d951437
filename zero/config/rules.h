// Rules over more than one key: old words and what they became, "auto", contradictions, the batch.
//
//   ResolvedKeys keys = ResolveKeys(root, file, findings);
//   ApplyRules(keys, findings);
//
// They hold for any number of workers unless that number is given.
#ifndef RINGZERO_ZERO_CONFIG_RULES_H_
#define RINGZERO_ZERO_CONFIG_RULES_H_

#include "zero/config/finding.h"
#include "zero/config/resolve.h"

namespace ringzero {

void ApplyRules(ResolvedKeys& keys, Findings& findings);

// Fills in what is missing of the batch triple, once cyclic.workers has a value; adds an error
// where no number of workers (or not the given one) makes it right.
void ResolveBatch(ResolvedKeys& keys, Findings& findings);

// Once the batch has a size: the updates of a schedule that is to end with the run ("auto"), from
// iterations or from epochs. Where epochs are given and only the data says how long they are, it
// stays "auto", and the run sets it.
void ResolveLength(ResolvedKeys& keys, Findings& findings);

}  // namespace ringzero

#endif  // RINGZERO_ZERO_CONFIG_RULES_H_
