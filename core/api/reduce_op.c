/* Makes and frees the program's own reductions. */
#include <inttypes.h>
#include <string.h>
#include <tutti/tutti.h>

#include "base/error.h"
#include "base/sized.h"
#include "base/user_op.h"
#include "group/group_id.h"

static uint32_t hash_of(const struct user_op *op)
{
    uint64_t properties = group_id_mix((uint64_t)op->element_bytes + 1, op->commutative);
    return (uint32_t)(group_id_mix_text(properties, op->name) >> 32);
}

static int check(const char *name, tutti_op_fn fn, const tutti_op_opts *opts, const tutti_reduce_op *op)
{
    if (name == NULL || fn == NULL || op == NULL)
        return error_set(TUTTI_ERR_INVALID_ARGUMENT, "op_create: name, fn or op is NULL");
    size_t length = strnlen(name, USER_OP_NAME_MOST);
    if (length == 0 || length == USER_OP_NAME_MOST)
        return error_set(TUTTI_ERR_INVALID_ARGUMENT, "op_create: the name has %s characters; use 1 to %d",
                         length == 0 ? "no" : "too many", USER_OP_NAME_MOST - 1);
    if (opts->element_bytes < 0 || opts->element_bytes > USER_OP_BYTES_MOST)
        return error_set(TUTTI_ERR_INVALID_ARGUMENT,
                         "op_create: element_bytes is %" PRId64 "; use 0 (the tensors' dtype) to %d",
                         opts->element_bytes, USER_OP_BYTES_MOST);
    return TUTTI_OK;
}

int tutti_op_create_sized(const char *name, tutti_op_fn fn, void *argument, const tutti_op_opts *opts,
                          size_t opts_bytes, tutti_reduce_op *op)
{
    static const tutti_op_opts defaults;
    tutti_op_opts copy;
    int status = SIZED_READ(tutti_op_opts, opts, opts_bytes, &copy);
    if (opts == NULL) opts = &defaults;
    if (status == TUTTI_OK) status = check(name, fn, opts, op);
    if (status != TUTTI_OK) return status;
    struct user_op made = {
        .fn = fn, .argument = argument, .element_bytes = opts->element_bytes, .commutative = opts->commutative};
    memcpy(made.name, name, strlen(name));
    made.hash = hash_of(&made);
    if (user_op_add(&made, op)) return TUTTI_OK;
    return error_set(TUTTI_ERR_NO_MEMORY, "op_create: %d ops exist; free some with tutti_op_free", USER_OPS_MOST);
}

int tutti_op_free(tutti_reduce_op op)
{
    if (user_op_free(op)) return TUTTI_OK;
    return error_set(TUTTI_ERR_INVALID_ARGUMENT,
                     "op_free: reduce op 0x%x is not an op of tutti_op_create, or has been freed", (unsigned)op);
}
