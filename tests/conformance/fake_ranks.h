/* Ranks that are threads of one process, each with a FAKE GPU: the plug-ins on the stand-ins of tests/fakes. */
#ifndef FAKE_RANKS_H
#define FAKE_RANKS_H

#include "gpu/cases.h"
#include "monotonic.h"

/* Runs a case on each of size ranks.  Asserts that all return 0. */
void run_ranks(const char *backend, int size, case_fn fn, int64_t timeout_ms);

/* Finds the stand-ins.  Returns false, with a message, if they are not built. */
bool fakes_are_here(void);

#endif
