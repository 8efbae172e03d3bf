/* Shared by the two files of this backend. */
#ifndef MY_BACKEND_H
#define MY_BACKEND_H

#include <stdbool.h>
#include <sys/queue.h>
#include <tutti/match.h>

enum { FRAME_DATA = 1, FRAME_NOTE, FRAME_GOODBYE };

#define FRAME_MOST ((uint64_t)1 << 36) /* bytes; a larger size is invalid */

/* Precedes each message on the wire.  All ranks are on one host, so the byte order is the same. */
struct frame {
    uint32_t kind, unused;
    uint64_t group, tag, fingerprint, bytes;
};

/* A message that arrives or has arrived. */
struct kept {
    tutti_match_message match; /* first, for tutti_match_release */
    struct frame frame;
    int peer;
    char data[];
};

/* A pending request; it lives in the words that a request has for its backend. */
struct pending {
    tutti_match_receive match; /* a receive */
    struct group *group;
    struct out *out; /* a send */
};
_Static_assert(sizeof(struct pending) <= sizeof((tutti_request){0}.priv), "a request's words hold a struct pending");

/* A message being sent. */
struct out {
    TAILQ_ENTRY(out) link;
    struct group *group;
    tutti_request *request; /* NULL: a control message, which is a copy */
    struct frame frame;
    const char *data;
    size_t at; /* bytes written, including the frame */
    char copy[];
};

struct peer {
    int fd;    /* -1: this rank itself, or lost */
    bool left; /* it has said goodbye */
    TAILQ_HEAD(, out) out;
    struct frame frame; /* of the message being received, */
    struct kept *in;    /* and that message, once its frame is complete */
    size_t got;
};

/* One group.  The root group of a tree owns the connections. */
struct group {
    const tutti_host *host;
    tutti_group_info info;
    struct group *first;
    LIST_ENTRY(group) link;

    LIST_HEAD(, group) family;
    tutti_matcher matcher; /* posted receives, and messages that arrived before theirs */
    struct peer *peers;    /* by global rank */
    int poll;              /* an epoll set of all connections */
    bool unwritten;        /* an out list holds messages that progress has not seen */
};

/* mesh.c: connects to every other rank; both sides prove that they know the job's token. */
int mesh_open(struct group *first);
void mesh_close(struct group *first);

#endif
