/* One rank never calls.  For every collective, number of ranks and algorithm, the others' timeouts name that rank and
 * its last call, although most of them do not wait for it directly. */
#include "procs.h"

enum {
    SOON_S = PROCS_SOON_S,
    TIMEOUT_MS = 1000,
    TIMEOUT_MS_MOST = 16000,
    MOST = 8,
    SMALL = 3,
    LARGE = 40000,
    PARTS = LARGE * MOST
};

static const char *const shm[] = {"1", "0"};

struct round {
    int timeout_ms;
    int missing; /* the rank that does not call */
    int come;    /* the ranks that call: a bit each */
    const char *shm;
};

/* Repeats a round that fails with a longer timeout: on a slow machine, what ranks tell each other comes late. */
static void run_until_told(int size, proc_fn fn, struct round round)
{
    for (round.timeout_ms = TIMEOUT_MS; round.timeout_ms <= TIMEOUT_MS_MOST; round.timeout_ms *= 4) {
        struct procs procs = {.size = size, .fn = fn, .argument = &round};
        bool told = true;
        procs.may_fail = round.timeout_ms < TIMEOUT_MS_MOST;
        procs_run(&procs);
        for (int i = 0; i < size; i++) told &= procs.code[i] == 0;
        if (told) return;
        fprintf(stderr, "%d ranks, timeouts of %d ms: failed\n", size, round.timeout_ms);
    }
}

struct call {
    tutti_group *group;
    tutti_opts opts;
    tutti_work *work, *behind;
    int root;
    int64_t n; /* elements per rank */
    int32_t *in, *out;
    tutti_tensor in_list[MOST], out_list[MOST];
    bool is_root;
    int size;
};

static int start_broadcast(struct call *c)
{
    return tutti_broadcast(tutti_view(c->in, c->n), c->root, &c->opts);
}

static int start_all_reduce(struct call *c)
{
    return tutti_all_reduce(tutti_view(c->in, c->n), TUTTI_SUM, &c->opts);
}

static int start_reduce(struct call *c)
{
    return tutti_reduce(tutti_view(c->in, c->n), c->root, TUTTI_SUM, &c->opts);
}

static int start_all_gather(struct call *c)
{
    return tutti_all_gather(c->out_list, c->size, tutti_view(c->in, c->n), &c->opts);
}

static int start_all_gather_into(struct call *c)
{
    return tutti_all_gather_into_tensor(tutti_view(c->out, c->n * c->size), tutti_view(c->in, c->n), &c->opts);
}

static int start_gather(struct call *c)
{
    return tutti_gather(tutti_view(c->in, c->n), c->is_root ? c->out_list : NULL, c->is_root ? c->size : 0, c->root,
                        &c->opts);
}

static int start_gather_into(struct call *c)
{
    return tutti_gather_into_tensor(tutti_view(c->out, c->n * c->size), tutti_view(c->in, c->n), c->root, &c->opts);
}

static int start_scatter(struct call *c)
{
    return tutti_scatter(tutti_view(c->out, c->n), c->is_root ? c->in_list : NULL, c->is_root ? c->size : 0, c->root,
                         &c->opts);
}

static int start_scatter_tensor(struct call *c)
{
    return tutti_scatter_tensor(tutti_view(c->out, c->n), tutti_view(c->in, c->n * c->size), c->root, &c->opts);
}

static int start_reduce_scatter(struct call *c)
{
    return tutti_reduce_scatter(tutti_view(c->out, c->n), c->in_list, c->size, TUTTI_SUM, &c->opts);
}

static int start_reduce_scatter_tensor(struct call *c)
{
    return tutti_reduce_scatter_tensor(tutti_view(c->out, c->n), tutti_view(c->in, c->n * c->size), TUTTI_SUM,
                                       &c->opts);
}

static int start_all_to_all(struct call *c)
{
    return tutti_all_to_all(c->out_list, c->in_list, c->size, &c->opts);
}

static int start_all_to_all_single(struct call *c)
{
    return tutti_all_to_all_single(tutti_view(c->out, c->n * c->size), tutti_view(c->in, c->n * c->size), NULL, NULL,
                                   &c->opts);
}

static int start_barrier(struct call *c)
{
    return tutti_barrier(&c->opts);
}

static const struct {
    const char *name;
    int (*start)(struct call *call);
} calls[] = {
    {"broadcast", start_broadcast},
    {"all_reduce", start_all_reduce},
    {"reduce", start_reduce},
    {"all_gather", start_all_gather},
    {"all_gather_into_tensor", start_all_gather_into},
    {"gather", start_gather},
    {"gather_into_tensor", start_gather_into},
    {"scatter", start_scatter},
    {"scatter_tensor", start_scatter_tensor},
    {"reduce_scatter", start_reduce_scatter},
    {"reduce_scatter_tensor", start_reduce_scatter_tensor},
    {"all_to_all", start_all_to_all},
    {"all_to_all_single", start_all_to_all_single},
    {"barrier", start_barrier},
};

enum { CALLS = sizeof calls / sizeof *calls, VARIANTS = 4, GROUPS = CALLS * VARIANTS };

/* Prepares a small and a large call, with the straggler as the root or another rank. */
static void prepare(struct call *c, int variant, int rank, int size, int missing)
{
    c->n = variant % 2 == 0 ? SMALL : LARGE;
    c->root = variant < 2 ? (missing + 1) % size : missing;
    c->is_root = c->root == rank;
    c->size = size;
    c->in = calloc(PARTS, sizeof *c->in);
    c->out = calloc(PARTS, sizeof *c->out);
    for (int i = 0; i < size; i++) {
        c->in_list[i] = tutti_view(c->in + i * c->n, c->n);
        c->out_list[i] = tutti_view(c->out + i * c->n, c->n);
    }
}

static int start(struct call *c, int (*start_it)(struct call *call))
{
    c->opts = (tutti_opts){.group = c->group, .async_op = &c->work};
    EXPECT(start_it(c) == TUTTI_OK);
    EXPECT(tutti_barrier(tutti_with(.group = c->group, .async_op = &c->behind)) == TUTTI_OK);
    return 0;
}

/* Expects an error that names the straggler.  The barrier blocks a rank that the operation itself does not block. */
static int expect_named(struct call *c, const char *name, const char *guilty, int64_t begin, int timeout_ms)
{
    int status = tutti_wait(&c->work, TUTTI_DEFAULT_TIMEOUT);
    if (status == TUTTI_OK) status = tutti_wait(&c->behind, TUTTI_DEFAULT_TIMEOUT);
    tutti_work_free(c->behind);
    if (strstr(tutti_last_error(), guilty) == NULL)
        fprintf(stderr, "%s of %lld elements a rank, root %d, %d ranks:\n", name, (long long)c->n, c->root, c->size);
    EXPECT_ERROR(status, TUTTI_ERR_TIMEOUT, guilty, "at #1 broadcast(int32, ", " waited ", "of group");
    EXPECT_WITHIN(begin, timeout_ms / 2e3, timeout_ms / 1e3 + SOON_S); /* another rank may have begun earlier */
    return 0;
}

static int rank_of_a_straggler(int rank, int size, void *argument)
{
    const struct round *round = argument;
    int missing = round->missing, ranks[MOST], x = 0;
    struct call *call = calloc(GROUPS, sizeof *call);
    char guilty[64];
    EXPECT(proc_init(20000) == TUTTI_OK);
    for (int i = 0; i < size; i++) ranks[i] = i;
    for (int i = 0; i < GROUPS; i++) {
        tutti_group_opts opts = {.timeout_ms = round->timeout_ms, .name = calls[i % CALLS].name};
        EXPECT(tutti_new_group(ranks, size, &opts, &call[i].group) == TUTTI_OK);
        prepare(&call[i], i / CALLS, rank, size, missing);
        tutti_opts patient = {.group = call[i].group, .timeout_ms = 20000};
        EXPECT(tutti_broadcast(tutti_view(&x, 1), 0, &patient) == TUTTI_OK);
    }
    EXPECT(tutti_barrier(NULL) == TUTTI_OK);
    snprintf(guilty, sizeof guilty, " for rank %d (", missing);
    int64_t begin = monotonic_ns();
    for (int i = 0; i < GROUPS && rank != missing; i++) EXPECT(start(&call[i], calls[i % CALLS].start) == 0);
    for (int i = 0; i < GROUPS && rank != missing; i++)
        EXPECT(expect_named(&call[i], calls[i % CALLS].name, guilty, begin, round->timeout_ms) == 0);
    proc_barrier(size, 1);
    EXPECT(tutti_destroy_process_group(NULL) == TUTTI_OK);
    return 0;
}

static void test_the_last_rank_straggles(void **state)
{
    (void)state;
    /* its name passes along a chain of ranks within the timeout, for all groups at once */
    for (int size = 2; size <= MOST; size++)
        run_until_told(size, rank_of_a_straggler, (struct round){.missing = size - 1});
}

static void test_another_straggler(void **state)
{
    (void)state;
    for (int size = 5; size <= MOST; size += 3) {
        run_until_told(size, rank_of_a_straggler, (struct round){.missing = 0});
        run_until_told(size, rank_of_a_straggler, (struct round){.missing = size / 2});
    }
}

/* A monitored barrier names all ranks that did not call, over a network and in shared memory. */
static int rank_of_monitored(int rank, int size, void *argument)
{
    const struct round *round = argument;
    int come = round->come;
    char last[32];
    setenv("TUTTI_SHM", round->shm, 1);
    EXPECT(proc_init(20000) == TUTTI_OK);
    EXPECT(tutti_monitored_barrier(NULL) == TUTTI_OK);
    if (come >> rank & 1) {
        int status = tutti_monitored_barrier(tutti_with(.timeout_ms = round->timeout_ms));
        for (int i = 0; i < size; i++) {
            char name[32];
            snprintf(name, sizeof name, "rank %d (is at #1", i);
            if (i < 8 && !(come >> i & 1)) EXPECT_ERROR(status, TUTTI_ERR_TIMEOUT, "monitored_barrier #2", name);
        }
        snprintf(last, sizeof last, "-%d", size - 1); /* many stragglers: "and ranks 9-15" */
        if (size > 8) EXPECT_ERROR(status, TUTTI_ERR_TIMEOUT, " and ranks ", last);
    }
    proc_barrier(size, 1);
    EXPECT(tutti_destroy_process_group(NULL) == TUTTI_OK);
    return 0;
}

static void test_all_stragglers(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        run_until_told(6, rank_of_monitored, (struct round){.come = 0x01, .shm = shm[i]});
        run_until_told(6, rank_of_monitored, (struct round){.come = 0x20, .shm = shm[i]});
        run_until_told(6, rank_of_monitored, (struct round){.come = 0x15, .shm = shm[i]});
        run_until_told(16, rank_of_monitored, (struct round){.come = 0x01, .shm = shm[i]});
    }
}

/* A rank that waits for a message gets an error that says what its peer does instead. */
static int rank_of_messages(int rank, int size, void *argument)
{
    const int ms = ((struct round *)argument)->timeout_ms;
    int x = 0;
    EXPECT(proc_init(20000) == TUTTI_OK);
    EXPECT(tutti_barrier(NULL) == TUTTI_OK);
    if (rank == 0) {
        EXPECT_ERROR(tutti_recv(tutti_view(&x, 1), 1, tutti_with(.tag = 1, .timeout_ms = ms)), TUTTI_ERR_TIMEOUT,
                     "rank 1 (is in recv from rank 0, tag 2; its latest collective is #1 barrier)");
        EXPECT_ERROR(tutti_recv(tutti_view(&x, 1), 2, tutti_with(.tag = 1, .timeout_ms = ms)), TUTTI_ERR_TIMEOUT,
                     "rank 2 (is in no call; its latest was #1 barrier)");
        EXPECT(tutti_send(tutti_view(&x, 1), 1, tutti_with(.tag = 2)) == TUTTI_OK);
    } else if (rank == 1) {
        EXPECT(tutti_recv(tutti_view(&x, 1), 0, tutti_with(.tag = 2)) == TUTTI_OK);
    }
    proc_barrier(size, 1);
    EXPECT(tutti_destroy_process_group(NULL) == TUTTI_OK);
    return 0;
}

static void test_messages_are_named(void **state)
{
    (void)state;
    run_until_told(3, rank_of_messages, (struct round){0});
}

/* Rank 1 has sent under another tag than rank 0 waits for.  The message stays there for its own receive. */
static int rank_of_another_tag(int rank, int size, void *argument)
{
    const struct round *round = argument;
    const int ms = round->timeout_ms / 2;
    int32_t x[16] = {0};
    setenv("TUTTI_SHM", round->shm, 1);
    EXPECT(proc_init(20000) == TUTTI_OK);
    if (rank == 1) {
        for (int i = 0; i < 16; i++) x[i] = i;
        EXPECT(tutti_send(tutti_view(x, 16), 0, tutti_with(.tag = 7)) == TUTTI_OK);
    }
    proc_barrier(size, 1);
    if (rank == 0) {
        EXPECT_ERROR(tutti_recv(tutti_view(x, 16), 1, tutti_with(.tag = 5, .timeout_ms = ms)), TUTTI_ERR_TIMEOUT,
                     "; rank 1 has sent 64 bytes under tag 7");
        EXPECT_ERROR(tutti_recv(tutti_view(x, 16), TUTTI_ANY_SOURCE, tutti_with(.tag = 5, .timeout_ms = ms)),
                     TUTTI_ERR_TIMEOUT, "; rank 1 has sent 64 bytes under tag 7");
        EXPECT(tutti_recv(tutti_view(x, 16), 1, tutti_with(.tag = 7)) == TUTTI_OK && x[15] == 15);
        EXPECT_ERROR(tutti_recv(tutti_view(x, 16), 1, tutti_with(.tag = 5, .timeout_ms = ms)), TUTTI_ERR_TIMEOUT, "");
        EXPECT(strstr(tutti_last_error(), "under tag") == NULL);
    }
    proc_barrier(size, 2);
    EXPECT(tutti_destroy_process_group(NULL) == TUTTI_OK);
    return 0;
}

static void test_another_tag_is_named(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) run_until_told(2, rank_of_another_tag, (struct round){.shm = shm[i]});
}

/* To the others, a rank whose calls are all refused looks like one that does not call. */
static int rank_of_refused(int rank, int size, void *argument)
{
    const int ms = ((struct round *)argument)->timeout_ms;
    int x = 0;
    EXPECT(proc_init(20000) == TUTTI_OK);
    EXPECT(tutti_all_reduce(tutti_view(&x, 1), TUTTI_SUM, NULL) == TUTTI_OK);
    if (rank == 0) {
        int status = tutti_all_reduce(tutti_view(&x, 1), TUTTI_SUM, tutti_with(.timeout_ms = ms));
        proc_set_step(1);
        EXPECT_ERROR(status, TUTTI_ERR_TIMEOUT, "rank 1 (is at #1 all_reduce");
    }
    while (rank == 1 && atomic_load(&proc_shared->step[0]) < 1) {
        EXPECT_ERROR(tutti_all_reduce(tutti_view(&x, -1), TUTTI_SUM, NULL), TUTTI_ERR_INVALID_ARGUMENT, "numel is -1");
        procs_sleep_ms(1);
    }
    proc_barrier(size, 2);
    EXPECT(tutti_destroy_process_group(NULL) == TUTTI_OK);
    return 0;
}

static void test_refused_calls_are_none(void **state)
{
    (void)state;
    run_until_told(2, rank_of_refused, (struct round){0});
}

/* Stops this process for `ms`, with a child that wakes it again and again: it may not have stopped yet at first.
 * Returns false if there is no child. */
static bool sleep_stopped(int ms)
{
    pid_t self = getpid(), waker = fork();
    if (waker < 0) return false;
    while (waker == 0) {
        procs_sleep_ms(ms);
        if (getppid() != self) _exit(0);
        kill(self, SIGCONT);
    }
    raise(SIGSTOP);
    kill(waker, SIGKILL);
    return waitpid(waker, NULL, 0) == waker;
}

/* The timeout of an operation, and how long its process does not run. */
struct lateness {
    int timeout_ms, stopped_ms;
};

/* Lets a receive time out while its process does not run. */
static int expect_late_message(struct lateness late)
{
    tutti_work *work = NULL;
    int x = 0;
    EXPECT(tutti_irecv(tutti_view(&x, 1), 1, tutti_with(.timeout_ms = late.timeout_ms), &work) == TUTTI_OK);
    EXPECT(tutti_wait(&work, 10) == TUTTI_ERR_TIMEOUT); /* its clock runs now */
    EXPECT(sleep_stopped(late.stopped_ms));
    EXPECT_ERROR(tutti_wait(&work, TUTTI_DEFAULT_TIMEOUT), TUTTI_ERR_TIMEOUT,
                 "rank 1 (is in no call; its latest was #1 barrier)");
    return 0;
}

/* Does the same with two collectives.  The second one uses the first one's memory, and so waits for it. */
static int expect_late_collectives(struct lateness late)
{
    tutti_work *works[2];
    int x = 0;
    for (int i = 0; i < 2; i++)
        EXPECT(tutti_all_reduce(tutti_view(&x, 1), TUTTI_SUM,
                                tutti_with(.timeout_ms = late.timeout_ms, .async_op = &works[i])) == TUTTI_OK);
    EXPECT(tutti_wait(&works[0], 10) == TUTTI_ERR_TIMEOUT);
    EXPECT(sleep_stopped(late.stopped_ms));
    EXPECT_ERROR(tutti_wait(&works[0], TUTTI_DEFAULT_TIMEOUT), TUTTI_ERR_TIMEOUT, "rank 1 (is at #1 barrier");
    tutti_wait(&works[1], TUTTI_DEFAULT_TIMEOUT);
    return 0;
}

/* A rank that does not run until its timeout has passed still says where its peer is, however short the timeout is
 * beside that time. */
static int rank_of_a_late_timeout(int rank, int size, void *argument)
{
    const int ms = ((struct round *)argument)->timeout_ms;
    EXPECT(proc_init(20000) == TUTTI_OK);
    EXPECT(tutti_barrier(NULL) == TUTTI_OK);
    if (rank == 0) EXPECT(expect_late_message((struct lateness){ms, ms + ms / 2}) == 0);
    if (rank == 0) EXPECT(expect_late_message((struct lateness){200, 2000}) == 0);
    if (rank == 0) EXPECT(expect_late_collectives((struct lateness){ms, ms + ms / 2}) == 0);
    proc_barrier(size, 1);
    EXPECT(tutti_destroy_process_group(NULL) == TUTTI_OK);
    return 0;
}

static void test_a_late_timeout_says_where(void **state)
{
    (void)state;
    run_until_told(2, rank_of_a_late_timeout, (struct round){0});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_messages_are_named),
        cmocka_unit_test(test_refused_calls_are_none),
        cmocka_unit_test(test_all_stragglers),
        cmocka_unit_test(test_the_last_rank_straggles),
        cmocka_unit_test(test_another_straggler),
        cmocka_unit_test(test_another_tag_is_named),
        cmocka_unit_test(test_a_late_timeout_says_where),
    };
    cmocka_set_test_filter(getenv("FAULTS_ONLY"));
    return cmocka_run_group_tests(tests, NULL, NULL);
}
