/* Handshake: client and server prove to each other that they hold the job token, then derive the keys of the session.
 *
 *   client -> server  hello    8 bytes "TUTTIST" and the version, 32 random bytes
 *   server -> client  hello    the same, with the server's 32 random bytes
 *   client -> server  proof    MAC(token, "client", version, both randoms)
 *   server -> client  verdict  8 bytes, the first is 1 if accepted; then MAC(token, "server", version, both randoms)
 *
 * The client proves itself first, so an unauthenticated peer never sees data that depends on the token.  Every MAC
 * covers both random values, so a recorded handshake cannot be replayed.  After the handshake each frame is sealed
 * (ChaCha20-Poly1305) with a key per connection and direction and a sequence number.  An altered, injected, repeated
 * or dropped frame fails to open.  All functions but handshake_start, which draws random bytes, are pure.
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
    uint64_t number; /* sequence number of the next frame */
};

struct handshake {
    uint8_t token[TOKEN_BYTES];
    uint8_t client[32], server[32]; /* random bytes of each side */
};

enum handshake_role { HANDSHAKE_CLIENT, HANDSHAKE_SERVER };

/* Draws this side's random bytes and writes its hello. */
void handshake_start(struct handshake *shake, enum handshake_role role, uint8_t hello[HANDSHAKE_HELLO_BYTES]);

enum handshake_answer { HANDSHAKE_OK, HANDSHAKE_OTHER_VERSION, HANDSHAKE_NOT_OURS };

/* Checks and stores the peer's hello; role is the caller's own. */
enum handshake_answer handshake_take_hello(struct handshake *shake, enum handshake_role role,
                                           const uint8_t hello[HANDSHAKE_HELLO_BYTES]);

/* True if the bytes received so far are a prefix of a valid hello. */
bool handshake_begins_well(const uint8_t *in, size_t bytes);

/* Computes, or verifies, the proof that `role` holds the token. */
void handshake_prove(const struct handshake *shake, enum handshake_role role, uint8_t proof[HANDSHAKE_PROOF_BYTES]);
bool handshake_verify(const struct handshake *shake, enum handshake_role role,
                      const uint8_t proof[HANDSHAKE_PROOF_BYTES]);

/* Derives the keys of both directions. */
void handshake_keys(const struct handshake *shake, struct seal *to_server, struct seal *to_client);

/* Seals bytes in place and writes SEAL_TAG_BYTES of tag to data + bytes.  The header is authenticated, not encrypted.
 */
void seal_close(struct seal *seal, uint8_t *data, size_t bytes, const uint8_t *header, size_t header_bytes);

/* Opens bytes (tag included) in place.  Returns false if they are not the next frame that the peer sealed. */
bool seal_open(struct seal *seal, uint8_t *data, size_t bytes, const uint8_t *header, size_t header_bytes);

#endif
