/* The tcp backend's messages: a written message can be read, and a message with a field out of range is refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "../../backends/tcp/base/peer_handshake.c"
#include "../../backends/tcp/net/wire.c"
#include "../../backends/tcp/p2p/kinds.c"

enum { WORLD = 4 };

/* One well-formed message of each kind. */
static const struct transport_header good[] = {
    {.kind = KIND_EAGER, .source = 3, .group = 7, .tag = UINT64_MAX, .bytes = 5, .fingerprint = 9, .credit = 11},
    {.kind = KIND_RTS, .source = 0, .group = 1, .tag = 2, .bytes = (uint64_t)1 << 40, .fingerprint = 3, .id = 4},
    {.kind = KIND_CTS, .source = 1, .group = 1, .tag = 2, .bytes = 3, .fingerprint = 4, .id = 5, .ref = 6},
    {.kind = KIND_CTS, .source = 1, .group = 1, .tag = 2, .bytes = 3, .fingerprint = 4, .id = 5},
    {.kind = KIND_NACK_SEND, .source = 1, .bytes = 3, .fingerprint = 4, .ref = 6, .flags = KIND_WITHDRAWN},
    {.kind = KIND_NACK_RECV, .source = 1, .bytes = 3, .fingerprint = 4, .ref = 6, .flags = KIND_WITHDRAWN},
    {.kind = KIND_CREDIT, .source = 2, .credit = 1},
    {.kind = KIND_CONTROL, .source = 2, .group = 3, .bytes = KIND_CONTROL_MAX},
    {.kind = KIND_BYE, .source = 2},
    {.kind = KIND_REVOKE, .source = 2, .ref = 1},
    {.kind = KIND_REVOKED, .source = 2, .ref = 1},
    {.kind = KIND_CANCEL_RTS, .source = 2, .ref = 1},
    {.kind = KIND_RTS_READ,
     .source = 1,
     .group = 1,
     .tag = 2,
     .bytes = 3,
     .fingerprint = 4,
     .id = 5,
     .ref = 0x7f0000000000},
    {.kind = KIND_CANCEL_READ, .source = 1, .ref = 5},
    {.kind = KIND_FIN, .source = 1, .ref = 5, .flags = KIND_WITHDRAWN},
};
enum { GOOD = sizeof good / sizeof *good };

/* Parses a message as if it came from the network. */
static bool parse(const void *message, size_t n, struct transport_header *header)
{
    return wire_parse(message, n, header) && kind_is_valid(header, n - WIRE_HEADER, WORLD);
}

static size_t whole(const struct transport_header *header)
{
    bool payload = header->kind == KIND_EAGER || header->kind == KIND_CONTROL;
    return WIRE_HEADER + (payload ? header->bytes : 0);
}

/* Writes header into a block of exactly n bytes, so that a sanitizer sees a read beyond it, and parses it. */
static bool parses(const struct transport_header *header, size_t n)
{
    uint8_t out[WIRE_HEADER], *block = calloc(1, n > 0 ? n : 1);
    struct transport_header read;
    wire_encode(out, header);
    memcpy(block, out, n < WIRE_HEADER ? n : WIRE_HEADER);
    bool fine = parse(block, n, &read);
    free(block);
    return fine;
}

static void test_round_trip(void **state)
{
    (void)state;
    for (int i = 0; i < GOOD; i++) {
        uint8_t out[WIRE_HEADER + TRANSPORT_PAYLOAD_MAX] = {0};
        struct transport_header read = {0};
        wire_encode(out, &good[i]);
        assert_true(parse(out, whole(&good[i]), &read));
        assert_int_equal(read.kind, good[i].kind);
        assert_int_equal(read.flags, good[i].flags);
        assert_int_equal(read.source, good[i].source);
        assert_true(read.group == good[i].group && read.tag == good[i].tag && read.bytes == good[i].bytes);
        assert_true(read.fingerprint == good[i].fingerprint && read.id == good[i].id && read.ref == good[i].ref);
        assert_true(read.credit == good[i].credit);
    }
}

static void test_bytes_are_little_endian(void **state)
{
    (void)state;
    uint8_t out[WIRE_HEADER];
    struct transport_header header = {.kind = KIND_RTS, .source = 0x01020304, .tag = 0x1122334455667788};
    wire_encode(out, &header);
    assert_int_equal(out[4], 4);
    assert_int_equal(out[7], 1);
    assert_int_equal(out[16], 0x88);
    assert_int_equal(out[23], 0x11);
}

static void test_lengths(void **state)
{
    (void)state;
    for (int i = 0; i < GOOD; i++) {
        for (size_t n = 0; n < WIRE_HEADER; n++) assert_false(parses(&good[i], n));
        assert_true(parses(&good[i], whole(&good[i])));
        assert_false(parses(&good[i], whole(&good[i]) + 1));
        if (whole(&good[i]) > WIRE_HEADER) assert_false(parses(&good[i], whole(&good[i]) - 1));
    }
    struct transport_header large = {.kind = KIND_EAGER, .bytes = TRANSPORT_PAYLOAD_MAX};
    assert_true(parses(&large, whole(&large)));
    large.bytes++;
    assert_false(parses(&large, whole(&large)));
    large = (struct transport_header){.kind = KIND_CONTROL, .bytes = KIND_CONTROL_MAX + 1};
    assert_false(parses(&large, whole(&large)));
    large = (struct transport_header){.kind = KIND_EAGER, .bytes = UINT64_MAX - WIRE_HEADER + 1}; /* wraps to 0 */
    assert_false(parses(&large, WIRE_HEADER));
}

/* A CTS of a large message may ask for a write of several parts. */
static void test_parts(void **state)
{
    (void)state;
    struct transport_header cts = {.kind = KIND_CTS, .source = 1, .bytes = TRANSPORT_PAYLOAD_MAX + 1, .id = 5};
    for (unsigned flags = 0; flags < 256; flags++) {
        cts.flags = (uint8_t)flags;
        assert_true(parses(&cts, WIRE_HEADER) == (flags < TRANSPORT_PARTS_MAX));
    }
    cts.flags = 1;
    cts.bytes = TRANSPORT_PAYLOAD_MAX;
    assert_false(parses(&cts, WIRE_HEADER));
}

static void test_unused_fields_must_be_zero(void **state)
{
    (void)state;
    for (int i = 0; i < GOOD; i++) {
        uint8_t out[WIRE_HEADER + TRANSPORT_PAYLOAD_MAX] = {0};
        struct transport_header read;
        /* bytes 8 .. 55 are fields that some kinds use, and byte 3 is flags */
        for (int field = 8; field < 56; field += 8) {
            wire_encode(out, &good[i]);
            bool used = get_u64(out + field) != 0;
            bool may_have_ref = good[i].kind == KIND_CTS || good[i].kind == KIND_EAGER;
            if (may_have_ref && field == 48) continue;
            out[field] = (uint8_t)(out[field] + 1);
            bool fine = parse(out, whole(&good[i]), &read);
            if (!used) assert_false(fine);
        }
        wire_encode(out, &good[i]);
        out[3] = 2;
        assert_false(parse(out, whole(&good[i]), &read));
    }
}

static void test_ranges(void **state)
{
    (void)state;
    for (int i = 0; i < GOOD; i++) {
        struct transport_header header = good[i];
        header.source = WORLD;
        assert_false(parses(&header, whole(&good[i])));
        header.source = UINT32_MAX;
        assert_false(parses(&header, whole(&good[i])));
        uint8_t out[WIRE_HEADER + TRANSPORT_PAYLOAD_MAX] = {0};
        struct transport_header read;
        for (int at = 0; at < 3; at++) { /* magic, version and kind */
            for (int bit = at == 2 ? 4 : 0; bit < 8; bit++) {
                wire_encode(out, &good[i]);
                out[at] ^= (uint8_t)(1 << bit);
                assert_false(parse(out, whole(&good[i]), &read));
            }
        }
        for (int kind = 0; kind < 16; kind++) {
            if (kind > 0 && kind < KINDS) continue;
            wire_encode(out, &good[i]);
            out[2] = (uint8_t)((out[2] & 0xf0) | kind);
            assert_false(parse(out, whole(&good[i]), &read));
        }
    }
    struct transport_header header = good[1];
    header.bytes = (uint64_t)INT64_MAX + 1;
    assert_false(parses(&header, WIRE_HEADER));
    header = good[1];
    header.id = 0;
    assert_false(parses(&header, WIRE_HEADER));
    header = good[4];
    header.ref = 0;
    assert_false(parses(&header, WIRE_HEADER));
}

/* Whatever arrives, nothing beyond it is read, and accepted fields are in range. */
static void test_noise(void **state)
{
    (void)state;
    srand(1);
    for (int i = 0; i < 200000; i++) {
        size_t n = (size_t)(rand() % (WIRE_HEADER + 40));
        uint8_t *block = malloc(n > 0 ? n : 1);
        for (size_t k = 0; k < n; k++) block[k] = (uint8_t)rand();
        if (n >= 8 && rand() % 2) { /* gets beyond the first checks */
            wire_encode((uint8_t[WIRE_HEADER]){0}, &good[0]);
            block[0] = 0x54;
            block[1] = 0x75;
            block[2] = (uint8_t)(TRANSPORT_VERSION << 4 | rand() % 16);
            block[3] = 0;
            memcpy(block + 4, (uint8_t[4]){(uint8_t)(rand() % 6)}, 4);
        }
        struct transport_header header;
        if (parse(block, n, &header)) {
            assert_true(header.source < WORLD && header.kind > 0 && header.kind < KINDS);
            assert_true(whole(&header) == n);
        }
        free(block);
    }
}

static void test_handshake(void **state)
{
    (void)state;
    struct peer_handshake handshake = {
        .kind = HANDSHAKE_ACCEPT, .from = 1, .to = 2, .world_size = 3, .tree_id = 0x123456789a};
    for (int i = 0; i < HANDSHAKE_NONCE; i++) {
        handshake.client_nonce[i] = (uint8_t)(i + 1);
        handshake.server_nonce[i] = (uint8_t)(i + 50);
    }
    for (int i = 0; i < HANDSHAKE_MAC; i++) handshake.mac[i] = (uint8_t)(i + 100);
    uint8_t out[HANDSHAKE_BYTES + 1];
    struct peer_handshake read;
    peer_handshake_encode(out, &handshake);
    assert_true(peer_handshake_parse(out, HANDSHAKE_BYTES, &read));
    assert_int_equal(read.kind, HANDSHAKE_ACCEPT);
    assert_true(read.from == 1 && read.to == 2 && read.world_size == 3 && read.tree_id == 0x123456789a);
    assert_memory_equal(read.client_nonce, handshake.client_nonce, HANDSHAKE_NONCE);
    assert_memory_equal(read.server_nonce, handshake.server_nonce, HANDSHAKE_NONCE);
    assert_memory_equal(read.mac, handshake.mac, HANDSHAKE_MAC);
    for (size_t n = 0; n < HANDSHAKE_BYTES; n++) assert_false(peer_handshake_parse(out, n, &read));
    assert_false(peer_handshake_parse(out, HANDSHAKE_BYTES + 1, &read));
    for (int at = 0; at < 12; at++) { /* magic and version */
        out[at] ^= 1;
        assert_false(peer_handshake_parse(out, HANDSHAKE_BYTES, &read));
        out[at] ^= 1;
    }
    struct peer_handshake bad = handshake;
    bad.kind = 0;
    peer_handshake_encode(out, &bad);
    assert_false(peer_handshake_parse(out, HANDSHAKE_BYTES, &read));
    bad.kind = HANDSHAKE_RAIL_LAST + 1;
    peer_handshake_encode(out, &bad);
    assert_false(peer_handshake_parse(out, HANDSHAKE_BYTES, &read));
    bad = handshake;
    bad.from = 3;
    peer_handshake_encode(out, &bad);
    assert_false(peer_handshake_parse(out, HANDSHAKE_BYTES, &read));
    bad = handshake;
    bad.to = bad.from;
    peer_handshake_encode(out, &bad);
    assert_false(peer_handshake_parse(out, HANDSHAKE_BYTES, &read));
}

static bool entry_parses(const struct wire_address *address, const struct wire_rails *rails)
{
    struct wire_address read;
    struct wire_rails others;
    uint8_t out[WIRE_ENTRY_MAX];
    size_t n = wire_address_encode(out, address, rails);
    return wire_address_parse(out, n, &read, &others);
}

static void test_address(void **state)
{
    (void)state;
    struct wire_address address = {.family = 4, .port = 65535, .ip = {127, 0, 0, 1}, .nonce = {1, 2, 3}, .host = 7},
                        read;
    struct wire_rails none = {.n = 0}, others;
    uint8_t out[WIRE_ENTRY_MAX];
    assert_int_equal(wire_address_encode(out, &address, &none), WIRE_ADDRESS);
    assert_true(wire_address_parse(out, WIRE_ADDRESS, &read, &others));
    assert_true(read.family == 4 && read.port == 65535 && read.host == 7 && others.n == 0);
    assert_memory_equal(read.ip, address.ip, 16);
    assert_memory_equal(read.nonce, address.nonce, HANDSHAKE_NONCE);
    for (size_t n = 0; n < WIRE_ENTRY_MAX; n++)
        assert_true(wire_address_parse(out, n, &read, &others) == (n == WIRE_ADDRESS));
    out[17 + 2] = 1; /* a port beyond 65535 */
    assert_false(wire_address_parse(out, WIRE_ADDRESS, &read, &others));
    address.port = 0;
    assert_false(entry_parses(&address, &none));
    address.port = 1;
    address.ip[4] = 1; /* IPv4 has four bytes */
    assert_false(entry_parses(&address, &none));
    address.family = 6;
    assert_true(entry_parses(&address, &none));
    address.family = 5;
    assert_false(entry_parses(&address, &none));
}

/* An entry lists at most three further interfaces, and exactly as many as it says. */
static void test_rails(void **state)
{
    (void)state;
    struct wire_address address = {.family = 4, .port = 1, .ip = {10, 0, 0, 1}}, read;
    struct wire_rails rails = {.n = 3, .at = {{.port = 2, .ip = {10, 1}}, {3, {10, 2}}, {65535, {10, 3}}}}, others;
    uint8_t out[WIRE_ENTRY_MAX];
    size_t bytes = wire_address_encode(out, &address, &rails);
    assert_int_equal(bytes, WIRE_ADDRESS + 3 * WIRE_RAIL);
    assert_true(wire_address_parse(out, bytes, &read, &others));
    assert_int_equal(others.n, 3);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(others.at[i].port, rails.at[i].port);
        assert_memory_equal(others.at[i].ip, rails.at[i].ip, 16);
    }
    for (size_t n = 0; n <= WIRE_ENTRY_MAX; n++)
        assert_true(wire_address_parse(out, n, &read, &others) == (n == bytes));
    out[20] = 4;
    assert_false(wire_address_parse(out, sizeof out, &read, &others));
    rails.at[1].port = 0;
    assert_false(entry_parses(&address, &rails));
    rails.at[1].port = 1;
    rails.at[2].ip[4] = 1;
    assert_false(entry_parses(&address, &rails));
}

/* ---- datagrams ----------------------------------------------------------------------------------------------- */

static bool envelope_parses(const struct wire_envelope *envelope, size_t n)
{
    uint8_t out[WIRE_ENVELOPE + TRANSPORT_PAYLOAD_MAX] = {0};
    struct wire_envelope read;
    wire_envelope_encode(out, envelope);
    return wire_envelope_parse(out, n, WORLD, &read) && read.kind == envelope->kind && read.key == envelope->key;
}

/* Each kind with the fields that it needs, then without one, or with one that it must not have. */
static void test_envelopes(void **state)
{
    (void)state;
    for (int kind = 1; kind < WIRE_ENVELOPES; kind++) {
        bool greets = kind <= WIRE_WELCOME, has_key = kind == WIRE_PIECE || kind >= WIRE_OFFER;
        bool is_empty = kind == WIRE_HEARTBEAT || kind == WIRE_END || kind > WIRE_OFFER;
        size_t n = WIRE_ENVELOPE + (kind == WIRE_OFFER ? WIRE_OFFER_BODY : 0);
        struct wire_envelope valid = {.kind = (uint8_t)kind, .from = 1, .key = has_key ? 7 : 0};
        valid.session = valid.sequence = greets ? 0 : 5;
        assert_true(envelope_parses(&valid, n));
        assert_false(envelope_parses(&valid, WIRE_ENVELOPE - 1));
        if (is_empty || kind == WIRE_OFFER) assert_false(envelope_parses(&valid, n + 1));
        if (kind == WIRE_OFFER) assert_false(envelope_parses(&valid, n - 1));
        struct wire_envelope bad = valid;
        bad.key = has_key ? 0 : 7;
        assert_false(envelope_parses(&bad, n));
        bad = valid;
        bad.offset = 1;
        assert_true(envelope_parses(&bad, n) == (kind == WIRE_PIECE));
        bad = valid;
        bad.from = WORLD;
        assert_false(envelope_parses(&bad, n));
    }
    assert_false(envelope_parses(&(struct wire_envelope){.kind = WIRE_ENVELOPES, .sequence = 1}, WIRE_ENVELOPE));
}

static bool offer_parses(uint64_t bytes, uint64_t address)
{
    uint8_t out[WIRE_OFFER_BODY];
    struct wire_offer read;
    wire_offer_encode(out, &(struct wire_offer){.bytes = bytes, .address = address, .key = 9});
    assert_false(wire_offer_parse(out, sizeof out - 1, &read));
    return wire_offer_parse(out, sizeof out, &read) && read.bytes == bytes && read.address == address && read.key == 9;
}

static void test_offers(void **state)
{
    (void)state;
    assert_true(offer_parses(1, 0));
    assert_true(offer_parses(1 << 20, UINT64_MAX - (1 << 20)));
    assert_false(offer_parses(1 << 20, UINT64_MAX - (1 << 20) + 1)); /* wraps */
    assert_false(offer_parses(0, 0));
    assert_false(offer_parses((uint64_t)INT64_MAX + 1, 0));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip), cmocka_unit_test(test_bytes_are_little_endian),
        cmocka_unit_test(test_lengths),    cmocka_unit_test(test_unused_fields_must_be_zero),
        cmocka_unit_test(test_ranges),     cmocka_unit_test(test_noise),
        cmocka_unit_test(test_envelopes),  cmocka_unit_test(test_offers),
        cmocka_unit_test(test_handshake),  cmocka_unit_test(test_address),
        cmocka_unit_test(test_rails),      cmocka_unit_test(test_parts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
