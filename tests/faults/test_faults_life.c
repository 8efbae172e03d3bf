/* Actions of a process around its operations: interrupt them, fork, abort, destroy, begin again, exit.  Nothing is left
 * behind. */
#include "leftovers.h"
#include "procs.h"
#include "usage.h"

#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>

enum { HANG_S = 30, BIG = 1 << 20 };

/* ---- EINTR ------------------------------------------------------------------------------------------------------ */

static void on_alarm(int number)
{
    (void)number;
}

static void set_timer(int us)
{
    struct itimerval timer = {{0, us}, {0, us}};
    sigaction(SIGALRM, &(struct sigaction){.sa_handler = on_alarm}, NULL); /* without SA_RESTART */
    setitimer(ITIMER_REAL, &timer, NULL);
}

static int every_operation(int rank, int size, int64_t n)
{
    int64_t *one = calloc((size_t)n, sizeof *one), *all = calloc((size_t)(n * size), sizeof *all);
    tutti_tensor part = tutti_view(one, n), every = tutti_view(all, n * size);
    int next = (rank + 1) % size, before = (rank + size - 1) % size;
    tutti_work *sent = NULL;
    one[0] = rank;
    EXPECT(tutti_all_gather_into_tensor(every, part, NULL) == TUTTI_OK && all[n] == 1);
    EXPECT(tutti_gather_into_tensor(every, part, 0, NULL) == TUTTI_OK);
    EXPECT(tutti_scatter_tensor(part, every, 1, NULL) == TUTTI_OK && one[0] == rank);
    EXPECT(tutti_reduce_scatter_tensor(part, every, TUTTI_SUM, NULL) == TUTTI_OK && one[0] == rank * size);
    EXPECT(tutti_reduce(part, 0, TUTTI_MAX, NULL) == TUTTI_OK);
    EXPECT(tutti_broadcast(part, 1, NULL) == TUTTI_OK && one[0] == size);
    EXPECT(tutti_all_to_all_single(tutti_view(all, n * size), tutti_view(one, n / size * size), NULL, NULL, NULL) < 0);
    EXPECT(tutti_isend(part, next, NULL, &sent) == TUTTI_OK);
    EXPECT(tutti_recv(tutti_view(all, n), before, NULL) == TUTTI_OK && all[0] == size);
    EXPECT(tutti_wait(&sent, TUTTI_DEFAULT_TIMEOUT) == TUTTI_OK);
    EXPECT(tutti_barrier(NULL) == TUTTI_OK);
    free(one);
    free(all);
    return proc_sum(NULL, size, n);
}

static int rank_of_interrupts(int rank, int size, void *argument)
{
    (void)argument;
    set_timer(1000);
    EXPECT(proc_init(30000) == TUTTI_OK);
    for (int i = 0; i < 20; i++) EXPECT(every_operation(rank, size, 7) == 0);
    EXPECT(every_operation(rank, size, 200000) == 0);
    EXPECT(tutti_destroy_process_group(NULL) == TUTTI_OK);
    set_timer(0);
    return 0;
}

static void test_interrupted_all_the_time(void **state)
{
    (void)state;
    procs_run_ranks(4, rank_of_interrupts, NULL);
}

/* ---- a callback that destroys -------------------------------------------------------------------------------- */

static atomic_int called; /* 1: the callback runs, 2: it has ended */

/* Destroys everything after a failure, while the program does so itself. */
static void tear_down(tutti_work *work, void *argument)
{
    int *wrong = argument;
    (void)work;
    atomic_store(&called, 1);
    for (int i = 0; i < 10000 && tutti_is_initialized(); i++) procs_sleep_ms(1); /* until the program is in destroy */
    *wrong += tutti_destroy_process_group(NULL) != TUTTI_ERR_INVALID_ARGUMENT;
    *wrong += tutti_init_process_group("tcp", NULL) != TUTTI_ERR_INVALID_ARGUMENT;
    atomic_store(&called, 2);
}

static int rank_that_is_torn_down(int rank, int size, void *argument)
{
    const tutti_init_opts opts = {.store = proc_store(), .rank = rank, .world_size = size};
    tutti_work *work = NULL;
    int x = 1, wrong = 0;
    (void)argument;
    EXPECT(tutti_init_process_group("tcp", &opts) == TUTTI_OK);
    if (rank == 0) { /* this thread is idle, so the progress thread runs the callback */
        EXPECT(tutti_irecv(tutti_view(&x, 1), 1, NULL, &work) == TUTTI_OK);
        EXPECT(tutti_work_then(work, tear_down, &wrong) == TUTTI_OK);
    }
    proc_barrier(size, 1);
    if (rank == 1) EXPECT(tutti_send(tutti_view(&x, 1), 0, NULL) == TUTTI_OK);
    for (int i = 0; rank == 0 && i < 10000 && atomic_load(&called) == 0; i++) procs_sleep_ms(1);
    EXPECT(tutti_destroy_process_group(NULL) == TUTTI_OK);
    if (rank == 0) {
        EXPECT(atomic_load(&called) == 2 && wrong == 0);
        tutti_work_free(work);
    }
    tutti_store_free(opts.store);
    return 0;
}

static void test_torn_down_twice(void **state)
{
    (void)state;
    procs_run_ranks(2, rank_that_is_torn_down, NULL);
}

/* ---- failed groups leave nothing ------------------------------------------------------------------------------- */

/* Fails the group in one of three ways, with operations in flight. */
static int fail_once(tutti_store *store, int rank, int size, int cycle)
{
    char name[32];
    tutti_store *part = NULL;
    tutti_group *group = NULL;
    int status;
    snprintf(name, sizeof name, "failing-%d", cycle);
    EXPECT(proc_group(store, name, size, 20000, &part, &group) == TUTTI_OK);
    EXPECT(proc_sum(group, size, 3) == TUTTI_OK);
    proc_barrier(size, 2 * cycle + 1);
    if (cycle % 3 == 0 && rank == 0) EXPECT(tutti_abort(group, "enough of this") == TUTTI_OK);
    if (cycle % 3 == 0)
        status = proc_sum(group, size, BIG);
    else if (cycle % 3 == 1) /* rank 0 does not call, so they time out */
        status = rank == 0 ? TUTTI_ERR_TIMEOUT : proc_sum_within(group, size, BIG, 600);
    else
        status = proc_sum(group, size, rank == 0 ? BIG / 2 : BIG);
    EXPECT(status == (cycle % 3 == 0 ? TUTTI_ERR_ABORTED : cycle % 3 == 1 ? TUTTI_ERR_TIMEOUT : TUTTI_ERR_MISMATCH));
    proc_barrier(size, 2 * cycle + 2);
    int64_t begin = monotonic_ns();
    status = proc_sum(group, size, 3);
    if (status != TUTTI_ERR_ABORTED && rank == 0) { /* not notified yet, so rank 0 finds the failure itself */
        EXPECT(status == TUTTI_ERR_PEER_LOST || status == TUTTI_ERR_MISMATCH);
        EXPECT_ERROR(status, status, name);
    }
    EXPECT_ERROR(tutti_barrier(tutti_with(.group = group)), TUTTI_ERR_ABORTED, name);
    EXPECT(tutti_destroy_process_group(group) == TUTTI_OK);
    EXPECT_WITHIN(begin, 0, PROCS_SOON_S);
    tutti_store_free(part);
    return 0;
}

static int rank_of_failing_groups(int rank, int size, void *argument)
{
    /* The allocator's own growth: far less than one operation's scratch memory a cycle. */
    enum { CYCLES = 15, WARM = 6, KEPT = 64 << 10 };
    (void)argument;
    tutti_store *store = proc_store();
    int fds = 0, threads = 0;
    size_t memory = 0;
    EXPECT(store != NULL);
    for (int i = 0; i < CYCLES; i++) {
        if (i == WARM) {
            fds = usage_fds();
            threads = usage_threads();
            memory = usage_bytes();
        }
        int result = fail_once(store, rank, size, i);
        if (result != 0) {
            fprintf(stderr, "rank %d: in cycle %d\n", rank, i);
            return result;
        }
    }
    size_t now = usage_bytes();
    if (usage_fds() != fds || usage_threads() != threads || now > memory + KEPT) {
        fprintf(stderr, "rank %d: %d descriptors became %d, %d threads %d, %zu bytes %zu\n", rank, fds, usage_fds(),
                threads, usage_threads(), memory, now);
        return 1;
    }
    tutti_store_free(store);
    return 0;
}

static void test_failed_groups_leave_nothing(void **state)
{
    (void)state;
    procs_run_ranks(3, rank_of_failing_groups, NULL);
}

/* ---- killed: nothing stays --------------------------------------------------------------------------------------- */

static int rank_of_kills(int rank, int size, void *argument)
{
    (void)rank;
    (void)argument;
    EXPECT(proc_init(20000) == TUTTI_OK);
    EXPECT(proc_sum(NULL, size, 3) == TUTTI_OK);
    proc_set_step(1);
    for (int status = TUTTI_OK; status == TUTTI_OK;) status = proc_sum(NULL, size, BIG);
    pause();
    return 0;
}

static void kill_all(struct procs *procs, void *argument)
{
    struct leftovers leftovers = {0};
    pid_t pids[PROCS_MOST];
    (void)argument;
    if (!procs_wait_for_step(procs, 1)) return;
    procs_sleep_ms(10);
    for (int i = 0; i < procs->size; i++) {
        pids[i] = procs->pid[i];
        leftovers_add(&leftovers, pids[i]);
    }
    for (int i = 0; i < procs->size; i++) procs_signal(procs, i, SIGKILL);
    procs_wait(procs);
    procs->failed |= leftovers_exist(&leftovers, pids, procs->size);
}

static void test_all_killed_leave_nothing(void **state)
{
    (void)state;
    int times = getenv("FAULTS_TIMES") != NULL ? atoi(getenv("FAULTS_TIMES")) : 20;
    for (int i = 0; i < times; i++) procs_run_with(3, rank_of_kills, kill_all, NULL);
}

/* ---- fork -------------------------------------------------------------------------------------------------------- */

static int child_of_rank(tutti_work *work)
{
    float x = 1;
    EXPECT_ERROR(tutti_all_reduce(tutti_view(&x, 1), TUTTI_SUM, NULL), TUTTI_ERR_INVALID_ARGUMENT, "fork", "world");
    EXPECT_ERROR(tutti_barrier(NULL), TUTTI_ERR_INVALID_ARGUMENT, "fork");
    EXPECT(tutti_abort(NULL, "a child") == TUTTI_ERR_INVALID_ARGUMENT);
    EXPECT(tutti_get_rank(NULL) == 1 && tutti_get_host(NULL, 0) <= 0); /* queries are allowed */
    EXPECT_ERROR(tutti_work_wait(work, 100), TUTTI_ERR_INVALID_ARGUMENT, "fork");
    tutti_work_free(work);
    EXPECT(tutti_destroy_process_group(NULL) == TUTTI_OK); /* destroys the child's copy of the handle only */
    EXPECT(!tutti_is_initialized());
    return 0;
}

static int rank_that_forks(int rank, int size, void *argument)
{
    enum { CHILDREN = 20 };
    int status = -1;
    float x = 0, one = 1;
    tutti_work *work = NULL; /* keeps the progress thread busy, which may hold the lock at the fork */
    (void)argument;
    EXPECT(proc_init(20000) == TUTTI_OK);
    EXPECT(proc_sum(NULL, size, 3) == TUTTI_OK);
    if (rank == 1) EXPECT(tutti_irecv(tutti_view(&x, 1), 0, NULL, &work) == TUTTI_OK);
    for (int i = 0; i < CHILDREN && rank == 1; i++) {
        pid_t pid = fork();
        if (pid == 0) _exit(child_of_rank(work) != 0);
        EXPECT(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
    EXPECT(proc_sum(NULL, size, BIG) == TUTTI_OK);
    if (rank == 0) EXPECT(tutti_send(tutti_view(&one, 1), 1, NULL) == TUTTI_OK);
    if (rank == 1) EXPECT(tutti_wait(&work, TUTTI_DEFAULT_TIMEOUT) == TUTTI_OK && x == 1);
    EXPECT(tutti_destroy_process_group(NULL) == TUTTI_OK);
    return 0;
}

static void test_fork_after_init(void **state)
{
    (void)state;
    procs_run_ranks(3, rank_that_forks, NULL);
}

static sem_t in_mkdir, may_leave;

/* Replaces the system's function: the recorder's folder is on a file system that hangs. */
__attribute__((visibility("default"))) int mkdir(const char *path, mode_t mode)
{
    if (strstr(path, "hangs") != NULL) {
        sem_post(&in_mkdir);
        while (sem_wait(&may_leave) != 0) continue;
    }
    return (int)syscall(SYS_mkdirat, AT_FDCWD, path, mode);
}

static void *write_record(void *argument)
{
    (void)argument;
    tutti_record_write("/nonexistent/hangs");
    return NULL;
}

static int make_group_in_child(void)
{
    tutti_store *store = NULL;
    tutti_group *group = NULL;
    alarm(HANG_S); /* ends the child if it waits for the recorder's lock */
    EXPECT(tutti_store_memory(NULL, &store) == TUTTI_OK);
    EXPECT(tutti_create_group("tcp", store, 0, 1, NULL, &group) == TUTTI_OK);
    EXPECT(tutti_destroy_process_group(group) == TUTTI_OK);
    tutti_store_free(store);
    return 0;
}

/* Forks while another thread writes the flight record. */
static int rank_that_forks_in_record(int rank, int size, void *argument)
{
    pthread_t thread;
    int status = -1;
    (void)rank, (void)size, (void)argument;
    EXPECT(proc_init(20000) == TUTTI_OK);
    EXPECT(sem_init(&in_mkdir, 0, 0) == 0 && sem_init(&may_leave, 0, 0) == 0);
    EXPECT(pthread_create(&thread, NULL, write_record, NULL) == 0);
    while (sem_wait(&in_mkdir) != 0) continue;
    pid_t pid = fork();
    if (pid == 0) _exit(make_group_in_child() != 0);
    EXPECT(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    sem_post(&may_leave);
    pthread_join(thread, NULL);
    EXPECT(tutti_destroy_process_group(NULL) == TUTTI_OK);
    return 0;
}

static void test_fork_during_record(void **state)
{
    (void)state;
    procs_run_ranks(1, rank_that_forks_in_record, NULL);
}

/* Counts the descriptors that a newly started program would inherit. */
static int count_inherited(void)
{
    enum { MOST = 1024 };
    int n = 0;
    for (int fd = 0; fd < MOST; fd++) {
        int flags = fcntl(fd, F_GETFD);
        n += flags >= 0 && !(flags & FD_CLOEXEC);
    }
    return n;
}

static int rank_that_execs(int rank, int size, void *argument)
{
    (void)rank, (void)argument;
    int before = count_inherited();
    EXPECT(proc_init(20000) == TUTTI_OK);
    EXPECT(proc_sum(NULL, size, 3) == TUTTI_OK && proc_sum(NULL, size, BIG) == TUTTI_OK);
    EXPECT(count_inherited() == before);
    EXPECT(tutti_destroy_process_group(NULL) == TUTTI_OK);
    return 0;
}

static void test_nothing_is_inherited(void **state)
{
    (void)state;
    procs_run_ranks(3, rank_that_execs, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_interrupted_all_the_time),
        cmocka_unit_test(test_torn_down_twice),
        cmocka_unit_test(test_failed_groups_leave_nothing),
        cmocka_unit_test(test_all_killed_leave_nothing),
        cmocka_unit_test(test_fork_after_init),
        cmocka_unit_test(test_fork_during_record),
        cmocka_unit_test(test_nothing_is_inherited),
    };
    cmocka_set_test_filter(getenv("FAULTS_ONLY"));
    return cmocka_run_group_tests(tests, NULL, NULL);
}
