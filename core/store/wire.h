/* Wire format of requests and replies.  Pure functions without I/O or state.  The parsers accept any bytes, read only
 * within them, and reject everything that is inconsistent.  All fields are little-endian.
 *
 *   request  u8 op, u8 zero[3], u32 n_keys, u32 n_values, u32 zero, i64 number, i64 timeout_ms,
 *            u32 size of each key and then of each value, then their bytes in the same order
 *   reply    i32 status, u32 n_values, u32 text size, u32 zero, i64 number,
 *            u32 size of each value, then their bytes, then the text */
#ifndef STORE_WIRE_H
#define STORE_WIRE_H

#include "store/store_impl.h"

enum {
    WIRE_REQUEST_HEADER = 32,
    WIRE_REPLY_HEADER = 24,
    WIRE_PAYLOAD_MAX = 16 << 20 /* limit of a request or a reply */
};
_Static_assert(
    STORE_BATCH_BYTES + STORE_BATCH_KEYS * 800 <= WIRE_PAYLOAD_MAX,
    "a batch fits into a frame, with its sizes and the prefixes that nested prefix stores put before its keys");

void wire_put_u32(uint8_t *out, uint32_t value);
uint32_t wire_get_u32(const uint8_t *in);

/* Returns the time until the deadline in milliseconds, as the wire has it. */
int64_t wire_timeout_ms(int64_t deadline_ns);

size_t wire_request_bytes(const struct store_request *request);
void wire_put_request(uint8_t *out, const struct store_request *request, int64_t timeout_ms);

/* Parses bytes into *request, whose keys and values point into them.  The caller frees *slices, the array of keys and
 * values.  Sets *timeout_ms and leaves deadline_ns 0.  Returns INVALID_ARGUMENT for malformed bytes, or NO_MEMORY,
 * without setting the error message. */
int wire_parse_request(const uint8_t *in, size_t bytes, struct store_request *request, struct store_slice **slices,
                       int64_t *timeout_ms);

size_t wire_reply_bytes(const struct store_reply *reply);
void wire_put_reply(uint8_t *out, const struct store_reply *reply);

/* Parses bytes into *reply, whose values are copies.  Returns INVALID_ARGUMENT for malformed bytes, or NO_MEMORY,
 * without setting the error message. */
int wire_parse_reply(const uint8_t *in, size_t bytes, struct store_reply *reply);

#endif
