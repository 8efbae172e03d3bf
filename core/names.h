/* The backend string: "tcp", "cpu:tcp,cuda:nccl", "cpu:tcp|mpi", "auto". */
#ifndef NAMES_H
#define NAMES_H

#include <stddef.h>
#include <tutti/types.h>

enum { NAMES_MOST = 3, NAMES_LENGTH = 256, NAMES_TEXT_MAX = 1024 };

struct names {
    /* by device (CPU, CUDA): backend names, lower case, in order of preference */
    char name[2][NAMES_MOST][NAMES_LENGTH];
    int n[2];
    bool by_device; /* a map was written; else one name (in [0]) serves whatever devices it takes */
    bool automatic; /* NULL or "auto" */
};

/* INVALID_ARGUMENT with a sentence that says which part is wrong. */
int names_parse(const char *text, struct names *names);

/* The same as text, alike for what means the same. */
void names_print(const struct names *names, char *text, size_t size);

/* Returns the backend that does what other libraries call by this name, or NULL. */
const char *names_meant_by(const char *name);

#endif
