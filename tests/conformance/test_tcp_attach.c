/* Attaching to shared memory under disturbance: unauthenticated peers at the host's socket, and a system call that a
 * container refuses.  The ranks still attach, by other means, and leak nothing. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/uio.h>

#include "../../backends/tcp/base/peer_handshake.c"
#include "../../backends/tcp/shm/packet.c"

#include "rank.h"
#include "usage.h"

enum {
    PART = 5,
    ENTRY_RANK = PART + 8,
    ENTRY_NAME = PART + 12,
    ENTRY_NONCE = PART + 28,
    ENTRY = PART + 44
}; /* published by a rank */

/* Sends from every rank to all others.  Nothing is lost or changed. */
static int exchange_all(struct rank *self)
{
    enum { LARGE = 100000 };
    static uint8_t in[RANKS_MOST][LARGE], out[LARGE];
    static struct message send[RANKS_MOST], recv[RANKS_MOST];
    rank_fill(out, LARGE, (unsigned)self->rank);
    for (int32_t peer = 0; peer < self->world; peer++) {
        if (peer == self->rank) continue;
        rank_recv(self, &recv[peer], peer, 1, in[peer], LARGE, 0);
        rank_send(self, &send[peer], peer, 1, out, LARGE, 0);
    }
    for (int32_t peer = 0; peer < self->world; peer++) {
        if (peer == self->rank) continue;
        CHECK(rank_wait(self, &recv[peer]) == TUTTI_OK && rank_wait(self, &send[peer]) == TUTTI_OK);
        CHECK(rank_is_filled(in[peer], LARGE, (unsigned)peer));
    }
    rank_barrier(self, "talked");
    return 0;
}

/* ---- unauthenticated peers
 * --------------------------------------------------------------------------------------------- */

enum {
    SILENT,
    HALF,            /* of a handshake */
    GARBAGE,         /* as long as a handshake, with its descriptors */
    GUESSED,         /* a handshake of rank 2, made without the host's nonce */
    UNEXPECTED_RANK, /* right, but no such rank is expected */
    BARE,            /* a right handshake without descriptors */
    LADEN,           /* the same with too many descriptors */
    LONG,            /* a right handshake, and more */
    KINDS,           /* kinds that any process can produce */
    OTHER_USER,      /* right, but from another user */
    CROWD = 200      /* peers that say something, and as many silent ones */
};

/* Writes a right handshake of rank 2, as if the unauthenticated peer had the job's token. */
static void write_handshake(uint8_t out[HANDSHAKE_BYTES], const uint8_t *host_entry, uint32_t from)
{
    struct peer_handshake hello = {.kind = HANDSHAKE_CONNECT, .from = from, .world_size = 3, .tree_id = 77};
    memcpy(hello.server_nonce, host_entry + ENTRY_NONCE, HANDSHAKE_NONCE);
    peer_handshake_encode(out, &hello);
    token_mac(hello.mac, rank_token, out, HANDSHAKE_SIGNED);
    peer_handshake_encode(out, &hello);
}

static bool send_with(int fd, const void *data, size_t bytes, int n_fds)
{
    char control[CMSG_SPACE(8 * sizeof(int))] = {0};
    struct iovec part = {(void *)(uintptr_t)data, bytes};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    if (n_fds > 0) {
        message.msg_control = control;
        message.msg_controllen = CMSG_SPACE((size_t)n_fds * sizeof(int));
        struct cmsghdr *header = CMSG_FIRSTHDR(&message);
        header->cmsg_level = SOL_SOCKET;
        header->cmsg_type = SCM_RIGHTS;
        header->cmsg_len = CMSG_LEN((size_t)n_fds * sizeof(int));
        for (int i = 0; i < n_fds; i++) memcpy(CMSG_DATA(header) + (size_t)i * sizeof(int), &fd, sizeof fd);
    }
    return sendmsg(fd, &message, MSG_NOSIGNAL) == (ssize_t)bytes;
}

/* Connects, waiting for its turn, and sends its part.  Returns the socket, or -1. */
static int connect_unauthenticated(const uint8_t *host_entry, int kind)
{
    struct sockaddr_un address;
    uint8_t hello[HANDSHAKE_BYTES + 4] = {0};
    socklen_t bytes = shm_address(host_entry + ENTRY_NAME, &address);
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (fd < 0 || connect(fd, (struct sockaddr *)&address, bytes) != 0) {
        perror("knock");
        if (fd >= 0) close(fd);
        return -1;
    }
    write_handshake(hello, host_entry, kind == UNEXPECTED_RANK ? 7 : 2);
    if (kind == GARBAGE) rank_fill(hello, HANDSHAKE_BYTES, 5);
    if (kind == GUESSED) hello[60] ^= 1; /* in the nonce */
    bool said = kind == SILENT || send_with(fd, hello,
                                            kind == HALF   ? HANDSHAKE_BYTES / 2
                                            : kind == LONG ? HANDSHAKE_BYTES + 4
                                                           : HANDSHAKE_BYTES,
                                            kind == BARE    ? 0
                                            : kind == LADEN ? SHM_FDS + 1
                                                            : SHM_FDS);
    /* the host may have dropped another user's connection before it could send */
    if (!said && kind != OTHER_USER) perror("connect_unauthenticated: send");
    return fd;
}

/* True if the host ends the connection in time. */
static bool is_disconnected(int fd)
{
    struct pollfd one = {fd, POLLIN, 0};
    char byte;
    return poll(&one, 1, WAIT_MS) == 1 && recv(fd, &byte, 1, 0) <= 0;
}

/* True if the host refuses a process of the user nobody, which knows everything that a member knows. */
static bool is_refused_as_other_user(const uint8_t *host_entry)
{
    enum { NOBODY = 65534 };
    int status = 0;
    if (geteuid() != 0) return true; /* cannot be tested */
    pid_t pid = fork();
    if (pid == 0) {
        if (setresuid(NOBODY, NOBODY, NOBODY) != 0) _exit(1);
        int fd = connect_unauthenticated(host_entry, OTHER_USER);
        _exit(fd < 0 || !is_disconnected(fd));
    }
    return waitpid(pid, &status, 0) == pid && status == 0;
}

/* Rank 2 lets unauthenticated peers come first.  It publishes that it will come, so the host waits for it meanwhile. */
static int bring_unauthenticated(struct rank *self, int *silent, int *n_silent)
{
    struct sockaddr_un address;
    uint8_t entry[ENTRY], mine[ENTRY];
    size_t bytes;
    tutti_store *store = (tutti_store *)self->shared;
    CHECK(shared_store_get(store, "shm/0", entry, sizeof entry, &bytes, WAIT_MS) == TUTTI_OK && bytes == ENTRY);
    memcpy(mine, entry, ENTRY);
    memcpy(mine + ENTRY_RANK, &(int32_t){2}, sizeof(int32_t));
    token_random(mine + ENTRY_NAME, 2 * HANDSHAKE_NONCE);
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0); /* listens, as every live rank does */
    socklen_t length = shm_address(mine + ENTRY_NAME, &address);
    CHECK(bind(fd, (struct sockaddr *)&address, length) == 0 && listen(fd, 1) == 0);
    silent[(*n_silent)++] = fd;
    CHECK(shared_store_set(store, "shm/2", mine, sizeof mine) == TUTTI_OK);
    CHECK(is_refused_as_other_user(entry));
    for (int i = 0; i < CROWD; i++) {
        fd = connect_unauthenticated(entry, i % KINDS);
        CHECK(fd >= 0);
        if (i % KINDS == SILENT) {
            silent[(*n_silent)++] = fd;
            continue;
        }
        CHECK(is_disconnected(fd));
        close(fd);
    }
    for (int i = 0; i < CROWD; i++) CHECK((silent[(*n_silent)++] = connect_unauthenticated(entry, SILENT)) >= 0);
    return 0;
}

static int unauthenticated_peers(struct rank *self)
{
    int silent[2 * CROWD + 1], n_silent = 0, before = usage_fds();
    if (self->rank == 2) CHECK(bring_unauthenticated(self, silent, &n_silent) == 0);
    CHECK(rank_open(self) == TUTTI_OK);
    CHECK(self->backend->is_near(self->state)); /* otherwise the host would have continued without rank 2 */
    CHECK(exchange_all(self) == 0);
    CHECK(rank_logged == (self->rank == 0)); /* one line about shared memory, none about unauthenticated peers */
    rank_close(self);
    for (int i = 0; i < n_silent; i++) {
        if (i > 0) CHECK(is_disconnected(silent[i])); /* the first one listens itself */
        close(silent[i]);
    }
    CHECK(usage_fds() == before);
    return 0;
}

static void test_unauthenticated_peers_at_the_socket(void **state)
{
    (void)state;
    rank_run(unauthenticated_peers, 3);
}

/* ---- containers -------------------------------------------------------------------------------------------- */

/* Makes this call return EPERM in the process from here on, as in a container that forbids it. */
static bool refuse(uint32_t number)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof code / sizeof *code, code};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

static bool refused; /* for rank 1 */

/* True if this machine refuses the call already. */
static bool refused_here(void)
{
    char from = 0, to;
    struct iovec a = {&to, 1}, b = {&from, 1};
    return process_vm_readv(getpid(), &a, 1, &b, 1, 0) != 1;
}

static int container(struct rank *self)
{
    char text[1024] = "";
    bool expected = refused || refused_here();
    if (self->rank == 1 && refused) CHECK(refuse(SYS_process_vm_readv));
    CHECK(rank_open(self) == TUTTI_OK);
    CHECK(self->backend->describe(&rank_host, self->state, text, sizeof text) == TUTTI_OK);
    CHECK((strstr(text, "read from the sender's memory") == NULL) == expected);
    CHECK(exchange_all(self) == 0);
    rank_close(self);
    return 0;
}

static void test_one_may_not_read_memory(void **state)
{
    (void)state;
    refused = false;
    rank_run(container, 3);
    refused = true;
    rank_run(container, 3);
}

/* Runs as on Linux before 5.3, and under valgrind.  The end of a rank is noticed although a child of it is alive. */
static int without_pidfds(struct rank *self)
{
    char text[1024] = "", in[8];
    struct message recv;
    int before = usage_fds();
    CHECK(refuse(SYS_pidfd_open));
    CHECK(rank_open(self) == TUTTI_OK);
    CHECK(self->backend->describe(&rank_host, self->state, text, sizeof text) == TUTTI_OK);
    CHECK(strstr(text, "shares memory with 2 of 2 ranks") != NULL);
    CHECK(exchange_all(self) == 0);
    if (self->rank == 2) {
        if (fork() > 0) _exit(0);
        for (int32_t i = 0; i < 2; i++) rank_await(self, "told", i);
        _exit(0);
    }
    rank_recv(self, &recv, 2, 9, in, sizeof in, E);
    CHECK(rank_wait(self, &recv) == TUTTI_ERR_PEER_LOST);
    rank_report(self, "told");
    rank_await(self, "told", !self->rank);
    rank_close(self);
    CHECK(usage_fds() == before);
    return 0;
}

static void test_without_pidfds(void **state)
{
    (void)state;
    rank_run(without_pidfds, 3);
}

int main(void)
{
    if (access(TUTTI_BACKENDS_DIR "/libtutti_tcp.so", R_OK) != 0) return 77; /* built without libfabric */
    token_init();
    signal(SIGPIPE, SIG_IGN);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_unauthenticated_peers_at_the_socket),
        cmocka_unit_test(test_one_may_not_read_memory),
        cmocka_unit_test(test_without_pidfds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
