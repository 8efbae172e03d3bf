#include "op/op.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"

int op_keep_lists(tutti_op *op, int size, tutti_tensor *tensors, size_t capacity, void **memory)
{
    size_t n = (size_t)op->n_in + (size_t)op->n_out, splits = op->in_splits != NULL ? (size_t)size : 0;
    *memory = NULL;
    if (n > capacity || splits > 0) {
        *memory = tensors = malloc(n * sizeof *tensors + 2 * splits * sizeof(int64_t) + 1);
        if (tensors == NULL)
            return error_set(TUTTI_ERR_NO_MEMORY, "out of memory for the %zu tensors of an operation", n);
    }
    for (int i = 0; i < op->n_in; i++) tensors[i] = op->in[i];
    for (int i = 0; i < op->n_out; i++) tensors[op->n_in + i] = op->out[i];
    op->in = tensors;
    op->out = tensors + op->n_in;
    if (splits > 0) {
        int64_t *numbers = (int64_t *)(tensors + n);
        op->in_splits = memcpy(numbers, op->in_splits, splits * sizeof *numbers);
        op->out_splits = memcpy(numbers + splits, op->out_splits, splits * sizeof *numbers);
    }
    return TUTTI_OK;
}
