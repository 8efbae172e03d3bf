/* Memory that backends have lent through tutti_alloc, by address.
 *
 * A loan is kept by its address and not by its group: another group of the family may give it back, and the program may
 * keep it after its group has ended.  All functions may be called from any thread.
 */
#ifndef LOANS_H
#define LOANS_H

#include <tutti/backend.h>

struct engine;

struct loan {
    void *memory;
    size_t bytes;
    const struct engine *family; /* whose groups' memory it is; NULL once they have ended: it is the program's */
    const tutti_backend *backend;
};

/* Records a loan.  False if out of memory. */
bool loans_add(void *memory, size_t bytes, const struct engine *family, const tutti_backend *backend);

/* Copies the loan of this address to *found.  False if there is none. */
bool loans_find(void *memory, struct loan *found);

/* Removes the loan.  False if another thread was first. */
bool loans_remove(void *memory);

/* All groups of a family are closed: the memory that the program has kept is its own from here on. */
void loans_release(const struct engine *family);

#endif
