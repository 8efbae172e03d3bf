/* Makes the operands of a collective: blocks, their sizes and their memory. */
#include <stdlib.h>
#include <string.h>

#include "conformance/collective.h"
#include "conformance/input.h"
#include "conformance/options.h"

const struct form forms[FORMS] = {
    [F_BROADCAST] = {"broadcast", BROADCAST, L_C_BROADCAST, false, true, true, false},
    [F_ALL_REDUCE] = {"all_reduce", ALL_REDUCE, L_C_ALL_REDUCE, false, true, false, false},
    [F_ALL_REDUCE_INTO] = {"all_reduce_into", ALL_REDUCE, L_C_ALL_REDUCE, false, false, false, false},
    [F_REDUCE] = {"reduce", REDUCE, L_C_REDUCE, false, true, true, false},
    [F_REDUCE_INTO] = {"reduce_into", REDUCE, L_C_REDUCE, false, false, true, false},
    [F_ALL_GATHER] = {"all_gather", ALL_GATHER, L_C_ALL_GATHER, true, false, false, true},
    [F_ALL_GATHER_INTO] = {"all_gather_into_tensor", ALL_GATHER, L_C_ALL_GATHER_INTO, false, false, false, false},
    [F_GATHER] = {"gather", GATHER, L_C_GATHER, true, false, true, true},
    [F_GATHER_INTO] = {"gather_into_tensor", GATHER, L_C_GATHER, false, false, true, false},
    [F_SCATTER] = {"scatter", SCATTER, L_C_SCATTER, true, false, true, true},
    [F_SCATTER_TENSOR] = {"scatter_tensor", SCATTER, L_C_SCATTER, false, false, true, false},
    [F_REDUCE_SCATTER] = {"reduce_scatter", REDUCE_SCATTER, L_C_REDUCE_SCATTER, true, false, false, true},
    [F_REDUCE_SCATTER_TENSOR] = {"reduce_scatter_tensor", REDUCE_SCATTER, L_C_REDUCE_SCATTER_TENSOR, false, false,
                                 false, false},
    [F_ALL_TO_ALL] = {"all_to_all", ALL_TO_ALL, L_C_ALL_TO_ALL, true, false, false, true},
    [F_ALL_TO_ALL_SINGLE] = {"all_to_all_single", ALL_TO_ALL, L_C_ALL_TO_ALL_SINGLE, false, false, false, false},
    [F_ALL_TO_ALL_SPLITS] = {"all_to_all_single+splits", ALL_TO_ALL, L_C_ALL_TO_ALL_SINGLE, false, false, false, true},
    [F_SCAN] = {"scan", SCAN, L_C_SCAN, false, true, false, false},
    [F_SCAN_INTO] = {"scan_into", SCAN, L_C_SCAN, false, false, false, false},
    [F_EXSCAN] = {"exscan", EXSCAN, L_C_EXSCAN, false, true, false, false},
    [F_EXSCAN_INTO] = {"exscan_into", EXSCAN, L_C_EXSCAN, false, false, false, false},
};

const char *const placement_names[PLACEMENTS] = {"aligned", "unaligned", "in_place"};

/* ---- sizes ------------------------------------------------------------------------------------------------------- */

static int64_t block_count(const struct spec *spec, int block)
{
    if (!spec->uneven) return spec->count;
    return block % 4 == 1 ? 0 : spec->count + block;
}

static int64_t sum_of(const int64_t *count, int n)
{
    int64_t sum = 0;
    for (int i = 0; i < n; i++) sum += count[i];
    return sum;
}

/* Fills in the sizes of one block per rank.  For all_to_all the size depends on both ranks. */
static int blocks_of(const struct spec *spec, int n, int rank, bool out, int64_t *count)
{
    for (int k = 0; k < n; k++) {
        int pair = out ? k * 3 + rank : rank * 3 + k; /* source rank * 3 + destination rank */
        count[k] = block_count(spec, forms[spec->form].pattern == ALL_TO_ALL ? pair : k);
    }
    return n;
}

static int blocks(const struct spec *spec, int n, int root, int rank, bool out, int64_t *count)
{
    enum pattern pattern = forms[spec->form].pattern;
    bool is_root = rank == root;
    bool many = pattern == ALL_TO_ALL || (out ? pattern == ALL_GATHER || (pattern == GATHER && is_root)
                                              : pattern == REDUCE_SCATTER || (pattern == SCATTER && is_root));
    bool none = out ? !is_root && (pattern == REDUCE || pattern == GATHER)
                    : !is_root && (pattern == BROADCAST || pattern == SCATTER);
    if (none || (out && pattern == EXSCAN && rank == 0)) return 0;
    if (many) return blocks_of(spec, n, rank, out, count);
    bool reduced =
        pattern == BROADCAST || pattern == ALL_REDUCE || pattern == REDUCE || pattern == SCAN || pattern == EXSCAN;
    count[0] = reduced ? spec->count : block_count(spec, rank);
    return 1;
}

int64_t blocks_in(const struct spec *spec, int n, int root, int rank, int64_t *count)
{
    return blocks(spec, n, root, rank, false, count);
}

int64_t blocks_out(const struct spec *spec, int n, int root, int rank, int64_t *count)
{
    return blocks(spec, n, root, rank, true, count);
}

/* ---- memory ------------------------------------------------------------------------------------------------------ */

static bool allocate(struct side *side, const struct spec *spec, bool list, size_t offset, tutti_group *group)
{
    int64_t bytes = tutti_dtype_bytes(spec->dtype);
    side->total = sum_of(side->count, side->n);
    side->n_buffers = list ? side->n : 1;
    for (int i = 0; i < side->n_buffers; i++) {
        int64_t count = list ? side->count[i] : side->total;
        if (!buffer_new(&side->buffer[i], (size_t)(count * bytes), offset, group)) return false;
    }
    return true;
}

static void place(struct side *side, const struct spec *spec, bool list)
{
    uint8_t *at = side->n_buffers > 0 ? side->buffer[0].data : NULL;
    for (int k = 0; k < side->n; k++) {
        if (list) at = side->buffer[k].data;
        side->block[k] = at;
        at += side->count[k] * tutti_dtype_bytes(spec->dtype);
    }
}

/* Makes the tensors.  For 0 elements some have NULL and some a pointer, because both are legal. */
static void make_tensors(struct side *side, const struct spec *spec, bool list, tutti_device device)
{
    for (int k = 0; k < (list ? side->n : 1); k++) {
        int64_t count = list ? side->count[k] : side->total;
        side->tensor[k] =
            tutti_on(tutti_tensor_of(count > 0 || k % 2 ? side->block[k] : NULL, count, spec->dtype), device);
    }
}

/* Makes the operands in place: the smaller side uses the other side's memory.  If that has one slice per rank, it uses
 * this rank's slice. */
static void alias(struct operands *x, bool list)
{
    bool in_is_inner = x->in.n <= x->out.n && x->out.n > 0;
    struct side *inner = in_is_inner ? &x->in : &x->out, *outer = in_is_inner ? &x->out : &x->in;
    if (inner->n == 0 || outer->n == 0) return;
    for (int i = 0; i < inner->n_buffers; i++) buffer_free(&inner->buffer[i]);
    inner->n_buffers = 0;
    for (int k = 0; k < inner->n; k++) inner->block[k] = outer->block[inner->n == outer->n ? k : x->me];
    (void)list;
}

static bool remember(struct operands *x, const struct spec *spec)
{
    int64_t bytes = tutti_dtype_bytes(spec->dtype);
    x->before = malloc((size_t)(x->in.total * bytes) + 1);
    if (x->before == NULL) return false;
    uint8_t *at = x->before;
    for (int k = 0; k < x->in.n; k++) {
        size_t n = (size_t)(x->in.count[k] * bytes);
        if (n > 0) memcpy(at, x->in.block[k], n);
        at += n;
    }
    return true;
}

/* Returns the group whose tutti_alloc provides a side's memory, or NULL for malloc.  Device memory always comes from a
 * group.  On the CPU the case decides: no rank, all ranks, or some ranks and sides. */
static tutti_group *allocator(const struct rank *rank, tutti_group *group, int side)
{
    enum { OWN, OWN_TOO, GIVEN, MIXED };
    unsigned turn = rank->seed >> 12 & 3;
    bool given =
        turn == GIVEN || (turn == MIXED && input_mix(rank->seed, 2 * (uint64_t)rank->rank + (uint64_t)side) & 1);
    return rank->options->cuda || given ? group : NULL;
}

bool operands_new(struct rank *rank, const struct spec *spec, tutti_group *group, struct operands *x)
{
    const struct form *form = &forms[spec->form];
    bool aside = spec->placement == UNALIGNED;
    memset(x, 0, sizeof *x);
    x->n = tutti_get_world_size(group);
    x->me = tutti_get_rank(group);
    x->root = form->rooted ? (int)(rank->seed % (uint64_t)x->n) : -1;
    x->in.n = (int)blocks_in(spec, x->n, x->root, x->me, x->in.count);
    x->out.n = (int)blocks_out(spec, x->n, x->root, x->me, x->out.count);
    bool in_list =
        form->list && (form->pattern == SCATTER || form->pattern == REDUCE_SCATTER || form->pattern == ALL_TO_ALL);
    bool out_list =
        form->list && (form->pattern == ALL_GATHER || form->pattern == GATHER || form->pattern == ALL_TO_ALL);
    if (x->in.n > 0 && !allocate(&x->in, spec, in_list, aside ? 1 : 0, allocator(rank, group, 0))) return false;
    if (x->out.n > 0 && !allocate(&x->out, spec, out_list, aside ? 3 : 0, allocator(rank, group, 1))) return false;
    place(&x->in, spec, in_list);
    place(&x->out, spec, out_list);
    if (spec->placement == IN_PLACE || form->one) alias(x, form->list);
    struct input_use use = {(enum input)spec->input, spec->dtype, spec->op, x->n};
    for (int k = 0; k < x->in.n; k++)
        if (x->in.count[k] > 0) input_fill(rank->seed, use, x->me, k, x->in.count[k], x->in.block[k]);
    tutti_device device = rank->options->cuda ? (tutti_device){TUTTI_CUDA, rank->rank} : (tutti_device){TUTTI_CPU, 0};
    make_tensors(&x->in, spec, in_list, device);
    make_tensors(&x->out, spec, out_list, device);
    return remember(x, spec);
}

void operands_free(struct operands *x)
{
    for (int k = 0; k < x->in.n_buffers; k++) buffer_free(&x->in.buffer[k]);
    for (int k = 0; k < x->out.n_buffers; k++) buffer_free(&x->out.buffer[k]);
    free(x->before);
}
