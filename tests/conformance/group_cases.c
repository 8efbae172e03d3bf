#include "group_cases.h"

#include <malloc.h>
#include <unistd.h>

unsigned group_cases_random(unsigned *state)
{
    *state = *state * 1664525 + 1013904223;
    return *state >> 8;
}

void group_cases_shuffle(int *order, int n, unsigned seed)
{
    for (int i = 0; i < n; i++) order[i] = i;
    for (int i = n - 1; i > 0; i--) {
        int k = (int)(group_cases_random(&seed) % (unsigned)(i + 1)), kept = order[i];
        order[i] = order[k];
        order[k] = kept;
    }
}

int group_cases_pick(int *ranks, int size, unsigned mask, int turn)
{
    int n = 0;
    for (int i = 0; i < size; i++) {
        int rank = turn % 2 != 0 ? size - 1 - i : (i + turn) % size;
        if (mask >> rank & 1) ranks[n++] = rank;
    }
    return n;
}

bool group_cases_sums_up(tutti_group *group, const int *ranks, int n)
{
    int64_t sum = 0, x = tutti_get_global_rank(group, tutti_get_rank(group)) + 1;
    for (int i = 0; i < n; i++) sum += ranks[i] + 1;
    return tutti_all_reduce(tutti_view(&x, 1), TUTTI_SUM, tutti_with(.group = group)) == TUTTI_OK && x == sum;
}

static const struct group_case *all; /* this program's cases */
static int n_all;

static void run_over_threads(void **state)
{
    const struct group_case *one = *state;
    for (int size = one->least; size <= one->most; size++) ranks_run(size, one->fn, NULL);
}

static int run_as_process(int rank, void *argument)
{
    (void)argument;
    if (tutti_init_process_group("tcp", &(tutti_init_opts){.timeout_ms = 30000}) != TUTTI_OK) {
        fprintf(stderr, "rank %d: %s\n", rank, tutti_last_error());
        return 1;
    }
    for (int i = 0; i < n_all; i++) {
        int line = all[i].fn(NULL, rank, tutti_get_world_size(NULL), NULL);
        if (line != 0) fprintf(stderr, "rank %d: case %s over tcp, line %d\n", rank, all[i].name, line);
        if (line != 0) return 1;
    }
    return tutti_destroy_process_group(NULL) == TUTTI_OK ? 0 : 1;
}

static void test_over_tcp(void **state)
{
    (void)state;
    if (access(TUTTI_BACKENDS_DIR "/libtutti_tcp.so", R_OK) != 0) {
        print_message("skipped: the tcp backend was not built\n");
        skip();
    }
    if (tutti_spawn(run_as_process, NULL, 3) != TUTTI_OK) fail_msg("%s", tutti_last_error());
}

int group_cases_run(const struct group_case *cases, int n, const struct CMUnitTest *others, int n_others)
{
    size_t n_tests = 1 + (size_t)n + (size_t)n_others;
    struct CMUnitTest tests[n_tests];
    all = cases;
    n_all = n;
    tests[0] = (struct CMUnitTest)cmocka_unit_test(test_over_tcp); /* first, before any thread is started */
    for (int i = 0; i < n_others; i++) tests[1 + i] = others[i];
    for (int i = 0; i < n; i++)
        tests[1 + n_others + i] = (struct CMUnitTest){
            .name = cases[i].name, .test_func = run_over_threads, .initial_state = (void *)(uintptr_t)&cases[i]};
#ifdef M_ARENA_MAX
    mallopt(M_ARENA_MAX, 1); /* mallinfo2 then counts all memory */
#endif
    ranks_setup();
    return _cmocka_run_group_tests("groups", tests, n_tests, NULL, NULL);
}
