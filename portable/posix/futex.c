/* A table of conditions, indexed by the word's address.  Sleepers of other words may share one, so a wake reaches all
 * of its sleepers, which check their word again. */
#include "portable/futex.h"

#include <pthread.h>
#include <stdbool.h>
#include <time.h>

#include "portable/waits.h"

enum { BUCKETS = 64 };

struct bucket {
    pthread_mutex_t lock;
    pthread_cond_t changed;
};

static struct bucket buckets[BUCKETS];

static void init(void)
{
    for (int i = 0; i < BUCKETS; i++) {
        pthread_mutex_init(&buckets[i].lock, NULL);
        waits_condition_init(&buckets[i].changed);
    }
}

static struct bucket *bucket_of(const atomic_uint *word)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, init);
    uint64_t address = (uint64_t)(uintptr_t)word;
    return &buckets[(address * UINT64_C(0x9e3779b97f4a7c15)) >> 58];
}

void futex_wait(atomic_uint *word, unsigned value, int64_t ns)
{
    struct bucket *bucket = bucket_of(word);
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    int64_t at = (int64_t)until.tv_nsec + ns;
    until.tv_sec += at / 1000000000;
    until.tv_nsec = at % 1000000000;
    pthread_mutex_lock(&bucket->lock);
    if (atomic_load(word) == value) waits_condition(&bucket->changed, &bucket->lock, &until);
    pthread_mutex_unlock(&bucket->lock);
}

void futex_wake_one(const atomic_uint *word)
{
    struct bucket *bucket = bucket_of(word);
    pthread_mutex_lock(&bucket->lock);
    pthread_cond_broadcast(&bucket->changed);
    pthread_mutex_unlock(&bucket->lock);
}
