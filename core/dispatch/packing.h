/* Packs several small operations into one, and copies its result back to their tensors. */
#ifndef PACKING_H
#define PACKING_H

#include <stddef.h>

struct tutti_work;

struct packing {
    char *memory; /* the tensors of the small operations, side by side */
    int n;        /* number of parts; 0: nothing is copied back */
    struct {
        void *data;
        size_t bytes;
    } part[];
};

/* Frees the packing of an operation that has not begun; NULL is ignored. */
void packing_free(struct packing *packing);

/* Copies the results of a work that ends with status to their tensors, unless it failed, and frees its packing.  Lock
 * held.  See engine_hooks.part_ended. */
void packing_unpack(struct tutti_work *work, int status);

#endif
