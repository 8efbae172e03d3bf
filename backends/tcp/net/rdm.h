/* Reliable datagram (RDM) endpoints: what their files share.
 *
 * All peers meet at one endpoint, whose provider tells nothing of who they are, and little of their end.  So each
 * message travels in an envelope with the secret of its link and a number: what has another secret is dropped.  What
 * comes early waits for its turn, as large messages take more steps in some providers and arrive behind small ones; a
 * number that never comes, which is what a connection that a provider renewed on its own looks like, ends the link.
 *
 * Writes are messages too, copied on both sides.  That works alike on every provider; nothing of the user's memory is
 * ever in a provider's hands, so that taking it back is exact; and no stranger can write to it, as a remote write to a
 * key that it guessed would. */
#ifndef TCP_RDM_H
#define TCP_RDM_H

#include "tcp/net/fabric_impl.h"

enum {
    RDM_MESSAGE = FABRIC_COPY,
    RDM_PIECE = TRANSPORT_PAYLOAD_MAX, /* of a write */
    RDM_INJECT = 256,                  /* messages up to this size leave without a buffer, where the provider can */
    RDM_WINDOW = 64,                   /* messages that may overtake one */
    RDM_FLIGHT = 8,                    /* buffers of a link in the provider, so that no peer has them all */
    RDM_TICKS = 10,                    /* in which a peer may be silent */
    RDM_SAY_TICKS = 2                  /* after which a silent link, or one not answered yet, says something */
};

/* A buffer for the provider. */
struct rdm_slot {
    struct fi_context2 context;    /* first: the provider's, during an operation */
    struct fabric_link *link;      /* NULL: to receive */
    struct transport_write *write; /* of which this is a piece */
    size_t bytes;                  /* of that */
    uint64_t sequence;
    struct fid_mr *region; /* where the provider wants its buffers registered */
    TAILQ_ENTRY(rdm_slot) entry;
    uint8_t data[RDM_MESSAGE];
};

/* Parts of a message, behind its envelope. */
struct rdm_parts {
    const void *first, *second;
    size_t first_bytes, second_bytes;
};

/* rdm_open.c */
int rdm_find(struct fabric *fabric, const char *provider, const struct fabric_where *where);
int rdm_open(struct fabric *fabric);
void rdm_close(struct fabric *fabric);
struct rdm_slot *rdm_slot_new(struct fabric *fabric);

/* Names are kept aligned as a provider may expect it of its own. */
static inline size_t rdm_name_words(const struct fabric *fabric)
{
    return (fabric->rdm.name_bytes + sizeof(uint64_t) - 1) / sizeof(uint64_t);
}

/* rdm_link.c */
bool rdm_take_entry(struct fabric *fabric, int32_t rank, const uint8_t *entry, size_t bytes);
int rdm_ask(struct fabric_link *link);
void rdm_end(struct fabric_link *link);
int rdm_say(struct fabric_link *link);
void rdm_handle_greeting(struct fabric *fabric, const struct wire_envelope *envelope, const uint8_t *data, size_t n);
bool rdm_is_of_link(struct fabric *fabric, const struct wire_envelope *envelope);
void rdm_heard(struct fabric_link *link);
void rdm_tick(struct fabric *fabric);

/* rdm_probe.c.  open: listens at own's address and sets its port; 0 without a listener.  accept: closes the connections
 * of peers that look. */
void rdm_open_probes(struct fabric *fabric, struct wire_address *own);
void rdm_close_probes(struct fabric *fabric);
void rdm_accept_probes(struct fabric *fabric);
/* Looks, without waiting, whether the process of a peer whose link is on its way still listens.  True if it has ended
 * or has left. */
bool rdm_is_gone(struct fabric_link *link);
void rdm_end_probe(struct fabric_link *link);

/* rdm_io.c: 0, or the provider's error; -FI_EAGAIN: later */
int rdm_post(struct fabric_link *link, struct wire_envelope envelope, const struct rdm_parts *parts,
             struct transport_write *write);
int rdm_post_receive(struct fabric *fabric, struct rdm_slot *slot);
void rdm_flush(struct fabric_link *link);

/* rdm_wait.c */
int rdm_open_timer(struct fabric *fabric);
bool rdm_is_tick(struct fabric *fabric);
int rdm_arm(struct fabric *fabric, int *descriptors);

#endif
