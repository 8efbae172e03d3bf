/* The bytes on the network, as pure functions: message headers, address book entries, envelopes of datagrams.
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
    WIRE_ADDRESS = 56,
    WIRE_NAME_MAX = 128,  /* of an endpoint's name */
    WIRE_ENTRY_MAX = 184, /* of an address book entry */
    WIRE_ENVELOPE = 40
};

void wire_encode(uint8_t out[WIRE_HEADER], const struct transport_header *header);
/* Reads the header of a message of n bytes.  Returns false if it is no message of this version. */
bool wire_parse(const void *message, size_t n, struct transport_header *header);

/* Where a rank listens. */
struct wire_address {
    uint32_t family; /* 4 or 6; 0: not known */
    uint16_t port;
    uint8_t ip[16]; /* network order; the first 4 bytes of IPv4 */
    uint8_t nonce[HANDSHAKE_NONCE];
};

void wire_address_encode(uint8_t out[WIRE_ADDRESS], const struct wire_address *address);
bool wire_address_parse(const void *data, size_t n, struct wire_address *address);

/* Where a rank's datagram endpoint can be reached: a name that only libfabric understands. */
struct wire_name {
    struct wire_address host; /* to tell hosts apart; its port is the probe listener's, or 0 */
    size_t bytes;
    uint8_t name[WIRE_NAME_MAX];
};

/* Returns the encoded size. */
size_t wire_name_encode(uint8_t out[WIRE_ENTRY_MAX], const struct wire_name *name);
bool wire_name_parse(const void *data, size_t n, struct wire_name *name);

enum wire_envelope_kind {
    WIRE_HELLO = 1, /* a handshake, the sender's address book entry and a code over both follow */
    WIRE_WELCOME,   /* its answer, a handshake */
    WIRE_MESSAGE,   /* a message follows */
    WIRE_PIECE,     /* a piece of a write follows */
    WIRE_HEARTBEAT, /* nothing follows */
    WIRE_END,       /* nothing follows: the link has ended */
    WIRE_ENVELOPES
};

/* Precedes everything that datagram endpoints exchange. */
struct wire_envelope {
    uint8_t kind;
    uint32_t from;     /* global rank */
    uint64_t session;  /* a secret of the two ranks; 0 during the handshake */
    uint64_t sequence; /* 1 and up within a session */
    uint64_t key;      /* of the memory that a piece is for */
    uint64_t offset;   /* of the piece */
};

void wire_envelope_encode(uint8_t out[WIRE_ENVELOPE], const struct wire_envelope *envelope);
bool wire_envelope_parse(const void *data, size_t n, uint32_t world_size, struct wire_envelope *envelope);

#endif
