/* The handshake in which two ranks prove to each other that they hold the job's token.  It is the same over the network
 * and when ranks attach shared memory.
 *
 * The client sends both nonces, the ranks and the group tree, with an authentication code over them.  The server
 * answers with the same fields and another kind, so a code is useless on another link or in the other direction.
 */
#ifndef TCP_PEER_HANDSHAKE_H
#define TCP_PEER_HANDSHAKE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <tutti/backend.h>

enum {
    HANDSHAKE_BYTES = 104, /* must fit a connection request's private data: 256 bytes */
    HANDSHAKE_SIGNED = 72, /* the leading bytes that the authentication code covers */
    HANDSHAKE_NONCE = 16,
    HANDSHAKE_MAC = 32
};

enum peer_handshake_kind {
    HANDSHAKE_CONNECT = 1,
    HANDSHAKE_ACCEPT,
    HANDSHAKE_BUSY,
    HANDSHAKE_RAIL, /* requests another connection of a link, over the server's second interface; + 1: its third .. */
    HANDSHAKE_RAIL_LAST = HANDSHAKE_RAIL + 2
};

struct peer_handshake {
    uint32_t kind;
    uint32_t from; /* the client's global rank, also in the answer; while attaching, the answer swaps from and to */
    uint32_t to;
    uint32_t world_size;
    uint64_t tree_id;
    uint8_t client_nonce[HANDSHAKE_NONCE];
    uint8_t server_nonce[HANDSHAKE_NONCE]; /* published in the store by the server */
    uint8_t mac[HANDSHAKE_MAC];            /* authentication code of the first HANDSHAKE_SIGNED bytes */
};

void peer_handshake_encode(uint8_t out[HANDSHAKE_BYTES], const struct peer_handshake *handshake);
/* Returns false if the bytes are malformed or come from another version. */
bool peer_handshake_parse(const void *data, size_t n, struct peer_handshake *handshake);

/* Sets the authentication code, then encodes the handshake. */
void peer_handshake_sign(const tutti_host *host, struct peer_handshake *handshake, uint8_t out[HANDSHAKE_BYTES]);
/* True if the authentication code matches.  `handshake` was parsed from the bytes `in`. */
bool peer_handshake_is_authentic(const tutti_host *host, const uint8_t in[HANDSHAKE_BYTES],
                                 const struct peer_handshake *handshake);

#endif
