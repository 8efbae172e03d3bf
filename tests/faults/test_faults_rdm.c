/* Datagram endpoints: a peer dies, before there is a link to it and after. */
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "procs.h"

/* Rank 2 is killed.  With an argument, all ranks have exchanged messages with it before. */
static int rank_of_killed(int rank, int size, void *argument)
{
    int32_t x = 0;
    (void)size;
    setenv("TUTTI_SHM", "0", 1);
    setenv("TUTTI_FABRIC_PROVIDER", "tcp;ofi_rxm", 1);
    EXPECT(proc_init(20000) == TUTTI_OK);
    if (argument != NULL) EXPECT(tutti_barrier(NULL) == TUTTI_OK);
    proc_set_step(1);
    if (rank == 2) pause();
    proc_wait_for_step(2, 1);
    procs_sleep_ms(100);
    int64_t begin = monotonic_ns();
    EXPECT_ERROR(tutti_recv(tutti_view(&x, 1), 2, NULL), TUTTI_ERR_PEER_LOST, "rank 2 is lost: ");
    EXPECT(strstr(tutti_last_error(), "no heartbeat") == NULL); /* not by silence alone, which takes longer */
    EXPECT_WITHIN(begin, 0, PROCS_SOON_S);
    return tutti_destroy_process_group(NULL);
}

static void kill_rank_2(struct procs *procs, void *argument)
{
    (void)argument;
    if (procs_wait_for_step(procs, 1)) procs_signal(procs, 2, SIGKILL);
}

static void expect_noticed(void *linked)
{
    struct procs procs = {.size = 3, .fn = rank_of_killed, .argument = linked, .act = kill_rank_2, .may_fail = true};
    procs_run(&procs);
    assert_int_equal(procs.code[0], 0);
    assert_int_equal(procs.code[1], 0);
}

static void test_unlinked_peer_is_killed(void **state)
{
    (void)state;
    expect_noticed(NULL);
}

static void test_linked_peer_is_killed(void **state)
{
    static int linked;
    (void)state;
    expect_noticed(&linked);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_unlinked_peer_is_killed),
                                       cmocka_unit_test(test_linked_peer_is_killed)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
