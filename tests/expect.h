/* A check in a rank, whose function returns 0 or the line of the failed check. */
#ifndef TESTS_EXPECT_H
#define TESTS_EXPECT_H

#include <stdio.h>
#include <tutti/tutti.h>

/* Returns the line number from the calling function, and says why on stderr, if the condition is false.  `group` is the
 * rank's group. */
#define EXPECT(condition)                                                                                              \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "%s:%d: rank %d: %s; last error: %s\n", __FILE__, __LINE__, tutti_get_rank(group),         \
                    #condition, tutti_last_error());                                                                   \
            return __LINE__;                                                                                           \
        }                                                                                                              \
    } while (0)

#endif
