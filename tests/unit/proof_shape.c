/* The prover's cases: each rank's elements before a collective, and where they are. */
#include "proof.h"

uint64_t proof_mix(uint64_t x)
{
    x ^= x >> 31, x *= 0x7fb5d329728ea185u;
    x ^= x >> 27, x *= 0x81dadef4bc2dd44du;
    return x ^ x >> 33;
}

uint32_t proof_random(struct proof *proof, uint32_t below)
{
    proof->random += 0x9e3779b97f4a7c15u;
    return (uint32_t)(((proof_mix(proof->random) >> 32) * below) >> 32);
}

/* ---- shapes ------------------------------------------------------------------------------------------------- */

bool proof_scans(tutti_kind kind)
{
    return kind == TUTTI_SCAN || kind == TUTTI_EXSCAN;
}

bool proof_reduces(tutti_kind kind)
{
    return kind == TUTTI_ALL_REDUCE || kind == TUTTI_REDUCE || kind == TUTTI_REDUCE_SCATTER || proof_scans(kind);
}

bool proof_rooted(tutti_kind kind)
{
    return kind == TUTTI_BROADCAST || kind == TUTTI_REDUCE || kind == TUTTI_GATHER || kind == TUTTI_SCATTER;
}

bool proof_blocks(tutti_kind kind)
{
    return kind == TUTTI_ALL_GATHER || kind == TUTTI_GATHER || kind == TUTTI_SCATTER || kind == TUTTI_REDUCE_SCATTER ||
           kind == TUTTI_ALL_TO_ALL;
}

/* Returns the elements of the block from one rank to another, or of a rank's only block. */
static int64_t proof_block(const struct proof_case *what, int from, int to)
{
    if (!what->uneven) return what->count;
    int which = what->algorithm->kind == TUTTI_ALL_TO_ALL ? 5 * from + 3 * to : from >= 0 ? from : to;
    return which % 3 == 1 ? 0 : which % 3 == 0 ? what->count : what->count + which % 5 + 1;
}

static void proof_side(const struct proof_case *what, int rank, bool in, struct proof_rank *at)
{
    int64_t sum = 0;
    bool all_to_all = what->algorithm->kind == TUTTI_ALL_TO_ALL;
    for (int i = 0; i < what->size; i++) {
        int64_t n =
            all_to_all ? in ? proof_block(what, rank, i) : proof_block(what, i, rank) : proof_block(what, i, -1);
        (in ? at->in_count : at->out_count)[i] = n;
        (in ? at->in_at : at->out_at)[i] = sum;
        sum += n;
    }
}

static void proof_add_buffer(struct proof_rank *at, int32_t buffer, int64_t numel)
{
    at->at[buffer] = at->n_cells;
    at->numel[buffer] = numel;
    at->n_cells += numel;
}

static void proof_add_side(const struct proof_case *what, struct proof_rank *at, bool in)
{
    int size = what->size;
    const int64_t *count = in ? at->in_count : at->out_count;
    for (int i = 0; what->list && i < size; i++) proof_add_buffer(at, in ? PLAN_IN(i) : PLAN_OUT(i), count[i]);
    int64_t total = (in ? at->in_at : at->out_at)[size - 1] + count[size - 1];
    if (!what->list) proof_add_buffer(at, in ? PLAN_IN(0) : PLAN_OUT(0), total);
}

static enum proof_tensors proof_in_side(const struct proof_case *what, int rank)
{
    switch (what->algorithm->kind) {
    case TUTTI_ALL_REDUCE:
    case TUTTI_REDUCE:
    case TUTTI_ALL_GATHER:
    case TUTTI_GATHER:
    case TUTTI_SCAN:
    case TUTTI_EXSCAN:
        return PROOF_ONE;
    case TUTTI_REDUCE_SCATTER:
    case TUTTI_ALL_TO_ALL:
        return PROOF_ALL;
    case TUTTI_SCATTER:
        return rank == what->root ? PROOF_ALL : PROOF_NONE;
    default:
        return PROOF_NONE;
    }
}

enum proof_tensors proof_out_side(const struct proof_case *what, int rank)
{
    switch (what->algorithm->kind) {
    case TUTTI_BROADCAST:
    case TUTTI_ALL_REDUCE:
    case TUTTI_SCATTER:
    case TUTTI_REDUCE_SCATTER:
    case TUTTI_SCAN:
        return PROOF_ONE;
    case TUTTI_EXSCAN:
        return rank > 0 ? PROOF_ONE : PROOF_NONE;
    case TUTTI_ALL_GATHER:
    case TUTTI_ALL_TO_ALL:
        return PROOF_ALL;
    case TUTTI_REDUCE:
        return rank == what->root ? PROOF_ONE : PROOF_NONE;
    case TUTTI_GATHER:
        return rank == what->root ? PROOF_ALL : PROOF_NONE;
    default:
        return PROOF_NONE;
    }
}

/* True if one side lies in the other, in an in-place call.  Broadcast and barrier have only one side or none. */
static bool proof_shares(const struct proof_case *what, int rank)
{
    return what->in_place && proof_in_side(what, rank) != PROOF_NONE && proof_out_side(what, rank) != PROOF_NONE;
}

static bool proof_out_in_in(const struct proof_case *what)
{
    return what->algorithm->kind == TUTTI_SCATTER || what->algorithm->kind == TUTTI_REDUCE_SCATTER;
}

static void proof_layout(struct proof *proof, int rank)
{
    const struct proof_case *what = &proof->what;
    struct proof_rank *at = &proof->rank[rank];
    enum proof_tensors in = proof_in_side(what, rank), out = proof_out_side(what, rank);
    int64_t count = proof->args[rank].count;
    bool shares = proof_shares(what, rank), only_in = shares && proof_out_in_in(what);
    if (in != PROOF_NONE && (!shares || only_in)) {
        if (in == PROOF_ONE) proof_add_buffer(at, PLAN_IN(0), count);
        if (in == PROOF_ALL) proof_add_side(what, at, true);
    }
    if (out != PROOF_NONE && !only_in) {
        if (out == PROOF_ONE) proof_add_buffer(at, PLAN_OUT(0), count);
        if (out == PROOF_ALL) proof_add_side(what, at, false);
    }
    proof_add_buffer(at, PLAN_SCRATCH, at->plan->scratch);
    at->cell = calloc((size_t)at->n_cells + 1, sizeof *at->cell);
}

struct proof_cell *proof_element(struct proof *proof, int rank, bool in, int block, int64_t i)
{
    const struct proof_case *what = &proof->what;
    struct proof_rank *at = &proof->rank[rank];
    enum proof_tensors side = in ? proof_in_side(what, rank) : proof_out_side(what, rank);
    if (proof_shares(what, rank) && in == !proof_out_in_in(what)) { /* this side lies in the other */
        enum proof_tensors other = in ? proof_out_side(what, rank) : proof_in_side(what, rank);
        if (side == PROOF_ONE && other == PROOF_ALL) block = rank;
        side = other;
        in = !in;
    }
    const int64_t *offset = in ? at->in_at : at->out_at;
    int number = side == PROOF_ALL && what->list ? block : 0;
    int32_t buffer = in ? PLAN_IN(number) : PLAN_OUT(number);
    return &at->cell[at->at[buffer] + (side == PROOF_ALL && !what->list ? offset[block] : 0) + i];
}

int64_t proof_id(int block, int64_t i)
{
    return (int64_t)block << 40 | i;
}

static void proof_give(struct proof_cell *cell, int rank, int64_t id)
{
    cell->ranks = 1ull << rank;
    cell->shape = proof_mix((uint64_t)rank + 1);
    cell->id = id;
    cell->set = true;
    cell->constant = true;
}

/* Sets a rank's inputs, which are constant unless an output lies in them. */
static void proof_give_inputs(struct proof *proof, int rank)
{
    const struct proof_case *what = &proof->what;
    struct proof_rank *at = &proof->rank[rank];
    enum proof_tensors in = proof_in_side(what, rank);
    if (what->algorithm->kind == TUTTI_BROADCAST && rank == what->root)
        for (int64_t i = 0; i < what->count; i++) proof_give(proof_element(proof, rank, false, 0, i), rank, i);
    if (in == PROOF_ONE)
        for (int64_t i = 0; i < proof->args[rank].count; i++)
            proof_give(proof_element(proof, rank, true, 0, i), rank, i);
    for (int block = 0; in == PROOF_ALL && block < what->size; block++)
        for (int64_t i = 0; i < at->in_count[block]; i++)
            proof_give(proof_element(proof, rank, true, block, i), rank, proof_id(block, i));
    if (!proof_shares(what, rank) || (proof_blocks(what->algorithm->kind) && !proof_reduces(what->algorithm->kind) &&
                                      what->algorithm->kind != TUTTI_ALL_TO_ALL))
        return; /* gathers and scatters in place do nothing in the rank's own block */
    for (int block = 0; block < (what->algorithm->kind == TUTTI_ALL_TO_ALL ? what->size : 1); block++) {
        int64_t n = what->algorithm->kind == TUTTI_ALL_TO_ALL ? at->out_count[block] : proof->args[rank].count;
        for (int64_t i = 0; i < n; i++) proof_element(proof, rank, false, block, i)->constant = false;
    }
}

static int32_t proof_host(int placement, int rank, int size)
{
    int host = 0;
    switch (placement) {
    case PROOF_PAIRS: /* two and two; the last may be alone */
        return rank / 2;
    case PROOF_TURNS: /* round robin over three */
        return rank % 3;
    case PROOF_GROWING: /* one, two, three, .. */
        for (int end = 1; rank >= end; end += host + 1) host++;
        return host;
    case PROOF_ONE_AND_REST: /* one rank alone, in the middle, and the rest together */
        return rank == size / 2;
    case PROOF_MIXED: /* many ranks on few hosts, uneven, in no order */
        return (int32_t)(proof_mix((uint64_t)rank + 99) % 5 / 2);
    case PROOF_APART:
        return rank;
    default:
        return 0;
    }
}

static struct coll_hosts *proof_hosts(const struct proof_case *what)
{
    int32_t host[PROOF_RANKS];
    for (int rank = 0; rank < what->size; rank++) host[rank] = proof_host(what->placement, rank, what->size);
    return what->placement == PROOF_NOWHERE ? NULL : coll_hosts_new(host, what->size);
}

bool proof_asks_hosts(const struct coll_algorithm *algorithm)
{
    return strcmp(algorithm->name, "hierarchical") == 0 || strcmp(algorithm->name, "leaders") == 0;
}

/* Returns a link that lowers the table's thresholds. */
static const struct coll_link *proof_link(const struct proof_case *what)
{
    static const struct coll_link medium = {.latency_ns = 1, .bytes_per_us = 125000},
                                  large = {.latency_ns = 1, .bytes_per_us = 1};
    return what->distance == 0 ? NULL : what->distance == 1 ? &medium : &large;
}

static void proof_arguments(struct proof *proof, int rank)
{
    const struct proof_case *what = &proof->what;
    struct proof_rank *at = &proof->rank[rank];
    tutti_kind kind = what->algorithm->kind;
    struct coll_args *args = &proof->args[rank];
    *args = (struct coll_args){.kind = kind, .rank = rank, .size = what->size, .root = what->root};
    args->count = proof_blocks(kind) && kind != TUTTI_ALL_TO_ALL ? proof_block(what, rank, -1) : what->count;
    args->even = !what->uneven;
    args->segment = what->segment;
    args->in_place = what->in_place;
    args->average = what->average;
    args->premul = what->premul;
    args->ordered = what->ordered;
    args->element = 4;
    args->link = proof_link(what);
    args->hosts = proof->hosts;
    proof_side(what, rank, true, at);
    proof_side(what, rank, false, at);
    if (proof_in_side(what, rank) == PROOF_ALL)
        args->in = (struct coll_blocks){what->list, at->in_count, what->list ? NULL : at->in_at};
    if (proof_out_side(what, rank) == PROOF_ALL)
        args->out = (struct coll_blocks){what->list, at->out_count, what->list ? NULL : at->out_at};
}

/* ---- the plans ---------------------------------------------------------------------------------------------- */

void proof_free(struct proof *proof)
{
    for (int rank = 0; rank < proof->what.size; rank++) {
        plan_free(proof->rank[rank].plan);
        free(proof->rank[rank].cell);
    }
    free(proof->partner);
    free(proof->hosts);
    free(proof);
}

struct proof *proof_new(const struct proof_case *what, uint64_t seed)
{
    struct proof *proof = calloc(1, sizeof *proof);
    proof->what = *what;
    proof->random = seed;
    proof->hosts = proof_hosts(what);
    for (int rank = 0; rank < what->size; rank++) {
        proof_arguments(proof, rank);
        struct proof_rank *at = &proof->rank[rank];
        at->plan = coll_build(what->algorithm, &proof->args[rank], what->recv_reduce_most);
        at->base = proof->n_steps;
        proof->n_steps += at->plan->n_steps;
        proof_layout(proof, rank);
    }
    proof->partner = malloc((proof->n_steps + 1) * sizeof *proof->partner);
    return proof;
}

void proof_reset(struct proof *proof)
{
    proof->error[0] = '\0';
    for (int rank = 0; rank < proof->what.size; rank++) {
        struct proof_rank *at = &proof->rank[rank];
        memset(at->cell, 0, (size_t)at->n_cells * sizeof *at->cell);
        proof_give_inputs(proof, rank);
    }
}

bool proof_is_message(const struct plan_step *step)
{
    return step->kind == PLAN_SEND || step->kind == PLAN_RECV || step->kind == PLAN_RECV_REDUCE;
}
