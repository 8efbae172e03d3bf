/* tutti-simulate: times every algorithm on simulated networks, and tells how good the choice between them is.
 *
 * docs/benchmarks/simulator.md shows how to use it. */
#include "simulate.h"

#include <getopt.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WORST = 20, LIST_MAX = 32 };

struct cell {
    struct sim_case what;
    double ratio; /* chosen / best */
    const char *chosen, *best;
};

struct summary {
    struct cell worst[WORST];
    int cells, good, n_worst, timed, near;
};

static struct options {
    const char *network, *kind;
    int ranks[LIST_MAX], per_host[LIST_MAX], n_ranks, n_per_host;
    int64_t from, to, factor, max_steps;
    bool table, formulas, assumed;
} options = {.from = 8, .to = 1 << 30, .factor = 8, .max_steps = 1 << 21};

static double ratio_of(double a, double b)
{
    return a > b ? a / b : b / a;
}

static void add_worst(struct summary *summary, const struct cell *cell)
{
    int at = summary->n_worst;
    while (at > 0 && summary->worst[at - 1].ratio < cell->ratio) at--;
    if (at == WORST) return;
    if (summary->n_worst < WORST) summary->n_worst++;
    memmove(&summary->worst[at + 1], &summary->worst[at], (size_t)(summary->n_worst - at - 1) * sizeof *cell);
    summary->worst[at] = *cell;
}

static void print_case(const struct sim_case *what)
{
    printf("%-15s %-15s %4d x %-3d %11" PRId64, what->network->name, tutti_kind_find(what->kind)->name, what->hosts,
           what->per_host, what->bytes);
}

/* Times all algorithms of a case, and adds it to the summary. */
static void run_case(const struct sim_case *what, struct summary *summary)
{
    struct sim_result result;
    sim_judge(what, options.formulas ? 0 : options.max_steps, options.assumed, &result);
    if (options.table) print_case(what);
    for (int i = 0; i < result.n; i++) {
        if (isinf(result.estimate[i])) continue;
        summary->timed += result.time[i] >= 0;
        summary->near += result.time[i] >= 0 && ratio_of(result.time[i], result.estimate[i]) <= 1.25;
        if (!options.table) continue;
        printf("  %s ", coll_nth(what->kind, i)->name);
        if (result.time[i] >= 0) printf("%.1f", result.time[i] / 1000);
        printf("/%.1f", result.estimate[i] / 1000);
    }
    struct cell cell = {*what, result.ratio, result.chosen, result.best};
    summary->cells++;
    summary->good += result.ratio <= 1.3;
    add_worst(summary, &cell);
    if (options.table) printf("  -> %s %.2f\n", result.chosen, result.ratio);
}

static void run_sizes(struct sim_case *what, struct summary *summary)
{
    for (int kind = 0; kind < TUTTI_KIND_COUNT; kind++) {
        what->kind = (tutti_kind)kind;
        if (coll_nth(what->kind, 0) == NULL) continue;
        if (options.kind != NULL && strcmp(options.kind, coll_kind_name(what->kind)) != 0) continue;
        for (what->bytes = options.from; what->bytes <= options.to; what->bytes *= options.factor) {
            if (what->kind == TUTTI_BARRIER) what->bytes = 0;
            run_case(what, summary);
            if (what->kind == TUTTI_BARRIER) break;
        }
    }
}

static void print_summary(const struct summary *summary)
{
    printf("%d cells, %.1f %% within 1.3 of the best; %.1f %% of %d formulas within 1.25 of the steps\n",
           summary->cells, 100.0 * summary->good / summary->cells,
           100.0 * summary->near / (summary->timed > 0 ? summary->timed : 1), summary->timed);
    printf("worst cells: network, operation, hosts x ranks, bytes, chosen / best\n");
    for (int i = 0; i < summary->n_worst; i++) {
        print_case(&summary->worst[i].what);
        printf(" %6.2f  %s / %s\n", summary->worst[i].ratio, summary->worst[i].chosen, summary->worst[i].best);
    }
}

static int parse_list(char *text, int *list)
{
    int n = 0;
    for (char *word = strtok(text, ","); word != NULL && n < LIST_MAX; word = strtok(NULL, ",")) list[n++] = atoi(word);
    return n;
}

static void parse(int argc, char **argv)
{
    static const struct option names[] = {{"network", 1, 0, 'n'},  {"op", 1, 0, 'o'},      {"ranks", 1, 0, 'r'},
                                          {"per-host", 1, 0, 'p'}, {"from", 1, 0, 'f'},    {"to", 1, 0, 't'},
                                          {"factor", 1, 0, 'x'},   {"steps", 1, 0, 's'},   {"table", 0, 0, 'T'},
                                          {"formulas", 0, 0, 'F'}, {"assumed", 0, 0, 'A'}, {NULL, 0, NULL, 0}};
    char ranks[] = "2,3,4,8,12,16,32,64,128,256,512,1024", per_host[] = "1,8";
    options.n_ranks = parse_list(ranks, options.ranks);
    options.n_per_host = parse_list(per_host, options.per_host);
    for (int c; (c = getopt_long(argc, argv, "", names, NULL)) != -1;) {
        if (c == 'n') options.network = optarg;
        if (c == 'o') options.kind = optarg;
        if (c == 'r') options.n_ranks = parse_list(optarg, options.ranks);
        if (c == 'p') options.n_per_host = parse_list(optarg, options.per_host);
        if (c == 'f') options.from = atoll(optarg);
        if (c == 't') options.to = atoll(optarg);
        if (c == 'x') options.factor = atoll(optarg);
        if (c == 's') options.max_steps = atoll(optarg);
        if (c == 'T') options.table = true;
        if (c == 'F') options.formulas = true;
        if (c == 'A') options.assumed = true;
        if (c == '?') exit(2);
    }
}

int main(int argc, char **argv)
{
    struct summary *summary = calloc(1, sizeof *summary);
    parse(argc, argv);
    for (const struct sim_network *network = sim_networks; network->name != NULL; network++) {
        if (options.network != NULL && strcmp(options.network, network->name) != 0) continue;
        for (int r = 0; r < options.n_ranks; r++) {
            for (int p = 0; p < options.n_per_host; p++) {
                int per_host = options.per_host[p], ranks = options.ranks[r];
                struct sim_case what = {.network = network, .hosts = ranks / per_host, .per_host = per_host};
                if (ranks % per_host == 0 && what.hosts > 0) run_sizes(&what, summary);
            }
        }
    }
    print_summary(summary);
    free(summary);
    return 0;
}
