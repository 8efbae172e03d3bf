/* Leaving MPI, when the process exits.
 *
 * MPI_Finalize waits for all ranks of the world, and not every rank gets there: one with groups open leaves because
 * something went wrong, one with requests that were given up might wait for them without end, and of both the others
 * would hear nothing, as not every launcher minds a rank that ends without MPI_Finalize (MPICH's does not).  So who
 * leaves without it tells all, and the others go into it only once all are at its door, which they learn from a barrier
 * that does not block.
 */
#include <sched.h>
#include <time.h>

#include "mpib.h"

enum { TAG_LEFT = 1, SEND_MS = 200, YIELDS = 1000, NAP_NS = 500000, NS_A_MS = 1000000 };

static void nap(int turn)
{
    if (turn < YIELDS)
        sched_yield();
    else
        nanosleep(&(struct timespec){.tv_nsec = NAP_NS}, NULL);
}

void mpib_end_alone(const tutti_host *host, const char *why)
{
    int rank = 0, size = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    host->log(1, "MPI_Finalize is left out on rank %d of MPI_COMM_WORLD: %s", rank, why);
    int64_t until_ns = host->now_ns() + SEND_MS * NS_A_MS;
    for (int i = 0; i < size; i++) {
        MPI_Request send;
        int done = i == rank || MPI_Isend(NULL, 0, MPI_BYTE, i, TAG_LEFT, MPI_COMM_WORLD, &send) != MPI_SUCCESS;
        for (int turn = 0; !done && (turn == 0 || host->now_ns() < until_ns); turn++) {
            MPI_Test(&send, &done, MPI_STATUS_IGNORE);
            if (!done) nap(turn);
        }
    }
}

bool mpib_end_together(const tutti_host *host)
{
    MPI_Request all, left;
    MPI_Status status;
    int rank = 0, together = 0, alone = 0;
    bool asked = MPI_Ibarrier(MPI_COMM_WORLD, &all) == MPI_SUCCESS &&
                 MPI_Irecv(NULL, 0, MPI_BYTE, MPI_ANY_SOURCE, TAG_LEFT, MPI_COMM_WORLD, &left) == MPI_SUCCESS;
    for (int turn = 0; asked && !together && !alone; turn++) {
        MPI_Test(&all, &together, MPI_STATUS_IGNORE);
        if (!together) MPI_Test(&left, &alone, &status);
        if (!together && !alone) nap(turn);
    }
    if (alone) {
        MPI_Comm_rank(MPI_COMM_WORLD, &rank);
        host->log(1, "MPI_Finalize is left out on rank %d of MPI_COMM_WORLD: rank %d has left without it", rank,
                  status.MPI_SOURCE);
    }
    if (together) {
        MPI_Cancel(&left);
        MPI_Wait(&left, MPI_STATUS_IGNORE);
    }
    return together;
}
