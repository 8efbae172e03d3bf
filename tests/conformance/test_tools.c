/* Tools (tutti/tool.h) see each group and each operation once, in order, and counters (tutti_get_stats) agree. */
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <tutti/tool.h>
#include <unistd.h>

#include "ranks.h"
#include "stats/stats.h"
#include "trace/trace_align.h"
#include "usage.h"

enum { SIZE = 3, OPS = 7, MESSAGES = 2 };

/* What the tool has seen, in all ranks. */
static struct {
    atomic_int groups, ended_groups, issued, started, ended, failed, wrong, pushed, popped, bytes, asynchronous;
} seen;

static void *group_made(void *argument, const tutti_tool_group *group)
{
    bool right = argument == &seen && group->size >= sizeof *group && group->number > 0 && group->tree > 0 &&
                 group->rank < group->world_size && group->store != NULL && group->name[0] != '\0' &&
                 group->global_ranks[group->rank] < SIZE;
    seen.wrong += !right;
    seen.groups++;
    return &seen.groups;
}

static void group_ended(void *context, const tutti_tool_group *group)
{
    seen.wrong += context != &seen.groups || group->store != NULL;
    seen.ended_groups++;
}

static void op_issued(void *context, const tutti_tool_op *op, void **data)
{
    seen.wrong += context != &seen.groups || *data != NULL || !TUTTI_TOOL_HAS(op, group);
    seen.wrong += tutti_kind_is_message(op->kind) != (op->sequence == 0);
    seen.issued++;
    seen.bytes += (int)op->bytes;
    seen.asynchronous += op->async;
    *data = (void *)(uintptr_t)1;
}

static void op_started(void *context, const tutti_tool_op *op, void **data)
{
    seen.wrong += context != &seen.groups || *data != (void *)(uintptr_t)1 || op->group->size == 0;
    *data = (void *)(uintptr_t)2;
    seen.started++;
}

static void op_ended(void *context, const tutti_tool_op *op, void **data)
{
    seen.wrong += context != &seen.groups || *data == NULL || op->group->size == 0;
    *data = NULL; /* a second end would be wrong */
    seen.ended++;
}

static void op_failed(void *context, const tutti_tool_op *op, void **data, int status, const char *why)
{
    seen.wrong += status == TUTTI_OK || why[0] == '\0';
    seen.wrong += status == TUTTI_ERR_TIMEOUT && op->root != TUTTI_ANY_SOURCE; /* it has found no message */
    op_ended(context, op, data);
    seen.ended--;
    seen.failed++;
}

static void range_pushed(void *argument, const char *name)
{
    seen.wrong += argument != &seen || strcmp(name, "step") != 0;
    seen.pushed++;
}

static void range_popped(void *argument)
{
    seen.wrong += argument != &seen;
    seen.popped++;
}

static const tutti_tool tool = {TUTTI_TOOL_HEADER,
                                .name = "test",
                                .argument = &seen,
                                .times_reductions = true,
                                .group_made = group_made,
                                .group_ended = group_ended,
                                .op_issued = op_issued,
                                .op_started = op_started,
                                .op_ended = op_ended,
                                .op_failed = op_failed,
                                .range_pushed = range_pushed,
                                .range_popped = range_popped};

/* Runs OPS operations of each form that has a way of its own, and MESSAGES messages. */
static int run_operations(tutti_group *group, int rank, int size)
{
    float x[4] = {1, 2, 3, 4}, y[4] = {0}, z[2] = {0};
    tutti_work *work = NULL, *works[2] = {NULL, NULL};
    int next = (rank + 1) % size, before = (rank + size - 1) % size;
    EXPECT(tutti_all_reduce(tutti_view(x, 4), TUTTI_SUM, tutti_with(.group = group)) == TUTTI_OK);
    EXPECT(tutti_barrier(tutti_with(.group = group)) == TUTTI_OK);
    EXPECT(tutti_broadcast(tutti_view(y, 4), 0, tutti_with(.group = group, .async_op = &work)) == TUTTI_OK);
    EXPECT(tutti_wait(&work, TUTTI_DEFAULT_TIMEOUT) == TUTTI_OK);
    /* both use x: the second one starts when the first one has ended */
    EXPECT(tutti_all_reduce(tutti_view(x, 4), TUTTI_SUM, tutti_with(.group = group, .async_op = &works[0])) ==
           TUTTI_OK);
    EXPECT(tutti_all_reduce(tutti_view(x, 4), TUTTI_SUM, tutti_with(.group = group, .async_op = &works[1])) ==
           TUTTI_OK);
    EXPECT(tutti_wait_all(works, 2, TUTTI_DEFAULT_TIMEOUT) == TUTTI_OK);
    EXPECT(tutti_coalesce_begin(group) == TUTTI_OK);
    EXPECT(tutti_all_reduce(tutti_view(&z[0], 1), TUTTI_SUM, tutti_with(.group = group)) == TUTTI_OK);
    EXPECT(tutti_all_reduce(tutti_view(&y[0], 1), TUTTI_MAX, tutti_with(.group = group)) == TUTTI_OK);
    EXPECT(tutti_coalesce_end(group, NULL) == TUTTI_OK);
    tutti_p2p_op ops[MESSAGES] = {{.kind = TUTTI_SEND, .tensor = tutti_view(x, 4), .peer = next},
                                  {.kind = TUTTI_RECV, .tensor = tutti_view(y, 4), .peer = before}};
    EXPECT(tutti_batch_isend_irecv(ops, MESSAGES, tutti_with(.group = group), works) == TUTTI_OK);
    EXPECT(tutti_wait_all(works, MESSAGES, TUTTI_DEFAULT_TIMEOUT) == TUTTI_OK);
    return 0;
}

/* A refused call is not an operation.  A receive that nobody joins fails, and so does one of another size than the
 * message, which has arrived before. */
static int fail_operations(tutti_group *group, int rank, int size)
{
    float x = 1, two[2] = {1, 2};
    tutti_message message;
    EXPECT(tutti_broadcast(tutti_view(&x, 1), size, tutti_with(.group = group)) == TUTTI_ERR_INVALID_ARGUMENT);
    if (rank == 0)
        EXPECT(tutti_recv(tutti_view(&x, 1), TUTTI_ANY_SOURCE,
                          tutti_with(.group = group, .tag = 5, .timeout_ms = 20)) == TUTTI_ERR_TIMEOUT);
    if (rank == 1) EXPECT(tutti_send(tutti_view(two, 2), 0, tutti_with(.group = group, .tag = 6)) == TUTTI_OK);
    if (rank == 0) EXPECT(tutti_probe(1, tutti_with(.group = group, .tag = 6), &message) == TUTTI_OK);
    if (rank == 0) EXPECT(tutti_recv(tutti_view(&x, 1), 1, tutti_with(.group = group, .tag = 6)) == TUTTI_ERR_MISMATCH);
    return 0;
}

static int check_stats(tutti_group *group, int rank)
{
    tutti_stats stats;
    EXPECT(tutti_get_stats(group, &stats) == TUTTI_OK);
    EXPECT(stats.operations[TUTTI_ALL_REDUCE] == 5 && stats.operations[TUTTI_BARRIER] == 1);
    EXPECT(stats.operations[TUTTI_BROADCAST] == 1 && stats.operations[TUTTI_SEND] == (rank == 1 ? 2 : 1));
    EXPECT(stats.operations[TUTTI_RECV] == (rank == 0 ? 3 : 1));
    EXPECT(stats.failed == (rank == 0 ? 2 : 0));
    EXPECT(tutti_get_stats(group, NULL) == TUTTI_ERR_INVALID_ARGUMENT);
    struct { /* of a program with older and with newer headers */
        uint64_t operations[TUTTI_STATS_KINDS], guard;
    } shorter = {.guard = 77};
    EXPECT(tutti_get_stats_sized(group, (tutti_stats *)(void *)&shorter, sizeof shorter.operations) == TUTTI_OK);
    EXPECT(shorter.operations[TUTTI_ALL_REDUCE] == 5 && shorter.guard == 77);
    struct {
        tutti_stats stats;
        uint64_t newer;
    } longer = {.newer = 77};
    EXPECT(tutti_get_stats_sized(group, &longer.stats, sizeof longer) == TUTTI_OK && longer.newer == 0);
    return 0;
}

static int use_group(tutti_group *group, int rank, int size, void *argument)
{
    (void)argument;
    tutti_group *pair = NULL;
    tutti_stats stats;
    tutti_range_push("step");
    int status = run_operations(group, rank, size);
    tutti_range_pop();
    if (status == 0) status = fail_operations(group, rank, size);
    if (status == 0) status = check_stats(group, rank);
    if (status != 0) return status;
    EXPECT(tutti_new_group((int[]){0, 2}, 2, &(tutti_group_opts){.parent = group}, &pair) == TUTTI_OK);
    EXPECT(tutti_get_stats(pair, &stats) == (rank == 1 ? TUTTI_ERR_INVALID_ARGUMENT : TUTTI_OK));
    if (rank != 1) EXPECT(tutti_barrier(tutti_with(.group = pair)) == TUTTI_OK);
    EXPECT(tutti_destroy_process_group(pair) == TUTTI_OK);
    return 0;
}

static int run_alone(tutti_group *group, int rank, int size, void *argument)
{
    (void)rank;
    (void)size;
    (void)argument;
    EXPECT(tutti_barrier(tutti_with(.group = group)) == TUTTI_OK);
    return 0;
}

static void test_tables(void **state)
{
    static const tutti_tool old = {.abi = TUTTI_TOOL_ABI + 1, .size = sizeof old, .name = "old"};
    static const tutti_tool cut = {.abi = TUTTI_TOOL_ABI, .size = 8, .name = "cut"};
    static const tutti_tool nameless = {TUTTI_TOOL_HEADER};
    static const tutti_tool others[TUTTI_TOOLS_MOST] = {{TUTTI_TOOL_HEADER, .name = "a"},
                                                        {TUTTI_TOOL_HEADER, .name = "b"},
                                                        {TUTTI_TOOL_HEADER, .name = "c"},
                                                        {TUTTI_TOOL_HEADER, .name = "d"}};
    (void)state;
    assert_int_equal(tutti_register_tool(NULL), TUTTI_ERR_INVALID_ARGUMENT);
    assert_int_equal(tutti_register_tool(&old), TUTTI_ERR_INVALID_ARGUMENT);
    assert_int_equal(tutti_register_tool(&cut), TUTTI_ERR_INVALID_ARGUMENT);
    assert_int_equal(tutti_register_tool(&nameless), TUTTI_ERR_INVALID_ARGUMENT);
    assert_int_equal(tutti_register_tool(&tool), TUTTI_OK);
    assert_int_equal(tutti_register_tool(&tool), TUTTI_OK); /* once more changes nothing */
    for (int i = 0; i + 1 < TUTTI_TOOLS_MOST; i++) assert_int_equal(tutti_register_tool(&others[i]), TUTTI_OK);
    assert_int_equal(tutti_register_tool(&others[TUTTI_TOOLS_MOST - 1]), TUTTI_ERR_NO_MEMORY);
}

static void test_events(void **state)
{
    (void)state;
    ranks_run(SIZE, use_group, NULL);
    int each = OPS + MESSAGES, failed = 2, others = 4; /* barriers of the pair, a send, a probe */
    assert_int_equal(seen.wrong, 0);
    assert_int_equal(seen.groups, SIZE + 2);
    assert_int_equal(seen.ended_groups, SIZE + 2);
    assert_int_equal(seen.ended, SIZE * each + others);
    assert_int_equal(seen.failed, failed);
    assert_int_equal(seen.issued, seen.ended + seen.failed);
    assert_true(seen.started <= seen.issued && seen.started > 0);
    assert_int_equal(seen.asynchronous, SIZE * (3 + 2 + MESSAGES)); /* parts of a coalesced range are asynchronous */
    assert_int_equal(seen.bytes, SIZE * (16 + 16 + 32 + 8 + 32) + 4 + 8 + 4);
    assert_int_equal(seen.pushed, SIZE);
    assert_int_equal(seen.popped, SIZE);
}

/* Maps the counters of this process, as tutti-info does.  Returns NULL if it does not find them. */
static const tutti_stats_page *map_stats(void)
{
    char path[64], target[64];
    for (int fd = 0; fd < 1024; fd++) {
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
        ssize_t n = readlink(path, target, sizeof target - 1);
        target[n > 0 ? n : 0] = '\0';
        if (strstr(target, "memfd:" TUTTI_STATS_FILE) == NULL) continue;
        void *memory = mmap(NULL, sizeof(tutti_stats_page), PROT_READ, MAP_SHARED, fd, 0);
        return memory != MAP_FAILED ? memory : NULL;
    }
    return NULL;
}

static int map_in_rank_0(tutti_group *group, int rank, int size, void *argument)
{
    const tutti_stats_page **page = argument;
    if (rank == 0) *page = map_stats();
    return run_alone(group, rank, size, NULL);
}

/* The file of counters ends with the last group.  A reader that has mapped it sees that. */
static void test_file_is_closed(void **state)
{
    const tutti_stats_page *page = NULL;
    (void)state;
    int before = usage_fds();
    ranks_run(2, map_in_rank_0, &page);
    assert_int_equal(usage_fds(), before);
    assert_non_null(page);
    assert_true(page->n_slots == TUTTI_STATS_SLOTS && page->magic != TUTTI_STATS_MAGIC);
    munmap((void *)(uintptr_t)page, sizeof *page);
}

/* ---- clocks ------------------------------------------------------------------------------------------------- */

/* A rank of two on two hosts, whose clocks are aligned. */
struct aligned {
    tutti_tool_group group;
    tutti_trace_align found;
};

static void *align(void *argument)
{
    struct aligned *rank = argument;
    trace_align(&rank->group, &rank->found);
    return NULL;
}

/* Both ranks have one clock.  The second time, the store still has the stamps of the first time. */
static void test_clocks_align_again(void **state)
{
    static const int32_t hosts[2] = {0, 1};
    tutti_store *store = NULL;
    (void)state;
    assert_int_equal(tutti_store_memory(NULL, &store), TUTTI_OK);
    for (uint64_t id = 1; id <= 2; id++) {
        tutti_tool_group group = {.world_size = 2, .hosts = hosts, .store = store, .id = id};
        struct aligned rank[2] = {{group, {0, 0}}, {group, {0, 0}}};
        pthread_t thread[2];
        rank[1].group.rank = 1;
        assert_int_equal(pthread_create(&thread[1], NULL, align, &rank[1]), 0);
        usleep(20000);
        assert_int_equal(pthread_create(&thread[0], NULL, align, &rank[0]), 0);
        for (int i = 0; i < 2; i++) pthread_join(thread[i], NULL);
        assert_true(rank[1].found.error_ns > 0);
        assert_true(llabs((long long)rank[1].found.offset_ns) <= (long long)rank[1].found.error_ns);
    }
    tutti_store_free(store);
}

/* ---- forks -------------------------------------------------------------------------------------------------- */

static void use_locks(void)
{
    tutti_mark("mark");
    tutti_register_tool(&tool);
    stats_give(stats_take());
}

static void *use_locks_until(void *stop)
{
    while (!atomic_load((atomic_bool *)stop)) use_locks();
    return NULL;
}

/* A child can use what another thread of its parent was using. */
static void test_forks(void **state)
{
    enum { FORKS = 300, LIMIT_S = 20 };
    atomic_bool stop = false;
    pthread_t thread;
    (void)state;
#ifdef __SANITIZE_THREAD__
    skip(); /* its children do not start threads after a fork of several */
#endif
    assert_int_equal(pthread_create(&thread, NULL, use_locks_until, &stop), 0);
    for (int i = 0; i < FORKS; i++) {
        int status = -1;
        pid_t pid = fork();
        if (pid == 0) {
            alarm(LIMIT_S);
            use_locks();
            _exit(0);
        }
        assert_int_equal(waitpid(pid, &status, 0), pid);
        if (status != 0) fail_msg("child %d of %d ended with %d", i, FORKS, status);
    }
    atomic_store(&stop, true);
    pthread_join(thread, NULL);
}

int main(void)
{
    ranks_setup();
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_tables), cmocka_unit_test(test_events),
                                       cmocka_unit_test(test_file_is_closed), cmocka_unit_test(test_clocks_align_again),
                                       cmocka_unit_test(test_forks)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
