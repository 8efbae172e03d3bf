/* Residuals are float32, whatever the gradients' dtype.  All loops work on chunks that stay in the cache. */
#include "reducer_residual.h"

#include <stdlib.h>

#include "blocks.h"
#include "loops.h"
#include "reducer_scheme.h"

enum { CHUNK = 4096 };

static bool is_compressed(const struct tutti_reducer *reducer, const struct parameter *parameter)
{
    const struct scheme *scheme = scheme_of(reducer, parameter->gradient);
    return scheme_casts(scheme) || scheme_has_blocks(scheme);
}

int residual_create(struct tutti_reducer *reducer)
{
    int64_t numel = 0;
    if (!reducer->opts.error_feedback) return TUTTI_OK;
    for (int i = 0; i < reducer->n; i++) numel += reducer->parameter[i].gradient.numel;
    reducer->residuals = calloc((size_t)numel + 1, sizeof *reducer->residuals);
    if (reducer->residuals == NULL)
        return tutti_set_error(TUTTI_ERR_NO_MEMORY, "out of memory for the residuals of error_feedback");
    float *at = reducer->residuals;
    for (int i = 0; i < reducer->n; i++) {
        struct parameter *parameter = &reducer->parameter[i];
        parameter->residual = is_compressed(reducer, parameter) ? at : NULL;
        at += parameter->gradient.numel;
    }
    return TUTTI_OK;
}

/* Keeps wanted - sent.  An element that overflowed leaves nothing, because its residual would never become finite. */
static void keep(float *residual, const float *wanted, const float *sent, int64_t n)
{
    loops_select()->keep_lost(residual, wanted, sent, (int)n);
}

static int64_t chunk_numel(int64_t numel, int64_t at)
{
    return numel - at < CHUNK ? numel - at : CHUNK;
}

/* Computes n elements of the gradient plus its residual. */
static void add(const struct parameter *parameter, tutti_tensor from, int64_t at, int64_t n, float *sum)
{
    tutti_cast(tutti_view(sum, n), reducer_part(from, at, n));
    loops_select()->add(sum, parameter->residual + at, (int)n);
}

void residual_cast(struct parameter *parameter, tutti_tensor to)
{
    float wanted[CHUNK], sent[CHUNK];
    for (int64_t at = 0, n; at < to.numel; at += n) {
        n = chunk_numel(to.numel, at);
        tutti_tensor out = reducer_part(to, at, n);
        add(parameter, parameter->gradient, at, n, wanted);
        tutti_cast(out, tutti_view(wanted, n));
        tutti_cast(tutti_view(sent, n), out);
        keep(parameter->residual + at, wanted, sent, n);
    }
}

void residual_add(struct parameter *parameter, tutti_tensor place)
{
    float sum[CHUNK];
    for (int64_t at = 0, n; at < place.numel; at += n) {
        n = chunk_numel(place.numel, at);
        add(parameter, place, at, n, sum);
        tutti_cast(reducer_part(place, at, n), tutti_view(sum, n));
    }
}

/* Keeps what the blocks lose of one gradient. */
static void keep_of_blocks(struct blocks shape, const struct bucket *bucket, struct parameter *parameter)
{
    float wanted[CHUNK], sent[CHUNK];
    int64_t numel = parameter->gradient.numel;
    for (int64_t at = 0, n; at < numel; at += n) {
        n = chunk_numel(numel, at);
        tutti_cast(tutti_view(wanted, n), reducer_part(bucket->view.tensor, parameter->offset + at, n));
        blocks_decode(shape, bucket->wire.data, parameter->offset + at, tutti_view(sent, n));
        keep(parameter->residual + at, wanted, sent, n);
    }
}

/* A parameter that this rank does not contribute to keeps its residual for the next time. */
void residual_of_blocks(struct tutti_reducer *reducer, const struct bucket *bucket)
{
    struct blocks shape = blocks_of(bucket->view.tensor.numel, reducer->size);
    for (int i = 0; i < bucket->view.n && !reducer->is_shadow; i++) {
        struct parameter *parameter = &reducer->parameter[bucket->view.parameter[i]];
        if (parameter->residual != NULL && parameter->is_used) keep_of_blocks(shape, bucket, parameter);
    }
}

/* A bucket whose sum is being encoded. */
struct summing {
    struct tutti_reducer *reducer;
    const struct bucket *bucket;
    int64_t begin; /* of this rank's part, in elements */
};

/* Adds what was lost of some elements of this rank's part to the residuals of their parameters. */
static void add_lost(void *context, int64_t begin, const float *lost, int n)
{
    const struct summing *summing = context;
    const tutti_bucket *view = &summing->bucket->view;
    int64_t first = summing->begin + begin, end = first + n;
    for (int k = 0; k < view->n; k++) {
        struct parameter *parameter = &summing->reducer->parameter[view->parameter[k]];
        int64_t from = parameter->offset > first ? parameter->offset : first;
        int64_t to = parameter->offset + parameter->gradient.numel;
        if (to > end) to = end;
        if (from < to)
            loops_select()->add(parameter->residual + (from - parameter->offset), lost + (from - first),
                                (int)(to - from));
    }
}

void residual_sum_blocks(struct tutti_reducer *reducer, const struct bucket *bucket, const uint8_t *parts, uint8_t *sum)
{
    struct blocks shape = blocks_of(bucket->view.tensor.numel, reducer->size);
    struct summing summing = {reducer, bucket, reducer->rank * shape.per_part * BLOCKS_NUMEL};
    blocks_sum(shape, parts, sum, reducer->residuals != NULL ? add_lost : NULL, &summing);
}
