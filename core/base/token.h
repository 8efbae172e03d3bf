/* The job token: 32 secret bytes that all ranks of a job share, and the proofs made with them.  All cryptography is
 * libsodium's. */
#ifndef BASE_TOKEN_H
#define BASE_TOKEN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <tutti/types.h>

enum { TOKEN_BYTES = 32, TOKEN_MAC_BYTES = 32 };

/* Initialises libsodium; must precede every other call here or in libsodium.  May be called from any thread,
 * repeatedly.  Returns SYSTEM if there is no source of randomness. */
int token_init(void);

/* Reads the token from the environment: TUTTI_TOKEN_FD (an inherited descriptor, which stays open), else
 * TUTTI_TOKEN_FILE (a file of this user that no other user can open), else TUTTI_TOKEN (64 hexadecimal digits), else
 * the adopted one.  A descriptor or file holds 32 raw bytes or 64 digits.  If there is none, *present is false and out
 * is zero.  Returns INVALID_ARGUMENT or SYSTEM, with what is wrong with the source.  No error message contains any part
 * of a token. */
int token_get(uint8_t out[TOKEN_BYTES], bool *present);

/* The same, without the adopted one. */
int token_get_given(uint8_t out[TOKEN_BYTES], bool *present);

/* Sets the token that token_get returns if the environment has none: it was received through the launcher. */
void token_adopt(const uint8_t token[TOKEN_BYTES]);

/* Computes the authentication code of message under token. */
void token_mac(uint8_t mac[TOKEN_MAC_BYTES], const uint8_t token[TOKEN_BYTES], const void *message, size_t bytes);

/* True if two codes or tokens are equal.  Takes constant time. */
bool token_equal(const uint8_t a[TOKEN_BYTES], const uint8_t b[TOKEN_BYTES]);

/* True if token is all zero, which means "no token". */
bool token_is_none(const uint8_t token[TOKEN_BYTES]);

/* Fills buffer with random bytes for keys and nonces. */
void token_random(void *buffer, size_t bytes);

/* Overwrites secret bytes with stores that the compiler cannot remove. */
void token_wipe(void *buffer, size_t bytes);

#endif
