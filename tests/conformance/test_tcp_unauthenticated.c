/* Unauthenticated peers at the tcp plug-in's listener, and a rank without the job's secrets. */
#include "rank.h"

#include "usage.h"
#include <netinet/in.h>
#include <sys/socket.h>

static int wrong_token(struct rank *self)
{
    if (self->rank == 1) rank_token[0] = 99;
    CHECK(rank_open(self) == TUTTI_OK);
    uint8_t data[4] = {0};
    struct message m;
    if (self->rank == 1) rank_send(self, &m, 0, 1, data, 4, 0);
    rank_barrier(self, "called");
    if (self->rank == 0) rank_recv(self, &m, 1, 1, data, 4, 0);
    CHECK(rank_wait(self, &m) == (self->rank == 1 && m.done.status == TUTTI_OK ? TUTTI_OK : TUTTI_ERR_PEER_LOST));
    for (int64_t end = monotonic_ns() + (int64_t)WAIT_MS * 1000000; self->notified.lost == 0 && monotonic_ns() < end;)
        rank_progress(self);
    CHECK(self->notified.lost == 1);
    CHECK(strstr(self->notified.why, "token") != NULL);
    rank_barrier(self, "end"); /* a rank that left early would be lost for another reason */
    rank_close(self);
    return 0;
}

static void test_wrong_token(void **state)
{
    (void)state;
    rank_run_until_silent(wrong_token, 2, NULL);
}

/* A rank's handshakes are right, but the secrets of its messages are wrong.  All its messages are dropped. */
static int wrong_secret(struct rank *self)
{
    rank_spoils_secrets = self->rank == 1;
    CHECK(rank_open(self) == TUTTI_OK);
    uint8_t data[4] = {0};
    struct message m;
    (self->rank == 1 ? rank_send : rank_recv)(self, &m, self->rank == 1 ? 0 : TUTTI_ANY_SOURCE, 1, data, 4, 0);
    if (self->rank == 0) {
        for (int64_t end = monotonic_ns() + (int64_t)WAIT_MS * 1000000; rank_dropped < 2 && monotonic_ns() < end;)
            rank_progress(self);
        CHECK(rank_dropped >= 2); /* a heartbeat and the message */
        CHECK(!m.done.is);
    }
    rank_barrier(self, "end");
    rank_close(self);
    return 0;
}

static void test_wrong_secret(void **state)
{
    (void)state;
    if (!rank_is_rdm()) {
        print_message("skipped: a connected endpoint's messages need no secret\n");
        skip();
    }
    rank_run(wrong_secret, 2);
}

/* Connects to an entry of the address book: an address in our format, or the name of an endpoint, here a sockaddr. */
static int connect_unauthenticated(const uint8_t *address, const void *data, size_t bytes)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)(address[16] | address[17] << 8))};
    memcpy(&to.sin_addr, address + 24, 4);
    if (rank_is_rdm()) memcpy(&to, address + 64, sizeof to);
    if (connect(fd, (struct sockaddr *)&to, sizeof to) != 0) perror("connect_unauthenticated");
    if (bytes > 0 && send(fd, data, bytes, MSG_NOSIGNAL) < 0) perror("connect_unauthenticated: send");
    return fd;
}

/* Finds a rank's entry in the address book. */
static bool find_address(struct rank *self, uint32_t rank, uint8_t address[256])
{
    uint8_t book[1024];
    size_t bytes = 0;
    uint32_t header[2] = {UINT32_MAX, 0};
    for (int64_t end = monotonic_ns() + INT64_C(5000000000); monotonic_ns() < end; rank_sleep_ms(1)) {
        if (shared_store_get((tutti_store *)self->shared, "tcp/addresses", book, sizeof book, &bytes, 5000) != TUTTI_OK)
            break;
        for (size_t at = 0; at + sizeof header <= bytes; at += sizeof header + header[1]) {
            memcpy(header, book + at, sizeof header);
            memcpy(address, book + at + sizeof header, header[1]);
            if (header[0] == rank) return true;
        }
    }
    return false;
}

static int unauthenticated_peers(struct rank *self)
{
    CHECK(rank_open(self) == TUTTI_OK);
    uint8_t address[256], data[1000] = {0};
    struct message m;
    if (self->rank == 0) {
        CHECK(find_address(self, 1, address));
        uint8_t half[32] = {3, 0, 0, 10}, request[32 + 104] = {3, 0, 0, 104};
        int fd[64], n = 0;
        for (int i = 0; i < 40; i++) fd[n++] = connect_unauthenticated(address, NULL, 0);
        fd[n++] = connect_unauthenticated(address, "GET / HTTP/1.0\r\n\r\nand some more bytes", 38);
        fd[n++] = connect_unauthenticated(address, half, sizeof half);
        fd[n++] = connect_unauthenticated(address, request, sizeof request);
        request[40] ^= 1;
        memcpy(request + 32, "TUTTItcp", 8);
        fd[n++] = connect_unauthenticated(address, request, sizeof request);
        close(fd[0]);
        shared_store_barrier(self->shared, "knocked", 0, 2);
        rank_send(self, &m, 1, 1, data, sizeof data, 0);
        CHECK(rank_wait(self, &m) == TUTTI_OK);
        rank_recv(self, &m, 1, 2, data, sizeof data, 0);
        CHECK(rank_wait(self, &m) == TUTTI_OK);
        for (int i = 1; i < n; i++) close(fd[i]);
    } else {
        shared_store_barrier(self->shared, "knocked", 1, 2);
        int64_t before = monotonic_ns();
        rank_recv(self, &m, 0, 1, data, sizeof data, 0);
        CHECK(rank_wait(self, &m) == TUTTI_OK);
        CHECK(monotonic_ns() - before < 10000000000); /* a call without an answer ends after 15 s */
        rank_send(self, &m, 0, 2, data, sizeof data, 0);
        CHECK(rank_wait(self, &m) == TUTTI_OK);
    }
    rank_close(self);
    return 0;
}

static void test_unauthenticated_peers_at_the_listener(void **state)
{
    (void)state;
    rank_run(unauthenticated_peers, 2);
}

/* Makes progress until n descriptors are open.  Returns false if that takes too long. */
static bool await_fds(struct rank *self, int n)
{
    for (int64_t end = monotonic_ns() + (int64_t)WAIT_MS * 1000000; usage_fds() != n && monotonic_ns() < end;)
        rank_progress(self);
    return usage_fds() == n;
}

/* Silent connections are closed after a while.  A rank without a free descriptor says so, and does not spin. */
static int crowd(struct rank *self)
{
    CHECK(rank_open(self) == TUTTI_OK);
    uint8_t address[256];
    struct message m;
    (self->rank == 0 ? rank_send : rank_recv)(self, &m, 1 - self->rank, 1, address, 4, 0);
    CHECK(rank_wait(self, &m) == TUTTI_OK);
    rank_barrier(self, "linked");
    if (self->rank == 0) {
        int fd[50];
        CHECK(find_address(self, 1, address));
        for (int i = 0; i < 50; i++) fd[i] = connect_unauthenticated(address, NULL, 0);
        shared_store_barrier(self->shared, "came", 0, 2);
        shared_store_barrier(self->shared, "ended", 0, 2);
        for (int i = 0; i < 50; i++) close(fd[i]);
        fd[0] = connect_unauthenticated(address, NULL, 0);
        shared_store_barrier(self->shared, "full", 0, 2);
        shared_store_barrier(self->shared, "end", 0, 2);
        close(fd[0]);
    } else {
        int before = usage_fds();
        shared_store_barrier(self->shared, "came", 1, 2);
        CHECK(await_fds(self, before + 50)); /* all are accepted .. */
        CHECK(await_fds(self, before));      /* .. and each is closed */
        struct rlimit limit = {(rlim_t)before, (rlim_t)before};
        while (fcntl((int)limit.rlim_cur - 1, F_GETFD) < 0) limit.rlim_cur--;
        int filler = dup(0); /* the lowest free number */
        while (filler >= 0 && filler < (int)limit.rlim_cur) filler = dup(0);
        if (filler >= 0) close(filler);
        setrlimit(RLIMIT_NOFILE, &limit);
        shared_store_barrier(self->shared, "ended", 1, 2);
        shared_store_barrier(self->shared, "full", 1, 2);
        struct rusage start_usage, end_usage;
        int logged = rank_logged;
        getrusage(RUSAGE_SELF, &start_usage);
        rank_progress_ms(self, 1200);
        getrusage(RUSAGE_SELF, &end_usage);
        CHECK(rank_cpu_ms(&start_usage, &end_usage) < 200);
        CHECK(rank_logged > logged); /* it says so */
        shared_store_barrier(self->shared, "end", 1, 2);
    }
    rank_close(self);
    return 0;
}

/* A rank without CPU time is in the middle of its handshake. */
static int held_up(struct rank *self)
{
    enum { HELD_MS = 3500 };
    CHECK(rank_open(self) == TUTTI_OK);
    uint8_t data[4] = {0};
    struct message m;
    if (self->rank == 0) {
        rank_send(self, &m, 1, 1, data, sizeof data, 0);
        shared_store_barrier(self->shared, "begun", 0, 2);
        shared_store_barrier(self->shared, "kept", 0, 2);
        CHECK(rank_wait(self, &m) == TUTTI_OK);
        rank_barrier(self, "sent");
    } else {
        shared_store_barrier(self->shared, "begun", 1, 2);
        rank_recv(self, &m, TUTTI_ANY_SOURCE, 1, data, sizeof data, 0);
        rank_progress_ms(self, HELD_MS);
        shared_store_barrier(self->shared, "kept", 1, 2);
        CHECK(rank_wait(self, &m) == TUTTI_OK);
        CHECK(self->notified.lost == 0);
        rank_barrier(self, "sent");
    }
    rank_close(self);
    return 0;
}

static void test_a_rank_held_up_in_its_handshake(void **state)
{
    (void)state;
    rank_run(held_up, 2);
}

/* Until all links are made, the number of unauthenticated connections is limited. */
static int flooded(struct rank *self)
{
    enum { CROWD = 120, MOST = 1 + 64 };
    CHECK(rank_open(self) == TUTTI_OK);
    uint8_t address[256], data[4] = {0};
    struct message m;
    if (self->rank == 0) {
        int fd[CROWD];
        CHECK(find_address(self, 1, address));
        for (int i = 0; i < CROWD; i++) fd[i] = connect_unauthenticated(address, NULL, 0);
        shared_store_barrier(self->shared, "came", 0, 2);
        shared_store_barrier(self->shared, "counted", 0, 2);
        rank_send(self, &m, 1, 1, data, sizeof data, 0);
        CHECK(rank_wait(self, &m) == TUTTI_OK);
        rank_barrier(self, "sent");
        for (int i = 0; i < CROWD; i++) close(fd[i]);
    } else {
        int before = usage_fds();
        shared_store_barrier(self->shared, "came", 1, 2);
        CHECK(await_fds(self, before + MOST));
        rank_progress_ms(self, 2500);
        CHECK(usage_fds() == before + MOST);
        shared_store_barrier(self->shared, "counted", 1, 2);
        rank_recv(self, &m, TUTTI_ANY_SOURCE, 1, data, sizeof data, 0);
        CHECK(rank_wait(self, &m) == TUTTI_OK);
        rank_barrier(self, "sent");
    }
    rank_close(self);
    return 0;
}

static void test_a_flood_before_the_first_link(void **state)
{
    (void)state;
    if (rank_is_rdm()) {
        print_message("skipped: the provider keeps its own connections\n");
        skip();
    }
    rank_run(flooded, 2);
}

/* Strangers take all descriptors at once.  They are found and ended without a further one. */
static int filled(struct rank *self)
{
    enum { CROWD = 20, FREE = 4 };
    CHECK(rank_open(self) == TUTTI_OK);
    uint8_t address[256], data[4] = {0};
    struct message m;
    if (self->rank == 0) {
        int fd[CROWD];
        CHECK(find_address(self, 1, address));
        shared_store_barrier(self->shared, "limited", 0, 2);
        for (int i = 0; i < CROWD; i++) fd[i] = connect_unauthenticated(address, NULL, 0);
        shared_store_barrier(self->shared, "came", 0, 2);
        rank_send(self, &m, 1, 1, data, sizeof data, 0);
        CHECK(rank_wait(self, &m) == TUTTI_OK);
        rank_barrier(self, "sent");
        for (int i = 0; i < CROWD; i++) close(fd[i]);
    } else {
        rank_progress(self); /* checks its descriptors, and then not for a second */
        usage_leave_fds(FREE);
        shared_store_barrier(self->shared, "limited", 1, 2);
        shared_store_barrier(self->shared, "came", 1, 2);
        rank_progress_ms(self, 200);
        CHECK(fcntl(0, F_DUPFD_CLOEXEC, 0) < 0);
        rank_recv(self, &m, TUTTI_ANY_SOURCE, 1, data, sizeof data, 0);
        CHECK(rank_wait(self, &m) == TUTTI_OK);
        rank_barrier(self, "sent");
    }
    rank_close(self);
    return 0;
}

static void test_strangers_take_all_descriptors(void **state)
{
    (void)state;
    if (rank_is_rdm()) {
        print_message("skipped: the provider keeps its own connections\n");
        skip();
    }
    rank_run(filled, 2);
}

/* Strangers take all descriptors before the request of rank 0, for which rank 1 waits because both requests have
 * crossed.  The next time that rank 1 looks, it ends them, and has a descriptor for the request. */
static int strangers_first(struct rank *self)
{
    enum { CROWD = 8, FREE = 6, COMPUTE_MS = 2500 };
    CHECK(rank_open(self) == TUTTI_OK);
    uint8_t address[256], data[4] = {0}, in[4];
    struct message m, answer;
    shared_store_barrier(self->shared, "open", self->rank, 2);
    if (self->rank == 0) {
        int fd[CROWD];
        CHECK(find_address(self, 1, address));
        for (int i = 0; i < CROWD; i++) fd[i] = connect_unauthenticated(address, NULL, 0);
        shared_store_barrier(self->shared, "came", 0, 2);
        rank_send(self, &m, 1, 1, data, sizeof data, 0);
        shared_store_barrier(self->shared, "sent", 0, 2);
        rank_progress_ms(self, 300); /* refuses the request of rank 1 */
        rank_report(self, "refused");
        CHECK(rank_wait(self, &m) == TUTTI_OK);
        rank_barrier(self, "received");
        for (int i = 0; i < CROWD; i++) close(fd[i]);
    } else {
        usage_leave_fds(FREE);
        rank_send(self, &m, 0, 1, data, sizeof data, 0);
        rank_recv(self, &answer, 0, 1, in, sizeof in, 0);
        shared_store_barrier(self->shared, "came", 1, 2);
        shared_store_barrier(self->shared, "sent", 1, 2);
        rank_await(self, "refused", 0);
        rank_progress_ms(self, 100);
        rank_sleep_ms(COMPUTE_MS);
        CHECK(rank_wait(self, &answer) == TUTTI_OK);
        CHECK(self->notified.lost == 0);
        rank_barrier(self, "received");
    }
    rank_close(self);
    return 0;
}

static void test_strangers_before_a_crossed_request(void **state)
{
    (void)state;
    if (rank_is_rdm()) {
        print_message("skipped: only connected endpoints accept connections\n");
        skip();
    }
    rank_run(strangers_first, 2);
}

static void test_a_crowd_at_the_listener(void **state)
{
    (void)state;
    if (rank_is_rdm()) { /* the provider does not show sockets, so the backend cannot tell its peers' from others */
        print_message("skipped: the provider keeps its own connections\n");
        skip();
    }
    rank_run(crowd, 2);
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_wrong_token),
    };
    static const struct CMUnitTest network_tests[] = {
        cmocka_unit_test(test_unauthenticated_peers_at_the_listener),
        cmocka_unit_test(test_a_crowd_at_the_listener),
        cmocka_unit_test(test_a_rank_held_up_in_its_handshake),
        cmocka_unit_test(test_a_flood_before_the_first_link),
        cmocka_unit_test(test_strangers_take_all_descriptors),
        cmocka_unit_test(test_strangers_before_a_crossed_request),
        cmocka_unit_test(test_wrong_secret),
    };
    return rank_tests_main(argc, argv,
                           &(struct rank_tests){.all = tests,
                                                .n_all = sizeof tests / sizeof *tests,
                                                .network = network_tests,
                                                .n_network = sizeof network_tests / sizeof *network_tests});
}
