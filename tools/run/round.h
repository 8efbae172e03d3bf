/* A round: one start of all ranks of the job, on all its nodes. */
#ifndef RUN_ROUND_H
#define RUN_ROUND_H

#include <stdint.h>

#include <tutti/store.h>

struct round {
    int number;   /* the rounds before this one */
    int restarts; /* those that count against --max-restarts */
    int node_rank, n_nodes;
    int first_rank; /* of this node */
    int world_size;
    int first_member; /* of this node, if its ranks replace those of a lost node; else -1 */
    const char *addr; /* where the ranks meet */
    uint16_t port;
};

/* Runs a store's server for the ranks of a round, with the token in token_fd.  Port 0 selects any free port.  Returns
 * a tutti_status. */
int round_host_store(const char *addr, uint16_t port, int world_size, int token_fd, tutti_store **store);

/* Opens a client of a store with the token in token_fd.  timeout_ms bounds this call and those on the store.  Returns a
 * tutti_status. */
int round_join_store(const char *addr, uint16_t port, int token_fd, int64_t timeout_ms, tutti_store **store);

#endif
