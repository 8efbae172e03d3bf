#include "store/wire.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"

void wire_put_u32(uint8_t *out, uint32_t value)
{
    for (int i = 0; i < 4; i++) out[i] = (uint8_t)(value >> 8 * i);
}

uint32_t wire_get_u32(const uint8_t *in)
{
    return (uint32_t)in[0] | (uint32_t)in[1] << 8 | (uint32_t)in[2] << 16 | (uint32_t)in[3] << 24;
}

static void put_i64(uint8_t *out, int64_t value)
{
    wire_put_u32(out, (uint32_t)(uint64_t)value);
    wire_put_u32(out + 4, (uint32_t)((uint64_t)value >> 32));
}

static int64_t get_i64(const uint8_t *in)
{
    return (int64_t)((uint64_t)wire_get_u32(in) | (uint64_t)wire_get_u32(in + 4) << 32);
}

int64_t wire_timeout_ms(int64_t deadline_ns)
{
    if (deadline_ns == CLOCK_NEVER) return TUTTI_INFINITE;
    int64_t left = deadline_ns - clock_now_ns();
    return left <= 0 ? 0 : (left + 999999) / 1000000;
}

static uint8_t *put_bytes(uint8_t *out, const void *data, size_t bytes)
{
    if (bytes > 0) memcpy(out, data, bytes);
    return out + bytes;
}

/* ---- requests ----------------------------------------------------------------------------------------------- */

size_t wire_request_bytes(const struct store_request *request)
{
    size_t bytes = WIRE_REQUEST_HEADER;
    for (int i = 0; i < request->n_keys; i++) bytes += 4 + request->keys[i].bytes;
    for (int i = 0; i < request->n_values; i++) bytes += 4 + request->values[i].bytes;
    return bytes;
}

void wire_put_request(uint8_t *out, const struct store_request *request, int64_t timeout_ms)
{
    memset(out, 0, WIRE_REQUEST_HEADER);
    out[0] = (uint8_t)request->op;
    wire_put_u32(out + 4, (uint32_t)request->n_keys);
    wire_put_u32(out + 8, (uint32_t)request->n_values);
    put_i64(out + 16, request->number);
    put_i64(out + 24, timeout_ms);
    out += WIRE_REQUEST_HEADER;
    for (int i = 0; i < request->n_keys; i++, out += 4) wire_put_u32(out, (uint32_t)request->keys[i].bytes);
    for (int i = 0; i < request->n_values; i++, out += 4) wire_put_u32(out, (uint32_t)request->values[i].bytes);
    for (int i = 0; i < request->n_keys; i++) out = put_bytes(out, request->keys[i].data, request->keys[i].bytes);
    for (int i = 0; i < request->n_values; i++) out = put_bytes(out, request->values[i].data, request->values[i].bytes);
}

/* The keys and values that each operation requires. */
struct request_shape {
    bool many;      /* accepts any number of keys, else exactly one */
    int values;     /* number of values, or -1 for one per key */
    size_t key_min; /* minimum size of a key */
};

static const struct request_shape request_shapes[STORE_OP_END] = {
    [STORE_SET] = {true, -1, 1},          [STORE_GET] = {true, 0, 1},     [STORE_WAIT] = {true, 0, 1},
    [STORE_CHECK] = {true, 0, 1},         [STORE_ADD] = {false, 0, 1},    [STORE_COMPARE_SET] = {false, 2, 1},
    [STORE_DELETE] = {false, 0, 1},       [STORE_APPEND] = {false, 1, 1}, [STORE_NUM_KEYS] = {false, 0, 0},
    [STORE_NUM_REQUESTS] = {false, 0, 0},
};

static bool shape_fits(int op, uint32_t n_keys, uint32_t n_values)
{
    if (op < STORE_SET || op >= STORE_OP_END) return false;
    const struct request_shape *shape = &request_shapes[op];
    if (n_keys < 1 || n_keys > STORE_BATCH_KEYS || (!shape->many && n_keys != 1)) return false;
    return n_values == (shape->values < 0 ? n_keys : (uint32_t)shape->values);
}

static bool is_zero(const uint8_t *in, size_t bytes)
{
    uint8_t any = 0;
    for (size_t i = 0; i < bytes; i++) any |= in[i];
    return any == 0;
}

/* Sets n slices to consecutive parts of [*at, end), whose sizes are at `sizes`, and advances *at.  Returns false if a
 * size is outside low .. high or exceeds the end. */
static bool slice_payload(struct store_slice *slices, uint32_t n, const uint8_t *sizes, size_t low, size_t high,
                          const uint8_t **at, const uint8_t *end)
{
    for (uint32_t i = 0; i < n; i++) {
        size_t bytes = wire_get_u32(sizes + 4 * (size_t)i);
        if (bytes < low || bytes > high || bytes > (size_t)(end - *at)) return false;
        slices[i] = (struct store_slice){*at, bytes};
        *at += bytes;
    }
    return true;
}

int wire_parse_request(const uint8_t *in, size_t bytes, struct store_request *request, struct store_slice **slices,
                       int64_t *timeout_ms)
{
    *slices = NULL;
    if (bytes < WIRE_REQUEST_HEADER || bytes > WIRE_PAYLOAD_MAX) return TUTTI_ERR_INVALID_ARGUMENT;
    uint32_t n_keys = wire_get_u32(in + 4), n_values = wire_get_u32(in + 8);
    *timeout_ms = get_i64(in + 24);
    if (!is_zero(in + 1, 3) || !is_zero(in + 12, 4) || *timeout_ms < 0) return TUTTI_ERR_INVALID_ARGUMENT;
    if (!shape_fits(in[0], n_keys, n_values)) return TUTTI_ERR_INVALID_ARGUMENT;
    size_t n = (size_t)n_keys + n_values;
    if (n > (bytes - WIRE_REQUEST_HEADER) / 4) return TUTTI_ERR_INVALID_ARGUMENT; /* bounds the allocation too */
    *slices = malloc(n * sizeof **slices);
    if (*slices == NULL) return TUTTI_ERR_NO_MEMORY;
    const uint8_t *sizes = in + WIRE_REQUEST_HEADER, *at = sizes + 4 * n, *end = in + bytes;
    *request = (struct store_request){.op = in[0],
                                      .n_keys = (int)n_keys,
                                      .n_values = (int)n_values,
                                      .keys = *slices,
                                      .values = *slices + n_keys,
                                      .number = get_i64(in + 16)};
    size_t low = request_shapes[in[0]].key_min;
    if (slice_payload(*slices, n_keys, sizes, low, TUTTI_STORE_KEY_MAX, &at, end) &&
        slice_payload(*slices + n_keys, n_values, sizes + 4 * (size_t)n_keys, 0, TUTTI_STORE_VALUE_MAX, &at, end) &&
        at == end)
        return TUTTI_OK;
    free(*slices);
    *slices = NULL;
    return TUTTI_ERR_INVALID_ARGUMENT;
}

/* ---- replies ------------------------------------------------------------------------------------------------ */

size_t wire_reply_bytes(const struct store_reply *reply)
{
    size_t bytes = WIRE_REPLY_HEADER + strlen(reply->text);
    for (int i = 0; i < reply->n_values; i++) bytes += 4 + reply->values[i].bytes;
    return bytes;
}

void wire_put_reply(uint8_t *out, const struct store_reply *reply)
{
    size_t text = strlen(reply->text);
    memset(out, 0, WIRE_REPLY_HEADER);
    wire_put_u32(out, (uint32_t)reply->status);
    wire_put_u32(out + 4, (uint32_t)reply->n_values);
    wire_put_u32(out + 8, (uint32_t)text);
    put_i64(out + 16, reply->number);
    out += WIRE_REPLY_HEADER;
    for (int i = 0; i < reply->n_values; i++, out += 4) wire_put_u32(out, (uint32_t)reply->values[i].bytes);
    for (int i = 0; i < reply->n_values; i++) out = put_bytes(out, reply->values[i].data, reply->values[i].bytes);
    put_bytes(out, reply->text, text);
}

static int parse_values(const uint8_t *in, uint32_t n, const uint8_t **at, const uint8_t *end,
                        struct store_reply *reply)
{
    if (n == 0) return TUTTI_OK;
    reply->values = calloc(n, sizeof *reply->values);
    if (reply->values == NULL) return TUTTI_ERR_NO_MEMORY;
    for (uint32_t i = 0; i < n; i++) {
        size_t bytes = wire_get_u32(in + 4 * (size_t)i);
        if (bytes > TUTTI_STORE_VALUE_MAX || bytes > (size_t)(end - *at)) return TUTTI_ERR_INVALID_ARGUMENT;
        void *copy = malloc(bytes > 0 ? bytes : 1);
        if (copy == NULL) return TUTTI_ERR_NO_MEMORY;
        memcpy(copy, *at, bytes);
        reply->values[reply->n_values++] = (tutti_bytes){copy, bytes};
        *at += bytes;
    }
    return TUTTI_OK;
}

int wire_parse_reply(const uint8_t *in, size_t bytes, struct store_reply *reply)
{
    *reply = (struct store_reply){0};
    if (bytes < WIRE_REPLY_HEADER || bytes > WIRE_PAYLOAD_MAX) return TUTTI_ERR_INVALID_ARGUMENT;
    uint32_t n = wire_get_u32(in + 4), text = wire_get_u32(in + 8);
    int32_t status = (int32_t)wire_get_u32(in);
    if (n > STORE_BATCH_KEYS || n > (bytes - WIRE_REPLY_HEADER) / 4 || text >= STORE_TEXT_MAX || status > 0 ||
        status < TUTTI_ERR_NOT_FOUND || !is_zero(in + 12, 4))
        return TUTTI_ERR_INVALID_ARGUMENT;
    const uint8_t *at = in + WIRE_REPLY_HEADER + 4 * (size_t)n, *end = in + bytes;
    int parsed = parse_values(in + WIRE_REPLY_HEADER, n, &at, end, reply);
    if (parsed == TUTTI_OK && ((size_t)(end - at) != text || memchr(at, '\0', text) != NULL))
        parsed = TUTTI_ERR_INVALID_ARGUMENT;
    if (parsed != TUTTI_OK) {
        store_reply_free(reply);
        return parsed;
    }
    memcpy(reply->text, at, text);
    reply->text[text] = '\0';
    reply->status = status;
    reply->number = get_i64(in + 16);
    return TUTTI_OK;
}
