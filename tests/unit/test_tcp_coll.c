/* Collective segments: two ranks as threads over one mapping of the segment, so that a thread sanitizer sees every
 * access of both; what a rank finds of one that has given up, or died. */
#include "small_groups.h"

/* ---- steps ------------------------------------------------------------------------------------------------- */

enum { STEPS = 20000 };

/* Broadcasts from either rank, in which the root does not wait, and all_reduces between them. */
static void *steps(void *argument)
{
    struct end *end = argument;
    struct coll_segment coll;
    struct coll_list running = LIST_HEAD_INITIALIZER(running);
    int rank = end->shm.local_rank;
    coll_open(&coll, &end->shm, COLL_FIRST, rank, 2, (int32_t[]){0, 1});
    if (coll.state != COLL_READY) end->wrong++;
    for (int64_t i = 0; i < STEPS && end->lost == 0 && end->wrong == 0; i++) {
        int64_t in[40], out[40], numel = i % 40 + 1;
        bool reduce = i % 12 == 0;
        int root = (int)(i / 12 % 2);
        for (int64_t k = 0; k < numel; k++)
            in[k] = out[k] = reduce || rank == root ? i * 100 + k + (reduce ? rank : 0) : -1;
        tutti_tensor a = {in, numel, TUTTI_INT64, {TUTTI_CPU, 0}}, b = {out, numel, TUTTI_INT64, {TUTTI_CPU, 0}};
        tutti_op op = {.kind = reduce ? TUTTI_ALL_REDUCE : TUTTI_BROADCAST,
                       .dtype = TUTTI_INT64,
                       .root = root,
                       .n_in = reduce,
                       .n_out = 1,
                       .in = &a,
                       .out = &b};
        end->wrong += run_op(end, &coll, &running, &op, (uint64_t)i + 1) != 1;
        for (int64_t k = 0; k < numel; k++) end->wrong += out[k] != (reduce ? 2 * (i * 100 + k) + 1 : i * 100 + k);
    }
    coll_close(&coll);
    return NULL;
}

static void test_steps(void **state)
{
    struct end end[2];
    (void)state;
    run_two(end, steps);
}

/* ---- chunks ------------------------------------------------------------------------------------------------ */

enum { PIPES = 64, NUMEL_MOST = 90000, MIXED = 4000, MIXED_MOST = 6000 };

/* What rank has at k before operation i. */
static int64_t given(int64_t i, int rank, int64_t k)
{
    return i * 1000003 + rank * 777 + k;
}

/* What it must have after it. */
static int64_t expected(const tutti_op *op, int64_t i, int rank, int64_t numel, int64_t k)
{
    int64_t own = rank * numel + k;
    switch (op->kind) {
    case TUTTI_ALL_REDUCE:
    case TUTTI_REDUCE:
        return given(i, 0, k) + given(i, 1, k);
    case TUTTI_REDUCE_SCATTER:
        return given(i, 0, own) + given(i, 1, own);
    case TUTTI_ALL_GATHER:
    case TUTTI_GATHER:
        return given(i, (int)(k / numel), k % numel);
    case TUTTI_ALL_TO_ALL:
        return given(i, (int)(k / numel), rank * numel + k % numel);
    case TUTTI_SCATTER:
        return given(i, op->root, own);
    default:
        return given(i, op->root, k);
    }
}

/* Operations of every kind and of sizes from `least` on, in place and not, back to back. */
static void exchange(struct end *end, int64_t n, int64_t least, int64_t most, bool in_chunks)
{
    static const struct {
        tutti_kind kind;
        int in, out; /* blocks */
        bool in_of_root, out_of_root;
    } kinds[] = {
        {TUTTI_ALL_REDUCE, 1, 1, false, false}, {TUTTI_ALL_GATHER, 1, 2, false, false},
        {TUTTI_BROADCAST, 0, 1, false, false},  {TUTTI_REDUCE, 1, 1, false, true},
        {TUTTI_ALL_TO_ALL, 2, 2, false, false}, {TUTTI_REDUCE_SCATTER, 2, 1, false, false},
        {TUTTI_GATHER, 1, 2, false, true},      {TUTTI_SCATTER, 2, 1, true, false},
    };
    struct coll_segment coll;
    struct coll_list running = LIST_HEAD_INITIALIZER(running);
    int rank = end->shm.local_rank;
    int64_t *in = malloc(2 * NUMEL_MOST * sizeof *in), *out = malloc(2 * NUMEL_MOST * sizeof *out);
    coll_open(&coll, &end->shm, COLL_FIRST, rank, 2, (int32_t[]){0, 1});
    for (int64_t i = 0; i < n && end->lost == 0 && end->wrong == 0; i++) {
        int64_t numel = least + i * 7919 % (most - least);
        int which = (int)(i % 8), root = (int)(i / 8 % 2);
        bool in_place = kinds[which].in == kinds[which].out && i / 16 % 2 == 1;
        tutti_tensor a = {in, numel * kinds[which].in, TUTTI_INT64, {TUTTI_CPU, 0}};
        tutti_tensor b = {in_place ? in : out, numel * kinds[which].out, TUTTI_INT64, {TUTTI_CPU, 0}};
        tutti_op op = {.kind = kinds[which].kind, .dtype = TUTTI_INT64, .root = root, .in = &a, .out = &b};
        op.n_in = kinds[which].in > 0 && (!kinds[which].in_of_root || rank == root);
        op.n_out = !kinds[which].out_of_root || rank == root;
        for (int64_t k = 0; k < 2 * numel; k++) {
            in[k] = given(i, rank, k);
            out[k] = op.kind == TUTTI_BROADCAST && rank == root ? in[k] : -1;
        }
        op.async = !in_chunks && i % (500 + 200 * rank) == 250; /* they change their ways, one here, the other there */
        const char *how = coll_explain(&coll, &op);
        end->wrong += how == NULL || (in_chunks && strstr(how, "in chunks") == NULL);
        end->wrong += run_op(end, &coll, &running, &op, (uint64_t)i + 1) != 1;
        const int64_t *got = b.data;
        for (int64_t k = 0; op.n_out > 0 && k < b.numel; k++) end->wrong += got[k] != expected(&op, i, rank, numel, k);
    }
    coll_close(&coll);
    free(in);
    free(out);
}

/* One to three chunks of the trays' size, or many small ones. */
static void *chunks(void *argument)
{
    exchange(argument, PIPES, 9000, NUMEL_MOST, true);
    return NULL;
}

static void test_chunks(void **state)
{
    struct end end[2];
    (void)state;
    run_two(end, chunks);
}

/* Either way of writing is now the faster one, now the slower, on each rank at other times. */
static void *chunks_either_way(void *argument)
{
    struct end *end = argument;
    tutti_host strange = host;
    strange.now_ns = chance_ns;
    chance = (uint64_t)end->shm.local_rank + 1; /* the threads' own */
    end->shm.config.host = &strange;
    exchange(end, 4 * PIPES, 9000, NUMEL_MOST, true);
    return NULL;
}

static void test_chunks_either_way(void **state)
{
    struct end end[2];
    (void)state;
    run_two(end, chunks_either_way);
}

/* Cells, slots, rooms and trays in turn: what is put a step ahead meets what is not. */
static void *mixed(void *argument)
{
    exchange(argument, MIXED, 1, MIXED_MOST, false);
    return NULL;
}

static void test_mixed(void **state)
{
    struct end end[2];
    (void)state;
    run_two(end, mixed);
}

/* ---- a rank that gives up, or dies ------------------------------------------------------------------------- */

enum { LARGE = 32768 };

struct large {
    struct coll_segment coll;
    struct coll_list running;
    int64_t data[LARGE];
    tutti_request request;
    int ended;
};

static void begin_with(struct end *end, struct large *large, bool can_read_memory)
{
    int rank = end->shm.local_rank;
    *large = (struct large){.request = {.fingerprint = 7}};
    LIST_INIT(&large->running);
    end->shm.can_read_memory = can_read_memory;
    end->shm.shares_cores = true; /* else it would go through the trays first */
    end->shm.peer[1 - rank].pid = getpid();
    coll_open(&large->coll, &end->shm, COLL_FIRST, rank, 2, (int32_t[]){0, 1});
    assert_int_equal(large->coll.state, COLL_READY);
    for (int i = 0; i < LARGE; i++) large->data[i] = rank + 1;
    tutti_tensor tensor = {large->data, LARGE, TUTTI_INT64, {TUTTI_CPU, 0}};
    tutti_op op = {
        .kind = TUTTI_ALL_REDUCE, .dtype = TUTTI_INT64, .n_in = 1, .n_out = 1, .in = &tensor, .out = &tensor};
    large->request.owner = &large->ended;
    assert_int_equal(coll_begin(&large->coll, &op, &large->request, &large->running), TUTTI_REQUEST_PENDING);
}

static void begin_large(struct end *end, struct large *large)
{
    begin_with(end, large, true);
}

/* The first rank is in the last step, the second one has yet to read what the first one has reduced. */
static void begin_both(struct end end[2], struct large large[2])
{
    pair_open(end);
    begin_large(&end[0], &large[0]);
    begin_large(&end[1], &large[1]);
    coll_progress(&large[0].running);
    assert_int_equal(TAILQ_FIRST(&large[0].coll.ops)->at, 2);
    assert_int_equal(TAILQ_FIRST(&large[1].coll.ops)->at, 1);
}

static void close_both(struct end end[2], struct large large[2])
{
    for (int i = 0; i < 2; i++) coll_close(&large[i].coll);
    pair_close(end);
}

static void test_goes_on(void **state)
{
    struct end end[2];
    static struct large large[2];
    (void)state;
    begin_both(end, large);
    coll_progress(&large[1].running);
    coll_progress(&large[0].running);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(large[i].ended, 1);
        for (int k = 0; k < LARGE; k++) assert_int_equal(large[i].data[k], 3);
    }
    close_both(end, large);
}

/* Its memory is the program's again, which writes other things there: who reads them does not believe them. */
static void test_gives_up_in_the_last_step(void **state)
{
    struct end end[2];
    static struct large large[2];
    (void)state;
    begin_both(end, large);
    assert_true(coll_cancel(&large[0].coll, &large[0].request));
    memset(large[0].data, 0x55, sizeof large[0].data);
    for (int i = 0; i < 3; i++) coll_progress(&large[1].running);
    assert_int_equal(large[1].ended, 0);
    assert_false(coll_is_ready(&large[1].running));
    bool ranks[2] = {false, false};
    coll_awaits(&large[1].coll, &large[1].request, ranks);
    assert_true(ranks[0] && !ranks[1]);
    close_both(end, large);
}

/* Who comes late finds nobody, though all data are there. */
static void test_comes_after_one_gave_up(void **state)
{
    struct end end[2];
    static struct large large[2];
    (void)state;
    pair_open(end);
    begin_large(&end[0], &large[0]);
    assert_true(coll_cancel(&large[0].coll, &large[0].request));
    begin_large(&end[1], &large[1]);
    for (int i = 0; i < 3; i++) coll_progress(&large[1].running);
    assert_int_equal(large[1].ended, 0);
    assert_int_equal(TAILQ_FIRST(&large[1].coll.ops)->at, 0);
    close_both(end, large);
}

/* The same with chunks: who has not met it before it gave up finds nobody, who has met it waits for the next step. */
static void test_gives_up_between_chunks(void **state)
{
    struct end end[2];
    static struct large large[2];
    (void)state;
    for (int who = 0; who < 2; who++) {
        pair_open(end);
        for (int i = 0; i < 2; i++) begin_with(&end[i], &large[i], false);
        assert_int_equal(TAILQ_FIRST(&large[0].coll.ops)->at, 0);
        assert_int_equal(TAILQ_FIRST(&large[1].coll.ops)->at, 1);
        assert_true(coll_cancel(&large[who].coll, &large[who].request));
        struct large *other = &large[1 - who];
        for (int i = 0; i < 3; i++) coll_progress(&other->running);
        assert_int_equal(other->ended, 0);
        assert_int_equal(TAILQ_FIRST(&other->coll.ops)->at, 1 - who);
        close_both(end, large);
    }
}

static pid_t pid_of_nobody(void)
{
    pid_t pid = fork();
    if (pid == 0) _exit(0);
    assert_true(pid > 0);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    return pid;
}

static void test_dies_in_the_last_step(void **state)
{
    struct end end[2];
    static struct large large[2];
    (void)state;
    begin_both(end, large);
    end[1].shm.peer[0].pid = pid_of_nobody();
    coll_progress(&large[1].running);
    assert_int_equal(large[1].ended, TUTTI_ERR_PEER_LOST);
    close_both(end, large);
}

/* As if its pid had passed to another process, whose memory can be read. */
static void test_dies_and_its_pid_lives(void **state)
{
    struct end end[2];
    static struct large large[2];
    (void)state;
    begin_both(end, large);
    struct shm *shm = &end[1].shm;
    shm->peer[0].liveness_fd = eventfd(1, EFD_CLOEXEC); /* readable, as one of a process that has ended */
    struct epoll_event event = {.events = EPOLLIN, .data.u32 = 0};
    assert_int_equal(epoll_ctl(shm->watch, EPOLL_CTL_ADD, shm->peer[0].liveness_fd, &event), 0);
    coll_progress(&large[1].running);
    assert_int_equal(large[1].ended, TUTTI_ERR_PEER_LOST);
    close(shm->peer[0].liveness_fd);
    close_both(end, large);
}

/* ---- a rank that leaves ------------------------------------------------------------------------------------ */

/* A root runs ahead of those who take its data, until the places for them are used up; then it waits until the others
 * have caught up, by half where there are many.  Nothing that is still to be taken is written over. */
static void runs_ahead(int64_t numel, int depth, int caught_up)
{
    struct end end[2];
    struct small small[2];
    int64_t put = 0, taken = 0;
    pair_open(end);
    for (int i = 0; i < 2; i++) open_small(&end[i], &small[i], 2);
    small[0].numel = small[1].numel = numel;
    for (int rounds = 0; rounds < 3; rounds++) {
        for (broadcast(&small[0], ++put); small[0].ended != 0; broadcast(&small[0], ++put)) assert_true(put < 1000);
        assert_int_equal(put - 1 - taken, depth - 1);
        for (int i = 0; i < caught_up; i++) {
            assert_int_equal(coll_progress(&small[0].running), 0);
            take_next(&small[1], ++taken);
        }
        assert_int_equal(coll_progress(&small[0].running), 2); /* it goes on, and ends */
        assert_int_equal(small[0].ended, 1);
    }
    while (taken < put) take_next(&small[1], ++taken);
    for (int i = 0; i < 2; i++) coll_close(&small[i].coll);
    pair_close(end);
}

static void test_runs_ahead(void **state)
{
    (void)state;
    runs_ahead(COLL_INLINE / 8, COLL_SLOTS - COLL_RUN_AHEAD, (COLL_SLOTS - COLL_RUN_AHEAD) / 2 + 1);
    enum { SMALL_DEPTH = COLL_SMALL_BUFFERS - COLL_RUN_AHEAD };
    runs_ahead(COLL_INLINE / 8 + 1, SMALL_DEPTH, SMALL_DEPTH / 2 + 1);
    runs_ahead(COLL_SMALL / 8, SMALL_DEPTH, SMALL_DEPTH / 2 + 1);
    runs_ahead(COLL_SMALL / 8 + 1, COLL_EAGER_BUFFERS - COLL_AHEAD, 1);
    runs_ahead(LOCKSTEP_MIN / 8 - 1, COLL_EAGER_BUFFERS - COLL_AHEAD, 1);
}

/* ---- moments ----------------------------------------------------------------------------------------------- */

static struct small bringer, sleeper;

static void wait_for_one(struct end *end, int i)
{
    (void)i;
    if (end->shm.local_rank == 1) begin_small(&sleeper, TUTTI_BROADCAST);
}

static void bring_one(struct end *end, int i)
{
    (void)end;
    broadcast(&bringer, i);
}

static bool finds_none(struct end *end)
{
    return finds_nothing(end, &sleeper.running);
}

static void take_one(struct end *end, int i)
{
    shm_progress(&end->shm);
    coll_progress(&sleeper.running);
    end->wrong += sleeper.ended != 1 || sleeper.x[0] != i;
}

static void test_moments(void **state)
{
    struct end end[2];
    (void)state;
    pair_open(end);
    open_small(&end[0], &bringer, 2);
    open_small(&end[1], &sleeper, 2);
    run_moments(end, &(struct moment){
                         .before = wait_for_one, .bring = bring_one, .finds_nothing = finds_none, .after = take_one});
    coll_close(&bringer.coll);
    coll_close(&sleeper.coll);
    pair_close(end);
}

/* They leave each other behind, and then one of them leaves. */
static void test_leaves_behind_a_root(void **state)
{
    struct end end[2];
    struct small small;
    (void)state;
    pair_open(end);
    open_small(&end[0], &small, 2);
    for (int i = 1; i < COLL_SLOTS - COLL_RUN_AHEAD; i++) {
        begin_small(&small, TUTTI_BROADCAST);
        assert_int_equal(small.ended, 1);
    }
    begin_small(&small, TUTTI_BROADCAST);
    assert_int_equal(coll_progress(&small.running), 0);
    assert_false(coll_is_ready(&small.running));
    shm_drop(&end[0].shm, 1, "it left the group", false);
    assert_true(coll_is_ready(&small.running));
    assert_int_equal(coll_progress(&small.running), 1);
    assert_int_equal(small.ended, TUTTI_ERR_PEER_LOST);
    coll_close(&small.coll);
    pair_close(end);
}

/* Where there is no memory to be shown, who gives a gather its data waits for nobody as long as there is room. */
static void test_gives_and_goes(void **state)
{
    struct end end[2];
    struct small small[2];
    (void)state;
    open_met(end, small);
    tutti_tensor x = {small[1].x, LOCKSTEP_MIN / 8, TUTTI_INT64, {TUTTI_CPU, 0}};
    tutti_op op = {.kind = TUTTI_GATHER, .dtype = TUTTI_INT64, .n_in = 1, .in = &x};
    assert_int_equal(coll_begin(&small[1].coll, &op, &small[1].request, &small[1].running), TUTTI_REQUEST_DONE);
    close_met(end, small);
}

/* Another one, before it in rank, has not come yet. */
static void test_leaves_while_another_is_late(void **state)
{
    struct end end[ENDS];
    struct small small;
    (void)state;
    ends_open(end, ENDS);
    open_small(&end[0], &small, ENDS);
    begin_small(&small, TUTTI_ALL_REDUCE);
    assert_int_equal(coll_progress(&small.running), 0);
    shm_drop(&end[0].shm, 2, "it left the group", false);
    assert_int_equal(coll_progress(&small.running), 1);
    assert_int_equal(small.ended, TUTTI_ERR_PEER_LOST);
    coll_close(&small.coll);
    ends_close(end, ENDS);
}

/* It had come before. */
static void test_leaves_after_it_has_come(void **state)
{
    struct end end[ENDS];
    struct small small[ENDS];
    (void)state;
    ends_open(end, ENDS);
    for (int i = 0; i < ENDS; i++) open_small(&end[i], &small[i], ENDS);
    begin_small(&small[0], TUTTI_ALL_REDUCE);
    begin_small(&small[2], TUTTI_ALL_REDUCE);
    shm_drop(&end[0].shm, 2, "it left the group", false);
    assert_int_equal(coll_progress(&small[0].running), 0);
    begin_small(&small[1], TUTTI_ALL_REDUCE);
    assert_int_equal(coll_progress(&small[0].running), 2);
    assert_int_equal(small[0].ended, 1);
    for (int i = 0; i < ENDS; i++) coll_close(&small[i].coll);
    ends_close(end, ENDS);
}

static int take(struct end *end)
{
    return coll_directory_reserve(&end->shm, 2);
}

/* A segment that was given back is reserved again, as one in which nobody has entered a step; its pages are not. */
static void test_takes_again(void **state)
{
    struct end end[2];
    struct small small[2];
    struct stat before, after;
    (void)state;
    open_met(end, small);
    assert_int_equal(fstat(end[0].shm.memfd, &before), 0);
    for (int i = 0; i < 2; i++) coll_close(&small[i].coll);
    assert_int_equal(take(&end[1]), COLL_FIRST);
    assert_int_equal(fstat(end[0].shm.memfd, &after), 0);
    assert_int_equal(after.st_blocks, before.st_blocks);
    for (int i = 0; i < 2; i++) open_small(&end[i], &small[i], 2);
    begin_small(&small[0], TUTTI_ALL_REDUCE);
    coll_progress(&small[0].running);
    assert_int_equal(small[0].ended, 0); /* the other one's steps are of the group before */
    begin_small(&small[1], TUTTI_ALL_REDUCE);
    for (int turn = 0; turn < 8; turn++) coll_progress(&small[turn % 2].running);
    assert_true(small[0].ended == 1 && small[1].ended == 1);
    close_met(end, small);
}

/* Each is taken once; those beyond the last have none, and whoever takes one later has it. */
static void test_takes_all(void **state)
{
    struct end end[2];
    (void)state;
    pair_open(end);
    for (int i = 1; i < SHM_SEGMENTS; i++) assert_int_equal(take(&end[i % 2]), i);
    for (int i = 0; i < 2; i++) assert_int_equal(take(&end[i]), COLL_ABSENT);
    for (int i = 0; i < 2; i++) coll_directory_leave(&end[i].shm, 7, 2);
    assert_int_equal(take(&end[1]), 7);
    pair_close(end);
}

/* Many groups that end leave the pages of a few segments. */
static void test_gives_pages_back(void **state)
{
    struct end end[2];
    struct stat status;
    (void)state;
    pair_open(end);
    for (int i = 1; i < SHM_SEGMENTS; i++) assert_int_equal(take(&end[0]), i);
    for (int i = 0; i < SHM_SEGMENTS; i++)
        for (int k = 0; k < 2; k++) coll_directory_leave(&end[k].shm, i, 2);
    assert_int_equal(fstat(end[0].shm.memfd, &status), 0);
    assert_true((size_t)status.st_blocks * 512 <= end[0].shm.colls_at + KEEP_BYTES);
    pair_close(end);
}

/* A rank that dies while it takes an entry does not keep it. */
static void test_dies_in_the_directory(void **state)
{
    struct end end[2];
    (void)state;
    pair_open(end);
    struct shm_directory_entry *entry = &shm_directory(&end[0].shm)->entry[1];
    end[0].shm.peer[1].liveness_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    assert_true(try_reserve(&end[1].shm, entry));
    assert_int_equal(take(&end[0]), 2); /* it lives */
    assert_int_equal(write(end[0].shm.peer[1].liveness_fd, &(uint64_t){1}, sizeof(uint64_t)), sizeof(uint64_t));
    assert_int_equal(take(&end[0]), 1); /* readable, as one of a process that has ended */
    close(end[0].shm.peer[1].liveness_fd);
    pair_close(end);
}

/* Whatever a rank that has gone wrong has written there. */
static void test_nonsense_in_the_directory(void **state)
{
    struct end end[2];
    struct coll_segment coll;
    (void)state;
    pair_open(end);
    memset(shm_directory(&end[0].shm), 0xa5, sizeof(struct shm_directory));
    coll_open(&coll, &end[0].shm, COLL_FIRST, 0, 2, (int32_t[]){0, 1});
    assert_int_equal(coll.state, COLL_NONE);
    assert_int_equal(take(&end[0]), 0); /* of a local rank that there is not: nobody's */
    coll_open(&coll, &end[0].shm, SHM_SEGMENTS, 0, 2, (int32_t[]){0, 1});
    assert_int_equal(coll.state, COLL_NONE);
    pair_close(end);
}

/* ---- size -------------------------------------------------------------------------------------------------- */

static void test_grows_with_the_ranks(void **state)
{
    (void)state;
    for (int n = 1; n <= SHM_RANKS_MAX / 2; n++) assert_true(coll_bytes(2 * n) <= 2 * coll_bytes(n));
    for (int n = 2; n <= SHM_RANKS_MAX; n++) assert_true(coll_bytes(n) >= (size_t)n * (size_t)n * COLL_ALIGN);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_grows_with_the_ranks),
        cmocka_unit_test(test_steps),
        cmocka_unit_test(test_takes_again),
        cmocka_unit_test(test_takes_all),
        cmocka_unit_test(test_gives_pages_back),
        cmocka_unit_test(test_dies_in_the_directory),
        cmocka_unit_test(test_nonsense_in_the_directory),
        cmocka_unit_test(test_chunks),
        cmocka_unit_test(test_chunks_either_way),
        cmocka_unit_test(test_mixed),
        cmocka_unit_test(test_goes_on),
        cmocka_unit_test(test_gives_up_in_the_last_step),
        cmocka_unit_test(test_comes_after_one_gave_up),
        cmocka_unit_test(test_gives_up_between_chunks),
        cmocka_unit_test(test_dies_in_the_last_step),
        cmocka_unit_test(test_dies_and_its_pid_lives),
        cmocka_unit_test(test_runs_ahead),
        cmocka_unit_test(test_moments),
        cmocka_unit_test(test_leaves_behind_a_root),
        cmocka_unit_test(test_gives_and_goes),
        cmocka_unit_test(test_leaves_while_another_is_late),
        cmocka_unit_test(test_leaves_after_it_has_come),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
