/* Random collectives of three ranks that get as far ahead of each other as they can.  No rank may overwrite what
 * another one has yet to read, and none may wait for ever.  One thread drives the ranks, so every run is the same. */
#include <unistd.h>

#include "sanitizer.h"
#include "unit/shm_ends.h"

enum {
    SEEDS = SANITIZED ? 1 : 3,
    OPERATIONS = 10000,
    ROW = 500,
    HALVINGS = 12,
    IN_FLIGHT = COLL_RUN_AHEAD + 4,
    IDLE_TURNS = 20000
};

/* An operation, which all ranks find by its number. */
struct plan {
    tutti_kind kind;
    int root;
    int64_t numel;
};

struct pending {
    tutti_request request;
    int64_t *own[2], *shared[2]; /* input and output in private memory and in the rank's arena */
    const int64_t *result;
    int ended;
};

struct member {
    struct coll_segment coll;
    struct coll_list running;
    struct pending pending[IN_FLIGHT];
    int64_t begun, done;
    int window; /* operations that it keeps in flight */
};

static struct end end[ENDS];
static struct member member[ENDS];
static size_t fragment_bytes; /* of the layout under test */
static int in_flight;         /* maximum number of operations that a rank keeps in flight */
static uint64_t seed;

/* Draws a number below n for an operation, or for a row of them.  All ranks draw alike. */
static int draw(int64_t number, uint64_t what, int n)
{
    return ends_draw(seed, number, what, n);
}

static tutti_kind kind_of(int64_t number)
{
    static const tutti_kind kinds[] = {TUTTI_BROADCAST,  TUTTI_SCATTER,    TUTTI_REDUCE,         TUTTI_GATHER,
                                       TUTTI_ALL_REDUCE, TUTTI_ALL_GATHER, TUTTI_REDUCE_SCATTER, TUTTI_ALL_TO_ALL};
    enum { ROOTED = 4, KINDS = sizeof kinds / sizeof *kinds };
    bool any = number % ROW == 0 && draw(number, 0, 2) == 0; /* also one in which all ranks wait for all */
    return any ? kinds[draw(number, 1, KINDS)] : kinds[draw(number / ROW, 1, ROOTED)];
}

/* Returns a number of elements: all but a third of a fragment buffer, of a half of it, and so on. */
static int64_t numel_of(int64_t number)
{
    int64_t row = number / ROW;
    bool alternates = draw(row, 2, 3) == 0, varies = draw(row, 3, 3) == 0;
    int halvings = draw(row + (alternates && number % 2), 4, HALVINGS);
    if (varies && draw(number, 5, 4) == 0) halvings = draw(number, 4, HALVINGS);
    int64_t most = ((int64_t)fragment_bytes / 8) >> halvings;
    return 1 + most - most / 3;
}

/* Operations of one kind follow each other: mostly with one root, and of one size or two. */
static struct plan plan_of(int64_t number)
{
    bool one_root = draw(number / ROW, 6, 4) > 0;
    return (struct plan){kind_of(number), draw(one_root ? number / ROW : number, 7, ENDS), numel_of(number)};
}

static int64_t given(int64_t number, int rank, int64_t k)
{
    return number * 1000003 + rank * 777 + k;
}

static int64_t expected(int64_t number, struct plan plan, int rank, int64_t k)
{
    int from = plan.root;
    if (tutti_kind_out_blocks(plan.kind)) {
        from = (int)(k / plan.numel);
        k %= plan.numel;
    }
    if (tutti_kind_in_blocks(plan.kind)) k += rank * plan.numel;
    if (!tutti_kind_reduces(plan.kind)) return given(number, from, k);
    return given(number, 0, k) + given(number, 1, k) + given(number, 2, k);
}

/* Fills the tensors of an operation, whose numbers of elements are set. */
static void fill(const tutti_op *op, int64_t number, int rank)
{
    int64_t *in = op->in->data, *out = op->out->data;
    for (int64_t k = 0; k < op->out->numel; k++) out[k] = -1;
    if (op->kind == TUTTI_BROADCAST && rank != op->root) return;
    for (int64_t k = 0; k < op->in->numel; k++) in[k] = given(number, rank, k);
}

static void begin(struct member *one, uint64_t *random)
{
    int64_t number = one->begun++;
    struct plan plan = plan_of(number);
    struct pending *pending = &one->pending[number % IN_FLIGHT];
    int rank = one->coll.rank;
    bool collects = plan.kind == TUTTI_REDUCE || plan.kind == TUTTI_GATHER, gives = plan.kind == TUTTI_BROADCAST;
    bool blocks_in = tutti_kind_in_blocks(plan.kind), blocks_out = tutti_kind_out_blocks(plan.kind);
    bool in_place = gives || (blocks_in == blocks_out && ends_pick(random, 3) == 0);
    int64_t **side = ends_pick(random, 3) > 0 ? pending->shared : pending->own;
    tutti_tensor in = {side[0], plan.numel * (blocks_in ? ENDS : 1), TUTTI_INT64, {TUTTI_CPU, 0}};
    tutti_tensor out = {side[!in_place], plan.numel * (blocks_out ? ENDS : 1), TUTTI_INT64, {TUTTI_CPU, 0}};
    tutti_op op = {.kind = plan.kind,
                   .dtype = TUTTI_INT64,
                   .root = plan.root,
                   .n_in = !gives && (plan.kind != TUTTI_SCATTER || rank == plan.root),
                   .n_out = !collects || rank == plan.root,
                   .in = &in,
                   .out = &out,
                   .async = true};
    fill(&op, number, rank);
    pending->result = op.n_out > 0 ? out.data : NULL;
    pending->ended = 0;
    pending->request = (tutti_request){.fingerprint = (uint64_t)number + 1, .owner = &pending->ended};
    ends_name_direct(&one->coll, &op);
    if (coll_begin(&one->coll, &op, &pending->request, &one->running) == TUTTI_REQUEST_DONE) pending->ended = 1;
}

static void check(const struct member *one, int64_t number)
{
    struct plan plan = plan_of(number);
    const int64_t *result = one->pending[number % IN_FLIGHT].result;
    int64_t n = result == NULL ? 0 : plan.numel * (tutti_kind_out_blocks(plan.kind) ? ENDS : 1);
    for (int64_t k = 0; k < n; k++)
        if (result[k] != expected(number, plan, one->coll.rank, k))
            fail_msg("seed %llu, operation %lld (kind %d, root %d, %lld elements): element %lld is wrong on rank %d",
                     (unsigned long long)seed, (long long)number, plan.kind, plan.root, (long long)plan.numel,
                     (long long)k, one->coll.rank);
}

/* Advances a rank.  Returns true if it did anything. */
static bool turn(struct member *one, uint64_t *random)
{
    int64_t before = one->begun + one->done;
    int moves = coll_progress(&one->running);
    for (; one->done < one->begun && one->pending[one->done % IN_FLIGHT].ended != 0; one->done++) {
        assert_int_equal(one->pending[one->done % IN_FLIGHT].ended, 1);
        check(one, one->done);
    }
    if (one->done == one->begun) one->window = ends_pick(random, 2) == 0 ? in_flight : 1 + ends_pick(random, in_flight);
    while (one->begun < OPERATIONS && one->begun - one->done < one->window) begin(one, random);
    return moves > 0 || one->begun + one->done != before;
}

/* Drives the ranks.  Now and then another rank gets most of the turns.  Returns the greatest lead of a rank. */
static int64_t drive(void)
{
    uint64_t random = seed;
    int64_t lead = 0;
    int favored = 0;
    for (int idle = 0; member[0].done + member[1].done + member[2].done < (int64_t)ENDS * OPERATIONS;) {
        if (ends_pick(&random, 300) == 0) favored = ends_pick(&random, ENDS);
        int rank = ends_pick(&random, 60) == 0 ? ends_pick(&random, ENDS) : favored;
        idle = turn(&member[rank], &random) ? 0 : idle + 1;
        assert_true(idle < IDLE_TURNS);
        for (int i = 0; i < ENDS; i++)
            if (member[rank].done - member[i].done > lead) lead = member[rank].done - member[i].done;
    }
    return lead;
}

static void open_all(size_t eager_bytes, bool shares_cores)
{
    static tutti_host host;
    size_t bytes = ENDS * (fragment_bytes + 8);
    host = ends_host;
    host.now_ns = ends_random_clock_ns; /* any way is the fastest at times */
    ends_clock_seed = seed;
    ends_open(end, ENDS);
    ends_open_arenas(end, shares_cores ? -1 : getpid());
    for (int i = 0; i < ENDS; i++) {
        struct shm *shm = &end[i].shm;
        shm->shares_cores = shares_cores;
        shm->can_read_memory = !shares_cores;
        if (!shares_cores) shm->config.host = &host;
        member[i] = (struct member){.window = 1};
        coll_open(&member[i].coll, shm, COLL_FIRST, i, ENDS, (int32_t[]){0, 1, 2});
        assert_int_equal(member[i].coll.state, COLL_READY);
        member[i].coll.layout.fragment_bytes = fragment_bytes;
        member[i].coll.layout.eager_bytes = eager_bytes;
        for (int k = 0; k < 2 * IN_FLIGHT; k++) {
            void *memory;
            assert_int_equal(shm_alloc(shm, bytes, &memory), TUTTI_OK);
            member[i].pending[k / 2].shared[k % 2] = memory;
            member[i].pending[k / 2].own[k % 2] = malloc(bytes);
        }
    }
}

static void close_all(void)
{
    for (int i = 0; i < ENDS; i++) {
        coll_close(&member[i].coll);
        for (int k = 0; k < 2 * IN_FLIGHT; k++) {
            assert_int_equal(shm_free(&end[i].shm, member[i].pending[k / 2].shared[k % 2]), TUTTI_OK);
            free(member[i].pending[k / 2].own[k % 2]);
        }
        shm_arena_close(&end[i].shm);
    }
    ends_close(end, ENDS);
}

static void run(size_t fragment, size_t eager, int most, bool shares_cores)
{
    in_flight = most;
    fragment_bytes = fragment;
    int64_t lead = 0;
    for (seed = 1; seed <= SEEDS; seed++) {
        open_all(eager, shares_cores);
        int64_t reached = drive();
        assert_true(reached >= COLL_SMALL_BUFFERS / 2);
        if (reached > lead) lead = reached;
        close_all();
    }
    /* With a core each, ranks often wait for the choice. */
    assert_true(lead > (shares_cores ? COLL_SLOTS / 2 : COLL_SLOTS / 2 - COLL_RUN_AHEAD - 1));
}

static void test_few_ranks_buffers(void **state)
{
    (void)state;
    for (int shares_cores = 0; shares_cores < 2; shares_cores++) run(256 << 10, 16 << 10, 2, shares_cores);
}

static void test_many_ranks_buffers(void **state)
{
    (void)state;
    for (int shares_cores = 0; shares_cores < 2; shares_cores++) run(16 << 10, 4 << 10, IN_FLIGHT, shares_cores);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_few_ranks_buffers),
        cmocka_unit_test(test_many_ranks_buffers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
