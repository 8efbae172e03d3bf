/* Groups: many of them, overlapping, nested, split, made by their members alone, and ended in any order.  Ranks are
 * threads over the tests' own backend, and once more processes over tcp. */
#include <inttypes.h>
#include <limits.h>
#include <malloc.h>
#include <pthread.h>
#include <unistd.h>

#include "group/group_id.h"
#include "group/subgroup.h"
#include "ranks.h"
#include "state/group_state.h"
#include "usage.h"

/* ---- small things ------------------------------------------------------------------------------------------- */

/* What a process holds. */
struct holds {
    int descriptors, threads;
    size_t memory; /* 0 where a sanitizer's allocator does not tell */
};

static struct holds holds_now(void)
{
    return (struct holds){usage_fds(), usage_threads(), mallinfo2().uordblks};
}

/* A thread that was joined before may still be seen for a while on a busy machine, so there may be fewer. */
static bool holds_no_more(struct holds now, struct holds before)
{
    return now.descriptors <= before.descriptors && now.threads <= before.threads;
}

static unsigned next_random(unsigned *state)
{
    *state = *state * 1664525 + 1013904223;
    return *state >> 8;
}

static void shuffle(int *order, int n, unsigned seed)
{
    for (int i = 0; i < n; i++) order[i] = i;
    for (int i = n - 1; i > 0; i--) {
        int k = (int)(next_random(&seed) % (unsigned)(i + 1)), kept = order[i];
        order[i] = order[k];
        order[k] = kept;
    }
}

/* The ranks whose bits are set in mask, in an order that depends on turn. */
static int pick(int *ranks, int size, unsigned mask, int turn)
{
    int n = 0;
    for (int i = 0; i < size; i++) {
        int rank = turn % 2 != 0 ? size - 1 - i : (i + turn) % size;
        if (mask >> rank & 1) ranks[n++] = rank;
    }
    return n;
}

/* The sum over a group's members of their global ranks plus one, by the group itself. */
static bool sums_up(tutti_group *group, const int *ranks, int n)
{
    int64_t sum = 0, x = tutti_get_global_rank(group, tutti_get_rank(group)) + 1;
    for (int i = 0; i < n; i++) sum += ranks[i] + 1;
    return tutti_all_reduce(tutti_view(&x, 1), TUTTI_SUM, tutti_with(.group = group)) == TUTTI_OK && x == sum;
}

/* ---- many --------------------------------------------------------------------------------------------------- */

enum { BATCH = 100, BATCHES = 10 };

static int one_batch(tutti_group *group, int rank, int size, int batch)
{
    tutti_group *made[BATCH];
    int ranks[RANKS_MOST], order[BATCH];
    for (int i = 0; i < BATCH; i++) {
        unsigned mask = 1 + (unsigned)(i + batch) % ((1U << size) - 1);
        int n = pick(ranks, size, mask, i);
        bool member = mask >> rank & 1;
        EXPECT(tutti_new_group(ranks, n, &(tutti_group_opts){.parent = group}, &made[i]) == TUTTI_OK);
        EXPECT((tutti_get_rank(made[i]) >= 0) == member);
        EXPECT(tutti_get_world_size(made[i]) == (member ? n : -1));
        if (member && i % 3 == 0) EXPECT(sums_up(made[i], ranks, n));
    }
    for (int i = BATCH - 1; i >= 0; i -= 7) { /* the early ones still work, now that there are many */
        unsigned mask = 1 + (unsigned)(i + batch) % ((1U << size) - 1);
        int n = pick(ranks, size, mask, i);
        if (mask >> rank & 1) EXPECT(sums_up(made[i], ranks, n));
    }
    shuffle(order, BATCH, (unsigned)(batch * RANKS_MOST + rank)); /* another order on each rank */
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
        if (rank == 0 && batch == 1) before = holds_now(); /* spares and caches have their size by now */
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

/* All thousand at once: they share their family's thread and descriptors. */
static int at_once(tutti_group *group, int rank, int size, void *argument)
{
    (void)argument;
    enum { N = BATCH * BATCHES };
    tutti_group **made = calloc(N, sizeof *made);
    int ranks[RANKS_MOST], order[N], n = pick(ranks, size, (1U << size) - 1, 1);
    EXPECT(tutti_barrier(tutti_with(.group = group)) == TUTTI_OK);
    struct holds before = {0};
    if (rank == 0) before = holds_now(); /* alone: to look takes a descriptor */
    EXPECT(tutti_barrier(tutti_with(.group = group)) == TUTTI_OK);
    for (int i = 0; i < N; i++)
        EXPECT(tutti_new_group(ranks, n, &(tutti_group_opts){.parent = group}, &made[i]) == TUTTI_OK);
    for (int i = 0; i < N; i += 9) EXPECT(sums_up(made[i], ranks, n));
    EXPECT(tutti_barrier(tutti_with(.group = group)) == TUTTI_OK);
    struct holds with = before;
    if (rank == 0) with = holds_now();
    EXPECT(holds_no_more(with, before));
    EXPECT(tutti_barrier(tutti_with(.group = group)) == TUTTI_OK);
    shuffle(order, N, (unsigned)rank + 1);
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
        users[i].n = pick(users[i].ranks, size, masks[i], i);
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

/* ---- ranks -------------------------------------------------------------------------------------------------- */

static int translation(tutti_group *group, int rank, int size, void *argument)
{
    (void)argument;
    tutti_group *odd = NULL;
    int ranks[RANKS_MOST], n = 0, seen = 0;
    for (int r = size - 1; r >= 0; r--)
        if (r != 1) ranks[n++] = r;
    EXPECT(tutti_new_group(ranks, n, &(tutti_group_opts){.parent = group, .name = "backwards"}, &odd) == TUTTI_OK);
    EXPECT(strcmp(tutti_get_name(odd), "backwards") == 0);
    for (int r = 0; r < size; r++) {
        EXPECT(tutti_get_global_rank(group, r) == r && tutti_get_group_rank(group, r) == r);
        int expected = -1;
        for (int i = 0; i < n; i++)
            if (ranks[i] == r) expected = i;
        if (rank == 1) {
            EXPECT(tutti_get_group_rank(odd, r) == -1 && tutti_get_global_rank(odd, r) == -1);
        } else {
            EXPECT(tutti_get_group_rank(odd, r) == expected);
            if (expected >= 0) EXPECT(tutti_get_global_rank(odd, expected) == r);
            seen += expected >= 0;
        }
    }
    EXPECT(rank == 1 ? tutti_get_rank(odd) == -1 : seen == n && tutti_get_rank(odd) == tutti_get_group_rank(odd, rank));
    static const int outside[] = {-1, INT_MIN, INT_MAX, 1000};
    for (int i = 0; i < 4; i++)
        EXPECT(tutti_get_group_rank(odd, outside[i]) == -1 && tutti_get_global_rank(odd, outside[i]) == -1);
    EXPECT(tutti_get_global_rank(odd, n) == -1);
    EXPECT(tutti_destroy_process_group(odd) == TUTTI_OK);
    return 0;
}

/* Every root and peer, once as a global rank and once as one of the group; the sender is told in the same way. */
static int group_ranks(tutti_group *group, int rank, int size, void *argument)
{
    (void)argument;
    tutti_group *part = NULL;
    int ranks[RANKS_MOST] = {0};
    for (int r = 0; r < size; r++) ranks[r] = (size - r) % size; /* 0, size - 1, .. 1 */
    EXPECT(tutti_new_group(ranks, size, &(tutti_group_opts){.parent = group}, &part) == TUTTI_OK);
    for (int root = 0; root < size; root++)
        for (int by_group = 0; by_group < 2; by_group++) {
            int x = rank, source = -1;
            const tutti_opts *opts = tutti_with(.group = part, .group_rank = by_group != 0, .source = &source);
            int named = by_group ? tutti_get_group_rank(part, root) : root;
            EXPECT(tutti_broadcast(tutti_view(&x, 1), named, opts) == TUTTI_OK && x == root);
            x = 1;
            EXPECT(tutti_reduce(tutti_view(&x, 1), named, TUTTI_SUM, opts) == TUTTI_OK);
            EXPECT(x == (rank == root ? size : 1));
            if (rank == root) {
                for (int i = 1; i < size; i++) {
                    EXPECT(tutti_recv(tutti_view(&x, 1), TUTTI_ANY_SOURCE, opts) == TUTTI_OK);
                    EXPECT(source == (by_group ? tutti_get_group_rank(part, x) : x));
                }
            } else {
                x = rank;
                EXPECT(tutti_send(tutti_view(&x, 1), named, opts) == TUTTI_OK);
            }
            EXPECT(tutti_barrier(opts) == TUTTI_OK);
        }
    int x = 0;
    EXPECT(tutti_broadcast(tutti_view(&x, 1), size, tutti_with(.group = part, .group_rank = true)) ==
           TUTTI_ERR_INVALID_ARGUMENT);
    EXPECT(tutti_destroy_process_group(part) == TUTTI_OK);
    return 0;
}

/* ---- by the members alone ----------------------------------------------------------------------------------- */

/* Each rank makes a group with every other, in an order of its own, twice; then all are used at once. */
static int members_only(tutti_group *group, int rank, int size, void *argument)
{
    (void)argument;
    tutti_group *pair[RANKS_MOST][2] = {{NULL}};
    tutti_work *work[RANKS_MOST * 2] = {NULL};
    int order[RANKS_MOST], x[RANKS_MOST][2];
    const tutti_group_opts opts = {.parent = group, .members_only = true};
    shuffle(order, size, (unsigned)rank * 77 + 5);
    for (int turn = 0; turn < 2; turn++)
        for (int i = 0; i < size; i++) {
            int other = order[i], ranks[2] = {rank < other ? rank : other, rank < other ? other : rank};
            if (other == rank) continue;
            EXPECT(tutti_new_group(ranks, 2, &opts, &pair[other][turn]) == TUTTI_OK);
            EXPECT(tutti_get_rank(pair[other][turn]) == (rank > other));
        }
    for (int i = size - 1; i >= 0; i--)
        for (int turn = 0; turn < 2; turn++) {
            int other = order[i];
            x[other][turn] = rank * 10 + turn;
            if (other == rank) continue;
            EXPECT(tutti_all_reduce(tutti_view(&x[other][turn], 1), TUTTI_SUM,
                                    tutti_with(.group = pair[other][turn], .async_op = &work[other * 2 + turn])) ==
                   TUTTI_OK);
        }
    EXPECT(tutti_wait_all(work, size * 2, TUTTI_DEFAULT_TIMEOUT) == TUTTI_OK);
    for (int other = 0; other < size; other++)
        for (int turn = 0; turn < 2 && other != rank; turn++) {
            EXPECT(x[other][turn] == (rank + other) * 10 + 2 * turn);
            EXPECT(tutti_destroy_process_group(pair[other][turn]) == TUTTI_OK);
        }
    /* the ranks that are not in it need not know of it: rank 0 goes on to the barrier */
    int rest[RANKS_MOST], n = pick(rest, size, ((1U << size) - 1) & ~1U, 0);
    tutti_group *without = NULL;
    if (rank > 0) {
        EXPECT(tutti_new_group(rest, n, &opts, &without) == TUTTI_OK);
        EXPECT(sums_up(without, rest, n));
        EXPECT(tutti_destroy_process_group(without) == TUTTI_OK);
    }
    EXPECT(tutti_barrier(tutti_with(.group = group)) == TUTTI_OK);
    return 0;
}

/* ---- splits ------------------------------------------------------------------------------------------------- */

static int splits(tutti_group *group, int rank, int size, void *argument)
{
    (void)argument;
    tutti_group *part = NULL;
    const tutti_group_opts opts = {.parent = group};
    /* rank 0 takes no part; the others have one color and equal keys: the old order */
    EXPECT(tutti_split_group(rank == 0 ? -5 : 7, 3, &opts, &part) == TUTTI_OK);
    EXPECT(tutti_get_rank(part) == rank - 1 && tutti_get_world_size(part) == (rank == 0 ? -1 : size - 1));
    if (rank == 0) EXPECT(tutti_barrier(tutti_with(.group = part)) == TUTTI_ERR_INVALID_ARGUMENT);
    if (rank != 0) EXPECT(tutti_barrier(tutti_with(.group = part)) == TUTTI_OK);
    EXPECT(tutti_destroy_process_group(part) == TUTTI_OK);
    /* nobody takes part */
    EXPECT(tutti_split_group(INT_MIN, 0, &opts, &part) == TUTTI_OK && tutti_get_rank(part) == -1);
    void *none = NULL;
    EXPECT(tutti_alloc(part, 8, &none) == TUTTI_ERR_INVALID_ARGUMENT && none == NULL);
    EXPECT(tutti_destroy_process_group(part) == TUTTI_OK);
    /* the largest keys there are; the last rank goes first, the first one last */
    int key = rank == 0 ? INT_MAX : rank == size - 1 ? INT_MIN : 0;
    EXPECT(tutti_split_group(INT_MAX, key, &opts, &part) == TUTTI_OK);
    EXPECT(tutti_get_group_rank(part, size - 1) == 0 && tutti_get_group_rank(part, 0) == size - 1);
    for (int r = 1; r < size - 1; r++) EXPECT(tutti_get_group_rank(part, r) == r);
    /* a split of a split: its ranks stay those of the world */
    tutti_group *half = NULL;
    EXPECT(tutti_split_group(rank % 2, 0, &(tutti_group_opts){.parent = part}, &half) == TUTTI_OK);
    for (int i = 0, last = -1; i < tutti_get_world_size(half); i++) {
        EXPECT(tutti_get_global_rank(half, i) % 2 == rank % 2);
        EXPECT(tutti_get_group_rank(part, tutti_get_global_rank(half, i)) != last);
        last = tutti_get_group_rank(part, tutti_get_global_rank(half, i));
    }
    int x = rank;
    EXPECT(tutti_all_reduce(tutti_view(&x, 1), TUTTI_MIN, tutti_with(.group = half)) == TUTTI_OK && x == rank % 2);
    EXPECT(tutti_destroy_process_group(part) == TUTTI_OK); /* before its child */
    EXPECT(tutti_all_reduce(tutti_view(&x, 1), TUTTI_MAX, tutti_with(.group = half)) == TUTTI_OK && x == rank % 2);
    EXPECT(tutti_destroy_process_group(half) == TUTTI_OK);
    return 0;
}

/* A group of one does everything, alone. */
static int of_one(tutti_group *group, int rank, int size, void *argument)
{
    (void)argument;
    tutti_group *alone = NULL;
    EXPECT(tutti_split_group(rank, 0, &(tutti_group_opts){.parent = group}, &alone) == TUTTI_OK);
    EXPECT(tutti_get_rank(alone) == 0 && tutti_get_world_size(alone) == 1 && tutti_get_global_rank(alone, 0) == rank);
    const tutti_opts *opts = tutti_with(.group = alone);
    float a[3] = {1, 2, 3}, b[3] = {0};
    int64_t split = 3;
    tutti_tensor in = tutti_view(a, 3), out = tutti_view(b, 3);
    EXPECT(tutti_barrier(opts) == TUTTI_OK && tutti_monitored_barrier(opts) == TUTTI_OK);
    EXPECT(tutti_broadcast(in, rank, opts) == TUTTI_OK && a[2] == 3);
    EXPECT(tutti_all_reduce(in, TUTTI_AVG, opts) == TUTTI_OK && a[2] == 3);
    EXPECT(tutti_reduce_into(out, in, rank, TUTTI_MAX, opts) == TUTTI_OK && b[1] == 2);
    EXPECT(tutti_all_gather(&out, 1, in, opts) == TUTTI_OK && b[0] == 1);
    memset(b, 0, sizeof b);
    EXPECT(tutti_gather(in, &out, 1, rank, opts) == TUTTI_OK && b[2] == 3);
    memset(b, 0, sizeof b);
    EXPECT(tutti_scatter(out, &in, 1, rank, opts) == TUTTI_OK && b[2] == 3);
    memset(b, 0, sizeof b);
    EXPECT(tutti_reduce_scatter(out, &in, 1, TUTTI_SUM, opts) == TUTTI_OK && b[2] == 3);
    memset(b, 0, sizeof b);
    EXPECT(tutti_all_to_all_single(out, in, &split, &split, opts) == TUTTI_OK && b[2] == 3);
    EXPECT(tutti_send(in, rank, opts) == TUTTI_ERR_INVALID_ARGUMENT);
    EXPECT(tutti_destroy_process_group(alone) == TUTTI_OK);
    EXPECT(tutti_barrier(tutti_with(.group = group)) == TUTTI_OK);
    (void)size;
    return 0;
}

/* Groups of groups, each backwards and without its parent's last; the parents are destroyed before the children. */
static int nested(tutti_group *group, int rank, int size, void *argument)
{
    (void)argument;
    tutti_group *chain[RANKS_MOST + 1] = {group};
    int ranks[RANKS_MOST], n = size, depth = 0;
    for (int r = 0; r < size; r++) ranks[r] = r;
    while (n > 1) {
        int next[RANKS_MOST];
        for (int i = 0; i < n - 1; i++) next[i] = ranks[n - 2 - i];
        bool member = tutti_get_rank(chain[depth]) >= 0;
        if (!member) break;
        EXPECT(tutti_new_group(next, --n, &(tutti_group_opts){.parent = chain[depth]}, &chain[depth + 1]) == TUTTI_OK);
        depth++;
        memcpy(ranks, next, sizeof next);
        if (tutti_get_rank(chain[depth]) >= 0) EXPECT(sums_up(chain[depth], ranks, n));
    }
    tutti_group *last = NULL;
    if (tutti_get_rank(chain[depth]) < 0) /* one that is not in it cannot make groups from it */
        EXPECT(tutti_new_group(&rank, 1, &(tutti_group_opts){.parent = chain[depth]}, &last) ==
               TUTTI_ERR_INVALID_ARGUMENT);
    for (int i = 1; i <= depth; i++) {
        EXPECT(tutti_destroy_process_group(chain[i]) == TUTTI_OK);
        if (i == 1 && depth > 2 && tutti_get_rank(chain[2]) >= 0)
            EXPECT(tutti_barrier(tutti_with(.group = chain[2])) == TUTTI_OK);
    }
    EXPECT(tutti_barrier(tutti_with(.group = group)) == TUTTI_OK);
    return 0;
}

/* ---- stamped ------------------------------------------------------------------------------------------------ */

static const struct {
    const char *name;
    rank_fn fn;
    int least, most; /* ranks */
} cases[] = {
    {"in_batches", in_batches, 2, 4},     {"at_once", at_once, 2, 2},         {"many_splits", many_splits, 2, 3},
    {"overlapping", overlapping, 3, 4},   {"translation", translation, 2, 5}, {"group_ranks", group_ranks, 2, 4},
    {"members_only", members_only, 2, 6}, {"splits", splits, 2, 5},           {"groups_of_one", of_one, 1, 3},
    {"groups_of_groups", nested, 2, 6},
};
enum { CASES = sizeof cases / sizeof *cases };

static void test_case(void **state)
{
    int i = (int)(intptr_t)*state;
    for (int size = cases[i].least; size <= cases[i].most; size++) ranks_run(size, cases[i].fn, NULL);
}

/* The same over tcp, where each rank is a process: its descriptors are its own. */
static int process(int rank, void *argument)
{
    tutti_group *group = NULL;
    (void)argument;
    EXPECT(tutti_init_process_group("tcp", &(tutti_init_opts){.timeout_ms = 30000}) == TUTTI_OK);
    for (int i = 0; i < CASES; i++) {
        int line = cases[i].fn(NULL, rank, tutti_get_world_size(NULL), NULL);
        if (line != 0) fprintf(stderr, "rank %d: case %s over tcp, line %d\n", rank, cases[i].name, line);
        if (line != 0) return 1;
    }
    return tutti_destroy_process_group(NULL) == TUTTI_OK ? 0 : 1;
}

static void test_tcp(void **state)
{
    (void)state;
    if (access(TUTTI_BACKENDS_DIR "/libtutti_tcp.so", R_OK) != 0) {
        print_message("skipped: the tcp backend was not built\n");
        skip();
    }
    if (tutti_spawn(process, NULL, 3) != TUTTI_OK) fail_msg("%s", tutti_last_error());
}

/* Somebody who may write into the store has put there what is no choice of a rank's. */
static int false_choice(tutti_group *group, int rank, int size, void *argument)
{
    static const char *const choices[] = {"0 0 100000", "0 0 0\n", "-1 0 0\n", "7 0 0\n", "a b\n"};
    (void)size;
    (void)argument;
    for (size_t i = 0; i < sizeof choices / sizeof *choices; i++) {
        char key[64];
        tutti_group *part = NULL;
        uint64_t id = group_id_mix(group_id_mix(group->id, 1), group->n_subgroups + 3);
        snprintf(key, sizeof key, "split/%016" PRIx64 "/choices", id);
        if (rank == 0) EXPECT(tutti_store_set(group->store, key, choices[i], strlen(choices[i])) == TUTTI_OK);
        EXPECT(tutti_barrier(tutti_with(.group = group)) == TUTTI_OK);
        EXPECT(tutti_split_group(0, 0, &(tutti_group_opts){.parent = group}, &part) == TUTTI_ERR_STORE);
        EXPECT(strstr(tutti_last_error(), "choice in the store") != NULL && part == NULL);
    }
    EXPECT(tutti_barrier(tutti_with(.group = group)) == TUTTI_OK);
    return 0;
}

/* Over a backend without `tell`, whose ranks split through the store. */
static void run_ranks_of_plain(int size, rank_fn fn)
{
    const char *before = getenv("TUTTI_TEST_BACKEND");
    char *kept = before != NULL ? strdup(before) : NULL;
    setenv("TUTTI_TEST_BACKEND", "plain", 1);
    ranks_run(size, fn, NULL);
    if (kept != NULL)
        setenv("TUTTI_TEST_BACKEND", kept, 1);
    else
        unsetenv("TUTTI_TEST_BACKEND");
    free(kept);
}

static void test_false_choice(void **state)
{
    (void)state;
    run_ranks_of_plain(2, false_choice);
}

static void test_splits_through_the_store(void **state)
{
    (void)state;
    run_ranks_of_plain(5, splits);
}

/* Groups one after the other over one store: a rank that comes late to its split is not taken for one of before. */
static int splits_in_turns(void *argument, int rank)
{
    tutti_store *store = argument;
    for (int turn = 0; turn < 3; turn++) {
        tutti_group *group = NULL, *part = NULL;
        EXPECT(tutti_create_group("loop", store, rank, 2, &(tutti_group_opts){.timeout_ms = RANKS_HANG_MS}, &group) ==
               TUTTI_OK);
        if (turn > 0 && rank == 1) usleep(100000);
        EXPECT(tutti_split_group(turn * rank, 0, &(tutti_group_opts){.parent = group}, &part) == TUTTI_OK);
        EXPECT(tutti_get_world_size(part) == (turn == 0 ? 2 : 1));
        EXPECT(tutti_destroy_process_group(part) == TUTTI_OK);
        EXPECT(tutti_destroy_process_group(group) == TUTTI_OK);
    }
    return 0;
}

static void *second_in_turns(void *store)
{
    return (void *)(intptr_t)splits_in_turns(store, 1);
}

static void test_splits_in_turns(void **state)
{
    (void)state;
    tutti_store *store = NULL;
    pthread_t second;
    void *result = NULL;
    assert_int_equal(tutti_store_memory(NULL, &store), TUTTI_OK);
    assert_int_equal(pthread_create(&second, NULL, second_in_turns, store), 0);
    int first = splits_in_turns(store, 0);
    pthread_join(second, &result);
    tutti_store_free(store);
    assert_int_equal(first, 0);
    assert_null(result);
}

/* Many ranks have entered one as lost; here they are of no group of two. */
static int lost_by_many(tutti_group *group, int rank, int size, void *argument)
{
    tutti_group *same = NULL;
    char key[64];
    (void)argument;
    snprintf(key, sizeof key, "shrink/%016" PRIx64 "/1/lost/0", group->id);
    for (int i = 0; i < 2000 && rank == 0; i++) EXPECT(tutti_store_append(group->store, key, "7777 ", 5) == TUTTI_OK);
    EXPECT(tutti_barrier(tutti_with(.group = group)) == TUTTI_OK);
    EXPECT(tutti_shrink_group(group, &same) == TUTTI_OK);
    EXPECT(tutti_get_world_size(same) == size);
    EXPECT(tutti_destroy_process_group(same) == TUTTI_OK);
    return 0;
}

static void test_lost_by_many(void **state)
{
    (void)state;
    ranks_run(2, lost_by_many, NULL);
}

int main(void)
{
    struct CMUnitTest tests[CASES + 5] = {cmocka_unit_test(test_tcp), /* first: no threads yet */
                                          cmocka_unit_test(test_false_choice), cmocka_unit_test(test_splits_in_turns),
                                          cmocka_unit_test(test_lost_by_many),
                                          cmocka_unit_test(test_splits_through_the_store)};
    for (int i = 0; i < CASES; i++)
        tests[i + 5] = (struct CMUnitTest){cases[i].name, test_case, NULL, NULL, (void *)(intptr_t)i};
    mallopt(M_ARENA_MAX, 1); /* mallinfo2 then knows of all memory */
    ranks_setup();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
