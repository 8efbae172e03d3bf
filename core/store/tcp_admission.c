#include "store/tcp_admission.h"

#include <limits.h>
#include <stdint.h>
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

int admission_limit(int clients, int expected)
{
    int64_t free_fds = descriptor_limit() - ADMISSION_OTHER_FDS - clients;
    int64_t limit = smaller(free_fds / 4, ADMISSION_UNKNOWN_MAX);
    limit = smaller(larger(limit, expected - clients), free_fds * 3 / 4);
    return (int)larger(limit, ADMISSION_LEAST);
}

uint64_t admission_grace_ms(int unauthenticated)
{
    return unauthenticated < ADMISSION_GRACE_MS ? (uint64_t)unauthenticated : ADMISSION_GRACE_MS;
}

void admission_check_descriptors(int expected)
{
    int64_t need = (int64_t)expected + ADMISSION_OTHER_FDS, limit = descriptor_limit();
    if (need > limit)
        log_write(
            LOG_WARN, LOG_STORE,
            "tcp store: %d clients need about %lld descriptors on the server and the limit is %lld; raise `ulimit -n`",
            expected, (long long)need, (long long)limit);
}
