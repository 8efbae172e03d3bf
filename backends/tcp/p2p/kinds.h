/* The protocol's kinds of message, as pure functions.  A receiver trusts nothing: each field is checked against its
 * range, and fields that a kind does not use must be zero. */
#ifndef P2P_KINDS_H
#define P2P_KINDS_H

#include "tcp/base/transport.h"

enum { KIND_CONTROL_MAX = 512 /* bytes of a control message */ };

/* A message's `id` is its sender's name for something, and `ref` is an id that the receiver has sent. */
enum kind {
    KIND_EAGER = 1,  /* a message with its data; replaces the RTS ref, or none (0) */
    KIND_RTS,        /* the sender has a message, under id, and asks the receiver to expose memory */
    KIND_CTS,        /* the receiver has exposed memory, under id: answers the RTS ref, or none (0) */
    KIND_NACK_SEND,  /* answers the RTS ref: the receive has other bytes and fingerprint, or was withdrawn (flag) */
    KIND_NACK_RECV,  /* answers the CTS ref: the send has other bytes and fingerprint, or was withdrawn (flag) */
    KIND_CREDIT,     /* carries nothing but credit, as all do */
    KIND_CONTROL,    /* a control message of the core; empty: this rank has closed the group */
    KIND_BYE,        /* the last message on this link */
    KIND_REVOKE,     /* the receiver wants the memory back that it exposed under ref */
    KIND_REVOKED,    /* answers REVOKE: nothing will be written to ref any more; all pieces precede this message */
    KIND_CANCEL_RTS, /* the sender has withdrawn the RTS ref */
    /* Over transports with single-copy reads: */
    KIND_RTS_READ,    /* as RTS, but the receiver reads the message at address ref */
    KIND_CANCEL_READ, /* the sender wants the memory of the RTS_READ ref back */
    KIND_FIN,         /* answers RTS_READ or CANCEL_READ: nothing of ref will be read any more; bytes: the nanoseconds
                       * that reading took */
    KINDS
};

enum { KIND_WITHDRAWN = 1 }; /* flags */

/* True if a header with so many bytes of payload is well formed. */
bool kind_is_valid(const struct transport_header *header, size_t payload, uint32_t world_size);

#endif
