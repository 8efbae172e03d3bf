#include "op/control_message.h"

#include <string.h>

#include "base/little_endian.h"

#define PEER_MASK UINT64_C(0x3fffffff)
#define ANY_TAG (UINT64_C(1) << 61)

uint64_t control_wait_pack(const struct control_wait *message)
{
    uint64_t peer = (uint64_t)((int64_t)message->peer + 1) & PEER_MASK, tag = (uint64_t)message->tag & INT32_MAX;
    if (message->tag == TUTTI_ANY_TAG) tag = ANY_TAG;
    return UINT64_C(1) << 63 | (uint64_t)message->receives << 62 | peer << 31 | tag;
}

struct control_wait control_wait_unpack(uint64_t packed)
{
    int tag = packed & ANY_TAG ? TUTTI_ANY_TAG : (int)(packed & INT32_MAX);
    return (struct control_wait){packed >> 62 & 1, (int)(packed >> 31 & PEER_MASK) - 1, tag};
}

static size_t encode_positions(const struct control_message *message, uint8_t *wire)
{
    for (int i = 0; i < message->n_positions; i++) {
        const struct control_position *position = &message->position[i];
        uint32_t words[3] = {le32(position->rank), le32(position->age_ms), le32(position->silent_ms)};
        uint64_t longs[2] = {le64(position->latest), le64(position->fingerprint)};
        memcpy(wire + (size_t)i * CONTROL_POSITION, words, sizeof words);
        memcpy(wire + (size_t)i * CONTROL_POSITION + sizeof words, longs, sizeof longs);
    }
    return (size_t)message->n_positions * CONTROL_POSITION;
}

static size_t encode_failure(const struct control_message *message, uint8_t *wire)
{
    size_t ranks = (size_t)message->given_up.n * sizeof(uint32_t),
           length = strnlen(message->text, CONTROL_TEXT - ranks);
    for (int i = 0; i < message->given_up.n; i++) {
        uint32_t rank = le32(message->given_up.rank[i]);
        memcpy(wire + (size_t)i * sizeof rank, &rank, sizeof rank);
    }
    memcpy(wire + ranks, message->text, length);
    return ranks + length;
}

size_t control_message_encode(const struct control_message *message, uint8_t wire[CONTROL_BYTES])
{
    if (message->type == CONTROL_LEFT) return 0;
    uint32_t words[2] = {le32(message->type), le32((uint32_t)message->status)};
    uint64_t latest = message->type == CONTROL_FAILED ? (uint64_t)message->given_up.n : message->latest;
    uint64_t longs[4] = {le64(message->sequence), le64(message->fingerprint), le64(latest),
                         le64(message->latest_fingerprint)};
    memcpy(wire, words, sizeof words);
    memcpy(wire + sizeof words, longs, sizeof longs);
    if (message->type == CONTROL_HERE) return CONTROL_HEAD + encode_positions(message, wire + CONTROL_HEAD);
    return message->type == CONTROL_FAILED ? CONTROL_HEAD + encode_failure(message, wire + CONTROL_HEAD) : CONTROL_HEAD;
}

static bool parse_positions(const uint8_t *wire, size_t bytes, struct control_message *message)
{
    if (bytes % CONTROL_POSITION != 0) return false;
    message->n_positions = (int)(bytes / CONTROL_POSITION);
    for (int i = 0; i < message->n_positions; i++) {
        uint32_t words[3];
        uint64_t longs[2];
        memcpy(words, wire + (size_t)i * CONTROL_POSITION, sizeof words);
        memcpy(longs, wire + (size_t)i * CONTROL_POSITION + sizeof words, sizeof longs);
        message->position[i] = (struct control_position){le32(words[0]), le32(words[1]), le32(words[2]),
                                                         le64(longs[0]), le64(longs[1]), 0};
    }
    return true;
}

static void parse_text(const uint8_t *wire, size_t length, struct control_message *message)
{
    for (size_t i = 0; i < length; i++) message->text[i] = (char)(wire[i] >= 0x20 && wire[i] != 0x7f ? wire[i] : '?');
    message->text[length] = '\0';
}

static bool parse_failure(const uint8_t *wire, size_t bytes, struct control_message *message)
{
    uint64_t n = message->latest;
    message->latest = 0;
    if (n > CONTROL_POSITIONS || n * sizeof(uint32_t) > bytes) return false;
    message->given_up.n = (int)n;
    for (uint64_t i = 0; i < n; i++) {
        uint32_t rank;
        memcpy(&rank, wire + i * sizeof rank, sizeof rank);
        message->given_up.rank[i] = le32(rank);
    }
    parse_text(wire + n * sizeof(uint32_t), bytes - n * sizeof(uint32_t), message);
    return true;
}

bool control_message_parse(const void *bytes_received, size_t bytes, struct control_message *message)
{
    const uint8_t *wire = bytes_received;
    *message = (struct control_message){.type = CONTROL_LEFT};
    if (bytes == 0) return true;
    if (bytes < CONTROL_HEAD || bytes > CONTROL_BYTES) return false;
    uint32_t words[2];
    uint64_t longs[4];
    memcpy(words, wire, sizeof words);
    memcpy(longs, wire + sizeof words, sizeof longs);
    message->type = le32(words[0]);
    message->status = (int32_t)le32(words[1]);
    message->sequence = le64(longs[0]);
    message->fingerprint = le64(longs[1]);
    message->latest = le64(longs[2]);
    message->latest_fingerprint = le64(longs[3]);
    if (message->type < CONTROL_FAILED || message->type > CONTROL_HERE) return false;
    if (message->status > 0 || message->status < TUTTI_ERR_NOT_FOUND) return false;
    if (message->type == CONTROL_HERE) return parse_positions(wire + CONTROL_HEAD, bytes - CONTROL_HEAD, message);
    if (message->type == CONTROL_FAILED) return parse_failure(wire + CONTROL_HEAD, bytes - CONTROL_HEAD, message);
    return bytes == CONTROL_HEAD;
}
