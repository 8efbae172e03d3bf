#include "dispatch/packing.h"

#include <stdlib.h>
#include <tutti/tutti.h>

#include "op/op.h"
#include "state/work_state.h"

struct packing *packing_new(int n, size_t bytes)
{
    struct packing *packing = malloc(sizeof *packing + 2 * (size_t)n * sizeof packing->tensors[0]);
    char *memory = malloc(bytes > 0 ? bytes : 1);
    if (packing == NULL || memory == NULL) {
        free(packing);
        free(memory);
        return NULL;
    }
    packing->memory = memory;
    packing->most = n;
    packing->touches = (tutti_op){.in = packing->tensors, .out = packing->tensors + n};
    return packing;
}

void packing_add(struct packing *packing, const tutti_op *op, bool is_source)
{
    tutti_op *touches = &packing->touches;
    packing->tensors[touches->n_in++] = op->n_in > 0 ? op->in[0] : op->out[0];
    if (!is_source) packing->tensors[packing->most + touches->n_out++] = op->out[0];
}

void packing_fill(const struct packing *packing)
{
    if (packing == NULL) return;
    char *to = packing->memory;
    for (int i = 0; i < packing->touches.n_in; i++) {
        const tutti_tensor *from = &packing->touches.in[i];
        tutti_copy(to, from->data, op_tensor_bytes(from));
        to += op_tensor_bytes(from);
    }
}

void packing_free(struct packing *packing)
{
    if (packing == NULL) return;
    free(packing->memory);
    free(packing);
}

void packing_unpack(struct tutti_work *work, int status)
{
    struct packing *packing = work->packing;
    if (packing == NULL) return;
    const char *from = packing->memory;
    for (int i = 0; i < packing->touches.n_out && status == TUTTI_OK; i++) {
        const tutti_tensor *to = &packing->touches.out[i];
        tutti_copy(to->data, from, op_tensor_bytes(to));
        from += op_tensor_bytes(to);
    }
    packing_free(packing);
    work->packing = NULL;
}
