/* Finds the rank of a process that a launcher started, and the store through which the job's suite synchronises.
 * Afterwards the environment is set as tutti-run and tutti_spawn set it, under every launcher. */
#ifndef CONFORMANCE_PLACE_H
#define CONFORMANCE_PLACE_H

#include <stdbool.h>
#include <tutti/tutti.h>

struct rendezvous_spec {
    int rank, size;
    tutti_store *server, *store; /* server is NULL if the launcher or another rank runs it */
};

/* Makes the default group over the backend and destroys it again.  Returns false after a message on stderr. */
bool rendezvous_spec_parse(struct rendezvous_spec *place, const char *backend);
void place_free(struct rendezvous_spec *place);

#endif
