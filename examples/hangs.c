/* Programs that hang, to practise on: docs/debugging.md.
 *
 *     tutti-run -n 4 build/examples/hangs skip|order|circle [SECONDS]
 *
 * SECONDS is the timeout of the operations (30), after which the hang ends as an error.
 */
#include "example.h"

enum { STEPS = 40, RANKS_MAX = 64 };

static float loss;

/* Rank 2 leaves the loop a step early, as a rank with a smaller part of the data does, and computes. */
static int skip(int rank)
{
    int steps = rank == 2 ? STEPS - 1 : STEPS;
    for (int step = 0; step < steps; step++) {
        char text[32];
        snprintf(text, sizeof text, "step %d", step);
        TUTTI_CHECK(tutti_mark(text));
        TUTTI_CHECK(tutti_all_reduce(tutti_view(&loss, 1), TUTTI_AVG, NULL));
    }
    double begin = seconds();
    while (rank == 2 && seconds() - begin < 60) loss = loss / 2 + 1;
    return tutti_barrier(NULL);
}

/* Ranks 0 and 1 use the first group and then the second one, the others the second one first. */
static int order(int rank)
{
    tutti_group *groups[2];
    int all[RANKS_MAX], n = tutti_get_world_size(NULL);
    for (int i = 0; i < n; i++) all[i] = i;
    for (int i = 0; i < 2; i++)
        TUTTI_CHECK(tutti_new_group(all, n, &(tutti_group_opts){.name = i == 0 ? "loss" : "norm"}, &groups[i]));
    int first = rank < 2 ? 0 : 1;
    TUTTI_CHECK(tutti_all_reduce(tutti_view(&loss, 1), TUTTI_SUM, tutti_with(.group = groups[first])));
    return tutti_all_reduce(tutti_view(&loss, 1), TUTTI_SUM, tutti_with(.group = groups[1 - first]));
}

/* Each rank first receives from its left neighbour, and only then sends to the right one. */
static int circle(int rank)
{
    int n = tutti_get_world_size(NULL);
    TUTTI_CHECK(tutti_recv(tutti_view(&loss, 1), (rank + n - 1) % n, NULL));
    return tutti_send(tutti_view(&loss, 1), (rank + 1) % n, NULL);
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        int (*run)(int rank);
    } ways[] = {{"skip", skip}, {"order", order}, {"circle", circle}};
    double limit = argc > 2 ? atof(argv[2]) : 30;
    TUTTI_CHECK(tutti_init_process_group("tcp", &(tutti_init_opts){.timeout_ms = (int64_t)(limit * 1000)}));
    int ranks = tutti_get_world_size(NULL);
    bool known = argc > 1 && ranks >= 3 && ranks <= RANKS_MAX; /* the ranks 0 and 2 differ */
    for (size_t i = 0; known && i < sizeof ways / sizeof *ways; i++) {
        if (strcmp(argv[1], ways[i].name) != 0) continue;
        TUTTI_CHECK(ways[i].run(tutti_get_rank(NULL)));
        return tutti_destroy_process_group(NULL);
    }
    fprintf(stderr, "usage: hangs skip|order|circle [SECONDS], with 3 to %d ranks\n", RANKS_MAX);
    return 2;
}
