/* The prover: builds the plans of all ranks of a collective and shows that they are right.
 *
 * It makes three independent checks:
 *  - messages: the k-th send from a to b has a k-th receive of the same size, for all pairs.
 *  - order: any two steps of a rank that touch the same element, one of them writing, are joined by a path of
 *    dependencies.  This is decided on the plan, not by trying orders, so it holds for all orders.
 *  - values: the plans run on symbols in a random legal order.  A running step holds its elements: a send may be read
 *    until it completes, and it completes late.  A receive may be written from the moment it starts.  Sends complete
 *    only when the receiver has arrived, so a circle of waits is found.  Afterwards each output element must hold each
 *    expected contribution once, scaled once and averaged once.  Inputs are never written.
 *    Without recv_reduce, all ranks must compute a sum of the same operands in the same places.  If the case is
 * ordered, the left operand is of the ranks just below those of the right one.
 */
#ifndef TESTS_PROOF_H
#define TESTS_PROOF_H

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "coll/coll.h"

enum { PROOF_RANKS = 64 };
#define PROOF_NO_STEP UINT32_MAX

struct proof_case {
    const struct coll_algorithm *algorithm;
    int size, root;
    int64_t count, segment;
    int64_t recv_reduce_most;
    bool in_place, list, average, premul, uneven, ordered;
    int placement; /* which ranks share a host: see proof_host */
    int distance;  /* between ranks, 0 .. 2: parts choose their steps for small, medium and large messages by it */
};

/* An element: which ranks' contributions are in it, of which logical element, and the shape of the sum. */
struct proof_cell {
    uint64_t ranks, shape;
    int64_t id;
    uint8_t scaled, averaged;
    bool set, constant; /* constant: a step must not write it */
    bool written;       /* by a running step */
    uint16_t read;      /* number of running steps that read it */
};

struct proof_rank {
    struct plan *plan;
    int64_t in_count[PROOF_RANKS], in_at[PROOF_RANKS], out_count[PROOF_RANKS], out_at[PROOF_RANKS];
    int64_t at[1 + 2 * PROOF_RANKS], numel[1 + 2 * PROOF_RANKS]; /* of each buffer, in cells */
    struct proof_cell *cell;
    int64_t n_cells;
    uint32_t base; /* index of this rank's first step among all steps */
};

struct proof {
    struct proof_case what;
    struct coll_hosts *hosts;
    struct coll_args args[PROOF_RANKS];
    struct proof_rank rank[PROOF_RANKS];
    uint32_t n_steps;
    uint32_t *partner; /* partner of each send and receive */
    uint64_t random;
    char error[256];
};

#define PROOF_FAIL(proof, ...) (snprintf((proof)->error, sizeof(proof)->error, __VA_ARGS__), false)

/* Placements of ranks on hosts. */
enum {
    PROOF_NOWHERE,
    PROOF_PAIRS,
    PROOF_TURNS,
    PROOF_GROWING,
    PROOF_ONE_AND_REST,
    PROOF_MIXED,
    PROOF_APART,
    PROOF_PLACEMENTS
};

/* The tensors of a rank's side. */
enum proof_tensors { PROOF_NONE, PROOF_ONE, PROOF_ALL };

/* Runs all checks, the values in one random order.  Returns false, with proof->error, if one fails. */
bool proof_check(struct proof *proof);

/* ---- cases ------------------------------------------------------------------------------------------------------- */

/* Return a hash of x, and a random number below a limit. */
uint64_t proof_mix(uint64_t x);
uint32_t proof_random(struct proof *proof, uint32_t below);

/* True if a kind is a scan, reduces, has a root, or has one block a rank on one of its sides. */
bool proof_scans(tutti_kind kind);
bool proof_reduces(tutti_kind kind);
bool proof_rooted(tutti_kind kind);
bool proof_blocks(tutti_kind kind);

/* Returns which tensors a rank's output consists of. */
enum proof_tensors proof_out_side(const struct proof_case *what, int rank);

/* Returns element i of a block on one side of a rank, also if that side lies in the other one. */
struct proof_cell *proof_element(struct proof *proof, int rank, bool in, int block, int64_t i);

/* Returns the logical number of element i of a block. */
int64_t proof_id(int block, int64_t i);

/* True if an algorithm asks which ranks share a host. */
bool proof_asks_hosts(const struct coll_algorithm *algorithm);

/* Builds all ranks' plans of a case. */
struct proof *proof_new(const struct proof_case *what, uint64_t seed);
void proof_free(struct proof *proof);

/* Restores the initial values for another run. */
void proof_reset(struct proof *proof);

bool proof_is_message(const struct plan_step *step);

/* ---- messages and order ------------------------------------------------------------------------------------------ */

struct proof_range {
    struct plan_ref ref;
    bool writes;
};

/* Checks that sends and receives match in number, order and size, and fills proof->partner. */
bool proof_match(struct proof *proof);

/* Returns the ranges that a step touches, reads first. */
int proof_ranges(const struct plan_step *step, struct proof_range range[3]);

/* Checks that every reference lies inside its buffer. */
bool proof_inside(struct proof *proof, int rank);

/* Returns a row of bits for each step: the steps that it follows, directly or not.  Edge number `without` is left out.
 * The caller frees it. */
uint64_t *proof_paths(const struct plan *plan, uint32_t without);

/* True if `paths` leads from one step to the other. */
bool proof_path(const struct plan *plan, const uint64_t *paths, uint32_t before, uint32_t after);

/* Checks that steps which conflict over an element are joined by a path.  A read must follow the latest write; a write
 * must follow the latest write and all reads since.  Paths join, so this covers all pairs. */
bool proof_order(struct proof *proof, int rank, uint32_t without);

/* ---- values ------------------------------------------------------------------------------------------------------ */

/* Runs the plans on symbols in a random legal order; checks the outputs. */
bool proof_run(struct proof *proof);
bool proof_results(struct proof *proof);

#endif
