#include "bench/regret.h"
#include "bench/alternatives.h"
#include "bench/report.h"
#include "common/output.h"

#include <math.h>
#include <string.h>

enum { ROUNDS = 5, TRIAL_ROUNDS = 2, CONTESTS = 3 };

/* After the trial rounds, alternatives that take this many times the best one's time are dropped. */
static const double hopeless = 2;

/* The choice and its alternatives, measured in turn.  Entry 0 is the choice. */
struct contest {
    int n;
    const char *name[ALTERNATIVES_MAX + 1];
    tutti_group *group[ALTERNATIVES_MAX + 1];
    double us[ALTERNATIVES_MAX + 1][ROUNDS];
    bool dropped[ALTERNATIVES_MAX + 1];
};

struct verdict {
    char chosen[ALTERNATIVE_NAME_MAX];
    const char *best;
    double us, best_us, ratio; /* medians; the ratio is the median of the rounds' ratios */
    double low, high;          /* smallest and largest ratio of a round */
};

struct summary {
    int cases, beyond;
    double log_sum; /* sum of the logarithms of all ratios, each at least 1 */
    double worst;
    char worst_case[64];
};

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(const double *value, int n)
{
    double sorted[ROUNDS];
    memcpy(sorted, value, (size_t)n * sizeof *sorted);
    qsort(sorted, (size_t)n, sizeof *sorted, compare);
    return (sorted[(n - 1) / 2] + sorted[n / 2]) / 2;
}

/* Returns the alternative with the smallest median so far. */
static int best_of(const struct contest *contest, int rounds)
{
    int best = 1;
    for (int i = 2; i < contest->n; i++) {
        if (contest->dropped[i]) continue;
        if (contest->dropped[best] || median(contest->us[i], rounds) < median(contest->us[best], rounds)) best = i;
    }
    return best;
}

static void drop_hopeless(struct contest *contest)
{
    double limit = hopeless * median(contest->us[best_of(contest, TRIAL_ROUNDS)], TRIAL_ROUNDS);
    for (int i = 1; i < contest->n; i++) contest->dropped[i] = median(contest->us[i], TRIAL_ROUNDS) > limit;
}

/* Measures the choice and its alternatives in turn, so that a change of the machine meets all of them. */
static void run_rounds(const struct options *options, struct bench_case *c, struct contest *contest, bool *right)
{
    for (int round = 0; round < ROUNDS; round++) {
        for (int k = 0; k < contest->n; k++) {
            int i = (k + round) % contest->n; /* each round begins with another one */
            if (!contest->dropped[i]) contest->us[i][round] = alternatives_time(options, c, contest->group[i], right);
        }
        if (round == TRIAL_ROUNDS - 1) drop_hopeless(contest);
    }
}

static struct verdict judge(const struct contest *contest)
{
    int best = best_of(contest, ROUNDS);
    double ratio[ROUNDS];
    for (int i = 0; i < ROUNDS; i++) ratio[i] = contest->us[0][i] / contest->us[best][i];
    qsort(ratio, ROUNDS, sizeof *ratio, compare);
    return (struct verdict){.best = contest->name[best],
                            .us = median(contest->us[0], ROUNDS),
                            .best_us = median(contest->us[best], ROUNDS),
                            .ratio = median(ratio, ROUNDS),
                            .low = ratio[0],
                            .high = ratio[ROUNDS - 1]};
}

static void add(struct summary *summary, const struct bench_case *c, const struct verdict *verdict)
{
    summary->cases++;
    summary->log_sum += log(fmax(verdict->ratio, 1));
    if (verdict->low > 1) summary->beyond++;
    if (verdict->low <= 1 || verdict->ratio <= summary->worst) return;
    summary->worst = verdict->ratio;
    snprintf(summary->worst_case, sizeof summary->worst_case, "%s of %lld bytes", c->op->name, (long long)c->bytes);
}

static void print_case(const struct options *options, const struct bench_case *c, const struct verdict *verdict)
{
    if (c->rank != 0) return;
    if (options->csv)
        fprintf(output_data(), "%s,%s,%d,%lld,%s,%.3f,%s,%.3f,%.3f,%.3f,%.3f\n", options->name, c->op->name, c->ranks,
                (long long)c->bytes, verdict->chosen, verdict->us, verdict->best, verdict->best_us, verdict->ratio,
                verdict->low, verdict->high);
    else
        printf("  %-19s %11lld  %-18s %10.2f  %-18s %10.2f %7.2f %7.2f %7.2f%s\n", c->op->name, (long long)c->bytes,
               verdict->chosen, verdict->us, verdict->best, verdict->best_us, verdict->ratio, verdict->low,
               verdict->high, verdict->low > 1 ? "  beyond" : "");
    fflush(options->csv ? output_data() : stdout);
}

/* Measures one case with new groups, and so with a new choice, but for messages.  Returns false if there is nothing to
 * choose. */
static bool hold_contest(const struct options *options, struct bench_case *c, struct verdict *verdict, bool *right)
{
    char chosen[ALTERNATIVE_NAME_MAX];
    if (!alternatives_taken(c, NULL, chosen)) return false;
    struct alternatives list;
    alternatives_open(c, &list);
    /* The choice gets a group of its own too, because the world's also carries the barriers between measurements. */
    struct contest contest = {.n = 1 + list.n, .group = {alternatives_group(c, NULL)}};
    for (int i = 0; i < list.n; i++) {
        contest.name[i + 1] = list.name[i];
        contest.group[i + 1] = list.group[i];
    }
    bool has_choice = list.n > 1;
    if (has_choice) {
        run_rounds(options, c, &contest, right);
        *verdict = judge(&contest);
        alternatives_taken(c, contest.group[0], verdict->chosen); /* a measured choice is known only now */
    }
    TUTTI_CHECK(tutti_destroy_process_group(contest.group[0]));
    alternatives_close(&list);
    return has_choice;
}

static int compare_verdicts(const void *a, const void *b)
{
    return compare(&((const struct verdict *)a)->ratio, &((const struct verdict *)b)->ratio);
}

/* Judges one case, if there is a choice.  One that was slower in all rounds is measured twice more, and the median
 * counts: of many cases, one always meets a change of the machine, and the best of many alternatives was also lucky. */
static void regret_case(const struct options *options, struct bench_case *c, struct summary *summary, bool *right)
{
    struct verdict verdicts[CONTESTS];
    int n = 0;
    do {
        if (!hold_contest(options, c, &verdicts[n], right)) return;
        n++;
    } while (verdicts[0].low > 1 && n < CONTESTS);
    qsort(verdicts, (size_t)n, sizeof *verdicts, compare_verdicts);
    add(summary, c, &verdicts[n / 2]);
    print_case(options, c, &verdicts[n / 2]);
}

static void print_head(const struct options *options)
{
    char world[DESCRIPTION_MAX];
    if (tutti_get_rank(NULL) != 0 || options->csv) return;
    alternatives_world(world);
    printf(
        "# tutti %s: regret on %s(backend, ranks, hosts); times in us, the slowest rank's mean\n"
        "# ratio: chosen / best, median of %d rounds, with the lowest and the highest; beyond: slower in all rounds,\n"
        "# and measured %d times, of which this is the median\n"
        "# %-19s %11s  %-18s %10s  %-18s %10s %7s %7s %7s\n",
        tutti_version(), world, ROUNDS, CONTESTS, "op", "bytes", "chosen", "us", "best", "us", "ratio", "low", "high");
}

static void print_summary(const struct options *options, const struct summary *summary)
{
    if (tutti_get_rank(NULL) != 0 || options->csv) return;
    if (summary->cases == 0) {
        printf("# there is nothing to choose\n");
        return;
    }
    printf("# %d cases: geometric mean %.3f; %d beyond the spread", summary->cases,
           exp(summary->log_sum / summary->cases), summary->beyond);
    if (summary->beyond > 0) printf(", the worst %.2f: %s", summary->worst, summary->worst_case);
    printf("\n");
}

/* Judges all sizes of one operation. */
static void regret_op(const struct options *options, const struct bench_op *op, struct summary *summary,
                      bench_case_maker *make_case, bool *right)
{
    for (int k = 0; k < (op->sized ? options->sizes : 1); k++) {
        struct bench_case c = make_case(options, op, op->sized ? options->size[k] : 0);
        regret_case(options, &c, summary, right);
    }
}

/* Messages come first.  Alternatives of the other operations send messages too, in ways that a program would not, and
 * the choice of a message's path remembers their times. */
bool regret(const struct options *options, bench_case_maker *make_case)
{
    struct summary summary = {0};
    bool right = true;
    print_head(options);
    for (int messages = 1; messages >= 0; messages--)
        for (int i = 0; bench_ops[i].name; i++) {
            const struct bench_op *op = &bench_ops[i];
            if (options->op[i] && op->kind >= 0 && (op->kind == TUTTI_SEND) == messages)
                regret_op(options, op, &summary, make_case, &right);
        }
    print_summary(options, &summary);
    return right;
}
