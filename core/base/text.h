/* Builds short texts where each call makes some: printf takes about as long for one as a small message. */
#ifndef TEXT_H
#define TEXT_H

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

/* A text that is being built, which always ends with a zero byte. */
struct text {
    char *at, *end; /* its zero byte, and the last place for one */
};

static inline struct text text_in(char *buffer, size_t size)
{
    buffer[0] = '\0';
    return (struct text){buffer, buffer + size - 1};
}

/* Appends up to `most` bytes of a string, as many as fit. */
static inline void text_add_some(struct text *text, const char *string, size_t most)
{
    size_t room = (size_t)(text->end - text->at);
    if (most > room) most = room;
    char *after = memccpy(text->at, string, '\0', most);
    text->at = after != NULL ? after - 1 : text->at + most;
    *text->at = '\0';
}

static inline void text_add(struct text *text, const char *string)
{
    text_add_some(text, string, (size_t)(text->end - text->at));
}

/* Appends the last digits of a number in base 16. */
static inline void text_add_hex(struct text *text, uint64_t number, int digits)
{
    for (int i = digits - 1; i >= 0 && text->at < text->end; i--)
        *text->at++ = "0123456789abcdef"[number >> 4 * i & 15];
    *text->at = '\0';
}

/* Appends what printf would print, as much as fits. */
static inline void __attribute__((format(printf, 2, 3))) text_print(struct text *text, const char *format, ...)
{
    size_t room = (size_t)(text->end - text->at);
    va_list arguments;
    va_start(arguments, format);
    int n = vsnprintf(text->at, room + 1, format, arguments);
    va_end(arguments);
    if (n > 0) text->at += (size_t)n < room ? (size_t)n : room;
}

static inline void text_copy(char *to, size_t size, const char *from)
{
    struct text text = text_in(to, size);
    text_add(&text, from);
}

#endif
