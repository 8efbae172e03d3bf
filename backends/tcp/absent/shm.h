/* Stands for shm/shm.h and shm/coll/coll.h in a build without shared memory (TUTTI_PORTABLE).  No rank shares memory
 * with another, and all messages go over the network. */
#ifndef TCP_ABSENT_SHM_H
#define TCP_ABSENT_SHM_H

#include <stdbool.h>
#include <string.h>
#include <tutti/backend.h>

#include "tcp/base/transport.h"

struct shm {
    struct transport_config config;
    int coll_refused;
    size_t coll_span;
};

enum coll_state { COLL_NONE, COLL_READY };
enum { COLL_FIRST = 0, COLL_ABSENT = -1 };

struct coll_segment {
    enum coll_state state;
    const tutti_path_row *choices;
    int n_choices;
};

struct coll_list {
    char unused;
};

struct shm_colls {
    size_t (*bytes)(int n);
    int (*reserve)(struct shm *shm, int n);
};

#define COLL_PATHS                                                                                                     \
    {                                                                                                                  \
        TUTTI_SEND, TRANSPORT_EAGER, "eager"                                                                           \
    }
#define SHM_MESSAGE_PATHS COLL_PATHS

static inline size_t coll_bytes(int n)
{
    (void)n;
    return 0;
}

static inline int coll_directory_reserve(struct shm *shm, int n)
{
    (void)shm, (void)n;
    return COLL_ABSENT;
}

static inline int shm_open_host(const struct transport_config *config, const struct shm_colls *colls, struct shm **shm)
{
    (void)config, (void)colls;
    *shm = NULL;
    return TUTTI_OK;
}

static inline struct transport *shm_transport(struct shm *shm)
{
    (void)shm;
    return NULL;
}

static inline void shm_close(struct shm *shm)
{
    (void)shm;
}

static inline void shm_settle(struct shm *shm)
{
    (void)shm;
}

static inline void shm_settle_sometimes(struct shm *shm)
{
    (void)shm;
}

static inline int coll_reserve(struct shm *shm, int32_t n, const int32_t *global_ranks)
{
    (void)shm, (void)n, (void)global_ranks;
    return COLL_ABSENT;
}

static inline int coll_open(struct coll_segment *segment, struct shm *shm, int index, int32_t rank, int32_t n,
                            const int32_t *global_ranks)
{
    (void)segment, (void)shm, (void)index, (void)rank, (void)n, (void)global_ranks;
    return TUTTI_OK;
}

static inline void coll_close(struct coll_segment *segment)
{
    (void)segment;
}

static inline int coll_begin(struct coll_segment *segment, const tutti_op *op, tutti_request *request,
                             struct coll_list *running)
{
    (void)segment, (void)op, (void)request, (void)running;
    return TUTTI_ERR_UNSUPPORTED;
}

static inline bool coll_cancel(struct coll_segment *segment, tutti_request *request)
{
    (void)segment, (void)request;
    return false;
}

static inline int coll_progress(struct coll_list *running)
{
    (void)running;
    return 0;
}

static inline bool coll_is_ready(const struct coll_list *running)
{
    (void)running;
    return false;
}

static inline void coll_awaits(const struct coll_segment *segment, const tutti_request *request, bool *ranks)
{
    (void)segment, (void)request, (void)ranks;
}

static inline const char *coll_explain(const struct coll_segment *segment, const tutti_op *op)
{
    (void)segment, (void)op;
    return NULL;
}

static inline const char *shm_explain_message(struct shm *shm, size_t bytes, const tutti_path_row *choice)
{
    (void)shm, (void)bytes, (void)choice;
    return NULL;
}

static inline int shm_alloc(struct shm *shm, size_t bytes, void **memory)
{
    (void)shm, (void)bytes, (void)memory;
    return TUTTI_ERR_UNSUPPORTED;
}

static inline int shm_free(struct shm *shm, void *memory)
{
    (void)shm, (void)memory;
    return TUTTI_ERR_UNSUPPORTED;
}

static inline void shm_reclaim(void *memory, size_t bytes)
{
    (void)memory, (void)bytes;
}

#endif
