/* 256 ranks of one host: a barrier, an all_reduce, an all_to_all and some groups, over shared memory.
 *
 *     test_many_ranks              the test
 *     test_many_ranks N            one of N ranks of it, or of tests/hosts/cases.sh, started by tutti-run
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <tutti/tutti.h>
#include <unistd.h>

#include <cmocka.h>

enum { RANKS = 256, /* at most */ GROUPS = 4, DESCRIPTORS = 4096 };

#define TRY(call)                                                                                                      \
    do {                                                                                                               \
        if ((call) != TUTTI_OK) {                                                                                      \
            fprintf(stderr, "%s: %s\n", #call, tutti_last_error());                                                    \
            return 1;                                                                                                  \
        }                                                                                                              \
    } while (0)

static int check_sum(tutti_group *group, int rank, int size)
{
    int32_t value = rank + 1;
    TRY(tutti_all_reduce(tutti_view(&value, 1), TUTTI_SUM, tutti_with(.group = group)));
    if (value == size * (size + 1) / 2) return 0;
    fprintf(stderr, "rank %d of %d: the sum is %d\n", rank, size, value);
    return 1;
}

static int check_all_to_all(int rank, int size)
{
    int32_t in[RANKS], out[RANKS];
    for (int i = 0; i < size; i++) in[i] = rank * RANKS + i;
    TRY(tutti_all_to_all_single(tutti_view(out, size), tutti_view(in, size), NULL, NULL, NULL));
    for (int i = 0; i < size; i++)
        if (out[i] != i * RANKS + rank) {
            fprintf(stderr, "rank %d has %d from rank %d\n", rank, out[i], i);
            return 1;
        }
    return 0;
}

/* Makes groups of all ranks, and of every second one. */
static int check_groups(int rank, int size)
{
    int all[RANKS], even[RANKS / 2], half = size / 2;
    for (int i = 0; i < size; i++) all[i] = i;
    for (int i = 0; i < half; i++) even[i] = 2 * i;
    for (int i = 0; i < GROUPS; i++) {
        tutti_group *group = NULL;
        TRY(tutti_new_group(i % 2 ? even : all, i % 2 ? half : size, NULL, &group));
        int mine = tutti_get_rank(group);
        if (mine != (i % 2 == 0 ? rank : rank % 2 ? -1 : rank / 2)) return 1;
        if (mine >= 0 && check_sum(group, mine, i % 2 ? half : size) != 0) return 1;
    }
    return 0;
}

static int rank_main(int size)
{
    setenv("TUTTI_BACKEND_PATH", TUTTI_BACKENDS_DIR, 1);
    TRY(tutti_init_process_group("tcp", NULL));
    int rank = tutti_get_rank(NULL);
    if (size > RANKS || tutti_get_world_size(NULL) != size) return 1;
    TRY(tutti_barrier(NULL));
    if (check_sum(NULL, rank, size) != 0 || check_all_to_all(rank, size) != 0 || check_groups(rank, size) != 0)
        return 1;
    TRY(tutti_barrier(NULL));
    TRY(tutti_destroy_process_group(NULL));
    return 0;
}

static void test_one_host(void **state)
{
    (void)state;
    char self[4096], number[16];
    ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    struct rlimit limit;
    int status = -1;
    getrlimit(RLIMIT_NOFILE, &limit);
    if (limit.rlim_max < DESCRIPTORS) skip();
    assert_true(length > 0);
    self[length] = '\0';
    snprintf(number, sizeof number, "%d", RANKS);
    pid_t child = fork();
    if (child == 0) {
        execl(TUTTI_RUN_PATH, TUTTI_RUN_PATH, "-n", number, self, number, (char *)NULL);
        _exit(127);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_one_host)};
    if (argc == 2) return rank_main(atoi(argv[1]));
    return cmocka_run_group_tests(tests, NULL, NULL);
}
