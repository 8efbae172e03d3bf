#include "text.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { GENERATED = 1 << 16, FILE_MOST = 1 << 24 };

/* Returns the next number of [0, n) (xorshift64*). */
static int next_random(uint64_t *state, int n)
{
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    return (int)((*state * 0x2545f4914f6cdd1d >> 33) % (uint64_t)n);
}

/* Appends words of the classes that the letters of the form name; other characters stand for themselves. */
static int append_sentence(char *out, const char *form, uint64_t *state)
{
    static const char *const adjective[] = {"quiet", "red", "old", "little", "bright", "strange", "slow", "brave"};
    static const char *const noun[] = {"fox", "river", "piper", "garden", "clock", "rider", "stone", "window"};
    static const char *const verb[] = {"finds",   "follows", "sees",   "remembers",
                                       "carries", "guards",  "paints", "leaves"};
    static const char *const place[] = {"near the sea", "at night", "in winter", "under the bridge"};
    int n = 0;
    for (; *form; form++) {
        const char *word = *form == 'A'   ? adjective[next_random(state, 8)]
                           : *form == 'N' ? noun[next_random(state, 8)]
                           : *form == 'V' ? verb[next_random(state, 8)]
                           : *form == 'P' ? place[next_random(state, 4)]
                                          : NULL;
        n += word ? sprintf(out + n, "%s", word) : sprintf(out + n, "%c", *form);
    }
    return n;
}

static char *generate(int *length)
{
    static const char *const form[] = {"the A N V the N P.\n", "a N V the A N.\n", "P the N V a N.\n"};
    char *out = malloc(GENERATED + 200); /* no sentence is longer than 200 */
    uint64_t state = 42;
    if (!out) abort();
    for (*length = 0; *length < GENERATED;)
        *length += append_sentence(out + *length, form[next_random(&state, 3)], &state);
    return out;
}

static char *read_file(const char *path, int *length)
{
    FILE *file = fopen(path, "rb");
    char *out = malloc(FILE_MOST);
    if (!out) abort();
    *length = file ? (int)fread(out, 1, FILE_MOST, file) : 0;
    if (!file || ferror(file)) {
        fprintf(stderr, "%s: %s\n", path, strerror(errno));
        exit(1);
    }
    fclose(file);
    return out;
}

struct text text_new(const char *path, int length_min)
{
    struct text text = {0};
    int number[256];
    char *bytes = path ? read_file(path, &text.length) : generate(&text.length);
    if (text.length < length_min) {
        fprintf(stderr, "%s has %d bytes, but %d are needed\n", path, text.length, length_min);
        exit(1);
    }
    for (int i = 0; i < 256; i++) {
        bool occurs = memchr(bytes, i, (size_t)text.length) != NULL;
        number[i] = text.symbols;
        if (occurs) text.letter[text.symbols++] = (char)i;
    }
    text.symbol = (uint8_t *)bytes;
    for (int i = 0; i < text.length; i++) text.symbol[i] = (uint8_t)number[text.symbol[i]];
    return text;
}

void text_free(struct text *text)
{
    free(text->symbol);
}

void text_sequence(const struct text *text, int64_t number, int n, uint8_t *input, uint8_t *target)
{
    uint64_t state = (uint64_t)(number + 1) * 0x9e3779b97f4a7c15;
    next_random(&state, 1);
    const uint8_t *first = text->symbol + next_random(&state, text->length - n);
    memcpy(input, first, (size_t)n);
    memcpy(target, first + 1, (size_t)n);
}
