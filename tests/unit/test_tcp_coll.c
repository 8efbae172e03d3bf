/* Collective segments: two ranks as threads over one mapping of the segment, so that a thread sanitizer sees every
 * access of both. */
#include <poll.h>
#include <unistd.h>

#include "unit/small_groups.h"

#include "../../backends/tcp/shm/coll/path.c"

/* ---- steps ------------------------------------------------------------------------------------------------- */

enum { STEPS = 20000, NUMEL_MOST = 90000 };

/* The kind of operation i: twelve broadcasts in a row, in which the root does not wait, twelve reduces, in which the
 * other rank does not, and all_reduces between them. */
static tutti_kind kind_of(int64_t i)
{
    if (i % 12 == 0) return TUTTI_ALL_REDUCE;
    return i / 12 % 4 == 3 ? TUTTI_REDUCE : TUTTI_BROADCAST;
}

static void run_steps(struct end *end, int64_t n, int64_t (*numel_of)(int64_t i))
{
    struct coll_segment coll;
    struct coll_list running = LIST_HEAD_INITIALIZER(running);
    int rank = end->shm.local_rank;
    int64_t *in = malloc(NUMEL_MOST * sizeof *in), *out = malloc(NUMEL_MOST * sizeof *out);
    coll_open(&coll, &end->shm, COLL_FIRST, rank, 2, (int32_t[]){0, 1});
    if (coll.state != COLL_READY) end->wrong++;
    for (int64_t i = 0; i < n && end->lost == 0 && end->wrong == 0; i++) {
        int64_t numel = numel_of(i);
        tutti_kind kind = kind_of(i);
        bool reduce = kind != TUTTI_BROADCAST;
        int root = (int)(i / 12 % 2);
        bool has_result = kind != TUTTI_REDUCE || rank == root;
        for (int64_t k = 0; k < numel; k++)
            in[k] = out[k] = reduce || rank == root ? i * 100 + k + (reduce ? rank : 0) : -1;
        tutti_tensor a = {in, numel, TUTTI_INT64, {TUTTI_CPU, 0}}, b = {out, numel, TUTTI_INT64, {TUTTI_CPU, 0}};
        tutti_op op = {
            .kind = kind, .dtype = TUTTI_INT64, .root = root, .n_in = reduce, .n_out = has_result, .in = &a, .out = &b};
        end->wrong += ends_run_op(end, &coll, &running, &op, (uint64_t)i + 1) != 1;
        for (int64_t k = 0; k < numel && has_result; k++)
            end->wrong += out[k] != (reduce ? 2 * (i * 100 + k) + 1 : i * 100 + k);
    }
    coll_close(&coll);
    free(in);
    free(out);
}

static int64_t small_numel(int64_t i)
{
    return i % 40 + 1;
}

static void *steps(void *argument)
{
    run_steps(argument, STEPS, small_numel);
    return NULL;
}

static void test_steps(void **state)
{
    struct end end[2];
    (void)state;
    ends_open_and_run(end, steps);
}

/* Returns sizes of parts of a fragment buffer, several of a size in a row, and sometimes of whole buffers. */
static int64_t numel_of_parts(int64_t i)
{
    return i % 31 == 3 ? NUMEL_MOST - i : COLL_SMALL / 8 + 1 + i / 10 * 791 % (8000 >> i / 10 % 4);
}

static void *parts(void *argument)
{
    struct end *end = argument;
    end->shm.shares_cores = true;
    run_steps(end, STEPS / 10, numel_of_parts);
    return NULL;
}

static void test_parts(void **state)
{
    struct end end[2];
    (void)state;
    ends_open_and_run(end, parts);
}

/* ---- chunks ------------------------------------------------------------------------------------------------ */

enum { CHUNKED = 64, MIXED = 4000, MIXED_MOST = 6000 };

/* Returns element k of a rank before operation i. */
static int64_t given(int64_t i, int rank, int64_t k)
{
    return i * 1000003 + rank * 777 + k;
}

/* Returns element k of a rank after operation i. */
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

/* Runs n operations of every kind back to back, of `least` to `most` elements, in place and not. */
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
        op.async = !in_chunks && i % (500 + 200 * rank) == 250; /* the ranks stop waiting at different operations */
        const char *how = coll_explain(&coll, &op);
        end->wrong += how == NULL || (in_chunks && strstr(how, "chunks") == NULL);
        end->wrong += ends_run_op(end, &coll, &running, &op, (uint64_t)i + 1) != 1;
        const int64_t *got = b.data;
        for (int64_t k = 0; op.n_out > 0 && k < b.numel; k++) end->wrong += got[k] != expected(&op, i, rank, numel, k);
    }
    coll_close(&coll);
    free(in);
    free(out);
}

/* Exchanges data of one to three fragment buffers, or of many small chunks. */
static void *chunks(void *argument)
{
    exchange(argument, CHUNKED, 9000, NUMEL_MOST, true);
    return NULL;
}

static void test_chunks(void **state)
{
    struct end end[2];
    (void)state;
    ends_open_and_run(end, chunks);
}

/* Exchanges while plain and non-temporal stores are the faster ones in turn, at other times on each rank. */
static void *chunks_either_way(void *argument)
{
    struct end *end = argument;
    tutti_host strange = ends_host;
    strange.now_ns = ends_random_clock_ns;
    ends_clock_seed = (uint64_t)end->shm.local_rank + 1; /* one seed a thread */
    end->shm.config.host = &strange;
    exchange(end, 4 * CHUNKED, 9000, NUMEL_MOST, true);
    return NULL;
}

static void test_chunks_either_way(void **state)
{
    struct end end[2];
    (void)state;
    ends_open_and_run(end, chunks_either_way);
}

/* Uses control slots, small, eager and fragment buffers in turn: steps posted ahead meet steps that are not. */
static void *mixed(void *argument)
{
    exchange(argument, MIXED, 1, MIXED_MOST, false);
    return NULL;
}

static void test_mixed(void **state)
{
    struct end end[2];
    (void)state;
    ends_open_and_run(end, mixed);
}

/* ---- running ahead ------------------------------------------------------------------------------------------- */

/* A root runs ahead of its readers until the buffers are used up.  Then it waits until they have caught up, by half if
 * there are many buffers.  It never overwrites data that are still to be read.  `done` operations are complete. */
static void check_run_ahead(struct small small[2], int64_t done, int depth, int caught_up)
{
    int64_t sent = done, received = done;
    for (int rounds = 0; rounds < 3; rounds++) {
        for (small_broadcast(&small[0], ++sent); small[0].ended != 0; small_broadcast(&small[0], ++sent))
            assert_true(sent - done < 4 * COLL_SLOTS);
        assert_int_equal(sent - 1 - received, depth - 1);
        for (int i = 0; i < caught_up; i++) {
            assert_int_equal(coll_progress(&small[0].running), 0);
            small_receive(&small[1], ++received);
        }
        assert_int_equal(coll_progress(&small[0].running), 2); /* continues and ends */
        assert_int_equal(small[0].ended, 1);
    }
    while (received < sent) small_receive(&small[1], ++received);
}

static void run_ahead(bool shares_cores, int64_t numel, int depth, int caught_up)
{
    struct end end[2];
    struct small small[2];
    ends_open(end, 2);
    for (int i = 0; i < 2; i++) end[i].shm.shares_cores = shares_cores;
    for (int i = 0; i < 2; i++) small_open(&end[i], &small[i], 2);
    small[0].numel = small[1].numel = numel;
    check_run_ahead(small, 0, depth, caught_up);
    for (int i = 0; i < 2; i++) coll_close(&small[i].coll);
    ends_close(end, 2);
}

static void test_runs_ahead(void **state)
{
    (void)state;
    enum { SMALL_DEPTH = COLL_SMALL_BUFFERS - COLL_RUN_AHEAD };
    run_ahead(false, COLL_INLINE / 8, COLL_SLOTS - COLL_RUN_AHEAD, (COLL_SLOTS - COLL_RUN_AHEAD) / 2 + 1);
    run_ahead(false, COLL_TINY / 8, COLL_SLOTS - COLL_RUN_AHEAD, (COLL_SLOTS - COLL_RUN_AHEAD) / 2 + 1);
    run_ahead(false, COLL_TINY / 8 + 1, SMALL_DEPTH, SMALL_DEPTH / 2 + 1);
    run_ahead(false, COLL_ASKED / 8, SMALL_DEPTH, SMALL_DEPTH / 2 + 1);
    run_ahead(true, COLL_SMALL / 8, SMALL_DEPTH, SMALL_DEPTH / 2 + 1);
    run_ahead(false, COLL_SMALL / 8, SMALL_DEPTH, SMALL_DEPTH / 2 + 1);
    run_ahead(false, COLL_SMALL / 8 + 1, COLL_SLOTS - COLL_RUN_AHEAD, (COLL_SLOTS - COLL_RUN_AHEAD) / 2 + 1);
}

static void open_in_parts(struct end end[2], struct small small[2], int64_t numel)
{
    static const tutti_path_row pipelined = {TUTTI_BROADCAST, COLL_PIPELINED, INT64_MAX};
    ends_open(end, 2);
    for (int i = 0; i < 2; i++) {
        end[i].shm.shares_cores = true;
        small_open(&end[i], &small[i], 2);
        small[i].coll.choices = &pipelined;
        small[i].coll.n_choices = 1;
        small[i].numel = numel;
        struct coll_class *class =
            &small[i].coll.classes[TUTTI_BROADCAST * CHOICE_CLASSES + choice_class((size_t)numel * 8)];
        class->calls = 1, class->end = UINT64_MAX; /* in one span, so that the root need not wait for the choice */
    }
}

static void run_ahead_in_parts(bool shares_cores, int64_t numel, int depth)
{
    struct end end[2];
    struct small small[2];
    open_in_parts(end, small, numel);
    for (int i = 0; i < 2; i++) end[i].shm.shares_cores = shares_cores;
    for (int i = 1; i <= COLL_SLOTS; i++) { /* all parts have been used */
        small_broadcast(&small[0], i);
        small_receive(&small[1], i);
    }
    small[0].coll.all_in = COLL_SLOTS; /* otherwise it looks again only when it has to */
    check_run_ahead(small, COLL_SLOTS, depth, depth / 2 + 1);
    for (int i = 0; i < 2; i++) coll_close(&small[i].coll);
    ends_close(end, 2);
}

enum { PART_NUMEL = (256 << 10) / COLL_PARTS / 8, SLOTS_DEPTH = COLL_SLOTS - COLL_RUN_AHEAD };

/* A root also runs ahead with data in parts of its fragment buffers. */
static void test_runs_ahead_in_parts(void **state)
{
    (void)state;
    for (int shares_cores = 0; shares_cores < 2; shares_cores++) {
        run_ahead_in_parts(shares_cores, SMALL_MOST, COLL_FRAGMENTS * COLL_PARTS / (SMALL_MOST / PART_NUMEL));
        run_ahead_in_parts(shares_cores, PART_NUMEL + 1, COLL_FRAGMENTS * COLL_PARTS / 2);
        run_ahead_in_parts(shares_cores, PART_NUMEL, SLOTS_DEPTH);
    }
}

/* A root fills both fragment buffers at once, unless its last operation has filled them. */
static void test_fills_both_buffers(void **state)
{
    struct end end[2];
    struct small small[2];
    (void)state;
    open_in_parts(end, small, SMALL_MOST);
    for (int i = 0; i < 2; i++) {
        end[i].shm.shares_cores = false;
        small[i].coll.layout.fragment_bytes = SMALL_MOST * 8 / 2; /* in two chunks, which use whole buffers */
    }
    for (int value = 1; value < 9; value += 2) {
        small_broadcast(&small[0], value);
        assert_int_equal(small[0].ended, 1);
        small_broadcast(&small[0], value + 1);
        assert_int_equal(small[0].ended, 0);
        small_receive(&small[1], value);
        small_begin(&small[1], TUTTI_BROADCAST);
        for (int turn = 0; turn < 8; turn++) coll_progress(&small[turn % 2].running);
        assert_true(small[0].ended == 1 && small[1].ended == 1);
        for (int64_t i = 0; i < SMALL_MOST; i++) assert_int_equal(small[1].x[i], value + 1 + i);
        for (int i = 0; i < 2; i++) small[i].numel = 1;
        for (int i = 0; i < 2; i++) small_begin(&small[i], TUTTI_ALL_REDUCE); /* uses no fragment buffer */
        coll_progress(&small[0].running);
        assert_true(small[0].ended == 1 && small[1].ended == 1);
        for (int i = 0; i < 2; i++) small[i].numel = SMALL_MOST;
    }
    for (int i = 0; i < 2; i++) coll_close(&small[i].coll);
    ends_close(end, 2);
}

/* If the operation may continue as a direct one, it also waits for the step's eager buffer. */
static void test_waits_for_the_eager_buffer(void **state)
{
    (void)state;
    for (int before = COLL_EAGER_BUFFERS - 3; before < COLL_EAGER_BUFFERS; before++) {
        struct end end[2];
        struct small small[2];
        open_in_parts(end, small, SMALL_MOST);
        end[0].shm.shares_cores = false;
        small[0].coll.layout.eager_bytes = SMALL_MOST * 8 / 2;
        small[0].coll.next += (uint64_t)before; /* as after short operations that the other rank has yet to call */
        small_broadcast(&small[0], 1);
        assert_int_equal(small[0].ended, before < COLL_EAGER_BUFFERS - COLL_AHEAD - 1);
        for (int i = 0; i < 2; i++) coll_close(&small[i].coll);
        ends_close(end, 2);
    }
}

static int64_t numel_in_turn(int i)
{
    return i % 3 == 0 ? PART_NUMEL : COLL_SMALL / 8 + 1;
}

/* The root runs as far ahead if the sizes differ. */
static void test_runs_ahead_in_parts_of_all_sizes(void **state)
{
    enum { AHEAD = SLOTS_DEPTH - 1 };
    struct end end[2];
    struct small small[2];
    (void)state;
    open_in_parts(end, small, PART_NUMEL);
    for (int i = 0; i <= AHEAD; i++) {
        small[0].numel = numel_in_turn(i);
        small_broadcast(&small[0], i);
        assert_int_equal(small[0].ended, i < AHEAD);
    }
    for (int i = 0; i <= AHEAD; i++) {
        small[1].numel = numel_in_turn(i);
        small_receive(&small[1], i);
        coll_progress(&small[0].running);
    }
    assert_int_equal(small[0].ended, 1);
    for (int i = 0; i < 2; i++) coll_close(&small[i].coll);
    ends_close(end, 2);
}

/* ---- a race: a rank posts as the other one goes to sleep ------------------------------------------------------ */

static struct small poster, sleeper;

static void wait_for_one(struct end *end, int i)
{
    (void)i;
    if (end->shm.local_rank == 1) small_begin(&sleeper, TUTTI_BROADCAST);
}

static void post_one(struct end *end, int i)
{
    (void)end;
    small_broadcast(&poster, i);
}

static bool find_none(struct end *end)
{
    return ends_find_nothing(end, &sleeper.running);
}

static void receive_one(struct end *end, int i)
{
    shm_progress(&end->shm);
    coll_progress(&sleeper.running);
    end->wrong += sleeper.ended != 1 || sleeper.x[0] != i;
}

static void test_races(void **state)
{
    struct end end[2];
    (void)state;
    ends_open(end, 2);
    small_open(&end[0], &poster, 2);
    small_open(&end[1], &sleeper, 2);
    ends_run_races(
        end, &(struct race){.before = wait_for_one, .post = post_one, .find_nothing = find_none, .after = receive_one});
    coll_close(&poster.coll);
    coll_close(&sleeper.coll);
    ends_close(end, 2);
}

/* ---- size -------------------------------------------------------------------------------------------------- */

static void test_grows_with_the_ranks(void **state)
{
    (void)state;
    for (int n = 1; n <= SHM_RANKS_MAX / 2; n++) assert_true(coll_bytes(2 * n) <= 2 * coll_bytes(n));
    for (int n = 2; n <= SHM_RANKS_MAX; n++) assert_true(coll_bytes(n) >= (size_t)n * (size_t)n * COLL_ALIGN);
}

/* Behind each fragment buffer there is space for the results of a slice of as many data. */
static void test_has_space_for_results(void **state)
{
    struct end end[ENDS];
    struct coll_segment coll = {0};
    struct coll_op op = {.element = 1};
    (void)state;
    ends_open(end, ENDS);
    for (coll.n = 2; coll.n <= SHM_RANKS_MAX; coll.n++) {
        coll_lay_out(&coll, &end[0].shm, COLL_FIRST, coll.n);
        size_t bytes = coll.layout.fragment_bytes, results = coll.layout.fragment_span - bytes;
        assert_true(coll_part_of(&coll, &op, bytes, 0).bytes <= results);
        assert_ptr_equal(coll_fragment_of(&coll, 0, 1) + bytes + results, coll_slot_of(&coll, 1, 0));
        assert_true(coll_group_bytes(coll.n) <= coll_bytes(coll.n));
    }
    ends_close(end, ENDS);
}

/* Returns how many parts of `bytes` precede this one in the segment's first rank. */
static size_t number_of(const struct coll_segment *coll, const void *part, size_t bytes)
{
    return (size_t)((const char *)part - coll->ranks) / bytes;
}

/* As many steps in a row as there are slots or buffers have one each. */
static void test_steps_in_a_row_share_no_buffer(void **state)
{
    enum { FROM = 1000 };
    struct end end[ENDS];
    struct coll_segment coll = {0};
    bool slots[COLL_SLOTS] = {0}, tiny[2 * COLL_SLOTS] = {0}, small[4 * COLL_SMALL_BUFFERS] = {0};
    (void)state;
    ends_open(end, ENDS);
    coll_lay_out(&coll, &end[0].shm, COLL_FIRST, 2);
    for (uint64_t step = FROM; step < FROM + COLL_SLOTS; step++) {
        size_t slot = number_of(&coll, coll_slot_of(&coll, 0, step), sizeof(struct coll_slot));
        size_t tiny_one = number_of(&coll, coll_tiny_of(&coll, 0, step), COLL_TINY);
        size_t small_one = number_of(&coll, coll_small_of(&coll, 0, step), COLL_SMALL);
        assert_true(slot < COLL_SLOTS && tiny_one < 2 * COLL_SLOTS && small_one < 4 * COLL_SMALL_BUFFERS);
        assert_false(slots[slot] || tiny[tiny_one]);
        assert_int_equal(small[small_one], step >= FROM + COLL_SMALL_BUFFERS);
        slots[slot] = tiny[tiny_one] = small[small_one] = true;
    }
    ends_close(end, ENDS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_grows_with_the_ranks),
        cmocka_unit_test(test_steps_in_a_row_share_no_buffer),
        cmocka_unit_test(test_has_space_for_results),
        cmocka_unit_test(test_steps),
        cmocka_unit_test(test_parts),
        cmocka_unit_test(test_chunks),
        cmocka_unit_test(test_chunks_either_way),
        cmocka_unit_test(test_mixed),
        cmocka_unit_test(test_runs_ahead),
        cmocka_unit_test(test_runs_ahead_in_parts),
        cmocka_unit_test(test_fills_both_buffers),
        cmocka_unit_test(test_waits_for_the_eager_buffer),
        cmocka_unit_test(test_runs_ahead_in_parts_of_all_sizes),
        cmocka_unit_test(test_races),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
