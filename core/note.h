/* A note between ranks as bytes.  Pure functions: a parser believes nothing, for the bytes come from another machine.
 *
 * On the wire: type, status, sequence, fingerprint, and the sender's latest sequence and fingerprint as little-endian
 * 32- and 64-bit numbers, then text without a terminator. */
#ifndef NOTE_H
#define NOTE_H

#include <tutti/types.h>

enum { NOTE_TEXT = 400, NOTE_HEAD = 40, NOTE_BYTES = NOTE_HEAD + NOTE_TEXT };

enum note_type { NOTE_FAILED = 1, NOTE_ASK, NOTE_HERE };

struct note {
    uint32_t type;
    int32_t status;
    uint64_t sequence, fingerprint, latest, latest_fingerprint;
    char text[NOTE_TEXT + 1];
};

/* The number of bytes written. */
size_t note_encode(const struct note *note, uint8_t wire[NOTE_BYTES]);

/* false: it is malformed.  Control characters in the text become question marks, as it is shown to people. */
bool note_parse(const void *message, size_t bytes, struct note *note);

#endif
