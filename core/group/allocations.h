/* Registry of the memory that backends have allocated for tutti_alloc, by address.
 *
 * An allocation is found by its address and not by its group: another group of the tree may free it, and the program
 * may keep it after its group has ended.  All functions may be called from any thread.
 */
#ifndef ALLOCATIONS_H
#define ALLOCATIONS_H

#include <tutti/backend.h>

struct engine;

struct allocation {
    void *memory;
    size_t bytes;
    const struct engine *tree; /* its group tree; NULL once that has ended and the program owns the memory */
    const tutti_backend *backend;
};

/* Records an allocation.  Returns false if out of memory. */
bool allocations_add(void *memory, size_t bytes, const struct engine *tree, const tutti_backend *backend);

/* Copies the allocation at this address to *found.  Returns false if there is none. */
bool allocations_find(void *memory, struct allocation *found);

/* Removes the allocation.  Returns false if another thread was first. */
bool allocations_remove(void *memory);

/* Hands the memory of a closed group tree over to the program, which has kept it. */
void allocations_release(const struct engine *tree);

#endif
