/* The loop backend with only send, recv and progress: the minimum that a plug-in may offer. */
#define LOOP_PLAIN
#include "loop.c"
