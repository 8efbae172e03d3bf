#include "shared_store.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "rank.h"

struct shared_store *shared_store_new(void)
{
    struct shared_store *shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pthread_mutexattr_t attributes;
    pthread_mutexattr_init(&attributes);
    pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
    pthread_mutex_init(&shared->lock, &attributes);
    pthread_mutex_init(&shared->append, &attributes);
    return shared;
}

int shared_store_set(tutti_store *store, const char *key, const void *value, size_t bytes)
{
    struct shared_store *shared = (void *)store;
    pthread_mutex_lock(&shared->lock);
    int i = 0;
    while (i < shared->n && strcmp(shared->entry[i].key, key) != 0) i++;
    snprintf(shared->entry[i].key, sizeof shared->entry[i].key, "%s", key);
    memcpy(shared->entry[i].value, value, bytes);
    shared->entry[i].bytes = bytes;
    if (i == shared->n) shared->n++;
    pthread_mutex_unlock(&shared->lock);
    return TUTTI_OK;
}

int shared_store_get(tutti_store *store, const char *key, void *buffer, size_t capacity, size_t *bytes,
                     int64_t timeout_ms)
{
    struct shared_store *shared = (void *)store;
    for (int64_t end = monotonic_ns() + timeout_ms * 1000000;; rank_sleep_ms(1)) {
        pthread_mutex_lock(&shared->lock);
        for (int i = 0; i < shared->n; i++) {
            if (strcmp(shared->entry[i].key, key) != 0 || shared->entry[i].bytes > capacity) continue;
            *bytes = shared->entry[i].bytes;
            memcpy(buffer, shared->entry[i].value, *bytes);
            pthread_mutex_unlock(&shared->lock);
            return TUTTI_OK;
        }
        pthread_mutex_unlock(&shared->lock);
        if (monotonic_ns() > end) return rank_error(TUTTI_ERR_TIMEOUT, "no key %s", key);
    }
}

int shared_store_append(tutti_store *store, const char *key, const void *value, size_t bytes)
{
    uint8_t old[1024], all[1024];
    size_t before = 0, after = 0;
    uint32_t header[2];
    struct shared_store *shared = (void *)store;
    pthread_mutex_lock(&shared->append);
    if (shared_store_get(store, key, old, sizeof old, &before, 0) != TUTTI_OK) before = 0;
    for (size_t at = 0; at < before; at += sizeof header + header[1]) {
        memcpy(header, old + at, sizeof header);
        if (memcmp(header, value, sizeof *header) == 0) continue;
        memcpy(all + after, old + at, sizeof header + header[1]);
        after += sizeof header + header[1];
    }
    memcpy(all + after, value, bytes);
    shared_store_set(store, key, all, after + bytes);
    pthread_mutex_unlock(&shared->append);
    return TUTTI_OK;
}

int shared_store_gather(tutti_store *store, const char *key, const char *part, const void *entry, size_t entry_bytes,
                        int32_t n, void *all, size_t capacity, size_t *bytes, int64_t timeout_ms)
{
    char name[64];
    uint8_t one[256];
    int32_t rank;
    memcpy(&rank, (const uint8_t *)entry + 8, sizeof rank);
    snprintf(name, sizeof name, "%s/%d", key, rank);
    memcpy(one, part, 5); /* "host-" or "none" */
    memcpy(one + 5, entry, entry_bytes);
    shared_store_set(store, name, one, 5 + entry_bytes);
    *bytes = 0;
    for (int32_t i = 0; i < n; i++) {
        size_t got = 0;
        snprintf(name, sizeof name, "%s/%d", key, i);
        int status = shared_store_get(store, name, one, sizeof one, &got, timeout_ms);
        if (status != TUTTI_OK || *bytes + entry_bytes > capacity) return status;
        if (got != 5 + entry_bytes || memcmp(one, part, 5) != 0) continue;
        memcpy((uint8_t *)all + *bytes, one + 5, entry_bytes);
        *bytes += entry_bytes;
    }
    return TUTTI_OK;
}

void shared_store_barrier(struct shared_store *shared, const char *name, int rank, int world)
{
    char key[64];
    uint8_t byte;
    size_t bytes;
    snprintf(key, sizeof key, "meet/%s/%d", name, rank);
    shared_store_set((tutti_store *)shared, key, "x", 1);
    for (int i = 0; i < world; i++) {
        snprintf(key, sizeof key, "meet/%s/%d", name, i);
        if (shared_store_get((tutti_store *)shared, key, &byte, 1, &bytes, SHARED_STORE_WAIT_MS) != TUTTI_OK) exit(9);
    }
}
