/* Ranks that torchrun starts find each other without a connection to its agent's store.  Most tests set torchrun's
 * variables themselves, and a socket of the test stands for that store.  In one test, torchrun itself starts the ranks.
 * It is skipped if torch is not installed. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

#include "loopback.h"

static char said[65536];

/* Runs a shell command, and keeps its output on both streams. */
static void run(const char *command)
{
    FILE *pipe = popen(command, "r");
    assert_non_null(pipe);
    said[fread(said, 1, sizeof said - 1, pipe)] = '\0';
    pclose(pipe);
}

static int times(const char *what)
{
    int n = 0;
    for (const char *at = said; (at = strstr(at, what)) != NULL; at++) n++;
    return n;
}

static int listener(uint16_t *port)
{
    int fd = loopback_listen(16, port);
    assert_int_equal(fcntl(fd, F_SETFL, O_NONBLOCK), 0);
    return fd;
}

/* Starts n ranks as torchrun does, `here` of them on each host, with more variables. */
static void ranks(int n, int here, uint16_t port, const char *more)
{
    char command[6000];
    snprintf(
        command, sizeof command,
        "for r in 0 1 2; do [ $r -lt %d ] && RANK=$r LOCAL_RANK=$((r %% %d)) WORLD_SIZE=%d LOCAL_WORLD_SIZE=%d "
        "MASTER_ADDR=127.0.0.1 MASTER_PORT=%u TORCHELASTIC_RUN_ID=none TORCHELASTIC_RESTART_COUNT=0 "
        "TORCHELASTIC_USE_AGENT_STORE=True TUTTI_BACKEND_PATH=%s %s timeout 60 %s/all_reduce tcp 2>&1 & done; wait",
        n, here, n, here, port, TUTTI_BACKENDS_DIR, more, TUTTI_EXAMPLES_DIR);
    run(command);
}

static void one_host(void **state)
{
    (void)state;
    uint16_t port;
    int agent = listener(&port);
    ranks(3, 3, port, "");
    if (times("has the sum of the ranks [3]") != 3) fail_msg("%s", said);
    assert_int_equal(accept(agent, NULL, NULL), -1); /* nobody connected to the agent */
    ranks(1, 1, port, "");
    if (times("has the sum of the ranks [0]") != 1) fail_msg("%s", said);
    close(agent);
}

/* Ranks of other hosts find rank 0's host by MASTER_ADDR.  The port is another one. */
static void several_hosts(void **state)
{
    (void)state;
    uint16_t port, other;
    char more[40];
    int agent = listener(&port), probe = listener(&other);
    close(probe);
    snprintf(more, sizeof more, "TUTTI_MASTER_PORT=%u", other);
    ranks(2, 1, port, more);
    if (times("has the sum of the ranks [1]") != 2) fail_msg("%s", said);
    assert_int_equal(accept(agent, NULL, NULL), -1);
    ranks(2, 1, port, "TUTTI_MASTER_PORT=x");
    if (times("TUTTI_MASTER_PORT is \"x\"") != 2) fail_msg("%s", said);
    close(agent);
}

/* If the name is already in use, rank 0 reports that and does not continue alone. */
static void a_taken_name(void **state)
{
    (void)state;
    uint16_t port;
    int agent = listener(&port), fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int n = snprintf(address.sun_path + 1, sizeof address.sun_path - 1, "tutti/%u/%u/0/tutti-store-0/none",
                     (unsigned)geteuid(), port);
    assert_int_equal(
        bind(fd, (struct sockaddr *)&address, (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1) + (socklen_t)n),
        0);
    ranks(1, 1, port, "");
    if (times("on which the ranks exchange the store's address: Address already in use") != 1) fail_msg("%s", said);
    close(fd);
    close(agent);
}

/* -r and -t replace the defaults of torch 1.13, which fail with Python 3.11 */
static void torchrun(void **state)
{
    (void)state;
    if (system("/usr/bin/python3 -c 'import torch.distributed.run' 2>/dev/null") != 0) {
        fprintf(stderr, "skipped: torch is not installed (Debian: python3-torch)\n");
        skip();
    }
    static const char *const more[] = {"--master_addr 127.0.0.1 --master_port",
                                       "--rdzv_backend c10d --rdzv_endpoint 127.0.0.1:"};
    for (size_t i = 0; i < 2; i++) {
        char command[6000];
        uint16_t port;
        port = loopback_free_port();
        snprintf(command, sizeof command,
                 "TUTTI_BACKEND_PATH=%s timeout 90 /usr/bin/python3 -m torch.distributed.run %s%s%u --no_python -r 0:1 "
                 "-t 0:1 --nproc_per_node 3 %s/all_reduce tcp 2>&1",
                 TUTTI_BACKENDS_DIR, more[i], i == 0 ? " " : "", port, TUTTI_EXAMPLES_DIR);
        run(command);
        if (times("has the sum of the ranks [3]") != 3) fail_msg("%s", said);
    }
}

int main(void)
{
    if (access(TUTTI_BACKENDS_DIR "/libtutti_tcp.so", F_OK) != 0) {
        fprintf(stderr, "skipped: the tcp backend was not built\n");
        return 77;
    }
    const struct CMUnitTest tests[] = {cmocka_unit_test(one_host), cmocka_unit_test(several_hosts),
                                       cmocka_unit_test(a_taken_name), cmocka_unit_test(torchrun)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
