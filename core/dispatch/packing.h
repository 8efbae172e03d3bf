/* Several small operations in one: where the results of each go. */
#ifndef PACKING_H
#define PACKING_H

#include <stddef.h>

struct tutti_work;

struct packing {
    char *memory; /* of the one operation: the tensors of the small ones side by side */
    int n;        /* of `part`; 0: nothing is copied back */
    struct {
        void *data;
        size_t bytes;
    } part[];
};

/* Frees the packing of an operation that has not begun; NULL is ignored. */
void packing_free(struct packing *packing);

/* A work ends with status: copies its results to their tensors, unless it failed, and frees its packing.  Lock held.
 * See engine_hooks.part_ended. */
void packing_unpack(struct tutti_work *work, int status);

#endif
