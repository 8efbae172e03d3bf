/* Internal interface of the fabric.  libfabric has two kinds of endpoint, connected (MSG) and reliable datagram (RDM):
 * see docs/tcp-backend.md. */
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

#include "tcp/net/fabric.h"
#include "tcp/net/iface.h"
#include "tcp/net/wire.h"

enum {
    FABRIC_RAILS = WIRE_RAILS + 1, /* maximum number of interfaces */
    FABRIC_MESSAGE = WIRE_HEADER + TRANSPORT_PAYLOAD_MAX,
    FABRIC_COPY = WIRE_ENVELOPE + FABRIC_MESSAGE, /* maximum bytes of a message's copy */
    FABRIC_SMALL = 2048,                          /* bytes of the smaller of two buffer sizes for copies */
    FABRIC_RECEIVES = 64,                         /* receive buffers posted for messages from all peers */
    FABRIC_CHUNKS = 2,                            /* MSG: maximum pieces of writes in the provider, per link */
    FABRIC_CHUNK = 1 << 20,  /* bytes of a piece; a message waits behind at most FABRIC_CHUNKS pieces */
    FABRIC_SIGNAL_EVERY = 8, /* MSG: every n-th copy asks for a completion, which frees the earlier copies too */
    FABRIC_UNAUTHENTICATED_MAX = 256,  /* maximum number of tracked unauthenticated connections */
    FABRIC_UNAUTHENTICATED_SPARE = 64, /* may be open in addition to one per link that is not up yet */
    FABRIC_CONNECT_MS = 15000,         /* limit for an answer from the peer's host; its process may take longer */
    FABRIC_REGIONS = 256,              /* RDM: hash buckets for exposed memory */
    FABRIC_PROBE = 0                   /* kind of a measurement's message; the protocol's kinds begin with 1 */
};

/* The interfaces that this rank uses, and its address on each.  The first carries everything but a part of large
 * messages. */
struct fabric_rails {
    int n;
    struct iface own[FABRIC_RAILS];
};

/* The functions that libfabric exports.  All others are inline in its headers. */
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

/* Type of the struct that a completion's context points to, on MSG endpoints. */
enum fabric_context_kind {
    FABRIC_RECEIVED,
    FABRIC_SENT,
    FABRIC_CHUNK_WRITTEN,
    FABRIC_FENCED, /* MSG: rails */
    FABRIC_ANSWER  /* RDM: rdm_read.c */
};

struct fabric_buffer {
    uint8_t kind; /* a fabric_context_kind; must be the first member */
    struct fabric_link *link;
    STAILQ_ENTRY(fabric_buffer) entry;
    size_t bytes;
    uint8_t data[];
};
STAILQ_HEAD(fabric_buffers, fabric_buffer);

struct fabric_chunk {
    uint8_t kind; /* a fabric_context_kind; must be the first member */
    bool is_busy;
    struct fabric_link *link;
    struct msg_rail *rail;
    struct transport_write *write;
    size_t bytes;
};

enum fabric_state {
    FABRIC_IDLE,
    FABRIC_CONNECTING, /* this rank's request is under way */
    FABRIC_WAITING,    /* requests crossed, and the peer's request counts */
    FABRIC_ACCEPTING,
    FABRIC_UP,
    FABRIC_LOST
};

/* MSG: a connection of a link.  A link has one, and another for each further interface if the peer is on another host.
 */
struct msg_rail {
    struct fid_ep *ep;
    int fd;           /* the socket once the connection is up, or -1 if it was not found */
    uint64_t acked;   /* bytes that the peer's host had acknowledged at the last check */
    int64_t acked_ns; /* the last time at which it acknowledged data or owed no acknowledgement */
    struct fabric_chunk chunk[FABRIC_CHUNKS];
    uint8_t index; /* of the own interface */
    /* Of further connections only; the first one's are the link's. */
    uint8_t state; /* a fabric_state */
    uint8_t repeats;
    bool is_written; /* pieces were posted after the last fence */
    int64_t deadline_ns;
    const char *why; /* the reason of a failure */
    struct peer_handshake handshake;
    struct fabric_chunk fence; /* context of a fence */
    struct wire_rail peer;     /* the peer's address */
};

struct msg_link {
    struct msg_rail first;
    struct msg_rail *further;   /* by interface - 1: fabric->rails.n - 1 of them, or NULL */
    uint8_t up;                 /* bits of the connections that are up */
    int fences;                 /* fences under way: see msg_rail.c */
    struct fabric_buffers sent; /* copies that the provider may still read, in order */
    int unsignalled;
};

/* RDM: all links share one endpoint. */
struct rdm_buffer;
struct rdm_offer;
struct rdm_reading;
struct rdm_read;
TAILQ_HEAD(rdm_buffers, rdm_buffer);
TAILQ_HEAD(rdm_offers, rdm_offer);
TAILQ_HEAD(rdm_readings, rdm_reading);
TAILQ_HEAD(rdm_reads, rdm_read);
struct rdm_link {
    fi_addr_t address;
    bool has_address;                           /* `address` is valid */
    bool hello_due, welcome_due, heartbeat_due; /* to be sent as soon as the provider has space */
    int64_t hello_ns;                           /* earliest time to send the HELLO */
    uint64_t session_out, session_in;           /* the secrets that mark this link's messages */
    uint64_t sent, received;                    /* sequence numbers of this session's last messages */
    struct fabric_buffers early;                /* messages that overtook earlier ones, by sequence number */
    bool has_sent, has_received, has_advanced;  /* events since the last tick */
    int quiet_ticks, silent_ticks, stuck_ticks; /* consecutive ticks without such an event */
    int probe;                                  /* pending connection to the peer's listener, or -1: see rdm_probe.c */
    bool refused;                               /* the latest probe was refused */
    int failed;                                 /* the provider's error, for which the link will be dropped, or 0 */
    struct rdm_buffers in_flight;               /* buffers in the provider, in order */
    int n_in_flight;
    struct rdm_offers offers; /* writes whose data the peer may be reading */
    int n_offers;
    bool refuses_rma; /* the peer or the provider has refused it; send pieces */
};

/* A link is allocated when it is first needed or when the peer's handshake has proved the token.  It is freed with the
 * fabric, because the provider may hold pointers to it. */
struct fabric_link {
    STAILQ_ENTRY(fabric_link) entry;
    struct fabric *fabric;
    int32_t rank;
    uint8_t state;
    bool is_trial;                   /* made for a measurement and not asked for since, so its failure is no loss */
    uint8_t repeats;                 /* repeats of this rank's request after the peer closed it unread */
    int64_t deadline_ns;             /* deadline of connecting; extended while the peer's host answers */
    int64_t last_ns;                 /* limit of these extensions: the group's timeout */
    struct fabric_buffers waiting;   /* messages that wait until the link is up, in order */
    struct transport_writes writes;  /* writes with pieces still to be posted, in order */
    struct transport_writes cut;     /* writes ended early, with no piece in the provider: write_done is due */
    struct peer_handshake handshake; /* the handshake that authenticated the link */
    char address_text[64];           /* the peer's address, for error messages */
    char why[160];                   /* the reason of a lost link */
    struct msg_link msg;
    struct rdm_link rdm;
};

/* Connections to the listener without a link, as of the last check, oldest first. */
struct fabric_unauthenticated {
    int64_t checked_ns, ended_ns; /* times of the last check, and of the last one that ended some */
    int n;
    struct {
        int fd;
        uint16_t port;
    } seen[FABRIC_UNAUTHENTICATED_MAX];
};

struct msg_fabric {
    struct fid_eq *eq;
    struct fid_ep *srx;
    struct fid_pep *pep[FABRIC_RAILS];  /* a listener for each interface */
    struct fi_info *info[FABRIC_RAILS]; /* fabric->info with the address of each further interface; [0] is NULL */
    struct wire_rails own;              /* addresses of the further listeners */
    struct wire_rails *peers;           /* by rank: addresses of the peer's further listeners, or NULL */
    int rails_connecting;               /* number of further connections with a deadline */
    int eq_fd, listener_fd;             /* the latter of the first interface, or -1 */
    int64_t accept_checked_ns;          /* time of the last check whether a connection lacks a descriptor, */
    bool accept_failed;                 /* and whether one did */
    bool check_events;                  /* this rank has slept, so there may be events */
    unsigned arms;                      /* consecutive arms within a short time that led to no event */
    int64_t armed_ns;
    struct fabric_unauthenticated unauthenticated;
    int64_t silence_checked_ns;
    int timer_fd;     /* wakes a sleeper for the next check of silent hosts, or -1 if the system has no timers */
    bool is_watching; /* the timer runs: see fabric_watch */
    struct fabric_buffer *receives; /* one block of FABRIC_RECEIVES buffers */
    uint8_t zero_byte;              /* the data of an empty write */
};

struct rdm_region;
LIST_HEAD(rdm_regions, rdm_region);

/* The endpoint that reads peers' memory, open while `ep` is not NULL: see rdm_read.c. */
struct rdm_reader {
    struct fid_ep *ep;
    struct fid_cq *cq;
    int cq_fd;
    struct rdm_reads spare; /* buffers for later reads */
    int n_spare;
};

struct rdm_fabric {
    struct fid_ep *ep;
    struct fid_av *av;
    size_t inject;               /* messages up to this size need no buffer */
    struct rdm_buffers spare;    /* free send buffers */
    struct rdm_buffers receives; /* posted receive buffers */
    struct rdm_buffers unposted; /* receive buffers that the provider has not accepted yet */
    struct rdm_regions regions[FABRIC_REGIONS];
    bool has_rma; /* the provider reads remote memory */
    struct rdm_reader reader;
    struct rdm_readings readings; /* offers that are being read, oldest first */
    bool retry;                   /* the provider had no space; try again soon */
    int listener;                 /* listener for probes, or -1 */
    int timer_fd;                 /* wakes a sleeper for the next tick, or to try again */
    bool slept, naps;             /* the timer was armed; it is set for a retry, not for a tick */
    int nap_us;                   /* length of the next nap (rdm_wait.c), which grows while the rank is idle */
    int64_t tick_ns, timed_ns;    /* time of the next tick; of the tick for which the timer was set */
    size_t name_bytes;            /* bytes of an endpoint name of this provider */
    uint64_t *names;              /* endpoint names by rank, valid where `addresses` is: see rdm_name_words */
};

/* The measurement of the network: see fabric_measure.c. */
struct fabric_probes {
    int32_t partner; /* the rank that this rank measures with, or -1 */
    int32_t n_near;  /* number of other ranks on this host */
    uint64_t sent, answered;
    bool ended;
};

/* A kind of endpoint.  A comment that begins with a state says in which state the link is at the call. */
struct fabric_kind {
    /* Sets fabric->info.  Returns a libfabric error if the provider does not offer this kind. */
    int (*find)(struct fabric *fabric, const char *provider, const struct iface *own);
    /* Starts to listen and fills this rank's address book entry.  The caller must call close, also after a failure. */
    int (*open)(struct fabric *fabric);
    void (*close)(struct fabric *fabric);
    /* Stores a peer's address book entry.  Returns false if it is not an entry of this kind. */
    bool (*read_entry)(struct fabric *fabric, int32_t rank, const uint8_t *entry, size_t bytes);
    int (*connect)(struct fabric_link *link); /* idle: sends a request to the peer */
    void (*end)(struct fabric_link *link);    /* any state: releases the link's resources in the provider */
    bool (*is_busy)(const struct fabric_link *link);
    /* The transport_ops.send of this kind: a message takes one indirect call from the protocol to libfabric. */
    int (*send)(struct transport *transport, int32_t rank, const struct transport_header *header, const void *payload,
                size_t bytes);
    void (*post_writes)(struct fabric_link *link);
    /* Exposes `bytes` at data under memory->key. */
    int (*expose)(struct fabric *fabric, void *data, size_t bytes, struct transport_memory *memory);
    void (*conceal)(struct transport_memory *memory);
    int (*progress)(struct fabric *fabric);
    int (*arm)(struct fabric *fabric, int *descriptors);
    /* True if the receiver reads a message from the sender's memory.  NULL: it never does. */
    bool (*uses_rma)(const struct fabric *fabric, size_t bytes, const tutti_path_row *row);
};
extern const struct fabric_kind msg_kind, rdm_kind;

struct fabric {
    struct transport transport; /* must be the first member */
    struct transport_ops ops;
    struct transport_config config;
    const struct fabric_kind *kind;
    struct fi_info *info;
    struct fid_fabric *fabric;
    struct fid_domain *domain;
    struct fid_cq *cq;
    int cq_fd;
    int connecting; /* number of links that are neither idle nor up nor lost */
    int cuts;
    bool closing;
    unsigned polls;
    int silent_ms; /* a peer that sends nothing for this long is lost */
    struct fabric_rails rails;
    struct wire_address address;   /* this rank's address and nonce */
    uint8_t entry[WIRE_ENTRY_MAX]; /* this rank's address book entry */
    size_t entry_bytes;
    char address_text[64];          /* this rank's address, for messages */
    struct fabric_buffers spare[2]; /* free buffers for copies: small and large */
    struct msg_fabric msg;
    struct rdm_fabric rdm;
    struct fabric_probes probes;
    struct wire_address *addresses;       /* by rank; `family` is 0 until the address has been read */
    STAILQ_HEAD(, fabric_link) all_links; /* in order of creation */
    struct fabric_link *link[];           /* by rank; NULL is equivalent to FABRIC_IDLE */
};

/* fabric.c */
const char *fabric_reason(int error); /* returns the text of the provider's error */
bool fabric_lacks_descriptors(int n); /* true if this process cannot open n more, 8 at most */
int fabric_fail(struct fabric *fabric, const char *what, int error);
void fabric_close_fid(struct fid *fid);
#define FABRIC_CLOSE(object) fabric_close_fid((object) != NULL ? &(object)->fid : NULL)

void fabric_close(struct fabric *fabric);
int fabric_describe(const struct fabric *fabric, char *text, size_t capacity);

static inline struct fabric *fabric_of(const struct transport *transport)
{
    return (struct fabric *)(uintptr_t)transport; /* the transport is its first member */
}

/* fabric_data.c */
/* Queues a message to a rank whose link is not up.  Discards it if the link is lost. */
int fabric_send_later(struct fabric *fabric, int32_t rank, const uint8_t header[WIRE_HEADER], const void *payload,
                      size_t bytes);
/* Hands a message from the network to the protocol. */
void fabric_deliver(struct fabric *fabric, const void *message, size_t bytes);
/* Removes a write from its link's list. */
void fabric_unqueue(struct fabric_link *link, struct transport_write *write);

/* fabric_link.c */
int fabric_connect(struct fabric *fabric, int32_t rank);
/* Connects for a measurement: if that fails, the rank is not lost before something else asks for the link. */
int fabric_try_to_connect(struct fabric *fabric, int32_t rank);
bool fabric_is_up(const struct fabric *fabric, int32_t rank);
const char *fabric_lost(const struct fabric *fabric, int32_t rank);
bool fabric_is_flushed(const struct fabric *fabric, int32_t rank);
void fabric_drop(struct fabric *fabric, int32_t rank, const char *why, bool notify);
/* Returns the link to rank, idle if it is new, or NULL with an error text if out of memory. */
struct fabric_link *fabric_make_link(struct fabric *fabric, int32_t rank);
void fabric_free_links(struct fabric *fabric);
void fabric_init_rail(struct fabric_link *link, struct msg_rail *rail, int index);
void fabric_set_state(struct fabric_link *link, enum fabric_state state);
bool fabric_is_connecting(const struct fabric_link *link);
void fabric_fail_connecting(struct fabric_link *link, const char *what);

/* fabric_measure.c */
void fabric_handle_probe(struct fabric *fabric, const struct transport_header *header);
/* Measures the link to the partner, which calls fabric_answer at about the same time.  Leaves out what it cannot
 * measure in a short time.  Both return OK, or PEER_LOST if the link has ended. */
int fabric_measure(struct fabric *fabric, tutti_link *link);
int fabric_answer(struct fabric *fabric);

/* fabric_hosts.c */
uint64_t fabric_host_id(void);

/* fabric_address.c */
int fabric_choose_rails(const struct transport_config *config, struct fabric_rails *rails);
/* Prints the interfaces as "eth0 10.0.0.1, eth1 10.1.0.1". */
void fabric_print_rails(const struct fabric_rails *rails, char *out, size_t bytes);
void fabric_print_address(const struct wire_address *address, char *out, size_t bytes);
/* Returns the length of the address. */
socklen_t fabric_to_sockaddr(const struct wire_address *address, struct sockaddr_storage *out);
/* Sets family, port and ip. */
void fabric_from_sockaddr(const void *from, struct wire_address *out);

/* fabric_book.c: the address book in the store.  The peer must have opened its fabric before fabric_look_up. */
int fabric_publish(struct fabric *fabric);
int fabric_look_up(struct fabric *fabric, int32_t rank);
void fabric_start_handshake(struct fabric_link *link);
/* True if the bytes are a handshake of this kind between two ranks of this tree, and prove the token. */
bool fabric_verify_handshake(const struct fabric *fabric, const void *data, size_t n, enum peer_handshake_kind kind,
                             struct peer_handshake *handshake);
/* True if the handshake answers the request `asked`. */
bool fabric_is_answer(const struct peer_handshake *asked, const struct peer_handshake *handshake);
bool fabric_is_for_this_rank(const struct fabric *fabric, const struct peer_handshake *handshake);

/* fabric_buffer.c: copies of messages */
struct fabric_buffer *fabric_copy(struct fabric *fabric, const void *header, size_t header_bytes, const void *payload,
                                  size_t bytes);
void fabric_release(struct fabric *fabric, struct fabric_buffer *buffer);
int fabric_out_of_memory(struct fabric *fabric);
int fabric_queue(struct fabric_link *link, const void *header, size_t header_bytes, const void *payload, size_t bytes);
void fabric_free_buffers(struct fabric_buffers *buffers);

/* fabric_socket.c: finds and tunes the provider's sockets, which the provider does not expose */
/* Returns the listener's descriptor, or -1 if it is not found. */
int fabric_tune_listener(const struct fabric *fabric, const struct sockaddr_storage *own);
/* True if a connection waits at the listener and no descriptor is free for it.  The provider does not report this. */
bool fabric_cannot_accept(const struct fabric *fabric);
/* Calls visit for each open descriptor of the process, until it returns true.  Where no folder lists them, numbers up
 * to `most` are tried. */
typedef bool fabric_visit(void *user, int fd);
void fabric_visit_descriptors(fabric_visit *visit, void *user, int most);
void fabric_tune_rail(struct fabric_link *link, struct msg_rail *rail);
/* Limits the data that wait in the kernel, so that the rails share pieces by their speed. */
void fabric_limit_unsent(const struct msg_rail *rail);
/* Finds a listener's or a connection's address.  Returns false if there is none. */
bool fabric_own_name(struct fid *fid, struct sockaddr_storage *own);
/* Returns the link's connection over this rank's interface i, or NULL if none was made. */
static inline struct msg_rail *fabric_rail(struct fabric_link *link, int i)
{
    if (i == 0) return &link->msg.first;
    return link->msg.further != NULL ? &link->msg.further[i - 1] : NULL;
}
bool fabric_is_same_address(const struct sockaddr_storage *a, const struct sockaddr_storage *b);
/* True if the peer's host has accepted the connection.  From then on this host's kernel probes it. */
bool fabric_host_answers(struct fabric_link *link);
/* Drops the links to hosts that do not answer. */
void fabric_end_silent(struct fabric *fabric);
void fabric_start_watch(struct fabric *fabric);
/* Makes a sleeping rank check for silent hosts regularly, until all data are acknowledged.  Must be called for all that
 * is sent, because a group that has sent data may be idle afterwards. */
static inline void fabric_watch(struct fabric *fabric)
{
    if (!fabric->msg.is_watching) fabric_start_watch(fabric);
}
/* fabric_unauthenticated.c */
/* Ends connections to the listener that have not become a link.  With `all` it ends every one.  If all links are made,
 * it ends each after one to two seconds.  Otherwise it ends the oldest ones, if there are too many or descriptors are
 * few. */
void fabric_end_unauthenticated(struct fabric *fabric, bool all);

#endif
