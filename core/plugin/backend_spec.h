/* Parses the backend string: "tcp", "cpu:tcp,cuda:nccl", "cpu:tcp|mpi", "auto". */
#ifndef BACKEND_SPEC_H
#define BACKEND_SPEC_H

#include <stddef.h>
#include <tutti/types.h>

enum { SPEC_MOST = 3, SPEC_NAME_MAX = 256, SPEC_TEXT_MAX = 1024 };

struct backend_spec {
    /* by device (CPU, CUDA): backend names in lower case, most preferred first */
    char name[2][SPEC_MOST][SPEC_NAME_MAX];
    int n[2];
    bool by_device; /* a map was given; otherwise name[0] serves all devices that its backends accept */
    bool automatic; /* the string was NULL or "auto" */
};

/* Parses the string; NULL means "auto".  Returns INVALID_ARGUMENT, with a message that names the wrong part. */
int backend_spec_parse(const char *text, struct backend_spec *names);

/* Formats the specification.  Equal specifications give equal text. */
void backend_spec_print(const struct backend_spec *names, char *text, size_t size);

/* Returns the backend that corresponds to a name of other libraries ("gloo"), or NULL. */
const char *backend_spec_suggest(const char *name);

#endif
