/* FAKE NCCL's communicators: creation, splits, registration, end. */
#include "fake_nccl.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

enum { POLLS_TO_CONNECT = 3 };

long fake_fault(const char *kind, int rank)
{
    const char *text = getenv("FAKE_NCCL_FAULT");
    char what[16];
    int on;
    long number;
    if (text == NULL || sscanf(text, "%15[a-z]@%d:%ld", what, &on, &number) != 3) return -1;
    return strcmp(what, kind) == 0 && on == rank ? number : -1;
}

int fake_version(void)
{
    const char *text = getenv("FAKE_NCCL_VERSION");
    return text != NULL ? atoi(text) : NCCL_VERSION_CODE;
}

ncclResult_t ncclGetVersion(int *version)
{
    *version = fake_version();
    return ncclSuccess;
}

const char *ncclGetErrorString(ncclResult_t result)
{
    static const char *const texts[] = {"FAKE: no error",
                                        "FAKE: unhandled cuda error",
                                        "FAKE: unhandled system error",
                                        "FAKE: internal error",
                                        "FAKE: invalid argument",
                                        "FAKE: invalid usage",
                                        "FAKE: remote process exited or there was a network error",
                                        "FAKE: NCCL operation in progress"};
    return (unsigned)result < sizeof texts / sizeof *texts ? texts[result] : "FAKE: unknown result";
}

const char *ncclGetLastError(ncclComm_t comm)
{
    return comm != NULL ? comm->text : "FAKE NCCL";
}

static atomic_size_t allocated;

size_t fake_nccl_allocated(void)
{
    return atomic_load(&allocated);
}

/* Rounds to the multicast granularity, as NCCL before 2.26 does on a GPU with multicast. */
ncclResult_t ncclMemAlloc(void **memory, size_t bytes)
{
    enum { UNIT = 512 << 20 };
    CUdeviceptr at = 0;
    if (fake_version() < NCCL_VERSION(2, 26, 0)) bytes = (bytes + UNIT - 1) / UNIT * UNIT;
    atomic_fetch_add(&allocated, bytes);
    CUresult result = cuMemAlloc(&at, bytes);
    *memory = (void *)at;
    return result == CUDA_SUCCESS ? ncclSuccess : ncclUnhandledCudaError;
}

ncclResult_t ncclMemFree(void *memory)
{
    return cuMemFree((CUdeviceptr)memory) == CUDA_SUCCESS ? ncclSuccess : ncclInvalidArgument;
}

/* ---- communicators ----------------------------------------------------------------------------------------- */

ncclResult_t ncclGetUniqueId(ncclUniqueId *id)
{
    memset(id, 0, sizeof *id);
    return getrandom(id->internal, 16, 0) == 16 ? ncclSuccess : ncclSystemError;
}

static atomic_int communicators;

int fake_nccl_communicators(void)
{
    return atomic_load(&communicators);
}

static ncclComm_t new_communicator(int rank, int n)
{
    const char *late = getenv("FAKE_NCCL_LATE_US");
    ncclComm_t comm = calloc(1, sizeof *comm);
    comm->rank = rank;
    comm->n = n;
    comm->references = 1;
    atomic_fetch_add(&communicators, 1);
    comm->polls = POLLS_TO_CONNECT;
    comm->late_us = late != NULL ? atol(late) : 0;
    pthread_mutex_init(&comm->lock, NULL);
    pthread_cond_init(&comm->changed, NULL);
    fake_job_list(comm);
    return comm;
}

static void name_by_id(ncclComm_t comm, const ncclUniqueId *id)
{
    int used = snprintf(comm->name, sizeof comm->name, "/tutti-fake-nccl-");
    for (int i = 0; i < 16; i++)
        used += snprintf(comm->name + used, sizeof comm->name - (size_t)used, "%02x", (unsigned char)id->internal[i]);
}

/* Waits for the ranks with the same id. */
static ncclResult_t attach(ncclComm_t comm)
{
    comm->region_bytes = sizeof(struct fake_region) + (size_t)(comm->n * comm->n) * sizeof(struct fake_box);
    int file = shm_open(comm->name, O_CREAT | O_RDWR, 0600);
    if (file < 0 || ftruncate(file, (off_t)comm->region_bytes) != 0) return ncclSystemError;
    void *memory = mmap(NULL, comm->region_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if (memory == MAP_FAILED) return ncclSystemError;
    comm->region = memory;
    atomic_store(&comm->region->process[comm->rank], getpid());
    atomic_fetch_add(&comm->region->joined, 1);
    return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t *out, int n, ncclUniqueId id, int rank, ncclConfig_t *config)
{
    static atomic_bool printed;
    if (!atomic_exchange(&printed, true)) fprintf(stderr, "FAKE NCCL: no GPU, no NCCL; shared memory\n");
    if (fake_current() == NULL || n < 1 || rank < 0 || rank >= n || n > FAKE_RANKS || config->blocking != 0)
        return ncclInvalidArgument;
    ncclComm_t comm = new_communicator(rank, n);
    *out = comm;
    comm->context = fake_current();
    if (fake_fault("oom", rank) >= 0) {
        snprintf(comm->text, sizeof comm->text,
                 "FAKE NCCL: Cuda failure 2 'out of memory', as requested by FAKE_NCCL_FAULT");
        atomic_store(&comm->error, ncclUnhandledCudaError);
        return ncclInProgress;
    }
    name_by_id(comm, &id);
    fake_job_begin(&comm, 1);
    ncclResult_t result = attach(comm);
    return result == ncclSuccess ? ncclInProgress : result;
}

static bool is_ready(ncclComm_t comm)
{
    if (comm->ready) return true;
    comm->ready = atomic_load(&comm->region->joined) == comm->n;
    if (comm->ready && comm->rank == 0) shm_unlink(comm->name);
    return comm->ready;
}

bool fake_is_free(ncclComm_t comm)
{
    return comm->ready && !atomic_load(&comm->works);
}

static atomic_int splits, windows;

int fake_nccl_windows(void)
{
    return atomic_load(&windows);
}

int fake_nccl_splits(void)
{
    return atomic_load(&splits);
}

/* ---- splitting --------------------------------------------------------------------------------------------- */

static void choose(ncclComm_t comm, int color, int key)
{
    struct fake_choice *mine = &comm->region->split[++comm->splits % 2][comm->rank];
    mine->color = color;
    mine->key = key;
    atomic_store(&mine->turn, comm->splits);
}

enum { WINDOW = -77 }; /* color of a window's registration */

/* Work of the communicator's own thread, and the place of the result. */
struct together {
    ncclComm_t comm, new_comm;
    ncclComm_t *part;
    void **window, *memory;
};

/* Orders the new communicator's ranks, when all have chosen: by key, then by rank. */
static ncclResult_t make_new_comm(struct together *task)
{
    ncclComm_t comm = task->comm;
    const struct fake_choice *split = comm->region->split[comm->splits % 2], *mine = &split[comm->rank];
    int n = 0, rank = 0;
    for (int r = 0; r < comm->n; r++) {
        if (split[r].color != mine->color) continue;
        n++;
        rank += split[r].key < mine->key || (split[r].key == mine->key && r < comm->rank);
    }
    task->new_comm = new_communicator(rank, n);
    snprintf(task->new_comm->name, sizeof task->new_comm->name, "%.90s-%d-%d", comm->name, comm->splits, mine->color);
    task->new_comm->context = comm->context;
    return attach(task->new_comm);
}

static ncclResult_t look_at_split(struct together *task)
{
    ncclComm_t comm = task->comm;
    const struct fake_choice *split = comm->region->split[comm->splits % 2];
    for (int r = 0; r < comm->n; r++)
        if (atomic_load(&split[r].turn) != comm->splits) return ncclInProgress;
    for (int r = 0; r < comm->n; r++)
        if ((split[r].color == WINDOW) != (task->window != NULL)) return ncclInvalidUsage;
    if (task->window != NULL || split[comm->rank].color == NCCL_SPLIT_NOCOLOR) return ncclSuccess;
    ncclResult_t result = task->new_comm == NULL ? make_new_comm(task) : ncclSuccess;
    return result != ncclSuccess || is_ready(task->new_comm) ? result : ncclInProgress;
}

/* Stores through the caller's pointer when it completes, as NCCL does, even if by an abort. */
static void *together_main(void *argument)
{
    static const struct timespec nap = {0, 300000};
    struct together *task = argument;
    ncclComm_t comm = task->comm;
    ncclResult_t result = ncclInProgress;
    while (result == ncclInProgress && !atomic_load(&comm->aborted)) {
        nanosleep(&nap, NULL);
        result = look_at_split(task);
    }
    bool good = result == ncclSuccess;
    if (!good && task->new_comm != NULL) fake_release(task->new_comm);
    if (task->window != NULL)
        *task->window = good ? task->memory : NULL;
    else
        *task->part = good ? task->new_comm : NULL;
    if (good && task->window != NULL) atomic_fetch_add(&windows, 1);
    if (good && task->window != NULL) comm->windows++;
    if (!good) atomic_store(&comm->error, result == ncclInProgress ? ncclInternalError : result);
    atomic_store(&comm->works, false);
    fake_release(comm);
    free(task);
    return NULL;
}

/* Runs on a thread of its own, which ends with works = false and releases the communicator. */
void fake_begin_working(ncclComm_t comm, void *(*fn)(void *), void *argument)
{
    pthread_t thread;
    pthread_mutex_lock(&comm->lock);
    comm->references++;
    pthread_mutex_unlock(&comm->lock);
    atomic_store(&comm->works, true);
    if (pthread_create(&thread, NULL, fn, argument) != 0) abort();
    pthread_detach(thread);
}

/* Starts the work.  As with NCCL, the result does not say that the call is in progress. */
static ncclResult_t begin_together(struct together task)
{
    struct together *copy = malloc(sizeof *copy);
    if (copy == NULL) return ncclSystemError;
    *copy = task;
    fake_job_begin(&copy->comm, 1);
    fake_begin_working(task.comm, together_main, copy);
    return ncclSuccess;
}

ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t *out, ncclConfig_t *config)
{
    if (!fake_is_free(comm) || (config != NULL && config->blocking != 0)) return ncclInvalidArgument;
    pthread_mutex_lock(&comm->lock);
    bool under_way = comm->serving != comm->tickets || comm->n_held > 0;
    pthread_mutex_unlock(&comm->lock);
    if (under_way) {
        snprintf(comm->text, sizeof comm->text, "FAKE NCCL: a split while operations are pending");
        return ncclInvalidUsage;
    }
    *out = NULL;
    atomic_fetch_add(&splits, 1);
    choose(comm, color, key);
    return begin_together((struct together){.comm = comm, .part = out});
}

ncclResult_t ncclCommWindowRegister(ncclComm_t comm, void *memory, size_t bytes, ncclWindow_t *window, int flags)
{
    if (!fake_is_free(comm) || memory == NULL || bytes == 0 || flags != NCCL_WIN_COLL_SYMMETRIC)
        return ncclInvalidArgument;
    choose(comm, WINDOW, 0);
    return begin_together((struct together){.comm = comm, .window = (void **)window, .memory = memory});
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *error)
{
    *error = (ncclResult_t)atomic_load(&comm->error);
    if (*error != ncclSuccess) return ncclSuccess;
    if (!comm->ready) {
        if (!is_ready(comm)) *error = ncclInProgress;
    } else if (atomic_load(&comm->works)) {
        *error = ncclInProgress;
    } else if (comm->n_held > 0) {
        comm->connected = --comm->polls <= 0;
        if (!comm->connected) *error = ncclInProgress;
        if (comm->connected) fake_enqueue_held(comm);
    }
    return ncclSuccess;
}

void fake_release(ncclComm_t comm)
{
    pthread_mutex_lock(&comm->lock);
    bool last = --comm->references == 0;
    pthread_mutex_unlock(&comm->lock);
    if (!last) return;
    atomic_fetch_sub(&communicators, 1);
    fake_job_unlist(comm);
    if (comm->region != NULL) munmap(comm->region, comm->region_bytes);
    if (comm->region != NULL && !comm->ready) shm_unlink(comm->name);
    pthread_cond_destroy(&comm->changed);
    pthread_mutex_destroy(&comm->lock);
    free(comm);
}

static bool is_busy(ncclComm_t comm)
{
    pthread_mutex_lock(&comm->lock);
    bool busy = comm->serving != comm->tickets;
    pthread_mutex_unlock(&comm->lock);
    return busy;
}

static void leave(ncclComm_t comm)
{
    if (comm->region != NULL) atomic_store(&comm->region->process[comm->rank], 0);
}

static bool all_have_left(ncclComm_t comm)
{
    for (int r = 0; r < comm->n; r++) {
        int process = atomic_load(&comm->region->process[r]);
        if (process != 0 && kill(process, 0) == 0) return false;
    }
    return true;
}

static void *finalize_main(void *argument)
{
    ncclComm_t comm = argument;
    while (is_busy(comm) && !atomic_load(&comm->aborted)) usleep(200);
    if (!atomic_load(&comm->aborted)) leave(comm);
    atomic_store(&comm->works, false);
    fake_release(comm);
    return NULL;
}

ncclResult_t ncclCommFinalize(ncclComm_t comm)
{
    if (!fake_is_free(comm) || comm->n_held > 0) return ncclInvalidArgument;
    fake_job_begin(&comm, 1);
    fake_begin_working(comm, finalize_main, comm);
    return ncclInProgress;
}

static atomic_int ending;
static atomic_int ending_process;

int fake_nccl_ending(void)
{
    return atomic_load(&ending);
}

/* NCCL and the driver clean up in the exit, and a thread that still ends a communicator then crashes. */
static void clean_up(void)
{
    if (atomic_load(&ending) == 0 || atomic_load(&ending_process) != getpid()) return;
    fprintf(stderr, "FAKE NCCL: the process exits while a thread ends a communicator\n");
    abort();
}

__attribute__((constructor)) static void clean_up_in_the_exit(void)
{
    atexit(clean_up);
}

ncclResult_t ncclCommDestroy(ncclComm_t comm)
{
    if (!fake_is_free(comm)) return ncclInvalidArgument;
    long late_ms = fake_fault("late", comm->rank);
    atomic_store(&ending_process, getpid());
    atomic_fetch_add(&ending, 1);
    if (late_ms > 0) usleep((useconds_t)late_ms * 1000);
    for (int i = 0; i < 20000 && !all_have_left(comm); i++) usleep(1000);
    fake_release(comm);
    atomic_fetch_sub(&ending, 1);
    return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t comm)
{
    atomic_store(&comm->aborted, true);
    bool busy = true;
    for (int i = 0; i < 5000 && busy; i++) { /* its running operations end, and the other operations of the device */
        busy = is_busy(comm) || atomic_load(&comm->works) || fake_is_busy(comm->context);
        if (busy) usleep(1000);
    }
    for (int i = 0; i < comm->n_held; i++) fake_nccl_work.drop(comm->held[i].op);
    comm->n_held = 0;
    leave(comm);
    fake_release(comm);
    return ncclSuccess;
}

ncclResult_t ncclCommRegister(const ncclComm_t comm, void *memory, size_t bytes, void **handle)
{
    (void)bytes;
    *handle = memory;
    return comm->ready ? ncclSuccess : ncclInvalidUsage;
}

static void look_for_misuse(ncclComm_t comm)
{
    if (is_busy(comm)) fake_misused("memory is deregistered from a communicator with pending operations");
}

ncclResult_t ncclCommWindowDeregister(ncclComm_t comm, ncclWindow_t window)
{
    if (window == NULL || comm->windows == 0) return ncclInvalidUsage;
    look_for_misuse(comm);
    comm->windows--;
    atomic_fetch_sub(&windows, 1);
    return ncclSuccess;
}

ncclResult_t ncclCommDeregister(const ncclComm_t comm, void *handle)
{
    look_for_misuse(comm);
    return comm->ready && handle != NULL ? ncclSuccess : ncclInvalidUsage;
}

ncclResult_t ncclRedOpCreatePreMulSum(ncclRedOp_t *op, void *scalar, ncclDataType_t type,
                                      ncclScalarResidence_t residence, ncclComm_t comm)
{
    if (residence != ncclScalarHostImmediate || !comm->ready) return ncclInvalidArgument;
    comm->scalars[comm->n_scalars % FAKE_SCALARS] = fake_scalar(type, scalar);
    *op = (ncclRedOp_t)(ncclNumOps + comm->n_scalars++ % FAKE_SCALARS);
    return ncclSuccess;
}

ncclResult_t ncclRedOpDestroy(ncclRedOp_t op, ncclComm_t comm)
{
    return comm->ready && op >= ncclNumOps ? ncclSuccess : ncclInvalidArgument;
}
