#include "op/fingerprint.h"

#include <inttypes.h>
#include <stdio.h>

#include "base/dtype.h"
#include "base/user_op.h"

/* Fields from the top: kind + 1 (5 bits), dtype index (5), reduce op (4), root + 1 (15), uneven (1), count (34).
 *
 * The op field of a reduction by the program's own op is USER_OP.  Its count field holds a part of the op's hash (14
 * bits) and the count (20), or a hash of a count that needs more.
 *
 * Kinds without a root, or with a root but no reduce op, carry a hash of earlier calls in the unused field.  If the
 * calls of two ranks diverged and none of them failed (each believed itself the root), their next fingerprints
 * differ. */
enum { KIND_AT = 59, DTYPE_AT = 54, OP_AT = 50, ROOT_AT = 35, UNEVEN_AT = 34, USER_HASH_AT = 20 };
#define OP_MASK UINT64_C(0xf)
#define USER_OP OP_MASK
#define USER_HASH_MASK UINT64_C(0x3fff)
#define USER_COUNT_MASK ((UINT64_C(1) << USER_HASH_AT) - 1)
#define USER_MANY (UINT64_C(1) << (USER_HASH_AT - 1)) /* the rest of the count is a hash */
#define ROOT_MASK UINT64_C(0x7fff)
#define COUNT_MASK ((UINT64_C(1) << UNEVEN_AT) - 1)

static_assert(TUTTI_KIND_COUNT < 32 && DTYPE_COUNT <= 32 && TUTTI_REDUCE_OP_COUNT <= 15, "the fields are too short");

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

/* Returns the op field, and puts the hash of an op of the program into the count. */
static uint64_t op_bits(tutti_reduce_op reduce_op, uint64_t *value)
{
    struct user_op op;
    uint64_t count = *value & COUNT_MASK;
    if (!user_op_is(reduce_op)) return (uint64_t)reduce_op << OP_AT;
    if (!user_op_find(reduce_op, &op)) op.hash = 0;
    if (count >= USER_MANY) count = USER_MANY | (count * UINT64_C(0x9e3779b97f4a7c15) >> 45);
    *value = (*value & ~COUNT_MASK) | (op.hash & USER_HASH_MASK) << USER_HASH_AT | count;
    return USER_OP << OP_AT;
}

uint64_t fingerprint_of(const tutti_op *op, int group_size)
{
    tutti_kind kind = tutti_kind_is_message(op->kind) ? TUTTI_SEND : op->kind; /* both ends use the same kind */
    uint64_t value = ((uint64_t)kind + 1) << KIND_AT | count_of(op, group_size);
    int dtype = dtype_index(op->dtype);
    if (dtype >= 0 && has_elements(kind)) value |= (uint64_t)dtype << DTYPE_AT;
    if (tutti_kind_reduces(kind)) value |= op_bits(op->reduce_op, &value);
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

static void describe_user_op(uint64_t fingerprint, char *text, size_t size)
{
    struct user_op op;
    uint64_t hash = fingerprint >> USER_HASH_AT & USER_HASH_MASK;
    if (user_op_find_hash((uint32_t)hash, (uint32_t)USER_HASH_MASK, &op))
        snprintf(text, size, ", op %s", op.name);
    else
        snprintf(text, size, ", an op that this process has not created");
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
    char op[USER_OP_NAME_MOST + 8] = "", root[32] = "", count[48];
    bool by_user = tutti_kind_reduces(kind) && (fingerprint >> OP_AT & OP_MASK) == USER_OP;
    if (tutti_kind_reduces(kind) && !by_user)
        snprintf(op, sizeof op, ", %s", reduce_op_name((tutti_reduce_op)(fingerprint >> OP_AT & OP_MASK)));
    if (tutti_kind_has_root(kind))
        snprintf(root, sizeof root, ", root %d", (int)(fingerprint >> ROOT_AT & ROOT_MASK) - 1);
    if (fingerprint >> UNEVEN_AT & 1)
        snprintf(count, sizeof count, "parts of given sizes");
    else if (by_user && fingerprint & USER_MANY)
        snprintf(count, sizeof count, "at least %" PRIu64 " elements", (uint64_t)USER_MANY);
    else if (by_user)
        snprintf(count, sizeof count, "%" PRIu64 " elements", fingerprint & USER_COUNT_MASK);
    else
        snprintf(count, sizeof count, "%" PRIu64 " elements", fingerprint & COUNT_MASK);
    if (by_user) describe_user_op(fingerprint, op, sizeof op);
    snprintf(text, size, "%s(%s, %s%s%s)", kind == TUTTI_SEND ? "message" : tutti_kind_find(kind)->name,
             dtype_name(dtype_from_index((int)(fingerprint >> DTYPE_AT & 0x1f))), count, op, root);
}
