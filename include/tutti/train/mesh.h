/* Tutti training: ranks in a grid of named dimensions, as torch's DeviceMesh has them.
 *
 *     tutti_mesh *mesh;
 *     tutti_mesh_dim dims[] = {{"dp", 0}, {"tp", 4}};
 *     TUTTI_CHECK(tutti_mesh_create(dims, 2, NULL, &mesh));
 *     tutti_group *tp = tutti_mesh_group(mesh, "tp");
 *     TUTTI_CHECK(tutti_all_reduce(x, TUTTI_SUM, tutti_with(.group = tp)));
 *     tutti_mesh_destroy(mesh);
 *
 * A rank has a coordinate in each dimension.  The ranks that differ in one dimension's coordinate alone form the group
 * of that dimension, ordered by it.  With dp = 2 and tp = 4 on 8 ranks:
 *
 *              tp 0  1  2  3
 *     dp 0        0  1  2  3        the tp groups are the rows, the dp groups the columns
 *     dp 1        4  5  6  7
 *
 * Order: the last dimension varies fastest.  Ranks are placed host by host, so that groups of the last dimension lie
 * within hosts as far as possible, and among them those of the dimensions before it.  Hosts are those of
 * tutti_get_host; where they are unknown, and with keep_order, the ranks are placed in rank order, as torch does.
 * tutti_mesh_describe says which groups cross hosts.
 *
 * Combined dimensions: "dp+tp" stands for the ranks that differ in these dimensions' coordinates alone, in the order of
 * the mesh's dimensions.  Sizes and ranks of any combination are known at no cost.  Its group must be made once, by all
 * ranks, with tutti_mesh_flatten.
 *
 * Cost: tutti_mesh_create makes one group per dimension, each by one tutti_split_group of all ranks.
 *
 * Threads: tutti_mesh_flatten and tutti_mesh_destroy are called by one thread while no other function runs.  Any thread
 * may call the others, also at the same time. */
#ifndef TUTTI_TRAIN_MESH_H
#define TUTTI_TRAIN_MESH_H

#include <tutti/tutti.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { TUTTI_MESH_DIMS_MAX = 8 };

typedef struct tutti_mesh tutti_mesh;

typedef struct tutti_mesh_dim {
    const char *name; /* copied; without '+' */
    int64_t size;     /* number of ranks; 0 or -1, in one dimension at most: what the others leave */
} tutti_mesh_dim;

typedef struct tutti_mesh_opts {
    tutti_group *group; /* the ranks; NULL: the default group */
    int64_t timeout_ms; /* of each operation, and of the mesh's groups; 0: the group's */
    bool keep_order;    /* place ranks in rank order instead of host by host */
    bool within_hosts;  /* fail if a group of the last dimension would cross hosts */
} tutti_mesh_opts;

/* Makes a mesh and the groups of its dimensions.  All ranks of the group call this with the same dimensions and
 * options. That is checked before any group is made.
 *
 * Errors, on all ranks: INVALID_ARGUMENT (n_dims is not in 1 .. TUTTI_MESH_DIMS_MAX; a name that is missing, empty,
 * contains '+' or is used twice; a size below -1, or two that are left open; the sizes' product is not the number of
 * ranks, or the product of the given ones does not divide it; with within_hosts, a group would cross hosts, or the
 * hosts are unknown; a negative timeout), MISMATCH (the ranks passed different meshes; the message has both),
 * NO_MEMORY, and those of tutti_split_group.  On this rank alone: INVALID_ARGUMENT (mesh is NULL, this rank is not a
 * member of the group). */
TUTTI_API int tutti_mesh_create_sized(const tutti_mesh_dim *dims, size_t dim_bytes, int n_dims,
                                      const tutti_mesh_opts *opts, size_t opts_bytes, tutti_mesh **mesh);
static inline int tutti_mesh_create(const tutti_mesh_dim *dims, int n_dims, const tutti_mesh_opts *opts,
                                    tutti_mesh **mesh)
{
    return tutti_mesh_create_sized(dims, sizeof *dims, n_dims, opts, sizeof *opts, mesh);
}

/* Returns the group of this rank along a dimension, or along combined dimensions that tutti_mesh_flatten was called
 * for. It belongs to the mesh.  Returns NULL, and sets tutti_last_error(), if there is none. */
TUTTI_API tutti_group *tutti_mesh_group(const tutti_mesh *mesh, const char *dim);

/* Makes the group of combined dimensions, "dp+tp", for tutti_mesh_group.  The order of the names does not matter.  All
 * ranks of the mesh call this.  Does nothing if the group exists.
 *
 * Errors, on all ranks: MISMATCH (the ranks name different dimensions; the message has both), NO_MEMORY, those of
 * tutti_split_group; INVALID_ARGUMENT (an unknown or repeated dimension). */
TUTTI_API int tutti_mesh_flatten(tutti_mesh *mesh, const char *dims);

/* Return the number of ranks along a dimension, or along combined ones, and this rank's number among them: its
 * coordinate.  -1, and tutti_last_error() is set, if a dimension is unknown or named twice. */
TUTTI_API int tutti_mesh_size(const tutti_mesh *mesh, const char *dim);
TUTTI_API int tutti_mesh_rank(const tutti_mesh *mesh, const char *dim);

/* Stores the coordinates of a rank of the mesh's group, one per dimension.  Errors: INVALID_ARGUMENT (rank is not in
 * the group). */
TUTTI_API int tutti_mesh_coordinate(const tutti_mesh *mesh, int group_rank, int *coordinate);

/* Returns the rank of the mesh's group at these coordinates, one per dimension; -1 if one is out of range. */
TUTTI_API int tutti_mesh_rank_at(const tutti_mesh *mesh, const int *coordinate);

/* Describes the mesh for people: its dimensions, the order of the ranks, and how many groups of each dimension cross
 * hosts.  Writes at most capacity bytes including the final zero; longer text is truncated.  Errors: INVALID_ARGUMENT
 * (text is NULL or capacity 0), NO_MEMORY. */
TUTTI_API int tutti_mesh_describe(const tutti_mesh *mesh, char *text, size_t capacity);

/* Destroys the mesh and its groups, before the group that it was made from.  NULL is ignored.  Returns the first error
 * of tutti_destroy_process_group. */
TUTTI_API int tutti_mesh_destroy(tutti_mesh *mesh);

#ifdef __cplusplus
}
#endif
#endif
