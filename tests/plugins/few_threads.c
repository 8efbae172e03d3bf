/* Library to load before an MPI (LD_PRELOAD).  It limits the level of threads that a program gets to the digit in
 * FEW_THREADS, like an MPI that was built or configured without MPI_THREAD_MULTIPLE.
 *
 * Levels 0 and 1 allow only the thread that started MPI: a process ends if another one calls MPI_Test.  Level 2 allows
 * one thread at a time: a process ends if two call it at once.  One call in YIELD_EVERY yields inside, so that another
 * thread runs into it; if each did, a process beside busy ones would lose its core millions of times.  FEW_THREADS_OF
 * names the MPI's library. */
#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

enum { YIELD_EVERY = 256 };

static int (*test)(void *request, int *done, void *status);
static pthread_t starter;
static int most;
static atomic_int inside;
static atomic_uint calls;

__attribute__((visibility("default"))) int MPI_Init_thread(int *argc, char ***argv, int wanted, int *got);
__attribute__((visibility("default"))) int MPI_Test(void *request, int *done, void *status);

int MPI_Init_thread(int *argc, char ***argv, int wanted, int *got)
{
    int (*init_thread)(int *argc, char ***argv, int wanted, int *got) = NULL;
    void *library = dlopen(getenv("FEW_THREADS_OF"), RTLD_NOW | RTLD_NOLOAD | RTLD_GLOBAL);
    if (library == NULL) return 1;
    *(void **)&init_thread = dlsym(library, "PMPI_Init_thread");
    *(void **)&test = dlsym(library, "PMPI_Test");
    most = atoi(getenv("FEW_THREADS"));
    starter = pthread_self();
    return init_thread(argc, argv, wanted < most ? wanted : most, got);
}

int MPI_Test(void *request, int *done, void *status)
{
    if (most < 2 && !pthread_equal(starter, pthread_self())) {
        fprintf(stderr, "MPI_Test is called by a thread that must not call MPI\n");
        abort();
    }
    if (most == 2 && atomic_fetch_add(&inside, 1) > 0) {
        fprintf(stderr, "MPI_Test is called by two threads at once\n");
        abort();
    }
    if (most == 2 && atomic_fetch_add(&calls, 1) % YIELD_EVERY == 0)
        sched_yield(); /* a thread that does not wait for its turn enters now */
    int error = test(request, done, status);
    atomic_fetch_sub(&inside, 1);
    return error;
}
