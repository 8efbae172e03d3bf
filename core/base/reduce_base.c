/* The reduction loops for any processor of the architecture. */
#ifndef __clang__
#pragma GCC optimize("fp-contract=off", "no-trapping-math")
#endif
#define VERSION base
#include "base/reduce_template.h"
