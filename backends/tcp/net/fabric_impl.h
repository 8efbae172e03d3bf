/* What the files of the fabric share.  There are two kinds: connected (MSG) endpoints of libfabric, and reliable
 * datagrams (RDM); see docs/tcp-backend.md. */
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
#include "tcp/net/wire.h"

enum {
    FABRIC_MESSAGE = WIRE_HEADER + TRANSPORT_PAYLOAD_MAX,
    FABRIC_COPY = WIRE_ENVELOPE + FABRIC_MESSAGE, /* the largest copy of a message */
    FABRIC_SMALL = 2048,                          /* copies come in two sizes */
    FABRIC_RECEIVES = 64,                         /* buffers posted for messages of all peers */
    FABRIC_CHUNKS = 2,                            /* MSG: pieces of writes in the provider, a link */
    FABRIC_CHUNK = 1 << 20,                       /* a message waits behind at most FABRIC_CHUNKS of these */
    FABRIC_SIGNAL_EVERY = 8,     /* only each n-th copied message asks for a completion, which frees those before it */
    FABRIC_STRANGERS = 256,      /* unauthenticated connections that are looked after at a time, */
    FABRIC_STRANGERS_SPARE = 64, /* and how many may be open besides one for each link that is still to come */
    FABRIC_CONNECT_MS = 15000,   /* to get an answer from a peer's host; its process may be held up for longer */
    FABRIC_REGIONS = 256         /* RDM: lists of opened memory */
};

/* Our own address, as text for fi_getinfo, and its family 4 or 6. */
struct fabric_where {
    char text[INET6_ADDRSTRLEN];
    uint32_t family;
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

/* What a completion's context points to, on MSG endpoints. */
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
    struct transport_write *write;
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

/* MSG: a link is an endpoint of its own. */
struct msg_link {
    struct fid_ep *ep;
    int fd;                     /* its socket, where it could be found; once up */
    uint64_t acked;             /* bytes that the peer's host had acknowledged when it was looked at last */
    int64_t acked_ns;           /* the last time that it acknowledged some, or owed nothing */
    struct fabric_buffers sent; /* copies that the provider may still read, in order */
    int unsignalled;
    struct fabric_chunk chunk[FABRIC_CHUNKS];
};

/* RDM: all links share one endpoint. */
struct rdm_slot;
TAILQ_HEAD(rdm_slots, rdm_slot);
struct rdm_link {
    fi_addr_t address;
    bool has_address;                      /* address is set */
    bool hello_due, welcome_due, beat_due; /* to be said as soon as the provider takes it */
    int64_t hello_ns;                      /* not before */
    uint64_t session_out, session_in;      /* what proves that a message is this link's */
    uint64_t sent, heard;                  /* messages, counted alike on both sides */
    struct fabric_buffers early;           /* came before their turn; in order */
    bool spoke, listened, advanced;        /* since the last tick */
    int mute, deaf, stuck;                 /* ticks without */
    int probe;                             /* a connection to its listener under way, or -1: see rdm_probe.c */
    bool refused;                          /* the latest one was */
    int failed;                            /* the provider's error: the link is to be given up */
    struct rdm_slots flying;               /* in the provider, in order */
    int n_flying;
};

/* A link is allocated when it is first wanted, or when the peer's greeting has proved the token, and is freed with the
 * fabric.  So the provider may hold pointers to it. */
struct fabric_link {
    STAILQ_ENTRY(fabric_link) entry;
    struct fabric *fabric;
    int32_t rank;
    uint8_t state;
    uint8_t repeats;                /* of our request, because the peer closed it unread */
    int64_t deadline_ns;            /* while not up; it moves on as long as the peer's host answers, */
    int64_t last_ns;                /* up to here: the group's timeout */
    struct fabric_buffers waiting;  /* to leave once it can, in order */
    struct transport_writes writes; /* not posted in full, in order */
    struct transport_writes cut;    /* ended early, with nothing in the provider: write_done is due */
    struct peer_handshake greeting; /* that the link rests on */
    char where[64];                 /* the peer's address for sentences */
    char why[160];                  /* it was lost */
    struct msg_link msg;
    struct rdm_link rdm;
};

/* Connections to our listener that belong to no link, as they were found last, oldest first. */
struct fabric_strangers {
    int64_t looked_ns;
    int n;
    struct {
        int fd;
        uint16_t port;
    } seen[FABRIC_STRANGERS];
};

struct msg_fabric {
    struct fid_eq *eq;
    struct fid_ep *srx;
    struct fid_pep *pep;
    int eq_fd;
    bool eq_due;   /* we slept: there may be events */
    unsigned arms; /* in a row, in a short time, with nothing to show for it */
    int64_t armed_ns;
    struct fabric_strangers strangers;
    int64_t listened_ns;
    struct fabric_buffer *receives; /* one block */
    uint8_t nothing;                /* what a write of no bytes writes */
};

struct rdm_region;
LIST_HEAD(rdm_regions, rdm_region);
struct rdm_fabric {
    struct fid_ep *ep;
    struct fid_av *av;
    size_t inject;             /* messages up to this size leave at once */
    struct rdm_slots spare;    /* for what is sent */
    struct rdm_slots receives; /* all of them are posted, but for those of */
    struct rdm_slots unposted; /* that the provider would not take */
    struct rdm_regions regions[FABRIC_REGIONS];
    bool retry;                /* the provider had no room: try again soon */
    int listener;              /* for probes, or -1 */
    int timer_fd;              /* wakes a sleeper for the next tick, or the next try */
    bool slept, naps;          /* the timer was given out; it runs for a next try */
    int nap_us;                /* the length of the next nap: they grow while nothing happens */
    int64_t tick_ns, timed_ns; /* the next tick; the one that the timer was set for */
    size_t name_bytes;         /* of this provider's names */
    uint64_t *names;           /* of all ranks' endpoints, valid with their addresses: see rdm_name_words */
};

/* A kind of endpoint.  Calls get links in the state that their comment names. */
struct fabric_kind {
    /* Sets fabric->info; a libfabric error where the provider does not offer this kind. */
    int (*find)(struct fabric *fabric, const char *provider, const struct fabric_where *where);
    /* Listens; fills the entry of the address book.  close: undoes all of that, also when half open. */
    int (*open)(struct fabric *fabric);
    void (*close)(struct fabric *fabric);
    /* Takes a peer's entry; false: it is none of this kind. */
    bool (*take_entry)(struct fabric *fabric, int32_t rank, const uint8_t *entry, size_t bytes);
    int (*ask)(struct fabric_link *link);  /* idle: calls the peer */
    void (*end)(struct fabric_link *link); /* any: what the provider has is not ours any more */
    bool (*busy)(const struct fabric_link *link);
    int (*send)(struct fabric_link *link, const void *header, size_t header_bytes, const void *payload, size_t bytes);
    void (*post_writes)(struct fabric_link *link);
    /* Opens `bytes` at data under memory->key. */
    int (*expose)(struct fabric *fabric, void *data, size_t bytes, struct transport_memory *memory);
    void (*conceal)(struct transport_memory *memory);
    int (*progress)(struct fabric *fabric);
    int (*arm)(struct fabric *fabric, int *descriptors);
};
extern const struct fabric_kind msg_kind, rdm_kind;

struct fabric {
    struct transport transport; /* first */
    struct fabric_config config;
    const struct fabric_kind *kind;
    struct fi_info *info;
    struct fid_fabric *fabric;
    struct fid_domain *domain;
    struct fid_cq *cq;
    int cq_fd;
    int connecting; /* links that are neither idle nor up nor lost */
    int cuts;
    bool closing;
    unsigned polls;
    int silent_ms; /* who is not heard of for this long is gone */
    struct fabric_where chosen;
    struct wire_address address;   /* our own */
    uint8_t entry[WIRE_ENTRY_MAX]; /* of the address book */
    size_t entry_bytes;
    char where[64];                 /* the same for sentences */
    struct fabric_buffers spare[2]; /* for copies: small and large */
    struct msg_fabric msg;
    struct rdm_fabric rdm;
    struct wire_address *addresses;       /* by rank; family 0: not read yet */
    STAILQ_HEAD(, fabric_link) all_links; /* those that were made, in that order */
    struct fabric_link *link[];           /* by rank; NULL: not made yet, which is as idle */
};

/* fabric.c */
const char *fabric_reason(int error); /* the provider's error as text */
int fabric_failed(struct fabric *fabric, const char *what, int error);
void fabric_close_fid(struct fid *fid);
#define FABRIC_CLOSE(object) fabric_close_fid((object) != NULL ? &(object)->fid : NULL)

void fabric_close(struct fabric *fabric);
int fabric_describe(const struct fabric *fabric, char *text, size_t capacity);

/* fabric_data.c: messages and writes, as far as both kinds share them.  Hands a message from the wire to the protocol.
 */
void fabric_deliver(struct fabric *fabric, const void *message, size_t bytes);
/* Takes a write off its link's list. */
void fabric_unqueue(struct fabric_link *link, struct transport_write *write);

/* fabric_link.c */
int fabric_connect(struct fabric *fabric, int32_t rank);
bool fabric_is_up(const struct fabric *fabric, int32_t rank);
const char *fabric_lost(const struct fabric *fabric, int32_t rank);
bool fabric_is_flushed(const struct fabric *fabric, int32_t rank);
void fabric_drop(struct fabric *fabric, int32_t rank, const char *why, bool notify);
/* Returns the link to rank, idle if it was not made before, or NULL with an error text if out of memory. */
struct fabric_link *fabric_make_link(struct fabric *fabric, int32_t rank);
void fabric_free_links(struct fabric *fabric);
void fabric_set_state(struct fabric_link *link, enum fabric_state state);
bool fabric_is_on_its_way(const struct fabric_link *link);
void fabric_lose_connecting(struct fabric_link *link, const char *what);

/* fabric_address.c */
int fabric_choose_address(const struct fabric_config *config, struct fabric_where *where);
bool fabric_is_loopback(const struct fabric_where *where);
void fabric_print_address(const struct wire_address *address, char *out, size_t bytes);
/* Returns the length of the address. */
socklen_t fabric_to_sockaddr(const struct wire_address *address, struct sockaddr_storage *out);

/* fabric_greeting.c: who is who; the address book. */
int fabric_publish(struct fabric *fabric);
int fabric_look_up(struct fabric *fabric, int32_t rank); /* the peer has opened its fabric */
void fabric_greet(struct fabric_link *link);
bool fabric_verify(const struct fabric *fabric, const void *data, size_t n, enum peer_handshake_kind kind,
                   struct peer_handshake *greeting);
bool fabric_is_answer(const struct fabric_link *link, const struct peer_handshake *greeting);
bool fabric_is_for_us(const struct fabric *fabric, const struct peer_handshake *greeting);

/* fabric_buffer.c: copies of messages. */
struct fabric_buffer *fabric_copy(struct fabric *fabric, const void *header, size_t header_bytes, const void *payload,
                                  size_t bytes);
void fabric_give_back(struct fabric *fabric, struct fabric_buffer *buffer);
int fabric_out_of_memory(struct fabric *fabric);
int fabric_queue(struct fabric_link *link, const void *header, size_t header_bytes, const void *payload, size_t bytes);
void fabric_free_buffers(struct fabric_buffers *buffers);

/* fabric_socket.c: the provider's sockets, which it does not show: found among the process' descriptors and set up. */
void fabric_tune_listener(const struct fabric *fabric, const struct sockaddr_storage *own);
void fabric_tune_link(struct fabric_link *link);
/* True if the peer's host has accepted the connection.  From then on the kernel watches that host. */
bool fabric_host_answers(struct fabric_link *link);
/* Gives up the links to hosts that do not answer. */
void fabric_end_silent(struct fabric *fabric);
/* Ends connections to the listener that have not become a link, the oldest first, where there are too many of them or
 * too few descriptors; where no link is to come any more, each after a second or two; or, with all, at once. */
void fabric_end_strangers(struct fabric *fabric, bool all);

#endif
