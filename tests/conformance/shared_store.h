/* A store in memory that forked ranks share, with the entries of tutti_host. */
#ifndef TESTS_SHARED_STORE_H
#define TESTS_SHARED_STORE_H

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <tutti/backend.h>

enum { SHARED_STORE_KEYS = 64, SHARED_STORE_WAIT_MS = 20000 };

struct shared_store {
    pthread_mutex_t lock, append;
    int n;
    struct {
        char key[64];
        uint8_t value[1024];
        size_t bytes;
    } entry[SHARED_STORE_KEYS];
};

/* Returns an empty store, which munmap frees. */
struct shared_store *shared_store_new(void);

/* Entries of tutti_host.  A store is passed as a tutti_store *. */
int shared_store_set(tutti_store *store, const char *key, const void *value, size_t bytes);
int shared_store_get(tutti_store *store, const char *key, void *buffer, size_t capacity, size_t *bytes,
                     int64_t timeout_ms);

/* Appends a record: a rank and a size, 32 bits each, before its bytes.  A rank that opens again replaces its own
 * record. */
int shared_store_append(tutti_store *store, const char *key, const void *value, size_t bytes);

/* Gathers one entry a rank.  The entry's second word is its rank.  It replaces an entry that a test has set under that
 * rank's name. */
int shared_store_gather(tutti_store *store, const char *key, const char *part, const void *entry, size_t entry_bytes,
                        int32_t n, void *all, size_t capacity, size_t *bytes, int64_t timeout_ms);

/* Waits until all ranks have called it with this name.  Exits with 9 if a rank does not. */
void shared_store_barrier(struct shared_store *shared, const char *name, int rank, int world);

#endif
