#include "portable/sockets.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stddef.h>
#include <unistd.h>

#if !defined TCP_KEEPIDLE && defined TCP_KEEPALIVE /* macOS */
#define TCP_KEEPIDLE TCP_KEEPALIVE
#endif

static void set_option(int fd, int level, int name, int value)
{
    if (value != 0) setsockopt(fd, level, name, &value, sizeof value);
}

/* Another thread that forks and executes in between leaves the descriptor open there.  POSIX of 2008 has nothing
 * better. */
static int prepare(int fd, bool blocks)
{
    if (fd < 0) return -1;
    fcntl(fd, F_SETFD, FD_CLOEXEC);
    if (!blocks) fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
#ifdef SO_NOSIGPIPE
    set_option(fd, SOL_SOCKET, SO_NOSIGPIPE, 1);
#endif
    return fd;
}

int sockets_open(int family, int type, bool blocks)
{
    return prepare(socket(family, type, 0), blocks);
}

int sockets_accept(int listener)
{
    return prepare(accept(listener, NULL, NULL), true);
}

int sockets_pipe(int ends[2])
{
    if (pipe(ends) != 0) return -1;
    for (int i = 0; i < 2; i++) fcntl(ends[i], F_SETFD, FD_CLOEXEC);
    return 0;
}

bool sockets_peer_is_own_user(int fd)
{
#if defined __APPLE__ || defined __FreeBSD__ || defined __NetBSD__ || defined __OpenBSD__ || defined __DragonFly__
    uid_t user;
    gid_t group;
    return getpeereid(fd, &user, &group) == 0 && user == geteuid();
#else
    (void)fd;
    return false;
#endif
}

pid_t sockets_peer_process(int fd)
{
    (void)fd;
    return -1;
}

bool sockets_have_abstract_names(void)
{
    return false;
}

void sockets_set_probes(int fd, const struct sockets_probes *probes)
{
    set_option(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
#ifdef TCP_KEEPIDLE
    set_option(fd, IPPROTO_TCP, TCP_KEEPIDLE, probes->idle_s);
#endif
#ifdef TCP_KEEPINTVL
    set_option(fd, IPPROTO_TCP, TCP_KEEPINTVL, probes->interval_s);
    set_option(fd, IPPROTO_TCP, TCP_KEEPCNT, probes->count);
#endif
}

void sockets_limit_unsent(int fd, int bytes)
{
#ifdef TCP_NOTSENT_LOWAT
    set_option(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, bytes);
#else
    (void)fd, (void)bytes;
#endif
}

/* A socket with a peer is taken for an established connection. */
bool sockets_read_state(int fd, struct sockets_state *state)
{
    struct sockaddr_storage peer;
    socklen_t bytes = sizeof peer;
    *state = (struct sockets_state){.is_established = true};
    return fd >= 0 && getpeername(fd, (struct sockaddr *)&peer, &bytes) == 0;
}

const char *sockets_folder(void)
{
    return NULL;
}

int sockets_timer(void)
{
    errno = ENOSYS;
    return -1;
}

void sockets_set_timer(int fd, int64_t ns)
{
    (void)fd, (void)ns;
}
