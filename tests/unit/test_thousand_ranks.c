/* A group of 1,024 ranks in one thread.  Every algorithm of every collective runs through the real executor, over real
 * memory and with real values.
 *
 * Each rank has a plan and an exec.  Messages go through one table in memory.  Some sends are copied and end at once.
 * The others end when they meet their receive.  The next rank to run is drawn at random. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "coll/coll.h"
#include "plan/exec.h"

enum { RANKS = 1024, PER_HOST = 32, ROOT = 777, BUCKETS = 1 << 20 };

struct rank {
    int number;
    bool queued;
    struct coll_args args;
    struct plan *plan;
    struct exec *exec;
    tutti_tensor in, out;
};

/* A send or a receive that waits for its counterpart. */
struct waiting {
    struct waiting *next;
    uint64_t key;
    struct rank *rank;
    tutti_request *request; /* NULL: a completed send, whose data follow */
    bool sends;
    size_t bytes;
    char data[];
};

static struct rank ranks[RANKS];
static struct waiting *table[BUCKETS];
static int queue[RANKS], n_queued;
static uint64_t random_state;

static uint64_t mix(uint64_t x)
{
    x ^= x >> 31, x *= 0x7fb5d329728ea185u;
    x ^= x >> 27, x *= 0x81dadef4bc2dd44du;
    return x ^ x >> 33;
}

static uint32_t draw(uint32_t below)
{
    random_state += 0x9e3779b97f4a7c15u;
    return (uint32_t)(((mix(random_state) >> 32) * below) >> 32);
}

/* ---- messages -------------------------------------------------------------------------------------------------- */

static void make_runnable(struct rank *rank)
{
    if (rank->queued) return;
    rank->queued = true;
    queue[n_queued++] = rank->number;
}

static uint64_t message_key(int from, int to, uint64_t tag)
{
    return tag << 20 | (uint64_t)from << 10 | (uint64_t)to;
}

/* Removes and returns the entry under key, or NULL. */
static struct waiting *take_waiting(uint64_t key)
{
    struct waiting **at = &table[mix(key) % BUCKETS];
    while (*at != NULL && (*at)->key != key) at = &(*at)->next;
    struct waiting *found = *at;
    if (found != NULL) *at = found->next;
    return found;
}

static void put_waiting(uint64_t key, struct rank *rank, tutti_request *request, bool sends, bool copied)
{
    size_t bytes = copied ? request->bytes : 0;
    struct waiting *entry = malloc(sizeof *entry + bytes);
    struct waiting **head = &table[mix(key) % BUCKETS];
    *entry = (struct waiting){*head, key, rank, copied ? NULL : request, sends, request->bytes};
    if (bytes > 0) memcpy(entry->data, request->data, bytes);
    *head = entry;
}

static void deliver(tutti_request *receive, const void *data, size_t bytes)
{
    if (receive->bytes != bytes) fail_msg("a receive of %zu bytes meets %zu", receive->bytes, bytes);
    if (bytes == 0) return;
    if (receive->addend == NULL)
        memcpy(receive->data, data, bytes);
    else
        reduce_find(receive->dtype, receive->op)(receive->data, receive->addend, data, (int64_t)(bytes / 4));
}

static void end_request(struct waiting *entry)
{
    if (entry->request != NULL) exec_complete(entry->rank->exec, entry->request, TUTTI_OK);
    make_runnable(entry->rank);
    free(entry);
}

static int table_send(void *state, tutti_request *request)
{
    struct rank *rank = state;
    uint64_t key = message_key(rank->number, request->peer, request->tag);
    struct waiting *receive = take_waiting(key);
    if (receive != NULL) {
        assert_false(receive->sends);
        deliver(receive->request, request->data, request->bytes);
        end_request(receive);
        return TUTTI_REQUEST_DONE;
    }
    bool copied = draw(2) == 0;
    put_waiting(key, rank, request, true, copied);
    return copied ? TUTTI_REQUEST_DONE : TUTTI_REQUEST_PENDING;
}

static int table_recv(void *state, tutti_request *request)
{
    struct rank *rank = state;
    uint64_t key = message_key(request->peer, rank->number, request->tag);
    struct waiting *send = take_waiting(key);
    if (send == NULL) {
        put_waiting(key, rank, request, false, false);
        return TUTTI_REQUEST_PENDING;
    }
    assert_true(send->sends);
    deliver(request, send->request != NULL ? send->request->data : send->data, send->bytes);
    end_request(send);
    return TUTTI_REQUEST_DONE;
}

static const tutti_backend backend = {TUTTI_BACKEND_HEADER, .send = table_send, .recv = table_recv,
                                      .recv_reduce = table_recv};

/* ---- tensors --------------------------------------------------------------------------------------------------- */

static bool has_blocks_in(tutti_kind kind)
{
    return kind == TUTTI_SCATTER || kind == TUTTI_REDUCE_SCATTER || kind == TUTTI_ALL_TO_ALL;
}

static bool has_blocks_out(tutti_kind kind)
{
    return kind == TUTTI_GATHER || kind == TUTTI_ALL_GATHER || kind == TUTTI_ALL_TO_ALL;
}

static bool has_in(tutti_kind kind, int rank)
{
    if (kind == TUTTI_BARRIER || kind == TUTTI_BROADCAST) return false;
    return kind != TUTTI_SCATTER || rank == ROOT;
}

static bool has_out(tutti_kind kind, int rank)
{
    if (kind == TUTTI_BARRIER) return false;
    return (kind != TUTTI_GATHER && kind != TUTTI_REDUCE) || rank == ROOT;
}

/* Returns element i of a rank's input. */
static int32_t given(int rank, int64_t i)
{
    return (int32_t)mix((uint64_t)rank << 32 | (uint64_t)i);
}

/* Returns the wrapped sum of element i over all ranks. */
static int32_t given_sum(int64_t i)
{
    uint32_t sum = 0;
    for (int rank = 0; rank < RANKS; rank++) sum += (uint32_t)given(rank, i);
    return (int32_t)sum;
}

static tutti_tensor new_tensor(int64_t numel)
{
    return (tutti_tensor){.data = calloc((size_t)numel, 4), .numel = numel, .dtype = TUTTI_INT32};
}

static void make_tensors(struct rank *rank, tutti_kind kind, int64_t count)
{
    rank->in = rank->out = (tutti_tensor){.dtype = TUTTI_INT32};
    if (has_in(kind, rank->number)) rank->in = new_tensor(has_blocks_in(kind) ? count * RANKS : count);
    if (has_out(kind, rank->number)) rank->out = new_tensor(has_blocks_out(kind) ? count * RANKS : count);
    for (int64_t i = 0; i < rank->in.numel; i++) ((int32_t *)rank->in.data)[i] = given(rank->number, i);
    for (int64_t i = 0; kind == TUTTI_BROADCAST && rank->number == ROOT && i < count; i++)
        ((int32_t *)rank->out.data)[i] = given(ROOT, i);
}

/* Returns element i of rank's output, as the collective defines it. sums holds the sums over all ranks, or for a scan
 * over the ranks before. */
static int32_t expected(tutti_kind kind, int rank, int64_t i, int64_t count, const int32_t *sums)
{
    switch (kind) {
    case TUTTI_BROADCAST:
        return given(ROOT, i);
    case TUTTI_ALL_REDUCE:
    case TUTTI_REDUCE:
    case TUTTI_SCAN:
    case TUTTI_EXSCAN:
        return sums[i];
    case TUTTI_REDUCE_SCATTER:
        return sums[rank * count + i];
    case TUTTI_SCATTER:
        return given(ROOT, rank * count + i);
    case TUTTI_ALL_TO_ALL:
        return given((int)(i / count), rank * count + i % count);
    default: /* gathers */
        return given((int)(i / count), i % count);
    }
}

/* Adds a rank's input to the running sums of a scan. */
static void add_given(int32_t *sums, int rank, int64_t n)
{
    for (int64_t i = 0; i < n; i++) sums[i] = (int32_t)((uint32_t)sums[i] + (uint32_t)given(rank, i));
}

static void check_rank(const struct coll_algorithm *algorithm, int rank, int64_t count, const int32_t *sums)
{
    for (int64_t i = 0; i < ranks[rank].out.numel; i++) {
        int32_t got = ((const int32_t *)ranks[rank].out.data)[i];
        int32_t want = expected(algorithm->kind, rank, i, count, sums);
        if (got != want)
            fail_msg("%s %s: rank %d has %d at %lld, not %d", coll_kind_name(algorithm->kind), algorithm->name, rank,
                     got, (long long)i, want);
    }
}

static void check_output(const struct coll_algorithm *algorithm, int64_t count)
{
    tutti_kind kind = algorithm->kind;
    bool scans = kind == TUTTI_SCAN || kind == TUTTI_EXSCAN;
    bool reduces = kind == TUTTI_ALL_REDUCE || kind == TUTTI_REDUCE || kind == TUTTI_REDUCE_SCATTER;
    int64_t n = reduces || scans ? ranks[ROOT].in.numel : 0;
    int32_t *sums = calloc((size_t)(n + 1), sizeof *sums);
    for (int64_t i = 0; reduces && i < n; i++) sums[i] = given_sum(i);
    for (int r = 0; r < RANKS; r++) {
        if (kind == TUTTI_SCAN) add_given(sums, r, n);
        check_rank(algorithm, r, count, sums);
        if (kind == TUTTI_EXSCAN) add_given(sums, r, n);
    }
    free(sums);
}

/* ---- the group ------------------------------------------------------------------------------------------------- */

static void make_rank(struct rank *rank, const struct coll_algorithm *algorithm, const struct coll_args *args,
                      int64_t recv_reduce_most)
{
    rank->args = *args;
    rank->args.rank = rank->number;
    rank->args.in.list = rank->args.out.list = false;
    if (!has_blocks_in(args->kind) || !has_in(args->kind, rank->number)) rank->args.in = (struct coll_blocks){0};
    if (!has_blocks_out(args->kind) || !has_out(args->kind, rank->number)) rank->args.out = (struct coll_blocks){0};
    rank->plan = coll_build(algorithm, &rank->args, recv_reduce_most);
    assert_non_null(rank->plan);
    rank->exec = exec_new(rank->plan);
    assert_non_null(rank->exec);
    make_tensors(rank, args->kind, args->count);
    rank->exec->run = (struct exec_run){.backend = &backend,
                                        .state = rank,
                                        .in = &rank->in,
                                        .out = &rank->out,
                                        .n_in = has_in(args->kind, rank->number),
                                        .n_out = has_out(args->kind, rank->number),
                                        .dtype = TUTTI_INT32,
                                        .op = TUTTI_SUM,
                                        .owner = rank};
}

static void run_all(const struct coll_algorithm *algorithm)
{
    for (int r = 0; r < RANKS; r++) {
        assert_int_equal(exec_start(ranks[r].exec), TUTTI_OK);
        make_runnable(&ranks[r]);
    }
    while (n_queued > 0) {
        int at = (int)draw((uint32_t)n_queued);
        struct rank *rank = &ranks[queue[at]];
        queue[at] = queue[--n_queued];
        rank->queued = false;
        if (exec_advance(rank->exec)) make_runnable(rank);
    }
    for (int r = 0; r < RANKS; r++)
        if (ranks[r].exec->left != 0 || ranks[r].exec->status != TUTTI_OK)
            fail_msg("%s %s: rank %d has %u steps left", coll_kind_name(algorithm->kind), algorithm->name, r,
                     ranks[r].exec->left);
}

static void free_rank(struct rank *rank)
{
    exec_free(rank->exec);
    plan_free(rank->plan);
    free(rank->in.data);
    free(rank->out.data);
}

static void run_algorithm(const struct coll_algorithm *algorithm, int64_t count, int64_t recv_reduce_most,
                          const struct coll_hosts *hosts)
{
    static int64_t counts[RANKS], offsets[RANKS];
    for (int r = 0; r < RANKS; r++) {
        counts[r] = count;
        offsets[r] = r * count;
        ranks[r].number = r;
    }
    struct coll_args args = {.kind = algorithm->kind,
                             .size = RANKS,
                             .root = ROOT,
                             .count = count,
                             .even = true,
                             .segment = 512,
                             .element = 4,
                             .hosts = hosts,
                             .in = {.count = counts, .at = offsets},
                             .out = {.count = counts, .at = offsets}};
    for (int r = 0; r < RANKS; r++) make_rank(&ranks[r], algorithm, &args, recv_reduce_most);
    run_all(algorithm);
    check_output(algorithm, count);
    for (int r = 0; r < RANKS; r++) free_rank(&ranks[r]);
}

/* Runs on 32 hosts of 32 ranks for the algorithms that use hosts. */
static void test_every_algorithm(void **state)
{
    (void)state;
    int32_t host[RANKS];
    for (int r = 0; r < RANKS; r++) host[r] = r / PER_HOST;
    struct coll_hosts *hosts = coll_hosts_new(host, RANKS);
    assert_non_null(hosts);
    for (const struct coll_algorithm *a = coll_algorithms; a->name != NULL; a++) {
        bool blocks = has_blocks_in(a->kind) || has_blocks_out(a->kind);
        int64_t count = a->kind == TUTTI_BARRIER ? 0 : blocks ? 2 : RANKS + 3;
        print_message("%s %s\n", coll_kind_name(a->kind), a->name);
        run_algorithm(a, count, a->kind == TUTTI_REDUCE ? PLAN_NEVER : PLAN_ALWAYS, hosts);
    }
    free(hosts);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_every_algorithm)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
