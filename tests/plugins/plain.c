/* The backend for tests with nothing but send, recv and progress, as the author of a plug-in may begin. */
#define LOOP_PLAIN
#include "loop.c"
