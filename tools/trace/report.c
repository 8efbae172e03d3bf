/* tutti-trace report: names the stragglers, and says where the time of the operations went. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <tutti/tutti.h>

#include "trace/commands.h"
#include "trace/report.h"

enum { SVG = 1 };

static bool set(void *target, int id, const char *value)
{
    (void)id;
    *(const char **)target = value;
    return true;
}

const struct cli trace_report_cli = {
    .program = "tutti-trace",
    .command = "report",
    .usage = "tutti-trace report DIR [--svg FILE]",
    .summary = "Names the stragglers, and says where the time of each kind and size went.\n"
               "It reads the files that a job has written to TUTTI_TRACE.  Time is waiting for other ranks,\n"
               "reduction, and transfer, which is the rest.",
    .options = (const struct cli_option[]){{"svg", "FILE", CLI_FILE, "also draw the figures", 0, SVG}, {0}},
    .words = CLI_FOLDER,
    .set = set,
};

static double ms_of(double ns)
{
    return ns / 1e6;
}

static double percent(double part, double whole)
{
    return whole > 0 ? 100.0 * part / whole : 0;
}

/* ---- head -------------------------------------------------------------------------------------------------- */

static int host_count(const struct load *load)
{
    int n = 0;
    for (int i = 0; i < load->n; i++) {
        int k = 0;
        while (k < i && strcmp(load->ranks[k].begin.host, load->ranks[i].begin.host) != 0) k++;
        n += k == i;
    }
    return n;
}

/* Counts the ranks.  One has a file for each of its groups' trees, and for each start of the job. */
static int rank_count(const struct load *load)
{
    int n = 0;
    for (int i = 0; i < load->n; i++) n += i == 0 || load->ranks[i].begin.rank != load->ranks[i - 1].begin.rank;
    return n;
}

static void print_clocks(const struct load *load)
{
    int64_t most = 0;
    int unknown = 0;
    for (int i = 0; i < load->n; i++) {
        unknown += load->ranks[i].align.error_ns < 0;
        if (load->ranks[i].align.error_ns > most) most = load->ranks[i].align.error_ns;
    }
    if (unknown > 0)
        printf("clocks: not aligned on %d ranks, whose arrivals are not compared\n", unknown);
    else if (most == 0)
        printf("clocks: one host, one clock\n");
    else
        printf("clocks: aligned to rank 0's host within %.1f us; smaller differences are not counted\n",
               (double)most / 1e3);
}

static void print_head(const struct load *load, const struct report *report)
{
    int ranks = rank_count(load), world_size = load->ranks[0].begin.world_size;
    printf("%d ranks on %d hosts, %zu operations, %lld collectives of two or more ranks\n", ranks, host_count(load),
           load->n_ops, (long long)report->n_steps);
    if (ranks < world_size) printf("files of %d of %d ranks are there\n", ranks, world_size);
    print_clocks(load);
}

/* ---- stragglers -------------------------------------------------------------------------------------------- */

static const struct report *sorted_report;

static int by_lateness(const void *a, const void *b)
{
    double x = sorted_report->ranks[*(const int *)a].late_ns, y = sorted_report->ranks[*(const int *)b].late_ns;
    return (x < y) - (x > y);
}

/* Says in a sentence whether one rank is to blame. */
static void print_verdict(const struct load *load, const struct report *report, int worst)
{
    const struct report_rank *rank = &report->ranks[worst];
    double all_ns = 0;
    for (int i = 0; i < load->n; i++) all_ns += report->ranks[i].late_ns;
    if (rank->n_last == 0)
        printf("No rank can be said to have arrived last.\n");
    else if (percent(rank->late_ns, all_ns) >= 50 && percent((double)rank->n_last, (double)report->n_known) >= 25)
        printf("Rank %d is a straggler: it arrived last in %.0f%% of the collectives, %.3f ms after the others on "
               "average.\n",
               load->ranks[worst].begin.rank, percent((double)rank->n_last, (double)report->n_known),
               ms_of(rank->late_ns / (double)rank->n_last));
    else
        printf("No rank stands out: the latest is rank %d with %.0f%% of all lateness.\n",
               load->ranks[worst].begin.rank, percent(rank->late_ns, all_ns));
}

static void print_stragglers(const struct load *load, const struct report *report)
{
    enum { SHOWN = 10 };
    int *order = calloc((size_t)load->n, sizeof *order);
    if (order == NULL) return;
    for (int i = 0; i < load->n; i++) order[i] = i;
    sorted_report = report;
    qsort(order, (size_t)load->n, sizeof *order, by_lateness);
    printf("\nwho arrives last, and how much after the last but one\n");
    printf("%6s %10s %7s %12s %12s %12s\n", "rank", "last in", "share", "sum ms", "mean ms", "most ms");
    for (int i = 0; i < load->n && i < SHOWN; i++) {
        const struct report_rank *rank = &report->ranks[order[i]];
        if (rank->n_last == 0) continue;
        printf("%6d %10lld %6.1f%% %12.3f %12.4f %12.3f\n", load->ranks[order[i]].begin.rank, (long long)rank->n_last,
               percent((double)rank->n_last, (double)rank->n_steps), ms_of(rank->late_ns),
               ms_of(rank->late_ns / (double)rank->n_last), ms_of((double)rank->most_ns));
    }
    print_verdict(load, report, order[0]);
    free(order);
}

/* ---- operations -------------------------------------------------------------------------------------------- */

static void format_size(uint64_t bytes, char text[32])
{
    static const char units[] = " KMGTPE";
    int unit = 0;
    while (bytes >= 1024 && unit < 6) {
        bytes /= 1024;
        unit++;
    }
    snprintf(text, 32, unit > 0 ? "%llu%c" : "%llu", (unsigned long long)bytes, units[unit]);
}

static void print_rows(const struct report *report)
{
    char size[32];
    printf("\nwhere the time goes (transfer: neither waiting nor reduction)\n");
    printf("%-18s %7s %10s %12s %8s %9s %8s %8s\n", "operation", "up to", "count", "mean us", "waiting", "transfer",
           "reduce", "thread");
    for (int i = 0; i < report->n_rows; i++) {
        const struct report_row *row = &report->rows[i];
        double wait = percent(row->wait_ns, row->total_ns), reduce = percent(row->reduce_ns, row->total_ns);
        double rest = 100 - wait - reduce;
        format_size(row->bytes, size);
        printf("%-18s %7s %10lld %12.2f %7.1f%% %8.1f%% %7.1f%% %7.1f%%\n", tutti_kind_name((tutti_kind)row->kind),
               size, (long long)row->n, row->total_ns / 1e3 / (double)row->n, wait, rest > 0 ? rest : 0, reduce,
               percent((double)row->by_thread, (double)row->n));
        if (row->failed > 0) printf("%-18s %7s %10lld of these have failed\n", "", "", (long long)row->failed);
    }
}

/* ---- ranges ------------------------------------------------------------------------------------------------ */

struct range_sum {
    const char *name;
    int rank; /* index */
    double ns;
};

static int by_name(const void *a, const void *b)
{
    const struct range_sum *x = a, *y = b;
    int order = strcmp(x->name, y->name);
    return order != 0 ? order : (x->rank > y->rank) - (x->rank < y->rank);
}

/* Prints one range of all ranks: sums[0 .. n - 1]. */
static void print_range(const struct load *load, const struct range_sum *sums, size_t n)
{
    double total = 0, most = 0;
    int slowest = -1;
    for (size_t i = 0, end; i < n; i = end) {
        double own = 0;
        for (end = i; end < n && sums[end].rank == sums[i].rank; end++) own += sums[end].ns;
        total += own;
        if (own >= most) {
            most = own;
            slowest = load->ranks[sums[i].rank].begin.rank;
        }
    }
    printf("%-40s %10lld %12.3f %12.3f   rank %d with %.3f ms\n", sums->name, (long long)n, ms_of(total),
           ms_of(total / (double)n), slowest, ms_of(most));
}

static void print_ranges(const struct load *load)
{
    size_t n = 0, at = 0;
    for (int i = 0; i < load->n; i++) n += load->ranks[i].n_ranges;
    struct range_sum *sums = n > 0 ? calloc(n, sizeof *sums) : NULL;
    if (sums == NULL) return;
    for (int i = 0; i < load->n; i++)
        for (size_t k = 0; k < load->ranks[i].n_ranges; k++) {
            const tutti_trace_range *range = &load->ranks[i].ranges[k];
            int64_t ns = load_time_ns(&load->ranks[i], range->end) - load_time_ns(&load->ranks[i], range->begin);
            sums[at++] = (struct range_sum){.name = range->name, .rank = i, .ns = (double)ns};
        }
    qsort(sums, n, sizeof *sums, by_name);
    printf("\nranges of the program\n%-40s %10s %12s %12s   most time\n", "name", "count", "sum ms", "mean ms");
    for (size_t i = 0, end; i < n; i = end) {
        for (end = i; end < n && strcmp(sums[end].name, sums[i].name) == 0; end++) continue;
        print_range(load, &sums[i], end - i);
    }
    free(sums);
}

/* ---- the command ------------------------------------------------------------------------------------------- */

static int report(const char *folder, const char *svg)
{
    struct load load;
    struct report figures;
    bool good = true;
    if (!load_folder(folder, &load)) return 1;
    if (report_gather(&load, &figures)) {
        print_head(&load, &figures);
        print_stragglers(&load, &figures);
        print_rows(&figures);
        print_ranges(&load);
        if (svg != NULL) good = report_draw(&load, &figures, svg);
        if (!good) fprintf(stderr, "tutti-trace: cannot write %s: %s\n", svg, strerror(errno));
    } else {
        good = false;
        fprintf(stderr, "tutti-trace: no memory for %zu operations\n", load.n_ops);
    }
    report_free(&figures);
    load_free(&load);
    return good ? 0 : 1;
}

int trace_report(int argc, char **argv)
{
    const char *svg = NULL;
    int first = 0, status = cli_parse(&trace_report_cli, argc, argv, &svg, &first);
    if (status != CLI_GO_ON) return status;
    if (first + 1 == argc) return report(argv[first], svg);
    cli_refuse(&trace_report_cli, "name one folder");
    return CLI_USAGE;
}
