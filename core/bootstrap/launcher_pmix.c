/* PMIx: Open MPI's mpirun, PRRTE's prterun, srun --mpi=pmix.
 *
 * libpmix is loaded at run time, so it is no dependency.  Only the part of its interface that the PMIx Standard fixes
 * is declared here.  MPI in the same process uses the same library, which counts its users. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/env.h"
#include "base/error.h"
#include "bootstrap/launcher_exchange.h"

/* ---- the PMIx Standard, chapter 3 ------------------------------------------------------------------------------ */

enum {
    PMIX_NSPACE_BYTES = 256,
    PMIX_KEY_BYTES = 512,
    PMIX_TYPE_BOOL = 1,
    PMIX_TYPE_STRING = 3,
    PMIX_TYPE_INT = 6,
    PMIX_SCOPE_GLOBAL = 3
};

struct pmix_proc {
    char nspace[PMIX_NSPACE_BYTES];
    uint32_t rank;
};

struct pmix_value {
    uint16_t type;
    union {
        char *string;
        bool flag;
        int integer;
        uint64_t storage[3]; /* its widest member, an environment variable, has two pointers and a character */
    } data;
};

struct pmix_info {
    char key[PMIX_KEY_BYTES];
    uint32_t flags;
    struct pmix_value value;
};

static struct {
    int (*init)(struct pmix_proc *self, struct pmix_info *info, size_t n);
    int (*finalize)(const struct pmix_info *info, size_t n);
    int (*put)(uint8_t scope, const char *key, struct pmix_value *value);
    int (*commit)(void);
    int (*fence)(const struct pmix_proc *procs, size_t n_procs, const struct pmix_info *info, size_t n);
    int (*get)(const struct pmix_proc *from, const char *key, const struct pmix_info *info, size_t n,
               struct pmix_value **value);
    const char *(*error_string)(int status);
} pmix;

/* ---- loading --------------------------------------------------------------------------------------------------- */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static bool ready;
static pid_t ready_pid; /* the process that called PMIx_Init: a forked child's exit is not the rank's */
static struct pmix_proc self;

static int load(void)
{
    static const char *const names[] = {"PMIx_Init",  "PMIx_Finalize", "PMIx_Put",         "PMIx_Commit",
                                        "PMIx_Fence", "PMIx_Get",      "PMIx_Error_string"};
    void **const entries[] = {(void **)&pmix.init,        (void **)&pmix.finalize, (void **)&pmix.put,
                              (void **)&pmix.commit,      (void **)&pmix.fence,    (void **)&pmix.get,
                              (void **)&pmix.error_string};
    void *library = dlopen("libpmix.so.2", RTLD_NOW | RTLD_GLOBAL); /* libpmix's plug-ins use its symbols */
    if (library == NULL)
        return error_set(TUTTI_ERR_BACKEND,
                         "this program was started through PMIx, but libpmix.so.2 cannot be loaded (%s); install it "
                         "(Debian: libpmix2), or set MASTER_ADDR and MASTER_PORT",
                         dlerror());
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if ((*entries[i] = dlsym(library, names[i])) == NULL)
            return error_set(TUTTI_ERR_BACKEND, "libpmix.so.2 has no symbol %s; install a newer libpmix", names[i]);
    return TUTTI_OK;
}

/* Calls PMIx_Finalize at exit.  The launcher expects it of every process that called PMIx_Init. */
static void finalize_at_exit(void)
{
    if (getpid() != ready_pid) return;
    pmix.finalize(NULL, 0);
}

static int report_error(const char *what, int status)
{
    return error_set(TUTTI_ERR_BACKEND, "%s: %s (%d)", what, pmix.error_string(status), status);
}

static int init_once(void)
{
    pthread_mutex_lock(&lock);
    int status = ready ? TUTTI_OK : load();
    if (status == TUTTI_OK && !ready) {
        int answer = pmix.init(&self, NULL, 0);
        if (answer != 0) status = report_error("PMIx_Init", answer);
        ready = answer == 0;
        ready_pid = getpid();
        if (ready) atexit(finalize_at_exit);
    }
    pthread_mutex_unlock(&lock);
    return status;
}

/* ---- exchange -------------------------------------------------------------------------------------------------- */

static bool is_present(void)
{
    return env_string("PMIX_NAMESPACE", NULL) != NULL && env_string("PMIX_RANK", NULL) != NULL;
}

static int put_text(const char *key, char *text)
{
    struct pmix_value value = {.type = PMIX_TYPE_STRING, .data.string = text};
    int answer = pmix.put(PMIX_SCOPE_GLOBAL, key, &value);
    if (answer == 0) answer = pmix.commit();
    return answer == 0 ? TUTTI_OK : report_error("PMIx_Put", answer);
}

/* Waits for all ranks.  Afterwards every rank can read what any rank has put. */
static int fence(int64_t timeout_ms)
{
    struct pmix_info info[2] = {{.key = "pmix.collect", .value = {.type = PMIX_TYPE_BOOL, .data.flag = true}},
                                {.key = "pmix.timeout", .value = {.type = PMIX_TYPE_INT}}};
    info[1].value.data.integer = timeout_ms / 1000 < 86400 ? (int)(timeout_ms / 1000) + 1 : 86400;
    int answer = pmix.fence(NULL, 0, info, 2);
    return answer == 0 ? TUTTI_OK : report_error("the ranks did not all call PMIx_Fence", answer);
}

static int get_text(const char *key, char *text, size_t capacity)
{
    struct pmix_proc first = self;
    struct pmix_value *value = NULL;
    first.rank = 0;
    int answer = pmix.get(&first, key, NULL, 0, &value);
    if (answer != 0) return report_error("PMIx_Get of the text of rank 0", answer);
    int status = value->type == PMIX_TYPE_STRING && strlen(value->data.string) < capacity
                     ? TUTTI_OK
                     : error_set(TUTTI_ERR_BACKEND, "PMIx has an unexpected value under %s", key);
    if (status == TUTTI_OK) strcpy(text, value->data.string);
    if (value->type == PMIX_TYPE_STRING) free(value->data.string);
    free(value);
    return status;
}

static int share_text(int rank, const char *key, char *text, size_t capacity, int64_t timeout_ms)
{
    int status = init_once();
    if (status == TUTTI_OK && rank == 0) status = put_text(key, text);
    if (status == TUTTI_OK) status = fence(timeout_ms);
    return status == TUTTI_OK && rank > 0 ? get_text(key, text, capacity) : status;
}

const struct launcher_exchange launcher_pmix = {.name = "PMIx", .present = is_present, .share = share_text};
