// Report: a run's numbers as one page of HTML that needs nothing else.
//
//   RZ_ASSIGN_OR_RETURN(RunFolder run, ReadRunFolder("run"));
//   std::string html = Report(run, "run");
//
// A pure function.
#ifndef RINGZERO_INTEGRATIONS_SIGHT_REPORT_H_
#define RINGZERO_INTEGRATIONS_SIGHT_REPORT_H_

#include <string>

#include "integrations/sight/run_folder.h"

namespace ringzero {

std::string Report(const RunFolder& run, const std::string& title);

}  // namespace ringzero

#endif  // RINGZERO_INTEGRATIONS_SIGHT_REPORT_H_
