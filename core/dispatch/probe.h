/* Probes, and receives of messages whose size only a probe can tell. */
#ifndef PROBE_H
#define PROBE_H

#include <stdbool.h>
#include <tutti/backend.h>
#include <tutti/tutti.h>

/* Runs a probe, op, that does not wait.  If it finds a message, *found is true and opts' source, received_tag and
 * received are set. */
int probe_now(const tutti_op *op, const tutti_opts *opts, bool *found);

/* Waits for the message that the probe op finds and receives it into memory that it allocates.  opts have source,
 * received_tag and received set. */
int probe_recv_bytes(const tutti_op *op, const tutti_opts *opts, tutti_bytes *out);

#endif
