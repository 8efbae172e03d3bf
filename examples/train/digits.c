#include "digits.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A small random number generator: xorshift64*. */
static uint64_t next_random(uint64_t *state)
{
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    return *state * 0x2545f4914f6cdd1du;
}

int digits_random(uint64_t *state, int n)
{
    return (int)((next_random(state) >> 32) * (uint64_t)n >> 32);
}

void digits_shuffle(int *order, int n, uint64_t *state)
{
    for (int i = n - 1; i > 0; i--) {
        int j = digits_random(state, i + 1), swapped = order[i];
        order[i] = order[j];
        order[j] = swapped;
    }
}

/* Parses 64 integers of 0..16 and a digit.  Returns false on anything else. */
static bool parse_digit(const char *line, struct digit *digit)
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

struct digits digits_read(const char *path)
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
        if (!parse_digit(line, &data.row[data.rows++])) {
            fprintf(stderr, "%s:%d: expected 64 pixels of 0..16 and a digit\n", path, data.rows);
            exit(1);
        }
    }
    fclose(file);
    return data;
}
