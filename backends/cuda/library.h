/* A vendor library loaded on first use, or the error message that says why it cannot be loaded. */
#ifndef LIBRARY_H
#define LIBRARY_H

#include <stdbool.h>

struct library {
    void *handle;
    const char *missing; /* the first required symbol that is missing */
    bool refused;
    char why[500];
};

/* Returns false if the library cannot be loaded; dlerror has the reason. */
bool library_open(struct library *library, const char *file);

/* Returns a symbol, or NULL if there is none. */
void *library_find(const struct library *library, const char *name);

/* Returns a symbol like library_find.  If there is none, records its name as missing. */
void *library_need(struct library *library, const char *name);

void library_refuse(struct library *library, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* The text of a name after expansion by the vendor's macros. */
#define LIBRARY_NAME(name) #name

#endif
