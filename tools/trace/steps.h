/* Finds the collectives of all ranks that belong together, and how long each rank waited in them.
 *
 * A rank waits until the ranks on whose data it depends have called: all of them, the root, or those before it,
 * depending on the kind.  This follows from the times of the calls alone, so recording it costs nothing. */
#ifndef TRACE_STEPS_H
#define TRACE_STEPS_H

#include "trace/load.h"

/* One rank's part of a collective. */
struct step_part {
    uint64_t group;
    uint32_t sequence;
    uint32_t rank; /* index in load.ranks */
    uint64_t op;   /* index in its ops */
};

/* One collective. */
struct step {
    const struct step_part *parts;
    int n;
    const struct step_part *last; /* the part that arrived last; NULL if the clocks cannot tell */
    int64_t late_ns;              /* time from the arrival of the last but one to that of the last */
};

/* Sets wait_ns of all collectives, and calls visit (may be NULL) for each collective that two or more ranks have
 * recorded.  Returns false if out of memory. */
bool steps_find(struct load *load, void (*visit)(const struct load *load, const struct step *step, void *argument),
                void *argument);

#endif
