/* Free ports of the loopback interface. */
#ifndef TESTS_LOOPBACK_H
#define TESTS_LOOPBACK_H

#include <stdint.h>

/* Returns a socket that listens on a free port. */
int loopback_listen(int backlog, uint16_t *port);

/* Returns a port that was free a moment ago, and that the kernel gives to no other socket by itself. */
uint16_t loopback_free_port(void);

/* Waits until somebody listens on the port.  Fails the test after a minute. */
void loopback_await(uint16_t port);

#endif
