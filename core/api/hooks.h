/* The table through which the progress engine calls the layers above it. */
#ifndef HOOKS_H
#define HOOKS_H

#include "progress/engine.h"

extern const struct engine_hooks library_hooks;

#endif
