/* backends/tcp/shm/coll/agree.c: what ranks do between two spans, and how long a span is.  One thread drives both. */
#include "unit/shm_ends.h"

#include "../../backends/tcp/shm/coll/agree.c"

enum { SMALL = 600, LARGE = 3000 }; /* elements of an eager and of a pipelined broadcast: the root runs ahead */

struct side {
    struct coll_segment coll;
    struct coll_list running;
    tutti_request request;
    int64_t data[LARGE];
    int ended;
};

static tutti_op broadcast_of(tutti_tensor *tensor)
{
    return (tutti_op){
        .kind = TUTTI_BROADCAST, .dtype = TUTTI_INT64, .root = 1, .n_out = 1, .in = tensor, .out = tensor};
}

static void begin_of(struct side *side, int64_t numel)
{
    tutti_tensor tensor = {side->data, numel, TUTTI_INT64, {TUTTI_CPU, 0}};
    tutti_op op = broadcast_of(&tensor);
    side->ended = 0;
    side->request = (tutti_request){.fingerprint = 7, .owner = &side->ended};
    side->ended = coll_begin(&side->coll, &op, &side->request, &side->running) == TUTTI_REQUEST_DONE;
}

static void begin(struct side *side)
{
    begin_of(side, SMALL);
}

/* Returns the calls of the first span.  One in parts of fragment buffers uses each part once before it is timed. */
static int first_span(struct side *side, int64_t numel)
{
    tutti_tensor tensor = {side->data, numel, TUTTI_INT64, {TUTTI_CPU, 0}};
    tutti_op op = broadcast_of(&tensor);
    struct coll_op made = {0};
    assert_true(coll_describe(&side->coll, &op, &made));
    int least = choice_short_span(choice_class((size_t)numel * 8));
    int pass = made.parts > 0 ? COLL_FRAGMENTS * COLL_PARTS / made.parts : 1;
    int more = pass / 4 < TIMED_MAX ? pass / 4 : TIMED_MAX; /* of a root that can run far ahead */
    return pass + (more > least - 1 && !side->coll.shm->shares_cores ? more : least - 1);
}

/* The root has run ahead to the second span, whose way is not known yet.  It waits for rank 0, and sleeps. */
static void wait_for_the_word(bool shares_cores, enum coll_path path)
{
    struct end end[2];
    static struct side side[2];
    bool ranks[2] = {false, false};
    ends_open(end, 2);
    for (int i = 0; i < 2; i++) {
        end[i].shm.shares_cores = shares_cores;
        coll_open(&side[i].coll, &end[i].shm, COLL_FIRST, i, 2, (int32_t[]){0, 1});
        LIST_INIT(&side[i].running);
    }
    int span = first_span(&side[1], SMALL);
    for (int call = 0; call < span; call++) {
        begin(&side[1]);
        assert_int_equal(side[1].ended, 1);
        if (call < span - 1) begin(&side[0]);
        assert_int_equal(side[0].ended, 1);
    }
    begin(&side[1]);
    assert_int_equal(side[1].ended, 0);
    assert_int_equal(TAILQ_FIRST(&side[1].coll.ops)->posted, 0);
    assert_int_equal(coll_progress(&side[1].running), 0);
    assert_false(coll_is_ready(&side[1].running));
    coll_awaits(&side[1].coll, &side[1].request, ranks);
    assert_true(ranks[0] && !ranks[1]);
    begin(&side[0]); /* publishes the way of the second span */
    assert_true(coll_is_ready(&side[1].running));
    coll_progress(&side[1].running);
    begin(&side[0]);
    for (int turn = 0; turn < 8; turn++) coll_progress(&side[turn % 2].running);
    assert_true(side[0].ended == 1 && side[1].ended == 1);
    const struct coll_class *class[2];
    for (int i = 0; i < 2; i++) {
        class[i] = &side[i].coll.classes[TUTTI_BROADCAST * CHOICE_CLASSES + choice_class(SMALL * 8)];
        assert_int_equal(class[i] -> calls, span + 1);
        assert_int_equal(class[i] -> end, 2 * span);
    }
    assert_int_equal(class[0] -> way, COLL_WAY(path, 0)); /* once more: the first span does not count */
    assert_int_equal(class[1] -> way, class[0] -> way);
    for (int i = 0; i < 2; i++) coll_close(&side[i].coll);
    ends_close(end, 2);
}

static void test_waits_for_the_word(void **state)
{
    (void)state;
    wait_for_the_word(false, COLL_EAGER);
    wait_for_the_word(true, COLL_PIPELINED); /* in parts of fragment buffers, which are free for long */
}

/* The same where its fragment buffers have been free for long. */
static void test_waits_for_the_word_with_free_buffers(void **state)
{
    static const tutti_path_row rows[] = {{TUTTI_BROADCAST, COLL_EAGER, SMALL * 8},
                                          {TUTTI_BROADCAST, COLL_PIPELINED, INT64_MAX}};
    struct end end[2];
    static struct side side[2];
    (void)state;
    ends_open(end, 2);
    for (int i = 0; i < 2; i++) {
        coll_open(&side[i].coll, &end[i].shm, COLL_FIRST, i, 2, (int32_t[]){0, 1});
        LIST_INIT(&side[i].running);
        side[i].coll.choices = rows;
        side[i].coll.n_choices = 2;
    }
    int span = first_span(&side[0], LARGE);
    for (int call = 0; call < span; call++)
        for (int i = 1; i >= 0; i--) begin_of(&side[i], LARGE);
    for (int call = 0; call < 4; call++) {
        begin_of(&side[1], 1);
        assert_int_equal(side[1].ended, 1);
    }
    begin_of(&side[1], LARGE);
    assert_int_equal(TAILQ_FIRST(&side[1].coll.ops)->posted, 0);
    for (int call = 0; call < 4; call++) begin_of(&side[0], 1);
    begin_of(&side[0], LARGE);
    for (int turn = 0; turn < 8; turn++) coll_progress(&side[turn % 2].running);
    assert_true(side[0].ended == 1 && side[1].ended == 1);
    for (int i = 0; i < 2; i++) coll_close(&side[i].coll);
    ends_close(end, 2);
}

/* A trial of parts lasts until each has been used once, and the timed calls after that. */
static void test_passes_through_all_parts(void **state)
{
    enum { CALLS = 400 };
    struct end end[2];
    static struct side side[2];
    int parts = 0, lengths[COLL_DIRECT + 1] = {0};
    (void)state;
    ends_open(end, 2);
    for (int i = 0; i < 2; i++) {
        coll_open(&side[i].coll, &end[i].shm, COLL_FIRST, i, 2, (int32_t[]){0, 1});
        LIST_INIT(&side[i].running);
    }
    const struct coll_class *class = &side[1].coll.classes[TUTTI_BROADCAST * CHOICE_CLASSES + choice_class(SMALL * 8)];
    for (int call = 0; call < CALLS; call++) {
        uint64_t before = class->end;
        for (int i = 1; i >= 0; i--) begin(&side[i]);
        for (int turn = 0; turn < 8; turn++) coll_progress(&side[turn % 2].running);
        assert_true(side[0].ended == 1 && side[1].ended == 1);
        const struct coll_op *ended = SLIST_FIRST(&side[1].coll.spare);
        int *length = &lengths[ended->path];
        if (ended->path == COLL_PIPELINED) parts = ended->parts;
        if (class->end != before && *length == 0) *length = (int)(class->end - before);
    }
    assert_true(parts > 0);
    assert_int_equal(lengths[COLL_EAGER], choice_short_span(choice_class(SMALL * 8)));
    assert_int_equal(lengths[COLL_PIPELINED], COLL_FRAGMENTS * COLL_PARTS / parts + TIMED_MAX);
    for (int i = 0; i < 2; i++) coll_close(&side[i].coll);
    ends_close(end, 2);
}

/* A rank without memory for the way that all have agreed on finds that again when it makes progress. */
static void test_no_memory_for_the_way(void **state)
{
    enum { BLOCK = 4096 };
    static int64_t data[2][2 * BLOCK];
    struct end end[2];
    static struct side side[2];
    struct coll_class *class[2];
    (void)state;
    ends_open(end, 2);
    for (int i = 0; i < 2; i++) {
        end[i].shm.can_read_memory = true;
        coll_open(&side[i].coll, &end[i].shm, COLL_FIRST, i, 2, (int32_t[]){0, 1});
        LIST_INIT(&side[i].running);
        class[i] = &side[i].coll.classes[TUTTI_ALL_TO_ALL * CHOICE_CLASSES + choice_class(sizeof data[i])];
        class[i]->calls = 1, class[i]->end = UINT64_MAX, class[i]->way = COLL_WAY(COLL_PIPELINED, 0);
    }
    tutti_op op[2];
    tutti_tensor tensor[2];
    for (int call = 0; call < 2; call++) {
        for (int i = 1; i >= call; i--) {
            tensor[i] = (tutti_tensor){data[i], 2 * BLOCK, TUTTI_INT64, {TUTTI_CPU, 0}};
            op[i] = (tutti_op){.kind = TUTTI_ALL_TO_ALL, .dtype = TUTTI_INT64, .n_in = 1, .n_out = 1, .call = 5};
            op[i].in = op[i].out = &tensor[i];
            side[i].ended = 0;
            side[i].request = (tutti_request){.fingerprint = 7, .owner = &side[i].ended};
            if (coll_begin(&side[i].coll, &op[i], &side[i].request, &side[i].running) == TUTTI_REQUEST_DONE)
                side[i].ended = 1;
        }
        if (call == 1) break;
        for (int turn = 0; turn < 8; turn++) coll_progress(&side[turn % 2].running);
        assert_true(side[0].ended == 1 && side[1].ended == 1);
        class[1]->end = class[1]->calls; /* a span begins, which all take directly */
        atomic_store(word_of(&side[1].coll, class[1]), UINT64_C(1000) << WAY_BITS | COLL_WAY(COLL_DIRECT, 0));
        end[1].shm.can_read_memory = false; /* so that there is no buffer */
    }
    assert_int_equal(side[1].ended, 0);
    coll_progress(&side[1].running);
    assert_int_equal(side[1].ended, TUTTI_ERR_NO_MEMORY);
    for (int i = 0; i < 2; i++) coll_close(&side[i].coll);
    ends_close(end, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_waits_for_the_word),
        cmocka_unit_test(test_waits_for_the_word_with_free_buffers),
        cmocka_unit_test(test_passes_through_all_parts),
        cmocka_unit_test(test_no_memory_for_the_way),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
