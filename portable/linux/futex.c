#include "portable/futex.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* A 32-bit system may have a time of 64 bits, for which it has a call of its own. */
static long futex(const atomic_uint *word, int what, unsigned value, const struct timespec *time)
{
#ifdef SYS_futex_time64
    if (sizeof(time_t) > sizeof(long)) return syscall(SYS_futex_time64, word, what, value, time, NULL, 0);
#endif
    return syscall(SYS_futex, word, what, value, time, NULL, 0);
}

void futex_wait(atomic_uint *word, unsigned value, int64_t ns)
{
    struct timespec time = {.tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000};
    futex(word, FUTEX_WAIT_PRIVATE, value, &time);
}

void futex_wake_one(const atomic_uint *word)
{
    futex(word, FUTEX_WAKE_PRIVATE, 1, NULL);
}
