/* The agents of a job, as the leader sees them by their reports. */
#ifndef RUN_LEADER_PEERS_H
#define RUN_LEADER_PEERS_H

#include <stdbool.h>
#include <stdint.h>

#include <tutti/store.h>

#include "plan.h"

struct leader_peer {
    int id;
    struct plan_report report;
    int64_t heard_ms; /* when its last report came */
    bool lost;        /* silent for too long */
    bool in_round;    /* starts ranks in this round */
};

struct leader_peers {
    tutti_store *store;
    int own_id;
    struct leader_peer *list;
    int n;
    size_t read;     /* bytes of the list in the store that have been read */
    int64_t read_ms; /* the last time */
};

/* Reads the agents' reports.  Returns false if the store fails. */
bool leader_peers_read(struct leader_peers *peers, int silent_ms);

/* Returns the agent with this id, or NULL. */
struct leader_peer *leader_peers_find(const struct leader_peers *peers, int id);

/* True if the node can take part in the next round. */
bool leader_peer_is_usable(const struct leader_peer *peer);
int leader_peers_count_usable(const struct leader_peers *peers);

/* Sorts usable nodes to the front, by the numbers given to them, then the leader's own, then by age. */
void leader_peers_sort(struct leader_peers *peers);

/* True if two of the first n nodes have been given the same number. */
bool leader_peers_clash(const struct leader_peers *peers, int n);

#endif
