/* Gathers and scatters of lists between other operations, on three ranks that get as far ahead of each other as they
 * can.  Each block has a size of its own, so it goes through another buffer, or is read from memory.  Input is
 * overwritten as soon as its operation has ended.  One thread drives the ranks, so every run is the same. */
#include <unistd.h>

#include "unit/shm_ends.h"

enum { SEEDS = 4, OPERATIONS = 3000, ROW = 150, IN_FLIGHT = COLL_RUN_AHEAD + 4, IDLE_TURNS = 20000 };

enum form { GATHERS, SCATTERS, EXCHANGES, TENSOR_GATHERS, TENSOR_SCATTERS, BROADCASTS, SHORT, FORMS };

struct pending {
    tutti_request request;
    tutti_op op;
    tutti_tensor in[ENDS], out[ENDS];
    int64_t *own[2], *shared[2]; /* input and output in private memory and in the rank's arena */
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
static bool shares_cores;
static uint64_t seed;

/* Draws a number below n for an operation, or for a row of them.  All ranks draw alike. */
static int draw(int64_t number, uint64_t what, int n)
{
    return ends_draw(seed, number, what, n);
}

static enum form form_of(int64_t number)
{
    int64_t row = number / ROW;
    if (draw(row, 1, 3) == 0) return (enum form)draw(number, 2, FORMS);
    enum form first = (enum form)draw(row, 2, 2), other = (enum form)draw(row, 3, FORMS);
    return draw(number, 4, 4) == 0 ? other : first;
}

static int root_of(int64_t number)
{
    return draw(draw(number / ROW, 5, 4) > 0 ? number / ROW : number, 6, ENDS);
}

/* Returns the elements of the block from one rank to another: small, of a few parts, of half a buffer, or more. */
static int64_t numel_of(int64_t number, int from, int to)
{
    static const int divisors[] = {4000, 600, 500, 60, 34, 17, 9, 4, 2, 1};
    enum { DIVISORS = sizeof divisors / sizeof *divisors };
    enum form form = form_of(number);
    bool varies = form <= EXCHANGES, per_row = draw(number / ROW, 7, 2) == 0;
    int64_t key = (per_row ? number / ROW : number) * 64;
    if (form == SHORT) return 1 + draw(number, 8, 100);
    if (varies) key += form == GATHERS ? from : form == SCATTERS ? to : from * 8 + to;
    if (varies && draw(key, 9, 8) == 0) return 0;
    int64_t most = (int64_t)fragment_bytes / 4 / divisors[draw(key, 10, per_row ? DIVISORS - 3 : DIVISORS)];
    return 1 + most - draw(key, 11, (int)most / 3 + 1);
}

static int64_t given(int64_t number, int from, int to, int64_t k)
{
    return number * 1000003 + from * 777 + to * 77777 + k;
}

static bool is_list(enum form form)
{
    return form <= EXCHANGES;
}

static void fill(int64_t *data, int64_t number, int from, int to)
{
    for (int64_t k = 0; k < numel_of(number, from, to); k++) data[k] = given(number, from, to, k);
}

static tutti_tensor tensor_of(int64_t *data, int64_t numel)
{
    return (tutti_tensor){numel > 0 ? data : NULL, numel, TUTTI_INT64, {TUTTI_CPU, 0}};
}

/* Sets the tensors of an operation.  A rank gives blocks to all, one block, or none, and takes them likewise. */
static void describe(struct member *one, struct pending *pending, int64_t number, uint64_t *random)
{
    static const tutti_kind kinds[FORMS] = {TUTTI_GATHER,  TUTTI_SCATTER,   TUTTI_ALL_TO_ALL, TUTTI_GATHER,
                                            TUTTI_SCATTER, TUTTI_BROADCAST, TUTTI_ALL_REDUCE};
    enum form form = form_of(number);
    tutti_kind kind = kinds[form];
    int rank = one->coll.rank, root = root_of(number);
    int64_t **side = ends_pick(random, 3) > 0 ? pending->own : pending->shared, *in = side[0], *out = side[1];
    pending->op = (tutti_op){.kind = kind,
                             .dtype = TUTTI_INT64,
                             .root = root,
                             .list = is_list(form),
                             .in = pending->in,
                             .out = pending->out,
                             .async = true};
    bool gives_all = kind == TUTTI_ALL_TO_ALL || (kind == TUTTI_SCATTER && rank == root);
    bool takes_all = kind == TUTTI_ALL_TO_ALL || (kind == TUTTI_GATHER && rank == root);
    bool gives = gives_all || kind == TUTTI_GATHER || kind == TUTTI_ALL_REDUCE;
    bool takes = takes_all || kind == TUTTI_SCATTER || kind == TUTTI_ALL_REDUCE || kind == TUTTI_BROADCAST;
    int from = kind == TUTTI_SCATTER || kind == TUTTI_BROADCAST ? root : rank, to = rank;
    if (kind == TUTTI_BROADCAST && rank == root) in = out; /* it has an output alone */
    for (int i = 0; i < ENDS; i++) {
        int64_t sent = numel_of(number, rank, gives_all ? i : root);
        int64_t got = numel_of(number, takes_all ? i : from, to);
        pending->in[i] = tensor_of(in, sent);
        if (gives && (gives_all || i == 0)) fill(in, number, rank, gives_all ? i : root);
        pending->out[i] = tensor_of(out, got);
        for (int64_t k = 0; takes && (takes_all || i == 0) && k < got; k++) out[k] = -1;
        if (gives_all) in += sent;
        if (takes_all) out += got;
    }
    if (kind == TUTTI_BROADCAST && rank == root) fill(pending->out[0].data, number, root, rank);
    if (!is_list(form) && gives_all) pending->in[0].numel *= ENDS;
    if (!is_list(form) && takes_all) pending->out[0].numel *= ENDS;
    pending->op.n_in = !gives ? 0 : is_list(form) && gives_all ? ENDS : 1;
    pending->op.n_out = !takes ? 0 : is_list(form) && takes_all ? ENDS : 1;
}

static void begin(struct member *one, uint64_t *random)
{
    int64_t number = one->begun++;
    struct pending *pending = &one->pending[number % IN_FLIGHT];
    describe(one, pending, number, random);
    pending->ended = 0;
    pending->request = (tutti_request){.fingerprint = (uint64_t)number + 1, .owner = &pending->ended};
    ends_name_direct(&one->coll, &pending->op);
    int status = coll_begin(&one->coll, &pending->op, &pending->request, &one->running);
    assert_true(status == TUTTI_REQUEST_DONE || status == TUTTI_REQUEST_PENDING);
    if (status == TUTTI_REQUEST_DONE) pending->ended = 1;
}

/* Returns element k of a block that a rank has received. */
static int64_t expected(const tutti_op *op, int64_t number, int from, int rank, int64_t k)
{
    if (op->kind == TUTTI_GATHER) return given(number, from, op->root, k);
    if (op->kind == TUTTI_BROADCAST) return given(number, op->root, op->root, k);
    if (op->kind != TUTTI_ALL_REDUCE) return given(number, from, rank, k);
    return given(number, 0, op->root, k) + given(number, 1, op->root, k) + given(number, 2, op->root, k);
}

/* Checks the result, and overwrites the input. */
static void check(struct member *one, int64_t number)
{
    const tutti_op *op = &one->pending[number % IN_FLIGHT].op;
    int rank = one->coll.rank;
    bool takes_all = op->n_out == ENDS || (op->kind == TUTTI_GATHER && op->n_out > 0);
    const int64_t *out = op->n_out > 0 ? one->pending[number % IN_FLIGHT].out[0].data : NULL;
    for (int i = 0; i < (op->n_out == 0 ? 0 : takes_all ? ENDS : 1); i++) {
        int from = takes_all ? i : op->root;
        int64_t numel = numel_of(number, from, rank);
        if (op->list) out = op->out[i].data;
        for (int64_t k = 0; k < numel; k++)
            if (out[k] != expected(op, number, from, rank, k))
                fail_msg("seed %llu, operation %lld (form %d, root %d, %lld elements): element %lld from rank %d is "
                         "wrong on rank %d",
                         (unsigned long long)seed, (long long)number, form_of(number), op->root, (long long)numel,
                         (long long)k, from, rank);
        if (!op->list) out += numel;
    }
    for (int i = 0; i < op->n_in; i++)
        if (op->in[i].numel > 0) memset(op->in[i].data, 0x55, (size_t)op->in[i].numel * 8);
    if (op->kind == TUTTI_BROADCAST) memset(op->out[0].data, 0x55, (size_t)op->out[0].numel * 8);
}

/* Advances a rank.  Returns true if it did anything. */
static bool turn(struct member *one, uint64_t *random)
{
    int64_t before = one->begun + one->done;
    bool was_ready = !LIST_EMPTY(&one->running) && coll_is_ready(&one->running);
    int moves = coll_progress(&one->running);
    if (!was_ready) assert_int_equal(moves, 0); /* else it would sleep although it can advance */
    for (; one->done < one->begun && one->pending[one->done % IN_FLIGHT].ended != 0; one->done++) {
        assert_int_equal(one->pending[one->done % IN_FLIGHT].ended, 1);
        check(one, one->done);
    }
    if (one->done == one->begun) one->window = ends_pick(random, 2) == 0 ? 2 : 1 + ends_pick(random, IN_FLIGHT);
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

static void open_all(size_t eager_bytes)
{
    size_t bytes = ENDS * (2 * fragment_bytes + 8);
    ends_open(end, ENDS);
    ends_open_arenas(end, getpid());
    for (int i = 0; i < ENDS; i++) {
        struct shm *shm = &end[i].shm;
        shm->can_read_memory = true;
        shm->shares_cores = shares_cores;
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

static void run(size_t fragment, size_t eager, bool shares)
{
    fragment_bytes = fragment;
    shares_cores = shares;
    int64_t most = 0;
    for (seed = 1; seed <= SEEDS; seed++) {
        open_all(eager);
        int64_t lead = drive();
        if (lead > most) most = lead;
        close_all();
    }
    assert_true(most > COLL_SMALL_BUFFERS / 2);
}

static void test_ranks_that_share_cores(void **state)
{
    (void)state;
    run(16 << 10, 4 << 10, true);
}

static void test_ranks_with_a_core_each(void **state)
{
    (void)state;
    run(64 << 10, 4 << 10, false);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ranks_that_share_cores),
        cmocka_unit_test(test_ranks_with_a_core_each),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
