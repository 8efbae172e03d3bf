/* Meshes: groups and coordinates of named dimensions, the order along hosts, and what is refused on all ranks. */
#include "ranks.h"

#include <tutti/train/mesh.h>

#include "mesh_order.h"

/* ---- coordinates and groups -------------------------------------------------------------------------------- */

/* Sums the ranks along a dimension. */
static int sum_along(const tutti_mesh *mesh, const char *dim, int rank)
{
    int sum = rank;
    tutti_group *group = tutti_mesh_group(mesh, dim);
    if (group == NULL) return -1;
    return tutti_all_reduce(tutti_view(&sum, 1), TUTTI_SUM, tutti_with(.group = group)) == TUTTI_OK ? sum : -1;
}

static int use_grid(tutti_group *group, int rank, int size, void *argument)
{
    (void)argument;
    (void)size;
    tutti_mesh *mesh;
    tutti_mesh_dim dims[] = {{"pp", 2}, {"dp", 0}, {"tp", 2}};
    EXPECT(tutti_mesh_create(dims, 3, &(tutti_mesh_opts){.group = group}, &mesh) == TUTTI_OK);
    int pp = rank / 6, dp = rank / 2 % 3, tp = rank % 2, coordinate[3];
    EXPECT(tutti_mesh_size(mesh, "pp") == 2 && tutti_mesh_size(mesh, "dp") == 3 && tutti_mesh_size(mesh, "tp") == 2);
    EXPECT(tutti_mesh_rank(mesh, "pp") == pp && tutti_mesh_rank(mesh, "dp") == dp && tutti_mesh_rank(mesh, "tp") == tp);
    EXPECT(tutti_get_rank(tutti_mesh_group(mesh, "dp")) == dp);
    EXPECT(sum_along(mesh, "tp", rank) == 2 * (rank - tp) + 1);
    EXPECT(sum_along(mesh, "dp", rank) == 3 * (6 * pp + tp) + 6);
    EXPECT(sum_along(mesh, "pp", rank) == 2 * (rank % 6) + 6);
    for (int other = 0; other < 12; other++) {
        EXPECT(tutti_mesh_coordinate(mesh, other, coordinate) == TUTTI_OK);
        EXPECT(coordinate[0] == other / 6 && coordinate[1] == other / 2 % 3 && coordinate[2] == other % 2);
        EXPECT(tutti_mesh_rank_at(mesh, coordinate) == other);
    }
    EXPECT(tutti_mesh_rank_at(mesh, (int[]){0, 3, 0}) == -1 && tutti_mesh_rank_at(mesh, (int[]){-1, 0, 0}) == -1);
    EXPECT(tutti_mesh_coordinate(mesh, 12, coordinate) == TUTTI_ERR_INVALID_ARGUMENT);
    EXPECT(tutti_mesh_destroy(mesh) == TUTTI_OK);
    return 0;
}

static void test_grid(void **state)
{
    (void)state;
    ranks_run(12, use_grid, NULL);
}

static int use_flattened(tutti_group *group, int rank, int size, void *argument)
{
    (void)argument;
    (void)size;
    tutti_mesh *mesh;
    tutti_mesh_dim dims[] = {{"pp", 2}, {"dp", -1}, {"tp", 2}};
    EXPECT(tutti_mesh_create(dims, 3, &(tutti_mesh_opts){.group = group}, &mesh) == TUTTI_OK);
    EXPECT(tutti_mesh_size(mesh, "pp+tp") == 4 && tutti_mesh_rank(mesh, "tp+pp") == rank / 4 * 2 + rank % 2);
    EXPECT(tutti_mesh_group(mesh, "pp+tp") == NULL && strstr(tutti_last_error(), "tutti_mesh_flatten") != NULL);
    EXPECT(tutti_mesh_flatten(mesh, "tp+pp") == TUTTI_OK && tutti_mesh_flatten(mesh, "pp+tp") == TUTTI_OK);
    EXPECT(tutti_mesh_flatten(mesh, rank % 2 ? "tp+pp+dp" : "dp+pp+tp") == TUTTI_OK);
    EXPECT(tutti_get_rank(tutti_mesh_group(mesh, "pp+tp")) == tutti_mesh_rank(mesh, "pp+tp"));
    EXPECT(sum_along(mesh, "pp+tp", rank) == (rank / 2 % 2 == 0 ? 0 + 1 + 4 + 5 : 2 + 3 + 6 + 7));
    EXPECT(sum_along(mesh, "dp+tp+pp", rank) == 28);
    EXPECT(tutti_mesh_flatten(mesh, rank == 3 ? "pp+dp" : "dp+tp") == TUTTI_ERR_MISMATCH);
    EXPECT(strstr(tutti_last_error(), "rank 0 has dp+tp, but this rank has pp+dp") != NULL);
    EXPECT(tutti_mesh_flatten(mesh, "tp+xx") == TUTTI_ERR_INVALID_ARGUMENT);
    EXPECT(strstr(tutti_last_error(), "\"xx\" is not a dimension") != NULL);
    EXPECT(tutti_mesh_size(mesh, "tp+tp") == -1 && strstr(tutti_last_error(), "named twice") != NULL);
    EXPECT(tutti_mesh_rank(mesh, NULL) == -1 && tutti_mesh_rank(mesh, "") == -1);
    EXPECT(tutti_mesh_destroy(mesh) == TUTTI_OK && tutti_mesh_destroy(NULL) == TUTTI_OK);
    return 0;
}

static void test_flattened(void **state)
{
    (void)state;
    ranks_run(8, use_flattened, NULL);
}

static int describe(tutti_group *group, int rank, int size, void *argument)
{
    (void)argument;
    (void)rank;
    (void)size;
    char text[512];
    tutti_mesh *mesh;
    tutti_mesh_dim dims[] = {{"dp", 2}, {"tp", 2}};
    EXPECT(tutti_mesh_create(dims, 2, &(tutti_mesh_opts){.group = group, .keep_order = true}, &mesh) == TUTTI_OK);
    EXPECT(tutti_mesh_describe(mesh, text, sizeof text) == TUTTI_OK);
    EXPECT(strstr(text, "mesh of 4 ranks, placed in rank order") == text);
    EXPECT(strstr(text, "  tp: 2 groups of 2") != NULL && strstr(text, "ranks in order: 0 1 2 3\n") != NULL);
    EXPECT(tutti_mesh_describe(mesh, text, 0) == TUTTI_ERR_INVALID_ARGUMENT);
    EXPECT(tutti_mesh_destroy(mesh) == TUTTI_OK);
    bool hosts_known = tutti_get_host(group, 0) >= 0; /* then it is the same host */
    int status = tutti_mesh_create(dims, 2, &(tutti_mesh_opts){.group = group, .within_hosts = true}, &mesh);
    EXPECT(status == (hosts_known ? TUTTI_OK : TUTTI_ERR_INVALID_ARGUMENT));
    EXPECT(hosts_known || strstr(tutti_last_error(), "does not know the ranks' hosts") != NULL);
    if (!hosts_known) return 0;
    EXPECT(tutti_mesh_describe(mesh, text, sizeof text) == TUTTI_OK && strstr(text, ", 0 across hosts") != NULL);
    EXPECT(tutti_mesh_destroy(mesh) == TUTTI_OK);
    return 0;
}

static void test_description(void **state)
{
    (void)state;
    ranks_run(4, describe, NULL);
}

/* ---- order along hosts ------------------------------------------------------------------------------------- */

static void check_order(const int *host, int n, int inner, const int *wanted)
{
    int place[16];
    mesh_order_by_host(host, n, inner, place);
    for (int i = 0; i < n; i++)
        if (place[i] != wanted[i]) fail_msg("place %d has rank %d, not %d", i, place[i], wanted[i]);
}

static void test_order(void **state)
{
    (void)state;
    /* ranks dealt out to hosts in turn: groups of two come together */
    check_order((int[]){0, 1, 0, 1}, 4, 2, (int[]){0, 2, 1, 3});
    check_order((int[]){0, 0, 1, 1}, 4, 2, (int[]){0, 1, 2, 3});
    /* 3, 3 and 2 ranks: a whole group on each host, and one of the ranks that are left over */
    check_order((int[]){0, 0, 0, 1, 1, 1, 2, 2}, 8, 2, (int[]){0, 1, 3, 4, 6, 7, 2, 5});
    /* groups larger than hosts */
    check_order((int[]){0, 1, 0, 1}, 4, 4, (int[]){0, 2, 1, 3});
}

struct hosts {
    const char *hosts; /* LOOP_HOSTS */
    bool keep_order;
    int crossing_dp, crossing_tp; /* of 4 groups each */
};

/* Four by two ranks. */
static int use_hosts(tutti_group *group, int rank, int size, void *argument)
{
    const struct hosts *hosts = argument;
    tutti_mesh *mesh;
    char text[512], wanted[2][64];
    (void)rank;
    (void)size;
    tutti_mesh_dim dims[] = {{"dp", 4}, {"tp", 2}};
    tutti_mesh_opts opts = {.group = group, .keep_order = hosts->keep_order, .within_hosts = true};
    int status = tutti_mesh_create(dims, 2, &opts, &mesh);
    EXPECT(status == (hosts->crossing_tp == 0 ? TUTTI_OK : TUTTI_ERR_INVALID_ARGUMENT));
    snprintf(wanted[0], sizeof wanted[0], "%d of 4 groups of \"tp\" with 2 ranks would", hosts->crossing_tp);
    EXPECT(status == TUTTI_OK || strstr(tutti_last_error(), wanted[0]) != NULL);
    if (status == TUTTI_OK) EXPECT(tutti_mesh_destroy(mesh) == TUTTI_OK);
    opts.within_hosts = false;
    EXPECT(tutti_mesh_create(dims, 2, &opts, &mesh) == TUTTI_OK);
    EXPECT(tutti_mesh_describe(mesh, text, sizeof text) == TUTTI_OK);
    snprintf(wanted[0], sizeof wanted[0], "dp: 2 groups of 4, %d across hosts\n", hosts->crossing_dp);
    snprintf(wanted[1], sizeof wanted[1], "tp: 4 groups of 2, %d across hosts\n", hosts->crossing_tp);
    EXPECT(strstr(text, wanted[0]) != NULL && strstr(text, wanted[1]) != NULL);
    EXPECT(strstr(text, hosts->keep_order ? "placed in rank order\n" : "placed host by host\n") != NULL);
    tutti_group *tp = tutti_mesh_group(mesh, "tp");
    EXPECT(hosts->crossing_tp > 0 || tutti_get_host(tp, 0) == tutti_get_host(tp, 1));
    EXPECT(tutti_get_rank(tp) == tutti_mesh_rank(mesh, "tp"));
    EXPECT(tutti_mesh_destroy(mesh) == TUTTI_OK);
    return 0;
}

static void test_hosts(void **state)
{
    static const struct hosts cases[] = {
        {"0,0,0,0,1,1,1,1", false, 2, 0}, {"0,1,0,1,0,1,0,1", false, 2, 0}, {"0,1,0,1,0,1,0,1", true, 0, 4},
        {"0,0,0,1,1,1,2,2", false, 2, 1}, {"0,1,2,3,4,5,6,7", false, 2, 4}, {"0", false, 0, 0},
    };
    (void)state;
    const char *backend = getenv("TUTTI_TEST_BACKEND");
    if (backend != NULL && strcmp(backend, "loop") != 0) skip(); /* only loop simulates hosts */
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        setenv("LOOP_HOSTS", cases[i].hosts, 1);
        ranks_run(8, use_hosts, (void *)(uintptr_t)&cases[i]);
    }
    unsetenv("LOOP_HOSTS");
}

/* ---- refusals ---------------------------------------------------------------------------------------------- */

struct refused {
    tutti_mesh_dim dims[3];
    int n;
    const char *word;
};

static const struct refused refusals[] = {
    {{{"dp", 2}, {"dp", 2}}, 2, "dimensions 0 and 1 have the name \"dp\""},
    {{{"", 2}, {"dp", 2}}, 2, "dimension 0 has the name \"\""},
    {{{NULL, 2}, {"dp", 2}}, 2, "dimension 0 has the name \"\""},
    {{{"a+b", 4}}, 1, "has no '+'"},
    {{{"dp", 2}, {"tp", 3}}, 2, "multiply to 6, but there are 4 ranks"},
    {{{"dp", 0}, {"tp", 3}}, 2, "multiply to 3, which does not divide the 4 ranks"},
    {{{"dp", 0}, {"tp", -1}}, 2, "\"dp\" and \"tp\" are both left open"},
    {{{"dp", -2}, {"tp", 2}}, 2, "\"dp\" has the size -2"},
    {{{"dp", INT64_MAX}, {"tp", INT64_MAX}, {"pp", 3}}, 3, "but there are 4 ranks"},
    {{{"dp", 4}}, 0, "with 0 dimensions"},
    {{{"dp", 4}}, 9, "with 9 dimensions"},
};

static int create_wrong(tutti_group *group, int rank, int size, void *argument)
{
    (void)argument;
    (void)size;
    tutti_mesh *mesh = (tutti_mesh *)&mesh;
    tutti_mesh_opts opts = {.group = group};
    for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++) {
        const struct refused *wrong = &refusals[i];
        EXPECT(tutti_mesh_create(wrong->dims, wrong->n, &opts, &mesh) == TUTTI_ERR_INVALID_ARGUMENT && mesh == NULL);
        if (strstr(tutti_last_error(), wrong->word) == NULL) fprintf(stderr, "lacks \"%s\"\n", wrong->word);
        EXPECT(strstr(tutti_last_error(), wrong->word) != NULL);
    }
    /* one rank alone is wrong: all get its error */
    tutti_mesh_dim dims[] = {{"dp", 2}, {"tp", rank == 2 ? 3 : 2}};
    EXPECT(tutti_mesh_create(dims, 2, &opts, &mesh) == TUTTI_ERR_INVALID_ARGUMENT);
    EXPECT(strstr(tutti_last_error(), "rank 2: ") != NULL && strstr(tutti_last_error(), "multiply to 6") != NULL);
    tutti_mesh_opts late = {.group = group, .timeout_ms = rank == 3 ? -1 : 0};
    EXPECT(tutti_mesh_create((tutti_mesh_dim[]){{"dp", 0}}, 1, &late, &mesh) == TUTTI_ERR_INVALID_ARGUMENT);
    EXPECT(strstr(tutti_last_error(), "rank 3: mesh_create: timeout_ms is -1") != NULL);
    /* two valid meshes */
    tutti_mesh_dim valid[] = {{"dp", rank == 1 ? 1 : 2}, {"tp", 0}};
    EXPECT(tutti_mesh_create(valid, 2, &opts, &mesh) == TUTTI_ERR_MISMATCH && mesh == NULL);
    EXPECT(strstr(tutti_last_error(),
                  "rank 1: mesh_create: rank 0 has \"dp\" 2, \"tp\" 2, but this rank has \"dp\" 1") != NULL);
    EXPECT(tutti_mesh_create(valid, 2, &opts, NULL) == TUTTI_ERR_INVALID_ARGUMENT);
    /* the group is usable, and no group was made from it */
    EXPECT(tutti_mesh_create((tutti_mesh_dim[]){{"dp", 0}}, 1, &opts, &mesh) == TUTTI_OK);
    EXPECT(tutti_mesh_size(mesh, "dp") == 4 && sum_along(mesh, "dp", rank) == 6);
    EXPECT(tutti_mesh_destroy(mesh) == TUTTI_OK);
    return 0;
}

static void test_refusals(void **state)
{
    (void)state;
    ranks_run(4, create_wrong, NULL);
}

static int create_without_members(tutti_group *group, int rank, int size, void *argument)
{
    (void)argument;
    (void)size;
    tutti_group *pair;
    tutti_mesh *mesh;
    EXPECT(tutti_new_group((int[]){0, 1}, 2, &(tutti_group_opts){.parent = group}, &pair) == TUTTI_OK);
    int status = tutti_mesh_create((tutti_mesh_dim[]){{"dp", 0}}, 1, &(tutti_mesh_opts){.group = pair}, &mesh);
    EXPECT(status == (rank < 2 ? TUTTI_OK : TUTTI_ERR_INVALID_ARGUMENT));
    if (rank < 2) EXPECT(tutti_mesh_destroy(mesh) == TUTTI_OK);
    EXPECT(tutti_destroy_process_group(pair) == TUTTI_OK);
    return 0;
}

static void test_members_only(void **state)
{
    (void)state;
    ranks_run(3, create_without_members, NULL);
}

int main(void)
{
    ranks_setup();
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_grid),        cmocka_unit_test(test_flattened),
                                       cmocka_unit_test(test_description), cmocka_unit_test(test_order),
                                       cmocka_unit_test(test_hosts),       cmocka_unit_test(test_refusals),
                                       cmocka_unit_test(test_members_only)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
