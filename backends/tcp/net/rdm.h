/* Reliable datagram (RDM) endpoints, internal interface.
 *
 * All peers use one endpoint.  Its provider does not identify them and hardly reports their end, so each message
 * travels in an envelope with its link's secret and a sequence number.  A message with another secret is dropped.  An
 * early message waits for its turn: large messages take more steps in some providers and arrive behind small ones.  A
 * number that never arrives ends the link, because the provider has renewed a broken connection silently.
 *
 * Writes are messages too, copied on both sides.  All providers then behave alike, and the provider never holds the
 * user's memory, so revoking memory is exact.  An unauthenticated peer cannot write to a key that it guessed. */
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
    RDM_HEARTBEAT_TICKS = 2            /* interval of an idle link's heartbeats and of an unanswered HELLO */
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

/* rdm_wait.c */
int rdm_open_timer(struct fabric *fabric);
bool rdm_is_tick(struct fabric *fabric);
int rdm_arm(struct fabric *fabric, int *descriptors);

#endif
