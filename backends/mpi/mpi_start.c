/* Starts MPI and schedules its end.
 *
 * The program may have started MPI itself, with any thread level; then the program also finalizes it.  If Tutti starts
 * MPI, it finalizes it when the process exits.  MPI can be started only once, so finalizing it with the last group
 * would be too early.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "mpib.h"

static struct {
    int level;
    atomic_bool over; /* the program has finalized its MPI, whether or not groups were open */
    bool started, ours;
    pthread_t main;       /* the only thread that may call MPI below MPI_THREAD_SERIALIZED */
    pthread_mutex_t one;  /* serializes calls under MPI_THREAD_SERIALIZED */
    pthread_mutex_t lock; /* guards the start */
    pid_t pid;            /* the process that started MPI */
    const tutti_host *host;
    bool yields;     /* the launcher told MPI to yield when idle */
    atomic_int open; /* open group trees */
    atomic_bool unclean;
    char library[64];
} mpib = {.lock = PTHREAD_MUTEX_INITIALIZER, .one = PTHREAD_MUTEX_INITIALIZER};

/* ---- yielding -------------------------------------------------------------------------------------------------- */

/* When ranks share cores, Open MPI yields in every poll that finds nothing.  A caller that polls for several things
 * would lose its core between any two of them.  Tutti yields once a round (mpi_wait.c), so MPI need yield only in
 * blocking calls and in the program's own.  The switch is an internal symbol of Open MPI; without it nothing
 * changes. */
static bool (*set_yields)(bool);

static void find_yield_switch(void)
{
    *(void **)&set_yields = dlsym(RTLD_DEFAULT, "opal_progress_set_yield_when_idle");
    mpib.yields = set_yields != NULL && set_yields(false);
    if (mpib.yields && !mpib.ours) set_yields(true);
}

void mpib_block_begin(void)
{
    if (mpib.yields) set_yields(true);
}

void mpib_block_end(void)
{
    if (mpib.yields) set_yields(false);
}

/* ---- threads --------------------------------------------------------------------------------------------------- */

static bool may_enter(void)
{
    if (atomic_load_explicit(&mpib.over, memory_order_relaxed)) return false; /* relaxed: orders nothing else */
    if (mpib.level == MPI_THREAD_SERIALIZED) pthread_mutex_lock(&mpib.one);
    return mpib.level >= MPI_THREAD_SERIALIZED || pthread_equal(mpib.main, pthread_self());
}

bool mpib_enter(void)
{
    if (!may_enter()) return false;
    if (!mpib.ours) mpib_block_end();
    return true;
}

bool mpib_main_only(void)
{
    return mpib.level < MPI_THREAD_SERIALIZED;
}

void mpib_leave(void)
{
    if (!mpib.ours) mpib_block_begin(); /* the program may block in MPI next */
    if (mpib.level == MPI_THREAD_SERIALIZED) pthread_mutex_unlock(&mpib.one);
}

/* ---- library name ---------------------------------------------------------------------------------------------- */

const char *mpib_library(void)
{
    return mpib.library;
}

int mpib_error(const tutti_host *host, const char *what, int error)
{
    char text[MPI_MAX_ERROR_STRING] = "";
    int length = 0;
    MPI_Error_string(error, text, &length);
    return host->error(TUTTI_ERR_BACKEND, "%s: %s", what, text);
}

/* Shortens "Open MPI v4.1.4, package: .." and "MPICH Version:\t4.0.2\n.." to their first part. */
static void name_library(void)
{
    static char text[MPIB_VERSION_MAX]; /* too large for a small stack; the text never changes */
    int length = 0;
    MPI_Get_library_version(text, &length);
    text[strcspn(text, ",\n")] = '\0';
    for (char *c = text; *c != '\0'; c++)
        if (*c == '\t') *c = ' ';
    snprintf(mpib.library, sizeof mpib.library, "%s", text);
}

/* Refuses a program that has loaded another MPI: the calls here would resolve to that library, since the function names
 * are the same. */
static int check_library(const tutti_host *host)
{
    static const char open_mpi[] = "Open MPI";
    name_library();
    bool runs_open_mpi = strstr(mpib.library, open_mpi) != NULL;
    if (runs_open_mpi == (strcmp(MPIB_BUILT_FOR, open_mpi) == 0)) return TUTTI_OK;
    return host->error(TUTTI_ERR_BACKEND,
                       "backend " MPIB_TABLE " was built for " MPIB_BUILT_FOR
                       ", but this program has loaded %s: use backend mpi, which selects the matching plug-in",
                       mpib.library);
}

/* ---- the launcher ---------------------------------------------------------------------------------------------- */

#ifdef OPEN_MPI
#define MPIB_LAUNCHER "tutti-run --mpi -n %d PROGRAM, mpirun -n %d PROGRAM (Open MPI's mpirun), or srun --mpi=pmix"
static const char *const launcher_variables[] = {"OMPI_COMM_WORLD_SIZE", "PMIX_NAMESPACE", "PRTE_MCA_prte_base_help"};
static const char *const other_variables[] = {"PMI_FD", "HYDI_CONTROL_FD"};
#define MPIB_OTHER "by MPICH's mpiexec"
#else
#define MPIB_LAUNCHER "tutti-run --mpi=mpich -n %d PROGRAM, mpiexec -n %d PROGRAM (MPICH's mpiexec), or srun --mpi=pmi2"
static const char *const launcher_variables[] = {"PMI_FD", "PMI_PORT", "PMI_RANK"};
static const char *const other_variables[] = {"OMPI_COMM_WORLD_SIZE"};
#define MPIB_OTHER "by Open MPI's mpirun"
#endif

static bool any_set(const tutti_host *host, const char *const *names, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (host->env(names[i]) != NULL) return true;
    return false;
}

/* Refuses to start without the MPI's own launcher, because MPI would then give each rank a world of its own. */
static int check_launcher(const tutti_host *host, int world_size)
{
    if (any_set(host, launcher_variables, sizeof launcher_variables / sizeof *launcher_variables)) return TUTTI_OK;
    bool other = any_set(host, other_variables, sizeof other_variables / sizeof *other_variables);
    return host->error(TUTTI_ERR_BACKEND,
                       "backend mpi was built for " MPIB_BUILT_FOR
                       ", but this program was started %s: start it with " MPIB_LAUNCHER,
                       other ? MPIB_OTHER ", which " MPIB_BUILT_FOR " does not support" : "without an MPI launcher",
                       world_size, world_size);
}

/* ---- start and end --------------------------------------------------------------------------------------------- */

/* Makes libmpi's symbols global.  This plug-in loaded it privately, and MPI's own components need its symbols
 * globally. */
static void export_library(void)
{
    Dl_info info;
    if (dladdr((void *)(uintptr_t)MPI_Init_thread, &info) != 0)
        dlopen(info.dli_fname, RTLD_NOLOAD | RTLD_GLOBAL | RTLD_NOW);
}

static void finalize(void)
{
    int done = 0;
    MPI_Finalized(&done);
    if (done || getpid() != mpib.pid) return; /* a forked child does not own MPI */
    if (atomic_load(&mpib.open) > 0) {
        mpib_end_alone(mpib.host, "the process exits with open groups");
    } else if (atomic_load(&mpib.unclean)) {
        mpib_end_alone(mpib.host, "abandoned operations are still pending in MPI");
    } else if (mpib_end_together(mpib.host)) {
        mpib_block_begin();
        MPI_Finalize();
    }
}

/* Runs when MPI is finalized: MPI_Finalize, whoever calls it, first deletes the attributes of MPI_COMM_SELF. */
static int on_finalize(MPI_Comm comm, int key, void *value, void *extra)
{
    (void)comm, (void)key, (void)value, (void)extra;
    mpib_types_free();
    if (!mpib.ours) atomic_store(&mpib.over, true);
    return MPI_SUCCESS;
}

static void watch_finalize(void)
{
    int key = MPI_KEYVAL_INVALID;
    MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, on_finalize, &key, NULL);
    MPI_Comm_set_attr(MPI_COMM_SELF, key, NULL);
    MPI_Comm_free_keyval(&key); /* stays valid as long as the attribute */
}

static int start_unlocked(const tutti_host *host, int world_size)
{
    int running = 0, over = 0, is_main = 1, error = MPI_SUCCESS, status = check_library(host);
    MPI_Initialized(&running);
    MPI_Finalized(&over);
    if (over)
        return host->error(TUTTI_ERR_BACKEND,
                           "MPI has been finalized and cannot be started again; finalize it after the last group");
    if (status == TUTTI_OK && !running) status = check_launcher(host, world_size);
    if (status != TUTTI_OK) return status;
    export_library(); /* not earlier: a plug-in for another MPI, loaded instead, would resolve to this one's
                       * functions */
    if (!running) {
        error = MPI_Init_thread(NULL, NULL, MPI_THREAD_MULTIPLE, &mpib.level);
        if (error != MPI_SUCCESS)
            return host->error(TUTTI_ERR_BACKEND,
                               "MPI_Init_thread failed (%d); start the ranks with MPI's own launcher", error);
        mpib.ours = true;
        mpib.pid = getpid();
        mpib.host = host;
        atexit(finalize);
    } else {
        MPI_Query_thread(&mpib.level);
        MPI_Is_thread_main(&is_main);
        if (mpib.level < MPI_THREAD_SERIALIZED)
            TUTTI_LOG_AS(host, "mpi", 2,
                         "the program started MPI below MPI_THREAD_SERIALIZED: async operations progress only while "
                         "its main thread waits");
        if (mpib.level < MPI_THREAD_SERIALIZED && !is_main)
            return host->error(TUTTI_ERR_BACKEND, "the program started MPI for its main thread only: call Tutti from "
                                                  "that thread, or use MPI_THREAD_MULTIPLE");
    }
    mpib.main = pthread_self(); /* used only if a single thread may call MPI */
    find_yield_switch();
    error = mpib_types_make(host);
    watch_finalize();
    return error == MPI_SUCCESS ? TUTTI_OK : mpib_error(host, "MPI cannot create the reduction datatypes", error);
}

int mpib_start(const tutti_host *host, int world_size)
{
    pthread_mutex_lock(&mpib.lock);
    int status = mpib.started ? TUTTI_OK : start_unlocked(host, world_size);
    if (status == TUTTI_OK) mpib.started = true;
    pthread_mutex_unlock(&mpib.lock);
    return status;
}

void mpib_tree_opened(void)
{
    atomic_fetch_add(&mpib.open, 1);
}

void mpib_tree_closed(bool clean)
{
    if (!clean) atomic_store(&mpib.unclean, true);
    atomic_fetch_sub(&mpib.open, 1);
}
