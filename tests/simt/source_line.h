#ifndef TOKEND_TESTS_SIMT_SOURCE_LINE_H_
#define TOKEND_TESTS_SIMT_SOURCE_LINE_H_

#include "tests/simt/simt.h"

namespace tokend::simt {

// The line of the call that returns to `pc`, as addr2line tells; else the address
// within the program. Valid until the next call.
Site SourceLine(const void* pc);

}  // namespace tokend::simt

#endif  // TOKEND_TESTS_SIMT_SOURCE_LINE_H_
