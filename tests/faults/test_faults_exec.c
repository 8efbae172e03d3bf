/* A rank execs another program, or closes all its descriptors.  The others name it at once.  Its own calls fail and do
 * not use descriptors that the program has opened since. */
#include "procs.h"

#include <fcntl.h>
#include <sys/syscall.h>

enum { SOON_S = PROCS_SOON_S, OPENED = 64, CONTENT = 4096 };

struct end {
    bool execs, waiting;
    bool busy;       /* all ranks call without a pause */
    const char *shm; /* TUTTI_SHM */
};

static int sum_once(void)
{
    float x = 1;
    return tutti_all_reduce(tutti_view(&x, 1), TUTTI_SUM, NULL);
}

/* Calls until one fails: calls that find their data there already need no descriptor. */
static int sum_until_failure(int64_t begin)
{
    int status = TUTTI_OK;
    while (status == TUTTI_OK && monotonic_ns() < begin + (int64_t)SOON_S * 1000000000) status = sum_once();
    return status;
}

/* ---- the faulty rank ----------------------------------------------------------------------------------- */

static int become_another_program(void)
{
    execl("/bin/sleep", "sleep", "30", (char *)NULL); /* longer than the others wait */
    return 1;
}

/* Opens the program's own files on all numbers that were closed. */
static int reopen(int fds[OPENED])
{
    char content[CONTENT];
    memset(content, 7, sizeof content);
    for (int i = 0; i < OPENED; i++) {
        fds[i] = (int)syscall(SYS_memfd_create, "the program's", 0);
        EXPECT(fds[i] >= 0 && pwrite(fds[i], content, sizeof content, 0) == sizeof content);
    }
    return 0;
}

static int check_untouched(const int fds[OPENED])
{
    char content[CONTENT + 1];
    for (int i = 0; i < OPENED; i++) {
        EXPECT(fcntl(fds[i], F_GETFD) >= 0 && lseek(fds[i], 0, SEEK_CUR) == 0);
        EXPECT(pread(fds[i], content, sizeof content, 0) == CONTENT);
        for (int k = 0; k < CONTENT; k++) EXPECT(content[k] == 7);
    }
    return 0;
}

static int close_all(const struct end *end)
{
    int fds[OPENED], result;
    bool local = end->shm[0] == '1'; /* otherwise libfabric would close the new files by number */
    EXPECT(syscall(SYS_close_range, 3, ~0U, 0) == 0);
    result = local ? reopen(fds) : 0;
    if (!end->busy) procs_sleep_ms(200); /* time for the progress thread to poll */
    int64_t begin = monotonic_ns();
    int status = sum_until_failure(begin);
    if (status != TUTTI_ERR_ABORTED) EXPECT(status == TUTTI_ERR_SYSTEM); /* the progress thread may have noticed */
    EXPECT_ERROR(status, status, "the program closed descriptors");
    EXPECT(sum_once() == TUTTI_ERR_ABORTED);
    EXPECT_WITHIN(begin, 0, SOON_S);
    EXPECT(tutti_destroy_process_group(NULL) == TUTTI_OK);
    EXPECT_WITHIN(begin, 0, SOON_S + 4);
    return local && result == 0 ? check_untouched(fds) : result;
}

/* ---- all ranks --------------------------------------------------------------------------------------------------- */

static int rank_of_end(int rank, int size, void *argument)
{
    const struct end *end = argument;
    int guilty = size - 1;
    char name[16];
    snprintf(name, sizeof name, "rank %d", guilty);
    setenv("TUTTI_SHM", end->shm, 1);
    EXPECT(proc_init(30000) == TUTTI_OK);
    EXPECT(sum_once() == TUTTI_OK);
    proc_set_step(1);
    if (rank == guilty) {
        if (end->waiting) procs_sleep_ms(300); /* by then the others are asleep in their call */
        return end->execs ? become_another_program() : close_all(end);
    }
    if (!end->waiting && !end->busy) procs_sleep_ms(300);
    int64_t begin = monotonic_ns();
    int status = sum_until_failure(begin);
    if (status != TUTTI_ERR_SYSTEM && status != TUTTI_ERR_ABORTED) EXPECT(status == TUTTI_ERR_PEER_LOST);
    EXPECT_ERROR(status, status, name);
    EXPECT_WITHIN(begin, 0, SOON_S);
    proc_barrier(guilty, 2);
    EXPECT(tutti_destroy_process_group(NULL) == TUTTI_OK);
    return 0;
}

/* True if a rank other than the last one runs and has not reached step 2. */
static bool one_is_calling(const struct procs *procs)
{
    for (int i = 0; i < procs->size - 1; i++)
        if (procs->pid[i] != 0 && atomic_load(&procs->shared->step[i]) < 2) return true;
    return false;
}

/* Ends the other program once all ranks have noticed. */
static void end_the_program(struct procs *procs, void *argument)
{
    (void)argument;
    while (procs_reap(procs) && one_is_calling(procs) && monotonic_ns() < procs->deadline_ns) procs_sleep_ms(1);
    procs_signal(procs, procs->size - 1, SIGKILL);
}

static void run_end(bool execs, bool waiting, const char *shm)
{
    struct end end = {.execs = execs, .waiting = waiting, .shm = shm};
    procs_run_with(3, rank_of_end, execs ? end_the_program : NULL, &end);
}

static void test_execs_over_shared_memory(void **state)
{
    (void)state;
    run_end(true, true, "1");
    run_end(true, false, "1");
}

static void test_execs_over_the_wire(void **state)
{
    (void)state;
    run_end(true, true, "0");
}

static void test_closes_all_over_shared_memory(void **state)
{
    (void)state;
    run_end(false, true, "1");
    run_end(false, false, "1");
    procs_run_ranks(2, rank_of_end, &(struct end){.busy = true, .shm = "1"});
}

static void test_closes_all_over_the_wire(void **state)
{
    (void)state;
    run_end(false, true, "0");
}

int main(void)
{
    if (access(TUTTI_BACKENDS_DIR "/libtutti_tcp.so", R_OK) != 0) return 77; /* built without libfabric */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_execs_over_shared_memory),
        cmocka_unit_test(test_execs_over_the_wire),
        cmocka_unit_test(test_closes_all_over_shared_memory),
        cmocka_unit_test(test_closes_all_over_the_wire),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
