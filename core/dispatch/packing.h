/* Packs several small operations into one.  Their tensors are copied together when it is dispatched, since an earlier
 * operation may still write them when it is issued, and its result is copied back when it ends. */
#ifndef PACKING_H
#define PACKING_H

#include <tutti/backend.h>

struct tutti_work;

struct packing {
    char *memory;     /* the tensors of the small operations, side by side */
    tutti_op touches; /* what they read and write, for hazards.c: only its tensors are valid */
    int most;         /* the inputs come first in `tensors`, and the outputs behind the space for so many */
    tutti_tensor tensors[];
};

/* Returns a packing for n operations with space for `bytes`, or NULL if there is no memory. */
struct packing *packing_new(int n, size_t bytes);

/* Adds an operation, which has one output and at most one input.  is_source: it only reads, although its tensor may be
 * the output. */
void packing_add(struct packing *packing, const tutti_op *op, bool is_source);

/* Copies the tensors together; NULL is ignored. */
void packing_fill(const struct packing *packing);

/* Frees the packing of an operation that has not begun; NULL is ignored. */
void packing_free(struct packing *packing);

/* Copies the results of a work that ends with status to their tensors, unless it failed, and frees its packing.  Lock
 * held.  See engine_hooks.part_ended. */
void packing_unpack(struct tutti_work *work, int status);

#endif
