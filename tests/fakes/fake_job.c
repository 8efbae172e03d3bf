/* State of calls started by FAKE NCCL's threads: until 2.27, NCCL kept it in variables of the calling thread. */
#include <stdio.h>

#include "fake_nccl.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static ncclComm_t all;
static uint64_t jobs;
static atomic_int misuses;

void fake_misused(const char *how)
{
    fprintf(stderr, "FAKE NCCL: %s\n", how);
    atomic_fetch_add(&misuses, 1);
}

int fake_nccl_misuses(void)
{
    return atomic_load(&misuses);
}

void fake_job_list(ncclComm_t comm)
{
    pthread_mutex_lock(&lock);
    comm->next = all;
    all = comm;
    pthread_mutex_unlock(&lock);
}

void fake_job_unlist(ncclComm_t comm)
{
    pthread_mutex_lock(&lock);
    ncclComm_t *at = &all;
    while (*at != comm) at = &(*at)->next;
    *at = comm->next;
    pthread_mutex_unlock(&lock);
}

static bool is_under_way(const struct ncclComm *comm)
{
    return !atomic_load(&comm->aborted) && atomic_load(&comm->error) == ncclSuccess &&
           (!comm->ready || atomic_load(&comm->works) || comm->n_held > 0);
}

void fake_job_begin(ncclComm_t *comms, int n)
{
    pthread_mutex_lock(&lock);
    jobs++;
    for (int i = 0; i < n; i++) {
        comms[i]->caller = pthread_self();
        comms[i]->job = jobs;
    }
    for (ncclComm_t other = all; other != NULL && fake_version() < NCCL_VERSION(2, 27, 0); other = other->next)
        if (other->job != 0 && other->job != jobs && pthread_equal(other->caller, pthread_self()) &&
            is_under_way(other))
            fake_misused("a thread starts a call while another of its calls is pending");
    pthread_mutex_unlock(&lock);
}
