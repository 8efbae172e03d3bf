#include "progress/event_memory.h"

#include <stdlib.h>

bool event_memory_open(struct event_memory *memory)
{
    memory->reserve = malloc((size_t)EVENTS_RESERVED * EVENT_MAX);
    return memory->reserve != NULL;
}

void event_memory_close(struct event_memory *memory)
{
    free(memory->reserve);
    memory->reserve = NULL;
}

static void *take_reserved(struct event_memory *memory)
{
    for (unsigned i = 0; i < EVENTS_RESERVED; i++) {
        if ((memory->used & 1U << i) != 0) continue;
        memory->used |= 1U << i;
        return memory->reserve + (size_t)i * EVENT_MAX;
    }
    event_memory_record_loss(memory);
    return NULL;
}

void event_memory_record_loss(struct event_memory *memory)
{
    memory->has_lost = true;
}

void *event_memory_take(struct event_memory *memory, size_t bytes)
{
    void *event = malloc(bytes);
    return event != NULL ? event : take_reserved(memory);
}

void event_memory_give_back(struct event_memory *memory, void *event)
{
    char *at = event;
    for (unsigned i = 0; i < EVENTS_RESERVED; i++) {
        if (at != memory->reserve + (size_t)i * EVENT_MAX) continue;
        memory->used &= ~(1U << i);
        return;
    }
    free(event);
}
