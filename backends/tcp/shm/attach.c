/* Attaching: finds the ranks that share memory by trying it, not by comparing host names.
 *
 * Every rank publishes an entry in the store: the random name of its abstract unix socket, under its host's identity
 * (boot id, network namespace).  Then each rank reads the entries of its own host.  The lowest of these ranks is the
 * host rank.  It creates the segment, and the others connect to it.  Both sides prove that they know the job's token.
 * Then all go through three rounds:
 *
 *   ranks   The host rank passes the segment and every rank's doorbell, liveness descriptor and arena.  The others map
 *           them and confirm.
 *   probe   Each rank tries to read every other rank's memory, checks its arena, and reports the result.
 *   go      The host rank sends the final list of members, and whether CMA and arenas are used.
 *
 * The host rank excludes a rank that fails a round and notifies the others, which then use the network to reach it.  A
 * rank that confirmed the last round but gets no answer cannot know what the others decided; only that is an error.
 * Every wait has a timeout.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tcp/shm/attach.h"

enum {
    ENTRY = 44,
    POLLS = 128,
    POLLS_SHARED = 8,
};
#define ENTRY_MAGIC "tuttishc"

/* ---- entries ----------------------------------------------------------------------------------------------- */

static void identify_host(uint8_t like[32])
{
    struct stat net;
    memset(like, 0, 32);
    int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    if (fd >= 0) {
        ssize_t got = read(fd, like, 24);
        (void)got; /* a short read makes more hosts look alike, and attaching tells them apart */
        close(fd);
    }
    if (stat("/proc/self/ns/net", &net) == 0)
        memcpy(like + 24, &net.st_ino, 8 < sizeof net.st_ino ? 8 : sizeof net.st_ino);
    like[23] = 1; /* so that the identity is never all zeros */
}

/* Makes the name of the store key, which ranks with the same view of their host share. */
static void make_key(const struct attach *self, char part[72])
{
    bool takes_part = self->mine.like[23] != 0;
    snprintf(part, 72, takes_part ? "host-" : "none");
    for (int i = 0; takes_part && i < 32; i++) snprintf(part + 5 + 2 * i, 3, "%02x", self->mine.like[i]);
}

static int by_rank(const void *a, const void *b)
{
    int32_t x, y;
    memcpy(&x, (const uint8_t *)a + 8, sizeof x);
    memcpy(&y, (const uint8_t *)b + 8, sizeof y);
    return (x > y) - (x < y);
}

/* Exchanges entries with all ranks.  *entries gets the *n entries of this host by rank.  The caller frees it. */
static int exchange_entries(const struct attach *self, uint8_t **entries, int *n)
{
    const tutti_host *host = self->host;
    const struct transport_config *config = self->config;
    size_t capacity = (size_t)config->world_size * ENTRY, got = 0;
    uint8_t mine[ENTRY];
    char part[72];
    if (!TUTTI_HAS(host, store_gather))
        return host->error(TUTTI_ERR_BACKEND, "this tcp plug-in needs a newer libtutti: store_gather is missing");
    memcpy(mine, ENTRY_MAGIC, 8);
    memcpy(mine + 8, &config->rank, 4); /* in host byte order: only ranks of this host read it */
    memcpy(mine + 12, self->mine.name, HANDSHAKE_NONCE);
    memcpy(mine + 28, self->mine.nonce, HANDSHAKE_NONCE);
    make_key(self, part);
    *entries = malloc(capacity);
    if (*entries == NULL)
        return host->error(TUTTI_ERR_NO_MEMORY, "no memory for the entries of %d ranks", config->world_size);
    int status = host->store_gather(config->store, "shm", part, mine, ENTRY, config->world_size, *entries, capacity,
                                    &got, config->open_timeout_ms);
    if (status != TUTTI_OK) {
        free(*entries);
        *entries = NULL;
        return status;
    }
    *n = (int)(got / ENTRY);
    qsort(*entries, (size_t)*n, ENTRY, by_rank);
    return TUTTI_OK;
}

/* Parses an entry.  Returns false if it was not written by a rank of this version. */
static bool read_entry(const struct attach *self, const uint8_t *bytes, struct entry *entry)
{
    memcpy(&entry->rank, bytes + 8, 4);
    memcpy(entry->name, bytes + 12, HANDSHAKE_NONCE);
    memcpy(entry->nonce, bytes + 28, HANDSHAKE_NONCE);
    return memcmp(bytes, ENTRY_MAGIC, 8) == 0 && entry->rank >= 0 && entry->rank < self->config->world_size;
}

static bool start_listening(struct attach *self)
{
    struct sockaddr_un address;
    self->host->random(self->mine.name, HANDSHAKE_NONCE);
    self->host->random(self->mine.nonce, HANDSHAKE_NONCE);
    socklen_t bytes = shm_address(self->mine.name, &address);
    self->listener = shm_socket();
    self->doorbell_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    self->arena_fd = shm_arena_make();
    return self->listener >= 0 && self->doorbell_fd >= 0 &&
           shm_liveness_open(self->host, &self->liveness_fd, &self->held) && self->arena_fd >= 0 &&
           bind(self->listener, (struct sockaddr *)&address, bytes) == 0 &&
           listen(self->listener, SHM_PENDING_MAX) == 0;
}

int64_t shm_deadline_ns(const struct attach *self)
{
    enum { DAY_MS = 86400000 }; /* in milliseconds it must fit poll's int */
    int64_t ms = self->config->open_timeout_ms < DAY_MS ? self->config->open_timeout_ms : DAY_MS;
    return self->host->now_ns() + ms * 1000000;
}

int64_t shm_round_deadline_ns(const struct attach *self)
{
    int64_t part_ms = self->config->open_timeout_ms / 6;
    return self->host->now_ns() + (part_ms < SHM_ROUND_MS ? part_ms : SHM_ROUND_MS) * 1000000;
}

/* ---- common ------------------------------------------------------------------------------------------------ */

bool shm_create(struct attach *self, int n, int local_rank)
{
    struct shm *shm = calloc(1, sizeof *shm);
    self->shm = shm;
    if (shm == NULL) return false;
    shm->config = *self->config;
    shm->memfd = shm->watch = -1;
    shm->doorbell_fd = self->doorbell_fd;
    shm->held = self->held;
    self->doorbell_fd = self->held.fd = -1;
    TAILQ_INIT(&shm->arena.blocks);
    shm->arena_bytes = shm_arena_bytes();
    shm_measure(shm, n, self->colls->bytes(n));
    shm->local_rank = local_rank;
    shm->peer = calloc((size_t)n, sizeof *shm->peer);
    shm->local_rank_of = malloc((size_t)self->config->world_size * sizeof *shm->local_rank_of);
    if (shm->peer == NULL || shm->local_rank_of == NULL) return false;
    for (int i = 0; i < n; i++) {
        shm->peer[i] = (struct shm_peer){.local_rank = i, .doorbell_fd = -1, .liveness_fd = -1, .arena_fd = -1};
        STAILQ_INIT(&shm->peer[i].waiting);
    }
    return true;
}

uint8_t shm_probe_all(struct attach *self)
{
    const struct shm *shm = self->shm;
    bool sound = true;
    for (int i = 0; i < shm->n; i++) sound &= !self->in[i] || shm_arena_is_sound(shm->peer[i].arena_fd);
    return (uint8_t)((shm_probe(self->shm, self->in) ? SHM_CAN_READ_MEMORY : 0) | (sound ? SHM_CAN_SHARE : 0));
}

static void close_fd(int *fd)
{
    if (*fd >= 0) close(*fd);
    *fd = -1;
}

/* Closes the descriptors that were only passed on to other ranks.  A rank does not ring its own doorbell or watch its
 * own liveness, and the mapping of a peer's arena grows without the descriptor. */
static void close_unneeded(struct shm *shm, const bool *in)
{
    close_fd(&shm->peer[shm->local_rank].doorbell_fd);
    close_fd(&shm->peer[shm->local_rank].liveness_fd);
    for (int i = 0; i < shm->n; i++) {
        bool needed = i == shm->local_rank || (in[i] && shm->can_share);
        if (!needed || (i != shm->local_rank && shm_arena_map_first(&shm->peer[i]))) close_fd(&shm->peer[i].arena_fd);
    }
}

/* Fixes the members.  This is the last step, and it has the same result on all ranks. */
bool shm_fix_members(struct attach *self, const bool *in, uint8_t word)
{
    struct shm *shm = self->shm;
    shm->can_read_memory = word & SHM_CAN_READ_MEMORY;
    shm->can_share = word & SHM_CAN_SHARE;
    shm->shares_cores = !shm_have_cores(shm, in);
    shm->polls = shm->polls_max = shm->shares_cores ? POLLS_SHARED : POLLS;
    shm->watch = epoll_create1(EPOLL_CLOEXEC);
    if (shm->watch < 0) return false;
    for (int32_t rank = 0; rank < self->config->world_size; rank++) shm->local_rank_of[rank] = -1;
    for (int i = 0; i < shm->n; i++) {
        struct shm_peer *peer = &shm->peer[i];
        struct epoll_event event = {.events = EPOLLIN, .data.u32 = (uint32_t)i};
        peer->lost = !in[i] || i == shm->local_rank;
        if (!in[i]) continue;
        shm->local_rank_of[peer->rank] = (int16_t)i;
        if (!peer->lost && epoll_ctl(shm->watch, EPOLL_CTL_ADD, peer->liveness_fd, &event) != 0) return false;
    }
    close_unneeded(shm, in);
    return true;
}

/* ---- member -------------------------------------------------------------------------------------------------- */

/* Connects to the host rank.  All ranks listen before they publish their entry, so a host rank that refuses has exited
 * or continues without this rank. */
static bool connect_to_host(const struct attach *self, int fd, const struct entry *host, int64_t end)
{
    struct sockaddr_un address;
    socklen_t bytes = shm_address(host->name, &address);
    for (; self->host->now_ns() < end; usleep(1000)) {
        if (connect(fd, (struct sockaddr *)&address, bytes) == 0) return shm_is_same_user(fd);
        if (errno != EAGAIN && errno != EINTR) return false; /* EAGAIN: the listener's queue is full */
    }
    return false;
}

static bool shake_hands(struct attach *self, int fd, const struct entry *host, int64_t end)
{
    if (!connect_to_host(self, fd, host, end)) return false;
    struct peer_handshake hello = {.kind = HANDSHAKE_CONNECT,
                                   .from = (uint32_t)self->config->rank,
                                   .to = (uint32_t)host->rank,
                                   .world_size = (uint32_t)self->config->world_size,
                                   .tree_id = self->config->tree_id};
    struct peer_handshake answer;
    uint8_t out[HANDSHAKE_BYTES], in[HANDSHAKE_BYTES + SHM_PLACE];
    memcpy(hello.client_nonce, self->mine.nonce, HANDSHAKE_NONCE);
    memcpy(hello.server_nonce, host->nonce, HANDSHAKE_NONCE);
    peer_handshake_sign(self->host, &hello, out);
    int fds[SHM_FDS] = {self->doorbell_fd, self->liveness_fd, self->arena_fd};
    if (!shm_send_packet(fd, out, sizeof out, fds, SHM_FDS)) return false;
    int memfd = -1;
    if (!shm_wait(fd, end, self->host) || !shm_receive_packet(fd, in, sizeof in, &memfd, 1)) return false;
    uint16_t place[2];
    memcpy(place, in + HANDSHAKE_BYTES, sizeof place);
    int n = place[0], local_rank = place[1];
    bool sound = peer_handshake_parse(in, HANDSHAKE_BYTES, &answer) && answer.kind == HANDSHAKE_ACCEPT &&
                 answer.from == hello.to && answer.to == hello.from && answer.tree_id == hello.tree_id &&
                 memcmp(answer.client_nonce, hello.client_nonce, HANDSHAKE_NONCE) == 0 &&
                 memcmp(answer.server_nonce, hello.server_nonce, HANDSHAKE_NONCE) == 0 &&
                 peer_handshake_is_authentic(self->host, in, &answer);
    if (!sound || n < 2 || n > SHM_RANKS_MAX || local_rank < 1 || local_rank >= n || !shm_create(self, n, local_rank)) {
        close(memfd);
        return false;
    }
    self->shm->memfd = memfd;
    return true;
}

static bool receive_ranks(struct attach *self, int fd, int64_t end)
{
    struct shm *shm = self->shm;
    for (int i = 0; i < shm->n; i++) {
        int32_t rank;
        int fds[SHM_FDS];
        if (!shm_wait(fd, end, self->host)) return false;
        if (!shm_receive_packet(fd, &rank, sizeof rank, fds, SHM_FDS)) {
            if (errno == EMFILE) snprintf(self->why, sizeof self->why, "out of file descriptors (raise ulimit -n)");
            return false;
        }
        shm->peer[i].rank = rank;
        shm->peer[i].doorbell_fd = fds[0];
        shm->peer[i].liveness_fd = fds[1];
        shm->peer[i].arena_fd = fds[2];
        if (rank < 0 || rank >= self->config->world_size) return false;
    }
    return shm->peer[shm->local_rank].rank == self->config->rank && shm_segment_is_sound(shm->memfd, shm->bytes) &&
           shm_map(shm);
}

static bool receive_round(struct attach *self, int fd, int64_t end, uint8_t *word)
{
    uint8_t round[1 + SHM_RANKS_MAX];
    if (!shm_wait(fd, end, self->host) || !shm_receive_packet(fd, round, sizeof round, NULL, 0)) return false;
    *word = round[0];
    for (int i = 0; i < self->shm->n; i++) self->in[i] = round[1 + i] != 0;
    return true;
}

/* Returns 0 if this rank is a member, 1 if it is excluded and all ranks know that, or an error if it cannot know. */
static int attach_as_member(struct attach *self, const struct entry *host)
{
    int64_t end = shm_deadline_ns(self);
    int32_t to = host->rank;
    uint8_t word = 1;
    int fd = shm_socket(), result = 1;
    snprintf(self->why, sizeof self->why, "attaching to the memory of rank %d did not complete", to);
    if (fd >= 0 && shake_hands(self, fd, host, end) && receive_ranks(self, fd, end) &&
        shm_send_packet(fd, &word, 1, NULL, 0) && receive_round(self, fd, end, &word)) {
        word = shm_probe_all(self);
        if (!shm_send_packet(fd, &word, 1, NULL, 0) || !receive_round(self, fd, end, &word))
            result = self->host->error(TUTTI_ERR_PEER_LOST,
                                       "rank %d exited while rank %d was attaching to its shared memory", to,
                                       self->config->rank);
        else if (self->in[self->shm->local_rank])
            result = shm_fix_members(self, self->in, word)
                         ? 0
                         : self->host->error(TUTTI_ERR_SYSTEM, "cannot watch the ranks of this host: epoll: %s",
                                             strerror(errno));
    }
    if (fd >= 0) close(fd);
    return result;
}

/* Returns how many ranks the host rank's descriptors allow.  Each rank needs three, a link, and a store connection if
 * this rank hosts the store. */
static int max_ranks(void)
{
    enum { EACH = SHM_FDS + 2, RESERVED = 64 };
    size_t limit = shm_allowed(RLIMIT_NOFILE);
    if (limit >= EACH * SHM_RANKS_MAX + RESERVED) return SHM_RANKS_MAX;
    return limit <= RESERVED ? 0 : (int)((limit - RESERVED) / EACH);
}

/* ---- opening ----------------------------------------------------------------------------------------------- */

static int attach_ranks(struct attach *self, const uint8_t *entries, int n_entries)
{
    int32_t rank[SHM_RANKS_MAX] = {self->config->rank};
    struct entry entry;
    int n = 1, most = max_ranks();
    for (int i = 0; i < n_entries && n < most; i++) {
        if (!read_entry(self, entries + (size_t)i * ENTRY, &entry) || entry.rank == self->config->rank) continue;
        if (entry.rank < self->config->rank)
            return attach_as_member(self, &entry); /* entries are sorted: this is the host rank */
        memcpy(self->name[n], entry.name, HANDSHAKE_NONCE);
        rank[n++] = entry.rank;
    }
    if (n > 1) return shm_host_serve(self, rank, n);
    snprintf(self->why, sizeof self->why, "the store has no entry of another rank on this host");
    return 1;
}

static void log_result(const struct attach *self, int result)
{
    const tutti_host *host = self->host;
    int here = 1;
    for (int i = 0; result == 0 && i < self->shm->n; i++) here += i != self->shm->local_rank && self->in[i];
    if (result == 0 && self->shm->local_rank == 0)
        TUTTI_LOG_AS(host, "shm", 2, "tcp: %d ranks of this host share memory (%zu KiB); large messages are %s", here,
                     self->shm->bytes_at >> 10,
                     self->shm->can_read_memory ? "read from the sender's memory"
                                                : "copied through it, because process_vm_readv is not permitted");
    if (result == 0 && here >= self->config->local_world_size) return;
    if (result != 0 && self->config->local_world_size > 1)
        TUTTI_LOG_AS(host, "shm", 2, "tcp: rank %d shares memory with no other rank and uses libfabric only: %s",
                     self->config->rank, self->why);
    else if (result == 0 && self->shm->local_rank == 0)
        TUTTI_LOG_AS(host, "shm", 2,
                     "tcp: %d of the %d ranks that the launcher placed on this host do not share memory with rank %d%s",
                     self->config->local_world_size - here, self->config->local_world_size, self->config->rank,
                     here < max_ranks()     ? ""
                     : here < SHM_RANKS_MAX ? ": out of file descriptors (raise ulimit -n)"
                                            : ": the limit of ranks per segment is reached");
}

static int open_attached(struct attach *self, struct shm **out)
{
    const struct transport_config *config = self->config;
    bool off = !tutti_env_bool(config->host, "TUTTI_SHM", true);
    int result = 1;
    for (int i = 0; i < SHM_RANKS_MAX; i++) self->link[i] = -1;
    if (off)
        snprintf(self->why, sizeof self->why, "TUTTI_SHM=%s", config->host->env("TUTTI_SHM"));
    else if (config->local_world_size == 1)
        snprintf(self->why, sizeof self->why, "the launcher placed no other rank on this host");
    else if (!start_listening(self))
        snprintf(self->why, sizeof self->why, "cannot create a unix socket, eventfd, pipe or memfd: %s",
                 strerror(errno));
    else
        identify_host(self->mine.like);
    bool takes_part = self->mine.like[23] != 0;
    uint8_t *entries = NULL;
    int n = 0, status = exchange_entries(self, &entries, &n);
    if (status == TUTTI_OK && takes_part) result = attach_ranks(self, entries, n);
    free(entries);
    if (status == TUTTI_OK) log_result(self, result);
    for (int i = 0; i < SHM_RANKS_MAX; i++)
        if (self->link[i] >= 0) close(self->link[i]);
    if (self->listener >= 0) close(self->listener);
    if (self->doorbell_fd >= 0) close(self->doorbell_fd);
    if (self->liveness_fd >= 0) close(self->liveness_fd);
    shm_liveness_close(self->host, &self->held);
    if (self->arena_fd >= 0) close(self->arena_fd);
    if (result == 0)
        *out = self->shm;
    else
        shm_close(self->shm);
    return status != TUTTI_OK ? status : result < 0 ? result : TUTTI_OK;
}

int shm_open_host(const struct transport_config *config, const struct shm_colls *colls, struct shm **out)
{
    struct attach *self = malloc(sizeof *self); /* too large for a small stack */
    *out = NULL;
    if (self == NULL) return config->host->error(TUTTI_ERR_NO_MEMORY, "no memory to attach ranks of this host");
    *self = (struct attach){.config = config,
                            .colls = colls,
                            .host = config->host,
                            .listener = -1,
                            .doorbell_fd = -1,
                            .liveness_fd = -1,
                            .held.fd = -1,
                            .arena_fd = -1};
    int status = open_attached(self, out);
    free(self);
    return status;
}

static void close_own(const struct shm *shm, int fd)
{
    if (fd >= 0 && !shm->disowned) close(fd);
}

void shm_close(struct shm *shm)
{
    if (shm == NULL) return;
    shm_is_disowned(shm);
    for (int i = 0; shm->peer != NULL && i < shm->n; i++) {
        if (!shm->peer[i].lost && shm->watch >= 0) shm_drop(shm, i, "closed", false);
        close_own(shm, shm->peer[i].doorbell_fd);
        close_own(shm, shm->peer[i].liveness_fd);
        free(shm->peer[i].messages);
        free(shm->peer[i].stores);
        free(shm->peer[i].offers);
    }
    spares_free(&shm->spares);
    shm_arena_close(shm);
    if (shm->base != NULL) munmap(shm->base, shm->bytes);
    if (shm->probe != NULL) munmap(shm->probe, HANDSHAKE_NONCE);
    close_own(shm, shm->memfd);
    close_own(shm, shm->doorbell_fd);
    close_own(shm, shm->watch);
    shm_liveness_close(shm->config.host, &shm->held);
    free(shm->peer);
    free(shm->local_rank_of);
    free(shm->scratch);
    free(shm);
}
