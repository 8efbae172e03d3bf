/* The backend string: "tcp", "cpu:tcp,cuda:nccl", "cpu:tcp|mpi", "auto". */
#ifndef BACKEND_SPEC_H
#define BACKEND_SPEC_H

#include <stddef.h>
#include <tutti/types.h>

enum { SPEC_MOST = 3, SPEC_NAME_MAX = 256, SPEC_TEXT_MAX = 1024 };

struct backend_spec {
    /* by device (CPU, CUDA): backend names, lower case, in order of preference */
    char name[2][SPEC_MOST][SPEC_NAME_MAX];
    int n[2];
    bool by_device; /* a map was written; else one name (in [0]) serves whatever devices it takes */
    bool automatic; /* NULL or "auto" */
};

/* INVALID_ARGUMENT with a sentence that says which part is wrong. */
int backend_spec_parse(const char *text, struct backend_spec *names);

/* The same as text, alike for what means the same. */
void backend_spec_print(const struct backend_spec *names, char *text, size_t size);

/* Returns the backend that does what other libraries call by this name, or NULL. */
const char *backend_spec_meant_by(const char *name);

#endif
