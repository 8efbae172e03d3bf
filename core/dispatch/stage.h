/* Runs operations on CUDA tensors through a backend that takes only CPU tensors, on copies in host memory.
 *
 * A staged operation is a Work that only has parts: copies from the device, operations on host memory, and copies back.
 * A large one is cut into chunks, in the same way on all ranks.  The memory that the parts use determines which of them
 * may overlap, as for any operations of a group (hazards.c).
 */
#ifndef STAGE_H
#define STAGE_H

#include <tutti/backend.h>

struct backend_entry;
struct stage;
struct tutti_group;
struct tutti_work;

/* True if op has tensors of a device that the entry's backend does not take. */
bool stage_is_needed(const struct backend_entry *entry, const tutti_op *op);

/* Turns work, which is being issued, into a staged operation through entry, and issues its parts.  Returns TUTTI_OK
 * even if a part fails later, or an error if nothing has begun. */
int stage_begin(struct tutti_work *work, const struct backend_entry *entry);

/* Frees the stage of an operation whose last part has ended. */
void stage_ended(struct stage *stage);

#endif
