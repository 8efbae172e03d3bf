/* Address exchange through a launcher.  Rank 0 starts Tutti's store on a free port, and the launcher's exchange carries
 * its address to the other ranks.  Used if an MPI or Slurm launcher has set no MASTER_ADDR, and with torchrun, whose
 * own store is at MASTER_ADDR. */
#ifndef LAUNCHER_H
#define LAUNCHER_H

#include <tutti/store.h>

#include "bootstrap/rendezvous_spec.h"

/* True if a launcher with an exchange has started this process. */
bool launcher_present(void);

/* Sets the host and port of spec and opens the store; rank 0 also starts its server. */
int launcher_open(struct rendezvous_spec *spec, int64_t timeout_ms, tutti_store **store);

#endif
