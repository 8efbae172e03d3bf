/* What the table says of the backend in numbers: for the plug-ins, and for the one that chooses between two of them. */
#ifndef MPI_NUMBERS_H
#define MPI_NUMBERS_H

/* What rides along with its header, which is then less than what any MPI sends at once. */
enum { MPIB_SHORT = 3072 };

#define MPIB_NUMBERS                                                                                                   \
    .latency_ns = 1500, .bytes_per_us = 4000, .segment_bytes = 256 << 10, .recv_reduce_most = MPIB_SHORT

#endif
