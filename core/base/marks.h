/* The latest texts of tutti_mark, for the flight recorder. */
#ifndef BASE_MARKS_H
#define BASE_MARKS_H

#include <stdint.h>

enum { MARKS_KEPT = 64, MARK_TEXT_MOST = 80 };

struct mark {
    uint32_t number; /* from 1 */
    int64_t ns;      /* when it was set */
    char text[MARK_TEXT_MOST];
};

/* Keeps a mark and returns its number.  Longer text is cut. */
uint32_t marks_add(const char *text);

/* Copies the kept marks, the oldest first.  Returns their number. */
int marks_read(struct mark marks[MARKS_KEPT]);

#endif
