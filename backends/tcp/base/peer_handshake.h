/* The handshake, by which two ranks prove to each other that they hold the job's token: the same over the network and
 * when ranks attach shared memory.
 *
 * The client sends both nonces, the ranks and the group tree, with an authentication code over them; the server answers
 * the same with another kind.  So a code is of no use on another link or in the other direction.
 */
#ifndef TCP_PEER_HANDSHAKE_H
#define TCP_PEER_HANDSHAKE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <tutti/backend.h>

enum {
    HANDSHAKE_BYTES = 104, /* fits a connection request's private data: 256 bytes */
    HANDSHAKE_SIGNED = 72, /* the bytes that the code covers */
    HANDSHAKE_NONCE = 16,
    HANDSHAKE_MAC = 32
};

enum peer_handshake_kind { HANDSHAKE_CONNECT = 1, HANDSHAKE_ACCEPT, HANDSHAKE_BUSY };

struct peer_handshake {
    uint32_t kind;
    uint32_t from; /* global rank of the client, in the answer as well; attaching swaps the two there */
    uint32_t to;
    uint32_t world_size;
    uint64_t tree_id;
    uint8_t client_nonce[HANDSHAKE_NONCE];
    uint8_t server_nonce[HANDSHAKE_NONCE]; /* the one that the server has published */
    uint8_t mac[HANDSHAKE_MAC];            /* over the first HANDSHAKE_SIGNED bytes */
};

void peer_handshake_encode(uint8_t out[HANDSHAKE_BYTES], const struct peer_handshake *handshake);
/* Returns false if the bytes are malformed or come from another version. */
bool peer_handshake_parse(const void *data, size_t n, struct peer_handshake *handshake);

/* Sets the code and encodes. */
void peer_handshake_sign(const tutti_host *host, struct peer_handshake *handshake, uint8_t out[HANDSHAKE_BYTES]);
/* True if the code of a handshake that was parsed from these bytes is right. */
bool peer_handshake_is_authentic(const tutti_host *host, const uint8_t in[HANDSHAKE_BYTES],
                                 const struct peer_handshake *handshake);

#endif
