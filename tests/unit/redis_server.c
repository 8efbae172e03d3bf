#include "redis_server.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <tutti/store.h>
#include <unistd.h>

enum { START_MS = 10000, STEP_MS = 10, TRIES = 5 };

const char *redis_server_missing(void)
{
    tutti_store *store = NULL;
    if (access("/usr/bin/redis-server", X_OK) != 0) return "redis-server is not installed (Debian: redis-server)";
    if (tutti_store_redis("", NULL, &store) == TUTTI_ERR_UNSUPPORTED) return "the library was built without hiredis";
    return NULL;
}

static struct sockaddr_in address_of(uint16_t port)
{
    return (struct sockaddr_in){
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
}

static uint16_t free_port(void)
{
    struct sockaddr_in address = address_of(0);
    socklen_t bytes = sizeof address;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || bind(fd, (struct sockaddr *)&address, bytes) != 0 ||
        getsockname(fd, (struct sockaddr *)&address, &bytes) != 0)
        address.sin_port = 0;
    close(fd);
    return ntohs(address.sin_port);
}

static int connect_to(const struct redis_server *server)
{
    struct sockaddr_in address = address_of(server->port);
    struct timeval limit = {.tv_sec = 5};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    if (fd >= 0 && connect(fd, (struct sockaddr *)&address, sizeof address) == 0) return fd;
    close(fd);
    return -1;
}

const char *redis_server_ask(const struct redis_server *server, const char *line)
{
    static char reply[512];
    char request[256] = "";
    ssize_t bytes = -1;
    int fd = connect_to(server);
    if (fd < 0) return "";
    if (server->password != NULL) {
        snprintf(request, sizeof request, "AUTH %s\r\n", server->password);
        if (send(fd, request, strlen(request), MSG_NOSIGNAL) > 0) bytes = recv(fd, reply, sizeof reply, 0);
    }
    snprintf(request, sizeof request, "%s\r\n", line);
    if (send(fd, request, strlen(request), MSG_NOSIGNAL) > 0) bytes = recv(fd, reply, sizeof reply - 1, 0);
    close(fd);
    reply[bytes > 0 ? bytes : 0] = '\0';
    reply[strcspn(reply, "\r\n")] = '\0';
    return reply;
}

int redis_server_subscribe(const struct redis_server *server, const char *channel)
{
    char text[256];
    int fd = connect_to(server);
    snprintf(text, sizeof text, "SUBSCRIBE %s\r\n", channel);
    if (fd >= 0 && send(fd, text, strlen(text), MSG_NOSIGNAL) > 0 && recv(fd, text, sizeof text, 0) > 0) return fd;
    close(fd);
    return -1;
}

bool redis_server_hears(int fd)
{
    char text[256];
    ssize_t bytes = recv(fd, text, sizeof text - 1, 0);
    text[bytes > 0 ? bytes : 0] = '\0';
    return strstr(text, "message") != NULL;
}

static void run_server(const struct redis_server *server)
{
    char port[8];
    snprintf(port, sizeof port, "%u", server->port);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (freopen("/dev/null", "w", stdout) == NULL) _exit(127);
    execl("/usr/bin/redis-server", "redis-server", "--port", port, "--bind", "127.0.0.1", "--save", "", "--appendonly",
          server->keeps ? "yes" : "no", "--appendfsync", "always", "--dir", server->folder,
          server->password != NULL ? "--requirepass" : NULL, server->password, NULL);
    _exit(127);
}

/* Returns true once the server answers, false if it ends, as it does if another program has taken the port. */
static bool answers(struct redis_server *server)
{
    for (int ms = 0; ms < START_MS; ms += STEP_MS) {
        if (strcmp(redis_server_ask(server, "PING"), "+PONG") == 0) return true;
        if (waitpid(server->pid, NULL, WNOHANG) == server->pid) return false;
        nanosleep(&(struct timespec){.tv_nsec = STEP_MS * 1000000L}, NULL);
    }
    kill(server->pid, SIGKILL);
    waitpid(server->pid, NULL, 0);
    return false;
}

bool redis_server_start(struct redis_server *server)
{
    bool again = server->port != 0;
    if (server->folder[0] == '\0') {
        snprintf(server->folder, sizeof server->folder, "/tmp/test_redis.%d.XXXXXX", (int)getpid());
        if (mkdtemp(server->folder) == NULL) return false;
    }
    for (int i = 0; i < TRIES; i++) {
        if (!again) server->port = free_port();
        server->pid = fork();
        if (server->pid == 0) run_server(server);
        if (server->pid > 0 && answers(server)) return true;
    }
    server->pid = 0;
    fprintf(stderr, "redis-server does not answer on port %u\n", server->port);
    return false;
}

void redis_server_end(struct redis_server *server, int signal)
{
    if (server->pid <= 0) return;
    kill(server->pid, signal);
    waitpid(server->pid, NULL, 0);
    server->pid = 0;
}

void redis_server_remove(struct redis_server *server)
{
    char command[128];
    redis_server_end(server, SIGKILL);
    if (strncmp(server->folder, "/tmp/test_redis.", 16) != 0) return;
    snprintf(command, sizeof command, "rm -rf '%s'", server->folder);
    if (system(command) != 0) fprintf(stderr, "cannot remove %s\n", server->folder);
}
