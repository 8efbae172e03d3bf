/* Operations on CUDA tensors through a backend that takes CPU tensors alone: on copies in host memory.
 *
 * Such an operation is a Work with nothing of its own to do, whose parts are copies from the device, operations on the
 * host's memory and copies back.  A large one is cut into chunks, alike on all ranks.  What may overlap is not said
 * anywhere: it follows from the memory that the parts use, as for any operations of a group (hazards.c).
 */
#ifndef STAGE_H
#define STAGE_H

#include <tutti/backend.h>

struct backend_entry;
struct stage;
struct tutti_group;
struct tutti_work;

/* Whether op has tensors of a device that the entry's backend does not take. */
bool stage_is_needed(const struct backend_entry *entry, const tutti_op *op);

/* Makes of work, which is being issued, one that goes through entry in parts, and issues these.  TUTTI_OK, also where
 * they fail later; an error if nothing was begun. */
int stage_begin(struct tutti_work *work, const struct backend_entry *entry);

/* Its last part has ended. */
void stage_ended(struct stage *stage);

#endif
