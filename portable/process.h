/* Processes and threads of this host. */
#ifndef PORTABLE_PROCESS_H
#define PORTABLE_PROCESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* Writes the scope in which a process id means one process: this boot of this host, and this pid namespace.  Writes ""
 * if that is not known.  Then no process can be checked. */
void process_scope(char *text, size_t size);
/* Returns a number that distinguishes a process from a later one with the same id, or 0 if none is known. */
uint64_t process_start(pid_t pid);
/* True if the process has ended.  Where the system allows it, a zombie has ended. */
bool process_has_ended(pid_t pid);
/* Returns a descriptor that is readable once the process has ended, or -1 if the system has none. */
int process_watch(pid_t pid);
/* Makes this process end with its parent, if the system can. */
void process_end_with_parent(void);
/* Returns the parent of a process, or -1. */
pid_t process_parent(pid_t pid);
/* Returns a number of the calling thread, which no other running thread of this process has. */
uint32_t process_thread(void);
/* Returns a number for the host and its network, or 0 if none is known.  Containers with a network of their own count
 * as hosts. */
uint64_t process_host(void);

#endif
