/* Proves every algorithm for all ranks' plans together, over rank counts, roots, counts, segments and variants.
 *
 *     test_plan_proof [thorough]     takes three times as many variants on 7 ranks and more
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "proof.h"

static const int test_sizes[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 23, 31, 32, 33, 64};
static const int64_t test_segments[] = {1, 3, INT64_MAX};
static const int64_t test_fused[] = {PLAN_NEVER, PLAN_ALWAYS, 2};

enum { SIZES = sizeof test_sizes / sizeof test_sizes[0], SEGMENTS = 3, COUNTS = 7, OPS = 3, FUSED = 3 };

/* True if an algorithm serves an op that is not commutative. */
static bool test_keeps_order(const struct coll_algorithm *algorithm, int root)
{
    return algorithm->in_order == COLL_IN_ORDER_ALWAYS || (algorithm->in_order == COLL_IN_ORDER_ROOT_0 && root == 0);
}

/* Variants of one algorithm on one number of ranks, numbered so that a subset can be chosen evenly. */
enum { VARIANTS = COUNTS * SEGMENTS * OPS * FUSED * 8 };

static int64_t test_count(tutti_kind kind, int size, int which)
{
    if (kind == TUTTI_BARRIER) return which == 0 ? 0 : -1;
    if (!proof_blocks(kind)) return (int64_t[]){0, 1, size - 1, size, size + 1, 31, 8 * size + 5}[which];
    return (int64_t[]){0, 1, 2, 7, size > 17 ? -1 : 13, -1, -1}[which];
}

/* Makes variant number n.  Returns false if it makes no difference for this kind. */
static bool test_variant(const struct coll_algorithm *algorithm, int size, int root, int n, struct proof_case *what)
{
    tutti_kind kind = algorithm->kind;
    *what = (struct proof_case){.algorithm = algorithm, .size = size, .root = root};
    what->count = test_count(kind, size, n % COUNTS), n /= COUNTS;
    what->segment = test_segments[n % SEGMENTS], n /= SEGMENTS;
    what->average = n % OPS == 1, what->premul = n % OPS == 2, n /= OPS;
    what->recv_reduce_most = test_fused[n % FUSED], n /= FUSED;
    what->in_place = n & 1, what->list = n & 2, what->uneven = n & 4;
    /* such an op has neither first nor last steps, and no backend computes it */
    what->ordered = test_keeps_order(algorithm, root) && what->recv_reduce_most == PLAN_NEVER;
    if (what->count < 0 || (what->in_place && (kind == TUTTI_BROADCAST || kind == TUTTI_BARRIER))) return false;
    if (!proof_reduces(kind) && (what->average || what->premul || what->recv_reduce_most > 0)) return false;
    if (proof_scans(kind) && what->average) return false;
    if (!proof_blocks(kind) && (what->list || what->uneven)) return false;
    /* in place an uneven all-to-all would need blocks of the same size both ways */
    return !what->uneven || (algorithm->uneven && !(kind == TUTTI_ALL_TO_ALL && what->in_place));
}

static void test_print(const struct proof *proof)
{
    const struct proof_case *what = &proof->what;
    fprintf(stderr,
            "%s (kind %d) on %d ranks, placement %d, distance %d, root %d, count %" PRId64 ", segment %" PRId64
            ", recv_reduce of up to %" PRId64 "%s%s%s%s%s%s: %s\n",
            what->algorithm->name, what->algorithm->kind, what->size, what->placement, what->distance, what->root,
            what->count, what->segment, what->recv_reduce_most, what->in_place ? ", in place" : "",
            what->list ? ", list" : "", what->average ? ", average" : "", what->premul ? ", premul" : "",
            what->uneven ? ", uneven" : "", what->ordered ? ", ordered" : "", proof->error);
}

/* Proves a case.  Returns the number of steps of all ranks. */
static long test_prove(const struct proof_case *what, uint64_t seed, int orders)
{
    struct proof *proof = proof_new(what, seed);
    bool good = proof_check(proof);
    for (int i = 1; i < orders && good; i++) {
        proof_reset(proof);
        good = proof_run(proof) && proof_results(proof);
    }
    if (!good) test_print(proof);
    long steps = proof->n_steps;
    proof_free(proof);
    assert_true(good);
    return steps;
}

static bool test_thorough;

/* Returns the stride at which variants are taken for this many ranks.  Each root takes other variants. */
static int test_stride(tutti_kind kind, int size)
{
    /* primes that divide few numbers of variants */
    static const int quick[3][2] = {{5, 17}, {17, 53}, {37, 163}}, thorough[3][2] = {{2, 5}, {5, 17}, {11, 53}};
    int span = size <= 9 ? 0 : size <= 17 ? 1 : 2;
    if (size <= 6) return 1;
    return (test_thorough ? thorough : quick)[span][proof_rooted(kind)];
}

struct test_tally {
    long cases, steps;
};

/* Proves one algorithm on this many ranks in one placement.  Takes one variant in `stride`, other ones for each root.
 */
static void test_size(const struct coll_algorithm *algorithm, int size, int stride, struct proof_case *where,
                      struct test_tally *tally)
{
    for (int root = 0; root < (proof_rooted(algorithm->kind) ? size : 1); root++) {
        struct proof_case what;
        for (int n = 0, valid = 0; n < VARIANTS; n++) {
            if (!test_variant(algorithm, size, root, n, &what)) continue;
            if ((valid++ + 7 * root + 3 * where->placement + where->distance) % stride != 0) continue;
            what.placement = where->placement;
            what.distance = where->distance;
            tally->steps += test_prove(&what, (uint64_t)++tally->cases, size <= 5 ? 3 : 1);
        }
    }
}

/* Proves an algorithm in every placement, and with parts for messages of every size. */
static void test_placements(const struct coll_algorithm *algorithm, int size, struct test_tally *tally)
{
    struct proof_case where = {0};
    int stride = test_stride(algorithm->kind, size);
    if (!proof_asks_hosts(algorithm)) {
        test_size(algorithm, size, stride, &where, tally);
        return;
    }
    for (where.placement = 0; where.placement < PROOF_PLACEMENTS; where.placement++)
        for (where.distance = 0; where.distance < 3; where.distance++)
            test_size(algorithm, size, size <= 4 ? 5 : 11 * stride + 2, &where, tally);
}

static void test_kind(tutti_kind kind)
{
    struct test_tally tally = {0};
    for (const struct coll_algorithm *i = coll_algorithms; i->name; i++)
        for (int s = 0; s < SIZES && i->kind == kind; s++) test_placements(i, test_sizes[s], &tally);
    print_message("%ld cases, %ld steps proved\n", tally.cases, tally.steps);
}

#define TEST_KIND(name, kind)                                                                                          \
    static void name(void **state)                                                                                     \
    {                                                                                                                  \
        (void)state;                                                                                                   \
        test_kind(kind);                                                                                               \
    }

TEST_KIND(test_all_reduce, TUTTI_ALL_REDUCE)
TEST_KIND(test_broadcast, TUTTI_BROADCAST)
TEST_KIND(test_reduce, TUTTI_REDUCE)
TEST_KIND(test_all_gather, TUTTI_ALL_GATHER)
TEST_KIND(test_gather, TUTTI_GATHER)
TEST_KIND(test_scatter, TUTTI_SCATTER)
TEST_KIND(test_reduce_scatter, TUTTI_REDUCE_SCATTER)
TEST_KIND(test_all_to_all, TUTTI_ALL_TO_ALL)
TEST_KIND(test_barrier, TUTTI_BARRIER)
TEST_KIND(test_scan, TUTTI_SCAN)
TEST_KIND(test_exscan, TUTTI_EXSCAN)

int main(int argc, char **argv)
{
    test_thorough = argc > 1 && !strcmp(argv[1], "thorough");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_scan),       cmocka_unit_test(test_exscan),  cmocka_unit_test(test_all_reduce),
        cmocka_unit_test(test_broadcast),  cmocka_unit_test(test_reduce),  cmocka_unit_test(test_all_gather),
        cmocka_unit_test(test_gather),     cmocka_unit_test(test_scatter), cmocka_unit_test(test_reduce_scatter),
        cmocka_unit_test(test_all_to_all), cmocka_unit_test(test_barrier),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
