/* The store's parsers on good, cut and altered bytes, and on noise.  The seal. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "store/handshake.h"
#include "store/wire.h"

/* Parses a copy at the end of its allocation, so that a sanitizer sees a read beyond it. */
static int parse_request_copy(const uint8_t *in, size_t bytes)
{
    struct store_request request;
    struct store_slice *slices;
    int64_t timeout_ms;
    uint8_t *copy = malloc(bytes + (bytes == 0));
    memcpy(copy, in, bytes);
    int status = wire_parse_request(copy, bytes, &request, &slices, &timeout_ms);
    if (status == TUTTI_OK) {
        volatile uint8_t sum = 0;
        for (int i = 0; i < request.n_keys + request.n_values; i++)
            for (size_t k = 0; k < slices[i].bytes; k++) sum += ((const uint8_t *)slices[i].data)[k];
        (void)sum;
    } else {
        assert_null(slices);
    }
    free(slices);
    free(copy);
    return status;
}

static int parse_reply_copy(const uint8_t *in, size_t bytes)
{
    struct store_reply reply;
    uint8_t *copy = malloc(bytes + (bytes == 0));
    memcpy(copy, in, bytes);
    int status = wire_parse_reply(copy, bytes, &reply);
    store_reply_free(&reply);
    free(copy);
    return status;
}

static void test_request_round_trip(void **state)
{
    (void)state;
    struct store_slice keys[] = {{"a", 1}, {"bcd", 3}}, values[] = {{"", 0}, {"12345", 5}};
    struct store_request in = {
        .op = STORE_SET, .n_keys = 2, .keys = keys, .n_values = 2, .values = values, .number = -7};
    struct store_request out;
    struct store_slice *slices;
    int64_t timeout_ms;
    uint8_t bytes[256];
    size_t n = wire_request_bytes(&in);
    wire_put_request(bytes, &in, 12345);
    assert_int_equal(wire_parse_request(bytes, n, &out, &slices, &timeout_ms), TUTTI_OK);
    assert_int_equal(out.op, STORE_SET);
    assert_int_equal(out.number, -7);
    assert_int_equal(timeout_ms, 12345);
    assert_int_equal(out.keys[1].bytes, 3);
    assert_memory_equal(out.keys[1].data, "bcd", 3);
    assert_int_equal(out.values[0].bytes, 0);
    assert_memory_equal(out.values[1].data, "12345", 5);
    free(slices);
    for (size_t cut = 0; cut < n; cut++) assert_int_equal(parse_request_copy(bytes, cut), TUTTI_ERR_INVALID_ARGUMENT);
    assert_int_equal(parse_request_copy(bytes, n + 1), TUTTI_ERR_INVALID_ARGUMENT);
}

static void test_request_shapes(void **state)
{
    (void)state;
    struct store_slice slices[3] = {{"k", 1}, {"v", 1}, {"w", 1}};
    uint8_t bytes[256];
    int good = 0;
    for (int op = 0; op < 256; op++)
        for (int keys = 0; keys < 4; keys++)
            for (int values = 0; values < 4; values++) {
                struct store_request in = {
                    .op = op, .n_keys = keys, .keys = slices, .n_values = values, .values = slices};
                if (keys > 3 || values > 3) continue;
                wire_put_request(bytes, &in, 0);
                good += parse_request_copy(bytes, wire_request_bytes(&in)) == TUTTI_OK;
            }
    assert_int_equal(good, 3 + 3 * 3 + 6); /* set; get, wait, check; the six operations of one key */
}

static void put_u64(uint8_t *out, uint32_t low, uint32_t high)
{
    wire_put_u32(out, low);
    wire_put_u32(out + 4, high);
}

static void test_request_lies(void **state)
{
    (void)state;
    struct store_slice key = {"key", 3};
    struct store_request in = {.op = STORE_GET, .n_keys = 1, .keys = &key};
    uint8_t good[256], bad[256];
    size_t n = wire_request_bytes(&in);
    wire_put_request(good, &in, 1);
    assert_int_equal(parse_request_copy(good, n), TUTTI_OK);
    static const uint32_t lies[] = {0, 2, 4, 100, 8193, 0x3fffffff, 0x7fffffff, 0x80000000, 0xffffffff};
    for (size_t i = 0; i < sizeof lies / sizeof *lies; i++) {
        memcpy(bad, good, sizeof bad);
        wire_put_u32(bad + WIRE_REQUEST_HEADER, lies[i]); /* the key's size */
        assert_int_equal(parse_request_copy(bad, n), TUTTI_ERR_INVALID_ARGUMENT);
        memcpy(bad, good, sizeof bad);
        wire_put_u32(bad + 4, lies[i]); /* the number of keys */
        assert_int_equal(parse_request_copy(bad, n), TUTTI_ERR_INVALID_ARGUMENT);
        if (lies[i] == 0) continue;
        memcpy(bad, good, sizeof bad);
        wire_put_u32(bad + 8, lies[i]); /* the number of values */
        assert_int_equal(parse_request_copy(bad, n), TUTTI_ERR_INVALID_ARGUMENT);
    }
    memcpy(bad, good, sizeof bad);
    put_u64(bad + 24, 0, 0x80000000); /* a negative timeout */
    assert_int_equal(parse_request_copy(bad, n), TUTTI_ERR_INVALID_ARGUMENT);
    memcpy(bad, good, sizeof bad);
    bad[2] = 1; /* must be zero */
    assert_int_equal(parse_request_copy(bad, n), TUTTI_ERR_INVALID_ARGUMENT);
}

static void test_reply_round_trip(void **state)
{
    (void)state;
    tutti_bytes values[] = {{"one", 3}, {"", 0}};
    struct store_reply in = {.status = TUTTI_ERR_TIMEOUT, .number = INT64_MIN, .n_values = 2, .values = values}, out;
    uint8_t bytes[256];
    strcpy(in.text, "why");
    size_t n = wire_reply_bytes(&in);
    wire_put_reply(bytes, &in);
    assert_int_equal(wire_parse_reply(bytes, n, &out), TUTTI_OK);
    assert_int_equal(out.status, TUTTI_ERR_TIMEOUT);
    assert_true(out.number == INT64_MIN);
    assert_string_equal(out.text, "why");
    assert_int_equal(out.n_values, 2);
    assert_memory_equal(out.values[0].data, "one", 3);
    store_reply_free(&out);
    for (size_t cut = 0; cut < n; cut++) assert_int_equal(parse_reply_copy(bytes, cut), TUTTI_ERR_INVALID_ARGUMENT);
    wire_put_u32(bytes, 1); /* a positive status */
    assert_int_equal(parse_reply_copy(bytes, n), TUTTI_ERR_INVALID_ARGUMENT);
    wire_put_u32(bytes, (uint32_t)-99);
    assert_int_equal(parse_reply_copy(bytes, n), TUTTI_ERR_INVALID_ARGUMENT);
}

/* Noise, and good frames with a few altered bytes: no crash, and no read outside. */
static void test_noise(void **state)
{
    (void)state;
    struct store_slice keys[] = {{"a", 1}, {"bcd", 3}}, values[] = {{"", 0}, {"12345", 5}};
    struct store_request request = {.op = STORE_SET, .n_keys = 2, .keys = keys, .n_values = 2, .values = values};
    uint8_t good[256], bytes[256];
    size_t n = wire_request_bytes(&request);
    wire_put_request(good, &request, 0);
    srand(1);
    for (int i = 0; i < 100000; i++) {
        size_t length = i % 2 ? n : (size_t)(rand() % 256);
        for (size_t k = 0; k < sizeof bytes; k++) bytes[k] = i % 2 ? good[k] : (uint8_t)(rand() % 8 ? 0 : rand());
        for (int k = rand() % 4; i % 2 && k >= 0; k--) bytes[(size_t)rand() % n] = (uint8_t)rand();
        parse_request_copy(bytes, length);
        parse_reply_copy(bytes, length);
    }
}

static void test_seal(void **state)
{
    (void)state;
    struct seal out = {.key = {1}}, in = out, other = {.key = {2}};
    uint8_t header[4] = {5, 6, 7, 8}, first[5 + SEAL_TAG_BYTES], second[5 + SEAL_TAG_BYTES], copy[5 + SEAL_TAG_BYTES];
    memcpy(first, "hello", 5);
    memcpy(second, "hello", 5);
    seal_close(&out, first, 5, header, 4);
    seal_close(&out, second, 5, header, 4);
    assert_memory_not_equal(first, second, 5); /* the same text under another number */
    memcpy(copy, first, sizeof copy);
    assert_false(seal_open(&other, copy, sizeof copy, header, 4));
    memcpy(copy, first, sizeof copy);
    assert_true(seal_open(&in, copy, sizeof copy, header, 4));
    assert_memory_equal(copy, "hello", 5);
    assert_false(seal_open(&in, first, sizeof first, header, 4)); /* repeated */
    in.number = 1;
    memcpy(copy, second, sizeof copy);
    header[0]++;
    assert_false(seal_open(&in, copy, sizeof copy, header, 4)); /* another header */
    header[0]--;
    in.number = 1;
    memcpy(copy, second, sizeof copy);
    assert_true(seal_open(&in, copy, sizeof copy, header, 4));
    assert_false(seal_open(&in, copy, SEAL_TAG_BYTES - 1, header, 4));
}

static void test_handshake(void **state)
{
    (void)state;
    struct handshake client = {.token = {1}}, server = {.token = {1}};
    uint8_t from_client[HANDSHAKE_HELLO_BYTES], from_server[HANDSHAKE_HELLO_BYTES], proof[HANDSHAKE_PROOF_BYTES];
    struct seal a_out, a_in, b_out, b_in;
    handshake_start(&client, HANDSHAKE_CLIENT, from_client);
    handshake_start(&server, HANDSHAKE_SERVER, from_server);
    assert_int_equal(handshake_take_hello(&server, HANDSHAKE_SERVER, from_client), HANDSHAKE_OK);
    assert_int_equal(handshake_take_hello(&client, HANDSHAKE_CLIENT, from_server), HANDSHAKE_OK);
    handshake_prove(&client, HANDSHAKE_CLIENT, proof);
    assert_true(handshake_verify(&server, HANDSHAKE_CLIENT, proof));
    assert_false(handshake_verify(&client, HANDSHAKE_SERVER, proof)); /* reflected: no proof */
    proof[31] ^= 1;
    assert_false(handshake_verify(&server, HANDSHAKE_CLIENT, proof));
    handshake_keys(&client, &a_out, &a_in);
    handshake_keys(&server, &b_in, &b_out);
    assert_memory_equal(a_out.key, b_in.key, 32);
    assert_memory_equal(a_in.key, b_out.key, 32);
    assert_memory_not_equal(a_in.key, a_out.key, 32);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_request_round_trip),
        cmocka_unit_test(test_request_shapes),
        cmocka_unit_test(test_request_lies),
        cmocka_unit_test(test_reply_round_trip),
        cmocka_unit_test(test_noise),
        cmocka_unit_test(test_seal),
        cmocka_unit_test(test_handshake),
    };
    return token_init() == TUTTI_OK ? cmocka_run_group_tests(tests, NULL, NULL) : 1;
}
