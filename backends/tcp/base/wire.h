/* What goes over the wire, as pure functions: messages, the greeting of a new connection, an entry of the address book.
 *
 * All numbers are little-endian and of fixed width.  A parser believes nothing: each field is checked against its
 * range, fields that a kind does not use must be zero, and there are no pointers on the wire.
 */
#ifndef WIRE_H
#define WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    WIRE_VERSION = 3,
    WIRE_HEADER = 64,    /* bytes of a message's header */
    WIRE_EAGER = 65536,  /* the largest payload that is sent without asking; part of the protocol's version */
    WIRE_NOTE = 512,     /* the largest note */
    WIRE_GREETING = 104, /* fits a connection request's private data: 256 bytes */
    WIRE_GREETING_SIGNED = 72,
    WIRE_ADDRESS = 56,
    WIRE_NAME_MOST = 128,  /* of an endpoint's name */
    WIRE_ENTRY_MOST = 184, /* of the address book's entries */
    WIRE_ENVELOPE = 40,
    WIRE_NONCE = 16,
    WIRE_MAC = 32
};

enum wire_kind {
    WIRE_EAGER_DATA = 1, /* a whole message: the payload follows the header; instead of the RTS ref, or of none (0) */
    WIRE_RTS,            /* a sender has this message under id and asks where to put it */
    WIRE_CTS,            /* a receiver's memory is open under id: the answer to the RTS ref, or unasked (ref 0) */
    WIRE_NACK_SEND,      /* to the sender of the RTS ref: the receive differs, and has these bytes and fingerprint; or
                          * there will never be one (flag) */
    WIRE_NACK_RECV,      /* to the receiver that opened ref: the send differs, or was taken back (flag) */
    WIRE_CREDIT,         /* nothing but its credit */
    WIRE_NOTE_DATA,      /* a note: the payload follows */
    WIRE_BYE,            /* the last message of this connection */
    WIRE_REVOKE,         /* a receiver wants its memory ref back */
    WIRE_REVOKED,        /* nothing will be written to ref any more, and what was is before this in the stream */
    WIRE_UNASK,          /* the message of the RTS ref was taken back */
    /* Between ranks that share memory: */
    WIRE_OFFER,   /* an RTS whose message may be read from the sender's memory: ref is its address there */
    WIRE_UNOFFER, /* the sender wants the offer ref back */
    WIRE_FIN,     /* nothing of the offer ref will be read any more; bytes: what reading took, in nanoseconds */
    WIRE_STREAM,  /* so many bytes for the memory that a receiver opened under ref come through the ring's window; id:
                   * 1 and where they begin */
    WIRE_KINDS
};

enum { WIRE_TAKEN_BACK = 1 }; /* flags */

struct wire_header {
    uint8_t kind;
    uint32_t source; /* global rank of the sender of this message */
    uint64_t group;
    uint64_t tag;
    uint64_t bytes; /* of the user's message */
    uint64_t fingerprint;
    uint64_t id;     /* the sender's name for what it holds */
    uint64_t ref;    /* the receiver's name, from an earlier message's id */
    uint64_t credit; /* cost of all eager messages of yours that have found their receive */
    uint8_t flags;   /* not beside kind: read as one word after they were written as two they would be waited for */
};

void wire_encode(uint8_t out[WIRE_HEADER], const struct wire_header *header);

/* Reads a message of n bytes.  false: it is malformed. */
bool wire_parse(const void *message, size_t n, uint32_t world_size, struct wire_header *header);

/* Whether a header that came with so many bytes of payload says what a message can say. */
bool wire_is_valid(const struct wire_header *header, size_t payload, uint32_t world_size);

enum wire_greeting_kind { WIRE_CONNECT = 1, WIRE_ACCEPT, WIRE_BUSY };

/* The private data of a connection request and of its answer. */
struct wire_greeting {
    uint32_t kind;
    uint32_t from; /* global rank of who asks to connect, in the answer as well */
    uint32_t to;
    uint32_t world_size;
    uint64_t family;
    uint8_t client_nonce[WIRE_NONCE];
    uint8_t server_nonce[WIRE_NONCE]; /* the one that the listener has published */
    uint8_t mac[WIRE_MAC];            /* over the first WIRE_GREETING_SIGNED bytes */
};

void wire_greeting_encode(uint8_t out[WIRE_GREETING], const struct wire_greeting *greeting);
bool wire_greeting_parse(const void *data, size_t n, struct wire_greeting *greeting);

/* Where a rank listens. */
struct wire_address {
    uint32_t family; /* 4 or 6 */
    uint16_t port;
    uint8_t ip[16]; /* network order; the first 4 bytes of IPv4 */
    uint8_t nonce[WIRE_NONCE];
};

void wire_address_encode(uint8_t out[WIRE_ADDRESS], const struct wire_address *address);
bool wire_address_parse(const void *data, size_t n, struct wire_address *address);

/* The same where there are no connections: the name of an endpoint, which only libfabric understands. */
struct wire_name {
    struct wire_address host; /* to tell hosts apart; its port is the listener's for probes, or 0 */
    size_t bytes;
    uint8_t name[WIRE_NAME_MOST];
};

/* Answers how many bytes it is. */
size_t wire_name_encode(uint8_t out[WIRE_ENTRY_MOST], const struct wire_name *name);
bool wire_name_parse(const void *data, size_t n, struct wire_name *name);

enum wire_envelope_kind {
    WIRE_HELLO = 1, /* a greeting, the sender's entry of the address book and a code over both follow */
    WIRE_WELCOME,   /* its answer, a greeting */
    WIRE_MESSAGE,   /* a message follows */
    WIRE_PIECE,     /* a piece of a write follows */
    WIRE_BEAT,      /* nothing: I am here */
    WIRE_END,       /* nothing: the link has ended */
    WIRE_ENVELOPES
};

/* Before all that goes between datagram endpoints. */
struct wire_envelope {
    uint8_t kind;
    uint32_t from;     /* global rank */
    uint64_t session;  /* known to the two alone; 0 until they are */
    uint64_t sequence; /* 1 and up within a session */
    uint64_t key;      /* of the memory that a piece is for */
    uint64_t offset;   /* of the piece */
};

void wire_envelope_encode(uint8_t out[WIRE_ENVELOPE], const struct wire_envelope *envelope);
bool wire_envelope_parse(const void *data, size_t n, uint32_t world_size, struct wire_envelope *envelope);

#endif
