/* Finalizes MPI when the process exits.
 *
 * MPI_Finalize waits for all ranks of the world, and some ranks may never call it.  A rank that exits with open groups
 * does so because of an error.  A rank with abandoned requests could wait for them forever.  The other ranks would not
 * notice, since some launchers (MPICH's) ignore a rank that exits without MPI_Finalize.  A rank that skips MPI_Finalize
 * therefore notifies all others, and the others call it only after a nonblocking barrier has completed on all ranks.
 */
#include <sched.h>
#include <time.h>

#include "mpib.h"

enum { TAG_LEFT = 1, SEND_MS = 200, YIELDS = 1000, NAP_NS = 500000, NS_PER_MS = 1000000 };

static void back_off(int turn)
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
    TUTTI_LOG_AS(host, "mpi", 1, "skipping MPI_Finalize on rank %d of MPI_COMM_WORLD: %s", rank, why);
    int64_t until_ns = host->now_ns() + SEND_MS * NS_PER_MS;
    for (int i = 0; i < size; i++) {
        MPI_Request send;
        int done = i == rank || MPI_Isend(NULL, 0, MPI_BYTE, i, TAG_LEFT, MPI_COMM_WORLD, &send) != MPI_SUCCESS;
        for (int turn = 0; !done && (turn == 0 || host->now_ns() < until_ns); turn++) {
            MPI_Test(&send, &done, MPI_STATUS_IGNORE);
            if (!done) back_off(turn);
        }
    }
}

bool mpib_end_together(const tutti_host *host)
{
    MPI_Request barrier, left;
    MPI_Status status;
    int rank = 0, all_arrived = 0, peer_left = 0;
    bool posted = MPI_Ibarrier(MPI_COMM_WORLD, &barrier) == MPI_SUCCESS &&
                  MPI_Irecv(NULL, 0, MPI_BYTE, MPI_ANY_SOURCE, TAG_LEFT, MPI_COMM_WORLD, &left) == MPI_SUCCESS;
    for (int turn = 0; posted && !all_arrived && !peer_left; turn++) {
        MPI_Test(&barrier, &all_arrived, MPI_STATUS_IGNORE);
        if (!all_arrived) MPI_Test(&left, &peer_left, &status);
        if (!all_arrived && !peer_left) back_off(turn);
    }
    if (peer_left) {
        MPI_Comm_rank(MPI_COMM_WORLD, &rank);
        TUTTI_LOG_AS(host, "mpi", 1, "skipping MPI_Finalize on rank %d of MPI_COMM_WORLD: rank %d exited without it",
                     rank, status.MPI_SOURCE);
    }
    if (all_arrived) {
        MPI_Cancel(&left);
        MPI_Wait(&left, MPI_STATUS_IGNORE);
    }
    return all_arrived;
}
