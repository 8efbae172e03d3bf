#include "base/user_op.h"

#include <pthread.h>
#include <string.h>

/* A number is TUTTI_USER_OPS plus the entry's index and how often the entry has been used. */
enum { INDEX_BITS = 8, USES_MASK = (1 << 22) - 1 };
static_assert(USER_OPS_MOST == 1 << INDEX_BITS, "an index has INDEX_BITS");

static struct entry {
    struct user_op op;
    uint32_t uses;
    int holders;
    bool in_use, freed; /* freed: only its holders may find it */
} entries[USER_OPS_MOST];

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static tutti_reduce_op number_of(const struct entry *entry)
{
    unsigned index = (unsigned)(entry - entries);
    return (tutti_reduce_op)((unsigned)TUTTI_USER_OPS | (entry->uses & USES_MASK) << INDEX_BITS | index);
}

/* Returns the entry with this number, or NULL.  Lock held. */
static struct entry *find(tutti_reduce_op number)
{
    struct entry *entry = &entries[(unsigned)number % USER_OPS_MOST];
    return entry->in_use && number_of(entry) == number ? entry : NULL;
}

static void release_if_unused(struct entry *entry)
{
    if (!entry->freed || entry->holders > 0) return;
    entry->in_use = entry->freed = false;
    entry->uses++;
}

bool user_op_add(const struct user_op *op, tutti_reduce_op *number)
{
    struct entry *entry = entries, *end = entries + USER_OPS_MOST;
    pthread_mutex_lock(&lock);
    while (entry < end && entry->in_use) entry++;
    bool found = entry < end;
    if (found) {
        entry->op = *op;
        entry->in_use = true;
        *number = number_of(entry);
    }
    pthread_mutex_unlock(&lock);
    return found;
}

bool user_op_free(tutti_reduce_op number)
{
    pthread_mutex_lock(&lock);
    struct entry *entry = user_op_is(number) ? find(number) : NULL;
    bool found = entry != NULL && !entry->freed;
    if (found) {
        entry->freed = true;
        release_if_unused(entry);
    }
    pthread_mutex_unlock(&lock);
    return found;
}

static bool copy_op(tutti_reduce_op number, bool usable, struct user_op *op)
{
    if (!user_op_is(number)) return false;
    pthread_mutex_lock(&lock);
    const struct entry *entry = find(number);
    bool found = entry != NULL && !(usable && entry->freed);
    if (found) *op = entry->op;
    pthread_mutex_unlock(&lock);
    return found;
}

bool user_op_find(tutti_reduce_op number, struct user_op *op)
{
    return copy_op(number, false, op);
}

bool user_op_find_usable(tutti_reduce_op number, struct user_op *op)
{
    return copy_op(number, true, op);
}

bool user_op_find_hash(uint32_t hash, uint32_t mask, struct user_op *op)
{
    bool found = false;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < USER_OPS_MOST && !found; i++) {
        found = entries[i].in_use && ((entries[i].op.hash ^ hash) & mask) == 0;
        if (found) *op = entries[i].op;
    }
    pthread_mutex_unlock(&lock);
    return found;
}

static void count_holder(tutti_reduce_op number, int by)
{
    if (!user_op_is(number)) return;
    pthread_mutex_lock(&lock);
    struct entry *entry = find(number);
    if (entry != NULL) {
        entry->holders += by;
        release_if_unused(entry);
    }
    pthread_mutex_unlock(&lock);
}

void user_op_hold(tutti_reduce_op number)
{
    count_holder(number, 1);
}

void user_op_drop(tutti_reduce_op number)
{
    count_holder(number, -1);
}

const char *user_op_name(tutti_reduce_op number)
{
    pthread_mutex_lock(&lock);
    const struct entry *entry = user_op_is(number) ? find(number) : NULL;
    pthread_mutex_unlock(&lock);
    return entry != NULL ? entry->op.name : "?";
}

int64_t user_op_units(const struct user_op *op)
{
    return op->element_bytes > 0 ? op->element_bytes : 1;
}

/* Computes a = a op b.  fn writes its right operand, so it gets a copy of b. */
static void combine_into_left(const struct user_op *op, tutti_dtype dtype, char *a, const char *b, int64_t n,
                              void *block)
{
    int64_t element = user_op_units(op) * tutti_dtype_bytes(dtype), most = user_op_block(element) / element;
    for (int64_t i = 0; i < n; i += most) {
        int64_t now = n - i < most ? n - i : most;
        memcpy(block, b + i * element, (size_t)(now * element));
        op->fn(block, a + i * element, now, dtype, op->argument);
        memcpy(a + i * element, block, (size_t)(now * element));
    }
}

void user_op_combine(const struct user_op *op, tutti_dtype dtype, void *dst, const void *a, const void *b, int64_t n,
                     void *block)
{
    if (dst == a) {
        combine_into_left(op, dtype, dst, b, n, block);
        return;
    }
    if (dst != b) memcpy(dst, b, (size_t)(n * user_op_units(op) * tutti_dtype_bytes(dtype)));
    op->fn(dst, a, n, dtype, op->argument);
}
