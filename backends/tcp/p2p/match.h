/* Which message belongs to which receive: items found by group, source and tag, in order.
 *
 * A pure data structure that knows no transport.  One table holds posted receives, another messages that came before
 * their receive, and so on.  An item is embedded in whatever is kept.  Items with equal keys come out in the order in
 * which they were put.  Put, take and find take constant time, however many items wait.
 */
#ifndef MATCH_H
#define MATCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

#define MATCH_ANY (-1)
/* As the tag of a posted receive: it takes any tag with the highest bit set.  No message has this tag. */
#define MATCH_ANY_TAG UINT64_MAX

struct match_item {
    TAILQ_ENTRY(match_item) exact; /* the bucket of group, source and tag */
    TAILQ_ENTRY(match_item) loose; /* the bucket of group and tag */
    TAILQ_ENTRY(match_item) all;   /* in order */
    uint64_t group;
    uint64_t tag;
    uint64_t order;
    int32_t source; /* MATCH_ANY is a value like any other here: a receive from whoever */
    bool in;        /* in a table */
};

TAILQ_HEAD(match_bucket, match_item);

struct match_table {
    struct match_bucket *exact;
    struct match_bucket *loose;
    struct match_bucket all;
    size_t mask;
    size_t count;
    size_t any_tags; /* items of MATCH_ANY_TAG */
    uint64_t order;
};

/* false: no memory. */
bool match_init(struct match_table *table);

/* Forgets the items; they are the caller's.  Fine on a zeroed table. */
void match_free(struct match_table *table);

/* Appends item, whose group, source and tag are set. */
void match_put(struct match_table *table, struct match_item *item);

/* Takes item out; nothing happens where it is in no table. */
void match_take(struct match_table *table, struct match_item *item);

/* The oldest item whose source is exactly this one. */
struct match_item *match_exact(const struct match_table *table, uint64_t group, int32_t source, uint64_t tag);

/* The oldest item of any source: what a receive from whoever takes. */
struct match_item *match_loose(const struct match_table *table, uint64_t group, uint64_t tag);

/* The oldest item of any tag with the highest bit set, from this source or, with MATCH_ANY, from any.  Walks over older
 * items that do not fit. */
struct match_item *match_oldest(const struct match_table *table, uint64_t group, int32_t source);

/* The oldest item from this source or from MATCH_ANY, of this tag or, if it has the highest bit, of MATCH_ANY_TAG: the
 * posted receive that takes a message. */
struct match_item *match_posted(const struct match_table *table, uint64_t group, int32_t source, uint64_t tag);

/* Some item for which wanted answers true, or NULL.  Looks at all: for ends and failures. */
struct match_item *match_search(const struct match_table *table,
                                bool (*wanted)(const struct match_item *item, const void *argument),
                                const void *argument);

#endif
