/* The job token: 32 secret bytes that all ranks of one job share, and what is proved with them.
 *
 * Crypto is libsodium's; nothing here is of our own making.
 */
#ifndef BASE_TOKEN_H
#define BASE_TOKEN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <tutti/types.h>

enum { TOKEN_BYTES = 32, TOKEN_MAC_BYTES = 32 };

/* Makes libsodium ready; call it before anything else here or of libsodium.  Any thread, any number of times.
 * SYSTEM where there is no source of randomness. */
int token_init(void);

/* The token of the environment: TUTTI_TOKEN_FD (an inherited descriptor, which stays open), else TUTTI_TOKEN_FILE (a
 * file of ours that nobody else can open), else TUTTI_TOKEN (64 hexadecimal digits).  A descriptor or file holds 32
 * raw bytes or 64 digits.  With none of them *present is false and out is zero.  INVALID_ARGUMENT or SYSTEM say what is
 * wrong with the one that is set; no sentence ever holds a part of a token. */
int token_get(uint8_t out[TOKEN_BYTES], bool *present);

/* Makes token the one that token_get finds where the environment has none: it came by another safe way. */
void token_adopt(const uint8_t token[TOKEN_BYTES]);

/* The authentication code of message under token. */
void token_mac(uint8_t mac[TOKEN_MAC_BYTES], const uint8_t token[TOKEN_BYTES], const void *message, size_t bytes);

/* Compares in constant time: for codes and tokens. */
bool token_equal(const uint8_t a[TOKEN_BYTES], const uint8_t b[TOKEN_BYTES]);

/* Whether token is all zero, which stands for "no token". */
bool token_is_none(const uint8_t token[TOKEN_BYTES]);

/* Fills buffer with random bytes fit for keys and nonces. */
void token_random(void *buffer, size_t bytes);

/* Overwrites bytes that were secret; the compiler does not drop it. */
void token_wipe(void *buffer, size_t bytes);

#endif
