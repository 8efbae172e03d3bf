/* Messages of the tcp plug-in that are reduced on arrival. */
#include "rank.h"

/* Starts a receive from the other rank, with sum = addend + message. */
static void start_sum(struct rank *self, struct message *m, uint64_t tag, float *sum, const float *addend, size_t n,
                      uint32_t flags)
{
    *m = (struct message){0};
    m->request = (tutti_request){.peer = 1 - self->rank,
                                 .flags = flags,
                                 .tag = tag,
                                 .fingerprint = 5,
                                 .data = sum,
                                 .addend = addend,
                                 .bytes = n * sizeof *sum,
                                 .dtype = TUTTI_FLOAT32,
                                 .op = TUTTI_SUM,
                                 .owner = &m->done};
    rank_begun(m, self->backend->recv_reduce(self->state, &m->request));
}

static void count_up(float *data, size_t n, size_t from)
{
    for (size_t i = 0; i < n; i++) data[i] = (float)(from + i);
}

/* True if element i is i * times + rest. */
static bool is_counted(const float *data, size_t n, size_t times, size_t rest)
{
    for (size_t i = 0; i < n; i++)
        if (data[i] != (float)(times * i + rest)) return false;
    return true;
}

enum { SUM_MOST = 4096 };

/* Receives in place or not, before the message or after it, by a blocking caller or not, and from memory that both
 * ranks map. */
static int sums_from(struct rank *self, float *out, uint64_t tag)
{
    static const size_t size[] = {1, 3, 26, 27, 1000, 1024, 1025, SUM_MOST};
    static float own[SUM_MOST], sum[SUM_MOST + 1];
    int32_t other = 1 - self->rank;
    for (size_t i = 0; i < sizeof size / sizeof *size; i++) {
        for (int way = 0; way < 8; way++, tag++) {
            size_t n = size[i];
            struct message send, recv;
            uint32_t flags = way & 4 ? TUTTI_REQUEST_AWAITED : E;
            float *addend = way & 1 ? sum : own;
            count_up(addend, n, 2);
            count_up(out, n, 3);
            sum[n] = -1;
            if (way & 2) start_sum(self, &recv, tag, sum, addend, n, flags);
            rank_send(self, &send, other, tag, out, n * sizeof *out, flags);
            if (!(way & 2)) start_sum(self, &recv, tag, sum, addend, n, flags);
            CHECK(rank_wait(self, &recv) == TUTTI_OK && rank_wait(self, &send) == TUTTI_OK);
            CHECK(is_counted(sum, n, 2, 5) && sum[n] == -1);
            CHECK(addend == sum || is_counted(own, n, 1, 2));
        }
    }
    return 0;
}

static int sums(struct rank *self)
{
    static float out[SUM_MOST];
    void *mapped = NULL;
    struct message m;
    CHECK(rank_open(self) == TUTTI_OK);
    CHECK(self->backend->recv_reduce_most >= (int64_t)sizeof out);
    CHECK(sums_from(self, out, 100) == 0);
    int status = self->backend->alloc(self->state, sizeof out, &mapped);
    CHECK(status == TUTTI_OK || status == TUTTI_ERR_UNSUPPORTED);
    if (status == TUTTI_OK) CHECK(sums_from(self, mapped, 1000) == 0);
    start_sum(self, &m, 1, out, out, (size_t)self->backend->recv_reduce_most, E);
    CHECK(m.done.is && m.done.status == TUTTI_ERR_INVALID_ARGUMENT); /* four times too much */
    rank_barrier(self, "summed");
    if (status == TUTTI_OK) CHECK(self->backend->free(self->state, mapped) == TUTTI_OK);
    rank_close(self);
    return 0;
}

static void test_sums(void **state)
{
    (void)state;
    rank_run(sums, 2);
}

/* A peer sends more than it may send eagerly.  The rest goes by RTS, and is then written, read, or sent in parts. */
static int sums_of_a_flood(struct rank *self)
{
    enum { N = 300 };
    static struct message m[N];
    static float data[SUM_MOST], sum[SUM_MOST];
    CHECK(rank_open(self) == TUTTI_OK);
    count_up(data, SUM_MOST, 1);
    if (self->rank == 0) {
        for (int i = 0; i < N; i++) rank_send(self, &m[i], 1, 1, data, sizeof data, E);
        CHECK(!m[N - 1].done.is);
        for (int i = 0; i < N; i++) CHECK(rank_wait(self, &m[i]) == TUTTI_OK);
    } else {
        for (int i = 0; i < N; i++) {
            start_sum(self, &m[i], 1, sum, i % 2 ? sum : data, SUM_MOST, E);
            CHECK(rank_wait(self, &m[i]) == TUTTI_OK);
            CHECK(is_counted(sum, SUM_MOST, i % 2 ? 3 : 2, i % 2 ? 3 : 2));
        }
    }
    rank_close(self);
    return 0;
}

static void test_sums_of_a_flood(void **state)
{
    (void)state;
    rank_run(sums_of_a_flood, 2);
}

/* A receive of the wrong size, a cancelled one, and one whose peer dies are reported like any receive. */
static int sums_that_fail(struct rank *self)
{
    static float data[SUM_MOST], sum[SUM_MOST];
    struct message m, next;
    CHECK(rank_open(self) == TUTTI_OK);
    count_up(data, SUM_MOST, 1);
    if (self->rank == 0) {
        rank_send(self, &m, 1, 1, data, sizeof data, E);
        rank_send(self, &next, 1, 2, data, sizeof data, E);
        int status = rank_wait(self, &m);
        CHECK(status == TUTTI_OK || status == TUTTI_ERR_MISMATCH);
        CHECK(rank_wait(self, &next) == TUTTI_OK);
        rank_barrier(self, "failed");
        _exit(0);
    }
    start_sum(self, &m, 1, sum, data, SUM_MOST - 1, E);
    CHECK(rank_wait(self, &m) == TUTTI_ERR_MISMATCH && m.request.found_bytes == sizeof data);
    start_sum(self, &m, 3, sum, data, SUM_MOST, E);
    CHECK(!m.done.is && self->backend->cancel(self->state, &m.request) == TUTTI_OK);
    start_sum(self, &next, 2, sum, data, SUM_MOST, E);
    CHECK(rank_wait(self, &next) == TUTTI_OK && is_counted(sum, SUM_MOST, 2, 2));
    rank_barrier(self, "failed");
    start_sum(self, &m, 4, sum, data, SUM_MOST, E);
    CHECK(rank_wait(self, &m) == TUTTI_ERR_PEER_LOST);
    rank_close(self);
    return 0;
}

static void test_sums_that_fail(void **state)
{
    (void)state;
    rank_run_until_silent(sums_that_fail, 2, NULL);
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sums),
        cmocka_unit_test(test_sums_of_a_flood),
        cmocka_unit_test(test_sums_that_fail),
    };
    return rank_tests_main(argc, argv, &(struct rank_tests){.all = tests, .n_all = sizeof tests / sizeof *tests});
}
