/* Reliable datagram (RDM) endpoints, internal interface.
 *
 * All peers use one endpoint.  Its provider does not identify them and hardly reports their end, so each message
 * travels in an envelope with its link's secret and a sequence number.  A message with another secret is dropped.  An
 * early message waits for its turn: large messages take more steps in some providers and arrive behind small ones.  A
 * number that never arrives ends the link, because the provider has renewed a broken connection silently.
 *
 * A small write is a sequence of messages, copied on both sides.  A large one is offered to its receiver, which reads
 * the data from this rank's memory (RMA): rdm_offer.c, rdm_read.c.  Revoking memory is exact in both cases. */
#ifndef TCP_RDM_H
#define TCP_RDM_H

#include "tcp/net/fabric_impl.h"

enum {
    RDM_MESSAGE = FABRIC_COPY,
    RDM_PIECE = TRANSPORT_PAYLOAD_MAX, /* maximum bytes of a piece of a write */
    RDM_INJECT = 256,                  /* messages up to this size need no buffer if the provider can inject them */
    RDM_WINDOW = 64,                   /* maximum number of messages that may overtake one */
    RDM_IN_FLIGHT_MAX = 8,             /* maximum buffers of a link in the provider, so that no peer uses all of them */
    RDM_TICKS = 10,                    /* a peer may be silent for this many ticks */
    RDM_HEARTBEAT_TICKS = 2,           /* interval of an idle link's heartbeats and of an unanswered HELLO */
    RDM_RMA_MIN = 128 << 10,           /* smaller writes are pieces */
    RDM_OFFERS_MAX = 16                /* maximum offers of a link that are not answered yet */
};

/* A buffer of the provider. */
struct rdm_buffer {
    struct fi_context2 context;    /* must be the first member; the provider owns it during an operation */
    struct fabric_link *link;      /* NULL for a receive buffer */
    struct transport_write *write; /* the write that this is a piece of, or NULL */
    size_t bytes;                  /* bytes of the piece */
    uint64_t sequence;
    struct fid_mr *region; /* NULL unless the provider requires registered buffers */
    TAILQ_ENTRY(rdm_buffer) entry;
    uint8_t data[RDM_MESSAGE];
};

/* Memory that a peer may write to. */
struct rdm_region {
    LIST_ENTRY(rdm_region) entry;
    uint64_t key;
    int32_t rank; /* the peer */
    uint8_t *data;
    size_t bytes, landed;
    struct rdm_reading *reading; /* this rank reads the data from the peer; NULL if it has received no offer */
};

/* The parts of a message after its envelope. */
struct rdm_parts {
    const void *first, *second;
    size_t first_bytes, second_bytes;
};

/* rdm_open.c */
int rdm_find(struct fabric *fabric, const char *provider, const struct iface *own);
int rdm_open(struct fabric *fabric);
void rdm_close(struct fabric *fabric);
struct rdm_buffer *rdm_buffer_new(struct fabric *fabric);
/* Opens a completion queue.  Sets *fd to its descriptor, or -1 if the provider has none.  Returns its error or 0. */
int rdm_open_queue(struct fabric *fabric, struct fid_cq **cq, int *fd);
/* Tunes the endpoint's listening socket if it has one. */
void rdm_tune_listener(struct fabric *fabric, struct fid_ep *ep);

/* Returns the 8-byte words of a stored name.  Names are aligned to words because a provider may expect that. */
static inline size_t rdm_name_words(const struct fabric *fabric)
{
    return (fabric->rdm.name_bytes + sizeof(uint64_t) - 1) / sizeof(uint64_t);
}

/* rdm_link.c */
bool rdm_read_entry(struct fabric *fabric, int32_t rank, const uint8_t *entry, size_t bytes);
int rdm_connect(struct fabric_link *link);
void rdm_end(struct fabric_link *link);
int rdm_send_due(struct fabric_link *link);
void rdm_handle_handshake(struct fabric *fabric, const struct wire_envelope *envelope, const uint8_t *data, size_t n);
bool rdm_belongs_to_link(struct fabric *fabric, const struct wire_envelope *envelope);
void rdm_count_received(struct fabric_link *link);
void rdm_tick(struct fabric *fabric);

/* rdm_probe.c */
/* Listens for probes at `own` and sets its port, or 0 if it cannot listen. */
void rdm_open_probes(struct fabric *fabric, struct wire_address *own);
void rdm_close_probes(struct fabric *fabric);
/* Accepts and closes the connections of peers that probe. */
void rdm_accept_probes(struct fabric *fabric);
/* Probes without waiting whether a peer's process still listens.  Returns true if it has exited or left. */
bool rdm_has_exited(struct fabric_link *link);
void rdm_end_probe(struct fabric_link *link);

/* rdm_io.c.  The first two return 0 or the provider's error.  The caller retries later after -FI_EAGAIN. */
int rdm_post(struct fabric_link *link, struct wire_envelope envelope, const struct rdm_parts *parts,
             struct transport_write *write);
int rdm_post_receive(struct fabric *fabric, struct rdm_buffer *buffer);
void rdm_flush(struct fabric_link *link);

/* Queues an answer to an offer behind all messages.  Returns OK or NO_MEMORY. */
int rdm_queue_answer(struct fabric_link *link, enum wire_envelope_kind kind, uint64_t key);

/* rdm_offer.c.  The first and third return 0 or the provider's error. */
int rdm_register(struct fabric *fabric, const void *data, size_t bytes, uint64_t access, struct fid_mr **region);
bool rdm_uses_rma(const struct fabric *fabric, size_t bytes, const tutti_path_row *row);
/* True if the write is offered to the peer. */
bool rdm_is_offered(const struct fabric_link *link, const struct transport_write *write);
int rdm_post_offer(struct fabric_link *link, struct transport_write *write);
/* Notes that the receive or the send has been withdrawn.  The peer's answer ends the write. */
void rdm_cut_offer(struct rdm_offer *offer);
void rdm_handle_answer(struct fabric_link *link, const struct wire_envelope *envelope);
/* Withdraws the memory of all offers. */
void rdm_end_offers(struct fabric_link *link);

/* rdm_read.c */
/* Handles an offer.  region: the memory to read it into, or NULL if that is not exposed any more. */
void rdm_handle_offer(struct fabric_link *link, struct rdm_region *region, uint64_t key, const uint8_t *data, size_t n);
/* Ends a reading before its region ends: nothing is written there afterwards.  Answers the peer. */
void rdm_stop_reading(struct rdm_reading *reading);
/* Ends all readings of a link that ends. */
void rdm_end_readings(struct fabric_link *link);
int rdm_progress_reads(struct fabric *fabric);
void rdm_close_reads(struct fabric *fabric);

/* rdm_wait.c */
int rdm_open_timer(struct fabric *fabric);
bool rdm_is_tick(struct fabric *fabric);
int rdm_arm(struct fabric *fabric, int *descriptors);

#endif
