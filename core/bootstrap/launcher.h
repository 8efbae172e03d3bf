/* Ranks that a launcher of MPI or Slurm has started, and that were told no MASTER_ADDR, or torchrun, whose own store is
 * there: rank 0 starts Tutti's on a free port and tells the others where it is, over a board. */
#ifndef LAUNCHER_H
#define LAUNCHER_H

#include <tutti/store.h>

#include "bootstrap/rendezvous_spec.h"

/* Whether the launcher has a board. */
bool launcher_present(void);

/* Fills the spec's host and port, and opens the store: its server too on rank 0. */
int launcher_open(struct rendezvous_spec *spec, int64_t timeout_ms, tutti_store **store);

#endif
