#include "op/record.h"

#include <stdlib.h>
#include <string.h>

#include "base/aligned.h"
#include "base/clock.h"

_Atomic uint32_t record_mark;

static _Atomic size_t in_use; /* bytes of all rings */

/* Reserves memory for a ring.  A ring's first array is not counted against the others'. */
static bool reserve(size_t bytes, bool first)
{
    /* relaxed: only a limit */
    size_t before = atomic_fetch_add_explicit(&in_use, bytes, memory_order_relaxed);
    if (first || before + bytes <= RECORD_BUDGET) return true;
    atomic_fetch_sub_explicit(&in_use, bytes, memory_order_relaxed);
    return false;
}

static struct record *allocate(size_t n, bool first)
{
    size_t bytes = n * sizeof(struct record);
    if (!reserve(bytes, first)) return NULL;
    struct record *slots = aligned_new(sizeof *slots, bytes);
    if (slots == NULL)
        atomic_fetch_sub_explicit(&in_use, bytes, memory_order_relaxed);
    else
        memset(slots, 0, bytes);
    return slots;
}

/* Replaces the array by a larger one.  A thread that cannot get the lock may read the old one, so it stays. */
static void grow(struct record_ring *ring)
{
    size_t n = (size_t)ring->mask + 1;
    struct record *slots = allocate(n * RECORDS_GROWTH, false);
    if (slots == NULL) return;
    memcpy(slots, ring->slots, n * sizeof *slots);
    ring->retired[ring->retired[0] != NULL] = ring->slots;
    /* release, both: pair with write_ring's acquires.  A thread without the lock sees the records that were copied, and
     * never reads behind the array's end. */
    __atomic_store_n(&ring->slots, slots, __ATOMIC_RELEASE);
    __atomic_store_n(&ring->mask, (uint32_t)(n * RECORDS_GROWTH) - 1, __ATOMIC_RELEASE);
}

static void begin(struct record_ring *ring)
{
    ring->slots = allocate(RECORDS_FIRST, true);
    ring->mask = ring->slots != NULL ? RECORDS_FIRST - 1 : 0;
    if (ring->slots == NULL) ring->slots = &ring->only;
    ring->window = 1;
}

/* Adapts the number of operations between two readings to their rate. */
static void read_clock(struct record_ring *ring, int64_t *clock_ns)
{
    int64_t now = clock_now_ns(), each = (now - ring->read_ns) / ring->window;
    int64_t fit = each > 0 ? RECORD_READ_NS / each : RECORD_READ_MOST;
    ring->window = fit < 1 ? 1 : fit > RECORD_READ_MOST ? RECORD_READ_MOST : (uint32_t)fit;
    ring->read_ns = *clock_ns = now;
}

void record_refill(struct record_ring *ring, int64_t *clock_ns)
{
    if (ring->slots == NULL) begin(ring);
    uint64_t n = (uint64_t)ring->mask + 1;
    if (ring->next == n && n > 1 && n < RECORDS_MOST) grow(ring);
    n = (uint64_t)ring->mask + 1;
    read_clock(ring, clock_ns);
    if (ring->next < n && ring->window > n - ring->next) ring->window = (uint32_t)(n - ring->next);
    ring->due = ring->next + ring->window;
}

void record_free(struct record_ring *ring)
{
    size_t n = ring->slots != NULL && ring->slots != &ring->only ? (size_t)ring->mask + 1 : 0;
    for (size_t kept = n; kept >= RECORDS_FIRST; kept /= RECORDS_GROWTH)
        atomic_fetch_sub_explicit(&in_use, kept * sizeof(struct record), memory_order_relaxed);
    if (n > 0) aligned_free(ring->slots);
    for (int i = 0; i < 2; i++) aligned_free(ring->retired[i]);
    ring->slots = NULL;
}
