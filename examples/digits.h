/* The data of train.c: images of digits from a CSV file, shuffled the same way on all ranks.  Nothing here is
 * distributed. */
#ifndef DIGITS_H
#define DIGITS_H

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DIGIT_PIXELS = 64, DIGIT_CLASSES = 10 };

struct digit {
    float pixel[DIGIT_PIXELS]; /* 0 .. 1 */
    int label;
};

struct digits {
    struct digit *row;
    int rows;
};

/* A small random number generator (xorshift64*): the same seed gives the same numbers everywhere. */
static inline uint64_t random_next(uint64_t *state)
{
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    return *state * 0x2545f4914f6cdd1du;
}

/* Returns a number in [0, n). */
static inline int random_below(uint64_t *state, int n)
{
    return (int)((random_next(state) >> 32) * (uint64_t)n >> 32);
}

static inline void shuffle(int *order, int n, uint64_t *state)
{
    for (int i = n - 1; i > 0; i--) {
        int j = random_below(state, i + 1), swapped = order[i];
        order[i] = order[j];
        order[j] = swapped;
    }
}

/* Parses 64 integers of 0..16 and a digit; returns false on anything else. */
static inline bool digit_parse(const char *line, struct digit *digit)
{
    for (int i = 0; i <= DIGIT_PIXELS; i++) {
        char *end;
        long value = strtol(line, &end, 10);
        bool last = i == DIGIT_PIXELS;
        if (end == line || value < 0 || value > (last ? DIGIT_CLASSES - 1 : 16)) return false;
        if (last ? *end != '\n' && *end != '\r' && *end != '\0' : *end != ',') return false;
        line = end + 1;
        if (last)
            digit->label = (int)value;
        else
            digit->pixel[i] = (float)value / 16;
    }
    return true;
}

/* Reads a whole file; exits with an error message on failure. */
static inline struct digits digits_read(const char *path)
{
    struct digits data = {NULL, 0};
    char line[1024];
    int capacity = 0;
    FILE *file = fopen(path, "r");
    if (!file) {
        fprintf(stderr, "%s: %s\n", path, strerror(errno));
        exit(1);
    }
    while (fgets(line, sizeof line, file)) {
        if (data.rows == capacity) {
            capacity = capacity ? 2 * capacity : 256;
            data.row = realloc(data.row, (size_t)capacity * sizeof *data.row);
            if (!data.row) abort();
        }
        if (!digit_parse(line, &data.row[data.rows++])) {
            fprintf(stderr, "%s:%d: expected 64 pixels of 0..16 and a digit\n", path, data.rows);
            exit(1);
        }
    }
    fclose(file);
    return data;
}

#endif
