#ifndef CONFORMANCE_OPTIONS_H
#define CONFORMANCE_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

struct options {
    const char *backend; /* as tutti_create_group has it */
    const char *filter;  /* part of a case's name; after '=' all of it; NULL: all */
    const char *junit;
    int from_ranks, to_ranks;
    bool quick, huge, threads, list;
    bool cuda; /* tensors on devices whose memory the host can read: the stand-ins' */
    bool join; /* this process is one rank of a job that a launcher started */
    uint64_t seed;
    int64_t timeout_ms; /* of every group, hence of every operation */
};

/* Ends the program where the arguments do not fit. */
void options_parse(struct options *options, int argc, char **argv);

#endif
