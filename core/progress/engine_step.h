/* Runs rounds of progress: polls the backends, then handles their completions. */
#ifndef ENGINE_STEP_H
#define ENGINE_STEP_H

#include <stdbool.h>

struct engine;

/* Runs one round without waiting.  Returns true if anything progressed.  Lock held. */
bool engine_step(struct engine *engine);

/* Runs the core's own part of a round: works continue with what backends have completed.  For callers that have called
 * a backend's progress themselves.  Lock held. */
void engine_step_works(struct engine *engine);

#endif
