/* A mesh places ranks in row-major order.  A set of dimensions is a bit mask; it has at most one group. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <tutti/train/mesh.h>

#include "agree.h"
#include "mesh_order.h"

enum { SETS = 1 << TUTTI_MESH_DIMS_MAX };

struct tutti_mesh {
    tutti_group *parent;
    int64_t timeout_ms;
    int n_dims, n_ranks, rank;
    char *name[TUTTI_MESH_DIMS_MAX];
    int size[TUTTI_MESH_DIMS_MAX];
    int *place_to_rank, *rank_to_place;
    int *host; /* per rank; NULL: unknown */
    bool by_host;
    tutti_group *group[SETS]; /* by set of dimensions; NULL: not made */
};

/* ---- coordinates ------------------------------------------------------------------------------------------- */

/* Returns a place's coordinate in a dimension. */
static int coordinate_at(const struct tutti_mesh *mesh, int place, int dim)
{
    for (int i = mesh->n_dims - 1; i > dim; i--) place /= mesh->size[i];
    return place % mesh->size[dim];
}

/* Returns a place's number among those that differ from it in these dimensions alone. */
static int number_in(const struct tutti_mesh *mesh, unsigned set, int place)
{
    int number = 0;
    for (int i = 0; i < mesh->n_dims; i++)
        if (set >> i & 1) number = number * mesh->size[i] + coordinate_at(mesh, place, i);
    return number;
}

static int size_of(const struct tutti_mesh *mesh, unsigned set)
{
    int size = 1;
    for (int i = 0; i < mesh->n_dims; i++)
        if (set >> i & 1) size *= mesh->size[i];
    return size;
}

static unsigned others(const struct tutti_mesh *mesh, unsigned set)
{
    return ((1u << mesh->n_dims) - 1) & ~set;
}

/* Returns the set with the dimension of this name, or 0. */
static unsigned find_dim(const struct tutti_mesh *mesh, const char *name, size_t length)
{
    for (int i = 0; i < mesh->n_dims; i++)
        if (strlen(mesh->name[i]) == length && memcmp(mesh->name[i], name, length) == 0) return 1u << i;
    return 0;
}

/* Parses "dp" or "dp+tp".  Returns 0, and sets the error, if a dimension is unknown or named twice. */
static unsigned parse_set(const struct tutti_mesh *mesh, const char *names)
{
    unsigned set = 0;
    for (const char *at = names; at != NULL;) {
        size_t length = strcspn(at, "+");
        unsigned dim = find_dim(mesh, at, length);
        if (dim == 0 || set & dim) {
            tutti_set_error(TUTTI_ERR_INVALID_ARGUMENT, "mesh: \"%s\": \"%.*s\" is %s", names, (int)length, at,
                            dim == 0 ? "not a dimension of the mesh" : "named twice");
            return 0;
        }
        set |= dim;
        at = at[length] == '+' ? at + length + 1 : NULL;
    }
    if (set == 0) tutti_set_error(TUTTI_ERR_INVALID_ARGUMENT, "mesh: the name of a dimension is NULL");
    return set;
}

int tutti_mesh_size(const tutti_mesh *mesh, const char *dim)
{
    unsigned set = parse_set(mesh, dim);
    return set != 0 ? size_of(mesh, set) : -1;
}

int tutti_mesh_rank(const tutti_mesh *mesh, const char *dim)
{
    unsigned set = parse_set(mesh, dim);
    return set != 0 ? number_in(mesh, set, mesh->rank_to_place[mesh->rank]) : -1;
}

int tutti_mesh_coordinate(const tutti_mesh *mesh, int group_rank, int *coordinate)
{
    if (group_rank < 0 || group_rank >= mesh->n_ranks || coordinate == NULL)
        return tutti_set_error(TUTTI_ERR_INVALID_ARGUMENT,
                               "mesh_coordinate: rank %d is not in 0 .. %d, or coordinate "
                               "is NULL",
                               group_rank, mesh->n_ranks - 1);
    for (int i = 0; i < mesh->n_dims; i++) coordinate[i] = coordinate_at(mesh, mesh->rank_to_place[group_rank], i);
    return TUTTI_OK;
}

int tutti_mesh_rank_at(const tutti_mesh *mesh, const int *coordinate)
{
    int place = 0;
    for (int i = 0; i < mesh->n_dims; i++) {
        if (coordinate[i] < 0 || coordinate[i] >= mesh->size[i]) return -1;
        place = place * mesh->size[i] + coordinate[i];
    }
    return mesh->place_to_rank[place];
}

/* ---- checks ------------------------------------------------------------------------------------------------ */

static int check_name(const struct tutti_mesh *mesh, int i)
{
    const char *name = mesh->name[i];
    if (name[0] == '\0' || strpbrk(name, "+\n") != NULL)
        return tutti_set_error(TUTTI_ERR_INVALID_ARGUMENT,
                               "mesh_create: dimension %d has the name \"%s\"; a name is not empty and has no '+'", i,
                               name);
    for (int k = 0; k < i; k++)
        if (strcmp(mesh->name[k], name) == 0)
            return tutti_set_error(TUTTI_ERR_INVALID_ARGUMENT,
                                   "mesh_create: dimensions %d and %d have the name \"%s\"; give each its own", k, i,
                                   name);
    return TUTTI_OK;
}

/* Copies the names, and the sizes as they were given. */
static int read_dims(struct tutti_mesh *mesh, const tutti_mesh_dim *dims, size_t dim_bytes, int n, int64_t *size)
{
    for (int i = 0; i < n; i++) {
        tutti_mesh_dim dim;
        const char *given = (const char *)dims + (size_t)i * dim_bytes;
        int status = tutti_sized_read("tutti_mesh_dim", given, dim_bytes, &dim, sizeof dim);
        if (status != TUTTI_OK) return status;
        mesh->name[i] = strdup(dim.name != NULL ? dim.name : "");
        if (mesh->name[i] == NULL) return tutti_set_error(TUTTI_ERR_NO_MEMORY, "mesh_create: no memory for a name");
        mesh->n_dims = i + 1;
        size[i] = dim.size;
        status = check_name(mesh, i);
        if (status != TUTTI_OK) return status;
    }
    return TUTTI_OK;
}

/* Multiplies the given sizes.  Stores the index of the one that is left open, or -1.  A product that overflows is
 * INT64_MAX, which is no number of ranks. */
static int multiply(const struct tutti_mesh *mesh, const int64_t *size, int *open, int64_t *product)
{
    *open = -1;
    *product = 1;
    for (int i = 0; i < mesh->n_dims; i++) {
        if (size[i] < -1)
            return tutti_set_error(TUTTI_ERR_INVALID_ARGUMENT,
                                   "mesh_create: \"%s\" has the size %" PRId64
                                   "; pass a positive size, or 0 to compute it",
                                   mesh->name[i], size[i]);
        if (size[i] <= 0 && *open >= 0)
            return tutti_set_error(TUTTI_ERR_INVALID_ARGUMENT,
                                   "mesh_create: the sizes of \"%s\" and \"%s\" are both left open; give one of them",
                                   mesh->name[*open], mesh->name[i]);
        if (size[i] <= 0)
            *open = i;
        else if (__builtin_mul_overflow(*product, size[i], product))
            *product = INT64_MAX;
    }
    return TUTTI_OK;
}

static int set_sizes(struct tutti_mesh *mesh, const int64_t *size)
{
    int64_t product;
    int open, status = multiply(mesh, size, &open, &product);
    if (status != TUTTI_OK) return status;
    if (open >= 0 && mesh->n_ranks % product != 0)
        return tutti_set_error(TUTTI_ERR_INVALID_ARGUMENT,
                               "mesh_create: the given sizes multiply to %" PRId64
                               ", which does not divide the %d ranks, so that \"%s\" has no size",
                               product, mesh->n_ranks, mesh->name[open]);
    if (open < 0 && product != mesh->n_ranks)
        return tutti_set_error(TUTTI_ERR_INVALID_ARGUMENT,
                               "mesh_create: the sizes multiply to %" PRId64
                               ", but there are %d ranks; leave one size 0 to compute it",
                               product, mesh->n_ranks);
    for (int i = 0; i < mesh->n_dims; i++) mesh->size[i] = (int)(i == open ? mesh->n_ranks / product : size[i]);
    return TUTTI_OK;
}

/* ---- order ------------------------------------------------------------------------------------------------- */

/* Finds the ranks' hosts.  Frees the list if the backend does not know one of them. */
static void find_hosts(struct tutti_mesh *mesh)
{
    for (int rank = 0; rank < mesh->n_ranks && mesh->host != NULL; rank++) {
        mesh->host[rank] = tutti_get_host(mesh->parent, rank);
        if (mesh->host[rank] >= 0) continue;
        free(mesh->host);
        mesh->host = NULL;
    }
}

static int set_order(struct tutti_mesh *mesh, bool keep_order)
{
    size_t bytes = (size_t)mesh->n_ranks * sizeof(int);
    mesh->place_to_rank = malloc(bytes);
    mesh->rank_to_place = malloc(bytes);
    mesh->host = malloc(bytes);
    if (mesh->place_to_rank == NULL || mesh->rank_to_place == NULL || mesh->host == NULL)
        return tutti_set_error(TUTTI_ERR_NO_MEMORY, "mesh_create: no memory for %d ranks", mesh->n_ranks);
    find_hosts(mesh);
    mesh->by_host = !keep_order && mesh->host != NULL;
    for (int i = 0; i < mesh->n_ranks; i++) mesh->place_to_rank[i] = i;
    if (mesh->by_host) mesh_order_by_host(mesh->host, mesh->n_ranks, mesh->size[mesh->n_dims - 1], mesh->place_to_rank);
    for (int i = 0; i < mesh->n_ranks; i++) mesh->rank_to_place[mesh->place_to_rank[i]] = i;
    return TUTTI_OK;
}

/* Returns the k-th place of a group along a set of dimensions, given its first place. */
static int member_at(const struct tutti_mesh *mesh, unsigned set, int first, int k)
{
    int stride = 1;
    for (int i = mesh->n_dims - 1; i >= 0; stride *= mesh->size[i--]) {
        if (!(set >> i & 1)) continue;
        first += k % mesh->size[i] * stride;
        k /= mesh->size[i];
    }
    return first;
}

/* Counts the groups of a set of dimensions that have ranks on several hosts.  Hosts are known. */
static int count_crossing(const struct tutti_mesh *mesh, unsigned set)
{
    int size = size_of(mesh, set), crossing = 0;
    for (int first = 0; first < mesh->n_ranks; first++) {
        int host = mesh->host[mesh->place_to_rank[first]], k = 1;
        if (number_in(mesh, set, first) != 0) continue;
        while (k < size && mesh->host[mesh->place_to_rank[member_at(mesh, set, first, k)]] == host) k++;
        crossing += k < size;
    }
    return crossing;
}

static int check_within(const struct tutti_mesh *mesh)
{
    int last = mesh->n_dims - 1, n = mesh->n_ranks / mesh->size[last];
    if (mesh->host == NULL)
        return tutti_set_error(TUTTI_ERR_INVALID_ARGUMENT,
                               "mesh_create: within_hosts is set, but the backend does not know the ranks' hosts");
    int crossing = count_crossing(mesh, 1u << last);
    if (crossing == 0) return TUTTI_OK;
    return tutti_set_error(TUTTI_ERR_INVALID_ARGUMENT,
                           "mesh_create: %d of %d groups of \"%s\" with %d ranks would cross hosts; choose a size that "
                           "divides the number of ranks of each host, or do not set within_hosts",
                           crossing, n, mesh->name[last], mesh->size[last]);
}

/* ---- groups ------------------------------------------------------------------------------------------------ */

static int make_group(struct tutti_mesh *mesh, unsigned set, const char *name)
{
    char full[256];
    int place = mesh->rank_to_place[mesh->rank];
    snprintf(full, sizeof full, "mesh %s", name);
    tutti_group_opts opts = {.parent = mesh->parent, .timeout_ms = mesh->timeout_ms, .name = full};
    return tutti_split_group(number_in(mesh, others(mesh, set), place), number_in(mesh, set, place), &opts,
                             &mesh->group[set]);
}

tutti_group *tutti_mesh_group(const tutti_mesh *mesh, const char *dim)
{
    unsigned set = parse_set(mesh, dim);
    if (set != 0 && mesh->group[set] == NULL)
        tutti_set_error(TUTTI_ERR_NOT_FOUND,
                        "mesh_group: \"%s\" has no group; call tutti_mesh_flatten for it on all ranks first", dim);
    return set != 0 ? mesh->group[set] : NULL;
}

/* Returns the names of a set in the mesh's order: "dp+tp".  The caller frees it.  Returns NULL without memory. */
static char *names_of(const struct tutti_mesh *mesh, unsigned set)
{
    char *text = NULL;
    size_t bytes;
    FILE *file = open_memstream(&text, &bytes);
    if (file == NULL) return NULL;
    for (int i = 0; i < mesh->n_dims; i++)
        if (set >> i & 1) fprintf(file, "%s%s", set & ((1u << i) - 1) ? "+" : "", mesh->name[i]);
    if (fclose(file) == 0) return text;
    free(text);
    return NULL;
}

int tutti_mesh_flatten(tutti_mesh *mesh, const char *dims)
{
    unsigned set = parse_set(mesh, dims);
    char *names = set != 0 ? names_of(mesh, set) : NULL;
    int status = set != 0 ? TUTTI_OK : TUTTI_ERR_INVALID_ARGUMENT;
    if (set != 0 && names == NULL)
        status = tutti_set_error(TUTTI_ERR_NO_MEMORY, "mesh_flatten: no memory for the dimensions' names");
    status = agree_on_text(mesh->parent, mesh->timeout_ms, "mesh_flatten", status, names);
    if (status == TUTTI_OK && mesh->group[set] == NULL) status = make_group(mesh, set, names);
    free(names);
    return status;
}

/* ---- making and ending ------------------------------------------------------------------------------------- */

/* Returns the mesh as one line, to compare it with those of other ranks.  The caller frees it. */
static char *describe_line(const struct tutti_mesh *mesh, const tutti_mesh_opts *opts)
{
    char *text = NULL;
    size_t bytes;
    FILE *file = open_memstream(&text, &bytes);
    if (file == NULL) return NULL;
    for (int i = 0; i < mesh->n_dims; i++)
        fprintf(file, "%s\"%s\" %d", i > 0 ? ", " : "", mesh->name[i], mesh->size[i]);
    fprintf(file, "%s%s", opts->keep_order ? ", keep_order" : "", opts->within_hosts ? ", within_hosts" : "");
    if (fclose(file) == 0) return text;
    free(text);
    return NULL;
}

/* Does what needs no other rank. */
static int prepare(struct tutti_mesh *mesh, const tutti_mesh_dim *dims, size_t dim_bytes, int n_dims,
                   const tutti_mesh_opts *opts)
{
    int64_t size[TUTTI_MESH_DIMS_MAX];
    if (opts->timeout_ms < 0)
        return tutti_set_error(TUTTI_ERR_INVALID_ARGUMENT, "mesh_create: timeout_ms is %" PRId64 "; pass 0 or more",
                               opts->timeout_ms);
    if (dims == NULL || n_dims < 1 || n_dims > TUTTI_MESH_DIMS_MAX)
        return tutti_set_error(TUTTI_ERR_INVALID_ARGUMENT, "mesh_create: dims is %p with %d dimensions; pass 1 to %d",
                               (const void *)dims, n_dims, TUTTI_MESH_DIMS_MAX);
    int status = read_dims(mesh, dims, dim_bytes, n_dims, size);
    if (status == TUTTI_OK) status = set_sizes(mesh, size);
    if (status == TUTTI_OK) status = set_order(mesh, opts->keep_order);
    if (status == TUTTI_OK && opts->within_hosts) status = check_within(mesh);
    return status;
}

/* Compares the ranks' meshes, then makes the groups. */
static int join(struct tutti_mesh *mesh, const tutti_mesh_opts *opts, int status)
{
    char *text = status == TUTTI_OK ? describe_line(mesh, opts) : NULL;
    if (status == TUTTI_OK && text == NULL)
        status = tutti_set_error(TUTTI_ERR_NO_MEMORY, "mesh_create: no memory for the mesh's description");
    status = agree_on_text(mesh->parent, mesh->timeout_ms, "mesh_create", status, text);
    free(text);
    for (int i = 0; i < mesh->n_dims && status == TUTTI_OK; i++) status = make_group(mesh, 1u << i, mesh->name[i]);
    return status;
}

int tutti_mesh_create_sized(const tutti_mesh_dim *dims, size_t dim_bytes, int n_dims, const tutti_mesh_opts *opts,
                            size_t opts_bytes, tutti_mesh **mesh)
{
    tutti_mesh_opts options;
    if (mesh == NULL) return tutti_set_error(TUTTI_ERR_INVALID_ARGUMENT, "mesh_create: mesh is NULL");
    *mesh = NULL;
    int status = tutti_sized_read("tutti_mesh_opts", opts, opts_bytes, &options, sizeof options);
    if (status != TUTTI_OK) return status;
    if (tutti_get_rank(options.group) < 0)
        return tutti_set_error(TUTTI_ERR_INVALID_ARGUMENT, "mesh_create: this rank is not a member of the group");
    struct tutti_mesh *made = calloc(1, sizeof *made);
    if (made == NULL) return tutti_set_error(TUTTI_ERR_NO_MEMORY, "mesh_create: no memory for the mesh");
    made->parent = options.group;
    made->timeout_ms = options.timeout_ms > 0 ? options.timeout_ms : 0; /* the ranks agree that it is refused */
    made->rank = tutti_get_rank(options.group);
    made->n_ranks = tutti_get_world_size(options.group);
    status = join(made, &options, prepare(made, dims, dim_bytes, n_dims, &options));
    if (status == TUTTI_OK) {
        if (made->rank == 0)
            tutti_log("train", TUTTI_LOG_INFO, "a mesh of %d dimensions has %d ranks", made->n_dims, made->n_ranks);
        *mesh = made;
        return TUTTI_OK;
    }
    char text[1024];
    snprintf(text, sizeof text, "%s", tutti_last_error());
    tutti_mesh_destroy(made);
    return tutti_set_error(status, "%s", text);
}

int tutti_mesh_destroy(tutti_mesh *mesh)
{
    int first = TUTTI_OK;
    if (mesh == NULL) return TUTTI_OK;
    for (int set = 0; set < SETS; set++) {
        int status = mesh->group[set] != NULL ? tutti_destroy_process_group(mesh->group[set]) : TUTTI_OK;
        if (first == TUTTI_OK) first = status;
    }
    for (int i = 0; i < mesh->n_dims; i++) free(mesh->name[i]);
    free(mesh->place_to_rank);
    free(mesh->rank_to_place);
    free(mesh->host);
    free(mesh);
    return first;
}

/* ---- description ------------------------------------------------------------------------------------------- */

static void describe_groups(FILE *file, const struct tutti_mesh *mesh)
{
    for (int i = 0; i < mesh->n_dims; i++) {
        int n = mesh->n_ranks / mesh->size[i];
        fprintf(file, "  %s: %d group%s of %d", mesh->name[i], n, n > 1 ? "s" : "", mesh->size[i]);
        if (mesh->host != NULL) fprintf(file, ", %d across hosts", count_crossing(mesh, 1u << i));
        fputc('\n', file);
    }
}

int tutti_mesh_describe(const tutti_mesh *mesh, char *text, size_t capacity)
{
    if (text == NULL || capacity == 0)
        return tutti_set_error(TUTTI_ERR_INVALID_ARGUMENT, "mesh_describe: text is NULL or capacity 0");
    char *all = NULL;
    size_t bytes;
    FILE *file = open_memstream(&all, &bytes);
    if (file == NULL) return tutti_set_error(TUTTI_ERR_NO_MEMORY, "mesh_describe: no memory for the text");
    fprintf(file, "mesh of %d ranks, placed %s\n", mesh->n_ranks,
            mesh->by_host        ? "host by host"
            : mesh->host != NULL ? "in rank order"
                                 : "in rank order, because their hosts are unknown");
    describe_groups(file, mesh);
    fputs("  ranks in order:", file);
    for (int i = 0; i < mesh->n_ranks; i++) fprintf(file, " %d", mesh->place_to_rank[i]);
    fputc('\n', file);
    bool written = fclose(file) == 0;
    if (written) snprintf(text, capacity, "%s", all);
    free(all);
    return written ? TUTTI_OK : tutti_set_error(TUTTI_ERR_NO_MEMORY, "mesh_describe: no memory for the text");
}
