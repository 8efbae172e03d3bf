#include "memory.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static void out_of_memory(void)
{
    fputs("tutti-run: out of memory\n", stderr);
    _exit(1);
}

void *memory_resize(void *memory, size_t bytes)
{
    memory = realloc(memory, bytes ? bytes : 1);
    if (!memory) out_of_memory();
    return memory;
}

char *memory_print(const char *format, ...)
{
    char *text;
    va_list args;
    va_start(args, format);
    if (vasprintf(&text, format, args) < 0) out_of_memory();
    va_end(args);
    return text;
}
