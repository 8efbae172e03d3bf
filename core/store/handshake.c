#include "store/handshake.h"

#include <sodium.h>
#include <string.h>

static const uint8_t magic[7] = {'T', 'U', 'T', 'T', 'I', 'S', 'T'};
static const char *const role_purposes[] = {"tutti store client", "tutti store server"};

void handshake_start(struct handshake *shake, enum handshake_role role, uint8_t hello[HANDSHAKE_HELLO_BYTES])
{
    uint8_t *own = role == HANDSHAKE_CLIENT ? shake->client : shake->server;
    token_random(own, 32);
    memcpy(hello, magic, 7);
    hello[7] = HANDSHAKE_VERSION;
    memcpy(hello + 8, own, 32);
}

bool handshake_begins_well(const uint8_t *in, size_t bytes)
{
    return memcmp(in, magic, bytes < 7 ? bytes : 7) == 0;
}

enum handshake_answer handshake_take_hello(struct handshake *shake, enum handshake_role role,
                                           const uint8_t hello[HANDSHAKE_HELLO_BYTES])
{
    if (!handshake_begins_well(hello, HANDSHAKE_HELLO_BYTES)) return HANDSHAKE_NOT_OURS;
    if (hello[7] != HANDSHAKE_VERSION) return HANDSHAKE_OTHER_VERSION;
    memcpy(role == HANDSHAKE_CLIENT ? shake->server : shake->client, hello + 8, 32);
    return HANDSHAKE_OK;
}

/* Input of every MAC and key: purpose, version and both random values.  The purpose is padded to a fixed length, so
 * that no two inputs are ambiguous. */
enum { MESSAGE_PURPOSE = 31, MESSAGE_BYTES = MESSAGE_PURPOSE + 1 + 64 };

static void build_message(const struct handshake *shake, const char *purpose, uint8_t message[MESSAGE_BYTES])
{
    memset(message, 0, MESSAGE_BYTES);
    memcpy(message, purpose, strlen(purpose));
    message[MESSAGE_PURPOSE] = HANDSHAKE_VERSION;
    memcpy(message + MESSAGE_PURPOSE + 1, shake->client, 32);
    memcpy(message + MESSAGE_PURPOSE + 33, shake->server, 32);
}

void handshake_prove(const struct handshake *shake, enum handshake_role role, uint8_t proof[HANDSHAKE_PROOF_BYTES])
{
    uint8_t message[MESSAGE_BYTES];
    build_message(shake, role_purposes[role], message);
    token_mac(proof, shake->token, message, sizeof message);
}

bool handshake_verify(const struct handshake *shake, enum handshake_role role,
                      const uint8_t proof[HANDSHAKE_PROOF_BYTES])
{
    uint8_t expected[HANDSHAKE_PROOF_BYTES];
    handshake_prove(shake, role, expected);
    return token_equal(expected, proof);
}

static void derive_key(const struct handshake *shake, const char *purpose, struct seal *seal)
{
    uint8_t message[MESSAGE_BYTES];
    build_message(shake, purpose, message);
    token_mac(seal->key, shake->token, message, sizeof message);
    seal->number = 0;
}

void handshake_keys(const struct handshake *shake, struct seal *to_server, struct seal *to_client)
{
    derive_key(shake, "tutti store key to server", to_server);
    derive_key(shake, "tutti store key to client", to_client);
}

/* Writes the next nonce.  A key serves one connection and one direction, so the sequence number is sufficient. */
static void next_nonce(struct seal *seal, uint8_t nonce[crypto_aead_chacha20poly1305_ietf_NPUBBYTES])
{
    memset(nonce, 0, crypto_aead_chacha20poly1305_ietf_NPUBBYTES);
    for (int i = 0; i < 8; i++) nonce[i] = (uint8_t)(seal->number >> 8 * i);
    seal->number++;
}

void seal_close(struct seal *seal, uint8_t *data, size_t bytes, const uint8_t *header, size_t header_bytes)
{
    uint8_t nonce[crypto_aead_chacha20poly1305_ietf_NPUBBYTES];
    next_nonce(seal, nonce);
    crypto_aead_chacha20poly1305_ietf_encrypt_detached(data, data + bytes, NULL, data, bytes, header, header_bytes,
                                                       NULL, nonce, seal->key);
}

bool seal_open(struct seal *seal, uint8_t *data, size_t bytes, const uint8_t *header, size_t header_bytes)
{
    uint8_t nonce[crypto_aead_chacha20poly1305_ietf_NPUBBYTES];
    if (bytes < SEAL_TAG_BYTES) return false;
    size_t plain = bytes - SEAL_TAG_BYTES;
    next_nonce(seal, nonce);
    return crypto_aead_chacha20poly1305_ietf_decrypt_detached(data, NULL, data, plain, data + plain, header,
                                                              header_bytes, nonce, seal->key) == 0;
}
