/* Tests of the prover: a plan with one fault must not pass.
 *
 *  - Dependencies: each edge of each plan is removed in turn.  If other edges still lead from one step to the other,
 *    nothing is lost.  Otherwise the two steps conflict over some element, and the check of order must say so for every
 *    such edge.  Random orders alone find fewer, and the program prints how many.
 *  - References: each is moved by one element in either direction. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "proof.h"

struct mutation_counts {
    long edges, implied, empty, found, found_by_orders;
    long references, references_found, references_harmless;
};

static const int mutation_sizes[] = {2, 3, 4, 5, 8};

/* A few variants of each algorithm: with segments, in place, with and without recv_reduce. */
enum { MUTATION_VARIANTS = 6, MUTATION_ORDERS = 8 };

static bool mutation_case(const struct coll_algorithm *algorithm, int size, int variant, struct proof_case *what)
{
    bool blocks = proof_blocks(algorithm->kind), reduces = proof_reduces(algorithm->kind);
    *what = (struct proof_case){.algorithm = algorithm, .size = size, .root = size - 1, .segment = 3};
    what->count = variant < 4 ? (blocks ? 5 : 3 * size + 4) : algorithm->kind == TUTTI_BARRIER ? 0 : 1;
    if (algorithm->kind == TUTTI_BARRIER) what->count = 0;
    what->in_place = variant & 1;
    what->recv_reduce_most = reduces && variant & 2 ? PLAN_ALWAYS : PLAN_NEVER;
    what->premul = reduces && variant == 3;
    what->average = reduces && !proof_scans(algorithm->kind) && variant == 2;
    what->list = blocks && variant & 2;
    return algorithm->kind != TUTTI_BARRIER || variant == 0;
}

/* Removes edge number `edge` of a plan, or restores it. *after keeps its target step. */
static void edge_out(struct plan *plan, uint32_t before, uint32_t edge)
{
    struct plan_step *step = &plan->steps[before];
    uint32_t last = step->first_next + --step->nexts, after = plan->next[edge];
    plan->next[edge] = plan->next[last];
    plan->next[last] = after;
    plan->steps[after].waits--;
}

static void edge_back(struct plan *plan, uint32_t before, uint32_t edge)
{
    struct plan_step *step = &plan->steps[before];
    uint32_t last = step->first_next + step->nexts++, after = plan->next[last];
    plan->next[last] = plan->next[edge];
    plan->next[edge] = after;
    plan->steps[after].waits++;
}

/* True if a few random orders reveal an absent edge.  A plan's list of ready steps has space for all of them. */
static bool edge_found_by_orders(struct proof *proof, struct plan *plan, uint32_t before, uint32_t edge)
{
    uint32_t after = plan->next[edge], n_ready = plan->n_ready;
    edge_out(plan, before, edge);
    if (plan->steps[after].waits == 0) plan->ready[plan->n_ready++] = after;
    bool good = true;
    for (int i = 0; i < MUTATION_ORDERS && good; i++) {
        proof_reset(proof);
        good = proof_run(proof) && proof_results(proof);
    }
    plan->n_ready = n_ready;
    edge_back(plan, before, edge);
    return !good;
}

static void mutate_edge(struct proof *proof, int rank, uint32_t before, uint32_t edge, struct mutation_counts *counts)
{
    struct plan *plan = proof->rank[rank].plan;
    uint32_t after = plan->next[edge];
    counts->edges++;
    uint64_t *paths = proof_paths(plan, edge);
    bool implied = proof_path(plan, paths, before, after);
    free(paths);
    if (implied) {
        counts->implied++;
        return;
    }
    if (plan->steps[before].numel == 0 || plan->steps[after].numel == 0) {
        counts->empty++; /* no element reveals it; the ranks' knowledge of each other is checked instead */
        return;
    }
    if (!proof_order(proof, rank, edge)) counts->found++;
    if (edge_found_by_orders(proof, plan, before, edge)) counts->found_by_orders++;
}

/* True if a moved reference may leave the plan right.  Two algorithms, and those whose parts pass data in scratch, have
 * an element in two places or send what its receiver knows.  There the moved reference may name the same element, or an
 * unused one. */
static bool mutation_may_be_harmless(const struct coll_algorithm *algorithm)
{
    return (algorithm->kind == TUTTI_ALL_TO_ALL && strcmp(algorithm->name, "bruck") == 0) ||
           strcmp(algorithm->name, "gather_broadcast") == 0 || proof_asks_hosts(algorithm);
}

static void mutate_reference(struct proof *proof, int64_t *at, int by, struct mutation_counts *counts)
{
    *at += by;
    counts->references++;
    if (!proof_check(proof))
        counts->references_found++;
    else if (mutation_may_be_harmless(proof->what.algorithm))
        counts->references_harmless++;
    *at -= by;
}

static void mutate_references(struct proof *proof, int rank, struct mutation_counts *counts)
{
    struct plan *plan = proof->rank[rank].plan;
    for (uint32_t i = 0; i < plan->n_steps; i++) {
        struct plan_step *step = &plan->steps[i];
        if (step->numel == 0) continue;
        for (int by = -1; by <= 1; by += 2) {
            if (step->kind != PLAN_RECV) mutate_reference(proof, &step->a.at, by, counts);
            if (step->kind == PLAN_REDUCE) mutate_reference(proof, &step->b.at, by, counts);
            if (step->kind != PLAN_SEND) mutate_reference(proof, &step->dst.at, by, counts);
        }
    }
}

static struct proof *mutation_new(const struct proof_case *what)
{
    struct proof *proof = proof_new(what, 1);
    assert_true(proof_check(proof));
    return proof;
}

typedef void (*mutation)(struct proof *, int, struct mutation_counts *);

static void mutate_case(const struct proof_case *what, mutation how, struct mutation_counts *counts)
{
    struct proof *proof = mutation_new(what);
    for (int rank = 0; rank < what->size; rank++) how(proof, rank, counts);
    proof_free(proof);
}

/* Mutates a case in a few placements if hosts matter, with parts for small, medium and large messages. */
static void mutate_placements(struct proof_case what, int variant, mutation how, struct mutation_counts *counts)
{
    static const int placements[] = {PROOF_PAIRS, PROOF_TURNS, PROOF_ONE_AND_REST};
    for (int i = 0; i < 3; i++) {
        what.placement = placements[i];
        what.distance = (variant + i) % 3;
        mutate_case(&what, how, counts);
    }
}

static void mutate(mutation how, struct mutation_counts *counts)
{
    for (const struct coll_algorithm *i = coll_algorithms; i->name; i++) {
        for (size_t s = 0; s < sizeof mutation_sizes / sizeof mutation_sizes[0]; s++) {
            for (int variant = 0; variant < MUTATION_VARIANTS; variant++) {
                struct proof_case what;
                if (!mutation_case(i, mutation_sizes[s], variant, &what)) continue;
                if (proof_asks_hosts(i))
                    mutate_placements(what, variant, how, counts);
                else
                    mutate_case(&what, how, counts);
            }
        }
    }
}

static void mutate_edges(struct proof *proof, int rank, struct mutation_counts *counts)
{
    const struct plan *plan = proof->rank[rank].plan;
    for (uint32_t i = 0; i < plan->n_steps; i++)
        for (uint32_t k = 0; k < plan->steps[i].nexts; k++)
            mutate_edge(proof, rank, i, plan->steps[i].first_next + k, counts);
}

static void test_edges(void **state)
{
    (void)state;
    struct mutation_counts counts = {0};
    mutate(mutate_edges, &counts);
    long needed = counts.edges - counts.implied - counts.empty;
    print_message("%ld edges: %ld implied by others, %ld between empty messages, %ld needed\n", counts.edges,
                  counts.implied, counts.empty, needed);
    print_message("of the needed: %ld found by the check of order, %ld by %d random orders\n", counts.found,
                  counts.found_by_orders, MUTATION_ORDERS);
    assert_true(needed > 1000);
    assert_int_equal(counts.found, needed);
    assert_true(counts.found_by_orders > needed / 2);
}

static void test_references(void **state)
{
    (void)state;
    struct mutation_counts counts = {0};
    mutate(mutate_references, &counts);
    print_message("%ld references moved: %ld found, %ld harmless\n", counts.references, counts.references_found,
                  counts.references_harmless);
    assert_int_equal(counts.references_found + counts.references_harmless, counts.references);
    assert_true(counts.references_harmless < counts.references / 1000);
}

/* A barrier's edges are needed too: without one, a rank may leave before another one has arrived. */
static void test_barrier_edges(void **state)
{
    (void)state;
    long needed = 0, found = 0;
    for (const struct coll_algorithm *i = coll_algorithms; i->name; i++) {
        if (i->kind != TUTTI_BARRIER) continue;
        struct proof_case what = {.algorithm = i, .size = 8, .segment = 1};
        struct proof *proof = mutation_new(&what);
        for (int rank = 0; rank < what.size; rank++) {
            struct plan *plan = proof->rank[rank].plan;
            for (uint32_t step = 0; step < plan->n_steps; step++) {
                for (uint32_t k = 0; k < plan->steps[step].nexts; k++) {
                    uint32_t edge = plan->steps[step].first_next + k, after = plan->next[edge];
                    if (plan->steps[after].kind != PLAN_SEND) continue; /* a receive may precede another */
                    needed++;
                    found += edge_found_by_orders(proof, plan, step, edge);
                }
            }
        }
        proof_free(proof);
    }
    print_message("%ld edges to a barrier's sends: %ld found\n", needed, found);
    assert_int_equal(found, needed);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_edges),
        cmocka_unit_test(test_references),
        cmocka_unit_test(test_barrier_edges),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
