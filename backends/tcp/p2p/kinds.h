/* The protocol's kinds of message, as pure functions.  A receiver trusts nothing: each field is checked against its
 * range, and fields that a kind does not use must be zero. */
#ifndef P2P_KINDS_H
#define P2P_KINDS_H

#include "tcp/base/transport.h"

enum { KIND_CONTROL_MAX = 512 /* maximum bytes of a control message */ };

/* `id` identifies a message or exposed memory of the sender; `ref` is an id that the receiver has sent. */
enum kind {
    KIND_EAGER = 1,  /* a message with its data; replaces the sender's RTS `ref` unless that is 0 */
    KIND_RTS,        /* the sender has the message `id` and asks the receiver to expose memory */
    KIND_CTS,        /* the receiver has exposed memory `id`; answers the RTS `ref` unless that is 0 */
    KIND_NACK_SEND,  /* answers the RTS `ref`: the receive differs (its size and fingerprint) or was withdrawn (flag) */
    KIND_NACK_RECV,  /* answers the CTS `ref`: the send differs (its size and fingerprint) or was withdrawn (flag) */
    KIND_CREDIT,     /* carries only the credit, which every message has */
    KIND_CONTROL,    /* a control message of the core; empty: this rank has closed the group */
    KIND_BYE,        /* the last message on this link */
    KIND_REVOKE,     /* the receiver wants back the memory that it exposed under `ref` */
    KIND_REVOKED,    /* answers REVOKE: all pieces written to `ref` precede this message, and none follows */
    KIND_CANCEL_RTS, /* the sender has withdrawn the RTS `ref` */
    /* Only over transports with single-copy reads: */
    KIND_RTS_READ,    /* as RTS, but the receiver reads the message at address `ref` */
    KIND_CANCEL_READ, /* the sender wants back the memory of the RTS_READ `ref` */
    KIND_FIN,         /* answers RTS_READ or CANCEL_READ: the message `ref` is not read from here on */
    KINDS
};

/* Flags.  Those of a CTS are the write's number of parts - 1. */
enum {
    KIND_WITHDRAWN = 1, /* of NACKs and FIN */
    KIND_OFFER = 1      /* of an RTS_READ: the receiver may answer with a CTS instead */
};

/* True if a header is well formed and fits `payload` bytes of payload. */
bool kind_is_valid(const struct transport_header *header, size_t payload, uint32_t world_size);

#endif
