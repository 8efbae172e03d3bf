/* The prover: builds the plans of all ranks of a collective and shows that they are right.
 *
 * Three checks, each of its own kind:
 *  - messages: the k-th send from a to b has a k-th receive of the same size, for all pairs;
 *  - order: any two steps of a rank that touch the same element, one of them writing, are joined by a path of
 *    dependencies.  This is decided on the plan, not by trying orders, so it holds for all of them;
 *  - values: the plans are run on symbols in a random legal order in which whatever is under way holds its elements: a
 *    send may be read until it has completed, and completes late; a receive may be written from the moment it begins.
 *    Sends complete only when the receiver is there, so whatever could wait in a circle does.  Afterwards each output
 *    element must hold each contribution it is due once, scaled once and averaged once; inputs are never written.
 */
#ifndef PLAN_PROOF_H
#define PLAN_PROOF_H

#include "plan_proof_order.h"
#include "plan_proof_run.h"

/* All checks; the values in one random order. */
static inline bool proof_check(struct proof *proof)
{
    proof_reset(proof);
    for (int rank = 0; rank < proof->what.size; rank++)
        if (!proof_inside(proof, rank) || !proof_order(proof, rank, PROOF_NO_STEP)) return false;
    return proof_match(proof) && proof_run(proof) && proof_results(proof);
}

#endif
