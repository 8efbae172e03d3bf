/* Collective segments: the behaviour of a rank whose peer gives up, dies or leaves.  One thread drives all ranks. */
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "unit/small_groups.h"

#include "../../backends/tcp/shm/coll/path.c"

/* ---- a rank that gives up ------------------------------------------------------------------------------------- */

enum { LARGE = 32768 };

struct large {
    struct coll_segment coll;
    struct coll_list running;
    int64_t data[LARGE];
    tutti_request request;
    int ended;
};

static const tutti_path_row direct = {TUTTI_ALL_REDUCE, COLL_DIRECT, INT64_MAX},
                            lockstep = {TUTTI_ALL_REDUCE, COLL_LOCKSTEP, INT64_MAX};

static void begin_with(struct end *end, struct large *large, const tutti_path_row *row)
{
    int rank = end->shm.local_rank;
    *large = (struct large){.request = {.fingerprint = 7}};
    LIST_INIT(&large->running);
    end->shm.can_read_memory = true;
    end->shm.peer[1 - rank].pid = getpid();
    coll_open(&large->coll, &end->shm, COLL_FIRST, rank, 2, (int32_t[]){0, 1});
    assert_int_equal(large->coll.state, COLL_READY);
    large->coll.choices = row;
    large->coll.n_choices = 1;
    for (int i = 0; i < LARGE; i++) large->data[i] = rank + 1;
    tutti_tensor tensor = {large->data, LARGE, TUTTI_INT64, {TUTTI_CPU, 0}};
    tutti_op op = {
        .kind = TUTTI_ALL_REDUCE, .dtype = TUTTI_INT64, .n_in = 1, .n_out = 1, .in = &tensor, .out = &tensor};
    large->request.owner = &large->ended;
    assert_int_equal(coll_begin(&large->coll, &op, &large->request, &large->running), TUTTI_REQUEST_PENDING);
}

static void begin_large(struct end *end, struct large *large)
{
    begin_with(end, large, &direct);
}

/* Leaves rank 0 in the last step, and rank 1 before it reads what rank 0 has reduced. */
static void begin_both(struct end end[2], struct large large[2])
{
    ends_open(end, 2);
    begin_large(&end[0], &large[0]);
    begin_large(&end[1], &large[1]);
    coll_progress(&large[0].running);
    assert_int_equal(TAILQ_FIRST(&large[0].coll.ops)->at, 2);
    assert_int_equal(TAILQ_FIRST(&large[1].coll.ops)->at, 1);
}

static void close_both(struct end end[2], struct large large[2])
{
    for (int i = 0; i < 2; i++) coll_close(&large[i].coll);
    ends_close(end, 2);
}

static void test_completes(void **state)
{
    struct end end[2];
    static struct large large[2];
    (void)state;
    begin_both(end, large);
    coll_progress(&large[1].running);
    coll_progress(&large[0].running);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(large[i].ended, 1);
        for (int k = 0; k < LARGE; k++) assert_int_equal(large[i].data[k], 3);
    }
    close_both(end, large);
}

/* The program may overwrite the memory of a rank that gave up, so the reader must not use what it read there. */
static void test_gives_up_in_the_last_step(void **state)
{
    struct end end[2];
    static struct large large[2];
    (void)state;
    begin_both(end, large);
    assert_true(coll_cancel(&large[0].coll, &large[0].request));
    memset(large[0].data, 0x55, sizeof large[0].data);
    for (int i = 0; i < 3; i++) coll_progress(&large[1].running);
    assert_int_equal(large[1].ended, 0);
    assert_false(coll_is_ready(&large[1].running));
    bool ranks[2] = {false, false};
    coll_awaits(&large[1].coll, &large[1].request, ranks);
    assert_true(ranks[0] && !ranks[1]);
    close_both(end, large);
}

/* A late rank finds no peer, though all data are there. */
static void test_arrives_after_a_peer_gave_up(void **state)
{
    struct end end[2];
    static struct large large[2];
    (void)state;
    ends_open(end, 2);
    begin_large(&end[0], &large[0]);
    assert_true(coll_cancel(&large[0].coll, &large[0].request));
    begin_large(&end[1], &large[1]);
    for (int i = 0; i < 3; i++) coll_progress(&large[1].running);
    assert_int_equal(large[1].ended, 0);
    assert_int_equal(TAILQ_FIRST(&large[1].coll.ops)->at, 0);
    close_both(end, large);
}

/* The same with chunks: a rank that had not met its peer before it gave up finds no peer.  A rank that had met it waits
 * for the next step. */
static void test_gives_up_between_chunks(void **state)
{
    struct end end[2];
    static struct large large[2];
    (void)state;
    for (int quitter = 0; quitter < 2; quitter++) {
        ends_open(end, 2);
        for (int i = 0; i < 2; i++) begin_with(&end[i], &large[i], &lockstep);
        assert_int_equal(TAILQ_FIRST(&large[0].coll.ops)->at, 0);
        assert_int_equal(TAILQ_FIRST(&large[1].coll.ops)->at, 2); /* rank 0 posts two chunks ahead */
        assert_true(coll_cancel(&large[quitter].coll, &large[quitter].request));
        struct large *other = &large[1 - quitter];
        for (int i = 0; i < 3; i++) coll_progress(&other->running);
        assert_int_equal(other->ended, 0);
        assert_int_equal(TAILQ_FIRST(&other->coll.ops)->at, quitter == 0 ? 2 : 0);
        close_both(end, large);
    }
}

/* ---- a rank that is late -------------------------------------------------------------------------------------- */

static void begin_broadcast(struct end *end, struct large *large)
{
    static const tutti_path_row row = {TUTTI_BROADCAST, COLL_DIRECT, INT64_MAX};
    int rank = end->shm.local_rank;
    *large = (struct large){.request = {.fingerprint = 7, .owner = &large->ended}};
    LIST_INIT(&large->running);
    end->shm.can_read_memory = true;
    for (int i = 0; i < ENDS; i++) end->shm.peer[i].pid = getpid();
    coll_open(&large->coll, &end->shm, COLL_FIRST, rank, ENDS, (int32_t[]){0, 1, 2});
    large->coll.choices = &row;
    large->coll.n_choices = 1;
    for (int i = 0; rank == 0 && i < LARGE; i++) large->data[i] = i;
    tutti_tensor tensor = {large->data, LARGE, TUTTI_INT64, {TUTTI_CPU, 0}};
    tutti_op op = {.kind = TUTTI_BROADCAST, .dtype = TUTTI_INT64, .n_out = 1, .out = &tensor};
    int status = coll_begin(&large->coll, &op, &large->request, &large->running);
    if (status == TUTTI_REQUEST_DONE) large->ended = 1;
}

/* A rank that has read the root's memory leaves before another one arrives, which reads the same.  Only the root, whose
 * memory they read, waits for both. */
static void test_reader_leaves_before_another_arrives(void **state)
{
    struct end end[ENDS];
    static struct large large[ENDS];
    (void)state;
    ends_open(end, ENDS);
    begin_broadcast(&end[0], &large[0]);
    begin_broadcast(&end[1], &large[1]);
    coll_progress(&large[1].running);
    assert_int_equal(large[1].ended, 1);
    for (int i = 0; i < ENDS; i += 2) shm_drop(&end[i].shm, 1, "it left the group", false);
    coll_progress(&large[0].running);
    assert_int_equal(large[0].ended, 0);
    begin_broadcast(&end[2], &large[2]);
    coll_progress(&large[2].running);
    coll_progress(&large[0].running);
    assert_true(large[0].ended == 1 && large[2].ended == 1);
    for (int i = 1; i < ENDS; i++) assert_memory_equal(large[i].data, large[0].data, sizeof large[0].data);
    for (int i = 0; i < ENDS; i++) coll_close(&large[i].coll);
    ends_close(end, ENDS);
}

/* ---- a rank that dies ---------------------------------------------------------------------------------------- */

/* Returns the pid of a process that has ended. */
static pid_t pid_of_dead_process(void)
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
    end[1].shm.peer[0].pid = pid_of_dead_process();
    coll_progress(&large[1].running);
    assert_int_equal(large[1].ended, TUTTI_ERR_PEER_LOST);
    close_both(end, large);
}

/* As if its pid had passed to another process, whose memory can be read. */
static void test_dies_and_its_pid_is_reused(void **state)
{
    struct end end[2];
    static struct large large[2];
    (void)state;
    begin_both(end, large);
    struct shm *shm = &end[1].shm;
    shm->peer[0].liveness_fd = eventfd(1, EFD_CLOEXEC); /* readable, as if its process had ended */
    struct epoll_event event = {.events = EPOLLIN, .data.u32 = 0};
    assert_int_equal(epoll_ctl(shm->watch, EPOLL_CTL_ADD, shm->peer[0].liveness_fd, &event), 0);
    coll_progress(&large[1].running);
    assert_int_equal(large[1].ended, TUTTI_ERR_PEER_LOST);
    close(shm->peer[0].liveness_fd);
    close_both(end, large);
}

/* ---- a rank that leaves ------------------------------------------------------------------------------------- */

/* A root waits for buffers that its peer has yet to read, and the peer leaves. */
static void test_leaves_a_root_that_waits(void **state)
{
    struct end end[2];
    struct small small;
    (void)state;
    ends_open(end, 2);
    small_open(&end[0], &small, 2);
    for (int i = 1; i < COLL_SLOTS - COLL_RUN_AHEAD; i++) {
        small_begin(&small, TUTTI_BROADCAST);
        assert_int_equal(small.ended, 1);
    }
    small_begin(&small, TUTTI_BROADCAST);
    assert_int_equal(coll_progress(&small.running), 0);
    assert_false(coll_is_ready(&small.running));
    shm_drop(&end[0].shm, 1, "it left the group", false);
    assert_true(coll_is_ready(&small.running));
    assert_int_equal(coll_progress(&small.running), 1);
    assert_int_equal(small.ended, TUTTI_ERR_PEER_LOST);
    coll_close(&small.coll);
    ends_close(end, 2);
}

/* Where no memory can be read, a sender of a gather does not wait as long as there are buffers. */
static void test_gather_sender_does_not_wait(void **state)
{
    struct end end[2];
    struct small small[2];
    (void)state;
    small_open_both(end, small);
    tutti_tensor x = {small[1].x, CHOICE_MIN / 8, TUTTI_INT64, {TUTTI_CPU, 0}};
    tutti_op op = {.kind = TUTTI_GATHER, .dtype = TUTTI_INT64, .n_in = 1, .in = &x};
    assert_int_equal(coll_begin(&small[1].coll, &op, &small[1].request, &small[1].running), TUTTI_REQUEST_DONE);
    small_close_both(end, small);
}

/* Another rank, lower than the one that leaves, has not arrived yet. */
static void test_leaves_while_another_is_late(void **state)
{
    struct end end[ENDS];
    struct small small;
    (void)state;
    ends_open(end, ENDS);
    small_open(&end[0], &small, ENDS);
    small_begin(&small, TUTTI_ALL_REDUCE);
    assert_int_equal(coll_progress(&small.running), 0);
    shm_drop(&end[0].shm, 2, "it left the group", false);
    assert_int_equal(coll_progress(&small.running), 1);
    assert_int_equal(small.ended, TUTTI_ERR_PEER_LOST);
    coll_close(&small.coll);
    ends_close(end, ENDS);
}

/* The rank that leaves has arrived before. */
static void test_leaves_after_it_has_arrived(void **state)
{
    struct end end[ENDS];
    struct small small[ENDS];
    (void)state;
    ends_open(end, ENDS);
    for (int i = 0; i < ENDS; i++) small_open(&end[i], &small[i], ENDS);
    small_begin(&small[0], TUTTI_ALL_REDUCE);
    small_begin(&small[2], TUTTI_ALL_REDUCE);
    shm_drop(&end[0].shm, 2, "it left the group", false);
    assert_int_equal(coll_progress(&small[0].running), 0);
    small_begin(&small[1], TUTTI_ALL_REDUCE);
    assert_int_equal(coll_progress(&small[0].running), 2);
    assert_int_equal(small[0].ended, 1);
    for (int i = 0; i < ENDS; i++) coll_close(&small[i].coll);
    ends_close(end, ENDS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_completes),
        cmocka_unit_test(test_gives_up_in_the_last_step),
        cmocka_unit_test(test_arrives_after_a_peer_gave_up),
        cmocka_unit_test(test_gives_up_between_chunks),
        cmocka_unit_test(test_reader_leaves_before_another_arrives),
        cmocka_unit_test(test_dies_in_the_last_step),
        cmocka_unit_test(test_dies_and_its_pid_is_reused),
        cmocka_unit_test(test_leaves_a_root_that_waits),
        cmocka_unit_test(test_gather_sender_does_not_wait),
        cmocka_unit_test(test_leaves_while_another_is_late),
        cmocka_unit_test(test_leaves_after_it_has_arrived),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
