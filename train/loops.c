/* CMake compiles this file with -O3, for gcc's vectoriser.  Contraction to multiply-add is excluded by the targets: all
 * versions compute the same bits. */
#include "loops.h"

#include <string.h>

#define VERSION(name) base_##name
#define TARGET
#include "loops_template.h"
#undef VERSION
#undef TARGET

#ifdef __x86_64__
#define VERSION(name) avx2_##name
#define TARGET __attribute__((target("avx2")))
#include "loops_template.h"
#undef VERSION
#undef TARGET

const struct loops *loops_select(void)
{
    return __builtin_cpu_supports("avx2") ? &avx2_loops : &base_loops;
}
#else
const struct loops *loops_select(void)
{
    return &base_loops;
}
#endif
