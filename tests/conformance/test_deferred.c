/* Small asynchronous receives, whose backend gets them later than the call: see core/dispatch/message.c. */
#include "procs.h"

#include <fcntl.h>
#include <pthread.h>

enum { LIMIT_MS = 30000, MOST = 64 };

static tutti_tensor of(int32_t *value)
{
    return tutti_view(value, 1);
}

/* Sends and receives one message, so that the next ones are like the last one. */
static int exchange_once(int rank)
{
    int32_t x = 1;
    if (rank == 1) EXPECT(tutti_send(of(&x), 0, NULL) == TUTTI_OK);
    if (rank == 0) EXPECT(tutti_recv(of(&x), 1, NULL) == TUTTI_OK);
    return 0;
}

/* Sends `n` messages that count up, then says that they are on their way. */
static int send_all(int n, int tag, int step)
{
    for (int32_t i = 0; i < n; i++) EXPECT(tutti_send(of(&i), 0, tutti_with(.tag = tag)) == TUTTI_OK);
    proc_set_step(step);
    return 0;
}

/* ---- order --------------------------------------------------------------------------------------------------- */

/* How the receive after the deferred ones is called. */
enum after { BLOCKING, ANY_TAG, ANY_SOURCE, LARGER, BATCH, AFTER };

/* Receives message 2 after two deferred receives.  Returns its value, or -1. */
static int32_t receive_after(enum after after)
{
    int32_t x[2] = {-1, -1};
    tutti_work *work = NULL;
    tutti_p2p_op one = {.kind = TUTTI_RECV, .tensor = of(x), .peer = 1, .tag = 4};
    int64_t bytes = 0;
    int status = TUTTI_OK;
    if (after == BLOCKING) status = tutti_recv(of(x), 1, tutti_with(.tag = 4));
    if (after == ANY_TAG) status = tutti_recv(of(x), 1, tutti_with(.tag = TUTTI_ANY_TAG));
    if (after == ANY_SOURCE) status = tutti_recv(of(x), TUTTI_ANY_SOURCE, tutti_with(.tag = 4));
    if (after == LARGER) status = tutti_recv(tutti_view(x, 2), 1, tutti_with(.tag = 4, .received = &bytes));
    if (after == BATCH) status = tutti_batch_isend_irecv(&one, 1, NULL, &work);
    if (work != NULL) status = tutti_wait(&work, TUTTI_DEFAULT_TIMEOUT);
    return status == TUTTI_OK ? x[0] : -1;
}

/* A later receive of another kind takes none of the deferred ones' messages, whether these have come or not. */
static int rank_of_order(int rank, int size, void *argument)
{
    (void)argument;
    (void)size;
    EXPECT(proc_init(LIMIT_MS) == TUTTI_OK);
    for (int i = 0; i < 2 * AFTER; i++) {
        bool comes_first = i % 2 == 0;
        int32_t x[2] = {-1, -1};
        tutti_work *works[2];
        int step = 3 * i + 1;
        EXPECT(exchange_once(rank) == 0);
        if (rank == 0 && comes_first) proc_wait_for_step(1, step);
        for (int k = 0; k < 2 && rank == 0; k++)
            EXPECT(tutti_irecv(of(&x[k]), 1, tutti_with(.tag = 4), &works[k]) == TUTTI_OK);
        proc_set_step(step);
        if (rank == 1 && !comes_first) proc_wait_for_step(0, step);
        if (rank == 1) EXPECT(send_all(3, 4, step) == 0);
        if (rank == 0) EXPECT(receive_after(i / 2) == 2);
        if (rank == 0) EXPECT(tutti_wait_all(works, 2, TUTTI_DEFAULT_TIMEOUT) == TUTTI_OK);
        if (rank == 0) EXPECT(x[0] == 0 && x[1] == 1);
        proc_barrier(2, step + 2);
    }
    EXPECT(tutti_destroy_process_group(NULL) == TUTTI_OK);
    return 0;
}

static void test_order(void **state)
{
    (void)state;
    procs_run_ranks(2, rank_of_order, NULL);
}

/* A probe does not see the messages of deferred receives. */
static int rank_of_probes(int rank, int size, void *argument)
{
    int32_t x[2] = {-1, -1}, last = -1;
    tutti_work *works[2];
    tutti_message message;
    bool found = true;
    (void)size;
    (void)argument;
    EXPECT(proc_init(LIMIT_MS) == TUTTI_OK);
    EXPECT(exchange_once(rank) == 0);
    if (rank == 1) {
        EXPECT(send_all(2, 4, 1) == 0);
        proc_wait_for_step(0, 2);
        EXPECT(tutti_send(of(&(int32_t){7}), 0, tutti_with(.tag = 4)) == TUTTI_OK);
    } else {
        proc_wait_for_step(1, 1);
        for (int k = 0; k < 2; k++) EXPECT(tutti_irecv(of(&x[k]), 1, tutti_with(.tag = 4), &works[k]) == TUTTI_OK);
        EXPECT(tutti_iprobe(1, tutti_with(.tag = 4), &found, &message) == TUTTI_OK && !found);
        proc_set_step(2);
        EXPECT(tutti_probe(1, tutti_with(.tag = 4), &message) == TUTTI_OK);
        EXPECT(tutti_recv(of(&last), 1, tutti_with(.tag = 4)) == TUTTI_OK && last == 7);
        EXPECT(tutti_wait_all(works, 2, TUTTI_DEFAULT_TIMEOUT) == TUTTI_OK && x[0] == 0 && x[1] == 1);
    }
    EXPECT(tutti_destroy_process_group(NULL) == TUTTI_OK);
    return 0;
}

static void test_probes(void **state)
{
    (void)state;
    procs_run_ranks(2, rank_of_probes, NULL);
}

/* ---- the Work ------------------------------------------------------------------------------------------------ */

static void count_call(tutti_work *work, void *argument)
{
    (void)work;
    atomic_fetch_add((atomic_int *)argument, 1);
}

/* Asks one Work in each way, before and after its message has come. */
static int ask(int32_t *x, tutti_work *work, int k, bool comes_first)
{
    static atomic_int calls;
    int before = calls;
    EXPECT(tutti_work_op(work) == TUTTI_RECV && tutti_work_sequence(work) == 0);
    if (!comes_first) EXPECT(!tutti_work_is_completed(work) && tutti_work_source(work) == -1);
    if (!comes_first) EXPECT(tutti_work_wait(work, TUTTI_NOW) == TUTTI_ERR_TIMEOUT);
    if (k == 1) EXPECT(tutti_work_then(work, count_call, &calls) == TUTTI_OK);
    if (k == 2) EXPECT(tutti_work_fd(work) >= 0);
    proc_set_step(100 + 2 * k + (comes_first ? 1 : 0));
    if (k == 3) /* no call: the progress thread completes it */
        while (tutti_work_source(work) < 0) proc_wait_1ms();
    while (k == 4 && !tutti_work_is_completed(work)) continue;
    EXPECT(tutti_work_wait(work, TUTTI_DEFAULT_TIMEOUT) == TUTTI_OK && *x == k);
    while (k == 1 && calls == before) proc_wait_1ms();
    EXPECT(tutti_work_source(work) == 1 && tutti_work_tag(work) == 4 && tutti_work_received(work) == sizeof *x);
    EXPECT(tutti_work_status(work) == TUTTI_OK && strcmp(tutti_work_error(work), "") == 0);
    tutti_work_free(work);
    return 0;
}

static int rank_of_works(int rank, int size, void *argument)
{
    enum { WAYS = 5 };
    bool comes_first = *(bool *)argument;
    (void)size;
    EXPECT(proc_init(LIMIT_MS) == TUTTI_OK);
    EXPECT(exchange_once(rank) == 0);
    for (int k = 0; k < WAYS; k++) {
        int32_t x = k;
        tutti_work *work = NULL;
        int source = -1, tag = -1;
        if (rank == 1) {
            if (!comes_first) proc_wait_for_step(0, 100 + 2 * k);
            EXPECT(tutti_send(of(&x), 0, tutti_with(.tag = 4)) == TUTTI_OK);
            proc_set_step(k + 1);
            continue;
        }
        x = -1;
        if (comes_first) proc_wait_for_step(1, k + 1);
        EXPECT(tutti_irecv(of(&x), 1, tutti_with(.tag = 4, .source = &source, .received_tag = &tag), &work) ==
               TUTTI_OK);
        EXPECT(ask(&x, work, k, comes_first) == 0);
        EXPECT(source == 1 && tag == 4);
    }
    EXPECT(tutti_barrier(NULL) == TUTTI_OK);
    EXPECT(tutti_destroy_process_group(NULL) == TUTTI_OK);
    return 0;
}

static void test_works(void **state)
{
    (void)state;
    for (int comes_first = 0; comes_first < 2; comes_first++)
        procs_run_ranks(2, rank_of_works, &(bool){comes_first != 0});
}

/* A Work that is given up still takes its message, and its receive's variables may be freed with it. */
static int rank_of_given_up(int rank, int size, void *argument)
{
    int32_t x[2] = {-1, -1}, last = -1;
    tutti_work *work = NULL;
    (void)size;
    (void)argument;
    EXPECT(proc_init(LIMIT_MS) == TUTTI_OK);
    EXPECT(exchange_once(rank) == 0);
    if (rank == 1) EXPECT(send_all(3, 4, 1) == 0);
    for (int k = 0; k < 2 && rank == 0; k++) {
        EXPECT(tutti_irecv(of(&x[k]), 1, tutti_with(.tag = 4), &work) == TUTTI_OK);
        tutti_work_free(work);
    }
    if (rank == 0) EXPECT(tutti_recv(of(&last), 1, tutti_with(.tag = 4)) == TUTTI_OK);
    if (rank == 0) EXPECT(x[0] == 0 && x[1] == 1 && last == 2);
    EXPECT(tutti_destroy_process_group(NULL) == TUTTI_OK);
    return 0;
}

static void test_given_up(void **state)
{
    (void)state;
    procs_run_ranks(2, rank_of_given_up, NULL);
}

/* The progress thread hands the receive over, because its caller makes no call.  The caller then reads the Work without
 * the lock. */
static int rank_of_quiet(int rank, int size, void *argument)
{
    bool comes_first = *(bool *)argument;
    int32_t x = rank;
    tutti_work *work = NULL;
    (void)size;
    EXPECT(proc_init(LIMIT_MS) == TUTTI_OK);
    EXPECT(exchange_once(rank) == 0);
    if (rank == 1 && !comes_first) proc_wait_for_step(0, 1);
    if (rank == 1) EXPECT(tutti_send(of(&x), 0, tutti_with(.tag = 4)) == TUTTI_OK);
    if (rank == 1) proc_set_step(1);
    if (rank == 0 && comes_first) proc_wait_for_step(1, 1);
    if (rank == 0) {
        EXPECT(tutti_irecv(of(&x), 1, tutti_with(.tag = 4), &work) == TUTTI_OK);
        for (int i = 0; i < 20; i++) proc_wait_1ms();
        proc_set_step(1);
        EXPECT(tutti_wait(&work, TUTTI_DEFAULT_TIMEOUT) == TUTTI_OK && x == 1);
    }
    EXPECT(tutti_destroy_process_group(NULL) == TUTTI_OK);
    return 0;
}

static void test_quiet(void **state)
{
    (void)state;
    for (int comes_first = 0; comes_first < 2; comes_first++)
        procs_run_ranks(2, rank_of_quiet, &(bool){comes_first != 0});
}

/* A forked child may give up the Work of a deferred receive.  It closes no descriptor that the Work once had. */
static int rank_of_fork(int rank, int size, void *argument)
{
    int32_t x = 3;
    tutti_work *work = NULL;
    (void)size;
    (void)argument;
    EXPECT(proc_init(LIMIT_MS) == TUTTI_OK);
    EXPECT(exchange_once(rank) == 0);
    for (int i = 0; i < 2 && rank == 1; i++) EXPECT(tutti_send(of(&x), 0, tutti_with(.tag = 4)) == TUTTI_OK);
    if (rank == 0) {
        EXPECT(tutti_irecv(of(&x), 1, tutti_with(.tag = 4), &work) == TUTTI_OK);
        int fd = tutti_work_fd(work), status = -1;
        EXPECT(fd >= 0 && tutti_wait(&work, TUTTI_DEFAULT_TIMEOUT) == TUTTI_OK);
        EXPECT(dup2(STDERR_FILENO, fd) == fd);
        EXPECT(tutti_irecv(of(&x), 1, tutti_with(.tag = 4), &work) == TUTTI_OK);
        pid_t child = fork();
        if (child == 0) {
            tutti_work_free(work);
            _exit(fcntl(fd, F_GETFD) >= 0 ? 0 : 1);
        }
        EXPECT(waitpid(child, &status, 0) == child && status == 0);
        EXPECT(tutti_wait(&work, TUTTI_DEFAULT_TIMEOUT) == TUTTI_OK && x == 3);
        close(fd);
    }
    EXPECT(tutti_destroy_process_group(NULL) == TUTTI_OK);
    return 0;
}

static void test_fork(void **state)
{
    (void)state;
    procs_run_ranks(2, rank_of_fork, NULL);
}

/* ---- peers and groups ---------------------------------------------------------------------------------------- */

/* Receives from several peers in turn, in two groups, of which one is destroyed before the works are waited for. */
static int rank_of_groups(int rank, int size, void *argument)
{
    int32_t x[MOST];
    tutti_work *works[MOST];
    tutti_group *child = NULL;
    (void)argument;
    EXPECT(proc_init(LIMIT_MS) == TUTTI_OK);
    EXPECT(tutti_new_group((int[]){0, 1, 2}, size, NULL, &child) == TUTTI_OK);
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < MOST; i++) {
            int32_t sent = 1000 * rank + i;
            tutti_group *group = i / 2 % 2 == 0 ? NULL : child;
            int next = (rank + 1 + i % 2) % size, last = (rank + size - 1 - i % 2) % size;
            x[i] = -1;
            EXPECT(tutti_irecv(of(&x[i]), last, tutti_with(.group = group), &works[i]) == TUTTI_OK);
            EXPECT(tutti_send(of(&sent), next, tutti_with(.group = group)) == TUTTI_OK);
        }
        EXPECT(tutti_wait_all(works, MOST, TUTTI_DEFAULT_TIMEOUT) == TUTTI_OK);
        for (int i = 0; i < MOST; i++) EXPECT(x[i] == 1000 * ((rank + size - 1 - i % 2) % size) + i);
    }
    proc_barrier(size, 1);
    EXPECT(tutti_irecv(of(&x[0]), (rank + 1) % size, tutti_with(.group = child), &works[0]) == TUTTI_OK);
    EXPECT(tutti_destroy_process_group(child) == TUTTI_OK);
    EXPECT(tutti_wait(&works[0], TUTTI_DEFAULT_TIMEOUT) == TUTTI_ERR_ABORTED);
    EXPECT(tutti_destroy_process_group(NULL) == TUTTI_OK);
    return 0;
}

static void test_groups(void **state)
{
    (void)state;
    procs_run_ranks(3, rank_of_groups, NULL);
}

/* The deferred receive of a rank that dies fails, and so do those after it. */
static int rank_of_death(int rank, int size, void *argument)
{
    int32_t x[2];
    tutti_work *works[2];
    bool waits = *(bool *)argument;
    (void)size;
    EXPECT(proc_init(LIMIT_MS) == TUTTI_OK);
    EXPECT(exchange_once(rank) == 0);
    proc_barrier(2, 1); /* a rank's death may fail a receive of what it has sent */
    if (rank == 1) {
        if (waits) proc_wait_for_step(0, 2);
        raise(SIGKILL);
    }
    for (int k = 0; k < 2; k++) {
        int status = tutti_irecv(of(&x[k]), 1, tutti_with(.tag = 4), &works[k]);
        if (status == TUTTI_OK) continue;
        EXPECT_ERROR(status, status == TUTTI_ERR_ABORTED ? TUTTI_ERR_ABORTED : TUTTI_ERR_PEER_LOST, "rank 1");
        works[k] = NULL;
    }
    proc_set_step(2);
    for (int k = 0; k < 2; k++)
        if (works[k] != NULL) EXPECT_ERROR(tutti_wait(&works[k], TUTTI_DEFAULT_TIMEOUT), TUTTI_ERR_PEER_LOST, "rank 1");
    EXPECT(tutti_destroy_process_group(NULL) == TUTTI_OK);
    return 0;
}

static void test_death(void **state)
{
    (void)state;
    for (int waits = 0; waits < 2; waits++) {
        struct procs procs = {.size = 2, .fn = rank_of_death, .argument = &(bool){waits != 0}, .may_fail = true};
        procs_run(&procs);
        assert_int_equal(procs.code[0], 0);
        assert_int_equal(procs.code[1], -SIGKILL);
    }
}

static int receive_two_deferred(void)
{
    int32_t x[2] = {-1, -1};
    tutti_work *works[2];
    for (int k = 0; k < 2; k++) EXPECT(tutti_irecv(of(&x[k]), 1, tutti_with(.tag = 4), &works[k]) == TUTTI_OK);
    EXPECT(tutti_wait_all(works, 2, TUTTI_DEFAULT_TIMEOUT) == TUTTI_OK && x[0] == 0 && x[1] == 1);
    return 0;
}

/* A message of another size fails the deferred receive alone, whether it comes first or not. */
static int rank_of_mismatch(int rank, int size, void *argument)
{
    (void)size;
    (void)argument;
    EXPECT(proc_init(LIMIT_MS) == TUTTI_OK);
    for (int i = 0; i < 2; i++) {
        int32_t x[2] = {1, 2};
        tutti_work *work = NULL;
        int step = 3 * i + 1;
        EXPECT(exchange_once(rank) == 0);
        if (rank == 0 && i == 0) proc_wait_for_step(1, step);
        if (rank == 0) EXPECT(tutti_irecv(of(x), 1, tutti_with(.tag = 4), &work) == TUTTI_OK);
        if (rank == 0 && i == 1) EXPECT(!tutti_work_is_completed(work));
        if (rank == 0) proc_set_step(step);
        if (rank == 1 && i == 1) proc_wait_for_step(0, step);
        if (rank == 1) EXPECT(tutti_isend(tutti_view(x, 2), 0, tutti_with(.tag = 4), &work) == TUTTI_OK);
        proc_set_step(step);
        if (rank == 0)
            EXPECT_ERROR(tutti_wait(&work, TUTTI_DEFAULT_TIMEOUT), TUTTI_ERR_MISMATCH, "rank 1", "2 elements");
        if (rank == 1) tutti_wait(&work, TUTTI_DEFAULT_TIMEOUT); /* its data may have left before it was refused */
        if (rank == 1) EXPECT(send_all(2, 4, step + 1) == 0);
        if (rank == 0) EXPECT(receive_two_deferred() == 0);
        proc_barrier(2, step + 2);
    }
    EXPECT(tutti_destroy_process_group(NULL) == TUTTI_OK);
    return 0;
}

static void test_mismatch(void **state)
{
    (void)state;
    procs_run_ranks(2, rank_of_mismatch, NULL);
}

/* ---- threads ------------------------------------------------------------------------------------------------- */

struct caller {
    pthread_t thread;
    int tag, peer, line;
};

/* Exchanges messages with the peer's thread of the same tag. */
static void *exchange_many(void *argument)
{
    enum { ROUNDS = 100, WINDOW = 16 };
    struct caller *self = argument;
    for (int round = 0; round < ROUNDS && self->line == 0; round++) {
        int32_t in[WINDOW], out[WINDOW];
        tutti_work *works[2 * WINDOW];
        int status = TUTTI_OK;
        for (int i = 0; i < WINDOW; i++) {
            out[i] = self->tag * 100000 + round * WINDOW + i;
            if (status == TUTTI_OK)
                status = tutti_irecv(of(&in[i]), self->peer, tutti_with(.tag = self->tag), &works[2 * i]);
            if (status == TUTTI_OK)
                status = tutti_isend(of(&out[i]), self->peer, tutti_with(.tag = self->tag), &works[2 * i + 1]);
        }
        if (status == TUTTI_OK) status = tutti_wait_all(works, 2 * WINDOW, TUTTI_DEFAULT_TIMEOUT);
        if (status != TUTTI_OK || memcmp(in, out, sizeof in) != 0) self->line = __LINE__;
    }
    return NULL;
}

static int rank_of_threads(int rank, int size, void *argument)
{
    enum { THREADS = 3 };
    struct caller callers[THREADS];
    (void)size;
    (void)argument;
    EXPECT(proc_init(LIMIT_MS) == TUTTI_OK);
    for (int i = 0; i < THREADS; i++) {
        callers[i] = (struct caller){.tag = i, .peer = 1 - rank};
        EXPECT(pthread_create(&callers[i].thread, NULL, exchange_many, &callers[i]) == 0);
    }
    for (int i = 0; i < THREADS; i++) pthread_join(callers[i].thread, NULL);
    for (int i = 0; i < THREADS; i++) EXPECT(callers[i].line == 0);
    EXPECT(tutti_destroy_process_group(NULL) == TUTTI_OK);
    return 0;
}

static void test_threads(void **state)
{
    (void)state;
    procs_run_ranks(2, rank_of_threads, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_order),    cmocka_unit_test(test_probes),  cmocka_unit_test(test_works),
        cmocka_unit_test(test_given_up), cmocka_unit_test(test_groups),  cmocka_unit_test(test_death),
        cmocka_unit_test(test_mismatch), cmocka_unit_test(test_threads), cmocka_unit_test(test_quiet),
        cmocka_unit_test(test_fork),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
