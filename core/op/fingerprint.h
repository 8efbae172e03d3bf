/* What a rank believes the operation to be, in 64 bits that ride on its first messages.  Packed, not hashed, so that
 * the other side can say in words what it found. */
#ifndef FINGERPRINT_H
#define FINGERPRINT_H

#include <stddef.h>
#include <tutti/backend.h>

/* Never 0. */
uint64_t fingerprint_of(const tutti_op *op, int group_size);

/* The bits in which a message's fingerprint has to agree with that of the receive op. */
uint64_t fingerprint_mask(const tutti_op *op);

/* fingerprint with a trace of all operations before it, where there is room: kinds without a root.  Ranks whose calls
 * differed in an operation that ended well on both (two roots that only sent) find that out in a later one. */
uint64_t fingerprint_with_past(uint64_t fingerprint, uint64_t past);

/* The past of the next operation. */
uint64_t fingerprint_past_after(uint64_t past, uint64_t fingerprint);

/* Whether two differ in their past alone. */
bool fingerprint_same_call(uint64_t a, uint64_t b);

/* "all_reduce(float32, SUM, 1024 elements)" */
void fingerprint_describe(uint64_t fingerprint, char *text, size_t size);

#endif
