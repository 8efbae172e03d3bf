/* The small interface between Tutti's message protocol and a network: ordered, authenticated links to other ranks,
 * messages that are copied when they are sent, and writes into memory that a peer has opened.
 *
 * One fabric serves one family of groups; ranks here are the family's global ranks.  All calls come under the
 * family's lock, and the fabric calls its user back from fabric_progress, and for a loss also from fabric_connect.
 */
#ifndef TCP_FABRIC_H
#define TCP_FABRIC_H

#include <tutti/backend.h>

struct fabric;

/* A write under way: lies in the user's memory until write_done or fabric_drop. */
struct fabric_write {
    const void *data;
    size_t bytes;
    uint64_t key; /* of the peer's memory; also what the peer is told when all is there */
    void *owner;
    /* the fabric's own */
    struct fabric_write *next;
    size_t posted, landed;
};

struct fabric_memory {
    void *handle; /* NULL: not open */
    struct fabric *fabric;
};

struct fabric_events {
    void (*message)(void *user, const void *message, size_t bytes); /* valid during the call */
    void (*written)(void *user, uint64_t key);                      /* a peer's write to key is complete */
    void (*write_done)(void *user, struct fabric_write *write);     /* its memory may be used again */
    void (*lost)(void *user, int32_t rank, const char *why);        /* its writes are dropped */
};

struct fabric_config {
    int32_t rank;
    int32_t world_size;
    int32_t local_world_size; /* -1: unknown */
    uint64_t family;
    int64_t timeout_ms, open_timeout_ms; /* of operations; of opening */
    const tutti_host *host;
    tutti_store *store;
    const struct fabric_events *events;
    void *user;
};

/* Loads the library, once per process.  BACKEND with the sentence where it is missing. */
int fabric_load(const tutti_host *host);

/* Returns why fabric_load failed. */
const char *fabric_load_error(void);

/* Listens, and publishes where in the store.  On an error nothing is left. */
int fabric_open(const struct fabric_config *config, struct fabric **fabric);

/* Which host each rank is on, the same numbers on every rank, once all have opened: see tutti_backend.hosts. */
int fabric_hosts(struct fabric *fabric, int32_t *host);

/* Lines for people: about a fabric, or, without one, about the machine. */
int fabric_describe(const struct fabric *fabric, char *text, size_t capacity);
int fabric_describe_machine(const tutti_host *host, char *text, size_t capacity);

/* Gives all back.  No event comes any more. */
void fabric_close(struct fabric *fabric);

/* Makes sure that there is a link to rank, or one is being made.  PEER_LOST with the sentence where it was lost. */
int fabric_connect(struct fabric *fabric, int32_t rank);

/* Whether messages to rank leave at once. */
bool fabric_is_up(const struct fabric *fabric, int32_t rank);

/* Whether the link was lost, and why (NULL: it was not). */
const char *fabric_lost(const struct fabric *fabric, int32_t rank);

/* Sends header and payload as one message, in order; both are copied.  Nothing happens on a lost link. */
int fabric_send(struct fabric *fabric, int32_t rank, const void *header, size_t header_bytes, const void *payload,
                size_t bytes);

/* Takes a message back that still waits for the link, the first for which is() answers true. */
bool fabric_unsend(struct fabric *fabric, int32_t rank,
                   bool (*is)(const void *message, size_t bytes, const void *argument), const void *argument);

/* Opens memory for a peer's write under key, which is unique; and closes it, which does not stop a write that has
 * already begun. */
int fabric_expose(struct fabric *fabric, void *data, size_t bytes, uint64_t key, struct fabric_memory *memory);
void fabric_conceal(struct fabric_memory *memory);

/* Writes to the peer's memory behind all earlier messages and writes to it. */
void fabric_write(struct fabric *fabric, int32_t rank, struct fabric_write *write);

/* Takes a write back of which nothing was posted yet. */
bool fabric_unwrite(struct fabric *fabric, int32_t rank, struct fabric_write *write);

/* Lets a write that has begun end with the pieces that are under way: write_done comes when they have left, written
 * never comes at the peer.  false: there are no further pieces. */
bool fabric_cut(struct fabric *fabric, int32_t rank, struct fabric_write *write);

/* Ends the link for good: nothing is read from or written to memory of ours any more.  With notify the user's lost is
 * called. */
void fabric_drop(struct fabric *fabric, int32_t rank, const char *why, bool notify);

/* Whether all that was sent to rank has left for the operating system. */
bool fabric_is_flushed(const struct fabric *fabric, int32_t rank);

int fabric_progress(struct fabric *fabric);

/* As tutti_backend.arm. */
int fabric_arm(struct fabric *fabric, int *descriptors);

#endif
