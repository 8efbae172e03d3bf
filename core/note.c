#include "note.h"

#include <endian.h>
#include <string.h>

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

size_t note_encode(const struct note *note, uint8_t wire[NOTE_BYTES])
{
    uint32_t words[2] = {htole32(note->type), htole32((uint32_t)note->status)};
    uint64_t longs[4] = {htole64(note->sequence), htole64(note->fingerprint), htole64(note->latest),
                         htole64(note->latest_fingerprint)};
    memcpy(wire, words, sizeof words);
    memcpy(wire + sizeof words, longs, sizeof longs);
    if (note->type == NOTE_HERE) return NOTE_HEAD + encode_places(note, wire + NOTE_HEAD);
    size_t length = strnlen(note->text, NOTE_TEXT);
    memcpy(wire + NOTE_HEAD, note->text, length);
    return NOTE_HEAD + length;
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
        note->place[i] = (struct note_place){le32toh(words[0]), le32toh(words[1]), le32toh(words[2]), le64toh(longs[0]),
                                             le64toh(longs[1])};
    }
    return true;
}

static void parse_text(const uint8_t *wire, size_t length, struct note *note)
{
    for (size_t i = 0; i < length; i++) note->text[i] = (char)(wire[i] >= 0x20 && wire[i] != 0x7f ? wire[i] : '?');
    note->text[length] = '\0';
}

bool note_parse(const void *message, size_t bytes, struct note *note)
{
    const uint8_t *wire = message;
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
    note->text[0] = '\0';
    note->n_places = 0;
    if (note->type < NOTE_FAILED || note->type > NOTE_HERE) return false;
    if (note->status > 0 || note->status < TUTTI_ERR_NOT_FOUND) return false;
    if (note->type == NOTE_HERE) return parse_places(wire + NOTE_HEAD, bytes - NOTE_HEAD, note);
    parse_text(wire + NOTE_HEAD, bytes - NOTE_HEAD, note);
    return true;
}
