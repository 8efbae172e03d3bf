/* Runs every collective, and checks the values, in a group of 1,024 ranks made by tutti_create_group and in its two
 * halves made by tutti_split_group.
 *
 * Ranks are threads of this process over the plug-in "loop", whose messages go through a table in memory.  Each rank
 * has its own engine and progress thread, as in a process of its own. */
#include "ranks.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "usage.h"

enum { RANKS = 1024, STACK = 256 << 10, ROOT = 777, COUNT = 3, DESCRIPTORS = 4 * RANKS };

struct member {
    pthread_t thread;
    tutti_store *store;
    int rank, line;
    char text[400];
};

#define TRY(condition)                                                                                                 \
    do {                                                                                                               \
        if (!(condition)) return __LINE__;                                                                             \
    } while (0)

/* Returns element i of rank r. */
static int32_t given(int r, int i)
{
    return r * 1000 + i;
}

static int32_t sum(int size, int i)
{
    return (int32_t)(1000LL * size * (size - 1) / 2 + (int64_t)i * size);
}

struct buffers {
    int32_t in[RANKS * COUNT], out[RANKS * COUNT], few[COUNT];
};

static void fill(int32_t *data, int r, int n)
{
    for (int i = 0; i < n; i++) data[i] = given(r, i);
}

static int reductions(tutti_group *group, int r, int size, struct buffers *b)
{
    tutti_opts *opts = tutti_with(.group = group, .group_rank = true);
    int root = ROOT % size;
    fill(b->few, r, COUNT);
    TRY(tutti_all_reduce(tutti_view(b->few, COUNT), TUTTI_SUM, opts) == TUTTI_OK);
    for (int i = 0; i < COUNT; i++) TRY(b->few[i] == sum(size, i));
    fill(b->few, r, COUNT);
    TRY(tutti_reduce(tutti_view(b->few, COUNT), root, TUTTI_SUM, opts) == TUTTI_OK);
    for (int i = 0; i < COUNT; i++) TRY(b->few[i] == (r == root ? sum(size, i) : given(r, i)));
    fill(b->in, r, size * COUNT);
    TRY(tutti_reduce_scatter_tensor(tutti_view(b->few, COUNT), tutti_view(b->in, size * COUNT), TUTTI_SUM, opts) ==
        TUTTI_OK);
    for (int i = 0; i < COUNT; i++) TRY(b->few[i] == sum(size, r * COUNT + i));
    return 0;
}

static int copies(tutti_group *group, int r, int size, struct buffers *b)
{
    tutti_opts *opts = tutti_with(.group = group, .group_rank = true);
    int root = ROOT % size;
    tutti_tensor *list = calloc((size_t)size, sizeof *list), few = tutti_view(b->few, COUNT);
    for (int i = 0; i < size; i++) list[i] = tutti_view(b->out + i * COUNT, COUNT);
    fill(b->few, r, COUNT);
    TRY(tutti_broadcast(few, root, opts) == TUTTI_OK);
    for (int i = 0; i < COUNT; i++) TRY(b->few[i] == given(root, i));
    fill(b->few, r, COUNT);
    TRY(tutti_all_gather_into_tensor(tutti_view(b->out, size * COUNT), few, opts) == TUTTI_OK);
    for (int i = 0; i < size * COUNT; i++) TRY(b->out[i] == given(i / COUNT, i % COUNT));
    memset(b->out, 0, sizeof b->out);
    TRY(tutti_gather(few, r == root ? list : NULL, r == root ? size : 0, root, opts) == TUTTI_OK);
    for (int i = 0; r == root && i < size * COUNT; i++) TRY(b->out[i] == given(i / COUNT, i % COUNT));
    TRY(tutti_scatter(few, r == root ? list : NULL, r == root ? size : 0, root, opts) == TUTTI_OK);
    for (int i = 0; i < COUNT; i++) TRY(b->few[i] == given(r, i));
    free(list);
    return 0;
}

static int to_all(tutti_group *group, int r, int size, struct buffers *b)
{
    tutti_opts *opts = tutti_with(.group = group);
    fill(b->in, r, size);
    TRY(tutti_all_to_all_single(tutti_view(b->out, size), tutti_view(b->in, size), NULL, NULL, opts) == TUTTI_OK);
    for (int i = 0; i < size; i++) TRY(b->out[i] == given(i, r));
    TRY(tutti_barrier(opts) == TUTTI_OK);
    return 0;
}

static int every(tutti_group *group, struct buffers *b)
{
    int r = tutti_get_rank(group), size = tutti_get_world_size(group), line = reductions(group, r, size, b);
    if (line == 0) line = copies(group, r, size, b);
    if (line == 0) line = to_all(group, r, size, b);
    return line;
}

static int work(struct member *member, struct buffers *b)
{
    tutti_group *group = NULL, *half = NULL;
    int rank = member->rank;
    TRY(tutti_create_group("loop", member->store, rank, RANKS, &(tutti_group_opts){.timeout_ms = RANKS_HANG_MS},
                           &group) == TUTTI_OK);
    int line = every(group, b);
    if (line != 0) return line;
    TRY(tutti_split_group(rank % 2, -rank, &(tutti_group_opts){.parent = group}, &half) == TUTTI_OK);
    TRY(tutti_get_world_size(half) == RANKS / 2 && tutti_get_rank(half) == RANKS / 2 - 1 - rank / 2);
    line = every(half, b);
    if (line != 0) return line;
    TRY(tutti_destroy_process_group(half) == TUTTI_OK);
    TRY(tutti_destroy_process_group(group) == TUTTI_OK);
    return 0;
}

static void *member_main(void *argument)
{
    struct member *member = argument;
    struct buffers *b = malloc(sizeof *b);
    member->line = b != NULL ? work(member, b) : __LINE__;
    if (member->line != 0) snprintf(member->text, sizeof member->text, "%.399s", tutti_last_error());
    free(b);
    return NULL;
}

static void test_thousand(void **state)
{
    static struct member members[RANKS];
    tutti_store *store = NULL;
    pthread_attr_t small;
    (void)state;
    if (!usage_allow_fds(DESCRIPTORS)) skip();
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, STACK);
    assert_int_equal(tutti_store_memory(NULL, &store), TUTTI_OK);
    for (int i = 0; i < RANKS; i++) {
        members[i] = (struct member){.store = store, .rank = i};
        assert_int_equal(pthread_create(&members[i].thread, &small, member_main, &members[i]), 0);
    }
    for (int i = 0; i < RANKS; i++) pthread_join(members[i].thread, NULL);
    tutti_store_free(store);
    for (int i = 0; i < RANKS; i++)
        if (members[i].line != 0) fail_msg("rank %d, line %d: %s", i, members[i].line, members[i].text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_thousand)};
    ranks_setup();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
