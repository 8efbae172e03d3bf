/* Ranks that drive the tcp plug-in's table themselves, without the core: each is a process with a small host of the
 * test's own and a store in shared memory.  A rank prints and returns; only the parent asserts. */
#ifndef TCP_RANKS_H
#define TCP_RANKS_H

#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <tutti/backend.h>
#include <unistd.h>

#include "base/forked.h"
#include "base/token.h"
#include "usage.h"

enum { RANKS_MOST = 4, KEYS = 64, WAIT_MS = 20000 };

/* ---- the store --------------------------------------------------------------------------------------------- */

struct shared {
    pthread_mutex_t lock, append;
    int n;
    struct {
        char key[64];
        uint8_t value[1024];
        size_t bytes;
    } entry[KEYS];
};

static struct shared *shared_new(void)
{
    struct shared *shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pthread_mutexattr_t attributes;
    pthread_mutexattr_init(&attributes);
    pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
    pthread_mutex_init(&shared->lock, &attributes);
    pthread_mutex_init(&shared->append, &attributes);
    return shared;
}

static int64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static void nap_ms(int ms)
{
    usleep((useconds_t)ms * 1000);
}

static int store_set(tutti_store *store, const char *key, const void *value, size_t bytes)
{
    struct shared *shared = (void *)store;
    pthread_mutex_lock(&shared->lock);
    int i = 0;
    while (i < shared->n && strcmp(shared->entry[i].key, key) != 0) i++;
    snprintf(shared->entry[i].key, sizeof shared->entry[i].key, "%s", key);
    memcpy(shared->entry[i].value, value, bytes);
    shared->entry[i].bytes = bytes;
    if (i == shared->n) shared->n++;
    pthread_mutex_unlock(&shared->lock);
    return TUTTI_OK;
}

static int host_error(int status, const char *format, ...);

static int store_get(tutti_store *store, const char *key, void *buffer, size_t capacity, size_t *bytes,
                     int64_t timeout_ms)
{
    struct shared *shared = (void *)store;
    for (int64_t end = now_ns() + timeout_ms * 1000000;; nap_ms(1)) {
        pthread_mutex_lock(&shared->lock);
        for (int i = 0; i < shared->n; i++) {
            if (strcmp(shared->entry[i].key, key) != 0 || shared->entry[i].bytes > capacity) continue;
            *bytes = shared->entry[i].bytes;
            memcpy(buffer, shared->entry[i].value, *bytes);
            pthread_mutex_unlock(&shared->lock);
            return TUTTI_OK;
        }
        pthread_mutex_unlock(&shared->lock);
        if (now_ns() > end) return host_error(TUTTI_ERR_TIMEOUT, "no key %s", key);
    }
}

/* Of records, each a rank and a size before its bytes: a rank that opens once more replaces its own. */
static int store_append(tutti_store *store, const char *key, const void *value, size_t bytes)
{
    uint8_t old[1024], all[1024];
    size_t before = 0, after = 0;
    uint32_t header[2];
    struct shared *shared = (void *)store;
    pthread_mutex_lock(&shared->append);
    if (store_get(store, key, old, sizeof old, &before, 0) != TUTTI_OK) before = 0;
    for (size_t at = 0; at < before; at += sizeof header + header[1]) {
        memcpy(header, old + at, sizeof header);
        if (memcmp(header, value, sizeof *header) == 0) continue;
        memcpy(all + after, old + at, sizeof header + header[1]);
        after += sizeof header + header[1];
    }
    memcpy(all + after, value, bytes);
    store_set(store, key, all, after + bytes);
    pthread_mutex_unlock(&shared->append);
    return TUTTI_OK;
}

/* An entry whose second word is its rank replaces what a test has given in that rank's name. */
static int store_gather(tutti_store *store, const char *key, const char *part, const void *entry, size_t entry_bytes,
                        int32_t n, void *all, size_t capacity, size_t *bytes, int64_t timeout_ms)
{
    char name[64];
    uint8_t one[256];
    int32_t rank;
    memcpy(&rank, (const uint8_t *)entry + 8, sizeof rank);
    snprintf(name, sizeof name, "%s/%d", key, rank);
    memcpy(one, part, 5); /* "host-" or "none" */
    memcpy(one + 5, entry, entry_bytes);
    store_set(store, name, one, 5 + entry_bytes);
    *bytes = 0;
    for (int32_t i = 0; i < n; i++) {
        size_t got = 0;
        snprintf(name, sizeof name, "%s/%d", key, i);
        int status = store_get(store, name, one, sizeof one, &got, timeout_ms);
        if (status != TUTTI_OK || *bytes + entry_bytes > capacity) return status;
        if (got != 5 + entry_bytes || memcmp(one, part, 5) != 0) continue;
        memcpy((uint8_t *)all + *bytes, one + 5, entry_bytes);
        *bytes += entry_bytes;
    }
    return TUTTI_OK;
}

/* All ranks have come here. */
static inline void meet(struct shared *shared, const char *name, int rank, int world)
{
    char key[64];
    uint8_t byte;
    size_t bytes;
    snprintf(key, sizeof key, "meet/%s/%d", name, rank);
    store_set((tutti_store *)shared, key, "x", 1);
    for (int i = 0; i < world; i++) {
        snprintf(key, sizeof key, "meet/%s/%d", name, i);
        if (store_get((tutti_store *)shared, key, &byte, 1, &bytes, WAIT_MS) != TUTTI_OK) exit(9);
    }
}

/* ---- the host ---------------------------------------------------------------------------------------------- */

static _Thread_local char last_error[512];
static uint8_t token[TUTTI_TOKEN_BYTES] = {1};

struct done {
    bool is;
    int status;
    char text[512];
};

/* What a rank was told about others. */
struct told {
    int notes, note_from, lost, lost_rank;
    size_t note_bytes;
    bool left;
    uint8_t note[TUTTI_NOTIFY_MAX];
    char why[256];
};

static void host_complete(tutti_request *request, int status)
{
    struct done *done = request->owner;
    if (done->is) {
        fprintf(stderr, "completed twice\n");
        abort();
    }
    done->is = true;
    done->status = status;
    snprintf(done->text, sizeof done->text, "%s", status == TUTTI_OK ? "" : last_error);
}

static int host_error(int status, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(last_error, sizeof last_error, format, args);
    va_end(args);
    return status;
}

/* A datagram link's messages that had another secret than its own; and whether this rank spoils its own secrets. */
static _Thread_local int dropped;
static bool spoils_secrets;

/* What this rank, which may be a thread, said at INFO or above: how many lines, and the last one. */
static _Thread_local int logged;
static _Thread_local char last_logged[256];

static void host_log(int level, const char *format, ...)
{
    char line[256];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    if (strstr(format, "dropped a message of no link") != NULL) dropped++;
    if (level <= 2) {
        logged++;
        memcpy(last_logged, line, sizeof line);
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
    token_mac(mac, token, message, bytes);
    if (spoils_secrets && bytes > 7 && memcmp(message, "session", 7) == 0) mac[0] ^= 2;
}

static void host_notified(void *core, int32_t peer, const void *message, size_t bytes)
{
    struct told *told = core;
    told->notes++;
    told->note_from = peer;
    told->note_bytes = bytes;
    memcpy(told->note, message, bytes);
}

static void host_lost(void *core, int32_t peer, bool left, const char *why)
{
    struct told *told = core;
    told->lost++;
    told->lost_rank = peer;
    told->left = left;
    snprintf(told->why, sizeof told->why, "%s", why);
}

static const tutti_host host = {.abi = TUTTI_BACKEND_ABI,
                                .size = sizeof(tutti_host),
                                .complete = host_complete,
                                .error = host_error,
                                .log = host_log,
                                .now_ns = now_ns,
                                .env = host_env,
                                .reduce = host_reduce,
                                .store_set = store_set,
                                .store_get = store_get,
                                .token_mac = host_mac,
                                .token_equal = token_equal,
                                .random = token_random,
                                .notified = host_notified,
                                .peer_lost = host_lost,
                                .forked_gives_up = forked_gives_up,
                                .forked_forgets = forked_forgets,
                                .store_append = store_append,
                                .store_gather = store_gather};

/* ---- a rank ------------------------------------------------------------------------------------------------ */

struct rank {
    const tutti_backend *backend;
    struct shared *shared;
    int32_t rank, world;
    int32_t globals[RANKS_MOST];
    void *state; /* of the family's first group */
    struct told told;
};

#define CHECK(condition)                                                                                               \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "rank %d, line %d: %s (last error: %s)\n", self->rank, __LINE__, #condition, last_error);  \
            return 1;                                                                                                  \
        }                                                                                                              \
    } while (0)

static const tutti_backend *load_backend(void)
{
    void *library = dlopen(TUTTI_BACKENDS_DIR "/libtutti_tcp.so", RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        fprintf(stderr, "%s\n", dlerror());
        return NULL;
    }
    return dlsym(library, TUTTI_BACKEND_SYMBOL);
}

static void *state_new(const tutti_backend *backend)
{
    void *state = aligned_alloc(64, (backend->group_bytes + 63) / 64 * 64);
    memset(state, 0, backend->group_bytes);
    return state;
}

static int rank_open(struct rank *self)
{
    for (int32_t i = 0; i < RANKS_MOST; i++) self->globals[i] = i;
    self->state = state_new(self->backend);
    tutti_group_info info = {.size = sizeof info,
                             .rank = self->rank,
                             .world_size = self->world,
                             .global_ranks = self->globals,
                             .id = 77,
                             .core = &self->told,
                             .store = (tutti_store *)self->shared,
                             .device = {TUTTI_CPU, 0},
                             .timeout_ms = 10000,
                             .local_rank = self->rank,
                             .local_world_size = self->world,
                             .name = "test"};
    return self->backend->open(self->state, &info, &host);
}

static void rank_close(struct rank *self)
{
    self->backend->close(self->state);
    free(self->state);
    self->state = NULL;
}

/* One round; sleeps at most 20 ms where nothing happens. */
static void turn(struct rank *self)
{
    int descriptors[TUTTI_ARM_MAX];
    struct pollfd polled[TUTTI_ARM_MAX];
    if (self->backend->progress(self->state) != 0) return;
    int n = self->backend->arm(self->state, descriptors);
    for (int i = 0; i < n; i++) polled[i] = (struct pollfd){descriptors[i], POLLIN, 0};
    if (n > 0) poll(polled, (nfds_t)n, 20);
}

static inline void turns(struct rank *self, int ms)
{
    for (int64_t end = now_ns() + (int64_t)ms * 1000000; now_ns() < end;) turn(self);
}

/* Rank has come to where it says name; meanwhile what was sent goes on. */
static void await_moving(struct rank *self, const char *name, int rank)
{
    char key[64];
    uint8_t byte;
    size_t bytes;
    snprintf(key, sizeof key, "meet/%s/%d", name, rank);
    int64_t end = now_ns() + 2 * (int64_t)WAIT_MS * 1000000;
    while (store_get((tutti_store *)self->shared, key, &byte, 1, &bytes, 0) != TUTTI_OK) {
        if (now_ns() > end) exit(9); /* it failed */
        turn(self);
    }
}

static void say(struct rank *self, const char *name)
{
    char key[64];
    snprintf(key, sizeof key, "meet/%s/%d", name, self->rank);
    store_set((tutti_store *)self->shared, key, "x", 1);
}

/* All ranks have come here; meanwhile what was sent goes on. */
static void meet_moving(struct rank *self, const char *name)
{
    say(self, name);
    for (int i = 0; i < self->world; i++) await_moving(self, name, i);
}

enum { E = TUTTI_REQUEST_EXPECTED };

/* A message under way. */
struct message {
    tutti_request request;
    struct done done;
};

/* What an entry of the table has answered. */
static void begun(struct message *m, int status)
{
    if (status == TUTTI_REQUEST_PENDING) return;
    if (m->done.is) abort();
    m->done.is = true;
    m->done.status = status == TUTTI_REQUEST_DONE ? TUTTI_OK : status;
    snprintf(m->done.text, sizeof m->done.text, "%s", status < 0 ? last_error : "");
}

static void start_in(struct rank *self, void *state, struct message *m, bool send, int32_t peer, uint64_t tag,
                     void *data, size_t bytes, uint32_t flags, uint64_t fingerprint)
{
    *m = (struct message){0};
    m->request = (tutti_request){.peer = peer,
                                 .flags = flags,
                                 .tag = tag,
                                 .fingerprint = fingerprint,
                                 .data = data,
                                 .bytes = bytes,
                                 .source = -7,
                                 .owner = &m->done};
    begun(m, (send ? self->backend->send : self->backend->recv)(state, &m->request));
}

static void start(struct rank *self, struct message *m, bool send, int32_t peer, uint64_t tag, void *data, size_t bytes,
                  uint32_t flags)
{
    start_in(self, self->state, m, send, peer, tag, data, bytes, flags, 5);
}

/* The message's status, or 1 when it did not end in time. */
static int wait_for(struct rank *self, struct message *m)
{
    for (int64_t end = now_ns() + (int64_t)WAIT_MS * 1000000; !m->done.is;) {
        if (now_ns() > end) return 1;
        turn(self);
    }
    return m->done.status;
}

static void fill(void *data, size_t bytes, unsigned seed)
{
    uint8_t *p = data;
    for (size_t i = 0; i < bytes; i++) p[i] = (uint8_t)((i * 7 + seed * 13 + i / 251) & 255);
}

static bool is_filled(const void *data, size_t bytes, unsigned seed)
{
    const uint8_t *p = data;
    for (size_t i = 0; i < bytes; i++)
        if (p[i] != (uint8_t)((i * 7 + seed * 13 + i / 251) & 255)) return false;
    return true;
}

static inline double cpu_ms(const struct rusage *from, const struct rusage *to)
{
    double s = (double)(to->ru_utime.tv_sec - from->ru_utime.tv_sec + to->ru_stime.tv_sec - from->ru_stime.tv_sec);
    double us = (double)(to->ru_utime.tv_usec - from->ru_utime.tv_usec + to->ru_stime.tv_usec - from->ru_stime.tv_usec);
    return s * 1e3 + us / 1e3;
}

/* The ranks talk over a provider's datagram endpoints, not over connected ones. */
static inline bool is_rdm(void)
{
    const char *provider = getenv("TUTTI_FABRIC_PROVIDER");
    return provider != NULL && strchr(provider, ';') != NULL;
}

/* ---- the parent -------------------------------------------------------------------------------------------- */

typedef int scenario(struct rank *self);

static int run_rank(scenario *body, struct shared *shared, int rank, int world)
{
    struct rank self = {.backend = load_backend(), .shared = shared, .rank = rank, .world = world};
    if (self.backend == NULL) return 1;
    return body(&self);
}

/* Runs body as world processes; expected[i] is rank i's exit code, or minus the signal that ended it. */
static void run_expecting(scenario *body, int world, const int *expected)
{
    pid_t pid[RANKS_MOST];
    struct shared *shared = shared_new();
    fflush(NULL);
    for (int i = 0; i < world; i++) {
        pid[i] = fork();
        if (pid[i] == 0) {
            alarm(90); /* a hang ends as a failure */
            exit(run_rank(body, shared, i, world));
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

static void run(scenario *body, int world)
{
    run_expecting(body, world, NULL);
}

#endif
