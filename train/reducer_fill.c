#include "reducer_fill.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "blocks.h"
#include "reducer_residual.h"
#include "reducer_scheme.h"

/* Returns the gradient's place in the bucket. */
static tutti_tensor place_of(const struct tutti_reducer *reducer, const struct parameter *parameter)
{
    return reducer_part(reducer->bucket[parameter->bucket].view.tensor, parameter->offset, parameter->gradient.numel);
}

/* Returns the same in the cast bucket. */
static tutti_tensor wire_of(const struct tutti_reducer *reducer, const struct parameter *parameter)
{
    return reducer_part(reducer->bucket[parameter->bucket].wire, parameter->offset, parameter->gradient.numel);
}

static bool casts(const struct tutti_reducer *reducer, const struct parameter *parameter)
{
    return scheme_casts(reducer->bucket[parameter->bucket].scheme);
}

static void copy(tutti_tensor to, tutti_tensor from)
{
    if (to.data != from.data && from.numel > 0) memcpy(to.data, from.data, (size_t)reducer_tensor_bytes(from));
}

int fill_gradient(struct tutti_reducer *reducer, struct parameter *parameter)
{
    tutti_tensor place = place_of(reducer, parameter);
    if (reducer_is_cuda(parameter) || place.numel == 0) return TUTTI_OK;
    if (casts(reducer, parameter)) {
        if (parameter->residual == NULL) return tutti_cast(wire_of(reducer, parameter), parameter->gradient);
        residual_cast(parameter, wire_of(reducer, parameter));
        return TUTTI_OK;
    }
    copy(place, parameter->gradient);
    if (parameter->residual != NULL) residual_add(parameter, place);
    return TUTTI_OK;
}

static int save(struct parameter *parameter)
{
    size_t bytes = (size_t)reducer_tensor_bytes(parameter->gradient);
    parameter->saved = malloc(bytes + 1);
    if (parameter->saved == NULL)
        return tutti_set_error(TUTTI_ERR_NO_MEMORY, "reducer: out of memory for a copy of '%s'", parameter->name);
    memcpy(parameter->saved, parameter->gradient.data, bytes);
    return TUTTI_OK;
}

int fill_zeros(struct tutti_reducer *reducer, struct parameter *parameter)
{
    int status = TUTTI_OK;
    bool is_cast = casts(reducer, parameter); /* then a view stays as it is */
    tutti_tensor place = is_cast ? wire_of(reducer, parameter) : place_of(reducer, parameter);
    if (reducer_is_cuda(parameter) || place.numel == 0) return TUTTI_OK; /* the program has set it to zero */
    if (!is_cast && reducer_has_views(reducer) && !reducer->is_shadow) status = save(parameter);
    if (status == TUTTI_OK) memset(place.data, 0, (size_t)reducer_tensor_bytes(place));
    return status;
}

void fill_restore(struct parameter *parameter)
{
    if (parameter->saved != NULL)
        memcpy(parameter->gradient.data, parameter->saved, (size_t)reducer_tensor_bytes(parameter->gradient));
    free(parameter->saved);
    parameter->saved = NULL;
}

/* Elements of a tensor, which may be at any address. */
typedef float unaligned_float __attribute__((aligned(1), may_alias));
typedef double unaligned_double __attribute__((aligned(1), may_alias));

/* Divides in place. */
static void divide(tutti_tensor tensor, double divisor)
{
    bool is_complex = tensor.dtype == TUTTI_COMPLEX64 || tensor.dtype == TUTTI_COMPLEX128;
    int64_t n = is_complex ? 2 * tensor.numel : tensor.numel;
    if (tensor.dtype == TUTTI_FLOAT32 || tensor.dtype == TUTTI_COMPLEX64) {
        unaligned_float *x = tensor.data, by = (float)divisor;
        for (int64_t i = 0; i < n; i++) x[i] /= by;
    } else {
        unaligned_double *x = tensor.data;
        for (int64_t i = 0; i < n; i++) x[i] /= divisor;
    }
}

int fill_result(struct tutti_reducer *reducer, struct parameter *parameter)
{
    double divisor = scheme_divisor(reducer, reducer->bucket[parameter->bucket].scheme);
    if (reducer_is_cuda(parameter) || parameter->gradient.numel == 0) return TUTTI_OK;
    free(parameter->saved);
    parameter->saved = NULL;
    const struct bucket *bucket = &reducer->bucket[parameter->bucket];
    if (scheme_casts(bucket->scheme))
        tutti_cast(parameter->gradient, wire_of(reducer, parameter));
    else if (scheme_has_blocks(bucket->scheme))
        blocks_decode(blocks_of(bucket->view.tensor.numel, reducer->size), bucket->wire.data, parameter->offset,
                      parameter->gradient);
    else
        copy(parameter->gradient, place_of(reducer, parameter));
    if (divisor != 1) divide(parameter->gradient, divisor);
    return TUTTI_OK;
}
