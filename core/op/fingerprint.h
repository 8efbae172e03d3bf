/* Packs a rank's view of an operation into 64 bits that travel with its first messages.  They are packed and not
 * hashed, so that the other side can describe the differing call in an error message. */
#ifndef FINGERPRINT_H
#define FINGERPRINT_H

#include <stddef.h>
#include <tutti/backend.h>

/* Returns the fingerprint, which is never 0. */
uint64_t fingerprint_of(const tutti_op *op, int group_size);

/* Returns a mask of the bits in which a message's fingerprint must agree with the receive op's. */
uint64_t fingerprint_mask(const tutti_op *op);

/* Adds a hash of all earlier operations to the fingerprint's unused field, if it has one.  Two ranks may make
 * different calls that both succeed, for example if each broadcasts as the root.  This hash makes a later operation
 * fail. */
uint64_t fingerprint_with_past(uint64_t fingerprint, uint64_t past);

/* Returns the hash for the next operation. */
uint64_t fingerprint_past_after(uint64_t past, uint64_t fingerprint);

/* True if two fingerprints differ at most in the hash of earlier operations. */
bool fingerprint_same_call(uint64_t a, uint64_t b);

/* Writes the fingerprint as text, such as "all_reduce(float32, SUM, 1024 elements)". */
void fingerprint_describe(uint64_t fingerprint, char *text, size_t size);

#endif
