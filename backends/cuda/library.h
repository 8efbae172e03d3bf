/* A vendor's library that is loaded when it is first needed, or the sentence that says why it cannot be. */
#ifndef LIBRARY_H
#define LIBRARY_H

#include <stdbool.h>

struct library {
    void *handle;
    const char *missing; /* the first call that was asked for and is not there */
    bool refused;
    char why[500];
};

/* false: it is not there, and dlerror tells why. */
bool library_open(struct library *library, const char *file);

/* A call by name; NULL: it has none. */
void *library_find(const struct library *library, const char *name);

/* The same for one that must be there. */
void *library_need(struct library *library, const char *name);

void library_refuse(struct library *library, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* The text of a name after the vendor's macros have had their way with it. */
#define LIBRARY_NAME(name) #name

#endif
