/* Ranks as threads over one mapping of the segment: what the tests of shared memory stand on.  The sources are
 * included, so that a test may look into them. */
#ifndef SHM_ENDS_H
#define SHM_ENDS_H
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "../../backends/tcp/shm/affinity.c"
#include "../../backends/tcp/shm/arena.c"
#include "../../backends/tcp/shm/coll/cache.c"
#include "../../backends/tcp/shm/coll/coll.c"
#include "../../backends/tcp/shm/coll/direct.c"
#include "../../backends/tcp/shm/coll/directory.c"
#include "../../backends/tcp/shm/coll/eager.c"
#include "../../backends/tcp/shm/coll/layout.c"
#include "../../backends/tcp/shm/coll/path.c"
#include "../../backends/tcp/shm/coll/pipelined.c"
#include "../../backends/tcp/shm/coll/shared.c"
#include "../../backends/tcp/shm/coll/steps.c"
#include "../../backends/tcp/shm/coll/store.c"
#include "../../backends/tcp/shm/copy_in.c"
#include "../../backends/tcp/shm/cost_model.c"
#include "../../backends/tcp/shm/fifo.c"
#include "../../backends/tcp/shm/liveness.c"
#include "../../backends/tcp/shm/non_temporal.c"
#include "../../backends/tcp/shm/ring.c"
#include "../../backends/tcp/shm/segment.c"

#include "../../backends/tcp/shm/stream.c"

#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/wait.h>
#include <time.h>

enum { SILENCE_MS = 10000, SIZE_MOST = 9000 };

/* ---- a host ------------------------------------------------------------------------------------------------ */

static int64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static const char *no_env(const char *name)
{
    (void)name;
    return NULL;
}

static int error(int status, const char *format, ...)
{
    (void)format;
    return status;
}

static void zero(void *buffer, size_t bytes)
{
    memset(buffer, 0, bytes);
}

static void completed(tutti_request *request, int status)
{
    *(int *)request->owner = status == TUTTI_OK ? 1 : status;
}

static void add_many(tutti_dtype dtype, tutti_reduce_op op, void *data, const void *const *src, int32_t n_src,
                     int64_t n)
{
    (void)dtype;
    (void)op;
    for (int64_t i = 0; i < n; i++) {
        int64_t sum = 0;
        for (int32_t k = 0; k < n_src; k++) sum += ((const int64_t *)src[k])[i];
        ((int64_t *)data)[i] = sum;
    }
}

static const tutti_host host = {.abi = TUTTI_BACKEND_ABI,
                                .size = sizeof host,
                                .now_ns = now_ns,
                                .env = no_env,
                                .error = error,
                                .random = zero,
                                .complete = completed,
                                .reduce_many = add_many};

static inline uint64_t next_random(uint64_t *state)
{
    return *state = *state * 6364136223846793005u + 1442695040888963407u;
}

/* A clock by which now this is the faster way, now that. */
static _Thread_local uint64_t chance;

__attribute__((unused)) static int64_t chance_ns(void)
{
    return now_ns() + (int64_t)(next_random(&chance) >> 46);
}

/* ---- two ranks, or three ----------------------------------------------------------------------------------- */

enum { ENDS = 3 };

struct end {
    struct shm shm;
    struct shm_peer peers[ENDS];
    int16_t local_ranks[ENDS];
    uint64_t got;    /* messages */
    int wrong, lost; /* contents; wake-ups */
    int rounds;
    uint64_t least_sleep;
};

static uint8_t byte_of(uint64_t message, size_t i)
{
    return (uint8_t)(message * 31 + i * 7);
}

static size_t size_of(uint64_t message)
{
    return message % 5 == 0 ? message * 97 % SIZE_MOST : message % (SHM_INLINE + 9);
}

static bool on_message(void *user, const struct transport *from, const struct transport_header *header,
                       const void *payload, size_t bytes)
{
    (void)from;
    struct end *end = user;
    uint64_t said = header->group;
    end->wrong += said != end->got || bytes != size_of(said);
    for (size_t i = 0; i < bytes; i++) end->wrong += ((const uint8_t *)payload)[i] != byte_of(said, i);
    end->got++;
    return true;
}

static void on_lost(void *user, int32_t rank, const char *why)
{
    (void)rank;
    (void)why;
    ((struct end *)user)->wrong++;
}

static const struct transport_events events = {.message = on_message, .lost = on_lost};

static void ends_open(struct end *end, int n)
{
    int bell[ENDS];
    for (int i = 0; i < n; i++) bell[i] = eventfd(0, EFD_NONBLOCK);
    memset(end, 0, (size_t)n * sizeof *end);
    shm_measure(&end[0].shm, n, coll_bytes(n));
    int memfd = shm_segment_make(end[0].shm.bytes, end[0].shm.colls_at);
    char *base = mmap(NULL, end[0].shm.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, memfd, 0);
    assert_true(memfd >= 0 && base != MAP_FAILED);
    for (int i = 0; i < n; i++) {
        struct shm *shm = &end[i].shm;
        shm_measure(shm, n, coll_bytes(n));
        shm->config =
            (struct transport_config){.rank = i, .world_size = n, .host = &host, .events = &events, .user = &end[i]};
        shm->local_rank = i;
        shm->peer = end[i].peers;
        shm->local_rank_of = end[i].local_ranks;
        shm->memfd = memfd;
        shm->base = base;
        shm->polls = shm->polls_max = 64;
        shm->doorbell_fd = bell[i];
        shm->watch = epoll_create1(0);
        for (int k = 0; k < n; k++) {
            end[i].local_ranks[k] = (int16_t)k;
            shm->peer[k] = (struct shm_peer){.rank = k,
                                             .local_rank = k,
                                             .lost = k == i,
                                             .doorbell_fd = bell[k],
                                             .liveness_fd = -1,
                                             .out = ring_at(shm, i, k),
                                             .in = ring_at(shm, k, i)};
            STAILQ_INIT(&shm->peer[k].waiting);
        }
    }
    assert_int_equal(coll_directory_reserve(&end[0].shm, n), COLL_FIRST); /* for the test's first group */
}

__attribute__((unused)) static void pair_open(struct end end[2])
{
    ends_open(end, 2);
}

static void ends_close(struct end *end, int n)
{
    munmap(end[0].shm.base, end[0].shm.bytes);
    close(end[0].shm.memfd);
    for (int i = 0; i < n; i++) {
        close(end[i].shm.doorbell_fd);
        close(end[i].shm.watch);
    }
}

__attribute__((unused)) static void pair_close(struct end end[2])
{
    ends_close(end, 2);
}

__attribute__((unused)) static void run_both(struct end end[2], void *(*body)(void *))
{
    pthread_t thread[2];
    for (int i = 0; i < 2; i++) assert_int_equal(pthread_create(&thread[i], NULL, body, &end[i]), 0);
    for (int i = 0; i < 2; i++) pthread_join(thread[i], NULL);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(end[i].wrong, 0);
        assert_int_equal(end[i].lost, 0);
    }
}

__attribute__((unused)) static void run_two(struct end end[2], void *(*body)(void *))
{
    pair_open(end);
    run_both(end, body);
    pair_close(end);
}

/* ---- sleeping ---------------------------------------------------------------------------------------------- */

/* As the core before it sleeps for long: it arms, sleeps for a moment, and arms again. */
__attribute__((unused)) static bool finds_nothing(struct end *end, const struct coll_list *colls)
{
    for (int i = 0; i < 2; i++) {
        struct pollfd doorbell = {end->shm.doorbell_fd, POLLIN, 0};
        if (shm_arm(&end->shm, (int[2]){0}) == 0 || (colls != NULL && coll_is_ready(colls))) return false;
        if (i == 0 && ppoll(&doorbell, 1, &(struct timespec){.tv_nsec = 100000}, NULL) > 0) return false;
    }
    return true;
}

__attribute__((unused)) static bool finds_no_message(struct end *end)
{
    return finds_nothing(end, NULL);
}

/* One operation to its end: 1, or what it failed with. */
__attribute__((unused)) static int run_op(struct end *end, struct coll_segment *coll, struct coll_list *running,
                                          const tutti_op *op, uint64_t number)
{
    int ended = 0;
    tutti_request request = {.fingerprint = number, .owner = &ended};
    if (coll_begin(coll, op, &request, running) == TUTTI_REQUEST_DONE) return 1;
    while (ended == 0 && end->lost == 0) {
        if (coll_progress(running) + shm_progress(&end->shm) > 0 || !finds_nothing(end, running)) continue;
        struct pollfd doorbell = {end->shm.doorbell_fd, POLLIN, 0};
        end->lost += poll(&doorbell, 1, SILENCE_MS) == 0;
    }
    return ended;
}

/* ---- moments ----------------------------------------------------------------------------------------------- */

/* One rank brings something at the very moment at which the other one is about to sleep: that one finds it, or is
 * woken. */
struct moment {
    void (*before)(struct end *, int i); /* of both; NULL: nothing */
    void (*bring)(struct end *, int i);
    bool (*finds_nothing)(struct end *); /* which arms the sleeper */
    void (*after)(struct end *, int i);  /* the sleeper's */
};

enum { MOMENTS = 100000 };

static const struct moment *moment;
static atomic_int gate[2];

static void pass_gate(int i, int round)
{
    atomic_store_explicit(&gate[i], round, memory_order_seq_cst);
    for (int spins = 0; atomic_load_explicit(&gate[1 - i], memory_order_seq_cst) < round; spins++)
        if (spins > 1000) sched_yield();
}

static void *moments(void *argument)
{
    struct end *end = argument;
    for (int i = 0; i < MOMENTS; i++) {
        bool sleeps = false;
        if (moment->before != NULL) moment->before(end, i);
        pass_gate(end->shm.local_rank, 2 * i + 1);
        for (volatile int late = end->shm.local_rank == 0 ? i % 300 : 300; late > 0; late--)
            continue; /* at many distances */
        if (end->shm.local_rank == 0)
            moment->bring(end, i);
        else
            sleeps = moment->finds_nothing(end);
        pass_gate(end->shm.local_rank, 2 * i + 2);
        if (end->shm.local_rank == 0) continue;
        struct pollfd doorbell = {end->shm.doorbell_fd, POLLIN, 0};
        if (sleeps && poll(&doorbell, 1, 0) == 0) end->lost++;
        moment->after(end, i);
    }
    return NULL;
}

__attribute__((unused)) static void run_moments(struct end end[2], const struct moment *what)
{
    moment = what;
    gate[0] = gate[1] = 0;
    run_both(end, moments);
}

#endif
