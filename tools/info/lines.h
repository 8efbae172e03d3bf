/* Texts of several lines, as the library describes things. */
#ifndef INFO_LINES_H
#define INFO_LINES_H

#include "common/doc.h"

enum { LINES_MAX = 16 * 1024 };

/* Prints text with a prefix before each of its lines. */
void lines_print(const char *lead, const char *text);

/* Sets a member of an object to an array of the lines. */
void lines_add(doc *object, const char *key, const char *text);

/* Returns the number of cores in the affinity mask. */
int lines_cores(void);

#endif
