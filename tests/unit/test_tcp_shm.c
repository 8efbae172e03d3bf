/* Memory order in backends/tcp/shm_ring.c and board.c: two ranks as threads over one mapping of the segment, so that a
 * thread sanitizer sees every access of both.  Without it, the processor's own reordering of a store and a later load
 * shows: a sleeper that is not woken. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "../../backends/tcp/board.c"
#include "../../backends/tcp/board_large.c"
#include "../../backends/tcp/board_small.c"
#include "../../backends/tcp/board_take.c"
#include "../../backends/tcp/shm_arena.c"
#include "../../backends/tcp/shm_ring.c"
#include "../../backends/tcp/shm_segment.c"

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

/* ---- two ranks, or three ----------------------------------------------------------------------------------- */

enum { ENDS = 3 };

struct end {
    struct shm shm;
    struct shm_peer peers[ENDS];
    int16_t seats[ENDS];
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

static void on_message(void *user, int32_t from, const void *header, const void *payload, size_t bytes)
{
    struct end *end = user;
    uint64_t said;
    (void)from;
    memcpy(&said, header, sizeof said);
    end->wrong += said != end->got || bytes != size_of(said);
    for (size_t i = 0; i < bytes; i++) end->wrong += ((const uint8_t *)payload)[i] != byte_of(said, i);
    end->got++;
}

static void on_lost(void *user, int32_t rank, const char *why)
{
    (void)rank;
    (void)why;
    ((struct end *)user)->wrong++;
}

static const struct shm_events events = {on_message, on_lost};

static void ends_open(struct end *end, int n)
{
    int bell[ENDS];
    for (int i = 0; i < n; i++) bell[i] = eventfd(0, EFD_NONBLOCK);
    memset(end, 0, (size_t)n * sizeof *end);
    shm_measure(&end[0].shm, n);
    int memfd = shm_segment_make(end[0].shm.bytes, end[0].shm.boards_at);
    char *base = mmap(NULL, end[0].shm.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, memfd, 0);
    assert_true(memfd >= 0 && base != MAP_FAILED);
    for (int i = 0; i < n; i++) {
        struct shm *shm = &end[i].shm;
        shm_measure(shm, n);
        shm->config =
            (struct shm_config){.rank = i, .world_size = n, .host = &host, .events = &events, .user = &end[i]};
        shm->seat = i;
        shm->peer = end[i].peers;
        shm->seat_of = end[i].seats;
        shm->memfd = memfd;
        shm->base = base;
        shm->bell = bell[i];
        shm->watch = epoll_create1(0);
        for (int k = 0; k < n; k++) {
            end[i].seats[k] = (int16_t)k;
            shm->peer[k] = (struct shm_peer){.rank = k,
                                             .seat = k,
                                             .lost = k == i,
                                             .bell = bell[k],
                                             .pidfd = -1,
                                             .out = ring_at(shm, i, k),
                                             .in = ring_at(shm, k, i)};
            STAILQ_INIT(&shm->peer[k].waiting);
        }
    }
}

static void pair_open(struct end end[2])
{
    ends_open(end, 2);
}

static void ends_close(struct end *end, int n)
{
    munmap(end[0].shm.base, end[0].shm.bytes);
    close(end[0].shm.memfd);
    for (int i = 0; i < n; i++) {
        close(end[i].shm.bell);
        close(end[i].shm.watch);
    }
}

static void pair_close(struct end end[2])
{
    ends_close(end, 2);
}

/* Sleeps until woken.  Who sleeps long and then finds something was not woken for it. */
static bool sleep_on(struct shm *shm, bool ready)
{
    int descriptors[2];
    int n = shm_arm(shm, descriptors);
    struct pollfd polled[2] = {{descriptors[0], POLLIN, 0}, {descriptors[1], POLLIN, 0}};
    if (n == 0 || ready) return true;
    return poll(polled, 2, SILENCE_MS) > 0;
}

static void send_one(struct end *end, uint64_t message)
{
    uint8_t header[WIRE_HEADER] = {0}, payload[SIZE_MOST + SHM_INLINE];
    memcpy(header, &message, sizeof message);
    for (size_t i = 0; i < size_of(message); i++) payload[i] = byte_of(message, i);
    shm_send(&end->shm, 1 - end->shm.seat, header, payload, size_of(message));
}

static void run_two(struct end end[2], void *(*body)(void *))
{
    pthread_t thread[2];
    pair_open(end);
    for (int i = 0; i < 2; i++) assert_int_equal(pthread_create(&thread[i], NULL, body, &end[i]), 0);
    for (int i = 0; i < 2; i++) pthread_join(thread[i], NULL);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(end[i].wrong, 0);
        assert_int_equal(end[i].lost, 0);
    }
    pair_close(end);
}

/* ---- rings ------------------------------------------------------------------------------------------------- */

enum { STREAM = 20000, TURNS = 5000, STEPS = 20000, MOMENTS = 100000 };

/* Both send all at once; the ring is full most of the time. */
static void *stream(void *argument)
{
    struct end *end = argument;
    struct shm *shm = &end->shm;
    uint64_t sent = 0;
    while (end->lost == 0 && (sent < STREAM || end->got < STREAM || !STAILQ_EMPTY(&shm->peer[1 - shm->seat].waiting))) {
        for (int i = 0; i < 50 && sent < STREAM; i++) send_one(end, sent++);
        if (shm_progress(shm) == 0 && sent == STREAM && !sleep_on(shm, false)) end->lost++;
    }
    return NULL;
}

static void test_streams(void **state)
{
    struct end end[2];
    (void)state;
    run_two(end, stream);
}

/* In turns, and asleep in between: each message has to wake its reader. */
static void *turns(void *argument)
{
    struct end *end = argument;
    for (uint64_t i = 0; i < TURNS && end->lost == 0; i++) {
        if (end->shm.seat == 0) send_one(end, i);
        while (end->got <= i && end->lost == 0)
            if (shm_progress(&end->shm) == 0 && !sleep_on(&end->shm, false)) end->lost++;
        if (end->shm.seat == 1) send_one(end, i);
    }
    return NULL;
}

static void test_turns(void **state)
{
    struct end end[2];
    (void)state;
    run_two(end, turns);
}

/* One sends at the very moment at which the other one is about to sleep: that one sees the message, or is woken. */
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
        int descriptors[2], armed = 0;
        pass_gate(end->shm.seat, 2 * i + 1);
        for (volatile int late = end->shm.seat == 0 ? i % 300 : 200; late > 0; late--) continue; /* at many distances */
        if (end->shm.seat == 0)
            send_one(end, 5 * (uint64_t)i + 1); /* small ones */
        else
            armed = shm_arm(&end->shm, descriptors);
        pass_gate(end->shm.seat, 2 * i + 2);
        if (end->shm.seat == 0) continue;
        struct pollfd bell = {end->shm.bell, POLLIN, 0};
        if (armed > 0 && poll(&bell, 1, 0) == 0) end->lost++;
        end->got = 5 * (uint64_t)i + 1;
        shm_progress(&end->shm);
    }
    return NULL;
}

static void test_moments(void **state)
{
    struct end end[2];
    (void)state;
    gate[0] = gate[1] = 0;
    run_two(end, moments);
}

/* ---- boards ------------------------------------------------------------------------------------------------ */

/* Broadcasts from either rank, in which the root does not wait, and all_reduces between them. */
static void *steps(void *argument)
{
    struct end *end = argument;
    struct board board;
    struct board_list running = LIST_HEAD_INITIALIZER(running);
    int rank = end->shm.seat;
    board_open(&board, &end->shm, 5, rank, 2, (int32_t[]){0, 1});
    if (board.state != BOARD_READY) end->wrong++;
    for (int64_t i = 0; i < STEPS && end->lost == 0 && end->wrong == 0; i++) {
        int64_t in[40], out[40], numel = i % 40 + 1;
        bool reduce = i % 12 == 0;
        int root = (int)(i / 12 % 2), ended = 0;
        for (int64_t k = 0; k < numel; k++)
            in[k] = out[k] = reduce || rank == root ? i * 100 + k + (reduce ? rank : 0) : -1;
        tutti_tensor a = {in, numel, TUTTI_INT64, {TUTTI_CPU, 0}}, b = {out, numel, TUTTI_INT64, {TUTTI_CPU, 0}};
        tutti_op op = {.kind = reduce ? TUTTI_ALL_REDUCE : TUTTI_BROADCAST,
                       .dtype = TUTTI_INT64,
                       .root = root,
                       .n_in = reduce,
                       .n_out = 1,
                       .in = &a,
                       .out = &b};
        tutti_request request = {.fingerprint = (uint64_t)i + 1, .owner = &ended};
        int status = board_begin(&board, &op, &request, &running);
        if (status == TUTTI_REQUEST_DONE) ended = 1;
        while (ended == 0 && end->lost == 0)
            if (board_progress(&running) + shm_progress(&end->shm) == 0 && shm_arm(&end->shm, (int[2]){0}) > 0 &&
                !board_is_ready(&running)) {
                struct pollfd bell = {end->shm.bell, POLLIN, 0};
                end->lost += poll(&bell, 1, SILENCE_MS) == 0;
            }
        for (int64_t k = 0; k < numel; k++) end->wrong += out[k] != (reduce ? 2 * (i * 100 + k) + 1 : i * 100 + k);
        end->wrong += ended != 1;
    }
    board_close(&board);
    return NULL;
}

static void test_steps(void **state)
{
    struct end end[2];
    (void)state;
    run_two(end, steps);
}

/* ---- a rank that gives up, or dies ------------------------------------------------------------------------- */

enum { LARGE = 8192 };

struct large {
    struct board board;
    struct board_list running;
    int64_t data[LARGE];
    tutti_request request;
    int ended;
};

static void begin_large(struct end *end, struct large *large)
{
    int rank = end->shm.seat;
    *large = (struct large){.request = {.fingerprint = 7}};
    LIST_INIT(&large->running);
    end->shm.can_pull = true;
    end->shm.peer[1 - rank].pid = getpid();
    board_open(&large->board, &end->shm, 5, rank, 2, (int32_t[]){0, 1});
    assert_int_equal(large->board.state, BOARD_READY);
    for (int i = 0; i < LARGE; i++) large->data[i] = rank + 1;
    tutti_tensor tensor = {large->data, LARGE, TUTTI_INT64, {TUTTI_CPU, 0}};
    tutti_op op = {
        .kind = TUTTI_ALL_REDUCE, .dtype = TUTTI_INT64, .n_in = 1, .n_out = 1, .in = &tensor, .out = &tensor};
    large->request.owner = &large->ended;
    assert_int_equal(board_begin(&large->board, &op, &large->request, &large->running), TUTTI_REQUEST_PENDING);
}

/* The first rank is in the last step, the second one has yet to read what the first one has reduced. */
static void begin_both(struct end end[2], struct large large[2])
{
    pair_open(end);
    begin_large(&end[0], &large[0]);
    begin_large(&end[1], &large[1]);
    board_progress(&large[0].running);
    assert_int_equal(TAILQ_FIRST(&large[0].board.ops)->at, 2);
    assert_int_equal(TAILQ_FIRST(&large[1].board.ops)->at, 1);
}

static void close_both(struct end end[2], struct large large[2])
{
    for (int i = 0; i < 2; i++) board_close(&large[i].board);
    pair_close(end);
}

static void test_goes_on(void **state)
{
    struct end end[2];
    static struct large large[2];
    (void)state;
    begin_both(end, large);
    board_progress(&large[1].running);
    board_progress(&large[0].running);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(large[i].ended, 1);
        for (int k = 0; k < LARGE; k++) assert_int_equal(large[i].data[k], 3);
    }
    close_both(end, large);
}

/* Its memory is the program's again, which writes other things there: who reads them does not believe them. */
static void test_gives_up_in_the_last_step(void **state)
{
    struct end end[2];
    static struct large large[2];
    (void)state;
    begin_both(end, large);
    assert_true(board_cancel(&large[0].board, &large[0].request));
    memset(large[0].data, 0x55, sizeof large[0].data);
    for (int i = 0; i < 3; i++) board_progress(&large[1].running);
    assert_int_equal(large[1].ended, 0);
    assert_false(board_is_ready(&large[1].running));
    bool ranks[2] = {false, false};
    board_awaits(&large[1].board, &large[1].request, ranks);
    assert_true(ranks[0] && !ranks[1]);
    close_both(end, large);
}

/* Who comes late finds nobody, though all data are there. */
static void test_comes_after_one_gave_up(void **state)
{
    struct end end[2];
    static struct large large[2];
    (void)state;
    pair_open(end);
    begin_large(&end[0], &large[0]);
    assert_true(board_cancel(&large[0].board, &large[0].request));
    begin_large(&end[1], &large[1]);
    for (int i = 0; i < 3; i++) board_progress(&large[1].running);
    assert_int_equal(large[1].ended, 0);
    assert_int_equal(TAILQ_FIRST(&large[1].board.ops)->at, 0);
    close_both(end, large);
}

static pid_t pid_of_nobody(void)
{
    pid_t pid = fork();
    if (pid == 0) _exit(0);
    assert_true(pid > 0);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    return pid;
}

static void test_dies_in_the_last_step(void **state)
{
    struct end end[2];
    static struct large large[2];
    (void)state;
    begin_both(end, large);
    end[1].shm.peer[0].pid = pid_of_nobody();
    board_progress(&large[1].running);
    assert_int_equal(large[1].ended, TUTTI_ERR_PEER_LOST);
    close_both(end, large);
}

/* As if its pid had passed to another process, whose memory can be read. */
static void test_dies_and_its_pid_lives(void **state)
{
    struct end end[2];
    static struct large large[2];
    (void)state;
    begin_both(end, large);
    struct shm *shm = &end[1].shm;
    shm->peer[0].pidfd = eventfd(1, EFD_CLOEXEC); /* readable, as one of a process that has ended */
    struct epoll_event event = {.events = EPOLLIN, .data.u32 = 0};
    assert_int_equal(epoll_ctl(shm->watch, EPOLL_CTL_ADD, shm->peer[0].pidfd, &event), 0);
    board_progress(&large[1].running);
    assert_int_equal(large[1].ended, TUTTI_ERR_PEER_LOST);
    close(shm->peer[0].pidfd);
    close_both(end, large);
}

/* ---- a rank that leaves ------------------------------------------------------------------------------------ */

struct small {
    struct board board;
    struct board_list running;
    int64_t x;
    tutti_request request;
    int ended;
};

static void begin_small(struct small *small, tutti_kind kind)
{
    tutti_tensor tensor = {&small->x, 1, TUTTI_INT64, {TUTTI_CPU, 0}};
    tutti_op op = {.kind = kind,
                   .dtype = TUTTI_INT64,
                   .n_in = kind == TUTTI_ALL_REDUCE,
                   .n_out = 1,
                   .in = &tensor,
                   .out = &tensor};
    small->ended = 0;
    small->request = (tutti_request){.fingerprint = 7, .owner = &small->ended};
    int status = board_begin(&small->board, &op, &small->request, &small->running);
    if (status != TUTTI_REQUEST_PENDING) small->ended = status == TUTTI_REQUEST_DONE ? 1 : status;
}

static void open_small(struct end *end, struct small *small, int n)
{
    *small = (struct small){0};
    LIST_INIT(&small->running);
    board_open(&small->board, &end->shm, 5, end->shm.seat, n, (int32_t[]){0, 1, 2});
    assert_int_equal(small->board.state, BOARD_READY);
}

/* A root runs ahead of those who take its data, until its cells are used up. */
static void test_leaves_behind_a_root(void **state)
{
    struct end end[2];
    struct small small;
    (void)state;
    pair_open(end);
    open_small(&end[0], &small, 2);
    for (int i = 1; i < BOARD_DEPTH; i++) {
        begin_small(&small, TUTTI_BROADCAST);
        assert_int_equal(small.ended, 1);
    }
    begin_small(&small, TUTTI_BROADCAST);
    assert_int_equal(board_progress(&small.running), 0);
    assert_false(board_is_ready(&small.running));
    shm_drop(&end[0].shm, 1, "it left the group", false);
    assert_true(board_is_ready(&small.running));
    assert_int_equal(board_progress(&small.running), 1);
    assert_int_equal(small.ended, TUTTI_ERR_PEER_LOST);
    board_close(&small.board);
    pair_close(end);
}

/* Another one, before it in rank, has not come yet. */
static void test_leaves_while_another_is_late(void **state)
{
    struct end end[ENDS];
    struct small small;
    (void)state;
    ends_open(end, ENDS);
    open_small(&end[0], &small, ENDS);
    begin_small(&small, TUTTI_ALL_REDUCE);
    assert_int_equal(board_progress(&small.running), 0);
    shm_drop(&end[0].shm, 2, "it left the group", false);
    assert_int_equal(board_progress(&small.running), 1);
    assert_int_equal(small.ended, TUTTI_ERR_PEER_LOST);
    board_close(&small.board);
    ends_close(end, ENDS);
}

/* It had come before. */
static void test_leaves_after_it_has_come(void **state)
{
    struct end end[ENDS];
    struct small small[ENDS];
    (void)state;
    ends_open(end, ENDS);
    for (int i = 0; i < ENDS; i++) open_small(&end[i], &small[i], ENDS);
    begin_small(&small[0], TUTTI_ALL_REDUCE);
    begin_small(&small[2], TUTTI_ALL_REDUCE);
    shm_drop(&end[0].shm, 2, "it left the group", false);
    assert_int_equal(board_progress(&small[0].running), 0);
    begin_small(&small[1], TUTTI_ALL_REDUCE);
    assert_int_equal(board_progress(&small[0].running), 2);
    assert_int_equal(small[0].ended, 1);
    for (int i = 0; i < ENDS; i++) board_close(&small[i].board);
    ends_close(end, ENDS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_streams),
                                       cmocka_unit_test(test_turns),
                                       cmocka_unit_test(test_moments),
                                       cmocka_unit_test(test_steps),
                                       cmocka_unit_test(test_goes_on),
                                       cmocka_unit_test(test_gives_up_in_the_last_step),
                                       cmocka_unit_test(test_comes_after_one_gave_up),
                                       cmocka_unit_test(test_dies_in_the_last_step),
                                       cmocka_unit_test(test_dies_and_its_pid_lives),
                                       cmocka_unit_test(test_leaves_behind_a_root),
                                       cmocka_unit_test(test_leaves_while_another_is_late),
                                       cmocka_unit_test(test_leaves_after_it_has_come)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
