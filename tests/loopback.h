/* Free ports of the loopback interface. */
#ifndef TESTS_LOOPBACK_H
#define TESTS_LOOPBACK_H

#include <stdint.h>

/* Returns a socket that listens on a free port. */
int loopback_listen(int backlog, uint16_t *port);

/* Returns a port that was free a moment ago. */
uint16_t loopback_free_port(void);

#endif
