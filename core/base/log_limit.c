#include "base/log_limit.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

enum { PLACES = 64 };

static struct place {
    const void *key; /* NULL: free */
    int64_t ends_ns;
    unsigned n;
    struct log_left_out left_out;
} places[PLACES];
static pthread_mutex_t places_lock = PTHREAD_MUTEX_INITIALIZER;

/* A fork waits until the lock is free, so that the child can take it. */
static void before_fork(void)
{
    pthread_mutex_lock(&places_lock);
}

static void in_parent(void)
{
    pthread_mutex_unlock(&places_lock);
}

/* Empties the table: the parent reports its own lines. */
static void in_child(void)
{
    memset(places, 0, sizeof places);
    pthread_mutex_unlock(&places_lock);
}

static void watch_forks(void)
{
    pthread_atfork(before_fork, in_parent, in_child);
}

static void lock_places(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, watch_forks);
    pthread_mutex_lock(&places_lock);
}

/* Returns the place's entry.  NULL if more places than the table holds write within one period. */
static struct place *find_place(const void *key, int64_t now_ns)
{
    struct place *unused = NULL;
    for (int i = 0; i < PLACES; i++) {
        if (places[i].key == key) return &places[i];
        if (places[i].key == NULL || (now_ns >= places[i].ends_ns && places[i].left_out.n == 0)) unused = &places[i];
    }
    if (unused != NULL) *unused = (struct place){.key = key};
    return unused;
}

static void leave_out(struct place *place, int level, const char *subsystem, const char *text)
{
    if (place->left_out.n++ > 0) return;
    place->left_out.level = level;
    snprintf(place->left_out.subsystem, sizeof place->left_out.subsystem, "%s", subsystem);
    snprintf(place->left_out.text, sizeof place->left_out.text, "%s", text);
}

bool log_limit_allow(const void *key, unsigned most, int level, const char *subsystem, const char *text, int64_t now_ns)
{
    if (most == 0) return true;
    lock_places();
    struct place *place = find_place(key, now_ns);
    if (place != NULL && now_ns >= place->ends_ns && place->left_out.n == 0) {
        place->ends_ns = now_ns + (int64_t)LOG_LIMIT_MS * 1000000;
        place->n = 0;
    }
    bool allowed = place == NULL || place->n++ < most;
    if (!allowed) leave_out(place, level, subsystem, text);
    pthread_mutex_unlock(&places_lock);
    return allowed;
}

bool log_limit_take(int64_t now_ns, struct log_left_out *left_out)
{
    bool taken = false;
    lock_places();
    for (int i = 0; i < PLACES && !taken; i++) {
        struct place *place = &places[i];
        taken = place->left_out.n > 0 && now_ns >= place->ends_ns;
        if (!taken) continue;
        *left_out = place->left_out;
        place->left_out.n = 0;
    }
    pthread_mutex_unlock(&places_lock);
    return taken;
}
