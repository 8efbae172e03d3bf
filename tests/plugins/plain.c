/* The test backend with nothing but send, recv and progress: the minimum a plug-in may offer. */
#define LOOP_PLAIN
#include "loop.c"
