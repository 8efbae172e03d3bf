/* A fuzz target takes bytes, hands them to a parser, and checks what holds for any bytes.  Parsed data, written again,
 * parse to the same.  Written data parse to the original.  Nothing is read beyond the end.
 *
 * The targets are written once: libfuzzer.c wraps them for clang's libFuzzer, and test_fuzz.c runs them over the
 * corpus. */
#ifndef FUZZ_H
#define FUZZ_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FUZZ_CHECK(condition)                                                                                          \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "%s:%d: does not hold: %s\n", __FILE__, __LINE__, #condition);                             \
            abort();                                                                                                   \
        }                                                                                                              \
    } while (0)

/* Bytes from which a target makes a value.  When they are used up, zeros follow. */
struct fuzz_bytes {
    const uint8_t *at, *end;
};

static inline uint64_t fuzz_take(struct fuzz_bytes *bytes, int n)
{
    uint64_t value = 0;
    for (int i = 0; i < n && bytes->at < bytes->end; i++) value |= (uint64_t)*bytes->at++ << 8 * i;
    return value;
}

/* Returns up to n of the bytes. */
static inline const void *fuzz_take_run(struct fuzz_bytes *bytes, size_t *n)
{
    const void *run = bytes->at;
    if (*n > (size_t)(bytes->end - bytes->at)) *n = (size_t)(bytes->end - bytes->at);
    bytes->at += *n;
    return run;
}

/* Returns the bytes as text, which ends at the first zero.  The caller frees it. */
static inline char *fuzz_text(const uint8_t *in, size_t bytes)
{
    char *text = strndup((const char *)in, bytes);
    FUZZ_CHECK(text != NULL);
    return text;
}

#endif
