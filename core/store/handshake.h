/* How client and server prove to each other that they hold the job token, and the keys that seal what follows.
 *
 *   client -> server  hello    8 bytes "TUTTIST" and the version, 32 random bytes
 *   server -> client  hello    the same, with its own 32
 *   client -> server  proof    MAC(token, "client", version, both randoms)
 *   server -> client  verdict  8 bytes, the first 1 for yes; then MAC(token, "server", version, both randoms)
 *
 * The client proves itself first, so that a stranger gets nothing from the server that depends on the token.  Both
 * randoms are in every code, so that nothing recorded serves again.  Thereafter each frame is sealed
 * (ChaCha20-Poly1305) with a key per connection and direction and a running number: an altered, injected, repeated or
 * dropped frame fails. Pure functions over bytes, but for handshake_start's randomness.
 */
#ifndef STORE_HANDSHAKE_H
#define STORE_HANDSHAKE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/token.h"

enum {
    HANDSHAKE_VERSION = 1,
    HANDSHAKE_HELLO_BYTES = 40,
    HANDSHAKE_PROOF_BYTES = 32,
    HANDSHAKE_VERDICT_BYTES = 40,
    SEAL_TAG_BYTES = 16
};

struct seal {
    uint8_t key[32];
    uint64_t number; /* of the next frame */
};

struct handshake {
    uint8_t token[TOKEN_BYTES];
    uint8_t client[32], server[32]; /* the randoms */
};

enum handshake_role { HANDSHAKE_CLIENT, HANDSHAKE_SERVER };

/* Draws this side's random bytes and writes its hello. */
void handshake_start(struct handshake *shake, enum handshake_role role, uint8_t hello[HANDSHAKE_HELLO_BYTES]);

enum handshake_answer { HANDSHAKE_OK, HANDSHAKE_OTHER_VERSION, HANDSHAKE_NOT_OURS };

/* Takes the other side's hello; role is one's own. */
enum handshake_answer handshake_take_hello(struct handshake *shake, enum handshake_role role,
                                           const uint8_t hello[HANDSHAKE_HELLO_BYTES]);

/* Whether the first bytes of a hello could still become one of ours. */
bool handshake_begins_well(const uint8_t *in, size_t bytes);

/* The proof that role holds the token. */
void handshake_prove(const struct handshake *shake, enum handshake_role role, uint8_t proof[HANDSHAKE_PROOF_BYTES]);
bool handshake_verify(const struct handshake *shake, enum handshake_role role,
                      const uint8_t proof[HANDSHAKE_PROOF_BYTES]);

/* The two directions' keys. */
void handshake_keys(const struct handshake *shake, struct seal *to_server, struct seal *to_client);

/* Seals bytes in place; SEAL_TAG_BYTES of tag go to data + bytes.  header is bound to it without being sealed. */
void seal_close(struct seal *seal, uint8_t *data, size_t bytes, const uint8_t *header, size_t header_bytes);

/* Opens bytes (tag included) in place.  False: not what the other side sealed as its next frame. */
bool seal_open(struct seal *seal, uint8_t *data, size_t bytes, const uint8_t *header, size_t header_bytes);

#endif
