/* Runs each operation once, small, for tools that make programs slow.
 *
 *    every threads N [BACKEND]      ranks are threads; default: the tests' loop
 *    tutti-run -n N every BACKEND   ranks are processes
 */
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tutti/tutti.h>

enum { MOST = 8, N = 300 };

#define MUST(condition)                                                                                                \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "%s:%d: %s; last error: %s\n", __FILE__, __LINE__, #condition, tutti_last_error());        \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

static void set(float *x, int n, float value)
{
    for (int i = 0; i < n; i++) x[i] = value;
}

static void collectives(tutti_group *group, int rank, int size)
{
    const tutti_opts *opts = tutti_with(.group = group);
    float *a = malloc(sizeof *a * N * MOST), *b = malloc(sizeof *b * N * MOST);
    tutti_tensor in[MOST], out[MOST];
    int64_t splits[MOST];
    float sum = (float)(size * (size + 1)) / 2, own = (float)rank + 1;
    set(a, N * MOST, own);
    set(b, N * MOST, 0);
    for (int r = 0; r < size; r++) {
        in[r] = tutti_view(a + r * N, N - r);
        out[r] = tutti_view(b + r * N, N - rank);
        splits[r] = N;
    }
    tutti_tensor x = tutti_view(a, N), y = tutti_view(b, N), all_x = tutti_view(a, N * size),
                 all_y = tutti_view(b, N * size);
    MUST(tutti_all_to_all(out, in, size, opts) == TUTTI_OK && b[(size - 1) * N] == (float)size);
    MUST(tutti_all_to_all_single(all_y, all_x, splits, splits, opts) == TUTTI_OK && b[N * size - 1] == (float)size);
    MUST(tutti_all_to_all_single(all_y, all_x, NULL, NULL, opts) == TUTTI_OK && b[0] == 1);
    MUST(tutti_reduce_scatter_tensor(y, all_x, TUTTI_SUM, opts) == TUTTI_OK && b[N - 1] == sum);
    MUST(tutti_reduce_scatter(tutti_view(b, N - rank), in, size, TUTTI_MAX, opts) == TUTTI_OK && b[0] == (float)size);
    MUST(tutti_all_gather_into_tensor(all_y, x, opts) == TUTTI_OK && b[N * size - 1] == (float)size);
    for (int r = 0; r < size; r++) out[r] = tutti_view(b + r * N, N - r);
    MUST(tutti_all_gather(out, size, tutti_view(a, N - rank), opts) == TUTTI_OK && b[0] == 1);
    MUST(tutti_gather(tutti_view(a, N - rank), rank == 0 ? out : NULL, rank == 0 ? size : 0, 0, opts) == TUTTI_OK);
    MUST(tutti_scatter(tutti_view(b, N - rank), rank == 0 ? in : NULL, rank == 0 ? size : 0, 0, opts) == TUTTI_OK);
    MUST(b[0] == 1);
    MUST(tutti_gather_into_tensor(all_y, x, size - 1, opts) == TUTTI_OK);
    MUST(tutti_scatter_tensor(y, all_x, size - 1, opts) == TUTTI_OK && b[0] == (float)size);
    MUST(tutti_reduce_into(y, x, 0, TUTTI_SUM, opts) == TUTTI_OK && (rank != 0 || b[5] == sum));
    MUST(tutti_all_reduce_into(y, x, TUTTI_AVG, opts) == TUTTI_OK && b[7] == sum / (float)size);
    MUST(tutti_reduce(y, size - 1, TUTTI_MIN, opts) == TUTTI_OK);
    MUST(tutti_all_reduce(x, TUTTI_PREMUL_SUM, tutti_with(.group = group, .factor = 0.5)) == TUTTI_OK);
    MUST(a[N - 1] == sum / 2);
    MUST(tutti_broadcast(x, size - 1, opts) == TUTTI_OK);
    MUST(tutti_barrier(opts) == TUTTI_OK && tutti_monitored_barrier(opts) == TUTTI_OK);
    MUST(tutti_reduce_local(y, x, TUTTI_SUM) == TUTTI_OK);
    free(a);
    free(b);
}

/* Runs every supported dtype and op once. */
static void reductions(tutti_group *group)
{
    static const tutti_dtype dtypes[] = {
        TUTTI_INT8,   TUTTI_INT16,     TUTTI_INT32,      TUTTI_INT64,         TUTTI_UINT8,      TUTTI_UINT16,
        TUTTI_UINT32, TUTTI_UINT64,    TUTTI_FLOAT16,    TUTTI_FLOAT32,       TUTTI_FLOAT64,    TUTTI_BFLOAT16,
        TUTTI_BOOL,   TUTTI_COMPLEX64, TUTTI_COMPLEX128, TUTTI_FLOAT8_E4M3FN, TUTTI_FLOAT8_E5M2};
    for (size_t d = 0; d < sizeof dtypes / sizeof *dtypes; d++)
        for (int op = 0; op < TUTTI_REDUCE_OP_COUNT; op++) {
            void *x = calloc(67, 16);
            int status = tutti_all_reduce(tutti_tensor_of(x, 67, dtypes[d]), (tutti_reduce_op)op,
                                          tutti_with(.group = group, .factor = 2));
            MUST(status == TUTTI_OK || status == TUTTI_ERR_INVALID_ARGUMENT || status == TUTTI_ERR_UNSUPPORTED);
            free(x);
        }
}

static void noted(tutti_work *work, void *argument)
{
    (void)work;
    ++*(int *)argument;
}

static void messages(tutti_group *group, int rank, int size)
{
    enum { LARGE = 100000 };
    static const int bytes[] = {0, 1, 1000, LARGE};
    int right = (rank + 1) % size, left = (rank + size - 1) % size, source = -1, calls = 0, index = -1;
    char *out = calloc(1, LARGE), *in = malloc(LARGE);
    tutti_work *work[2] = {NULL};
    for (size_t i = 0; i < sizeof bytes / sizeof *bytes; i++) {
        tutti_tensor to = tutti_tensor_of(out, bytes[i], TUTTI_INT8), from = tutti_tensor_of(in, bytes[i], TUTTI_INT8);
        MUST(tutti_isend(to, right, tutti_with(.group = group, .tag = 3), &work[0]) == TUTTI_OK);
        MUST(tutti_work_then(work[0], noted, &calls) == TUTTI_OK);
        MUST(tutti_recv(from, TUTTI_ANY_SOURCE, tutti_with(.group = group, .tag = 3, .source = &source)) == TUTTI_OK);
        MUST(tutti_wait(&work[0], TUTTI_DEFAULT_TIMEOUT) == TUTTI_OK && source == left && calls == (int)i + 1);
        tutti_p2p_op ops[2] = {{.kind = TUTTI_SEND, .tensor = to, .peer = right},
                               {.kind = TUTTI_RECV, .tensor = from, .peer = left}};
        MUST(tutti_batch_isend_irecv(ops, 2, tutti_with(.group = group), work) == TUTTI_OK);
        MUST(tutti_wait_any(work, 2, TUTTI_DEFAULT_TIMEOUT, &index) == TUTTI_OK);
        MUST(tutti_wait_all(work, 2, TUTTI_DEFAULT_TIMEOUT) == TUTTI_OK);
    }
    MUST(tutti_irecv(tutti_tensor_of(in, 4, TUTTI_INT8), left, tutti_with(.group = group, .tag = 9), &work[0]) ==
         TUTTI_OK);
    struct pollfd readable = {.fd = tutti_work_fd(work[0]), .events = POLLIN};
    MUST(readable.fd >= 0);
    MUST(tutti_send(tutti_tensor_of(out, 4, TUTTI_INT8), right, tutti_with(.group = group, .tag = 9)) == TUTTI_OK);
    MUST(poll(&readable, 1, 60000) == 1 && tutti_wait(&work[0], 0) == TUTTI_OK);
    free(out);
    free(in);
}

static void the_rest(tutti_group *group, int rank, int size)
{
    const tutti_opts *opts = tutti_with(.group = group);
    tutti_bytes all[MOST], one = {0};
    tutti_work *work = NULL;
    tutti_group *part = NULL;
    int64_t x[3] = {1, 1, 1};
    void *memory = NULL;
    MUST(tutti_all_gather_bytes(all, size, "rank", (size_t)rank + 1, opts) == TUTTI_OK);
    MUST(tutti_scatter_bytes(&one, rank == 0 ? all : NULL, rank == 0 ? size : 0, 0, opts) == TUTTI_OK);
    tutti_bytes_free(all, size);
    tutti_bytes_free(&one, 1);
    MUST(tutti_gather_bytes(all, rank == 0 ? size : 0, "x", 1, 0, opts) == TUTTI_OK);
    if (rank == 0) tutti_bytes_free(all, size);
    one = rank == 0 ? (tutti_bytes){(void *)(uintptr_t) "word", 4} : (tutti_bytes){0};
    MUST(tutti_broadcast_bytes(&one, 0, opts) == TUTTI_OK && one.bytes == 4);
    if (rank != 0) tutti_bytes_free(&one, 1);
    MUST(tutti_coalesce_begin(group) == TUTTI_OK);
    for (int i = 0; i < 3; i++) MUST(tutti_all_reduce(tutti_view(&x[i], 1), TUTTI_SUM, opts) == TUTTI_OK);
    MUST(tutti_coalesce_end(group, &work) == TUTTI_OK);
    MUST(tutti_work_wait(work, TUTTI_DEFAULT_TIMEOUT) == TUTTI_OK && tutti_work_is_completed(work));
    MUST(tutti_wait(&work, 0) == TUTTI_OK && x[2] == size);
    MUST(tutti_all_reduce(tutti_view(x, 3), TUTTI_BXOR, tutti_with(.group = group, .async_op = &work)) == TUTTI_OK);
    tutti_work_free(work);
    MUST(tutti_split_group(rank % 2, 0, &(tutti_group_opts){.parent = group}, &part) == TUTTI_OK);
    MUST(tutti_barrier(tutti_with(.group = part)) == TUTTI_OK && tutti_destroy_process_group(part) == TUTTI_OK);
    MUST(tutti_new_group((int[]){size - 1, 0}, size > 1 ? 2 : 1, &(tutti_group_opts){.parent = group}, &part) ==
         TUTTI_OK);
    if (tutti_get_rank(part) >= 0) MUST(tutti_barrier(tutti_with(.group = part)) == TUTTI_OK);
    MUST(tutti_destroy_process_group(part) == TUTTI_OK);
    MUST(tutti_alloc(group, 100, &memory) == TUTTI_OK && tutti_free(group, memory) == TUTTI_OK);
    MUST(tutti_barrier(opts) == TUTTI_OK);
}

static void every(tutti_group *group)
{
    int rank = tutti_get_rank(group), size = tutti_get_world_size(group);
    collectives(group, rank, size);
    reductions(group);
    if (size > 1) messages(group, rank, size);
    the_rest(group, rank, size);
}

struct rank {
    pthread_t thread;
    tutti_store *store;
    const char *backend;
    int rank, size;
};

static void *rank_main(void *argument)
{
    const struct rank *rank = argument;
    tutti_group *group = NULL;
    MUST(tutti_create_group(rank->backend, rank->store, rank->rank, rank->size, NULL, &group) == TUTTI_OK);
    every(group);
    MUST(tutti_destroy_process_group(group) == TUTTI_OK);
    return NULL;
}

static void in_threads(int size, const char *backend)
{
    struct rank ranks[MOST];
    tutti_store *store = NULL;
    MUST(size >= 1 && size <= MOST && tutti_store_memory(NULL, &store) == TUTTI_OK);
    for (int i = 0; i < size; i++) {
        ranks[i] = (struct rank){.store = store, .backend = backend, .rank = i, .size = size};
        MUST(pthread_create(&ranks[i].thread, NULL, rank_main, &ranks[i]) == 0);
    }
    for (int i = 0; i < size; i++) pthread_join(ranks[i].thread, NULL);
    tutti_store_free(store);
}

int main(int argc, char **argv)
{
    if (argc > 2 && strcmp(argv[1], "threads") == 0) {
        in_threads(atoi(argv[2]), argc > 3 ? argv[3] : "loop");
        return 0;
    }
    TUTTI_CHECK(tutti_init_process_group(argc > 1 ? argv[1] : "tcp", NULL));
    every(NULL);
    TUTTI_CHECK(tutti_destroy_process_group(NULL));
    return 0;
}
