/* The wire format, as pure functions: message headers, address book entries, envelopes of datagrams.
 *
 * All numbers are little-endian and of fixed width.  A parser trusts nothing: each field is checked against its range,
 * and the wire carries no pointers.  The protocol (p2p/) checks what a message's fields mean.
 */
#ifndef TCP_WIRE_H
#define TCP_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tcp/base/peer_handshake.h"
#include "tcp/base/transport.h"

enum {
    WIRE_HEADER = 64, /* bytes of a message's header */
    WIRE_ADDRESS = 64,
    WIRE_RAILS = 3, /* maximum number of a rank's further interfaces */
    WIRE_RAIL = 20,
    WIRE_NAME_MAX = 128,  /* maximum bytes of an endpoint's name */
    WIRE_ENTRY_MAX = 192, /* maximum bytes of an address book entry */
    WIRE_ENVELOPE = 40,
    WIRE_OFFER_BODY = 24 /* bytes of an offer after its envelope */
};

void wire_encode(uint8_t out[WIRE_HEADER], const struct transport_header *header);
/* Parses the header of a message of n bytes.  Returns false if this is not a message of this version. */
bool wire_parse(const void *message, size_t n, struct transport_header *header);

/* The address at which a rank listens. */
struct wire_address {
    uint32_t family; /* IP version: 4 or 6; 0 if not known */
    uint16_t port;
    uint8_t ip[16]; /* network byte order; IPv4 uses the first 4 bytes */
    uint8_t nonce[HANDSHAKE_NONCE];
    uint64_t host; /* identifies the host; 0 if not known */
};

/* The addresses at which a rank listens on its further interfaces, of the same IP version. */
struct wire_rail {
    uint16_t port;
    uint8_t ip[16];
};
struct wire_rails {
    uint32_t n;
    struct wire_rail at[WIRE_RAILS];
};

/* Encodes the entry.  Returns the bytes written. */
size_t wire_address_encode(uint8_t out[WIRE_ENTRY_MAX], const struct wire_address *address,
                           const struct wire_rails *rails);
bool wire_address_parse(const void *data, size_t n, struct wire_address *address, struct wire_rails *rails);

/* The address of a rank's datagram endpoint: a name that only libfabric understands. */
struct wire_name {
    struct wire_address host; /* distinguishes hosts; its port is the probe listener's, or 0 */
    size_t bytes;
    uint8_t name[WIRE_NAME_MAX];
};

/* Encodes the name.  Returns the bytes written. */
size_t wire_name_encode(uint8_t out[WIRE_ENTRY_MAX], const struct wire_name *name);
bool wire_name_parse(const void *data, size_t n, struct wire_name *name);

enum wire_envelope_kind {
    WIRE_HELLO = 1, /* followed by a handshake, the sender's address book entry and an authentication code of both */
    WIRE_WELCOME,   /* answers a HELLO; followed by a handshake */
    WIRE_MESSAGE,   /* followed by a message */
    WIRE_PIECE,     /* followed by a piece of a write */
    WIRE_HEARTBEAT, /* the end of the datagram */
    WIRE_END,       /* the end of the datagram and of the link */
    WIRE_OFFER,     /* followed by an offer: the receiver may read a write's data from the sender's memory */
    WIRE_READ,      /* answers an offer: all data have been read; the end of the datagram */
    WIRE_RETURNED,  /* answers an offer: the receive was withdrawn; the end of the datagram */
    WIRE_REFUSED,   /* answers an offer: the sender must send pieces instead; the end of the datagram */
    WIRE_ENVELOPES
};

/* Precedes everything that datagram endpoints exchange. */
struct wire_envelope {
    uint8_t kind;
    uint32_t from;     /* global rank of the sender */
    uint64_t session;  /* the link's secret; 0 during the handshake */
    uint64_t sequence; /* counts from 1 within a session */
    uint64_t key;      /* pieces, offers and their answers: key of the memory that is written to */
    uint64_t offset;   /* WIRE_PIECE: offset of the piece in that memory */
};

void wire_envelope_encode(uint8_t out[WIRE_ENVELOPE], const struct wire_envelope *envelope);
bool wire_envelope_parse(const void *data, size_t n, uint32_t world_size, struct wire_envelope *envelope);

/* Registered memory of the sender that the receiver may read. */
struct wire_offer {
    uint64_t bytes;
    uint64_t address; /* as the provider counts: a virtual address, or an offset in the registered memory */
    uint64_t key;     /* the provider's key */
};

void wire_offer_encode(uint8_t out[WIRE_OFFER_BODY], const struct wire_offer *offer);
bool wire_offer_parse(const void *data, size_t n, struct wire_offer *offer);

#endif
