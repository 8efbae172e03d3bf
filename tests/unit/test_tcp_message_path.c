/* backends/tcp/shm/message_path.c: the path of a large message. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "../../backends/tcp/shm/message_path.c"

static bool has_space, is_arena, read_is_faster;

bool shm_fits(struct shm *shm, int local_rank, size_t bytes)
{
    (void)shm, (void)local_rank, (void)bytes;
    return has_space;
}

bool shm_is_shared(const struct shm *shm, const void *memory, size_t bytes)
{
    (void)shm, (void)memory, (void)bytes;
    return is_arena;
}

int cost_choose(struct cost_model *cost, size_t bytes)
{
    (void)cost, (void)bytes;
    return read_is_faster ? SHM_COST_READ : SHM_COST_COPY;
}

static struct shm_peer peer;
static struct shm shm;
static const tutti_path_row *choice; /* the core's row */

static void open_shm(void)
{
    shm = (struct shm){.peer = &peer, .can_read_memory = true, .transport.eager_max = 64 << 10};
    has_space = true;
    is_arena = read_is_faster = false;
    choice = NULL;
}

static int path_of(size_t bytes, bool may_eager, bool blocked)
{
    tutti_request request = {.bytes = bytes};
    return (int)shm_choose_path(&shm, 0, &request, may_eager, blocked, choice);
}

static void test_by_size(void **state)
{
    (void)state;
    open_shm();
    assert_int_equal(path_of(12 << 10, true, true), TRANSPORT_EAGER);
    assert_int_equal(path_of(16 << 10, true, false), TRANSPORT_EAGER);
    assert_int_equal(path_of(13 << 10, true, true), TRANSPORT_WRITE); /* the receiver may be ready */
    assert_int_equal(path_of(64 << 10, true, false), TRANSPORT_EAGER);
    assert_int_equal(path_of((64 << 10) + 1, true, false), TRANSPORT_READ);
    assert_int_equal(path_of((64 << 10) + 1, true, true), TRANSPORT_WRITE);
    assert_int_equal(path_of(0, false, false), TRANSPORT_WRITE);
}

static void test_the_faster_one(void **state)
{
    (void)state;
    open_shm();
    read_is_faster = true;
    assert_int_equal(path_of(64 << 10, true, false), TRANSPORT_READ);
    assert_int_equal(path_of(1 << 20, true, true), TRANSPORT_READ);
    shm.shares_cores = true; /* then nothing is timed */
    assert_int_equal(path_of(64 << 10, true, false), TRANSPORT_EAGER);
    assert_int_equal(path_of(1 << 20, true, true), TRANSPORT_WRITE);
}

static void test_what_is_not_possible(void **state)
{
    (void)state;
    open_shm();
    has_space = false; /* otherwise it would be copied once more */
    assert_int_equal(path_of(32 << 10, true, false), TRANSPORT_READ);
    assert_int_equal(path_of(32 << 10, false, false), TRANSPORT_READ);
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
    assert_int_equal(path_of(1 << 20, true, true), TRANSPORT_WRITE); /* too large for an eager message */
    choice = &read;
    assert_int_equal(path_of(30000, true, true), TRANSPORT_READ);
    shm.can_read_memory = false;
    assert_int_equal(path_of(30000, true, true), TRANSPORT_WRITE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_by_size),
        cmocka_unit_test(test_the_faster_one),
        cmocka_unit_test(test_what_is_not_possible),
        cmocka_unit_test(test_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
