#include "loopback.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

enum { PORTS = 8000, AWAIT_MS = 60000 };

static int make_socket(void)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    return fd;
}

static struct sockaddr_in address_of(uint16_t port)
{
    return (struct sockaddr_in){
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
}

int loopback_listen(int backlog, uint16_t *port)
{
    struct sockaddr_in address = address_of(0);
    socklen_t length = sizeof address;
    int fd = make_socket();
    assert_int_equal(bind(fd, (struct sockaddr *)&address, length), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&address, &length), 0);
    assert_int_equal(listen(fd, backlog), 0);
    *port = ntohs(address.sin_port);
    return fd;
}

/* Returns the first port that the kernel gives to sockets without one. */
static int first_automatic_port(void)
{
    int first = 0;
    FILE *file = fopen("/proc/sys/net/ipv4/ip_local_port_range", "re");
    if (file == NULL || fscanf(file, "%d", &first) != 1) first = 32768;
    if (file != NULL) fclose(file);
    return first;
}

static bool is_free(uint16_t port)
{
    struct sockaddr_in address = address_of(port);
    int fd = make_socket();
    bool bound = bind(fd, (struct sockaddr *)&address, sizeof address) == 0;
    close(fd);
    return bound;
}

/* Another test may connect at any time, and would get a port of the automatic ones. */
uint16_t loopback_free_port(void)
{
    static unsigned used;
    int top = first_automatic_port();
    if (top < PORTS + 2000) top = 65536; /* a host of its own kind */
    for (int tries = 0; tries < PORTS; tries++) {
        uint16_t port = (uint16_t)(top - 1 - (int)(((unsigned)getpid() * 97 + used++) % PORTS));
        if (is_free(port)) return port;
    }
    fail_msg("no port from %d to %d is free", top - PORTS, top - 1);
    return 0;
}

void loopback_await(uint16_t port)
{
    struct sockaddr_in address = address_of(port);
    for (int ms = 0; ms < AWAIT_MS; ms += 5) {
        int fd = make_socket();
        bool listens = connect(fd, (struct sockaddr *)&address, sizeof address) == 0;
        close(fd);
        if (listens) return;
        usleep(5000);
    }
    fail_msg("nobody listens on port %d", port);
}
