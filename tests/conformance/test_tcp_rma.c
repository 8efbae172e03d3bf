/* Large messages over datagram endpoints, which the receiver reads from the sender's memory by RMA. */
#include "rank.h"

#include <sys/mman.h>
#include <sys/resource.h>

static void first_message(struct rank *self, struct message *m)
{
    static uint8_t data[4];
    (self->rank == 0 ? rank_send : rank_recv)(self, m, 1 - self->rank, 1, data, sizeof data, 0);
    rank_wait(self, m);
}

static bool is_all(const uint8_t *data, size_t bytes, uint8_t value)
{
    for (size_t i = 0; i < bytes; i++)
        if (data[i] != value) return false;
    return true;
}

/* ---- matching messages --------------------------------------------------------------------------------------- */

/* Sizes around each limit: of eager messages, of RMA, of one read, and of all reads of a message. */
static int sizes(struct rank *self)
{
    enum { GUARD = 64 };
    static const size_t size[] = {65536, 65537, 131071, 131072, 131073, 1048575, 1048576, 1048577, 4194304, 5242881};
    int32_t other = 1 - self->rank;
    for (size_t i = 0; i < 2 * sizeof size / sizeof *size; i++) {
        size_t n = size[i / 2];
        uint8_t *in = malloc(n + GUARD), *out = malloc(n);
        struct message send, recv;
        uint32_t flags = i % 2 ? E : 0;
        rank_fill(out, n, (unsigned)i + (unsigned)self->rank);
        memset(in, 0xee, n + GUARD);
        rank_send(self, &send, other, i, out, n, flags);
        rank_recv(self, &recv, other, i, in, n, flags);
        CHECK(rank_wait(self, &recv) == TUTTI_OK && rank_wait(self, &send) == TUTTI_OK);
        CHECK(rank_is_filled(in, n, (unsigned)i + (unsigned)other) && is_all(in + n, GUARD, 0xee));
        free(in);
        free(out);
    }
    return 0;
}

/* More messages at once than may be offered at once, and small ones among them. */
static int many(struct rank *self)
{
    enum { N = 40, BYTES = 200000 };
    static struct message send[N], recv[N];
    uint8_t *in = malloc((size_t)N * BYTES), *out = malloc((size_t)N * BYTES);
    int32_t other = 1 - self->rank;
    for (unsigned k = 0; k < N; k++) {
        size_t n = k % 5 == 4 ? 100 : BYTES;
        rank_fill(out + (size_t)k * BYTES, n, k + (unsigned)self->rank);
        rank_send(self, &send[k], other, 100 + k, out + (size_t)k * BYTES, n, k % 2 ? E : 0);
        rank_recv(self, &recv[k], other, 100 + k, in + (size_t)k * BYTES, n, k % 2 ? E : 0);
    }
    for (unsigned k = 0; k < N; k++) {
        CHECK(rank_wait(self, &recv[k]) == TUTTI_OK && rank_wait(self, &send[k]) == TUTTI_OK);
        CHECK(rank_is_filled(in + (size_t)k * BYTES, k % 5 == 4 ? 100 : BYTES, k + (unsigned)other));
    }
    free(in);
    free(out);
    return 0;
}

/* A receiver without descriptors for its reads gets the messages in pieces. */
static int refuses(struct rank *self)
{
    enum { BYTES = 3 << 20 };
    struct rlimit limit;
    struct message m;
    uint8_t *data = malloc(BYTES);
    CHECK(rank_open(self) == TUTTI_OK);
    first_message(self, &m);
    getrlimit(RLIMIT_NOFILE, &limit);
    int logged = rank_logged;
    if (self->rank == 1) setrlimit(RLIMIT_NOFILE, &(struct rlimit){3, limit.rlim_max});
    for (unsigned i = 0; i < 2; i++) {
        memset(data, 0, BYTES);
        if (self->rank == 0) rank_fill(data, BYTES, i);
        (self->rank == 0 ? rank_send : rank_recv)(self, &m, 1 - self->rank, 2, data, BYTES, 0);
        CHECK(rank_wait(self, &m) == TUTTI_OK && rank_is_filled(data, BYTES, i));
    }
    CHECK(self->rank == 0 || rank_logged == logged + 1); /* the second message was not offered */
    setrlimit(RLIMIT_NOFILE, &limit);
    rank_close(self);
    free(data);
    return 0;
}

static void test_a_receiver_that_cannot_read(void **state)
{
    (void)state;
    rank_run(refuses, 2);
}

/* ---- ends ---------------------------------------------------------------------------------------------------- */

/* A receive that is smaller than the send, or larger. */
static int differs(struct rank *self)
{
    enum { SMALL = 300000, LARGE = 3 << 20 };
    static uint8_t data[LARGE];
    struct message m;
    for (unsigned i = 0; i < 4; i++) {
        size_t n = (i % 2 == 0) == (self->rank == 0) ? LARGE : SMALL;
        memset(data, 0xee, sizeof data);
        (self->rank == 0 ? rank_send : rank_recv)(self, &m, 1 - self->rank, i, data, n, i / 2 ? E : 0);
        CHECK(rank_wait(self, &m) == TUTTI_ERR_MISMATCH && is_all(data, sizeof data, 0xee));
    }
    (self->rank == 0 ? rank_send : rank_recv)(self, &m, 1 - self->rank, 9, data, LARGE, 0);
    CHECK(rank_wait(self, &m) == TUTTI_OK);
    rank_barrier(self, "differ");
    return 0;
}

static pid_t *sender; /* shared by the ranks */
static int n_stops;   /* calls of stop_inside in this process */

/* True once the process is stopped. */
static bool is_stopped(pid_t pid)
{
    char path[32], text[256] = "", *end;
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    FILE *file = fopen(path, "re");
    if (file == NULL) return false;
    size_t n = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    text[n] = '\0';
    end = strrchr(text, ')');
    return end != NULL && strlen(end) > 2 && end[2] == 'T';
}

/* Starts a message of `bytes` from rank 1 to rank 0.  Returns on rank 0 in the middle of it, with the sender
 * stopped.  Returns on rank 1 once it has been continued. */
static int stop_inside(struct rank *self, struct message *m, volatile uint8_t *data, size_t bytes)
{
    char begun[16];
    snprintf(begun, sizeof begun, "begun%d", n_stops++);
    first_message(self, m);
    if (self->rank == 1) {
        *sender = getpid();
        rank_send(self, m, 0, 2, (void *)(uintptr_t)data, bytes, 0);
        rank_await(self, begun, 0);
        raise(SIGSTOP);
        return 0;
    }
    memset((void *)(uintptr_t)data, 0xee, bytes);
    rank_recv(self, m, 1, 2, (void *)(uintptr_t)data, bytes, 0);
    for (int64_t end = monotonic_ns() + INT64_C(10000000000); data[0] == 0xee && monotonic_ns() < end;)
        self->backend->progress(self->state);
    rank_report(self, begun);
    while (!is_stopped(*sender)) rank_sleep_ms(1);
    CHECK(!m->done.is && data[0] != 0xee);
    return 0;
}

/* The receive is cancelled while its sender is stopped.  Once it has ended, nothing is written to its memory. */
static int stopped(struct rank *self)
{
    enum { BYTES = 64 << 20 };
    CHECK(rank_open(self) == TUTTI_OK);
    uint8_t *data = calloc(1, BYTES);
    struct message m;
    CHECK(stop_inside(self, &m, data, BYTES) == 0);
    if (self->rank == 0) {
        CHECK(self->backend->cancel(self->state, &m.request) != TUTTI_OK && !m.done.is);
        CHECK(rank_wait(self, &m) == TUTTI_ERR_PEER_LOST && strstr(m.done.text, "rank 1 is lost: ") != NULL);
        memset(data, 0xee, BYTES);
        kill(*sender, SIGCONT);
        rank_progress_ms(self, 100);
        CHECK(is_all(data, BYTES, 0xee));
    } else {
        CHECK(rank_wait(self, &m) == TUTTI_ERR_PEER_LOST && strstr(m.done.text, "rank 0 is lost: ") != NULL);
    }
    free(data);
    rank_close(self);
    return 0;
}

static void test_a_stopped_sender(void **state)
{
    (void)state;
    rank_run(stopped, 2);
}

/* One side withdraws the message in its middle.  Both learn it, and the link remains. */
static int withdraws(struct rank *self, int who, uint8_t *data, size_t bytes)
{
    struct message m;
    CHECK(stop_inside(self, &m, data, bytes) == 0);
    if (self->rank == 0) kill(*sender, SIGCONT);
    if (self->rank == who && self->backend->cancel(self->state, &m.request) == TUTTI_OK) m.done.is = true;
    int status = m.done.is && self->rank == who ? TUTTI_ERR_ABORTED : rank_wait(self, &m);
    CHECK(status == TUTTI_ERR_ABORTED);
    memset(data, 0xaa, bytes);
    rank_barrier(self, who == 0 ? "receiver ended" : "sender ended");
    CHECK(is_all(data, bytes, 0xaa));
    (self->rank == 0 ? rank_send : rank_recv)(self, &m, 1 - self->rank, 9, data, 1 << 20, 0);
    CHECK(rank_wait(self, &m) == TUTTI_OK && self->notified.lost == 0);
    rank_barrier(self, who == 0 ? "receiver is usable" : "sender is usable"); /* nobody closes before */
    return 0;
}

/* Rank 1 dies in the middle of messages both ways.  Rank 0 names it, and its memory is not written afterwards. */
static int dies(struct rank *self)
{
    enum { BYTES = 64 << 20 };
    CHECK(rank_open(self) == TUTTI_OK);
    uint8_t *data = calloc(1, BYTES), *out = calloc(1, BYTES);
    struct message m, send;
    if (self->rank == 0) rank_send(self, &send, 1, 3, out, BYTES, 0);
    CHECK(stop_inside(self, &m, data, BYTES) == 0);
    kill(*sender, SIGKILL);
    int64_t begin = monotonic_ns();
    CHECK(rank_wait(self, &m) == TUTTI_ERR_PEER_LOST && strstr(m.done.text, "rank 1 is lost: ") != NULL);
    CHECK(rank_wait(self, &send) == TUTTI_ERR_PEER_LOST && strstr(send.done.text, "rank 1 is lost: ") != NULL);
    CHECK(monotonic_ns() - begin < INT64_C(10000000000)); /* TUTTI_SILENT_MS, and some more on a busy machine */
    memset(data, 0xee, BYTES);
    rank_progress_ms(self, 50);
    CHECK(is_all(data, BYTES, 0xee));
    rank_close(self);
    free(data);
    free(out);
    return 0;
}

static void test_a_peer_dies(void **state)
{
    (void)state;
    rank_run_until_silent(dies, 2, (int[]){0, -SIGKILL});
}

/* True if the plug-in would send a message of this size by this path. */
static bool goes_by(struct rank *self, size_t bytes, const char *path)
{
    tutti_tensor in = {.numel = (int64_t)bytes, .dtype = TUTTI_UINT8};
    tutti_op op = {.kind = TUTTI_SEND, .in = &in, .dtype = TUTTI_UINT8};
    const char *text = self->backend->explain(self->state, &op);
    return text != NULL && strncmp(text, path, strlen(path)) == 0;
}

static int pairs(struct rank *self)
{
    enum { BYTES = 64 << 20 };
    uint8_t *data = calloc(1, BYTES);
    CHECK(rank_open(self) == TUTTI_OK);
    CHECK(goes_by(self, 65536, "eager: ") && goes_by(self, 131071, "fifo: ") && goes_by(self, 131072, "rma: "));
    CHECK(sizes(self) == 0 && many(self) == 0 && differs(self) == 0);
    CHECK(withdraws(self, 0, data, BYTES) == 0 && withdraws(self, 1, data, BYTES) == 0);
    free(data);
    rank_close(self);
    return 0;
}

static void test_messages(void **state)
{
    (void)state;
    rank_run(pairs, 2);
}

int main(int argc, char **argv)
{
    static char *arguments[] = {"test_tcp_rma", "rdm"};
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_messages), cmocka_unit_test(test_a_receiver_that_cannot_read),
        cmocka_unit_test(test_a_stopped_sender), cmocka_unit_test(test_a_peer_dies)};
    (void)argc;
    (void)argv;
    sender = mmap(NULL, sizeof *sender, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return rank_tests_main(2, arguments, &(struct rank_tests){.all = tests, .n_all = sizeof tests / sizeof *tests});
}
