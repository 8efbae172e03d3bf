/* Tutti: the functions that take a struct that the program fills, together with the struct's size.
 *
 * Such a struct grows at its end.  tutti.h has each function without the size, as an inline function that passes the
 * size of the struct in the program's headers.  Bindings for other languages call the exported functions below, whose
 * names end in _sized.  The size follows the pointer.  NULL means all defaults, whatever the size.
 *
 * The library reads as much of a struct as the size covers, and takes the rest as zero.  If the program's struct is
 * longer than the library's, the part that the library does not know must be zero.  INVALID_ARGUMENT if it is not, or
 * if the size is 0, above 4,096, or not a multiple of 8. */
#ifndef TUTTI_SIZED_H
#define TUTTI_SIZED_H

#include <tutti/stats.h>
#include <tutti/store.h>
#include <tutti/types.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tutti_group tutti_group;
typedef struct tutti_work tutti_work;
typedef struct tutti_init_opts tutti_init_opts;
typedef struct tutti_group_opts tutti_group_opts;
typedef struct tutti_regroup_opts tutti_regroup_opts;
typedef struct tutti_rank_health tutti_rank_health;
typedef struct tutti_opts tutti_opts;
typedef struct tutti_p2p_op tutti_p2p_op;
typedef struct tutti_message tutti_message;
typedef struct tutti_op_opts tutti_op_opts;

/* A reduction that the program defines: see tutti_op_create. */
typedef void (*tutti_op_fn)(void *inout, const void *in, int64_t n, tutti_dtype dtype, void *argument);

/* Copies a struct of `bytes` that a program filled into a library's struct of `known` bytes, by the rules above: for
 * libraries that build on Tutti and take such structs themselves.  Sets the whole copy to zero if given is NULL.  name
 * is the struct's, for the message.  Errors: INVALID_ARGUMENT. */
TUTTI_API int tutti_sized_read(const char *name, const void *given, size_t bytes, void *copy, size_t known);

/* Fills `bytes` of *stats: fields that the library does not know are 0. */
TUTTI_API int tutti_get_stats_sized(tutti_group *group, tutti_stats *stats, size_t bytes);
TUTTI_API int tutti_init_process_group_sized(const char *backend, const tutti_init_opts *opts, size_t opts_bytes);
TUTTI_API int tutti_new_group_sized(const int *ranks, int n, const tutti_group_opts *opts, size_t opts_bytes,
                                    tutti_group **group);
TUTTI_API int tutti_split_group_sized(int color, int key, const tutti_group_opts *opts, size_t opts_bytes,
                                      tutti_group **group);
TUTTI_API int tutti_create_group_sized(const char *backend, tutti_store *store, int rank, int world_size,
                                       const tutti_group_opts *opts, size_t opts_bytes, tutti_group **group);
TUTTI_API int tutti_regroup_sized(tutti_group *group, const tutti_regroup_opts *opts, size_t opts_bytes,
                                  tutti_group **next);
TUTTI_API int tutti_join_group_sized(const char *backend, tutti_store *store, const tutti_group_opts *opts,
                                     size_t opts_bytes, tutti_group **group);
TUTTI_API int tutti_group_health_sized(tutti_group *group, tutti_rank_health *ranks, size_t rank_bytes, int n);
TUTTI_API int tutti_broadcast_sized(tutti_tensor tensor, int root, const tutti_opts *opts, size_t opts_bytes);
TUTTI_API int tutti_all_reduce_sized(tutti_tensor tensor, tutti_reduce_op op, const tutti_opts *opts,
                                     size_t opts_bytes);
TUTTI_API int tutti_all_reduce_into_sized(tutti_tensor out, tutti_tensor in, tutti_reduce_op op, const tutti_opts *opts,
                                          size_t opts_bytes);
TUTTI_API int tutti_scan_sized(tutti_tensor tensor, tutti_reduce_op op, const tutti_opts *opts, size_t opts_bytes);
TUTTI_API int tutti_scan_into_sized(tutti_tensor out, tutti_tensor in, tutti_reduce_op op, const tutti_opts *opts,
                                    size_t opts_bytes);
TUTTI_API int tutti_exscan_sized(tutti_tensor tensor, tutti_reduce_op op, const tutti_opts *opts, size_t opts_bytes);
TUTTI_API int tutti_exscan_into_sized(tutti_tensor out, tutti_tensor in, tutti_reduce_op op, const tutti_opts *opts,
                                      size_t opts_bytes);
TUTTI_API int tutti_reduce_sized(tutti_tensor tensor, int root, tutti_reduce_op op, const tutti_opts *opts,
                                 size_t opts_bytes);
TUTTI_API int tutti_reduce_into_sized(tutti_tensor out, tutti_tensor in, int root, tutti_reduce_op op,
                                      const tutti_opts *opts, size_t opts_bytes);
TUTTI_API int tutti_all_gather_sized(const tutti_tensor *out, int n, tutti_tensor in, const tutti_opts *opts,
                                     size_t opts_bytes);
TUTTI_API int tutti_all_gather_into_tensor_sized(tutti_tensor out, tutti_tensor in, const tutti_opts *opts,
                                                 size_t opts_bytes);
TUTTI_API int tutti_gather_sized(tutti_tensor in, const tutti_tensor *out, int n, int root, const tutti_opts *opts,
                                 size_t opts_bytes);
TUTTI_API int tutti_gather_into_tensor_sized(tutti_tensor out, tutti_tensor in, int root, const tutti_opts *opts,
                                             size_t opts_bytes);
TUTTI_API int tutti_scatter_sized(tutti_tensor out, const tutti_tensor *in, int n, int root, const tutti_opts *opts,
                                  size_t opts_bytes);
TUTTI_API int tutti_scatter_tensor_sized(tutti_tensor out, tutti_tensor in, int root, const tutti_opts *opts,
                                         size_t opts_bytes);
TUTTI_API int tutti_reduce_scatter_sized(tutti_tensor out, const tutti_tensor *in, int n, tutti_reduce_op op,
                                         const tutti_opts *opts, size_t opts_bytes);
TUTTI_API int tutti_reduce_scatter_tensor_sized(tutti_tensor out, tutti_tensor in, tutti_reduce_op op,
                                                const tutti_opts *opts, size_t opts_bytes);
TUTTI_API int tutti_all_to_all_sized(const tutti_tensor *out, const tutti_tensor *in, int n, const tutti_opts *opts,
                                     size_t opts_bytes);
TUTTI_API int tutti_all_to_all_single_sized(tutti_tensor out, tutti_tensor in, const int64_t *out_splits,
                                            const int64_t *in_splits, const tutti_opts *opts, size_t opts_bytes);
TUTTI_API int tutti_barrier_sized(const tutti_opts *opts, size_t opts_bytes);
TUTTI_API int tutti_monitored_barrier_sized(const tutti_opts *opts, size_t opts_bytes);
TUTTI_API int tutti_send_sized(tutti_tensor tensor, int dst, const tutti_opts *opts, size_t opts_bytes);
TUTTI_API int tutti_recv_sized(tutti_tensor tensor, int src, const tutti_opts *opts, size_t opts_bytes);
TUTTI_API int tutti_isend_sized(tutti_tensor tensor, int dst, const tutti_opts *opts, size_t opts_bytes,
                                tutti_work **work);
TUTTI_API int tutti_irecv_sized(tutti_tensor tensor, int src, const tutti_opts *opts, size_t opts_bytes,
                                tutti_work **work);
TUTTI_API int tutti_batch_isend_irecv_sized(const tutti_p2p_op *ops, size_t op_bytes, int n, const tutti_opts *opts,
                                            size_t opts_bytes, tutti_work **works);
TUTTI_API int tutti_probe_sized(int src, const tutti_opts *opts, size_t opts_bytes, tutti_message *message);
TUTTI_API int tutti_iprobe_sized(int src, const tutti_opts *opts, size_t opts_bytes, bool *found,
                                 tutti_message *message);
TUTTI_API int tutti_send_bytes_sized(const void *data, size_t bytes, int dst, const tutti_opts *opts,
                                     size_t opts_bytes);
TUTTI_API int tutti_recv_bytes_sized(tutti_bytes *out, int src, const tutti_opts *opts, size_t opts_bytes);
TUTTI_API int tutti_all_gather_bytes_sized(tutti_bytes *out, int n, const void *data, size_t bytes,
                                           const tutti_opts *opts, size_t opts_bytes);
TUTTI_API int tutti_gather_bytes_sized(tutti_bytes *out, int n, const void *data, size_t bytes, int root,
                                       const tutti_opts *opts, size_t opts_bytes);
TUTTI_API int tutti_broadcast_bytes_sized(tutti_bytes *inout, int root, const tutti_opts *opts, size_t opts_bytes);
TUTTI_API int tutti_scatter_bytes_sized(tutti_bytes *out, const tutti_bytes *in, int n, int root,
                                        const tutti_opts *opts, size_t opts_bytes);
TUTTI_API int tutti_explain_sized(tutti_kind kind, int64_t bytes, const tutti_opts *opts, size_t opts_bytes, char *text,
                                  size_t capacity);
TUTTI_API int tutti_op_create_sized(const char *name, tutti_op_fn fn, void *argument, const tutti_op_opts *opts,
                                    size_t opts_bytes, tutti_reduce_op *op);

#ifdef __cplusplus
}
#endif
#endif
