/* backends/tcp/shm/message_path.c: the path of a large message. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "../../backends/tcp/shm/message_path.c"

static bool is_arena;

bool shm_is_shared(const struct shm *shm, const void *memory, size_t bytes)
{
    (void)shm, (void)memory, (void)bytes;
    return is_arena;
}

static bool has_space = true;

bool shm_fits(struct shm *shm, int local_rank, size_t bytes)
{
    (void)shm, (void)local_rank, (void)bytes;
    return has_space;
}

static bool has_memory = true;

bool shm_ring_reserve(struct shm *shm, int local_rank, size_t bytes)
{
    (void)shm, (void)local_rank, (void)bytes;
    return has_memory;
}

bool shm_fifo_reserve(struct shm *shm, int local_rank, size_t bytes)
{
    (void)shm, (void)local_rank, (void)bytes;
    return has_memory;
}

/* A clock by which each message takes as long as the path that the last one took. */
static int64_t clock_ns, path_ns[TRANSPORT_WRITE + 1];
static int last;

static int64_t made_up_ns(void)
{
    return clock_ns;
}

static const tutti_host timed_host = {.now_ns = made_up_ns};
static struct shm_peer peer;
static struct shm shm;
static const tutti_path_row *choice; /* the core's row */

static void open_shm(void)
{
    free(peer.messages);
    peer.messages = NULL;
    shm = (struct shm){
        .peer = &peer, .n = 1, .can_read_memory = true, .transport.eager_max = 64 << 10, .config.host = &timed_host};
    is_arena = false;
    choice = NULL;
}

static int path_of(size_t bytes, bool may_eager, bool blocked)
{
    tutti_request request = {.bytes = bytes};
    return (int)shm_choose_path(&shm, 0, &request, may_eager, blocked, choice);
}

/* Before anything is measured. */
static void test_first_messages(void **state)
{
    (void)state;
    open_shm();
    assert_int_equal(path_of(16 << 10, true, true), TRANSPORT_EAGER);
    assert_int_equal(path_of((16 << 10) + 1, true, true), TRANSPORT_READ);
    open_shm();
    assert_int_equal(path_of(13 << 10, true, false), TRANSPORT_EAGER);
    assert_int_equal(path_of(64 << 10, true, false), TRANSPORT_EAGER);
    open_shm();
    assert_int_equal(path_of((64 << 10) + 1, true, false), TRANSPORT_READ);
    open_shm();
    assert_int_equal(path_of(64 << 10, true, true), TRANSPORT_READ);
    open_shm();
    shm.can_read_memory = false;
    assert_int_equal(path_of(64 << 10, true, true), TRANSPORT_WRITE);
    open_shm();
    assert_int_equal(path_of(0, false, false), TRANSPORT_WRITE);
}

/* Nothing is measured, whatever the times. */
static void test_shared_cores(void **state)
{
    (void)state;
    open_shm();
    shm.shares_cores = true;
    for (int i = 0; i < 1000; i++, clock_ns += i) {
        assert_int_equal(path_of(13 << 10, true, true), TRANSPORT_EAGER);
        assert_int_equal(path_of(40000, true, i % 2), TRANSPORT_EAGER);
    }
    assert_null(peer.messages);
    assert_int_equal(path_of(1 << 20, true, true), TRANSPORT_WRITE);
    assert_int_equal(path_of(1 << 20, true, false), TRANSPORT_OFFER);
    is_arena = true;
    assert_int_equal(path_of(1 << 20, true, false), TRANSPORT_READ);
    is_arena = false;
    has_memory = false; /* for a FIFO, or the ring */
    assert_int_equal(path_of(1 << 20, true, false), TRANSPORT_READ);
    assert_int_equal(path_of(40000, true, false), TRANSPORT_READ);
    has_memory = true;
    has_space = false;
    assert_int_equal(path_of(40000, true, false), TRANSPORT_OFFER);
    assert_int_equal(path_of(40000, true, true), TRANSPORT_WRITE);
    shm.can_read_memory = false;
    assert_int_equal(path_of(40000, true, false), TRANSPORT_EAGER);
    has_space = true;
}

/* Sends n messages.  Returns how many took the path. */
static int count(int n, size_t bytes, bool blocked, int path)
{
    int taken = 0;
    for (int i = 0; i < n; i++) {
        clock_ns += path_ns[last];
        last = path_of(bytes, true, blocked);
        taken += last == path;
    }
    return taken;
}

static void test_the_fastest_one(void **state)
{
    (void)state;
    for (int fastest = TRANSPORT_EAGER; fastest <= TRANSPORT_WRITE; fastest++) {
        open_shm();
        for (int path = TRANSPORT_EAGER; path <= TRANSPORT_WRITE; path++)
            path_ns[path] = path == fastest ? 9000 : 12000;
        count(2000, 40000, true, fastest);
        assert_in_range(count(10000, 40000, true, fastest), 9700, 10000);
        path_ns[fastest] = 20000; /* the machine changes */
        count(2000, 40000, true, fastest);
        assert_in_range(count(1000, 40000, true, fastest), 0, 100);
    }
}

/* A larger class begins with the fastest path of a smaller one, and does not try one that was far slower there. */
static void test_a_larger_class(void **state)
{
    (void)state;
    open_shm();
    path_ns[TRANSPORT_READ] = 9000;
    path_ns[TRANSPORT_WRITE] = 40000;
    assert_int_not_equal(count(200, 1 << 20, true, TRANSPORT_WRITE), 0);
    assert_int_equal(count(200, 8 << 20, true, TRANSPORT_WRITE), 0);
    open_shm();
    path_ns[TRANSPORT_WRITE] = 5000; /* not the usual path */
    count(200, 1 << 20, true, TRANSPORT_WRITE);
    assert_int_equal(count(4, 8 << 20, true, TRANSPORT_WRITE), 4);
    count(40, 4 << 20, false, TRANSPORT_READ); /* no FIFO, so it has no time */
    assert_int_equal(peer.messages[choice_class(4 << 20)].measured.ns[TRANSPORT_WRITE], 0);
}

/* A sender that is not blocked does not copy through the FIFO, whatever the blocked ones found. */
static void test_not_blocked(void **state)
{
    (void)state;
    open_shm();
    path_ns[TRANSPORT_EAGER] = path_ns[TRANSPORT_READ] = 9000;
    path_ns[TRANSPORT_WRITE] = 3000;
    count(1000, 1 << 20, true, 0);
    assert_in_range(count(100, 1 << 20, true, TRANSPORT_WRITE), 90, 100);
    assert_int_equal(count(100, 1 << 20, false, TRANSPORT_WRITE), 0);
}

/* Starts n rounds of 16 messages.  One that is copied takes its time at once, one that is read in the wait for all.
 * The caller may be blocked on the last one. */
static int count_in_rounds(int n, size_t bytes, bool blocked, int path)
{
    int taken = 0;
    for (int i = 0; i < n; i++, shm.turns++) {
        int64_t wait_ns = 0;
        for (int k = 0; k < 16; k++) {
            last = path_of(bytes, true, blocked && k == 15);
            *(last == TRANSPORT_EAGER ? &clock_ns : &wait_ns) += path_ns[last];
            taken += last == path;
        }
        clock_ns += wait_ns;
    }
    return taken;
}

/* A message that is read costs its sender nothing before the wait. */
static void test_rounds(void **state)
{
    (void)state;
    for (int fastest = TRANSPORT_EAGER; fastest <= TRANSPORT_READ; fastest++) {
        for (int blocked = 1; blocked >= 0; blocked--) {
            open_shm();
            path_ns[TRANSPORT_EAGER] = path_ns[TRANSPORT_READ] = path_ns[TRANSPORT_WRITE] = 12000;
            path_ns[fastest] = 9000;
            count_in_rounds(100, 40000, blocked, fastest);
            assert_in_range(count_in_rounds(1000, 40000, blocked, fastest), 15500, 16000);
        }
    }
    const char *text = shm_explain_message(&shm, 40000, NULL);
    assert_non_null(strstr(text, "measured: eager 12.0 us, read 9.0 us"));
}

/* Messages without any wait between them are timed, too. */
static void test_endless_round(void **state)
{
    (void)state;
    open_shm();
    path_ns[TRANSPORT_EAGER] = 12000;
    path_ns[TRANSPORT_READ] = 9000;
    count(2000, 40000, false, 0);
    assert_in_range(count(10000, 40000, false, TRANSPORT_READ), 9500, 10000);
}

/* The higher rank takes the path of the lower one's messages of the same class, if it can, but not for long. */
static void test_follows_the_lower_rank(void **state)
{
    enum { BYTES = 40000 };
    (void)state;
    open_shm();
    shm.local_rank = 1;
    assert_int_equal(path_of(BYTES, true, false), TRANSPORT_EAGER);
    shm_hear_path(&shm, 0, BYTES, TRANSPORT_READ);
    assert_int_equal(path_of(2 * BYTES, true, true), TRANSPORT_READ); /* the usual path of another class */
    uint64_t calls = peer.messages[choice_class(BYTES)].calls;
    assert_int_equal(count(ROUND_MAX, BYTES, false, TRANSPORT_READ), ROUND_MAX);
    assert_int_equal(peer.messages[choice_class(BYTES)].calls, calls);
    assert_int_equal(path_of(BYTES, true, false), TRANSPORT_EAGER);

    shm_hear_path(&shm, 0, BYTES, TRANSPORT_WRITE);
    assert_int_equal(path_of(BYTES, true, false), TRANSPORT_EAGER); /* it is not blocked */
    assert_int_equal(path_of(BYTES, true, true), TRANSPORT_WRITE);
    assert_non_null(strstr(shm_explain_message(&shm, BYTES, NULL), "; message"));
    shm_hear_path(&shm, 0, BYTES, TRANSPORT_OFFER);
    assert_int_equal(path_of(BYTES, true, false), TRANSPORT_EAGER); /* ranks that share cores offer */
    shm_hear_path(&shm, 0, BYTES, TRANSPORT_READ);
    assert_non_null(strstr(shm_explain_message(&shm, BYTES, NULL), "as rank 0 does, which measures"));
}

/* Messages that follow count when the peer is sought that got the most. */
static void test_explains_what_most_follow(void **state)
{
    enum { BYTES = 40000 };
    (void)state;
    open_shm();
    struct shm_peer three[3] = {{.rank = 0}, {.rank = 1}, {.rank = 2}};
    tutti_request request = {.bytes = BYTES};
    shm.peer = three;
    shm.n = 3;
    shm.local_rank = 1;
    for (int i = 0; i < 200; i++) shm_choose_path(&shm, 2, &request, true, false, NULL);
    for (int i = 0; i < 300; i++) {
        shm_hear_path(&shm, 0, BYTES, TRANSPORT_READ);
        shm_choose_path(&shm, 0, &request, true, false, NULL);
    }
    assert_non_null(strstr(shm_explain_message(&shm, BYTES, NULL), "as rank 0 does, which measures"));
    free(three[0].messages);
    free(three[2].messages);
}

static void test_the_lower_rank_leads(void **state)
{
    (void)state;
    open_shm();
    struct shm_peer both[2] = {{.rank = 0}, {.rank = 1}};
    shm.peer = both;
    shm.n = 2;
    shm_hear_path(&shm, 1, 40000, TRANSPORT_READ);
    assert_null(both[1].messages);
    shm.local_rank = 1;
    shm.shares_cores = true;
    shm_hear_path(&shm, 0, 40000, TRANSPORT_READ); /* nothing is measured there */
    assert_null(both[0].messages);
}

/* Two ranks exchange messages.  A round takes 10 us if both messages are read, 12 us if both are eager, and 17 us if
 * their paths differ. */
static void test_both_find_the_fastest(void **state)
{
    enum { ROUNDS = 1000, BYTES = 40000 };
    struct shm_peer of_rank[2][2] = {{{.rank = 0}, {.rank = 1}}, {{.rank = 0}, {.rank = 1}}};
    struct shm ends[2];
    int path[2], reads = 0;
    (void)state;
    open_shm();
    for (int i = 0; i < 2; i++) {
        ends[i] = shm;
        ends[i].local_rank = i;
        ends[i].peer = of_rank[i];
    }
    tutti_request request = {.bytes = BYTES};
    for (int i = 0; i < 20; i++, ends[1].turns++) /* its spans of calls end at other rounds than rank 0's */
        shm_choose_path(&ends[1], 0, &request, true, false, NULL);
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < 2; i++) {
            ends[i].turns++;
            path[i] = (int)shm_choose_path(&ends[i], 1 - i, &request, true, false, NULL);
        }
        for (int i = 0; i < 2; i++) shm_hear_path(&ends[i], 1 - i, BYTES, (enum transport_path)path[1 - i]);
        clock_ns += path[0] != path[1] ? 17000 : path[0] == TRANSPORT_READ ? 10000 : 12000;
        reads += path[0] == TRANSPORT_READ && path[1] == TRANSPORT_READ;
    }
    assert_in_range(reads, ROUNDS * 9 / 10, ROUNDS);
    for (int i = 0; i < 2; i++) free(of_rank[i][1 - i].messages);
}

static void test_explains(void **state)
{
    (void)state;
    open_shm();
    assert_non_null(strstr(shm_explain_message(&shm, 1 << 20, NULL), "not measured yet"));
    path_ns[TRANSPORT_READ] = 9000;
    path_ns[TRANSPORT_EAGER] = path_ns[TRANSPORT_WRITE] = 12000;
    count(1000, 40000, true, 0);
    const char *text = shm_explain_message(&shm, 40000, NULL);
    assert_int_equal(strncmp(text, "read: ", 6), 0);
    assert_non_null(strstr(text, "measured: eager 12.0 us, read 9.0 us, fifo 12.0 us"));
    path_ns[TRANSPORT_WRITE] = 3000;
    count(200, 1 << 20, true, 0);
    text = shm_explain_message(&shm, 8 << 20, NULL); /* has not been sent, and will not take the usual path */
    assert_int_equal(strncmp(text, "fifo: ", 6), 0);
    assert_non_null(strstr(text, "message 0 to rank 0; not measured yet"));
    assert_int_equal(count(4, 8 << 20, true, TRANSPORT_WRITE), 4);
}

static void test_what_is_not_possible(void **state)
{
    (void)state;
    open_shm();
    assert_int_equal(path_of(32 << 10, false, false), TRANSPORT_READ);
    open_shm();
    shm.can_read_memory = false;
    assert_int_equal(path_of(32 << 10, true, false), TRANSPORT_EAGER);
    assert_int_equal(path_of(1 << 20, true, false), TRANSPORT_WRITE);
    is_arena = true; /* the receiver maps it */
    assert_int_equal(path_of(1 << 20, true, false), TRANSPORT_READ);
    assert_int_equal(path_of(16 << 10, true, false), TRANSPORT_EAGER);
}

static void test_named(void **state)
{
    static const tutti_path_row read = {TUTTI_SEND, TRANSPORT_READ, INT64_MAX},
                                eager = {TUTTI_SEND, TRANSPORT_EAGER, INT64_MAX};
    (void)state;
    open_shm();
    choice = &eager;
    assert_int_equal(path_of(30001, true, true), TRANSPORT_EAGER);
    assert_int_equal(path_of(1 << 20, true, true), TRANSPORT_READ); /* too large for an eager message */
    choice = &read;
    assert_int_equal(path_of(30000, true, true), TRANSPORT_READ);
    open_shm();
    choice = &read;
    shm.can_read_memory = false;
    assert_int_equal(path_of(30000, true, true), TRANSPORT_WRITE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_first_messages),
        cmocka_unit_test(test_shared_cores),
        cmocka_unit_test(test_the_fastest_one),
        cmocka_unit_test(test_a_larger_class),
        cmocka_unit_test(test_not_blocked),
        cmocka_unit_test(test_rounds),
        cmocka_unit_test(test_endless_round),
        cmocka_unit_test(test_follows_the_lower_rank),
        cmocka_unit_test(test_the_lower_rank_leads),
        cmocka_unit_test(test_both_find_the_fastest),
        cmocka_unit_test(test_explains),
        cmocka_unit_test(test_explains_what_most_follow),
        cmocka_unit_test(test_what_is_not_possible),
        cmocka_unit_test(test_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
