/* The text of transformer.c: a file, or sentences that are generated, the same ones everywhere.  Nothing here is
 * distributed. */
#ifndef TEXT_H
#define TEXT_H

#include <stdint.h>

struct text {
    uint8_t *symbol; /* each byte of the text as its number among those that occur */
    int length, symbols;
    char letter[256]; /* of each symbol */
};

/* Reads a file, or generates sentences if path is NULL.  Ends the program with a message on failure. */
struct text text_new(const char *path, int length_min);
void text_free(struct text *text);

/* Copies a sequence of n symbols to input, and to target the symbol after each.  The same `number` gives the same place
 * of the text. */
void text_sequence(const struct text *text, int64_t number, int n, uint8_t *input, uint8_t *target);

#endif
