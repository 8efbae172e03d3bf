/* core/store: requests, replies, the handshake and the seal. */
#include "fuzz.h"
#include "store/handshake.h"
#include "store/wire.h"
#include "targets.h"

void fuzz_store_request(const uint8_t *in, size_t bytes)
{
    struct store_request request;
    struct store_slice *slices = NULL;
    int64_t timeout_ms = -1;
    int status = wire_parse_request(in, bytes, &request, &slices, &timeout_ms);
    if (status != TUTTI_OK) {
        FUZZ_CHECK(slices == NULL && status == TUTTI_ERR_INVALID_ARGUMENT);
        return;
    }
    FUZZ_CHECK(timeout_ms >= 0 && wire_request_bytes(&request) == bytes);
    uint8_t *out = malloc(bytes);
    FUZZ_CHECK(out != NULL);
    wire_put_request(out, &request, timeout_ms);
    FUZZ_CHECK(memcmp(in, out, bytes) == 0);
    free(out);
    free(slices);
}

void fuzz_store_reply(const uint8_t *in, size_t bytes)
{
    struct store_reply reply;
    int status = wire_parse_reply(in, bytes, &reply);
    if (status != TUTTI_OK) {
        FUZZ_CHECK(reply.values == NULL && status == TUTTI_ERR_INVALID_ARGUMENT);
        return;
    }
    size_t n = wire_reply_bytes(&reply);
    uint8_t *out = malloc(n);
    FUZZ_CHECK(out != NULL && n == bytes);
    wire_put_reply(out, &reply);
    FUZZ_CHECK(memcmp(in, out, bytes) == 0);
    free(out);
    store_reply_free(&reply);
}

/* Requests are made from the bytes.  Those that fit their operation arrive as they were sent. */
void fuzz_store_sent(const uint8_t *in, size_t bytes)
{
    struct fuzz_bytes from = {in, in + bytes};
    struct store_slice slice[32], *slices = NULL;
    struct store_request request = {.op = (int)(fuzz_take(&from, 1) % (STORE_OP_END + 1)), .keys = slice}, again;
    request.n_keys = (int)(fuzz_take(&from, 1) & 15);
    request.n_values = (int)(fuzz_take(&from, 1) & 15);
    request.values = slice + request.n_keys;
    request.number = (int64_t)fuzz_take(&from, 8);
    int64_t timeout_ms = (int64_t)(fuzz_take(&from, 8) >> 1), got_ms = -1;
    for (int i = 0; i < request.n_keys + request.n_values; i++) {
        slice[i].bytes = fuzz_take(&from, 1);
        slice[i].data = fuzz_take_run(&from, &slice[i].bytes);
    }
    size_t n = wire_request_bytes(&request);
    uint8_t *out = malloc(n);
    FUZZ_CHECK(out != NULL);
    wire_put_request(out, &request, timeout_ms);
    if (wire_parse_request(out, n, &again, &slices, &got_ms) == TUTTI_OK) {
        FUZZ_CHECK(again.op == request.op && again.number == request.number && got_ms == timeout_ms);
        FUZZ_CHECK(again.n_keys == request.n_keys && again.n_values == request.n_values);
        for (int i = 0; i < request.n_keys + request.n_values; i++)
            FUZZ_CHECK(slices[i].bytes == slice[i].bytes &&
                       (slice[i].bytes == 0 || memcmp(slices[i].data, slice[i].data, slice[i].bytes) == 0));
    }
    free(slices);
    free(out);
}

void fuzz_store_handshake(const uint8_t *in, size_t bytes)
{
    struct handshake shake = {.token = {1}}, other;
    uint8_t hello[HANDSHAKE_HELLO_BYTES] = {0}, proof[HANDSHAKE_PROOF_BYTES] = {0};
    memcpy(hello, in, bytes < sizeof hello ? bytes : sizeof hello);
    for (size_t n = 0; n <= bytes && n < 8; n++) /* a bad beginning never becomes good */
        FUZZ_CHECK(handshake_begins_well(in, n) || !handshake_begins_well(in, bytes));
    for (int role = HANDSHAKE_CLIENT; role <= HANDSHAKE_SERVER; role++) {
        enum handshake_answer answer = handshake_take_hello(&shake, (enum handshake_role)role, hello);
        FUZZ_CHECK(handshake_begins_well(hello, sizeof hello) == (answer != HANDSHAKE_NOT_OURS));
        FUZZ_CHECK(answer != HANDSHAKE_OK || hello[7] == HANDSHAKE_VERSION);
    }
    if (bytes > sizeof hello) {
        size_t n = bytes - sizeof hello;
        memcpy(proof, in + sizeof hello, n < sizeof proof ? n : sizeof proof);
    }
    FUZZ_CHECK(!handshake_verify(&shake, HANDSHAKE_CLIENT, proof)); /* the bytes cannot be the right proof */
    handshake_prove(&shake, HANDSHAKE_CLIENT, proof);
    FUZZ_CHECK(handshake_verify(&shake, HANDSHAKE_CLIENT, proof));
    FUZZ_CHECK(!handshake_verify(&shake, HANDSHAKE_SERVER, proof)); /* neither can our own proof, sent back to us */
    other = shake;
    other.token[31] ^= 1;
    FUZZ_CHECK(!handshake_verify(&other, HANDSHAKE_CLIENT, proof));
}

static const uint8_t frame_header[4] = {1, 2, 3, 4};

/* Frames arrive as they were sealed.  Altered, repeated and made-up frames do not open. */
void fuzz_store_seal(const uint8_t *in, size_t bytes)
{
    struct fuzz_bytes from = {in, in + bytes};
    struct seal to = {.number = fuzz_take(&from, 8)}, open, wrong;
    size_t at = fuzz_take(&from, 2), n = (size_t)(from.end - from.at);
    int bit = (int)fuzz_take(&from, 1) & 7;
    n = (size_t)(from.end - from.at);
    uint8_t *frame = malloc(n + SEAL_TAG_BYTES), *copy = malloc(n + SEAL_TAG_BYTES);
    FUZZ_CHECK(frame != NULL && copy != NULL);
    if (n > 0) memcpy(copy, from.at, n);
    open = wrong = to;
    FUZZ_CHECK(!seal_open(&wrong, copy, n, NULL, 0));
    if (n > 0) memcpy(frame, from.at, n);
    seal_close(&to, frame, n, frame_header, sizeof frame_header);
    memcpy(copy, frame, n + SEAL_TAG_BYTES);
    copy[at % (n + SEAL_TAG_BYTES)] ^= (uint8_t)(1 << bit);
    wrong = open;
    FUZZ_CHECK(!seal_open(&wrong, copy, n + SEAL_TAG_BYTES, frame_header, sizeof frame_header));
    memcpy(copy, frame, n + SEAL_TAG_BYTES);
    wrong = open;
    FUZZ_CHECK(!seal_open(&wrong, copy, n + SEAL_TAG_BYTES, frame_header, sizeof frame_header - 1));
    memcpy(copy, frame, n + SEAL_TAG_BYTES);
    FUZZ_CHECK(!seal_open(&to, copy, n + SEAL_TAG_BYTES, frame_header, sizeof frame_header)); /* the next number */
    FUZZ_CHECK(seal_open(&open, frame, n + SEAL_TAG_BYTES, frame_header, sizeof frame_header));
    FUZZ_CHECK(n == 0 || memcmp(frame, from.at, n) == 0);
    free(frame);
    free(copy);
}
