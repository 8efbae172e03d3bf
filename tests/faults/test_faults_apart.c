/* Groups that end while others are in use, ranks that cannot all reach each other, and state that an error path leaves.
 */
#include "loopback.h"
#include "procs.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/time.h>
#include <unistd.h>

enum { SOON_S = PROCS_SOON_S, LARGE = 1 << 20 };

/* ---- a group with a backend of its own -------------------------------------------------------------------------- */

static char second_tcp[64]; /* a copy of the plug-in, which is another backend to the core */

static bool copy_plugin(void)
{
    static char buffer[1 << 16];
    ssize_t n = 0;
    strcpy(second_tcp, "/tmp/tutti-second-XXXXXX");
    int to = mkstemp(second_tcp), from = open(TUTTI_BACKENDS_DIR "/libtutti_tcp.so", O_RDONLY | O_CLOEXEC);
    while (to >= 0 && from >= 0 && (n = read(from, buffer, sizeof buffer)) > 0)
        if (write(to, buffer, (size_t)n) != n) n = -1;
    if (from >= 0) close(from);
    return to >= 0 && from >= 0 && n == 0 && close(to) == 0;
}

/* The subgroup's peers end, in order or not.  This rank is notified, and the world stays usable. */
static int rank_of_own_backend(int rank, int size, void *argument)
{
    bool leaves = *(bool *)argument;
    tutti_group *own = NULL, *plain = NULL;
    int ranks[] = {1, 2}; /* ranks 0 and 1 of the subgroup */
    float x = 1;
    EXPECT(proc_init(20000) == TUTTI_OK);
    EXPECT(tutti_new_group(ranks, 2, &(tutti_group_opts){.backend = second_tcp}, &own) == TUTTI_OK);
    EXPECT(tutti_new_group(ranks, 2, NULL, &plain) == TUTTI_OK);
    if (rank > 0)
        EXPECT(tutti_all_reduce(tutti_view(&x, 1), TUTTI_SUM, tutti_with(.group = own)) == TUTTI_OK && x == 2);
    proc_barrier(size, 1);
    if (rank == 2 && leaves) EXPECT(tutti_destroy_process_group(own) == TUTTI_OK);
    if (rank == 2 && !leaves) proc_wait_for_go(2); /* the parent kills it */
    if (rank == 1) EXPECT_ERROR(tutti_barrier(tutti_with(.group = own)), TUTTI_ERR_PEER_LOST, "barrier #2", "is lost");
    if (leaves) {
        EXPECT(tutti_barrier(NULL) == TUTTI_OK);
        if (rank > 0) EXPECT(tutti_barrier(tutti_with(.group = plain)) == TUTTI_OK);
    } else {
        EXPECT_ERROR(tutti_barrier(NULL), TUTTI_ERR_PEER_LOST, "rank 2");
    }
    EXPECT(tutti_destroy_process_group(NULL) == TUTTI_OK);
    return 0;
}

static void await_step(struct procs *procs, int rank, int step)
{
    while (procs_reap(procs) && atomic_load(&procs->shared->step[rank]) < step && monotonic_ns() < procs->deadline_ns)
        procs_sleep_ms(1);
}

static void kill_the_last(struct procs *procs, void *argument)
{
    (void)argument;
    await_step(procs, 2, 2);
    procs_signal(procs, 2, SIGKILL);
}

static void test_a_group_with_a_backend_of_its_own(void **state)
{
    (void)state;
    assert_true(copy_plugin());
    procs_run_ranks(3, rank_of_own_backend, &(bool){true});
    procs_run_with(3, rank_of_own_backend, kill_the_last, &(bool){false});
    unlink(second_tcp);
}

static int rank_of_many_backends(int rank, int size, void *argument)
{
    enum { MANY = 8 };
    tutti_group *own[MANY];
    int ranks[] = {0, 1};
    float x = 1;
    (void)rank, (void)argument;
    EXPECT(proc_init(20000) == TUTTI_OK);
    for (int i = 0; i < MANY; i++) {
        EXPECT(tutti_new_group(ranks, size, &(tutti_group_opts){.backend = second_tcp}, &own[i]) == TUTTI_OK);
        EXPECT(tutti_all_reduce(tutti_view(&x, 1), TUTTI_SUM, tutti_with(.group = own[i])) == TUTTI_OK);
    }
    EXPECT(x == 1 << MANY);
    EXPECT(tutti_destroy_process_group(NULL) == TUTTI_OK);
    return 0;
}

static void test_many_groups_with_backends_of_their_own(void **state)
{
    (void)state;
    assert_true(copy_plugin());
    procs_run_ranks(2, rank_of_many_backends, NULL);
    unlink(second_tcp);
}

/* ---- callbacks --------------------------------------------------------------------------------------------------- */

/* Destroys the last group in a callback, from within a call that does not wait. */
static void destroy_all(tutti_work *work, void *argument)
{
    tutti_work_free(work);
    *(int *)argument = tutti_destroy_process_group(NULL);
}

static int rank_of_a_last_callback(int rank, int size, void *argument)
{
    static float x;
    tutti_work *work = NULL;
    int destroyed = -1;
    (void)argument;
    EXPECT(proc_init(20000) == TUTTI_OK);
    if (rank == 0) {
        EXPECT(tutti_irecv(tutti_view(&x, 1), 1, NULL, &work) == TUTTI_OK);
        EXPECT(tutti_work_then(work, destroy_all, &destroyed) == TUTTI_OK);
        EXPECT(tutti_abort(NULL, "enough") == TUTTI_OK);
        for (int i = 0; i < 10000 && tutti_is_initialized(); i++) procs_sleep_ms(1); /* another thread may call back */
    }
    proc_barrier(size, 1);
    if (rank == 0) EXPECT(destroyed == TUTTI_OK);
    if (rank == 1) EXPECT(tutti_destroy_process_group(NULL) == TUTTI_OK);
    return 0;
}

static void test_a_callback_destroys_all(void **state)
{
    (void)state;
    procs_run_ranks(2, rank_of_a_last_callback, NULL);
}

struct answer {
    float x;
    tutti_work *work;
    int status;
};

static void answer(tutti_work *work, void *argument)
{
    struct answer *mine = argument;
    (void)work;
    mine->status = tutti_send(tutti_view(&mine->x, 1), 1, tutti_with(.tag = 2, .async_op = &mine->work));
}

/* A callback begins an operation while its thread is in coalesce_end.  The operation does not belong to the coalesced
 * run. */
static int rank_of_an_answer(int rank, int size, void *argument)
{
    struct answer mine = {.x = 3, .status = 1};
    tutti_work *work = NULL;
    float x = 1, y = 0;
    (void)argument;
    EXPECT(proc_init(20000) == TUTTI_OK);
    EXPECT(tutti_barrier(NULL) == TUTTI_OK);
    if (rank == 0) {
        EXPECT(tutti_irecv(tutti_view(&y, 1), 1, tutti_with(.tag = 1), &work) == TUTTI_OK);
        EXPECT(tutti_work_then(work, answer, &mine) == TUTTI_OK);
        EXPECT(tutti_coalesce_begin(NULL) == TUTTI_OK);
        EXPECT(tutti_all_reduce(tutti_view(&x, 1), TUTTI_SUM, NULL) == TUTTI_OK);
        EXPECT(tutti_coalesce_end(NULL, NULL) == TUTTI_OK && x == 2);
        EXPECT(tutti_wait(&work, 10000) == TUTTI_OK);
        proc_barrier(size, 1);
        EXPECT(mine.status == TUTTI_OK && tutti_wait(&mine.work, 10000) == TUTTI_OK);
    } else {
        EXPECT(tutti_send(tutti_view(&x, 1), 0, tutti_with(.tag = 1)) == TUTTI_OK);
        EXPECT(tutti_recv(tutti_view(&y, 1), 0, tutti_with(.tag = 2)) == TUTTI_OK && y == 3);
        EXPECT(tutti_coalesce_begin(NULL) == TUTTI_OK);
        EXPECT(tutti_all_reduce(tutti_view(&x, 1), TUTTI_SUM, NULL) == TUTTI_OK);
        EXPECT(tutti_coalesce_end(NULL, NULL) == TUTTI_OK && x == 2);
        proc_barrier(size, 1);
    }
    EXPECT(tutti_destroy_process_group(NULL) == TUTTI_OK);
    return 0;
}

static void test_a_callback_in_coalesce_end(void **state)
{
    (void)state;
    procs_run_ranks(2, rank_of_an_answer, NULL);
}

/* One operation times out and another one has failed. wait_all returns the failure. */
static int rank_of_two_ends(int rank, int size, void *argument)
{
    double wrong[2] = {0};
    float x = 0;
    tutti_work *works[2] = {NULL};
    (void)argument;
    EXPECT(proc_init(20000) == TUTTI_OK);
    if (rank == 0) {
        EXPECT(tutti_irecv(tutti_view(&x, 1), 1, tutti_with(.tag = 1), &works[0]) == TUTTI_OK);
        EXPECT(tutti_irecv(tutti_view(wrong, 2), 1, tutti_with(.tag = 2), &works[1]) == TUTTI_OK);
        proc_barrier(size, 1);
        EXPECT(tutti_work_wait(works[1], 10000) == TUTTI_ERR_MISMATCH);
        EXPECT_ERROR(tutti_wait_all(works, 2, 20), TUTTI_ERR_MISMATCH, "tag 2");
        EXPECT(works[0] != NULL && works[1] == NULL);
        EXPECT_ERROR(tutti_wait_all(works, 2, 20), TUTTI_ERR_TIMEOUT, "tag 1", "still under way");
        tutti_work_free(works[0]);
    } else {
        EXPECT(tutti_send(tutti_view(&x, 1), 0, tutti_with(.tag = 2)) == TUTTI_OK);
        proc_barrier(size, 1);
    }
    proc_barrier(size, 2);
    EXPECT(tutti_destroy_process_group(NULL) == TUTTI_OK);
    return 0;
}

static void test_an_error_among_the_late(void **state)
{
    (void)state;
    procs_run_ranks(2, rank_of_two_ends, NULL);
}

/* ---- signals ----------------------------------------------------------------------------------------------------- */

static void on_alarm(int number)
{
    (void)number;
}

/* A signal interrupts a single-copy read.  The sender does not count as lost. */
static int rank_of_signals(int rank, int size, void *argument)
{
    enum { TIMES = 400 };
    static float in[LARGE / 4], out[LARGE / 4];
    struct itimerval timer = {{0, 300}, {0, 300}};
    (void)argument;
    sigaction(SIGALRM, &(struct sigaction){.sa_handler = on_alarm, .sa_flags = SA_RESTART}, NULL);
    EXPECT(proc_init(20000) == TUTTI_OK);
    setitimer(ITIMER_REAL, &timer, NULL);
    for (int i = 0; i < TIMES; i++) {
        tutti_work *sent = NULL, *received = NULL;
        EXPECT(tutti_irecv(tutti_view(in, LARGE / 4), (rank + size - 1) % size, NULL, &received) == TUTTI_OK);
        EXPECT(tutti_isend(tutti_view(out, LARGE / 4), (rank + 1) % size, NULL, &sent) == TUTTI_OK);
        EXPECT(tutti_wait(&received, TUTTI_DEFAULT_TIMEOUT) == TUTTI_OK);
        EXPECT(tutti_wait(&sent, TUTTI_DEFAULT_TIMEOUT) == TUTTI_OK);
    }
    setitimer(ITIMER_REAL, &(struct itimerval){0}, NULL);
    EXPECT(tutti_destroy_process_group(NULL) == TUTTI_OK);
    return 0;
}

static void test_signals_during_large_messages(void **state)
{
    (void)state;
    procs_run_ranks(2, rank_of_signals, NULL);
}

/* ---- no network -------------------------------------------------------------------------------------------------- */

/* Two ranks share memory.  The third one can only be reached over a network, which cannot be opened. */
static int rank_without_network(int rank, int size, void *argument)
{
    (void)size, (void)argument;
    setenv("TUTTI_IFACE", "nonsense", 1);
    if (rank == 2) setenv("TUTTI_SHM", "0", 1);
    EXPECT_ERROR(proc_init(5000), TUTTI_ERR_BACKEND, "TUTTI_IFACE=nonsense");
    return 0;
}

static void test_no_network_for_some(void **state)
{
    (void)state;
    procs_run_ranks(3, rank_without_network, NULL);
}

/* One rank finds another file in the place of the plug-in.  It reports that, and the others do not begin to attach. */
static int rank_without_plugin(int rank, int size, void *argument)
{
    (void)size;
    if (rank == *(int *)argument) {
        char folder[] = "/tmp/tutti-test-XXXXXX", path[64];
        EXPECT(mkdtemp(folder) != NULL);
        snprintf(path, sizeof path, "%s/libtutti_tcp.so", folder);
        FILE *file = fopen(path, "we");
        EXPECT(file != NULL && fputs("no library", file) >= 0 && fclose(file) == 0);
        setenv("TUTTI_BACKEND_PATH", folder, 1);
        int status = proc_init(20000);
        unlink(path);
        rmdir(folder);
        EXPECT_ERROR(status, TUTTI_ERR_BACKEND, folder, "cannot be loaded");
    } else {
        EXPECT_ERROR(proc_init(20000), TUTTI_ERR_BACKEND, "backend tcp did not start on all ranks: rank ",
                     "cannot be loaded");
    }
    return 0;
}

static void test_one_has_no_plugin(void **state)
{
    (void)state;
    for (int which = 0; which < 3; which++) procs_run_ranks(3, rank_without_plugin, &which);
}

/* More ranks than a machine word has bits share memory, without a network. */
static int rank_of_many(int rank, int size, void *argument)
{
    enum { EACH = 100 };
    static int32_t in[PROCS_MOST * EACH], out[PROCS_MOST * EACH];
    int next = (rank + 1) % size, before = (rank + size - 1) % size;
    tutti_work *work = NULL;
    (void)argument;
    setenv("TUTTI_IFACE", "nonsense", 1);
    EXPECT(proc_init(50000) == TUTTI_OK);
    for (int i = 0; i < size * EACH; i++) in[i] = rank + i;
    EXPECT(tutti_all_to_all_single(tutti_view(out, size * EACH), tutti_view(in, size * EACH), NULL, NULL, NULL) ==
           TUTTI_OK);
    for (int i = 0; i < size * EACH; i++) EXPECT(out[i] == i / EACH + rank * EACH + i % EACH);
    EXPECT(tutti_all_reduce_into(tutti_view(out, size * EACH), tutti_view(in, size * EACH), TUTTI_SUM, NULL) ==
           TUTTI_OK);
    for (int i = 0; i < size * EACH; i++) EXPECT(out[i] == size * (size - 1) / 2 + size * i);
    EXPECT(tutti_isend(tutti_view(in, EACH), next, NULL, &work) == TUTTI_OK);
    EXPECT(tutti_recv(tutti_view(out, EACH), before, NULL) == TUTTI_OK && out[1] == before + 1);
    EXPECT(tutti_wait(&work, 50000) == TUTTI_OK);
    EXPECT(tutti_barrier(NULL) == TUTTI_OK);
    EXPECT(tutti_destroy_process_group(NULL) == TUTTI_OK);
    return 0;
}

static void test_many_share_memory(void **state)
{
    (void)state;
    procs_run_ranks(80, rank_of_many, NULL);
}

/* ---- the store's host stands still ------------------------------------------------------------------------------- */

static int rank_whose_store_is_stopped(int rank, int size, void *argument)
{
    unsetenv("TUTTI_STORE_HOSTED"); /* rank 0 hosts the store */
    proc_set_int("MASTER_PORT", *(int *)argument);
    EXPECT(proc_init(20000) == TUTTI_OK);
    proc_barrier(size, 1);
    if (rank == 0) {
        proc_set_step(2);
        raise(SIGSTOP); /* the parent continues it */
    } else {
        proc_wait_for_go(2);
        int64_t begin = monotonic_ns();
        EXPECT(tutti_destroy_process_group(NULL) == TUTTI_OK);
        EXPECT_WITHIN(begin, 0, 2 + SOON_S);
        proc_set_step(3);
        return 0;
    }
    EXPECT(tutti_destroy_process_group(NULL) == TUTTI_OK);
    return 0;
}

static void go_on(struct procs *procs, void *argument)
{
    (void)argument;
    await_step(procs, 0, 2);
    procs_wait_until_stopped(procs, 0);
    procs_release(procs, 2);
    await_step(procs, 1, 3);
    procs_signal(procs, 0, SIGCONT);
}

static void test_the_store_stands_still(void **state)
{
    (void)state;
    int port = loopback_free_port();
    procs_run_with(2, rank_whose_store_is_stopped, go_on, &port);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_group_with_a_backend_of_its_own),
        cmocka_unit_test(test_many_groups_with_backends_of_their_own),
        cmocka_unit_test(test_a_callback_destroys_all),
        cmocka_unit_test(test_a_callback_in_coalesce_end),
        cmocka_unit_test(test_an_error_among_the_late),
        cmocka_unit_test(test_signals_during_large_messages),
        cmocka_unit_test(test_no_network_for_some),
        cmocka_unit_test(test_one_has_no_plugin),
        cmocka_unit_test(test_many_share_memory),
        cmocka_unit_test(test_the_store_stands_still),
    };
    cmocka_set_test_filter(getenv("FAULTS_ONLY"));
    return cmocka_run_group_tests(tests, NULL, NULL);
}
