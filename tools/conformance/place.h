/* Where a rank that a launcher started is, and the store in which its job's suite meets.  Under every launcher the
 * environment is afterwards what tutti-run and tutti_spawn make of it. */
#ifndef CONFORMANCE_PLACE_H
#define CONFORMANCE_PLACE_H

#include <stdbool.h>
#include <tutti/tutti.h>

struct rendezvous_spec {
    int rank, size;
    tutti_store *server, *store; /* server: NULL where the launcher or another rank runs it */
};

/* Starts the default group over the backend for a moment.  False where that fails; says why on stderr. */
bool rendezvous_spec_parse(struct rendezvous_spec *place, const char *backend);
void place_free(struct rendezvous_spec *place);

#endif
