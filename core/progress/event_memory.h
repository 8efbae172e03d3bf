/* Memory for events.
 *
 * A lost event can leave a rank waiting for a report that its peer has sent already.  So a few events are kept in
 * reserve for when memory runs short.  If these are used up, the loss is recorded, and the engine's groups fail. */
#ifndef EVENT_MEMORY_H
#define EVENT_MEMORY_H

#include <stdbool.h>
#include <stddef.h>

enum { EVENT_MAX = 3072, EVENTS_RESERVED = 4 };

/* Guarded by the engine's lock. */
struct event_memory {
    char *reserve;
    unsigned used; /* bit mask of the reserved events in use */
    bool has_lost; /* an event or a control message was lost, and the groups have not failed yet */
};

/* Refuses a type of event that does not fit into the reserve. */
#define EVENT_CHECK_SIZE(type) _Static_assert(sizeof(type) <= EVENT_MAX, "the event type is larger than EVENT_MAX")

/* Allocates the reserve.  Returns false if out of memory. */
bool event_memory_open(struct event_memory *memory);
void event_memory_close(struct event_memory *memory);

/* Returns memory for an event of at most EVENT_MAX bytes, or NULL if the reserve is used up too.  Not cleared. */
void *event_memory_take(struct event_memory *memory, size_t bytes);

/* Records that there was no memory for a control message.  The groups fail in the next round. */
void event_memory_record_loss(struct event_memory *memory);
void event_memory_give_back(struct event_memory *memory, void *event);

#endif
