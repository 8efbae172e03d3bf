/* Requests and replies as bytes.  Pure functions: no I/O, no state; whatever the bytes, a parse reads only inside of
 * them and refuses what does not add up.  All fields are little-endian.
 *
 *   request  u8 op, u8 zero[3], u32 n_keys, u32 n_values, u32 zero, i64 number, i64 timeout_ms,
 *            u32 size of each key and then of each value, then their bytes in the same order
 *   reply    i32 status, u32 n_values, u32 text size, u32 zero, i64 number,
 *            u32 size of each value, then their bytes, then the text
 */
#ifndef STORE_WIRE_H
#define STORE_WIRE_H

#include "store/store_impl.h"

enum {
    WIRE_REQUEST_HEADER = 32,
    WIRE_REPLY_HEADER = 24,
    WIRE_PAYLOAD_MAX = 16 << 20 /* a request or a reply */
};
_Static_assert(
    STORE_BATCH_BYTES + STORE_BATCH_KEYS * 800 <= WIRE_PAYLOAD_MAX,
    "a batch fits into a frame, with its sizes and the prefixes that nested prefix stores put before its keys");

void wire_put_u32(uint8_t *out, uint32_t value);
uint32_t wire_get_u32(const uint8_t *in);

/* How long a deadline is from now, in the wire's milliseconds. */
int64_t wire_timeout_ms(int64_t deadline_ns);

size_t wire_request_bytes(const struct store_request *request);
void wire_put_request(uint8_t *out, const struct store_request *request, int64_t timeout_ms);

/* Parses bytes into *request, whose keys point into them and whose array, at *slices, the caller frees.  deadline_ns is
 * left 0 and *timeout_ms set.  INVALID_ARGUMENT: the bytes are no request; NO_MEMORY.  Sets no sentence. */
int wire_parse_request(const uint8_t *in, size_t bytes, struct store_request *request, struct store_slice **slices,
                       int64_t *timeout_ms);

size_t wire_reply_bytes(const struct store_reply *reply);
void wire_put_reply(uint8_t *out, const struct store_reply *reply);

/* Parses bytes into *reply, whose values are copies.  INVALID_ARGUMENT: the bytes are no reply; NO_MEMORY. */
int wire_parse_reply(const uint8_t *in, size_t bytes, struct store_reply *reply);

#endif
