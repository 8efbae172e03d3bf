/* More groups than the program's descriptor limit allows.  The library raises the limit as far as it may, and restores
 * it when the groups end. */
#include "procs.h"

#include <sys/resource.h>

enum { SOFT = 64, HARD = 4096, GROUPS = 12 };

static rlim_t soft_limit(void)
{
    struct rlimit limit = {0};
    getrlimit(RLIMIT_NOFILE, &limit);
    return limit.rlim_cur;
}

static int rank_of_many(int rank, int size, void *argument)
{
    tutti_store *store = proc_store(), *part[GROUPS] = {NULL};
    tutti_group *group[GROUPS] = {NULL};
    int status = -1;
    (void)rank;
    (void)argument;
    EXPECT(setrlimit(RLIMIT_NOFILE, &(struct rlimit){SOFT, HARD}) == 0);
    for (int i = 0; i < GROUPS; i++) {
        char name[32];
        float x = 1;
        snprintf(name, sizeof name, "many-%d", i);
        EXPECT(proc_group(store, name, size, 20000, &part[i], &group[i]) == TUTTI_OK);
        EXPECT(tutti_all_reduce(tutti_view(&x, 1), TUTTI_SUM, tutti_with(.group = group[i])) == TUTTI_OK);
    }
    EXPECT(soft_limit() > SOFT);
    pid_t pid = fork();
    if (pid == 0) _exit(soft_limit() == SOFT ? 0 : 1);
    EXPECT(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    for (int i = 0; i < GROUPS; i++) {
        EXPECT(tutti_destroy_process_group(group[i]) == TUTTI_OK);
        tutti_store_free(part[i]);
    }
    EXPECT(soft_limit() == SOFT);
    tutti_store_free(store);
    return 0;
}

static void test_is_raised_and_given_back(void **state)
{
    (void)state;
    procs_run_ranks(4, rank_of_many, NULL);
}

int main(void)
{
    if (access(TUTTI_BACKENDS_DIR "/libtutti_tcp.so", R_OK) != 0) return 77; /* built without libfabric */
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_is_raised_and_given_back)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
