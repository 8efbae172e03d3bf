/* CUDA tensors on the tcp backend: staged through pinned host memory by the cuda plug-in, on the stand-ins of
 * tests/fakes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "fake_ranks.h"

#include "../gpu/stage_cases.h"

/* What holds on nccl holds here, but for what depends on a blocking call that only enqueues. */
static void test_as_on_nccl(void **state)
{
    static const case_fn cases[] = {case_moves,    case_reductions, case_bool,  case_uneven,
                                    case_messages, case_coalesced,  case_groups};
    (void)state;
    for (int size = 1; size <= 4; size++)
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) run_ranks("cuda:tcp", size, cases[i], 30000);
}

int main(void)
{
    if (!fakes_are_here()) return 77;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_as_on_nccl),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
