/* One case of one collective: makes operands, calls the collective, and compares the result with the reference. */
#ifndef CONFORMANCE_COLLECTIVE_H
#define CONFORMANCE_COLLECTIVE_H

#include "conformance/buffer.h"
#include "conformance/suite.h"

enum pattern { BROADCAST, ALL_REDUCE, REDUCE, ALL_GATHER, GATHER, SCATTER, REDUCE_SCATTER, ALL_TO_ALL, SCAN, EXSCAN };

enum form_id {
    F_BROADCAST = 0,
    F_ALL_REDUCE,
    F_ALL_REDUCE_INTO,
    F_REDUCE,
    F_REDUCE_INTO,
    F_ALL_GATHER,
    F_ALL_GATHER_INTO,
    F_GATHER,
    F_GATHER_INTO,
    F_SCATTER,
    F_SCATTER_TENSOR,
    F_REDUCE_SCATTER,
    F_REDUCE_SCATTER_TENSOR,
    F_ALL_TO_ALL,
    F_ALL_TO_ALL_SINGLE,
    F_ALL_TO_ALL_SPLITS,
    F_SCAN,
    F_SCAN_INTO,
    F_EXSCAN,
    F_EXSCAN_INTO,
    FORMS
};

enum placement { ALIGNED = 0, UNALIGNED, IN_PLACE /* or in this rank's own slice of the larger side */, PLACEMENTS };

struct form {
    const char *name;
    enum pattern pattern;
    enum line line;
    bool list; /* each block is a tensor, not a part of one tensor */
    bool one;  /* input and output are the same argument */
    bool rooted;
    bool uneven; /* blocks may differ in size */
};

extern const struct form forms[FORMS];
extern const char *const placement_names[PLACEMENTS];

static inline bool form_scans(const struct form *form)
{
    return form->pattern == SCAN || form->pattern == EXSCAN;
}

static inline bool form_reduces(const struct form *form)
{
    return form->pattern == ALL_REDUCE || form->pattern == REDUCE || form->pattern == REDUCE_SCATTER ||
           form_scans(form);
}

/* One side of the operation on this rank. */
struct side {
    int n;                    /* number of blocks; 0 if this rank has no such side */
    int64_t count[RANKS_MAX]; /* number of elements of each block */
    uint8_t *block[RANKS_MAX];
    struct buffer buffer[RANKS_MAX];
    int n_buffers; /* 1 if the blocks are consecutive */
    int64_t total;
    tutti_tensor tensor[RANKS_MAX]; /* the list, or one tensor of all blocks */
};

struct operands {
    struct side in, out;
    int n, me, root; /* the group's size, this rank and the root in the group */
    uint8_t *before; /* copy of the input blocks before the call, one after another */
};

/* Fill in the number of elements of each block of a rank's input or output.  Return the number of blocks. */
int64_t blocks_in(const struct spec *spec, int n, int root, int rank, int64_t *count);
int64_t blocks_out(const struct spec *spec, int n, int root, int rank, int64_t *count);

bool operands_new(struct rank *rank, const struct spec *spec, tutti_group *group, struct operands *x);
void operands_free(struct operands *x);

int collective_call(struct rank *rank, const struct spec *spec, const struct operands *x, tutti_opts opts);

/* Checks every byte of both sides.  Returns PASSED, or FAILED with the reason set. */
enum verdict collective_verify(struct rank *rank, const struct spec *spec, const struct operands *x);

double collective_factor(const struct spec *spec);
enum verdict collective_run(struct rank *rank);

#endif
