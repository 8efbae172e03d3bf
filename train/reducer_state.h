/* The state of a reducer, which the files reducer_*.c share. */
#ifndef TRAIN_REDUCER_STATE_H
#define TRAIN_REDUCER_STATE_H

#include <pthread.h>
#include <tutti/train/reducer.h>

enum { REDUCER_TEXT = 1024 };

struct bucket;

/* How a bucket's gradients are summed over the ranks.  Each phase starts one operation. */
struct scheme {
    int phases; /* 0: as many as the hook has */
    /* Starts a phase and stores its Work. */
    int (*start)(struct tutti_reducer *reducer, struct bucket *bucket, int phase, tutti_work **work);
    /* Completes the sum when the Work of the last phase has ended; NULL: nothing to do. */
    int (*finish)(struct tutti_reducer *reducer, struct bucket *bucket);
    bool averages; /* it divides by the number of ranks itself if it should */
};

enum report { REPORT_NONE, REPORT_COPYING, REPORT_READY, REPORT_SKIPPED };

struct parameter {
    char *name;
    tutti_tensor value, gradient; /* gradient.data is the program's, or the place in the bucket */
    int bucket;
    int64_t offset;  /* in the bucket, in elements */
    float *residual; /* what compression lost of the gradient; NULL without error feedback */
    void *saved;     /* the contents of an unreported view, whose place holds zeros meanwhile; else NULL */
    enum report report;
    bool is_used; /* reported since the last iteration that was reduced */
};

struct bucket {
    tutti_bucket view; /* view.tensor.data is NULL if gradients are cast directly into wire */
    tutti_tensor wire; /* what is sent; the same as view.tensor without compression */
    const struct scheme *scheme;
    int pending; /* parameters that are not reported yet */
    tutti_work *work;
};

/* The next step of the fixed order in which all ranks start operations: see reducer_sequence.c. */
struct cursor {
    int slot, phase;
    bool has_begun; /* the header of the iteration has been started */
};

struct tutti_reducer {
    pthread_mutex_t lock;
    tutti_reducer_opts opts;
    tutti_group *group;
    tutti_group *control; /* for messages in host memory; group, unless that serves CUDA alone */
    bool has_control;     /* control is the reducer's own */
    int rank, size, n, buckets, most_phases, generation;
    struct parameter *parameter;
    struct bucket *bucket;
    int *members;                       /* parameters by bucket: tutti_bucket.parameter of all buckets */
    int64_t *offsets;                   /* the same for tutti_bucket.offset */
    int32_t *order;                     /* parameters in the order in which they were reported in this iteration */
    int reported;                       /* entries of order */
    void *memory;                       /* of the buckets; large enough for any order */
    bool is_malloced, is_wire_malloced; /* malloc's, because the group does not allocate */
    void *wire_memory;                  /* of compressed buckets */
    float *residuals;                   /* of all parameters; NULL without error feedback */
    void *spare;                        /* for moving views; NULL otherwise */

    bool sync, is_shadow; /* is_shadow: this rank has joined */
    int64_t iterations, bytes;
    struct cursor cursor;
    int32_t active, *agreed; /* summed over the ranks: active; failures, and per parameter the ranks that used it */
    tutti_work *header, *trailer;
    int status; /* of the first operation that failed in this iteration */
    char text[REDUCER_TEXT];
};

/* Returns the options of an operation of the reducer. */
tutti_opts reducer_opts(const struct tutti_reducer *reducer, tutti_work **work);

/* Returns the same for a message by which the ranks agree.  Roots are ranks of the group. */
tutti_opts reducer_control_opts(const struct tutti_reducer *reducer, tutti_work **work);

/* True if gradients are in buckets of CPU memory and the program's own memory is not used. */
static inline bool reducer_has_views(const struct tutti_reducer *reducer)
{
    return reducer->opts.gradient_as_bucket_view;
}

static inline bool reducer_is_cuda(const struct parameter *parameter)
{
    return parameter->gradient.device.type != TUTTI_CPU;
}

/* Returns the part of a tensor that begins at an element. */
static inline tutti_tensor reducer_part(tutti_tensor tensor, int64_t begin, int64_t numel)
{
    if (tensor.data != NULL) tensor.data = (char *)tensor.data + begin * tutti_dtype_bytes(tensor.dtype);
    tensor.numel = numel;
    return tensor;
}

static inline int64_t reducer_tensor_bytes(tutti_tensor tensor)
{
    return tensor.numel * tutti_dtype_bytes(tensor.dtype);
}

#endif
