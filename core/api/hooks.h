/* The table that ties the progress engine to the layers above it. */
#ifndef HOOKS_H
#define HOOKS_H

#include "progress/engine.h"

extern const struct engine_hooks library_hooks;

#endif
