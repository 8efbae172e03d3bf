/* Shared by the two files of this backend. */
#ifndef MY_BACKEND_H
#define MY_BACKEND_H

#include <stdbool.h>
#include <sys/queue.h>
#include <tutti/match.h>

enum { FRAME_DATA = 1, FRAME_CONTROL, FRAME_GOODBYE };

#define FRAME_BYTES_MAX ((uint64_t)1 << 36) /* larger messages are invalid */

/* Precedes each message on the wire.  All ranks are on one host, so they have the same byte order. */
struct frame {
    uint32_t kind, unused;
    uint64_t group, tag, fingerprint, bytes;
};

/* A message that is arriving or has arrived. */
struct kept {
    tutti_match_message match; /* must be the first member, for tutti_match_release */
    struct frame frame;
    int peer;
    char data[];
};

/* A pending request.  It is stored in request->priv, the words that a request has for its backend. */
struct pending {
    tutti_match_receive match; /* for a receive */
    struct group *group;
    struct out *out; /* for a send */
};
_Static_assert(sizeof(struct pending) <= sizeof((tutti_request){0}.priv), "a request's words hold a struct pending");

/* A message being sent. */
struct out {
    TAILQ_ENTRY(out) link;
    struct group *group;
    tutti_request *request; /* NULL for a control message, which is copied */
    struct frame frame;
    const char *data;
    size_t at; /* bytes written, including the frame */
    char copy[];
};

struct peer {
    int fd;    /* -1 for this rank itself, or if the peer is lost */
    bool left; /* the peer has said goodbye */
    TAILQ_HEAD(, out) out;
    struct frame frame; /* frame of the message being received */
    struct kept *in;    /* that message, once its frame is complete */
    size_t got;
};

/* One group.  The root group of a tree owns the connections. */
struct group {
    const tutti_host *host;
    tutti_group_info info;
    struct group *first;
    LIST_ENTRY(group) link;

    /* Only in the first group: */
    LIST_HEAD(, group) groups;
    tutti_matcher matcher; /* posted receives, and messages that arrived before their receive */
    struct peer *peers;    /* by global rank */
    int poll;              /* epoll set of all connections */
    bool unwritten;        /* some peer has messages that progress has not seen */
};

/* mesh.c.  Connects to every other rank.  Both sides prove that they know the job's token. */
int mesh_open(struct group *first);
void mesh_close(struct group *first);

#endif
