/* Many groups: in batches, at once, overlapping, and each used by a thread of its own.  They end in any order, and
 * leave nothing behind. */
#include <malloc.h>
#include <pthread.h>
#include <unistd.h>

#include "group_cases.h"
#include "sanitizer.h"
#include "usage.h"

/* Resources of the process. */
struct holds {
    int descriptors, threads;
    size_t memory; /* 0 if a sanitizer's allocator does not report it */
};

static struct holds holds_now(void)
{
    return (struct holds){usage_fds(), usage_threads(), mallinfo2().uordblks};
}

/* True if nothing was added.  There may be less, because a joined thread can stay visible for a while on a busy
 * machine. */
static bool holds_no_more(struct holds now, struct holds before)
{
    return now.descriptors <= before.descriptors && now.threads <= before.threads;
}

enum { BATCH = 100, BATCHES = 10 };

static int one_batch(tutti_group *group, int rank, int size, int batch)
{
    tutti_group *made[BATCH];
    int ranks[RANKS_MOST], order[BATCH];
    for (int i = 0; i < BATCH; i++) {
        unsigned mask = 1 + (unsigned)(i + batch) % ((1U << size) - 1);
        int n = group_cases_pick(ranks, size, mask, i);
        bool member = mask >> rank & 1;
        EXPECT(tutti_new_group(ranks, n, &(tutti_group_opts){.parent = group}, &made[i]) == TUTTI_OK);
        EXPECT((tutti_get_rank(made[i]) >= 0) == member);
        EXPECT(tutti_get_world_size(made[i]) == (member ? n : -1));
        if (member && i % 3 == 0) EXPECT(group_cases_sums_up(made[i], ranks, n));
    }
    for (int i = BATCH - 1; i >= 0; i -= 7) { /* the early groups still work */
        unsigned mask = 1 + (unsigned)(i + batch) % ((1U << size) - 1);
        int n = group_cases_pick(ranks, size, mask, i);
        if (mask >> rank & 1) EXPECT(group_cases_sums_up(made[i], ranks, n));
    }
    group_cases_shuffle(order, BATCH, (unsigned)(batch * RANKS_MOST + rank)); /* another order on each rank */
    for (int i = 0; i < BATCH; i++) EXPECT(tutti_destroy_process_group(made[order[i]]) == TUTTI_OK);
    return 0;
}

static int in_batches(tutti_group *group, int rank, int size, void *argument)
{
    (void)argument;
    struct holds before = {0};
    for (int batch = 0; batch < BATCHES; batch++) {
        int line = one_batch(group, rank, size, batch);
        if (line != 0) return line;
        EXPECT(tutti_barrier(tutti_with(.group = group)) == TUTTI_OK);
        if (rank == 0 && batch == 1) before = holds_now(); /* spare lists and caches have their final size */
        EXPECT(tutti_barrier(tutti_with(.group = group)) == TUTTI_OK);
    }
    if (rank == 0) {
        struct holds after = holds_now();
        EXPECT(holds_no_more(after, before));
        EXPECT(after.memory < before.memory + (1 << 17));
    }
    EXPECT(tutti_barrier(tutti_with(.group = group)) == TUTTI_OK);
    return 0;
}

/* A thousand groups at once share the group tree's thread and descriptors. */
static int at_once(tutti_group *group, int rank, int size, void *argument)
{
    (void)argument;
    enum { N = BATCH * BATCHES };
    tutti_group **made = calloc(N, sizeof *made);
    int ranks[RANKS_MOST], order[N], n = group_cases_pick(ranks, size, (1U << size) - 1, 1);
    EXPECT(tutti_barrier(tutti_with(.group = group)) == TUTTI_OK);
    struct holds before = {0};
    if (rank == 0) before = holds_now(); /* rank 0 alone, because counting takes a descriptor */
    EXPECT(tutti_barrier(tutti_with(.group = group)) == TUTTI_OK);
    for (int i = 0; i < N; i++)
        EXPECT(tutti_new_group(ranks, n, &(tutti_group_opts){.parent = group}, &made[i]) == TUTTI_OK);
    for (int i = 0; i < N; i += 9) EXPECT(group_cases_sums_up(made[i], ranks, n));
    EXPECT(tutti_barrier(tutti_with(.group = group)) == TUTTI_OK);
    struct holds with = before;
    if (rank == 0) with = holds_now();
    EXPECT(holds_no_more(with, before));
    EXPECT(tutti_barrier(tutti_with(.group = group)) == TUTTI_OK);
    group_cases_shuffle(order, N, (unsigned)rank + 1);
    for (int i = 0; i < N; i++) EXPECT(tutti_destroy_process_group(made[order[i]]) == TUTTI_OK);
    free(made);
    EXPECT(tutti_barrier(tutti_with(.group = group)) == TUTTI_OK);
    return 0;
}

static int many_splits(tutti_group *group, int rank, int size, void *argument)
{
    (void)argument;
    struct holds before = {0};
    for (int i = 0; i < 300; i++) {
        tutti_group *part = NULL;
        EXPECT(tutti_split_group((rank + i) % 2, i % 3 - rank, &(tutti_group_opts){.parent = group}, &part) ==
               TUTTI_OK);
        EXPECT(tutti_destroy_process_group(part) == TUTTI_OK);
        if (i == 100) {
            EXPECT(tutti_barrier(tutti_with(.group = group)) == TUTTI_OK);
            if (rank == 0) before = holds_now();
            EXPECT(tutti_barrier(tutti_with(.group = group)) == TUTTI_OK);
        }
    }
    EXPECT(tutti_barrier(tutti_with(.group = group)) == TUTTI_OK);
    if (rank == 0) {
        struct holds after = holds_now();
        EXPECT(holds_no_more(after, before));
        EXPECT(after.memory < before.memory + 8192 * (size_t)size); /* 200 splits leave nothing in the store */
    }
    EXPECT(tutti_barrier(tutti_with(.group = group)) == TUTTI_OK);
    return 0;
}

/* Splits without an end.  The allocator finds all memory again, although the program takes some in between.  A closed
 * group leaves only a record. */
static int split_for_ever(tutti_group *group, int rank, int size, void *argument)
{
    enum { N = SANITIZED ? 500 : 6000, OWN = 64, RECORD = 120 };
    (void)argument;
    struct mallinfo2 before = {0}, after;
    void **own = calloc(2 * N, sizeof *own);
    EXPECT(own != NULL);
    for (int i = 0; i < 2 * N; i++) {
        tutti_group *part = NULL;
        if (i == N) before = mallinfo2();
        EXPECT(tutti_split_group(0, rank, &(tutti_group_opts){.parent = group}, &part) == TUTTI_OK);
        own[i] = malloc(OWN);
        EXPECT(tutti_barrier(tutti_with(.group = part)) == TUTTI_OK);
        EXPECT(tutti_destroy_process_group(part) == TUTTI_OK);
    }
    after = mallinfo2();
    EXPECT(after.arena < before.arena + (size_t)size * N * (OWN + RECORD) + (1 << 20));
    for (int i = N; i < 2 * N; i++) free(own[i]);
    EXPECT(tutti_barrier(tutti_with(.group = group)) == TUTTI_OK); /* no rank of this process is in a split */
    EXPECT(mallinfo2().uordblks < before.uordblks + (size_t)size * N * RECORD + (1 << 16));
    EXPECT(tutti_barrier(tutti_with(.group = group)) == TUTTI_OK);
    for (int i = 0; i < N; i++) free(own[i]);
    free(own);
    return 0;
}

/* ---- overlapping, each in use by a thread of its own -------------------------------------------------------- */

struct user {
    pthread_t thread;
    tutti_group *group;
    int ranks[RANKS_MOST], n, number, result;
};

static int use(struct user *user)
{
    enum { ROUNDS = 60, COUNT = 700 };
    tutti_group *group = user->group;
    int rank = tutti_get_rank(group), own = user->ranks[rank];
    int32_t x[COUNT];
    for (int round = 0; round < ROUNDS; round++) {
        int64_t n = round % 4 == 0 ? COUNT : 1 + round % 5;
        for (int64_t i = 0; i < n; i++) x[i] = own + user->number * 1000 + (int)i;
        EXPECT(tutti_all_reduce(tutti_view(x, n), TUTTI_SUM, tutti_with(.group = group)) == TUTTI_OK);
        int32_t sum = 0;
        for (int i = 0; i < user->n; i++) sum += user->ranks[i] + user->number * 1000;
        for (int64_t i = 0; i < n; i++) EXPECT(x[i] == sum + (int)i * user->n);
        int root = user->ranks[round % user->n];
        x[0] = own * 7 + round;
        EXPECT(tutti_broadcast(tutti_view(x, 1), root, tutti_with(.group = group)) == TUTTI_OK);
        EXPECT(x[0] == root * 7 + round);
        if (user->n < 2) continue;
        int right = (rank + 1) % user->n, left = (rank + user->n - 1) % user->n, in = -1;
        tutti_work *work = NULL;
        EXPECT(tutti_isend(tutti_view(&own, 1), right, tutti_with(.group = group, .tag = 4, .group_rank = true),
                           &work) == TUTTI_OK);
        EXPECT(tutti_recv(tutti_view(&in, 1), left, tutti_with(.group = group, .tag = 4, .group_rank = true)) ==
               TUTTI_OK);
        EXPECT(tutti_wait(&work, TUTTI_DEFAULT_TIMEOUT) == TUTTI_OK && in == user->ranks[left]);
    }
    return 0;
}

static void *use_thread(void *argument)
{
    struct user *user = argument;
    user->result = use(user);
    return NULL;
}

static int overlapping(tutti_group *group, int rank, int size, void *argument)
{
    (void)argument;
    enum { GROUPS = 6 };
    struct user users[GROUPS] = {0};
    unsigned all = (1U << size) - 1;
    const unsigned masks[GROUPS] = {all, all, all & 3, all & 6, all & 13, all & 7};
    for (int i = 0; i < GROUPS; i++) {
        users[i].number = i;
        users[i].n = group_cases_pick(users[i].ranks, size, masks[i], i);
        EXPECT(tutti_new_group(users[i].ranks, users[i].n, &(tutti_group_opts){.parent = group}, &users[i].group) ==
               TUTTI_OK);
    }
    for (int i = 0; i < GROUPS; i++)
        if (masks[i] >> rank & 1) EXPECT(pthread_create(&users[i].thread, NULL, use_thread, &users[i]) == 0);
    for (int i = 0; i < GROUPS; i++)
        if (masks[i] >> rank & 1) pthread_join(users[i].thread, NULL);
    for (int i = 0; i < GROUPS; i++) EXPECT(users[i].result == 0);
    for (int i = 0; i < GROUPS; i++) EXPECT(tutti_destroy_process_group(users[(i + rank) % GROUPS].group) == TUTTI_OK);
    EXPECT(tutti_barrier(tutti_with(.group = group)) == TUTTI_OK);
    return 0;
}

int main(void)
{
    static const struct group_case cases[] = {
        {"in_batches", in_batches, 2, 4},   {"at_once", at_once, 2, 2},
        {"many_splits", many_splits, 2, 3}, {"split_for_ever", split_for_ever, 2, 2},
        {"overlapping", overlapping, 3, 4},
    };
    return group_cases_run(cases, sizeof cases / sizeof *cases, NULL, 0);
}
