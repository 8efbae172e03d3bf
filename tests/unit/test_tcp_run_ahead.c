/* Operations in flight on a collective segment: which of them are posted before their turn, and that none overwrites
 * what another rank has yet to read. */
#include <sched.h>

#include "monotonic.h"
#include "shm_ends.h"

enum { IN_FLIGHT = 48, NUMEL_MOST = 2 * COLL_SMALL / 8 };

struct pending {
    tutti_request request;
    int64_t in[NUMEL_MOST], out[NUMEL_MOST], numel, number;
    int ended;
};

struct flight {
    struct coll_segment coll;
    struct coll_list running;
    struct pending pending[IN_FLIGHT];
};

static void open_flight(struct end *end, struct flight *flight)
{
    *flight = (struct flight){.running = LIST_HEAD_INITIALIZER(running)};
    coll_open(&flight->coll, &end->shm, COLL_FIRST, end->shm.local_rank, 2, (int32_t[]){0, 1});
}

static void begin(struct flight *flight, int at, int64_t number, int64_t numel)
{
    struct pending *pending = &flight->pending[at];
    tutti_tensor in = {pending->in, numel, TUTTI_INT64, {TUTTI_CPU, 0}};
    tutti_tensor out = {pending->out, numel, TUTTI_INT64, {TUTTI_CPU, 0}};
    tutti_op op = {
        .kind = TUTTI_ALL_REDUCE, .dtype = TUTTI_INT64, .n_in = 1, .n_out = 1, .in = &in, .out = &out, .async = true};
    pending->numel = numel;
    pending->number = number;
    pending->ended = 0;
    pending->request = (tutti_request){.fingerprint = (uint64_t)number + 1, .owner = &pending->ended};
    for (int64_t k = 0; k < numel; k++) pending->in[k] = number * 1000 + k + flight->coll.rank;
    if (coll_begin(&flight->coll, &op, &pending->request, &flight->running) == TUTTI_REQUEST_DONE) pending->ended = 1;
}

static bool is_right(const struct pending *pending)
{
    bool right = pending->ended == 1;
    for (int64_t k = 0; k < pending->numel; k++) right &= pending->out[k] == 2 * (pending->number * 1000 + k) + 1;
    return right;
}

static int count_posted(const struct flight *flight)
{
    int n = 0;
    while (n < COLL_SLOTS && coll_has_posted(&flight->coll, 0, (uint64_t)n + 1)) n++;
    return n;
}

/* Rank 0 begins operations of these sizes; rank 1 has not called yet.  Then both end all of them. */
static void posts_ahead(bool shares_cores, const int64_t *numel, int n, int posted)
{
    static struct flight flight[2];
    struct end end[2];
    ends_open(end, 2);
    for (int i = 0; i < 2; i++) end[i].shm.shares_cores = shares_cores;
    for (int i = 0; i < 2; i++) open_flight(&end[i], &flight[i]);
    for (int i = 0; i < n; i++) begin(&flight[0], i, i, numel[i]);
    assert_int_equal(count_posted(&flight[0]), posted);
    for (int i = 0; i < n; i++) begin(&flight[1], i, i, numel[i]);
    for (int i = 0; i < 4 * n; i++) coll_progress(&flight[i % 2].running);
    for (int i = 0; i < n; i++) assert_true(is_right(&flight[0].pending[i]) && is_right(&flight[1].pending[i]));
    for (int i = 0; i < 2; i++) coll_close(&flight[i].coll);
    ends_close(end, 2);
}

static void posts_alike(bool shares_cores, size_t bytes, int posted)
{
    int64_t numel[IN_FLIGHT];
    for (int i = 0; i < IN_FLIGHT; i++) numel[i] = (int64_t)bytes / 8;
    posts_ahead(shares_cores, numel, IN_FLIGHT, posted);
}

/* Two ranks with a core each take larger ones in lockstep, one after another. */
static void test_short_ones(void **state)
{
    (void)state;
    posts_alike(false, 8, 1 + COLL_RUN_AHEAD);
    posts_alike(false, COLL_ASKED, 1 + COLL_RUN_AHEAD);
    posts_alike(false, COLL_ASKED + 8, 1);
    posts_alike(true, COLL_SMALL, 1 + COLL_RUN_AHEAD);
}

static void test_not_beyond_a_longer_one(void **state)
{
    static const int64_t longer = COLL_SMALL / 8 + 1;
    (void)state;
    posts_ahead(true, (int64_t[]){1, 1, longer, 1, 1}, 5, 2);
    posts_ahead(true, (int64_t[]){longer, 1, 1}, 3, 1);
    posts_ahead(true, (int64_t[]){longer, longer, 1}, 3, 1);
}

/* Both ranks keep different numbers of operations in flight, of all sizes. */
static void *keep_in_flight(void *argument)
{
    enum { OPERATIONS = 20000 };
    static struct flight flights[2];
    struct end *end = argument;
    struct flight *flight = &flights[end->shm.local_rank];
    uint64_t random = (uint64_t)end->shm.local_rank + 1;
    int64_t begun = 0, done = 0, moved_ns = monotonic_ns();
    open_flight(end, flight);
    while (done < OPERATIONS && end->wrong + end->lost == 0) {
        int most = 1 + (int)(ends_next_random(&random) >> 33) % IN_FLIGHT;
        for (; begun < OPERATIONS && begun - done < most; begun++)
            begin(flight, (int)(begun % IN_FLIGHT), begun,
                  begun / 100 % 3 == 0 ? 1 + begun % NUMEL_MOST : 1 + begun % 9);
        if (coll_progress(&flight->running) > 0)
            moved_ns = monotonic_ns();
        else if (sched_yield() != 0 || monotonic_ns() - moved_ns > (int64_t)ENDS_SILENCE_MS * 1000000)
            end->lost++;
        for (; done < begun && flight->pending[done % IN_FLIGHT].ended != 0; done++)
            end->wrong += !is_right(&flight->pending[done % IN_FLIGHT]);
    }
    coll_close(&flight->coll);
    return NULL;
}

static void test_mixed(void **state)
{
    struct end end[2];
    (void)state;
    ends_open_and_run(end, keep_in_flight);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_short_ones),
        cmocka_unit_test(test_not_beyond_a_longer_one),
        cmocka_unit_test(test_mixed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
