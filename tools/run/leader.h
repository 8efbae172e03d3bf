/* The leader: the agent that runs the agents' store.  It decides which nodes start ranks, when all end them, and when
 * the job is over.  Its calls on the store are calls to its own process, so they run in the loop. */
#ifndef RUN_LEADER_H
#define RUN_LEADER_H

#include <stdint.h>
#include <tutti/store.h>

struct job;
struct leader;

/* Starts to lead.  `store` is the agents' store, `id` that of this node's agent. */
struct leader *leader_start(struct job *job, tutti_store *store, int id);

/* Stops to lead.  leader_free frees it once the loop has ended; it ignores NULL. */
void leader_stop(struct leader *leader);
void leader_free(struct leader *leader);

/* Gives the place of a lost node to another one, whose ranks are members from `first` on; -1: no replacement is left.
 */
void leader_take_members(struct leader *leader, int node, int first);

/* The time after which a silent agent is lost. */
int leader_silent_ms(void);

#endif
