/* Checks of calls that must be refused, in a rank.  A failed check returns its line number, and says why on stderr. */
#ifndef TESTS_REFUSAL_H
#define TESTS_REFUSAL_H

/* Checks that a call returned `code`, and that its error contains all of the words, which '|' separates.  Returns 0, or
 * line. */
int refusal_check(int line, const char *call, int status, int code, const char *words);

#define REFUSED(call, code, words)                                                                                     \
    do {                                                                                                               \
        int refused_line = refusal_check(__LINE__, #call, call, TUTTI_ERR_##code, words);                              \
        if (refused_line != 0) return refused_line;                                                                    \
    } while (0)

#define INVALID(call, words) REFUSED(call, INVALID_ARGUMENT, words)

#endif
