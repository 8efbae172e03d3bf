#include "store/tcp_admission.h"

#include <limits.h>
#include <sys/resource.h>

#include "base/log.h"

/* Returns the descriptor limit.  Not cached: the program may change it. */
static int64_t descriptor_limit(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return 1024;
    return limit.rlim_cur > INT_MAX ? INT_MAX : (int64_t)limit.rlim_cur;
}

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

int admission_limit(const struct tcp_server *server)
{
    int clients = atomic_load_explicit(&server->n_clients, memory_order_relaxed); /* only this thread writes it */
    int64_t room = descriptor_limit() - ADMISSION_OTHER_FDS - clients;
    int64_t limit = smaller(room / 4, ADMISSION_UNKNOWN_MAX);
    limit = smaller(larger(limit, server->expected - clients), room * 3 / 4);
    return (int)larger(limit, ADMISSION_LEAST);
}

uint64_t admission_grace_ms(const struct tcp_server *server)
{
    return server->n_strangers < ADMISSION_GRACE_MS ? (uint64_t)server->n_strangers : ADMISSION_GRACE_MS;
}

void admission_check_descriptors(const struct tcp_server *server)
{
    int64_t need = (int64_t)server->expected + ADMISSION_OTHER_FDS, limit = descriptor_limit();
    if (need > limit)
        log_write(
            LOG_WARN,
            "tcp store: %d clients need about %lld descriptors on the server and the limit is %lld; raise `ulimit -n`",
            server->expected, (long long)need, (long long)limit);
}
