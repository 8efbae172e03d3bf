#include "op/op.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"

int op_copy(tutti_op *copy, const tutti_op *op, int size, tutti_tensor *tensors, size_t room, void **memory)
{
    size_t n = (size_t)op->n_in + (size_t)op->n_out, splits = op->in_splits != NULL ? (size_t)size : 0;
    *copy = *op;
    *memory = NULL;
    if (n > room || splits > 0) {
        *memory = tensors = malloc(n * sizeof *tensors + 2 * splits * sizeof(int64_t) + 1);
        if (tensors == NULL) return error_set(TUTTI_ERR_NO_MEMORY, "no memory for an operation's lists");
    }
    if (op->n_in > 0) memcpy(tensors, op->in, (size_t)op->n_in * sizeof *tensors);
    if (op->n_out > 0) memcpy(tensors + op->n_in, op->out, (size_t)op->n_out * sizeof *tensors);
    copy->in = tensors;
    copy->out = tensors + op->n_in;
    if (splits > 0) {
        int64_t *numbers = (int64_t *)(tensors + n);
        copy->in_splits = memcpy(numbers, op->in_splits, splits * sizeof *numbers);
        copy->out_splits = memcpy(numbers + splits, op->out_splits, splits * sizeof *numbers);
    }
    return TUTTI_OK;
}
