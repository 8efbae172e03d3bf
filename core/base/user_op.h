/* Reductions that the program defines (tutti_op_create), by their number, which is a tutti_reduce_op from
 * TUTTI_USER_OPS on.
 *
 * An op that is freed while operations use it stays until the last of them lets go.  A call with its number is
 * refused: another op gets that number only after 2^22 uses of its entry.  All functions are thread-safe. */
#ifndef BASE_USER_OP_H
#define BASE_USER_OP_H

#include <tutti/sized.h>

enum { USER_OP_NAME_MOST = 64, USER_OPS_MOST = 256, USER_OP_BYTES_MOST = 1 << 20 };

/* A copy of an op's fields. */
struct user_op {
    char name[USER_OP_NAME_MOST];
    tutti_op_fn fn;
    void *argument;
    int64_t element_bytes; /* 0: elements of the tensor's dtype */
    bool commutative;
    uint32_t hash; /* of the name and the properties: equal on all ranks */
};

static inline bool user_op_is(tutti_reduce_op op)
{
    return (int)op >= (int)TUTTI_USER_OPS;
}

/* Adds an op.  Returns false if there are USER_OPS_MOST already. */
bool user_op_add(const struct user_op *op, tutti_reduce_op *number);

/* Frees an op once it is not held.  Returns false if there is no such op. */
bool user_op_free(tutti_reduce_op number);

/* Copies an op's fields.  Returns false if there is no such op; one that has been freed exists while it is held. */
bool user_op_find(tutti_reduce_op number, struct user_op *op);

/* The same for an op of a call: false also if it has been freed. */
bool user_op_find_usable(tutti_reduce_op number, struct user_op *op);

/* Finds an op by its hash's lower bits. */
bool user_op_find_hash(uint32_t hash, uint32_t mask, struct user_op *op);

/* Hold an op, and let go of it.  Ops of the library need neither. */
void user_op_hold(tutti_reduce_op number);
void user_op_drop(tutti_reduce_op number);

/* Returns the op's name while it exists, else "?". */
const char *user_op_name(tutti_reduce_op number);

/* Returns how many elements of a tensor make one of the op's: 1 unless it has elements of its own. */
int64_t user_op_units(const struct user_op *op);

/* Computes dst = a op b for n elements, where a is of the lower ranks.  dst may be a or b, and overlaps them in no
 * other way.  block has space for user_op_block() bytes of the element's size. */
void user_op_combine(const struct user_op *op, tutti_dtype dtype, void *dst, const void *a, const void *b, int64_t n,
                     void *block);

/* Returns the bytes of a block of whole elements. */
static inline int64_t user_op_block(int64_t element)
{
    enum { BLOCK = 4096 };
    return element > BLOCK ? element : BLOCK / element * element;
}

#endif
