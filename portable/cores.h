/* The cores that a process may use. */
#ifndef PORTABLE_CORES_H
#define PORTABLE_CORES_H

#include <sys/types.h>

/* Returns the number of cores that a process may use; pid 0 is this one.  1 if unknown. */
int cores_usable(pid_t pid);
/* Moves the calling thread to the nth of them without binding it, if the system can. */
void cores_move_to(int nth);

#endif
