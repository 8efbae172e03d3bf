#include "rank.h"

#include <dlfcn.h>
#include <sys/mman.h>
#include <time.h>

#include "base/forked.h"

void rank_sleep_ms(int ms)
{
    usleep((useconds_t)ms * 1000);
}

/* ---- the host ---------------------------------------------------------------------------------------------- */

_Thread_local char rank_last_error[512];
uint8_t rank_token[TUTTI_TOKEN_BYTES] = {1};

static void host_complete(tutti_request *request, int status)
{
    struct done *done = request->owner;
    if (done->is) {
        fprintf(stderr, "completed twice\n");
        abort();
    }
    done->is = true;
    done->status = status;
    snprintf(done->text, sizeof done->text, "%s", status == TUTTI_OK ? "" : rank_last_error);
}

int rank_error(int status, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(rank_last_error, sizeof rank_last_error, format, args);
    va_end(args);
    return status;
}

/* Datagrams dropped for a wrong secret, and whether this rank falsifies its own secrets. */
_Thread_local int rank_dropped;
bool rank_spoils_secrets;

/* Lines that this rank, which may be a thread, logged at INFO or above, and the last one. */
_Thread_local int rank_logged;
static _Thread_local char rank_last_logged[256];

static void host_log(int level, const char *format, ...)
{
    char line[256];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    if (strstr(format, "dropped a message without its link's secret") != NULL) rank_dropped++;
    if (level <= 2) {
        rank_logged++;
        memcpy(rank_last_logged, line, sizeof line);
    }
    if (level < 2 || getenv("TCP_RANKS_LOG") != NULL) fprintf(stderr, "%s\n", line);
}

static const char *host_env(const char *name)
{
    const char *value = getenv(name);
    return value != NULL && *value != '\0' ? value : NULL;
}

static void host_reduce(tutti_dtype dtype, tutti_reduce_op op, void *data, const void *a, const void *b, int64_t n)
{
    (void)dtype;
    (void)op;
    for (int64_t i = 0; i < n; i++) ((float *)data)[i] = ((const float *)a)[i] + ((const float *)b)[i];
}

static void host_mac(uint8_t mac[32], const void *message, size_t bytes)
{
    token_mac(mac, rank_token, message, bytes);
    if (rank_spoils_secrets && bytes > 7 && memcmp(message, "session", 7) == 0) mac[0] ^= 2;
}

static void host_notified(void *core, int32_t peer, const void *message, size_t bytes)
{
    struct notified *notified = core;
    notified->messages++;
    notified->message_from = peer;
    notified->message_bytes = bytes;
    memcpy(notified->message, message, bytes);
}

static void host_lost(void *core, int32_t peer, bool left, const char *why)
{
    struct notified *notified = core;
    notified->lost++;
    notified->lost_rank = peer;
    notified->left = left;
    snprintf(notified->why, sizeof notified->why, "%s", why);
}

const tutti_host rank_host = {.abi = TUTTI_BACKEND_ABI,
                              .size = sizeof(tutti_host),
                              .complete = host_complete,
                              .error = rank_error,
                              .log = host_log,
                              .now_ns = monotonic_ns,
                              .env = host_env,
                              .reduce = host_reduce,
                              .store_set = shared_store_set,
                              .store_get = shared_store_get,
                              .token_mac = host_mac,
                              .token_equal = token_equal,
                              .random = token_random,
                              .notified = host_notified,
                              .peer_lost = host_lost,
                              .forked_gives_up = forked_gives_up,
                              .forked_forgets = forked_forgets,
                              .store_append = shared_store_append,
                              .store_gather = shared_store_gather};

/* ---- a rank ------------------------------------------------------------------------------------------------ */

static const tutti_backend *load_backend(void)
{
    void *library = dlopen(TUTTI_BACKENDS_DIR "/libtutti_tcp.so", RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        fprintf(stderr, "%s\n", dlerror());
        return NULL;
    }
    return dlsym(library, TUTTI_BACKEND_SYMBOL);
}

void *rank_state_new(const tutti_backend *backend)
{
    void *state = aligned_alloc(64, (backend->group_bytes + 63) / 64 * 64);
    memset(state, 0, backend->group_bytes);
    return state;
}

int rank_open(struct rank *self)
{
    for (int32_t i = 0; i < RANKS_MOST; i++) self->globals[i] = i;
    self->state = rank_state_new(self->backend);
    tutti_group_info info = {.size = sizeof info,
                             .rank = self->rank,
                             .world_size = self->world,
                             .global_ranks = self->globals,
                             .id = 77,
                             .core = &self->notified,
                             .store = (tutti_store *)self->shared,
                             .device = {TUTTI_CPU, 0},
                             .timeout_ms = 10000,
                             .local_rank = self->rank,
                             .local_world_size = self->world,
                             .name = "test"};
    return self->backend->open(self->state, &info, &rank_host);
}

void rank_close(struct rank *self)
{
    self->backend->close(self->state);
    free(self->state);
    self->state = NULL;
}

void rank_progress(struct rank *self)
{
    int descriptors[TUTTI_ARM_MAX];
    struct pollfd polled[TUTTI_ARM_MAX];
    if (self->backend->progress(self->state) != 0) return;
    int n = self->backend->arm(self->state, descriptors);
    for (int i = 0; i < n; i++) polled[i] = (struct pollfd){descriptors[i], POLLIN, 0};
    if (n > 0) poll(polled, (nfds_t)n, 20);
}

void rank_progress_ms(struct rank *self, int ms)
{
    for (int64_t end = monotonic_ns() + (int64_t)ms * 1000000; monotonic_ns() < end;) rank_progress(self);
}

void rank_await(struct rank *self, const char *name, int rank)
{
    char key[64];
    uint8_t byte;
    size_t bytes;
    snprintf(key, sizeof key, "meet/%s/%d", name, rank);
    int64_t end = monotonic_ns() + 2 * (int64_t)WAIT_MS * 1000000;
    while (shared_store_get((tutti_store *)self->shared, key, &byte, 1, &bytes, 0) != TUTTI_OK) {
        if (monotonic_ns() > end) exit(9); /* the other rank has failed */
        rank_progress(self);
    }
}

void rank_report(struct rank *self, const char *name)
{
    char key[64];
    snprintf(key, sizeof key, "meet/%s/%d", name, self->rank);
    shared_store_set((tutti_store *)self->shared, key, "x", 1);
}

void rank_barrier(struct rank *self, const char *name)
{
    rank_report(self, name);
    for (int i = 0; i < self->world; i++) rank_await(self, name, i);
}

void rank_begun(struct message *m, int status)
{
    if (status == TUTTI_REQUEST_PENDING) return;
    if (m->done.is) abort();
    m->done.is = true;
    m->done.status = status == TUTTI_REQUEST_DONE ? TUTTI_OK : status;
    snprintf(m->done.text, sizeof m->done.text, "%s", status < 0 ? rank_last_error : "");
}

void rank_start(struct rank *self, void *state, struct message *m, bool send, const tutti_request *request)
{
    *m = (struct message){.request = *request};
    m->request.source = -7;
    m->request.owner = &m->done;
    rank_begun(m, (send ? self->backend->send : self->backend->recv)(state, &m->request));
}

static tutti_request request_of(int32_t peer, uint64_t tag, void *data, size_t bytes, uint32_t flags)
{
    return (tutti_request){.peer = peer, .flags = flags, .tag = tag, .fingerprint = 5, .data = data, .bytes = bytes};
}

void rank_send(struct rank *self, struct message *m, int32_t peer, uint64_t tag, void *data, size_t bytes,
               uint32_t flags)
{
    tutti_request request = request_of(peer, tag, data, bytes, flags);
    rank_start(self, self->state, m, true, &request);
}

void rank_recv(struct rank *self, struct message *m, int32_t peer, uint64_t tag, void *data, size_t bytes,
               uint32_t flags)
{
    tutti_request request = request_of(peer, tag, data, bytes, flags);
    rank_start(self, self->state, m, false, &request);
}

int rank_wait(struct rank *self, struct message *m)
{
    for (int64_t end = monotonic_ns() + (int64_t)WAIT_MS * 1000000; !m->done.is;) {
        if (monotonic_ns() > end) return 1;
        rank_progress(self);
    }
    return m->done.status;
}

/* The values repeat after 251 * 256 bytes.  251 is a prime, so parts that are mixed up differ. */
enum { PERIOD = 251 * 256 };

static uint8_t value_at(size_t i, unsigned seed)
{
    return (uint8_t)(i * 7 + seed * 13 + i / 251);
}

void rank_fill(void *data, size_t bytes, unsigned seed)
{
    uint8_t *p = data;
    size_t head = bytes < PERIOD ? bytes : PERIOD;
    for (size_t i = 0; i < head; i++) p[i] = value_at(i, seed);
    for (size_t done = head; done < bytes; done += head) memcpy(p + done, p, bytes - done < head ? bytes - done : head);
}

bool rank_is_filled(const void *data, size_t bytes, unsigned seed)
{
    const uint8_t *p = data;
    size_t head = bytes < PERIOD ? bytes : PERIOD;
    for (size_t i = 0; i < head; i++)
        if (p[i] != value_at(i, seed)) return false;
    return bytes == head || memcmp(p, p + head, bytes - head) == 0; /* each byte equals the one a period before */
}

double rank_cpu_ms(const struct rusage *from, const struct rusage *to)
{
    double s = (double)(to->ru_utime.tv_sec - from->ru_utime.tv_sec + to->ru_stime.tv_sec - from->ru_stime.tv_sec);
    double us = (double)(to->ru_utime.tv_usec - from->ru_utime.tv_usec + to->ru_stime.tv_usec - from->ru_stime.tv_usec);
    return s * 1e3 + us / 1e3;
}

bool rank_is_rdm(void)
{
    const char *provider = getenv("TUTTI_FABRIC_PROVIDER");
    return provider != NULL && strchr(provider, ';') != NULL;
}

/* ---- the parent -------------------------------------------------------------------------------------------- */

int rank_main(scenario *body, struct shared_store *shared, int rank, int world)
{
    struct rank self = {.backend = load_backend(), .shared = shared, .rank = rank, .world = world};
    if (self.backend == NULL) return 1;
    return body(&self);
}

/* Runs body as world processes. expected[i] is rank i's exit code, or minus its signal.  NULL: all 0. */
static void rank_run_expecting(scenario *body, int world, const int *expected)
{
    pid_t pid[RANKS_MOST];
    struct shared_store *shared = shared_store_new();
    fflush(NULL);
    for (int i = 0; i < world; i++) {
        pid[i] = fork();
        if (pid[i] == 0) {
            alarm(200); /* a hang ends as a failure, before .ci/watch ends the program */
            exit(rank_main(body, shared, i, world));
        }
    }
    int result[RANKS_MOST] = {0};
    for (int i = 0; i < world; i++) {
        int status = 0;
        waitpid(pid[i], &status, 0);
        result[i] = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
    }
    munmap(shared, sizeof *shared);
    for (int i = 0; i < world; i++) assert_int_equal(result[i], expected != NULL ? expected[i] : 0);
}

void rank_run(scenario *body, int world)
{
    rank_run_expecting(body, world, NULL);
}

void rank_run_until_silent(scenario *body, int world, const int *expected)
{
    if (rank_is_rdm()) setenv("TUTTI_SILENT_MS", SILENT_MS, 1);
    rank_run_expecting(body, world, expected);
    if (rank_is_rdm()) setenv("TUTTI_SILENT_MS", PATIENT_MS, 1);
}

int rank_tests_main(int argc, char **argv, const struct rank_tests *tests)
{
    if (argc > 1 && strcmp(argv[1], "rdm") == 0) {
        setenv("TUTTI_FABRIC_PROVIDER", "tcp;ofi_rxm", 0);
        setenv("TUTTI_SILENT_MS", PATIENT_MS, 1);
    }
    if (access(TUTTI_BACKENDS_DIR "/libtutti_tcp.so", R_OK) != 0) return 77; /* built without libfabric */
    token_init();
    signal(SIGPIPE, SIG_IGN);
    setenv("TUTTI_SHM", "0", 1);
    cmocka_set_test_filter(getenv("TCP_ONLY"));
    int failed = _cmocka_run_group_tests("over libfabric", tests->all, tests->n_all, NULL, NULL);
    if (tests->n_network > 0)
        failed += _cmocka_run_group_tests("libfabric's own", tests->network, tests->n_network, NULL, NULL);
    if (rank_is_rdm()) return failed; /* the other tests do not use the provider and have run without it */
    setenv("TUTTI_SHM", "1", 1);
    failed += _cmocka_run_group_tests("over shared memory", tests->all, tests->n_all, NULL, NULL);
    setenv("TUTTI_SHM_CMA", "0", 1); /* as where process_vm_readv is refused */
    failed += _cmocka_run_group_tests("over shared memory, copied", tests->all, tests->n_all, NULL, NULL);
    return failed;
}
