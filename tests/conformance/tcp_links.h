/* The tcp plug-in's links to peers: what they cost before anybody is connected. */
#ifndef TCP_LINKS_H
#define TCP_LINKS_H

#include "tcp_ranks.h"

/* No rank shares memory: the others, which do not exist, would have said so. */
static int gather_nothing(tutti_store *store, const char *key, const char *part, const void *entry, size_t entry_bytes,
                          int32_t n, void *all, size_t capacity, size_t *bytes, int64_t timeout_ms)
{
    (void)store, (void)key, (void)part, (void)entry, (void)entry_bytes, (void)n, (void)all, (void)capacity;
    (void)timeout_ms;
    *bytes = 0;
    return TUTTI_OK;
}

/* Opens a group of n ranks; only this one exists.  Returns the bytes that the plug-in has allocated for it, or
 * 0 if something is wrong. */
static size_t bytes_of_group(struct rank *self, int32_t n)
{
    char text[1024] = "", connected[64];
    int32_t *ranks = malloc((size_t)n * sizeof *ranks);
    for (int32_t i = 0; i < n; i++) ranks[i] = i;
    void *state = state_new(self->backend);
    tutti_host alone = host;
    alone.store_gather = gather_nothing;
    tutti_group_info info = {.size = sizeof info,
                             .world_size = n,
                             .global_ranks = ranks,
                             .id = 77,
                             .core = &self->told,
                             .store = (tutti_store *)self->shared,
                             .device = {TUTTI_CPU, 0},
                             .timeout_ms = 10000,
                             .local_world_size = 1,
                             .name = "test"};
    size_t before = usage_bytes();
    bool is_good = self->backend->open(state, &info, &alone) == TUTTI_OK;
    /* None of these makes a link. */
    is_good = is_good && self->backend->notify(state, n - 1, "nobody", 6) == TUTTI_OK;
    is_good = is_good && self->backend->progress(state) == 0 && self->backend->drain(state) == -1;
    snprintf(connected, sizeof connected, "connected to 0 of %d ranks", n - 1);
    is_good = is_good && self->backend->describe(&alone, state, text, sizeof text) == TUTTI_OK;
    is_good = is_good && strstr(text, connected) != NULL;
    size_t bytes = usage_bytes() - before;
    if (!is_good) fprintf(stderr, "a group of %d ranks: %s; %s\n", n, last_error, text);
    self->backend->close(state);
    free(state);
    free(ranks);
    return is_good ? bytes : 0;
}

/* A rank keeps an address and a few counters for each other rank, and nothing for a link that it does not use. */
static int cost_of_peers(struct rank *self)
{
    enum { FEW = 2, MANY = 20000, MOST = 160 };
    CHECK(bytes_of_group(self, FEW) > 0); /* what libfabric allocates once */
    size_t few = bytes_of_group(self, FEW), many = bytes_of_group(self, MANY);
    CHECK(few > 0 && many > few);
    size_t each = (many - few) / (MANY - FEW);
    if (each > MOST) fprintf(stderr, "%zu bytes for each rank before any link; at most %d\n", each, MOST);
    CHECK(each <= MOST);
    return 0;
}

static void test_links_cost_nothing_before_they_are_made(void **state)
{
    (void)state;
    run(cost_of_peers, 1);
}

#endif
