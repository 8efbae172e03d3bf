/* One rank is killed at a random moment: while the ranks attach to shared memory, in small operations, or in large
 * ones.  Every other rank is notified, and nothing of any rank is left.
 *
 * FAULTS_KILLS is the number of kills (tests/soak/kills.sh: 100), and FAULTS_SEED chooses other moments. */
#include "leftovers.h"
#include "procs.h"
#include "usage.h"

enum { RANKS = 4, SMALL = 16, LARGE = 1 << 18, KILLS = 30, SOON_S = PROCS_SOON_S };

enum phase { ATTACHING, SMALL_ONES, LARGE_ONES, PHASES };

struct kill {
    uint64_t seed;
    enum phase phase;
    int victim, delay_us;
};

static int sum_once(int rank, int size, int64_t *data, int64_t n)
{
    for (int64_t i = 0; i < n; i++) data[i] = i + rank;
    int status = tutti_all_reduce(tutti_view(data, n), TUTTI_SUM, NULL);
    for (int64_t i = 0; i < n && status == TUTTI_OK; i++)
        if (data[i] != i * size + size * (size - 1) / 2) {
            fprintf(stderr, "rank %d: success, but element %" PRIi64 " is %" PRIi64 "\n", rank, i, data[i]);
            return 1;
        }
    return status;
}

static int rank_in_danger(int rank, int size, void *argument)
{
    const struct kill *kill = argument;
    char guilty[16];
    int64_t *data = malloc(LARGE * sizeof *data), n = kill->phase == LARGE_ONES ? LARGE : SMALL;
    int before = usage_fds();
    snprintf(guilty, sizeof guilty, "rank %d", kill->victim);
    proc_set_step(1);
    int status = proc_init(20000);
    if (status == TUTTI_OK) status = sum_once(rank, size, data, 1);
    proc_set_step(2);
    while (status == TUTTI_OK) status = sum_once(rank, size, data, n);
    int64_t begin = monotonic_ns();
    proc_set_step(3);
    if (status != TUTTI_ERR_ABORTED) EXPECT_ERROR(status, TUTTI_ERR_PEER_LOST, guilty);
    EXPECT_ERROR(status, status, guilty);
    if (tutti_is_initialized()) EXPECT(tutti_destroy_process_group(NULL) == TUTTI_OK);
    EXPECT_WITHIN(begin, 0, SOON_S);
    EXPECT(usage_fds() == before);
    free(data);
    return 0;
}

/* Waits until all ranks have named their processes and begin to attach.  A rank that had not would only be a
 * straggler. */
static void await_attaching(struct procs *procs)
{
    int64_t limit_ns = monotonic_ns() + INT64_C(20000000000);
    for (int named = 0; named < RANKS && monotonic_ns() < limit_ns;) {
        char list[4096];
        size_t bytes = 0;
        int status = tutti_store_get(procs->store, "tutti/process/0", list, sizeof list - 1, &bytes, 0);
        if (status != TUTTI_OK && status != TUTTI_ERR_TIMEOUT) return;
        list[status == TUTTI_OK ? bytes : 0] = '\0';
        named = 0;
        for (const char *at = list; (at = strchr(at, '\n')) != NULL; at++) named++;
    }
}

static void kill_one(struct procs *procs, void *argument)
{
    const struct kill *kill = argument;
    struct leftovers leftovers = {0};
    pid_t pids[RANKS];
    if (!procs_wait_for_step(procs, kill->phase == ATTACHING ? 1 : 2)) return;
    for (int i = 0; i < RANKS; i++) pids[i] = procs->pid[i];
    if (kill->phase != ATTACHING) /* ranks attach too quickly for a count of their descriptors */
        for (int i = 0; i < RANKS; i++) leftovers_add(&leftovers, pids[i]);
    if (kill->phase == ATTACHING) await_attaching(procs);
    usleep((useconds_t)kill->delay_us);
    procs_signal(procs, kill->victim, SIGKILL);
    int64_t killed_ns = monotonic_ns();
    procs_wait(procs);
    procs_check_notified(procs, kill->victim, killed_ns, SOON_S);
    procs->failed |= leftovers_exist(&leftovers, pids, RANKS);
}

static void test_killed_at_random(void **state)
{
    (void)state;
    int times = getenv("FAULTS_KILLS") != NULL ? atoi(getenv("FAULTS_KILLS")) : KILLS;
    uint64_t seed = getenv("FAULTS_SEED") != NULL ? strtoull(getenv("FAULTS_SEED"), NULL, 10) : 1, chance = seed;
    int before = 0;
    for (int i = 0; i < times; i++) {
        struct kill kill = {.phase = (enum phase)(i % PHASES)};
        kill.victim = (int)procs_random(&chance, RANKS);
        kill.delay_us = (int)procs_random(&chance, kill.phase == ATTACHING ? 1500 : 20000);
        struct procs procs = {.size = RANKS, .fn = rank_in_danger, .argument = &kill, .act = kill_one};
        procs.may_fail = true;
        procs_run(&procs);
        for (int k = 0; k < RANKS; k++) {
            int expected = k == kill.victim ? -SIGKILL : 0;
            if (procs.code[k] != expected)
                fprintf(stderr, "seed %" PRIu64 ", time %d: rank %d was killed after %d us in phase %d, rank %d: %d\n",
                        seed, i, kill.victim, kill.delay_us, kill.phase, k, procs.code[k]);
            assert_int_equal(procs.code[k], expected);
        }
        if (i == 0) before = usage_fds(); /* the first store's descriptors stay open */
        assert_int_equal(usage_fds(), before);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_killed_at_random)};
    cmocka_set_test_filter(getenv("FAULTS_ONLY"));
    return cmocka_run_group_tests(tests, NULL, NULL);
}
