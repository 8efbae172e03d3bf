#include "op/note.h"

#include <endian.h>
#include <string.h>

#define PEER_MASK UINT64_C(0x3fffffff)
#define ANY_TAG (UINT64_C(1) << 61)

uint64_t note_message_pack(const struct note_message *message)
{
    uint64_t peer = (uint64_t)((int64_t)message->peer + 1) & PEER_MASK, tag = (uint64_t)message->tag & INT32_MAX;
    if (message->tag == TUTTI_ANY_TAG) tag = ANY_TAG;
    return UINT64_C(1) << 63 | (uint64_t)message->receives << 62 | peer << 31 | tag;
}

struct note_message note_message_unpack(uint64_t packed)
{
    int tag = packed & ANY_TAG ? TUTTI_ANY_TAG : (int)(packed & INT32_MAX);
    return (struct note_message){packed >> 62 & 1, (int)(packed >> 31 & PEER_MASK) - 1, tag};
}

static size_t encode_places(const struct note *note, uint8_t *wire)
{
    for (int i = 0; i < note->n_places; i++) {
        const struct note_place *place = &note->place[i];
        uint32_t words[3] = {htole32(place->rank), htole32(place->age_ms), htole32(place->silent_ms)};
        uint64_t longs[2] = {htole64(place->latest), htole64(place->fingerprint)};
        memcpy(wire + (size_t)i * NOTE_PLACE, words, sizeof words);
        memcpy(wire + (size_t)i * NOTE_PLACE + sizeof words, longs, sizeof longs);
    }
    return (size_t)note->n_places * NOTE_PLACE;
}

static size_t encode_failure(const struct note *note, uint8_t *wire)
{
    size_t ranks = (size_t)note->given_up.n * sizeof(uint32_t), length = strnlen(note->text, NOTE_TEXT - ranks);
    for (int i = 0; i < note->given_up.n; i++) {
        uint32_t rank = htole32(note->given_up.rank[i]);
        memcpy(wire + (size_t)i * sizeof rank, &rank, sizeof rank);
    }
    memcpy(wire + ranks, note->text, length);
    return ranks + length;
}

size_t note_encode(const struct note *note, uint8_t wire[NOTE_BYTES])
{
    if (note->type == NOTE_LEFT) return 0;
    uint32_t words[2] = {htole32(note->type), htole32((uint32_t)note->status)};
    uint64_t latest = note->type == NOTE_FAILED ? (uint64_t)note->given_up.n : note->latest;
    uint64_t longs[4] = {htole64(note->sequence), htole64(note->fingerprint), htole64(latest),
                         htole64(note->latest_fingerprint)};
    memcpy(wire, words, sizeof words);
    memcpy(wire + sizeof words, longs, sizeof longs);
    if (note->type == NOTE_HERE) return NOTE_HEAD + encode_places(note, wire + NOTE_HEAD);
    return note->type == NOTE_FAILED ? NOTE_HEAD + encode_failure(note, wire + NOTE_HEAD) : NOTE_HEAD;
}

static bool parse_places(const uint8_t *wire, size_t bytes, struct note *note)
{
    if (bytes % NOTE_PLACE != 0) return false;
    note->n_places = (int)(bytes / NOTE_PLACE);
    for (int i = 0; i < note->n_places; i++) {
        uint32_t words[3];
        uint64_t longs[2];
        memcpy(words, wire + (size_t)i * NOTE_PLACE, sizeof words);
        memcpy(longs, wire + (size_t)i * NOTE_PLACE + sizeof words, sizeof longs);
        note->place[i] = (struct note_place){le32toh(words[0]), le32toh(words[1]), le32toh(words[2]),
                                             le64toh(longs[0]), le64toh(longs[1]), 0};
    }
    return true;
}

static void parse_text(const uint8_t *wire, size_t length, struct note *note)
{
    for (size_t i = 0; i < length; i++) note->text[i] = (char)(wire[i] >= 0x20 && wire[i] != 0x7f ? wire[i] : '?');
    note->text[length] = '\0';
}

static bool parse_failure(const uint8_t *wire, size_t bytes, struct note *note)
{
    uint64_t n = note->latest;
    note->latest = 0;
    if (n > NOTE_PLACES || n * sizeof(uint32_t) > bytes) return false;
    note->given_up.n = (int)n;
    for (uint64_t i = 0; i < n; i++) {
        uint32_t rank;
        memcpy(&rank, wire + i * sizeof rank, sizeof rank);
        note->given_up.rank[i] = le32toh(rank);
    }
    parse_text(wire + n * sizeof(uint32_t), bytes - n * sizeof(uint32_t), note);
    return true;
}

bool note_parse(const void *message, size_t bytes, struct note *note)
{
    const uint8_t *wire = message;
    *note = (struct note){.type = NOTE_LEFT};
    if (bytes == 0) return true;
    if (bytes < NOTE_HEAD || bytes > NOTE_BYTES) return false;
    uint32_t words[2];
    uint64_t longs[4];
    memcpy(words, wire, sizeof words);
    memcpy(longs, wire + sizeof words, sizeof longs);
    note->type = le32toh(words[0]);
    note->status = (int32_t)le32toh(words[1]);
    note->sequence = le64toh(longs[0]);
    note->fingerprint = le64toh(longs[1]);
    note->latest = le64toh(longs[2]);
    note->latest_fingerprint = le64toh(longs[3]);
    if (note->type < NOTE_FAILED || note->type > NOTE_HERE) return false;
    if (note->status > 0 || note->status < TUTTI_ERR_NOT_FOUND) return false;
    if (note->type == NOTE_HERE) return parse_places(wire + NOTE_HEAD, bytes - NOTE_HEAD, note);
    if (note->type == NOTE_FAILED) return parse_failure(wire + NOTE_HEAD, bytes - NOTE_HEAD, note);
    return bytes == NOTE_HEAD;
}
