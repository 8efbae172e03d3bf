#include "base/marks.h"

#include <stdio.h>

#include "base/clock.h"
#include "base/lock.h"

static struct lock lock;
static struct mark kept[MARKS_KEPT];
static uint32_t latest;

uint32_t marks_add(const char *text)
{
    int64_t now = clock_now_ns();
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
