/* Tutti: a matcher for plug-ins: which message belongs to which receive.
 *
 * A backend whose transport does not match messages keeps two sets: receives that wait for their message (posted), and
 * messages that arrived before their receive (unexpected).  A tutti_matcher holds both.  It follows the rules that the
 * core expects of send and recv:
 *
 *   - A receive names its source or takes any (TUTTI_ANY_SOURCE), and its tag or any (TUTTI_REQUEST_ANY_TAG).
 *   - A message goes to the oldest posted receive that takes it.
 *   - A receive gets the oldest message that it takes.  So messages of one source, group and tag stay in order.
 *   - A probe (TUTTI_REQUEST_PEEK) waits for a message as a receive does, but takes nothing.
 *
 * Use.  When a message has arrived:
 *
 *     receive = tutti_match_find_receive(&matcher, &message->key);
 *     if (receive != NULL) tutti_match_withdraw(&matcher, receive);       then copy the data and complete its request
 *     else tutti_match_keep(&matcher, message);                           then complete what tutti_match_find_probe
 * finds
 *
 * When a receive is called:
 *
 *     message = tutti_match_find_message(&matcher, &receive->key);
 *     if (message != NULL) tutti_match_take(&matcher, message);           then copy the data and free the message
 *     else tutti_match_post(&matcher, receive);
 *
 * Before keep and post, tutti_match_reserve keeps the matcher fast.  The matcher compares nothing but keys: whether
 * sizes and fingerprints agree (tutti_request_fits) is the caller's to check.
 *
 * Memory.  The matcher allocates nothing by itself.  Entries are members of the caller's structs, and must neither move
 * nor be freed while they are in the matcher.  A receive's entry fits into tutti_request.priv, with two words to spare.
 * The hash table's buckets are memory that the caller passes (tutti_match_set_buckets) or lets it allocate
 * (tutti_match_reserve).  A zeroed matcher and a zeroed entry are valid and empty.
 *
 * Threads.  One call at a time, as for all state of a group tree.
 *
 * Cost.  Post, keep, withdraw and take are constant.  Find looks at one bucket per way of naming the message (up to
 * four for a receive, one for a message); a bucket holds two entries on average if tutti_match_reserve is called, else
 * entries divided by buckets.  Entries with equal keys share a bucket but are found at its head.  A receive of any tag
 * walks over the older messages that it does not take.  There is no limit on the number of entries.
 *
 * Header only: a plug-in does not link to a library of Tutti.  C11 and C++11.
 */
#ifndef TUTTI_MATCH_H
#define TUTTI_MATCH_H

#include <tutti/backend.h>

#ifdef __cplusplus
extern "C" {
#endif

enum tutti_match_flags {
    TUTTI_MATCH_ANY_TAG = 1, /* takes any tag that agrees with `tag` in the highest bit */
    TUTTI_MATCH_PROBE = 2    /* a probe: found by tutti_match_find_probe alone */
};

/* The fields that are matched.  A message's key names a source and a tag, and has no flags. */
typedef struct tutti_match_key {
    uint64_t group;
    uint64_t tag;
    int32_t source; /* by any numbering that all groups of the matcher share, say global ranks; or TUTTI_ANY_SOURCE */
    uint32_t flags; /* tutti_match_flags */
} tutti_match_key;

/* A node of a circular list; next is NULL if it is in none. */
typedef struct tutti_match_link {
    struct tutti_match_link *next, *prev;
} tutti_match_link;

/* A posted receive or probe.  The caller sets `key`; the rest is the matcher's. */
typedef struct tutti_match_receive {
    tutti_match_link link; /* first: see tutti_match_receive_at */
    tutti_match_key key;
    uint64_t order; /* when it was posted, in posts */
} tutti_match_receive;

/* An unexpected message.  The caller sets `key`; the rest is the matcher's. */
typedef struct tutti_match_message {
    tutti_match_link link;     /* bucket of the whole key; first: see tutti_match_message_at */
    tutti_match_link tag_link; /* bucket of group and tag */
    tutti_match_link all_link; /* all messages, in order of arrival */
    tutti_match_key key;
} tutti_match_message;

typedef struct tutti_matcher {
    tutti_match_link *links; /* TUTTI_MATCH_LINKS(n_buckets) list heads: receives, messages, messages by tag, all */
    size_t n_buckets;        /* a power of two; 0 in a zeroed matcher */
    size_t n_receives;       /* number of posted receives, without probes */
    size_t n_probes;
    size_t n_messages;
    size_t n_any_source, n_any_tag; /* receives and probes for any source, for any tag */
    uint64_t n_posts;               /* number of posts so far */
} tutti_matcher;

/* Returns the number of links that a matcher of n buckets needs. */
#define TUTTI_MATCH_LINKS(n) (3 * (n) + 1)

/* ---- keys and requests -------------------------------------------------------------------------------------- */

static inline tutti_match_key tutti_match_message_key(uint64_t group, int32_t source, uint64_t tag)
{
    tutti_match_key key = {group, tag, source, 0};
    return key;
}

/* Returns the rank in a group of a message's source, given the group's global ranks; -1 if it is not a member. */
static inline int32_t tutti_match_rank(const int32_t *global_ranks, int32_t world_size, int32_t source)
{
    for (int32_t rank = 0; rank < world_size; rank++)
        if (global_ranks[rank] == source) return rank;
    return -1;
}

/* Returns the key of a receive or probe.  source: request->peer in the matcher's numbering. */
static inline tutti_match_key tutti_match_receive_key(const tutti_request *request, uint64_t group, int32_t source)
{
    tutti_match_key key = tutti_match_message_key(group, source, request->tag);
    if (request->flags & TUTTI_REQUEST_ANY_TAG) {
        key.flags |= TUTTI_MATCH_ANY_TAG;
        key.tag &= UINT64_C(1) << 63;
    }
    if (request->flags & TUTTI_REQUEST_PEEK) key.flags |= TUTTI_MATCH_PROBE;
    return key;
}

/* True if a receive or probe with this key takes a message with that one. */
static inline bool tutti_match_takes(const tutti_match_key *receive, const tutti_match_key *message)
{
    if (receive->group != message->group) return false;
    if (receive->source != TUTTI_ANY_SOURCE && receive->source != message->source) return false;
    return receive->flags & TUTTI_MATCH_ANY_TAG ? (receive->tag ^ message->tag) >> 63 == 0
                                                : receive->tag == message->tag;
}

/* Returns the request whose priv words begin with this entry. */
static inline tutti_request *tutti_match_request(tutti_match_receive *receive)
{
    return (tutti_request *)(void *)((char *)receive - offsetof(tutti_request, priv));
}

/* ---- lists and hashes: the matcher's own ---------------------------------------------------------------------- */

static inline void tutti_match_append(tutti_match_link *head, tutti_match_link *link)
{
    link->next = head;
    link->prev = head->prev;
    head->prev->next = link;
    head->prev = link;
}

static inline void tutti_match_unlink(tutti_match_link *link)
{
    link->next->prev = link->prev;
    link->prev->next = link->next;
    link->next = NULL;
}

static inline tutti_match_receive *tutti_match_receive_at(tutti_match_link *link)
{
    return (tutti_match_receive *)(void *)link;
}

static inline tutti_match_message *tutti_match_message_at(tutti_match_link *link, size_t offset)
{
    return (tutti_match_message *)(void *)((char *)link - offset);
}

/* Multiplies by an odd constant, and folds the upper half, in which all bits of the key count, into the lower one. Tags
 * count up or differ in a few bits only. */
static inline uint64_t tutti_match_hash_tag(const tutti_match_key *key)
{
    uint64_t hash = (key->tag + key->group * UINT64_C(0x9e3779b97f4a7c15)) * UINT64_C(0xbf58476d1ce4e5b9);
    return hash ^ (hash >> 32);
}

/* Returns the hash of a whole key.  hash_tag is tutti_match_hash_tag of the same key.  An odd factor spreads sources
 * over all buckets. */
static inline uint64_t tutti_match_hash_key(const tutti_match_key *key, uint64_t hash_tag)
{
    return hash_tag + ((uint32_t)key->source + key->flags) * UINT64_C(0x9e3779b97f4a7c15);
}

static inline bool tutti_match_is_equal(const tutti_match_key *a, const tutti_match_key *b)
{
    return a->tag == b->tag && a->source == b->source && a->group == b->group && a->flags == b->flags;
}

/* Return list heads.  hash is the result of the two functions above. */
static inline tutti_match_link *tutti_match_receives(const tutti_matcher *matcher, uint64_t hash)
{
    return &matcher->links[hash & (matcher->n_buckets - 1)];
}

static inline tutti_match_link *tutti_match_messages(const tutti_matcher *matcher, uint64_t hash)
{
    return &matcher->links[matcher->n_buckets + (hash & (matcher->n_buckets - 1))];
}

static inline tutti_match_link *tutti_match_messages_by_tag(const tutti_matcher *matcher, uint64_t hash)
{
    return &matcher->links[2 * matcher->n_buckets + (hash & (matcher->n_buckets - 1))];
}

static inline tutti_match_link *tutti_match_all_messages(const tutti_matcher *matcher)
{
    return &matcher->links[3 * matcher->n_buckets];
}

/* ---- posted receives ------------------------------------------------------------------------------------------ */

static inline void tutti_match_link_receive(tutti_matcher *matcher, tutti_match_receive *receive)
{
    uint64_t hash = tutti_match_hash_key(&receive->key, tutti_match_hash_tag(&receive->key));
    tutti_match_append(tutti_match_receives(matcher, hash), &receive->link);
}

/* Adds or removes one receive in the counts. */
static inline void tutti_match_count(tutti_matcher *matcher, const tutti_match_key *key, size_t change)
{
    if (key->flags & TUTTI_MATCH_PROBE)
        matcher->n_probes += change;
    else
        matcher->n_receives += change;
    if (key->source == TUTTI_ANY_SOURCE) matcher->n_any_source += change;
    if (key->flags & TUTTI_MATCH_ANY_TAG) matcher->n_any_tag += change;
}

/* Posts a receive or probe, behind all that were posted before.  The matcher must have buckets. */
static inline void tutti_match_post(tutti_matcher *matcher, tutti_match_receive *receive)
{
    receive->order = matcher->n_posts++;
    tutti_match_link_receive(matcher, receive);
    tutti_match_count(matcher, &receive->key, 1);
}

/* True if the receive is posted. */
static inline bool tutti_match_is_posted(const tutti_match_receive *receive)
{
    return receive->link.next != NULL;
}

/* Removes a receive or probe that has matched its message or is cancelled.  Does nothing if it is not posted. */
static inline void tutti_match_withdraw(tutti_matcher *matcher, tutti_match_receive *receive)
{
    if (!tutti_match_is_posted(receive)) return;
    tutti_match_unlink(&receive->link);
    tutti_match_count(matcher, &receive->key, (size_t)-1);
}

/* Returns the oldest receive with exactly this key, or NULL. */
static inline tutti_match_receive *tutti_match_first_receive(const tutti_matcher *matcher, const tutti_match_key *key)
{
    tutti_match_link *head = tutti_match_receives(matcher, tutti_match_hash_key(key, tutti_match_hash_tag(key)));
    for (tutti_match_link *link = head->next; link != head; link = link->next)
        if (tutti_match_is_equal(&tutti_match_receive_at(link)->key, key)) return tutti_match_receive_at(link);
    return NULL;
}

/* Returns the older of two receives; either may be NULL. */
static inline tutti_match_receive *tutti_match_older(tutti_match_receive *a, tutti_match_receive *b)
{
    if (a == NULL || b == NULL) return a != NULL ? a : b;
    return a->order < b->order ? a : b;
}

/* Returns the oldest receive with this key that names the key's source or takes any, or NULL. */
static inline tutti_match_receive *tutti_match_first_of_source(const tutti_matcher *matcher, tutti_match_key key)
{
    tutti_match_receive *named = tutti_match_first_receive(matcher, &key);
    if (matcher->n_any_source == 0) return named;
    key.source = TUTTI_ANY_SOURCE;
    return tutti_match_older(named, tutti_match_first_receive(matcher, &key));
}

/* Does tutti_match_first's work for receives that may name no source or tag, which are rare.  Not inline, and without a
 * pointer to the key, so that the caller's key stays in registers. */
static __attribute__((noinline, unused)) tutti_match_receive *
tutti_match_first_of_any(const tutti_matcher *matcher, uint64_t group, int32_t source, uint64_t tag, uint32_t flags)
{
    tutti_match_key key = {group, tag, source, flags};
    tutti_match_receive *named = tutti_match_first_of_source(matcher, key);
    if (matcher->n_any_tag == 0) return named;
    key.tag &= UINT64_C(1) << 63;
    key.flags |= TUTTI_MATCH_ANY_TAG;
    return tutti_match_older(named, tutti_match_first_of_source(matcher, key));
}

static inline tutti_match_receive *tutti_match_first(const tutti_matcher *matcher, const tutti_match_key *key)
{
    if ((matcher->n_any_source | matcher->n_any_tag) == 0) return tutti_match_first_receive(matcher, key);
    return tutti_match_first_of_any(matcher, key->group, key->source, key->tag, key->flags);
}

/* Returns the receive that a message with this key goes to: the oldest that takes it, or NULL.  It stays posted. */
static inline tutti_match_receive *tutti_match_find_receive(const tutti_matcher *matcher, const tutti_match_key *key)
{
    return matcher->n_receives > 0 ? tutti_match_first(matcher, key) : NULL;
}

/* Returns the oldest probe that a message with this key completes, or NULL.  Call it until it returns NULL: a message
 * completes all probes that wait for it. */
static inline tutti_match_receive *tutti_match_find_probe(const tutti_matcher *matcher, const tutti_match_key *key)
{
    tutti_match_key probe = *key;
    probe.flags |= TUTTI_MATCH_PROBE;
    return matcher->n_probes > 0 ? tutti_match_first(matcher, &probe) : NULL;
}

/* Visits all receives and probes, in no particular order: returns the one after `receive`, the first after NULL, and
 * NULL at the end.  To withdraw one, fetch the next one first.  For example, to fail the receives of a lost peer:
 *
 *     for (r = tutti_match_next_receive(&matcher, NULL); r != NULL; r = next) {
 *         next = tutti_match_next_receive(&matcher, r);
 *         if (r->key.source == peer) fail(r);
 *     }
 */
static inline tutti_match_receive *tutti_match_next_receive(const tutti_matcher *matcher,
                                                            const tutti_match_receive *receive)
{
    size_t bucket = 0;
    if (receive != NULL) {
        tutti_match_link *next = receive->link.next;
        bucket = ((uintptr_t)next - (uintptr_t)matcher->links) / sizeof *next;
        if (bucket >= matcher->n_buckets) return tutti_match_receive_at(next); /* not a bucket's head */
        bucket++;
    }
    for (; bucket < matcher->n_buckets; bucket++)
        if (matcher->links[bucket].next != &matcher->links[bucket])
            return tutti_match_receive_at(matcher->links[bucket].next);
    return NULL;
}

/* Withdraws all receives and probes of a group that is being closed. */
static inline void tutti_match_withdraw_group(tutti_matcher *matcher, uint64_t group)
{
    if (matcher->n_receives + matcher->n_probes == 0) return; /* looking into each bucket costs a cache line */
    tutti_match_receive *receive = tutti_match_next_receive(matcher, NULL), *next;
    for (; receive != NULL; receive = next) {
        next = tutti_match_next_receive(matcher, receive);
        if (receive->key.group == group) tutti_match_withdraw(matcher, receive);
    }
}

/* ---- unexpected messages -------------------------------------------------------------------------------------- */

static inline void tutti_match_link_message(tutti_matcher *matcher, tutti_match_message *message)
{
    uint64_t hash_tag = tutti_match_hash_tag(&message->key);
    uint64_t hash = tutti_match_hash_key(&message->key, hash_tag);
    tutti_match_append(tutti_match_messages(matcher, hash), &message->link);
    tutti_match_append(tutti_match_messages_by_tag(matcher, hash_tag), &message->tag_link);
}

/* Keeps a message, behind all that were kept before.  The matcher must have buckets. */
static inline void tutti_match_keep(tutti_matcher *matcher, tutti_match_message *message)
{
    tutti_match_link_message(matcher, message);
    tutti_match_append(tutti_match_all_messages(matcher), &message->all_link);
    matcher->n_messages++;
}

/* Removes a message.  Does nothing if it is not kept. */
static inline void tutti_match_take(tutti_matcher *matcher, tutti_match_message *message)
{
    if (message->link.next == NULL) return;
    tutti_match_unlink(&message->link);
    tutti_match_unlink(&message->tag_link);
    tutti_match_unlink(&message->all_link);
    matcher->n_messages--;
}

/* Visits all messages in order of arrival: returns the one after `message`, the first after NULL, and NULL at the end.
 * To take one, fetch the next one first. */
static inline tutti_match_message *tutti_match_next_message(const tutti_matcher *matcher,
                                                            const tutti_match_message *message)
{
    if (matcher->n_messages == 0) return NULL;
    tutti_match_link *head = tutti_match_all_messages(matcher);
    tutti_match_link *next = message != NULL ? message->all_link.next : head->next;
    return next != head ? tutti_match_message_at(next, offsetof(tutti_match_message, all_link)) : NULL;
}

/* Returns the oldest message from exactly this source, with this tag. */
static inline tutti_match_message *tutti_match_first_from_source(const tutti_matcher *matcher,
                                                                 const tutti_match_key *key)
{
    tutti_match_link *head = tutti_match_messages(matcher, tutti_match_hash_key(key, tutti_match_hash_tag(key)));
    for (tutti_match_link *link = head->next; link != head; link = link->next) {
        tutti_match_message *message = tutti_match_message_at(link, offsetof(tutti_match_message, link));
        if (tutti_match_is_equal(&message->key, key)) return message;
    }
    return NULL;
}

/* Returns the oldest message from any source, with this tag. */
static inline tutti_match_message *tutti_match_first_from_any(const tutti_matcher *matcher, const tutti_match_key *key)
{
    tutti_match_link *head = tutti_match_messages_by_tag(matcher, tutti_match_hash_tag(key));
    for (tutti_match_link *link = head->next; link != head; link = link->next) {
        tutti_match_message *message = tutti_match_message_at(link, offsetof(tutti_match_message, tag_link));
        if (message->key.tag == key->tag && message->key.group == key->group) return message;
    }
    return NULL;
}

/* Returns the oldest message with any tag that agrees with the key's in the highest bit. */
static inline tutti_match_message *tutti_match_first_of_any_tag(const tutti_matcher *matcher,
                                                                const tutti_match_key *key)
{
    tutti_match_message *message = tutti_match_next_message(matcher, NULL);
    for (; message != NULL; message = tutti_match_next_message(matcher, message)) {
        if (message->key.group != key->group || (message->key.tag ^ key->tag) >> 63 != 0) continue;
        if (key->source == TUTTI_ANY_SOURCE || key->source == message->key.source) break;
    }
    return message;
}

/* Returns the message that a receive or probe with this key gets: the oldest that it takes, or NULL.  It stays kept. */
static inline tutti_match_message *tutti_match_find_message(const tutti_matcher *matcher, const tutti_match_key *key)
{
    if (matcher->n_messages == 0) return NULL;
    if (key->flags & TUTTI_MATCH_ANY_TAG) return tutti_match_first_of_any_tag(matcher, key);
    if (key->source == TUTTI_ANY_SOURCE) return tutti_match_first_from_any(matcher, key);
    tutti_match_key message = *key;
    message.flags = 0;
    return tutti_match_first_from_source(matcher, &message);
}

/* ---- buckets -------------------------------------------------------------------------------------------------- */

/* Moves the entries from one set of links to another, whose list heads are empty.  Entries with equal keys, or equal
 * groups and tags, are moved from one list to one list, so they keep their order. */
static inline void tutti_match_move(tutti_matcher *to, const tutti_matcher *from)
{
    for (size_t i = 0; i < from->n_buckets; i++)
        while (from->links[i].next != &from->links[i]) {
            tutti_match_receive *receive = tutti_match_receive_at(from->links[i].next);
            tutti_match_unlink(&receive->link);
            tutti_match_link_receive(to, receive);
        }
    for (tutti_match_message *message; (message = tutti_match_next_message(from, NULL)) != NULL;) {
        tutti_match_unlink(&message->link);
        tutti_match_unlink(&message->tag_link);
        tutti_match_unlink(&message->all_link);
        tutti_match_link_message(to, message);
        tutti_match_append(tutti_match_all_messages(to), &message->all_link);
    }
}

/* Gives the matcher TUTTI_MATCH_LINKS(n_buckets) links for its buckets, n_buckets a power of two.  They stay the
 * caller's, and must not move.  Returns the links used before, which are free now, or NULL. */
static inline tutti_match_link *tutti_match_set_buckets(tutti_matcher *matcher, tutti_match_link *links,
                                                        size_t n_buckets)
{
    tutti_matcher old = *matcher;
    for (size_t i = 0; i < TUTTI_MATCH_LINKS(n_buckets); i++) links[i].next = links[i].prev = &links[i];
    matcher->links = links;
    matcher->n_buckets = n_buckets;
    if (old.n_buckets > 0) tutti_match_move(matcher, &old);
    return old.links;
}

enum { TUTTI_MATCH_LOAD = 2, TUTTI_MATCH_BUCKETS = 64, TUTTI_MATCH_GROWTH = 4 };

/* Does tutti_match_reserve's work when it is due.  Not inline, so that callers save no registers for it. */
static __attribute__((noinline, unused)) bool tutti_match_grow(tutti_matcher *matcher, void *(*allocate)(size_t),
                                                               void (*release)(void *))
{
    size_t n = matcher->n_buckets > 0 ? TUTTI_MATCH_GROWTH * matcher->n_buckets : (size_t)TUTTI_MATCH_BUCKETS;
    tutti_match_link *links = (tutti_match_link *)allocate(TUTTI_MATCH_LINKS(n) * sizeof *links);
    if (links == NULL) return false;
    release(tutti_match_set_buckets(matcher, links, n));
    return true;
}

/* Allocates a matcher's buckets, or more of them if one more entry needs them.  allocate and release are malloc and
 * free, or work like them.  Returns false if out of memory: then a zeroed matcher is not usable yet, and any other one
 * stays usable but becomes slower. */
static inline bool tutti_match_reserve(tutti_matcher *matcher, void *(*allocate)(size_t), void (*release)(void *))
{
    if (matcher->n_receives + matcher->n_probes + matcher->n_messages < TUTTI_MATCH_LOAD * matcher->n_buckets)
        return true;
    return tutti_match_grow(matcher, allocate, release);
}

/* Gives a matcher's messages and links to release (free), and leaves a zeroed one.  A message's entry must be the first
 * member of what was allocated for it. */
static inline void tutti_match_release(tutti_matcher *matcher, void (*release)(void *))
{
    for (tutti_match_message *message; (message = tutti_match_next_message(matcher, NULL)) != NULL;) {
        tutti_match_take(matcher, message);
        release(message);
    }
    release(matcher->links);
    memset(matcher, 0, sizeof *matcher);
}

#ifdef __cplusplus
}
#endif
#endif
