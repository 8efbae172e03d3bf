/* Reduces two tensors in this process. */
#include <inttypes.h>
#include <tutti/tutti.h>

#include "base/dtype.h"
#include "base/error.h"
#include "base/reduce.h"
#include "base/user_op.h"

static int check_local(const tutti_tensor *inout, const tutti_tensor *in, tutti_reduce_op op)
{
    if (!dtype_valid(inout->dtype) || in->dtype != inout->dtype)
        return error_set(TUTTI_ERR_INVALID_ARGUMENT,
                         "reduce_local: the dtypes are %s and %s; they must be equal and valid",
                         dtype_name(inout->dtype), dtype_name(in->dtype));
    if (in->numel < 0 || in->numel != inout->numel)
        return error_set(TUTTI_ERR_INVALID_ARGUMENT,
                         "reduce_local: the tensors have %" PRId64 " and %" PRId64
                         " elements; they must have the same number",
                         inout->numel, in->numel);
    if (in->numel > 0 && (in->data == NULL || inout->data == NULL))
        return error_set(TUTTI_ERR_INVALID_ARGUMENT, "reduce_local: data is NULL but numel is %" PRId64, in->numel);
    if (in->device.type != TUTTI_CPU || inout->device.type != TUTTI_CPU)
        return error_set(TUTTI_ERR_UNSUPPORTED,
                         "reduce_local: the device types are %d and %d; only CPU tensors are supported",
                         inout->device.type, in->device.type);
    if (user_op_is(op)) return TUTTI_OK; /* see reduce_by_user */
    if ((unsigned)op >= TUTTI_REDUCE_OP_COUNT)
        return error_set(TUTTI_ERR_INVALID_ARGUMENT,
                         "reduce_local: reduce op %d does not exist; use one of tutti_reduce_op", (int)op);
    if (op == TUTTI_PREMUL_SUM || !dtype_reduces(inout->dtype, op))
        return error_set(TUTTI_ERR_UNSUPPORTED, "reduce_local: %s does not reduce %s; use another op or dtype",
                         reduce_op_name(op), dtype_name(inout->dtype));
    return TUTTI_OK;
}

static int reduce_by_user(const tutti_tensor *inout, const tutti_tensor *in, tutti_reduce_op op)
{
    struct user_op user_op;
    if (!user_op_find_usable(op, &user_op))
        return error_set(TUTTI_ERR_INVALID_ARGUMENT, "reduce_local: reduce op 0x%x does not exist, or has been freed",
                         (unsigned)op);
    if ((user_op.element_bytes > 0 && in->dtype != TUTTI_UINT8) || in->numel % user_op_units(&user_op) != 0)
        return error_set(TUTTI_ERR_INVALID_ARGUMENT,
                         "reduce_local: the tensors are %" PRId64 " of %s; op %s needs whole elements of %" PRId64
                         " bytes, as uint8",
                         in->numel, dtype_name(in->dtype), user_op.name, user_op.element_bytes);
    int64_t n = in->numel / user_op_units(&user_op);
    if (n > 0) user_op.fn(inout->data, in->data, n, in->dtype, user_op.argument);
    return TUTTI_OK;
}

int tutti_reduce_local(tutti_tensor inout, tutti_tensor in, tutti_reduce_op op)
{
    int status = check_local(&inout, &in, op);
    if (status == TUTTI_OK && user_op_is(op)) return reduce_by_user(&inout, &in, op);
    if (status != TUTTI_OK || in.numel == 0) return status;
    reduce_find(inout.dtype, op)(inout.data, inout.data, in.data, in.numel);
    if (op == TUTTI_AVG) reduce_average(inout.dtype, inout.data, inout.data, inout.numel, 2);
    return TUTTI_OK;
}
