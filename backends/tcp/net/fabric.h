/* libfabric as a transport: ordered, authenticated links to other ranks (base/transport.h).
 *
 * One fabric serves one group tree; ranks here are its global ranks.  All calls are made under the tree's lock.
 */
#ifndef TCP_FABRIC_H
#define TCP_FABRIC_H

#include "tcp/base/transport.h"

struct fabric;

/* Loads libfabric once per process.  Returns OK, or BACKEND with the reason as error text. */
int fabric_load(const tutti_host *host);

/* Returns why fabric_load failed. */
const char *fabric_load_error(void);

/* Opens the listener and publishes its address in the store.  Releases everything on an error. */
int fabric_open(const struct transport_config *config, struct fabric **fabric);

/* Returns the transport.  Its close frees the fabric. */
struct transport *fabric_transport(struct fabric *fabric);

/* Finds each rank's host once all ranks have opened, with equal numbers on all ranks: see tutti_backend.hosts. */
int fabric_hosts(struct fabric *fabric, int32_t *host);

/* Finds how fast messages are, after fabric_hosts: see tutti_backend.links.  shares_memory: messages within this rank's
 * host do not use the fabric. */
int fabric_find_links(struct fabric *fabric, bool shares_memory, tutti_links *links);

/* The paths of messages besides those of shared memory, for tutti_backend.paths. */
#define FABRIC_MESSAGE_PATHS                                                                                           \
    {                                                                                                                  \
        TUTTI_SEND, TRANSPORT_RMA, "rma"                                                                               \
    }

/* Returns text about the path of a message for tutti_backend.explain, or NULL if the endpoints have only one. */
const char *fabric_explain_message(const struct fabric *fabric, size_t bytes, const tutti_path_row *row);

/* Describes the machine's network in human-readable lines. */
int fabric_describe_machine(const tutti_host *host, char *text, size_t capacity);

#endif
