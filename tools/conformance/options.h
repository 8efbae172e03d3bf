#ifndef CONFORMANCE_OPTIONS_H
#define CONFORMANCE_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

struct options {
    const char *backend; /* a string as tutti_create_group takes it */
    const char *filter;  /* part of a case's name; after '=' the whole name; NULL: all */
    const char *junit;
    int from_ranks, to_ranks;
    bool quick, huge, threads, list;
    bool cuda; /* tensors on devices whose memory the host can read: those of the stand-ins */
    bool join; /* this process is one rank of a job that a launcher started */
    uint64_t seed;
    int64_t timeout_ms; /* of every group, hence of every operation */
};

/* Ends the program if the arguments are invalid. */
void options_parse(struct options *options, int argc, char **argv);

#endif
