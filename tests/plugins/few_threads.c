/* To be loaded before an MPI (LD_PRELOAD): it gives a program the level of threads that FEW_THREADS says, a digit,
 * where more is asked for, as an MPI does that was built or set up for less than MPI_THREAD_MULTIPLE; and with 0 and 1,
 * which mean the thread that started MPI alone, it ends a process in which another one looks for messages.
 * FEW_THREADS_OF names the MPI's library. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

static int (*test)(void *request, int *done, void *status);
static pthread_t starter;
static int most;

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
        fprintf(stderr, "MPI_Test is called by a thread that may not\n");
        abort();
    }
    return test(request, done, status);
}
