#include "op/fingerprint.h"

#include <inttypes.h>
#include <stdio.h>

#include "base/dtype.h"

/* Fields from the top: kind + 1 (5 bits), dtype index (5), reduce op (4), root + 1 (15), uneven (1), count (34).
 *
 * Kinds without a root, or with a root but no reduce op, carry a hash of earlier calls in the unused field.  If the
 * calls of two ranks diverged and none of them failed (each believed itself the root), their next fingerprints
 * differ. */
enum { KIND_AT = 59, DTYPE_AT = 54, OP_AT = 50, ROOT_AT = 35, UNEVEN_AT = 34 };
#define OP_MASK UINT64_C(0xf)
#define ROOT_MASK UINT64_C(0x7fff)
#define COUNT_MASK ((UINT64_C(1) << UNEVEN_AT) - 1)

static_assert(TUTTI_KIND_COUNT < 32 && DTYPE_COUNT <= 32 && TUTTI_REDUCE_OP_COUNT <= 16, "the fields are too short");

/* Returns the size if all are equal, else a hash of the sizes with the uneven bit.  Every rank must know all of
 * them. */
static uint64_t count_of_list(const tutti_tensor *list, int n)
{
    uint64_t hash = 0;
    bool even = true;
    for (int i = 0; i < n; i++) {
        even &= list[i].numel == list[0].numel;
        hash = (hash ^ (uint64_t)list[i].numel) * UINT64_C(0x9e3779b97f4a7c15);
    }
    if (even) return (uint64_t)list[0].numel & COUNT_MASK;
    return (hash >> 30 & COUNT_MASK) | UINT64_C(1) << UNEVEN_AT;
}

static uint64_t count_of(const tutti_op *op, int size)
{
    bool sized = op->list || op->in_splits != NULL;
    if (!sized || !tutti_kind_has_blocks(op->kind)) return (uint64_t)tutti_op_block_numel(op, size) & COUNT_MASK;
    if (!tutti_kind_knows_blocks(op->kind)) return UINT64_C(1) << UNEVEN_AT;
    return count_of_list(tutti_kind_in_blocks(op->kind) ? op->in : op->out, size);
}

static bool has_elements(tutti_kind kind)
{
    const tutti_kind_row *row = tutti_kind_find(kind);
    return row->in != TUTTI_SIDE_NONE || row->out != TUTTI_SIDE_NONE;
}

uint64_t fingerprint_of(const tutti_op *op, int group_size)
{
    tutti_kind kind = tutti_kind_is_message(op->kind) ? TUTTI_SEND : op->kind; /* both ends use the same kind */
    uint64_t value = ((uint64_t)kind + 1) << KIND_AT | count_of(op, group_size);
    int dtype = dtype_index(op->dtype);
    if (dtype >= 0 && has_elements(kind)) value |= (uint64_t)dtype << DTYPE_AT;
    if (tutti_kind_reduces(kind)) value |= (uint64_t)op->reduce_op << OP_AT;
    if (tutti_kind_has_root(kind)) value |= ((uint64_t)(op->root + 1) & ROOT_MASK) << ROOT_AT;
    return value;
}

uint64_t fingerprint_mask(const tutti_op *op)
{
    return op->up_to ? ~((UINT64_C(1) << UNEVEN_AT) | COUNT_MASK) : UINT64_MAX;
}

static uint64_t past_bits(uint64_t fingerprint)
{
    tutti_kind kind = (tutti_kind)((int)(fingerprint >> KIND_AT) - 1);
    if (tutti_kind_is_message(kind)) return 0;
    if (tutti_kind_has_root(kind) && tutti_kind_reduces(kind)) return 0;
    return tutti_kind_has_root(kind) ? OP_MASK << OP_AT : ROOT_MASK << ROOT_AT;
}

uint64_t fingerprint_with_past(uint64_t fingerprint, uint64_t past)
{
    return fingerprint | (past & past_bits(fingerprint));
}

uint64_t fingerprint_past_after(uint64_t past, uint64_t fingerprint)
{
    uint64_t mixed = (past ^ fingerprint) * UINT64_C(0x9e3779b97f4a7c15);
    return (mixed ^ mixed >> 29) * UINT64_C(0xbf58476d1ce4e5b9);
}

bool fingerprint_same_call(uint64_t a, uint64_t b)
{
    return ((a ^ b) & ~past_bits(a)) == 0;
}

void fingerprint_describe(uint64_t fingerprint, char *text, size_t size)
{
    tutti_kind kind = (tutti_kind)((int)(fingerprint >> KIND_AT) - 1);
    if ((unsigned)kind >= TUTTI_KIND_COUNT) {
        snprintf(text, size, "an unknown call (0x%" PRIx64 ")", fingerprint);
        return;
    }
    if (!has_elements(kind)) {
        snprintf(text, size, "%s", tutti_kind_find(kind)->name);
        return;
    }
    char op[32] = "", root[32] = "", count[48];
    if (tutti_kind_reduces(kind))
        snprintf(op, sizeof op, ", %s", reduce_op_name((tutti_reduce_op)(fingerprint >> OP_AT & OP_MASK)));
    if (tutti_kind_has_root(kind))
        snprintf(root, sizeof root, ", root %d", (int)(fingerprint >> ROOT_AT & ROOT_MASK) - 1);
    if (fingerprint >> UNEVEN_AT & 1)
        snprintf(count, sizeof count, "parts of given sizes");
    else
        snprintf(count, sizeof count, "%" PRIu64 " elements", fingerprint & COUNT_MASK);
    snprintf(text, size, "%s(%s, %s%s%s)", kind == TUTTI_SEND ? "message" : tutti_kind_find(kind)->name,
             dtype_name(dtype_from_index((int)(fingerprint >> DTYPE_AT & 0x1f))), count, op, root);
}
