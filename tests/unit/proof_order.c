/* Checks on the plans alone: messages match, and conflicting steps are ordered. */
#include "proof.h"

/* ---- messages ------------------------------------------------------------------------------------------------- */

/* Matches the receives of one rank from another, by slot. */
static bool proof_match_pair(struct proof *proof, int from, int to, uint32_t *sends, uint32_t n)
{
    const struct plan *plan = proof->rank[to].plan;
    uint32_t base = proof->rank[to].base, received = 0;
    for (uint32_t i = 0; i < plan->n_steps; i++) {
        const struct plan_step *step = &plan->steps[i];
        if (step->peer != from || !proof_is_message(step) || step->kind == PLAN_SEND) continue;
        if (step->slot != received || received >= n)
            return PROOF_FAIL(proof, "rank %d receives slot %u from %d, of %u", to, step->slot, from, n);
        uint32_t send = sends[received++];
        const struct plan_step *other = &proof->rank[from].plan->steps[send - proof->rank[from].base];
        if (other->numel != step->numel)
            return PROOF_FAIL(proof, "slot %u from %d to %d: %" PRId64 " sent, %" PRId64 " expected", step->slot, from,
                              to, other->numel, step->numel);
        proof->partner[send] = base + i;
        proof->partner[base + i] = send;
    }
    return received == n || PROOF_FAIL(proof, "rank %d sends %u to %d, which receives %u", from, n, to, received);
}

bool proof_match(struct proof *proof)
{
    uint32_t *sends = malloc((proof->n_steps + 1) * sizeof *sends);
    bool talks[PROOF_RANKS], good = true;
    for (int from = 0; from < proof->what.size && good; from++) {
        const struct plan *plan = proof->rank[from].plan;
        memset(talks, 0, sizeof talks);
        for (uint32_t i = 0; i < plan->n_steps; i++) {
            if (plan->steps[i].peer >= proof->what.size || plan->steps[i].peer == from)
                good = PROOF_FAIL(proof, "rank %d talks to %d", from, plan->steps[i].peer);
            else if (plan->steps[i].peer >= 0)
                talks[plan->steps[i].peer] = true;
        }
        for (int to = 0; to < proof->what.size && good; to++) {
            uint32_t n = 0;
            for (uint32_t i = 0; talks[to] && i < plan->n_steps && good; i++) {
                if (plan->steps[i].kind != PLAN_SEND || plan->steps[i].peer != to) continue;
                good = plan->steps[i].slot == n || PROOF_FAIL(proof, "rank %d: slots to %d out of order", from, to);
                sends[n++] = proof->rank[from].base + i;
            }
            if (talks[to] && good) good = proof_match_pair(proof, from, to, sends, n);
        }
    }
    free(sends);
    return good;
}

/* ---- order ---------------------------------------------------------------------------------------------------- */

int proof_ranges(const struct plan_step *step, struct proof_range range[3])
{
    int n = 0;
    if (step->numel == 0) return 0;
    if (step->kind != PLAN_RECV) range[n++] = (struct proof_range){step->a, false};
    if (step->kind == PLAN_REDUCE) range[n++] = (struct proof_range){step->b, false};
    if (step->kind != PLAN_SEND) range[n++] = (struct proof_range){step->dst, true};
    return n;
}

bool proof_inside(struct proof *proof, int rank)
{
    const struct proof_rank *at = &proof->rank[rank];
    for (uint32_t i = 0; i < at->plan->n_steps; i++) {
        struct proof_range range[3];
        const struct plan_step *step = &at->plan->steps[i];
        for (int k = proof_ranges(step, range); k-- > 0;) {
            struct plan_ref ref = range[k].ref;
            if (ref.buffer < 0 || ref.buffer > 2 * PROOF_RANKS || ref.at < 0 ||
                ref.at + step->numel > at->numel[ref.buffer])
                return PROOF_FAIL(proof, "rank %d step %u is outside of buffer %d", rank, i, ref.buffer);
        }
    }
    return true;
}

uint64_t *proof_paths(const struct plan *plan, uint32_t without)
{
    size_t words = plan->n_steps / 64 + 1;
    uint64_t *row = calloc(plan->n_steps * words + 1, sizeof *row);
    for (uint32_t i = 0; i < plan->n_steps; i++) {
        for (uint32_t k = 0; k < plan->steps[i].nexts; k++) {
            uint32_t edge = plan->steps[i].first_next + k, next = plan->next[edge];
            if (edge == without) continue;
            for (size_t w = 0; w <= i / 64; w++) row[next * words + w] |= row[i * words + w];
            row[next * words + i / 64] |= 1ull << i % 64;
        }
    }
    return row;
}

bool proof_path(const struct plan *plan, const uint64_t *paths, uint32_t before, uint32_t after)
{
    if (before == PROOF_NO_STEP || before == after) return true;
    return paths[after * (size_t)(plan->n_steps / 64 + 1) + before / 64] >> before % 64 & 1;
}

struct proof_touch {
    uint32_t writer, readers; /* readers: head of a list */
};

struct proof_reader {
    uint32_t step, next;
};

static int64_t proof_accesses(const struct plan *plan)
{
    int64_t n = 0;
    struct proof_range range[3];
    for (uint32_t i = 0; i < plan->n_steps; i++) n += proof_ranges(&plan->steps[i], range) * plan->steps[i].numel;
    return n;
}

bool proof_order(struct proof *proof, int rank, uint32_t without)
{
    const struct proof_rank *at = &proof->rank[rank];
    const struct plan *plan = at->plan;
    uint64_t *paths = proof_paths(plan, without);
    struct proof_touch *touch = malloc(((size_t)at->n_cells + 1) * sizeof *touch);
    struct proof_reader *reader = malloc(((size_t)proof_accesses(plan) + 1) * sizeof *reader);
    uint32_t n_readers = 0, bad = PROOF_NO_STEP, other = PROOF_NO_STEP;
    memset(touch, 0xff, (size_t)at->n_cells * sizeof *touch);
    for (uint32_t i = 0; i < plan->n_steps && bad == PROOF_NO_STEP; i++) {
        struct proof_range range[3];
        int n = proof_ranges(&plan->steps[i], range);
        for (int64_t e = 0; e < n * plan->steps[i].numel; e++) {
            const struct proof_range *part = &range[e / plan->steps[i].numel];
            struct proof_touch *cell = &touch[at->at[part->ref.buffer] + part->ref.at + e % plan->steps[i].numel];
            if (!proof_path(plan, paths, cell->writer, i)) bad = i, other = cell->writer;
            if (!part->writes) {
                reader[n_readers] = (struct proof_reader){i, cell->readers};
                cell->readers = n_readers++;
                continue;
            }
            for (uint32_t r = cell->readers; r != PROOF_NO_STEP; r = reader[r].next)
                if (!proof_path(plan, paths, reader[r].step, i)) bad = i, other = reader[r].step;
            *cell = (struct proof_touch){i, PROOF_NO_STEP};
        }
    }
    free(paths);
    free(touch);
    free(reader);
    return bad == PROOF_NO_STEP ||
           PROOF_FAIL(proof, "rank %d: nothing orders steps %u and %u on the same element", rank, other, bad);
}
