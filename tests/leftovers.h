/* Files in /dev/shm and /tmp, and sockets, that other processes leave behind. */
#ifndef TESTS_LEFTOVERS_H
#define TESTS_LEFTOVERS_H

#include <stdbool.h>
#include <sys/types.h>

enum { LEFTOVERS_MOST = 256 };

/* Paths, or "socket:[NUMBER]" for sockets. */
struct leftovers {
    int n;
    char name[LEFTOVERS_MOST][256];
};

/* Adds the files and sockets that a running process has open or mapped. */
void leftovers_add(struct leftovers *leftovers, pid_t pid);

/* True if any of these files and sockets still exist, or a file with the number of one of the n processes in its name.
 * Prints them.  Objects that this process has open itself, such as the test's output, do not count. */
bool leftovers_exist(const struct leftovers *leftovers, const pid_t *pids, int n);

#endif
