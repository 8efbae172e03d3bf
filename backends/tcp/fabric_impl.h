/* What the files of the fabric share.  Connected (MSG) endpoints of libfabric; see docs/tcp-backend.md. */
#ifndef TCP_FABRIC_IMPL_H
#define TCP_FABRIC_IMPL_H

#include <netinet/in.h>
#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <sys/queue.h>

#include "fabric.h"
#include "wire.h"

enum {
    FABRIC_MESSAGE = WIRE_HEADER + WIRE_EAGER,
    FABRIC_SMALL = 2048,      /* copies come in two sizes */
    FABRIC_RECEIVES = 64,     /* buffers posted for messages of all peers */
    FABRIC_CHUNKS = 2,        /* pieces of writes in the provider, a link */
    FABRIC_CHUNK = 1 << 20,   /* a message waits behind at most FABRIC_CHUNKS of these */
    FABRIC_SIGNAL_EVERY = 8,  /* only each n-th copied message asks for a completion, which frees those before it */
    FABRIC_STRANGERS = 256,   /* that are looked after at a time */
    FABRIC_CONNECT_MS = 15000 /* to get an answer from a peer that listens */
};

/* libfabric's real functions; all others are inline. */
struct fabric_library {
    int (*getinfo)(uint32_t version, const char *node, const char *service, uint64_t flags, const struct fi_info *hints,
                   struct fi_info **info);
    void (*freeinfo)(struct fi_info *info);
    struct fi_info *(*dupinfo)(const struct fi_info *info);
    int (*fabric)(struct fi_fabric_attr *attr, struct fid_fabric **fabric, void *context);
    const char *(*strerror)(int errnum);
    uint32_t (*version)(void);
};
extern struct fabric_library fabric_library;

/* What a completion's context points to. */
enum fabric_context_kind { FABRIC_RECEIVED, FABRIC_SENT, FABRIC_CHUNK_WRITTEN };

struct fabric_buffer {
    uint8_t kind; /* first: a fabric_context_kind */
    struct fabric_link *link;
    STAILQ_ENTRY(fabric_buffer) entry;
    size_t bytes;
    uint8_t data[];
};
STAILQ_HEAD(fabric_buffers, fabric_buffer);

struct fabric_chunk {
    uint8_t kind; /* first */
    bool busy;
    struct fabric_link *link;
    struct fabric_write *write;
    size_t bytes;
};

enum fabric_state {
    FABRIC_IDLE,
    FABRIC_CONNECTING, /* our request is under way */
    FABRIC_WAITING,    /* the peer asked at the same time, and its request is the one that counts */
    FABRIC_ACCEPTING,
    FABRIC_UP,
    FABRIC_LOST
};

struct fabric_link {
    struct fabric *fabric;
    int32_t rank;
    uint8_t state;
    struct fid_ep *ep;
    int fd;                        /* its socket, where it could be found; once up */
    int64_t deadline_ns;           /* while not up */
    struct fabric_buffers waiting; /* until up, in order */
    struct fabric_buffers sent;    /* copies that the provider may still read, in order */
    int unsignalled;
    struct fabric_write *first_write, *last_write;
    struct fabric_chunk chunk[FABRIC_CHUNKS];
    struct wire_address address; /* the peer's, once asked for */
    struct wire_greeting greeting;
    char where[64]; /* the peer's address for sentences */
    char why[160];  /* it was lost */
};

/* Connections to our listener that belong to no link, as they were found last. */
struct fabric_strangers {
    int64_t looked_ns;
    int n;
    struct {
        int fd;
        uint16_t port;
    } seen[FABRIC_STRANGERS];
};

struct fabric {
    struct fabric_config config;
    struct fi_info *info;
    struct fid_fabric *fabric;
    struct fid_domain *domain;
    struct fid_cq *cq;
    struct fid_eq *eq;
    struct fid_ep *srx;
    struct fid_pep *pep;
    int cq_fd, eq_fd;
    int connecting; /* links that are neither idle nor up nor lost */
    bool eq_due;    /* we slept: there may be events */
    bool closing;
    unsigned polls;
    unsigned arms; /* in a row, in a short time, with nothing to show for it */
    int64_t armed_ns;
    struct fabric_strangers strangers;
    int silent_ms; /* a host that does not answer for this long is gone */
    int64_t listened_ns;
    struct wire_address address;    /* our own */
    struct fabric_buffer *receives; /* one block */
    struct fabric_buffers spare[2]; /* for copies: small and large */
    uint8_t nothing;                /* what a write of no bytes writes */
    struct fabric_link link[];      /* by rank */
};

/* fabric_address.c: our own address as text for fi_getinfo, and its family 4 or 6. */
struct fabric_where {
    char text[INET6_ADDRSTRLEN];
    uint32_t family;
};
int fabric_choose_address(const struct fabric_config *config, struct fabric_where *where);
void fabric_print_address(const struct wire_address *address, char *out, size_t bytes);

/* fabric_conn.c */
int fabric_listen(struct fabric *fabric);
int fabric_handle_events(struct fabric *fabric);
int fabric_look_up(struct fabric_link *link); /* its address, from the store; the peer has opened its fabric */
void fabric_check_deadlines(struct fabric *fabric);

/* fabric_socket.c: the provider's sockets, which it does not show: found among the process' descriptors and set up. */
int fabric_read_limits(struct fabric *fabric);
void fabric_tune_listener(const struct fabric *fabric);
void fabric_tune_link(struct fabric_link *link);
/* Gives up the links to hosts that do not answer. */
void fabric_end_silent(struct fabric *fabric);
/* Ends what has been connected to the listener for a second without becoming a link; or, with all, at once. */
void fabric_end_strangers(struct fabric *fabric, bool all);

/* fabric_io.c */
int fabric_post_receives(struct fabric *fabric);
int fabric_drain(struct fabric *fabric);
void fabric_flush_waiting(struct fabric_link *link);
void fabric_forget(struct fabric_link *link);
void fabric_free_buffers(struct fabric_buffers *buffers);

#endif
