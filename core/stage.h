/* Operations on CUDA tensors through a backend that takes CPU tensors alone: on copies in host memory.
 *
 * Such an operation is a Work with nothing of its own to do, whose parts are copies from the device, operations on the
 * host's memory and copies back.  A large one is cut into chunks, alike on all ranks.  What may overlap is not said
 * anywhere: it follows from the memory that the parts use, as for any operations of a group (order.c).
 */
#ifndef STAGE_H
#define STAGE_H

#include <tutti/backend.h>

struct group_door;
struct stage;
struct tutti_group;
struct tutti_work;

/* Whether op has tensors of a device that the door's backend does not take. */
bool stage_is_needed(const struct group_door *door, const tutti_op *op);

/* Makes of work, which is being issued, one that goes through door in parts, and issues these.  TUTTI_OK, also where
 * they fail later; an error if nothing was begun. */
int stage_begin(struct tutti_work *work, const struct group_door *door);

/* Its last part has ended. */
void stage_ended(struct stage *stage);

#endif
