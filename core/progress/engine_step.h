/* One round of progress: the backends, then what they have completed. */
#ifndef ENGINE_STEP_H
#define ENGINE_STEP_H

#include <stdbool.h>

struct engine;

/* Runs one round without waiting.  Returns whether anything moved.  Lock held. */
bool engine_step(struct engine *engine);

/* Runs the core's own part of a round: works continue with what backends have completed.  For callers that have called
 * a backend's progress themselves.  Lock held. */
void engine_step_works(struct engine *engine);

#endif
