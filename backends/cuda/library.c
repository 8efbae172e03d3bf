#include "library.h"

#include <dlfcn.h>
#include <stdarg.h>
#include <stdio.h>

bool library_open(struct library *library, const char *file)
{
    library->handle = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    return library->handle != NULL;
}

void *library_find(const struct library *library, const char *name)
{
    return dlsym(library->handle, name);
}

void *library_need(struct library *library, const char *name)
{
    void *found = library_find(library, name);
    if (found == NULL && library->missing == NULL) library->missing = name;
    return found;
}

void library_refuse(struct library *library, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(library->why, sizeof library->why, format, arguments);
    va_end(arguments);
    library->refused = true;
}
