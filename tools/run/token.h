/* The job token: 32 secret bytes that all ranks and the store's server share. */
#ifndef RUN_TOKEN_H
#define RUN_TOKEN_H

#include <stdint.h>
#include <tutti/store.h>

/* Reads the token from `file`.  If that is NULL, tries TUTTI_TOKEN_FILE, then TUTTI_TOKEN, then makes one if
 * `may_make`. Returns 0, or -1 after a message on stderr. */
int token_find(const char *file, bool may_make, uint8_t token[TUTTI_TOKEN_BYTES]);

/* Returns a sealed close-on-exec descriptor that holds the token from offset 0, or -1 after a message on stderr. */
int token_descriptor(const uint8_t token[TUTTI_TOKEN_BYTES]);

#endif
