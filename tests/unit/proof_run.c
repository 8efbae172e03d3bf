/* Values: the plans run on symbols in a random legal order, and the results are checked. */
#include "proof.h"

/* ---- values --------------------------------------------------------------------------------------------------- */

enum proof_phase { PROOF_BEGIN, PROOF_END, PROOF_SENT };

struct proof_action {
    uint32_t step; /* index among all ranks' steps */
    uint16_t rank;
    uint8_t phase;
};

struct proof_run {
    struct proof *proof;
    uint32_t *waits;
    uint64_t *knows; /* for each step: the ranks that must have arrived before it completed */
    bool *begun;
    struct proof_action *action;
    uint32_t n_actions, completed;
};

static struct proof_cell *proof_cells(struct proof_rank *at, struct plan_ref ref)
{
    return &at->cell[at->at[ref.buffer] + ref.at];
}

static void proof_push(struct proof_run *run, uint32_t step, int rank, enum proof_phase phase)
{
    run->action[run->n_actions++] = (struct proof_action){step, (uint16_t)rank, (uint8_t)phase};
}

/* Takes, or releases, the elements that a step holds while it runs.  If dst is exactly a or b, it is one element, not
 * two. */
static bool proof_hold(struct proof *proof, int rank, const struct plan_step *step, bool take)
{
    struct proof_rank *at = &proof->rank[rank];
    struct proof_range range[3];
    int n = proof_ranges(step, range);
    for (int k = 0; k < n; k++) {
        struct proof_cell *cell = proof_cells(at, range[k].ref);
        if (!range[k].writes && step->kind != PLAN_SEND && memcmp(&range[k].ref.at, &step->dst.at, 8) == 0 &&
            range[k].ref.buffer == step->dst.buffer)
            continue;
        for (int64_t i = 0; i < step->numel; i++) {
            if (take && (cell[i].written || (range[k].writes && (cell[i].read || cell[i].constant))))
                return PROOF_FAIL(proof, "rank %d step %u touches what is %s", rank, (uint32_t)(step - at->plan->steps),
                                  cell[i].written ? "being written"
                                  : cell[i].read  ? "being read"
                                                  : "an input");
            if (range[k].writes)
                cell[i].written = take;
            else
                cell[i].read = (uint16_t)(take ? cell[i].read + 1 : cell[i].read - 1);
        }
    }
    return true;
}

/* True if a's ranks are just below b's: for sets of consecutive ranks, a's bits and one carry give b's lowest. */
static bool proof_is_below(uint64_t a, uint64_t b)
{
    uint64_t lowest_a = a & -a, lowest_b = b & -b;
    return a + lowest_a == lowest_b && ((b + lowest_b) & b) == 0;
}

static bool proof_sum(struct proof *proof, struct proof_cell *to, const struct proof_cell *a,
                      const struct proof_cell *b)
{
    if (!a->set || !b->set) return PROOF_FAIL(proof, "a sum of nothing");
    if (a->ranks & b->ranks) return PROOF_FAIL(proof, "a contribution twice in one sum");
    if (a->id != b->id) return PROOF_FAIL(proof, "a sum of different elements");
    if (a->averaged || b->averaged) return PROOF_FAIL(proof, "averaged before the sum is whole");
    if (a->scaled != b->scaled) return PROOF_FAIL(proof, "a scaled and an unscaled contribution in one sum");
    if (proof->what.ordered && !proof_is_below(a->ranks, b->ranks))
        return PROOF_FAIL(proof, "ranks %" PRIx64 " left of %" PRIx64 " in one sum", a->ranks, b->ranks);
    bool same = proof->what.recv_reduce_most != PLAN_NEVER; /* a + b and b + a are the same */
    to->shape = proof_mix((same ? a->shape : 3 * a->shape) + b->shape + 0x1234567);
    to->ranks = a->ranks | b->ranks;
    to->id = a->id;
    to->scaled = a->scaled;
    to->averaged = 0;
    to->set = true;
    return true;
}

static bool proof_move(struct proof *proof, struct proof_cell *to, const struct proof_cell *from)
{
    if (!from->set) return PROOF_FAIL(proof, "something unset is passed on");
    to->ranks = from->ranks;
    to->shape = from->shape;
    to->id = from->id;
    to->scaled = from->scaled;
    to->averaged = from->averaged;
    to->set = true;
    return true;
}

/* Does a step's work; incoming is the content of its message. */
static bool proof_do(struct proof *proof, int rank, const struct plan_step *step, const struct proof_cell *incoming)
{
    struct proof_rank *at = &proof->rank[rank];
    struct proof_cell *to = proof_cells(at, step->dst);
    const struct proof_cell *a = step->kind == PLAN_RECV ? incoming : proof_cells(at, step->a);
    const struct proof_cell *b = step->kind == PLAN_RECV_REDUCE ? incoming : proof_cells(at, step->b);
    bool sums = step->kind == PLAN_RECV_REDUCE || step->kind == PLAN_REDUCE;
    for (int64_t i = 0; i < step->numel; i++) {
        if (!(sums ? proof_sum(proof, &to[i], &a[i], &b[i]) : proof_move(proof, &to[i], &a[i]))) return false;
        if (step->kind == PLAN_SCALE && (to[i].scaled++ || (to[i].ranks & (to[i].ranks - 1))))
            return PROOF_FAIL(proof, "scaled twice, or not a lone contribution");
        if (step->kind == PLAN_AVERAGE && to[i].averaged++) return PROOF_FAIL(proof, "averaged twice");
    }
    return true;
}

static void proof_complete(struct proof_run *run, uint32_t step, int rank)
{
    const struct proof_rank *at = &run->proof->rank[rank];
    const struct plan_step *done = &at->plan->steps[step - at->base];
    run->completed++;
    for (uint32_t k = 0; k < done->nexts; k++) {
        uint32_t next = at->base + at->plan->next[done->first_next + k];
        run->knows[next] |= run->knows[step];
        if (--run->waits[next] == 0) proof_push(run, next, rank, PROOF_BEGIN);
    }
}

static bool proof_begin(struct proof_run *run, struct proof_action now)
{
    struct proof *proof = run->proof;
    const struct proof_rank *at = &proof->rank[now.rank];
    const struct plan_step *step = &at->plan->steps[now.step - at->base];
    if (!proof_hold(proof, now.rank, step, true)) return false;
    run->begun[now.step] = true;
    if (!proof_is_message(step)) {
        proof_push(run, now.step, now.rank, PROOF_END);
    } else if (run->begun[proof->partner[now.step]]) {
        if (step->kind == PLAN_SEND)
            proof_push(run, proof->partner[now.step], step->peer, PROOF_END);
        else
            proof_push(run, now.step, now.rank, PROOF_END);
    }
    return true;
}

static bool proof_end(struct proof_run *run, struct proof_action now)
{
    struct proof *proof = run->proof;
    struct proof_rank *at = &proof->rank[now.rank];
    const struct plan_step *step = &at->plan->steps[now.step - at->base];
    const struct proof_cell *incoming = NULL;
    if (proof_is_message(step)) {
        struct proof_rank *from = &proof->rank[step->peer];
        uint32_t send = proof->partner[now.step];
        if (step->numel > 0) incoming = proof_cells(from, from->plan->steps[send - from->base].a);
        run->knows[now.step] |= run->knows[send];
        proof_push(run, send, step->peer, PROOF_SENT);
    }
    if (step->numel > 0 && !proof_do(proof, now.rank, step, incoming)) return false;
    proof_hold(proof, now.rank, step, false);
    proof_complete(run, now.step, now.rank);
    return true;
}

static bool proof_act(struct proof_run *run, struct proof_action now)
{
    const struct proof_rank *at = &run->proof->rank[now.rank];
    if (now.phase == PROOF_BEGIN) return proof_begin(run, now);
    if (now.phase == PROOF_END) return proof_end(run, now);
    proof_hold(run->proof, now.rank, &at->plan->steps[now.step - at->base], false);
    proof_complete(run, now.step, now.rank);
    return true;
}

/* Returns the ranks that a rank must know to have arrived, directly or not, when its plan ends.  If some blocks are
 * empty and others are not, a rank need not wait for a peer that sends it nothing. */
static uint64_t proof_must_know(const struct proof_case *what, int rank)
{
    uint64_t all = what->size == 64 ? UINT64_MAX : (1ull << what->size) - 1;
    if (what->uneven) return 0;
    switch (what->algorithm->kind) {
    case TUTTI_BROADCAST:
    case TUTTI_SCATTER:
        return 1ull << what->root;
    case TUTTI_REDUCE:
    case TUTTI_GATHER:
        return rank == what->root ? all : 0;
    case TUTTI_SCAN:
    case TUTTI_EXSCAN:
        return (1ull << rank) - 1;
    default:
        return all;
    }
}

static bool proof_synchronised(struct proof_run *run)
{
    struct proof *proof = run->proof;
    for (int rank = 0; rank < proof->what.size; rank++) {
        const struct proof_rank *at = &proof->rank[rank];
        uint64_t knows = 1ull << rank, must = proof_must_know(&proof->what, rank);
        for (uint32_t i = 0; i < at->plan->n_steps; i++) knows |= run->knows[at->base + i];
        if (must & ~knows) return PROOF_FAIL(proof, "rank %d may leave before all have entered", rank);
    }
    return true;
}

bool proof_run(struct proof *proof)
{
    uint32_t n = proof->n_steps + 1;
    struct proof_run run = {.proof = proof};
    run.waits = malloc(n * sizeof *run.waits);
    run.knows = malloc(n * sizeof *run.knows);
    run.begun = calloc(n, sizeof *run.begun);
    run.action = malloc(n * sizeof *run.action);
    for (int rank = 0; rank < proof->what.size; rank++) {
        const struct proof_rank *at = &proof->rank[rank];
        for (uint32_t i = 0; i < at->plan->n_steps; i++) {
            run.waits[at->base + i] = at->plan->steps[i].waits;
            run.knows[at->base + i] = 1ull << rank;
        }
        for (uint32_t i = 0; i < at->plan->n_ready; i++)
            proof_push(&run, at->base + at->plan->ready[i], rank, PROOF_BEGIN);
    }
    bool good = true;
    while (good && run.n_actions > 0) {
        uint32_t pick = proof_random(proof, run.n_actions);
        struct proof_action now = run.action[pick];
        run.action[pick] = run.action[--run.n_actions];
        good = proof_act(&run, now);
    }
    if (good && run.completed != proof->n_steps)
        good = PROOF_FAIL(proof, "stuck with %u of %u steps done", run.completed, proof->n_steps);
    if (good) good = proof_synchronised(&run);
    free(run.waits);
    free(run.knows);
    free(run.begun);
    free(run.action);
    return good;
}

/* ---- results -------------------------------------------------------------------------------------------------- */

/* Checks element i of output block `block` on a rank. */
static bool proof_result(struct proof *proof, int rank, int block, int64_t i)
{
    const struct proof_case *what = &proof->what;
    tutti_kind kind = what->algorithm->kind;
    const struct proof_cell *cell = proof_element(proof, rank, false, block, i);
    uint64_t all = what->size == 64 ? UINT64_MAX : (1ull << what->size) - 1;
    bool reduces = proof_reduces(kind), has_root = kind == TUTTI_BROADCAST || kind == TUTTI_SCATTER;
    uint64_t ranks = reduces ? all : 1ull << (has_root ? what->root : block);
    if (kind == TUTTI_SCAN) ranks = (2ull << rank) - 1;
    if (kind == TUTTI_EXSCAN) ranks = (1ull << rank) - 1;
    bool slice = kind == TUTTI_SCATTER || kind == TUTTI_REDUCE_SCATTER || kind == TUTTI_ALL_TO_ALL;
    int64_t id = slice ? proof_id(rank, i) : i;
    if (!cell->set || cell->ranks != ranks || cell->id != id)
        return PROOF_FAIL(proof, "rank %d block %d element %" PRId64 " holds %" PRIx64 " of %" PRIx64, rank, block, i,
                          cell->set ? cell->ranks : 0, ranks);
    if (reduces && (cell->scaled != what->premul || cell->averaged != what->average))
        return PROOF_FAIL(proof, "rank %d element %" PRId64 " scaled %d, averaged %d times", rank, i, cell->scaled,
                          cell->averaged);
    if (kind == TUTTI_ALL_REDUCE && cell->shape != proof_element(proof, 0, false, 0, i)->shape)
        return PROOF_FAIL(proof, "rank %d element %" PRId64 " is summed in another order than on rank 0", rank, i);
    return true;
}

bool proof_results(struct proof *proof)
{
    for (int rank = 0; rank < proof->what.size; rank++) {
        enum proof_tensors out = proof_out_side(&proof->what, rank);
        for (int block = 0; block < (out == PROOF_ALL ? proof->what.size : out == PROOF_ONE); block++) {
            int64_t n = out == PROOF_ALL ? proof->rank[rank].out_count[block] : proof->args[rank].count;
            for (int64_t i = 0; i < n; i++)
                if (!proof_result(proof, rank, block, i)) return false;
        }
    }
    return true;
}

bool proof_check(struct proof *proof)
{
    proof_reset(proof);
    for (int rank = 0; rank < proof->what.size; rank++)
        if (!proof_inside(proof, rank) || !proof_order(proof, rank, PROOF_NO_STEP)) return false;
    return proof_match(proof) && proof_run(proof) && proof_results(proof);
}
