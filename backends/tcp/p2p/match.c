#include "tcp/p2p/match.h"

#include <stdlib.h>

enum { MATCH_BUCKETS = 64, MATCH_LOAD = 2 };

static uint64_t mix(uint64_t x)
{
    /* the finisher of splitmix64: tags often differ in a few bits only */
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

static uint64_t hash_loose(uint64_t group, uint64_t tag)
{
    return mix(tag + mix(group + 0x9e3779b97f4a7c15u));
}

static uint64_t hash_exact(uint64_t loose, int32_t source)
{
    return mix(loose + (uint32_t)source);
}

static struct match_bucket *buckets_new(size_t n)
{
    struct match_bucket *buckets = malloc(n * sizeof *buckets);
    if (buckets == NULL) return NULL;
    for (size_t i = 0; i < n; i++) TAILQ_INIT(&buckets[i]);
    return buckets;
}

bool match_init(struct match_table *table)
{
    *table = (struct match_table){.mask = MATCH_BUCKETS - 1};
    TAILQ_INIT(&table->all);
    table->exact = buckets_new(MATCH_BUCKETS);
    table->loose = buckets_new(MATCH_BUCKETS);
    if (table->exact != NULL && table->loose != NULL) return true;
    match_free(table);
    return false;
}

void match_free(struct match_table *table)
{
    free(table->exact);
    free(table->loose);
    *table = (struct match_table){0};
}

static void insert(struct match_table *table, struct match_item *item)
{
    uint64_t loose = hash_loose(item->group, item->tag);
    TAILQ_INSERT_TAIL(&table->exact[hash_exact(loose, item->source) & table->mask], item, exact);
    TAILQ_INSERT_TAIL(&table->loose[loose & table->mask], item, loose);
}

/* Without memory the table just stays as it is, and becomes slower.  Items of one key, exact or
 * loose, lie in one bucket, which is walked from its head: they keep their order. */
static void grow(struct match_table *table)
{
    size_t old = table->mask + 1, n = old * 4;
    struct match_bucket *exact = buckets_new(n), *loose = buckets_new(n);
    if (exact == NULL || loose == NULL) {
        free(exact);
        free(loose);
        return;
    }
    struct match_bucket *from = table->loose;
    free(table->exact);
    table->exact = exact;
    table->loose = loose;
    table->mask = n - 1;
    for (size_t i = 0; i < old; i++) {
        struct match_item *item;
        while ((item = TAILQ_FIRST(&from[i])) != NULL) {
            TAILQ_REMOVE(&from[i], item, loose);
            insert(table, item);
        }
    }
    free(from);
}

void match_put(struct match_table *table, struct match_item *item)
{
    if (table->count >= MATCH_LOAD * (table->mask + 1)) grow(table);
    item->order = table->order++;
    item->in = true;
    insert(table, item);
    TAILQ_INSERT_TAIL(&table->all, item, all);
    table->count++;
    table->any_tags += item->tag == MATCH_ANY_TAG;
}

void match_take(struct match_table *table, struct match_item *item)
{
    if (!item->in) return;
    uint64_t loose = hash_loose(item->group, item->tag);
    TAILQ_REMOVE(&table->exact[hash_exact(loose, item->source) & table->mask], item, exact);
    TAILQ_REMOVE(&table->loose[loose & table->mask], item, loose);
    TAILQ_REMOVE(&table->all, item, all);
    item->in = false;
    table->count--;
    table->any_tags -= item->tag == MATCH_ANY_TAG;
}

struct match_item *match_exact(const struct match_table *table, uint64_t group, int32_t source, uint64_t tag)
{
    if (table->count == 0) return NULL;
    struct match_item *item;
    TAILQ_FOREACH(item, &table->exact[hash_exact(hash_loose(group, tag), source) & table->mask], exact)
    if (item->tag == tag && item->source == source && item->group == group) return item;
    return NULL;
}

struct match_item *match_loose(const struct match_table *table, uint64_t group, uint64_t tag)
{
    if (table->count == 0) return NULL;
    struct match_item *item;
    TAILQ_FOREACH(item, &table->loose[hash_loose(group, tag) & table->mask], loose)
    if (item->tag == tag && item->group == group) return item;
    return NULL;
}

struct match_item *match_oldest(const struct match_table *table, uint64_t group, int32_t source)
{
    if (table->count == 0) return NULL;
    struct match_item *item;
    TAILQ_FOREACH(item, &table->all, all)
    if (item->tag >> 63 != 0 && item->group == group && (source == MATCH_ANY || item->source == source)) return item;
    return NULL;
}

static struct match_item *older(struct match_item *a, struct match_item *b)
{
    if (a == NULL || b == NULL) return a != NULL ? a : b;
    return a->order < b->order ? a : b;
}

struct match_item *match_posted(const struct match_table *table, uint64_t group, int32_t source, uint64_t tag)
{
    struct match_item *named = match_exact(table, group, source, tag);
    struct match_item *found = older(named, match_exact(table, group, MATCH_ANY, tag));
    if (table->any_tags == 0 || tag >> 63 == 0) return found;
    found = older(found, match_exact(table, group, source, MATCH_ANY_TAG));
    return older(found, match_exact(table, group, MATCH_ANY, MATCH_ANY_TAG));
}

struct match_item *match_search(const struct match_table *table,
                                bool (*wanted)(const struct match_item *item, const void *argument),
                                const void *argument)
{
    if (table->count == 0) return NULL;
    struct match_item *item;
    for (size_t i = 0; i <= table->mask; i++) TAILQ_FOREACH(item, &table->exact[i], exact)
    if (wanted(item, argument)) return item;
    return NULL;
}
