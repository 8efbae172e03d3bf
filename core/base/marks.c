#include "base/marks.h"

#include <pthread.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/lock.h"

static struct lock lock;
static struct mark kept[MARKS_KEPT];
static uint32_t latest;

/* Another thread of the parent may have held the lock.  At most one mark is then incomplete. */
static void reset_in_child(void)
{
    lock = (struct lock){0};
    for (int i = 0; i < MARKS_KEPT; i++) kept[i].text[MARK_TEXT_MOST - 1] = '\0';
}

static void watch_forks(void)
{
    pthread_atfork(NULL, NULL, reset_in_child);
}

uint32_t marks_add(const char *text)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    int64_t now = clock_now_ns();
    pthread_once(&once, watch_forks);
    lock_take(&lock);
    struct mark *mark = &kept[++latest % MARKS_KEPT];
    mark->number = latest;
    mark->ns = now;
    snprintf(mark->text, sizeof mark->text, "%s", text);
    uint32_t number = latest;
    lock_give(&lock);
    return number;
}

int marks_read(struct mark marks[MARKS_KEPT])
{
    lock_take(&lock);
    int n = latest < MARKS_KEPT ? (int)latest : MARKS_KEPT;
    for (int i = 0; i < n; i++) marks[i] = kept[(latest - (uint32_t)(n - 1 - i)) % MARKS_KEPT];
    lock_give(&lock);
    return n;
}
