/* The data of train.c: images of digits from a CSV file, shuffled in the same way on all ranks.  Nothing here is
 * distributed. */
#ifndef DIGITS_H
#define DIGITS_H

#include <stdint.h>

enum { DIGIT_PIXELS = 64, DIGIT_CLASSES = 10 };

struct digit {
    float pixel[DIGIT_PIXELS]; /* from 0 to 1 */
    int label;
};

struct digits {
    struct digit *row;
    int rows;
};

/* Reads a whole file.  Ends the program with a message on failure. */
struct digits digits_read(const char *path);

/* Returns a number in [0, n).  The same seed gives the same numbers everywhere. */
int digits_random(uint64_t *state, int n);

/* Shuffles n indices. */
void digits_shuffle(int *order, int n, uint64_t *state);

#endif
