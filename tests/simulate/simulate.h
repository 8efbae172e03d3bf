/* Simulates a collective: runs the plans of all ranks, the ones that production builds, on a model of a network.
 *
 * The model is LogGP (A. Alexandrov, M. F. Ionescu, K. E. Schauser, C. Scheiman, SPAA 1995) with hosts:
 *  - a rank's processor does one thing at a time: it sends, receives, reduces or copies
 *  - the ranks of a host share its rails, each of which sends and receives one message at a time
 *  - within a host the receiver copies the data, and all copies share the memory's bandwidth
 *  - a message up to eager_bytes leaves at once; a larger one leaves when the receiver's answer has arrived, which the
 *    receiver sends when it posts the receive */
#ifndef TESTS_SIMULATE_H
#define TESTS_SIMULATE_H

#include "coll/coll.h"

/* Times are in ns, rates in bytes per us (MB/s). */
struct sim_network {
    const char *name;
    double latency;  /* between hosts, without the overhead of both ranks */
    double overhead; /* of a processor for a message, on each side */
    double rail;     /* bandwidth of one rail, each way */
    double rank;     /* bandwidth of one rank, whose processor is busy meanwhile; 0: the network reads its memory */
    int rails;
    double local_latency, local_overhead, local_rank; /* within a host; local_rank is the bandwidth of one copy */
    double memory;                                    /* bandwidth of all copies of a host together */
    double reduce, copy;                              /* speed of a reduction, and of a copy within a rank */
    int64_t eager_bytes, segment_bytes, reduce_most;  /* as the backend's: see backend.h for the last two */
};

/* A case: an operation of bytes (of the whole operation) on `hosts` hosts with `per_host` ranks each. */
struct sim_case {
    const struct sim_network *network;
    tutti_kind kind;
    int hosts, per_host;
    int64_t bytes;
};

/* The networks; the last entry has a NULL name. */
extern const struct sim_network sim_networks[];

const struct sim_network *sim_find_network(const char *name);

/* Returns the link that a backend would report for this network. */
struct coll_link sim_link(const struct sim_network *network);

/* The arguments of all ranks of a case.  sim_args returns those of one rank. */
struct sim_group {
    struct sim_case what;
    struct coll_link link;
    struct coll_hosts *hosts;
    int64_t *count, *at; /* of each rank's block, for kinds with blocks */
};

struct sim_group *sim_group_new(const struct sim_case *what);
void sim_group_free(struct sim_group *group);

struct coll_args sim_args(const struct sim_group *group, int rank);

/* Returns the time of a case with this algorithm, step by step.  Returns -1 if the plans have more than max_steps steps
 * in total. */
double sim_time(const struct sim_group *group, const struct coll_algorithm *algorithm, int64_t max_steps);

/* All algorithms of a case, by coll_nth's number, and how good the choice is. */
struct sim_result {
    int n;
    double time[COLL_CHOICES];     /* step by step; -1: too many steps, or it makes no sense for these hosts */
    double estimate[COLL_CHOICES]; /* by formula */
    const char *chosen, *best;
    double ratio; /* time of the one chosen by that of the best; estimates where there is no time */
};

/* assumed: the choice knows only what a backend reports. */
void sim_judge(const struct sim_case *what, int64_t max_steps, bool assumed, struct sim_result *result);

/* Returns the time at which the last rank finishes, if all begin at 0.  The k-th plan is rank k's.  Elements have
 * `element` bytes.  Returns -1 if a step never becomes ready. */
double sim_run(const struct sim_network *network, struct plan *const *plans, const struct coll_hosts *hosts, int size,
               int64_t element);

#endif
