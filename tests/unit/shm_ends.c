#include "unit/shm_ends.h"

#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "monotonic.h"

/* ---- a host ------------------------------------------------------------------------------------------------ */

static const char *no_env(const char *name)
{
    (void)name;
    return NULL;
}

int ends_error(int status, const char *format, ...)
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

void ends_add(tutti_dtype dtype, tutti_reduce_op op, void *data, const void *const *src, int32_t n_src, int64_t n)
{
    (void)dtype;
    (void)op;
    for (int64_t i = 0; i < n; i++) {
        int64_t sum = 0;
        for (int32_t k = 0; k < n_src; k++) sum += ((const int64_t *)src[k])[i];
        ((int64_t *)data)[i] = sum;
    }
}

const tutti_host ends_host = {.abi = TUTTI_BACKEND_ABI,
                              .size = sizeof ends_host,
                              .now_ns = monotonic_ns,
                              .env = no_env,
                              .error = ends_error,
                              .random = zero,
                              .complete = completed,
                              .reduce_many = ends_add};

uint64_t ends_next_random(uint64_t *state)
{
    return *state = *state * 6364136223846793005u + 1442695040888963407u;
}

int ends_pick(uint64_t *random, int n)
{
    return (int)((ends_next_random(random) >> 33) % (uint64_t)n);
}

int ends_draw(uint64_t seed, int64_t number, uint64_t what, int n)
{
    uint64_t random = seed + what * 31 + (uint64_t)number * 7919;
    for (int i = 0; i < 4; i++) ends_next_random(&random);
    return ends_pick(&random, n);
}

_Thread_local uint64_t ends_clock_seed;

int64_t ends_random_clock_ns(void)
{
    return monotonic_ns() + (int64_t)(ends_next_random(&ends_clock_seed) >> 46);
}

/* ---- two ranks, or three ----------------------------------------------------------------------------------- */

uint8_t ends_byte(uint64_t message, size_t i)
{
    return (uint8_t)(message * 31 + i * 7);
}

size_t ends_bytes(uint64_t message)
{
    return message % 5 == 0 ? message * 97 % ENDS_BYTES_MOST : message % (SHM_INLINE + 9);
}

static bool on_message(void *user, const struct transport *from, const struct transport_header *header,
                       const void *payload, size_t bytes)
{
    (void)from;
    struct end *end = user;
    uint64_t said = header->group;
    end->wrong += said != end->got || bytes != ends_bytes(said);
    for (size_t i = 0; i < bytes; i++) end->wrong += ((const uint8_t *)payload)[i] != ends_byte(said, i);
    end->got++;
    return true;
}

void ends_on_lost(void *user, int32_t rank, const char *why)
{
    (void)rank;
    (void)why;
    ((struct end *)user)->wrong++;
}

static const struct transport_events events = {.message = on_message, .lost = ends_on_lost};

void ends_open(struct end *end, int n)
{
    int doorbell[ENDS];
    for (int i = 0; i < n; i++) doorbell[i] = eventfd(0, EFD_NONBLOCK);
    memset(end, 0, (size_t)n * sizeof *end);
    shm_measure(&end[0].shm, n, coll_bytes(n));
    int memfd = shm_segment_make(end[0].shm.bytes, end[0].shm.bytes_at);
    char *base = mmap(NULL, end[0].shm.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, memfd, 0);
    assert_true(memfd >= 0 && base != MAP_FAILED);
    for (int i = 0; i < n; i++) {
        struct shm *shm = &end[i].shm;
        shm_measure(shm, n, coll_bytes(n));
        shm->config = (struct transport_config){
            .rank = i, .world_size = n, .host = &ends_host, .events = &events, .user = &end[i]};
        shm->local_rank = i;
        shm->peer = end[i].peers;
        shm->local_rank_of = end[i].local_ranks;
        shm->memfd = memfd;
        shm->base = base;
        shm->polls = shm->polls_max = 64;
        shm->doorbell_fd = doorbell[i];
        shm->watch = epoll_create1(0);
        for (int k = 0; k < n; k++) {
            end[i].local_ranks[k] = (int16_t)k;
            shm->peer[k] = (struct shm_peer){
                .rank = k, .local_rank = k, .lost = k == i, .doorbell_fd = doorbell[k], .liveness_fd = -1};
            STAILQ_INIT(&shm->peer[k].waiting);
        }
        shm_find_rings(shm);
    }
    assert_int_equal(coll_directory_reserve(&end[0].shm, n), COLL_FIRST); /* for the test's first group */
}

void ends_close(struct end *end, int n)
{
    munmap(end[0].shm.base, end[0].shm.bytes);
    close(end[0].shm.memfd);
    for (int i = 0; i < n; i++) {
        close(end[i].shm.doorbell_fd);
        close(end[i].shm.watch);
        for (int k = 0; k < n; k++) free(end[i].shm.peer[k].stores);
        spares_free(&end[i].shm.spares);
    }
}

size_t ends_memory(const struct end *end)
{
    struct stat status;
    assert_int_equal(fstat(end->shm.memfd, &status), 0);
    return (size_t)status.st_blocks * 512;
}

void ends_name_direct(struct coll_segment *segment, const tutti_op *op)
{
    static const tutti_path_row direct = {TUTTI_SCATTER, COLL_DIRECT, INT64_MAX};
    bool is_tensor = op->kind == TUTTI_SCATTER && !op->list;
    int64_t bytes = is_tensor ? op->out[0].numel * tutti_dtype_bytes(op->dtype) * segment->n : 0;
    segment->choices = &direct;
    segment->n_choices = (size_t)bytes > COLL_FRAGMENTS * segment->layout.fragment_bytes;
}

void ends_open_arenas(struct end end[ENDS], pid_t pid)
{
    int fd[ENDS];
    for (int i = 0; i < ENDS; i++) fd[i] = shm_arena_make();
    for (int i = 0; i < ENDS; i++) {
        struct shm *shm = &end[i].shm;
        shm->can_share = true;
        shm->arena_bytes = shm_arena_bytes();
        TAILQ_INIT(&shm->arena.blocks);
        for (int k = 0; k < ENDS; k++) {
            shm->peer[k].arena_fd = dup(fd[k]);
            shm->peer[k].pid = pid;
        }
    }
    for (int i = 0; i < ENDS; i++) close(fd[i]);
}

void ends_run(struct end end[2], void *(*body)(void *))
{
    pthread_t thread[2];
    for (int i = 0; i < 2; i++) assert_int_equal(pthread_create(&thread[i], NULL, body, &end[i]), 0);
    for (int i = 0; i < 2; i++) pthread_join(thread[i], NULL);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(end[i].wrong, 0);
        assert_int_equal(end[i].lost, 0);
    }
}

void ends_open_and_run(struct end end[2], void *(*body)(void *))
{
    ends_open(end, 2);
    ends_run(end, body);
    ends_close(end, 2);
}

/* ---- sleeping ---------------------------------------------------------------------------------------------- */

bool ends_find_nothing(struct end *end, const struct coll_list *colls)
{
    bool sleeps = shm_arm(&end->shm, (int[2]){0}) != 0 && (colls == NULL || !coll_is_ready(colls));
    shm_settle(&end->shm);
    return sleeps;
}

bool ends_find_no_message(struct end *end)
{
    return ends_find_nothing(end, NULL);
}

int ends_run_op(struct end *end, struct coll_segment *coll, struct coll_list *running, const tutti_op *op,
                uint64_t number)
{
    int ended = 0;
    tutti_request request = {.fingerprint = number, .owner = &ended};
    bool done = coll_begin(coll, op, &request, running) == TUTTI_REQUEST_DONE;
    shm_settle(&end->shm); /* for the core, whose progress thread makes progress after the last call */
    if (done) return 1;
    while (ended == 0 && end->lost == 0) {
        if (coll_progress(running) + shm_progress(&end->shm) > 0 || !ends_find_nothing(end, running)) continue;
        struct pollfd doorbell = {end->shm.doorbell_fd, POLLIN, 0};
        end->lost += poll(&doorbell, 1, ENDS_SILENCE_MS) == 0;
    }
    return ended;
}

/* ---- a race ------------------------------------------------------------------------------------------------ */

static const struct race *race;
static atomic_int gate[2];
static atomic_bool is_over;

static void pass_gate(int i, int round)
{
    atomic_store_explicit(&gate[i], round, memory_order_seq_cst);
    for (int spins = 0; atomic_load_explicit(&gate[1 - i], memory_order_seq_cst) < round; spins++)
        if (spins > 1000) sched_yield();
}

static void *run_races(void *argument)
{
    struct end *end = argument;
    int64_t limit_ns = monotonic_ns() + (int64_t)ENDS_RACES_MS * 1000000;
    for (int i = 0; i < ENDS_RACES && !atomic_load(&is_over); i++) {
        bool sleeps = false;
        if (race->before != NULL) race->before(end, i);
        pass_gate(end->shm.local_rank, 2 * i + 1);
        for (volatile int late = end->shm.local_rank == 0 ? i % 300 : 300; late > 0; late--)
            continue; /* posts at many distances from the sleep */
        if (end->shm.local_rank == 0) {
            race->post(end, i);
            shm_settle(&end->shm);
        } else {
            sleeps = race->find_nothing(end);
        }
        if (end->shm.local_rank == 0 && monotonic_ns() > limit_ns) atomic_store(&is_over, true);
        pass_gate(end->shm.local_rank, 2 * i + 2);
        if (end->shm.local_rank == 0) continue;
        struct pollfd doorbell = {end->shm.doorbell_fd, POLLIN, 0};
        if (sleeps && poll(&doorbell, 1, 0) == 0) end->lost++;
        race->after(end, i);
    }
    return NULL;
}

void ends_run_races(struct end end[2], const struct race *what)
{
    race = what;
    gate[0] = gate[1] = 0;
    is_over = false;
    ends_run(end, run_races);
}
