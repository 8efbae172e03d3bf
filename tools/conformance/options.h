#ifndef CONFORMANCE_OPTIONS_H
#define CONFORMANCE_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

struct options {
    const char *backend; /* as tutti_create_group takes it */
    const char *filter;  /* part of a case's name, or '=' and the whole name; NULL: all cases */
    const char *junit;
    int from_ranks, to_ranks;
    bool quick, huge, threads, list, json, progress;
    bool cuda; /* use tensors on the stand-ins' devices, whose memory the host can read */
    bool join; /* this process is one rank of a job that a launcher started */
    uint64_t seed;
    int64_t timeout_ms; /* timeout of every group, and so of every operation */
};

/* Parses the command line.  Ends the program if it is invalid. */
void options_parse(struct options *options, int argc, char **argv);

#endif
