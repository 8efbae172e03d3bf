#include "base/limits.h"

#include <pthread.h>
#include <stdbool.h>
#include <sys/resource.h>

#include "base/log.h"

enum {
    OWN = 512,  /* for the program and other libraries */
    GROUP = 32, /* endpoints, queues, the store of one group */
    RANK = 8    /* descriptors of shared memory, handshakes, a connection per rank */
};

static pthread_mutex_t limits_lock = PTHREAD_MUTEX_INITIALIZER;
static rlim_t limits_needed;                /* sum of all groups */
static rlim_t limits_before, limits_raised; /* limits_raised is 0 while the program's own limit is in force */
static bool limits_warned;

static bool is_raised(const struct rlimit *limit)
{
    return limits_raised != 0 && limit->rlim_cur == limits_raised;
}

static void restore_limit(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && is_raised(&limit)) {
        limit.rlim_cur = limits_before;
        setrlimit(RLIMIT_NOFILE, &limit);
    }
    limits_raised = 0;
}

/* Restores the limit in a forked child, because programs that use select() rely on low descriptor numbers.  The child
 * has one thread, so it needs no lock, and could not take one that another thread held at the fork. */
static void in_child(void)
{
    restore_limit();
    pthread_mutex_init(&limits_lock, NULL);
    limits_needed = 0;
}

static void watch_forks(void)
{
    pthread_atfork(NULL, NULL, in_child);
}

static void raise_to(rlim_t needed)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= needed) return;
    if (limit.rlim_max < needed && !limits_warned) {
        log_write(LOG_WARN, LOG_GROUP,
                  "the groups of this process may need %llu descriptors and the hard limit is %llu; raise `ulimit -Hn`",
                  (unsigned long long)needed, (unsigned long long)limit.rlim_max);
        limits_warned = true;
    }
    rlim_t before = is_raised(&limit) ? limits_before : limit.rlim_cur;
    limit.rlim_cur = limit.rlim_max < needed ? limit.rlim_max : needed;
    if (setrlimit(RLIMIT_NOFILE, &limit) != 0) return;
    limits_before = before;
    limits_raised = limit.rlim_cur;
}

void limits_raise(int ranks)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, watch_forks);
    pthread_mutex_lock(&limits_lock);
    limits_needed += GROUP + (rlim_t)RANK * (rlim_t)ranks;
    raise_to(OWN + limits_needed);
    pthread_mutex_unlock(&limits_lock);
}

void limits_restore(int ranks)
{
    rlim_t share = GROUP + (rlim_t)RANK * (rlim_t)ranks;
    pthread_mutex_lock(&limits_lock);
    limits_needed -= share < limits_needed ? share : limits_needed;
    if (limits_needed == 0) restore_limit();
    pthread_mutex_unlock(&limits_lock);
}
