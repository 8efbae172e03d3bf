#include "note.h"

#include <endian.h>
#include <string.h>

size_t note_encode(const struct note *note, uint8_t wire[NOTE_BYTES])
{
    uint32_t words[2] = {htole32(note->type), htole32((uint32_t)note->status)};
    uint64_t longs[4] = {htole64(note->sequence), htole64(note->fingerprint), htole64(note->latest),
                         htole64(note->latest_fingerprint)};
    memcpy(wire, words, sizeof words);
    memcpy(wire + sizeof words, longs, sizeof longs);
    size_t length = strnlen(note->text, NOTE_TEXT);
    memcpy(wire + NOTE_HEAD, note->text, length);
    return NOTE_HEAD + length;
}

bool note_parse(const void *message, size_t bytes, struct note *note)
{
    if (bytes < NOTE_HEAD || bytes > NOTE_BYTES) return false;
    uint32_t words[2];
    uint64_t longs[4];
    memcpy(words, message, sizeof words);
    memcpy(longs, (const uint8_t *)message + sizeof words, sizeof longs);
    note->type = le32toh(words[0]);
    note->status = (int32_t)le32toh(words[1]);
    note->sequence = le64toh(longs[0]);
    note->fingerprint = le64toh(longs[1]);
    note->latest = le64toh(longs[2]);
    note->latest_fingerprint = le64toh(longs[3]);
    size_t length = bytes - NOTE_HEAD;
    for (size_t i = 0; i < length; i++) {
        unsigned char c = ((const unsigned char *)message)[NOTE_HEAD + i];
        note->text[i] = (char)(c >= 0x20 && c != 0x7f ? c : '?');
    }
    note->text[length] = '\0';
    return note->type >= NOTE_FAILED && note->type <= NOTE_HERE && note->status <= 0 &&
           note->status >= TUTTI_ERR_NOT_FOUND;
}
