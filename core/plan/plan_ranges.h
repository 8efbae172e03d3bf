/* Records which step accessed which elements: an ordered map of ranges, private to plan.c.
 *
 * Each range of a buffer holds the step that wrote it last and the steps that have read it since.  A read must follow
 * the writer.  A write must follow the readers, or the writer if there is no reader (a reader follows the writer
 * already).  Ranges are split if an access covers part of one, and merged by a write, which makes one range of
 * everything it covers.
 *
 * The map is a skip list over (buffer, position) with fixed towers.  A plan of ten steps has a handful of ranges and
 * must cost next to nothing; one of a hundred thousand steps must still be built in logarithmic time per step. */
#ifndef PLAN_RANGES_H
#define PLAN_RANGES_H

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define RANGES_NONE UINT32_MAX

enum { RANGES_LEVELS = 8, RANGES_FIRST = 16 };

struct ranges_node {
    int64_t at, end; /* [at, end) of buffer */
    int32_t buffer;
    uint32_t writer;  /* RANGES_NONE: not written yet */
    uint32_t readers; /* a list shared by the halves of a split range: it grows only at the front */
    uint32_t height;
    uint32_t next[RANGES_LEVELS];
};

struct ranges_reader {
    uint32_t step, next;
};

struct ranges {
    struct ranges_node *node; /* node[0] is the head, before all ranges */
    struct ranges_reader *reader;
    uint32_t *before; /* the steps that the current access must follow; the caller empties it */
    uint32_t n_nodes, n_readers, n_before;
    uint32_t max_nodes, max_readers, max_before;
    uint32_t levels, unused, random;
    bool failed; /* out of memory */
    struct ranges_node first_node[RANGES_FIRST];
    struct ranges_reader first_reader[RANGES_FIRST];
    uint32_t first_before[RANGES_FIRST];
};

static inline void ranges_init(struct ranges *map)
{
    map->node = map->first_node;
    map->reader = map->first_reader;
    map->before = map->first_before;
    map->max_nodes = map->max_readers = map->max_before = RANGES_FIRST;
    map->n_nodes = 1;
    map->n_readers = map->n_before = 0;
    map->levels = 1;
    map->unused = RANGES_NONE;
    map->random = 2463534242u;
    map->failed = false;
    for (int level = 0; level < RANGES_LEVELS; level++) map->node[0].next[level] = RANGES_NONE;
}

static inline void ranges_fini(struct ranges *map)
{
    if (map->node != map->first_node) free(map->node);
    if (map->reader != map->first_reader) free(map->reader);
    if (map->before != map->first_before) free(map->before);
}

/* Doubles an array.  Its first part is inside the struct, which saves small plans the allocation. */
static inline void *ranges_grow_array(struct ranges *map, void *array, const void *first, uint32_t *max, size_t bytes)
{
    void *grown = realloc(array == first ? NULL : array, 2 * *max * bytes);
    if (!grown) {
        map->failed = true;
        return NULL;
    }
    if (array == first) memcpy(grown, first, *max * bytes);
    *max *= 2;
    return grown;
}

/* Returns the height of a new tower: one level more in one case of four. */
static inline uint32_t ranges_height(struct ranges *map)
{
    map->random ^= map->random << 13;
    map->random ^= map->random >> 17;
    map->random ^= map->random << 5;
    uint32_t height = 1 + (uint32_t)__builtin_ctz(map->random | 1u << 14) / 2;
    return height > map->levels ? map->levels + (map->levels < RANGES_LEVELS) : height;
}

static inline uint32_t ranges_new_node(struct ranges *map)
{
    uint32_t id = map->unused;
    if (id != RANGES_NONE) {
        map->unused = map->node[id].next[0];
        return id;
    }
    if (map->n_nodes == map->max_nodes) {
        void *grown = ranges_grow_array(map, map->node, map->first_node, &map->max_nodes, sizeof *map->node);
        if (!grown) return RANGES_NONE;
        map->node = grown;
    }
    return map->n_nodes++;
}

/* Sets path[level] to the last range of that level that ends at or before (buffer, at), or to 0, the head, if there is
 * none.  Levels above the highest keep 0. */
static inline void ranges_seek(const struct ranges *map, int32_t buffer, int64_t at, uint32_t *path)
{
    uint32_t here = 0;
    for (uint32_t level = map->levels; level-- > 0;) {
        for (uint32_t next; (next = map->node[here].next[level]) != RANGES_NONE; here = next) {
            const struct ranges_node *node = &map->node[next];
            if (node->buffer > buffer || (node->buffer == buffer && node->end > at)) break;
        }
        path[level] = here;
    }
}

/* Moves path past the range that directly follows it. */
static inline void ranges_advance_path(const struct ranges *map, uint32_t *path, uint32_t id)
{
    for (uint32_t level = 0; level < map->node[id].height; level++) path[level] = id;
}

/* Inserts a range directly after path and moves path past it. */
static inline void ranges_insert(struct ranges *map, uint32_t *path, int32_t buffer, int64_t at, int64_t end,
                                 uint32_t writer, uint32_t readers)
{
    uint32_t id = ranges_new_node(map);
    if (id == RANGES_NONE) return;
    uint32_t height = ranges_height(map);
    if (height > map->levels) path[map->levels++] = 0;
    struct ranges_node *node = &map->node[id];
    *node = (struct ranges_node){.at = at, .end = end, .buffer = buffer, .writer = writer, .readers = readers};
    node->height = height;
    for (uint32_t level = 0; level < height; level++) {
        node->next[level] = map->node[path[level]].next[level];
        map->node[path[level]].next[level] = id;
        path[level] = id;
    }
}

/* Removes the range directly after path. */
static inline void ranges_remove(struct ranges *map, const uint32_t *path, uint32_t id)
{
    struct ranges_node *node = &map->node[id];
    for (uint32_t level = 0; level < node->height; level++) map->node[path[level]].next[level] = node->next[level];
    node->next[0] = map->unused;
    map->unused = id;
}

/* Splits a range at `at`.  path directly precedes it, and moves past the left half. */
static inline void ranges_split(struct ranges *map, uint32_t *path, uint32_t id, int64_t at)
{
    struct ranges_node node = map->node[id];
    map->node[id].end = at;
    ranges_advance_path(map, path, id);
    uint32_t after[RANGES_LEVELS];
    memcpy(after, path, sizeof after);
    ranges_insert(map, after, node.buffer, at, node.end, node.writer, node.readers);
}

/* Returns the range that contains position at and ends no later than end, split off if necessary.  Returns RANGES_NONE
 * if no range contains it, and sets *until to the end of the gap.  path still directly precedes it. */
static inline uint32_t ranges_find_or_split(struct ranges *map, uint32_t *path, int32_t buffer, int64_t at, int64_t end,
                                            int64_t *until)
{
    uint32_t id = map->node[path[0]].next[0];
    *until = end;
    if (id == RANGES_NONE || map->node[id].buffer != buffer || map->node[id].at >= end) return RANGES_NONE;
    if (map->node[id].at > at) {
        *until = map->node[id].at;
        return RANGES_NONE;
    }
    if (map->node[id].at < at) {
        ranges_split(map, path, id, at);
        if (map->failed) return RANGES_NONE;
        id = map->node[path[0]].next[0];
    }
    if (map->node[id].end > end) {
        uint32_t copy[RANGES_LEVELS];
        memcpy(copy, path, sizeof copy);
        ranges_split(map, copy, id, end);
    }
    *until = map->node[id].end;
    return id;
}

static inline void ranges_follow(struct ranges *map, uint32_t step, uint32_t before)
{
    if (before == RANGES_NONE || before == step) return;
    if (map->n_before == map->max_before) {
        void *grown = ranges_grow_array(map, map->before, map->first_before, &map->max_before, sizeof *map->before);
        if (!grown) return;
        map->before = grown;
    }
    map->before[map->n_before++] = before;
}

static inline uint32_t ranges_add_reader(struct ranges *map, uint32_t step, uint32_t list)
{
    if (list != RANGES_NONE && map->reader[list].step == step) return list;
    if (map->n_readers == map->max_readers) {
        void *grown = ranges_grow_array(map, map->reader, map->first_reader, &map->max_readers, sizeof *map->reader);
        if (!grown) return list;
        map->reader = grown;
    }
    map->reader[map->n_readers] = (struct ranges_reader){step, list};
    return map->n_readers++;
}

/* Records that step reads [at, end) of buffer. */
static inline void ranges_read(struct ranges *map, uint32_t step, int32_t buffer, int64_t at, int64_t end)
{
    uint32_t path[RANGES_LEVELS] = {0};
    ranges_seek(map, buffer, at, path);
    while (at < end && !map->failed) {
        int64_t until;
        uint32_t id = ranges_find_or_split(map, path, buffer, at, end, &until);
        if (map->failed) return;
        if (id == RANGES_NONE) {
            ranges_insert(map, path, buffer, at, until, RANGES_NONE, ranges_add_reader(map, step, RANGES_NONE));
        } else {
            ranges_follow(map, step, map->node[id].writer);
            map->node[id].readers = ranges_add_reader(map, step, map->node[id].readers);
            ranges_advance_path(map, path, id);
        }
        at = until;
    }
}

static inline void ranges_follow_all(struct ranges *map, uint32_t step, const struct ranges_node *node)
{
    if (node->readers == RANGES_NONE) ranges_follow(map, step, node->writer);
    for (uint32_t i = node->readers; i != RANGES_NONE; i = map->reader[i].next)
        ranges_follow(map, step, map->reader[i].step);
}

/* Records that step writes [at, end) of buffer. */
static inline void ranges_write(struct ranges *map, uint32_t step, int32_t buffer, int64_t at, int64_t end)
{
    uint32_t path[RANGES_LEVELS] = {0};
    ranges_seek(map, buffer, at, path);
    for (int64_t here = at, until; here < end && !map->failed; here = until) {
        uint32_t id = ranges_find_or_split(map, path, buffer, here, end, &until);
        if (map->failed) return;
        if (id == RANGES_NONE) continue;
        struct ranges_node *node = &map->node[id];
        ranges_follow_all(map, step, node);
        if (node->at == at && node->end == end) {
            node->writer = step;
            node->readers = RANGES_NONE;
            return;
        }
        ranges_remove(map, path, id);
    }
    ranges_insert(map, path, buffer, at, end, step, RANGES_NONE);
}

#endif
