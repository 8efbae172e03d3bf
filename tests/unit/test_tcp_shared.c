/* Collectives on memory that all ranks map (backends/tcp/shm/coll/shared.c), without single-copy reads: three ranks,
 * driven in turn by one thread. */
#include <unistd.h>

#include "unit/shm_ends.h"

enum { N = 70000, TURNS = 1000 };

/* Tensors of a rank on one side: in its arena, and in private memory. */
struct side {
    int64_t *shared, *own;
};

struct call {
    tutti_kind kind;
    int root;
    int64_t n, *in, *out;
};

struct member {
    struct end *end;
    struct call last;
    uint64_t calls; /* number of calls that differed from the one before */
    struct coll_segment coll;
    struct coll_list running;
    struct side in, out;
    tutti_request request;
    int ended;
};

static struct end end[ENDS];
static struct member member[ENDS];
static int ranks = ENDS;  /* the group has the first of them */
static int64_t numel = N; /* of run_one */

static void open_side(struct member *one, struct side *side, size_t bytes)
{
    void *memory;
    assert_int_equal(shm_alloc(&one->end->shm, bytes, &memory), TUTTI_OK);
    side->shared = memory;
    side->own = malloc(bytes);
    assert_non_null(side->own);
}

static void open_all(void)
{
    int fd[ENDS];
    ends_open(end, ENDS);
    for (int i = 0; i < ENDS; i++) fd[i] = shm_arena_make();
    for (int i = 0; i < ENDS; i++) {
        struct shm *shm = &end[i].shm;
        shm->can_share = true;
        shm->arena_bytes = shm_arena_bytes();
        TAILQ_INIT(&shm->arena.blocks);
        for (int k = 0; k < ENDS; k++) {
            shm->peer[k].arena_fd = dup(fd[k]);
            shm->peer[k].pid = -1; /* no rank can read it */
        }
        member[i] = (struct member){.end = &end[i]};
        LIST_INIT(&member[i].running);
        if (i < ranks) coll_open(&member[i].coll, shm, COLL_FIRST, i, ranks, (int32_t[]){0, 1, 2});
        if (i < ranks) assert_int_equal(member[i].coll.state, COLL_READY);
        open_side(&member[i], &member[i].in, ENDS * N * sizeof(int64_t));
        open_side(&member[i], &member[i].out, ENDS * N * sizeof(int64_t));
    }
    for (int i = 0; i < ENDS; i++) close(fd[i]);
}

static void close_all(void)
{
    for (int i = 0; i < ENDS; i++) {
        coll_close(&member[i].coll);
        assert_int_equal(shm_free(&end[i].shm, member[i].in.shared), TUTTI_OK);
        assert_int_equal(shm_free(&end[i].shm, member[i].out.shared), TUTTI_OK);
        assert_true(TAILQ_EMPTY(&end[i].shm.arena.blocks)); /* the segment's own blocks are freed, too */
        shm_arena_close(&end[i].shm);
        free(member[i].in.own);
        free(member[i].out.own);
    }
    ends_close(end, ENDS);
}

/* ---- operations -------------------------------------------------------------------------------------------- */

static bool has_blocks_in(tutti_kind kind) /* the input has a block for each rank */
{
    return kind == TUTTI_SCATTER || kind == TUTTI_REDUCE_SCATTER || kind == TUTTI_ALL_TO_ALL;
}

static bool has_blocks_out(tutti_kind kind)
{
    return kind == TUTTI_GATHER || kind == TUTTI_ALL_GATHER || kind == TUTTI_ALL_TO_ALL;
}

static int64_t value(int rank, int64_t i)
{
    return rank * 1000000 + i * 3;
}

static void fill(int64_t *in, int rank)
{
    for (int64_t i = 0; i < ENDS * N; i++) in[i] = value(rank, i);
}

static int64_t sum(int64_t i)
{
    return value(0, i) + value(1, i) + (ranks > 2 ? value(2, i) : 0);
}

static int64_t expected(tutti_kind kind, int root, int rank, int64_t i)
{
    switch (kind) {
    case TUTTI_BROADCAST:
        return value(root, i);
    case TUTTI_SCATTER:
        return value(root, rank * numel + i);
    case TUTTI_REDUCE_SCATTER:
        return sum(rank * numel + i);
    case TUTTI_ALL_TO_ALL:
        return value((int)(i / numel), rank * numel + i % numel);
    case TUTTI_GATHER:
    case TUTTI_ALL_GATHER:
        return value((int)(i / numel), i % numel);
    default:
        return sum(i);
    }
}

/* Numbers calls as the core does. */
static uint64_t number_of(struct member *one, struct call call)
{
    const struct call *last = &one->last;
    if (call.kind != last->kind || call.root != last->root || call.n != last->n || call.in != last->in ||
        call.out != last->out || one->calls == 0)
        one->calls++;
    one->last = call;
    return one->calls;
}

static void begin(struct member *one, tutti_kind kind, int root, int64_t n, int64_t *in, int64_t *out)
{
    int rank = one->end->shm.local_rank;
    bool rooted = kind == TUTTI_REDUCE || kind == TUTTI_GATHER;
    tutti_tensor from = {in, has_blocks_in(kind) ? n * ranks : n, TUTTI_INT64, {TUTTI_CPU, 0}};
    tutti_tensor to = {out, has_blocks_out(kind) ? n * ranks : n, TUTTI_INT64, {TUTTI_CPU, 0}};
    tutti_op op = {.kind = kind,
                   .dtype = TUTTI_INT64,
                   .root = root,
                   .n_in = kind == TUTTI_BROADCAST ? 0 : kind != TUTTI_SCATTER || rank == root,
                   .n_out = !rooted || rank == root,
                   .in = &from,
                   .out = &to,
                   .call = number_of(one, (struct call){kind, root, n, in, out}),
                   .async = true};
    one->ended = 0;
    one->request = (tutti_request){.fingerprint = (uint64_t)kind + 1, .owner = &one->ended};
    int status = coll_begin(&one->coll, &op, &one->request, &one->running);
    assert_in_range(status, TUTTI_REQUEST_PENDING, TUTTI_REQUEST_DONE);
    one->ended = status == TUTTI_REQUEST_DONE;
}

/* Drives all ranks until they have ended.  Sets *any and *all to whether any or all of them took the direct path. */
static void drive(bool *any, bool *all)
{
    for (int turn = 0; turn < TURNS; turn++) coll_progress(&member[turn % ranks].running);
    *any = false;
    *all = true;
    for (int i = 0; i < ranks; i++) {
        assert_int_equal(member[i].ended, 1);
        bool direct = SLIST_FIRST(&member[i].coll.spare)->path == COLL_DIRECT; /* the operation that has just ended */
        *any |= direct;
        *all &= direct;
    }
}

/* Runs one operation. unshared: one bit a rank. */
static void run_one(tutti_kind kind, int root, int unshared, bool in_place, bool is_direct)
{
    bool any, all, rooted = kind == TUTTI_REDUCE || kind == TUTTI_GATHER;
    for (int i = 0; i < ranks; i++) {
        bool own = unshared >> i & 1;
        int64_t *in = own ? member[i].in.own : member[i].in.shared;
        int64_t *out = own ? member[i].out.own : member[i].out.shared;
        if (in_place) out = in;
        memset(out, 0x55, ENDS * N * sizeof *out);
        if (kind == TUTTI_BROADCAST && i == root)
            fill(out, i);
        else if (kind != TUTTI_BROADCAST)
            fill(in, i);
        begin(&member[i], kind, root, numel, in, out);
    }
    drive(&any, &all);
    assert_true(any == is_direct && all == is_direct);
    for (int i = 0; i < ranks; i++) {
        const int64_t *out = unshared >> i & 1 ? member[i].out.own : member[i].out.shared;
        if (in_place) out = unshared >> i & 1 ? member[i].in.own : member[i].in.shared;
        assert_int_equal(member[i].ended, 1);
        for (int64_t k = 0; k < (has_blocks_out(kind) ? ranks * numel : numel) && (!rooted || i == root); k++)
            assert_int_equal(out[k], expected(kind, root, i, k));
    }
}

static const tutti_kind kinds[] = {TUTTI_ALL_REDUCE, TUTTI_REDUCE, TUTTI_REDUCE_SCATTER, TUTTI_ALL_GATHER,
                                   TUTTI_ALL_TO_ALL, TUTTI_GATHER, TUTTI_BROADCAST,      TUTTI_SCATTER};
enum { KINDS = sizeof kinds / sizeof *kinds };

static void test_all_share(void **state)
{
    (void)state;
    open_all();
    for (int k = 0; k < KINDS; k++)
        for (int root = 0; root < ENDS; root++) run_one(kinds[k], root, 0, false, true);
    run_one(TUTTI_ALL_REDUCE, 0, 0, true, true);
    run_one(TUTTI_REDUCE, 1, 0, true, true);
    close_all();
}

/* The ranks read each other's memory for a reduce only if they share its work.  Otherwise the root alone reduces. */
static void test_small_reduce(void **state)
{
    enum { ALONE = (64 << 10) / ENDS / 8 };
    (void)state;
    open_all();
    for (int more = 0; more < 2; more++) {
        numel = ALONE + more;
        for (int unshared = 0; unshared < 1 << ENDS; unshared++)
            for (int root = 0; root < ENDS; root++)
                for (int in_place = 0; in_place < 2; in_place++)
                    run_one(TUTTI_REDUCE, root, unshared, in_place, more && unshared == 0);
    }
    close_all();
    numel = N;
}

/* A rank whose memory is not read may use private memory. */
static void test_some_do_not(void **state)
{
    (void)state;
    open_all();
    for (int k = 0; k < KINDS; k++)
        for (int unshared = 1; unshared < 1 << ENDS; unshared++)
            for (int root = 0; root < ENDS; root++) {
                bool of_root = kinds[k] == TUTTI_BROADCAST || kinds[k] == TUTTI_SCATTER;
                bool fits = of_root ? !(unshared >> root & 1) : kinds[k] == TUTTI_GATHER && unshared == 1 << root;
                run_one(kinds[k], root, unshared, false, fits);
            }
    run_one(TUTTI_ALL_TO_ALL, 0, 0, true, false); /* in place, data would be overwritten before they are read */
    close_all();
}

/* Two ranks in lockstep (coll.h) also read in place, unless they reduce everything. */
static void test_two_ranks(void **state)
{
    (void)state;
    ranks = 2;
    open_all();
    for (numel = 1000; numel <= 4096; numel += 1548)
        for (int k = 0; k < KINDS; k++)
            for (int unshared = 0; unshared < 1 << ranks; unshared++)
                for (int root = 0; root < ranks; root++) {
                    bool of_root = kinds[k] == TUTTI_BROADCAST || kinds[k] == TUTTI_SCATTER;
                    bool of_other = kinds[k] == TUTTI_GATHER;
                    bool reduces_all = kinds[k] == TUTTI_ALL_REDUCE || kinds[k] == TUTTI_REDUCE;
                    bool fits = of_root    ? !(unshared >> root & 1)
                                : of_other ? !(unshared >> (1 - root) & 1)
                                           : unshared == 0 && !reduces_all;
                    bool much = (size_t)numel * sizeof(int64_t) * (has_blocks_in(kinds[k]) ? 2 : 1) >
                                member[0].coll.layout.eager_bytes;
                    run_one(kinds[k], root, unshared, false, fits && much);
                }
    close_all();
    ranks = ENDS;
    numel = N;
}

/* No rank posts a second step before all have posted their addresses.  The second step may be the last one, which says
 * that the rank has read all it needs. */
static void test_two_ranks_show_first(void **state)
{
    bool any, all;
    (void)state;
    ranks = 2;
    open_all();
    for (int shared = 0; shared < 2; shared++) {
        for (int i = 0; i < ranks; i++) {
            int64_t *in = shared ? member[i].in.shared : member[i].in.own;
            fill(in, i);
            begin(&member[i], TUTTI_ALL_GATHER, 0, 4096, in, member[i].out.own);
            if (i == 0) assert_int_equal(TAILQ_FIRST(&member[i].coll.ops)->posted, 1);
        }
        drive(&any, &all);
        assert_true(any == shared && all == shared);
    }
    close_all();
    ranks = ENDS;
}

/* The memory of a rank's last call says nothing about the memory of the other ranks' current calls. */
static void test_same_call_again(void **state)
{
    (void)state;
    open_all();
    for (int k = 0; k < KINDS; k++) {
        bool from_root = kinds[k] == TUTTI_BROADCAST || kinds[k] == TUTTI_SCATTER;
        for (int turn = 0; turn < 6; turn++) /* only rank 2 changes its memory */
            run_one(kinds[k], 0, turn & 1 ? 1 << 2 : 0, false, !(turn & 1) || from_root);
    }
    close_all();
}

/* A rank that repeats a call shows its memory first in each, also if the path is named: its description is used again,
 * with what it learned from the last call. */
static void test_shows_first_again(void **state)
{
    static const tutti_path_row lockstep = {TUTTI_BROADCAST, COLL_LOCKSTEP, INT64_MAX};
    bool any, all;
    (void)state;
    ranks = 2;
    open_all();
    for (int i = 0; i < ranks; i++) {
        member[i].coll.choices = &lockstep;
        member[i].coll.n_choices = 1;
    }
    for (int shared = 0; shared < 2; shared++) {
        int64_t *root = shared ? member[0].out.shared : member[0].out.own;
        fill(root, 0);
        begin(&member[1], TUTTI_BROADCAST, 0, 4096, NULL, member[1].out.own);
        assert_int_equal(TAILQ_FIRST(&member[1].coll.ops)->posted, 1);
        begin(&member[0], TUTTI_BROADCAST, 0, 4096, NULL, root);
        drive(&any, &all);
        assert_true(any == shared && all == shared);
    }
    close_all();
    ranks = ENDS;
}

/* A rank may have only its input in shared memory. */
static void test_half_a_rank(void **state)
{
    bool any, all;
    (void)state;
    open_all();
    for (int i = 0; i < ENDS; i++) {
        fill(member[i].in.shared, i);
        begin(&member[i], TUTTI_ALL_REDUCE, 0, N, member[i].in.shared,
              i == 1 ? member[i].out.own : member[i].out.shared);
    }
    drive(&any, &all);
    assert_false(any);
    for (int64_t k = 0; k < N; k++) assert_int_equal(member[1].out.own[k], sum(k));
    close_all();
}

/* Operations follow each other without a wait.  Each one has segment memory of its own. */
static void test_growing_results(void **state)
{
    enum { OPS = 2 };
    static tutti_request request[ENDS][OPS];
    static int ended[ENDS][OPS];
    (void)state;
    open_all();
    for (int i = 0; i < ENDS; i++) {
        fill(member[i].in.shared, i);
        for (int k = 0; k < OPS; k++) {
            begin(&member[i], TUTTI_REDUCE, 0, N * (k + 1), member[i].in.shared, member[i].out.shared + k * N);
            struct coll_op *op = TAILQ_LAST(&member[i].coll.ops, coll_ops);
            request[i][k] = member[i].request;
            request[i][k].owner = &ended[i][k];
            ended[i][k] = 0;
            op->request = &request[i][k];
        }
    }
    for (int turn = 0; turn < TURNS; turn++) coll_progress(&member[turn % ENDS].running);
    for (int i = 0; i < ENDS; i++)
        for (int k = 0; k < OPS; k++) assert_int_equal(ended[i][k], 1);
    for (int k = 0; k < OPS; k++)
        for (int64_t i = 0; i < N * (k + 1); i++) assert_int_equal(member[0].out.shared[k * N + i], sum(i));
    close_all();
}

/* ---- a rank that gives up ---------------------------------------------------------------------------------- */

/* A rank that gives up reuses its memory at once, or frees it.  Its peers do not use what they read there, and do not
 * crash. */
static void give_up(bool frees)
{
    open_all();
    for (int i = 0; i < ENDS; i++) {
        fill(member[i].in.shared, i);
        begin(&member[i], TUTTI_ALL_REDUCE, 0, N, member[i].in.shared, member[i].out.shared);
    }
    for (int turn = 0; turn < TURNS && TAILQ_FIRST(&member[0].coll.ops)->at < 2; turn++)
        coll_progress(&member[turn % ENDS == 1 ? 0 : turn % ENDS].running); /* rank 1 stays in the first step */
    assert_int_equal(TAILQ_FIRST(&member[0].coll.ops)->at, 1);
    assert_true(TAILQ_FIRST(&member[0].coll.ops)->path == COLL_DIRECT);
    assert_true(coll_cancel(&member[0].coll, &member[0].request));
    assert_true(end[0].shm.arena.is_read);
    if (frees) {
        void *memory;
        assert_int_equal(shm_free(&end[0].shm, member[0].in.shared), TUTTI_OK);
        for (int i = 1; i < ENDS; i++)
            for (int turn = 0; turn < TURNS; turn++) coll_progress(&member[i].running);
        assert_int_equal(shm_alloc(&end[0].shm, ENDS * N * sizeof(int64_t), &memory), TUTTI_OK);
        assert_ptr_equal(memory, member[0].in.shared);
    }
    memset(member[0].in.shared, 0x55, N * sizeof(int64_t));
    for (int turn = 0; turn < TURNS; turn++) coll_progress(&member[1 + turn % 2].running);
    assert_int_equal(member[1].ended, 0);
    assert_int_equal(member[2].ended, 0);
    close_all();
}

static void test_gives_up(void **state)
{
    (void)state;
    give_up(false);
    give_up(true);
}

/* A blocked operation has no steps yet.  Cancelling it leaves the other one alone. */
static void test_cancels_a_blocked_operation(void **state)
{
    tutti_request first;
    int ended = 0;
    (void)state;
    open_all();
    for (int i = 0; i < ENDS; i++) {
        fill(member[i].in.shared, i);
        begin(&member[i], TUTTI_ALL_REDUCE, 0, N, member[i].in.shared, member[i].out.shared);
    }
    first = member[0].request;
    first.owner = &ended;
    TAILQ_FIRST(&member[0].coll.ops)->request = &first;
    begin(&member[0], TUTTI_ALL_REDUCE, 0, N, member[0].in.shared, member[0].out.shared);
    assert_true(coll_cancel(&member[0].coll, &member[0].request));
    for (int turn = 0; turn < TURNS; turn++) coll_progress(&member[turn % ENDS].running);
    assert_true(ended == 1 && member[1].ended == 1 && member[2].ended == 1);
    for (int64_t k = 0; k < N; k++) assert_int_equal(member[0].out.shared[k], sum(k));
    close_all();
}

/* A blocking operation waits its turn after earlier ones. */
static void test_waits_its_turn(void **state)
{
    (void)state;
    open_all();
    struct coll_segment *coll = &member[0].coll;
    coll->shm->polls = 10;
    fill(member[0].in.shared, 0);
    begin(&member[0], TUTTI_ALL_REDUCE, 0, N, member[0].in.shared, member[0].out.shared);
    tutti_tensor x = {member[0].out.own, 1, TUTTI_INT64, {TUTTI_CPU, 0}};
    tutti_op op = {.kind = TUTTI_ALL_REDUCE, .dtype = TUTTI_INT64, .n_in = 1, .n_out = 1, .in = &x, .out = &x};
    tutti_request request = {.fingerprint = 99, .owner = &member[1].ended};
    assert_int_equal(coll_begin(coll, &op, &request, &member[0].running), TUTTI_REQUEST_PENDING);
    assert_int_equal(TAILQ_LAST(&coll->ops, coll_ops)->first, 0);
    assert_int_equal(coll_slot_of(coll, 0, TAILQ_FIRST(&coll->ops)->first)->fingerprint, member[0].request.fingerprint);
    close_all();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_share),
        cmocka_unit_test(test_small_reduce),
        cmocka_unit_test(test_some_do_not),
        cmocka_unit_test(test_two_ranks),
        cmocka_unit_test(test_two_ranks_show_first),
        cmocka_unit_test(test_same_call_again),
        cmocka_unit_test(test_shows_first_again),
        cmocka_unit_test(test_half_a_rank),
        cmocka_unit_test(test_growing_results),
        cmocka_unit_test(test_gives_up),
        cmocka_unit_test(test_cancels_a_blocked_operation),
        cmocka_unit_test(test_waits_its_turn),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
