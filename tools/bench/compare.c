#include "bench/compare.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "bench/plot.h"
#include "bench/series.h"

/* Returns the file's name without folder and extension. */
static void label_of(const char *path, char *label, size_t bytes)
{
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path, *dot = strrchr(name, '.');
    snprintf(label, bytes, "%.*s", dot && dot > name ? (int)(dot - name) : (int)strlen(name), name);
}

static void print_file(char letter, const char *path, const doc *document)
{
    printf("# %c: %s: tutti %s, %.0f ranks, %s, %s\n", letter, path, doc_get_text(document, "version"),
           doc_get_real(document, "ranks"), doc_get_text(document, "dtype"), doc_get_text(document, "reduce_op"));
}

/* Says how the runs differ in what they have measured. */
static void print_differences(const doc *a, const doc *b)
{
    static const char *const texts[] = {"dtype", "reduce_op", "alloc"};
    double ranks[] = {doc_get_real(a, "ranks"), doc_get_real(b, "ranks")};
    if (ranks[0] != ranks[1]) printf("# beware: %.0f ranks and %.0f ranks\n", ranks[0], ranks[1]);
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        if (strcmp(doc_get_text(a, texts[i]), doc_get_text(b, texts[i])) != 0)
            printf("# beware: %s is %s and %s\n", texts[i], doc_get_text(a, texts[i]), doc_get_text(b, texts[i]));
}

/* Prints the cases that both have.  Returns their number. */
static int print_cases(const struct series *a, const struct series *b)
{
    double log_sum = 0;
    int cases = 0;
    printf("# %-19s %11s %11s %11s %9s %11s %11s\n", "op", "bytes", "A us", "B us", "B / A", "A p95", "B p95");
    for (int i = 0; i < a->n; i++) {
        const struct point *x = &a->points[i], *y = series_at(b, x->op, x->bytes);
        if (!y) continue;
        printf("  %-19s %11lld %11.2f %11.2f %9.3f %11.2f %11.2f\n", x->op, (long long)x->bytes, x->us, y->us,
               y->us / x->us, x->p95, y->p95);
        log_sum += log(y->us / x->us);
        cases++;
    }
    if (cases) printf("# %d cases: geometric mean of B / A %.3f\n", cases, exp(log_sum / cases));
    if (a->n + b->n > 2 * cases)
        printf("# left out: %d of A and %d of B, which the other does not have\n", a->n - cases, b->n - cases);
    return cases;
}

/* Returns the series of this backend from `first` up to `end`, or NULL. */
static const struct series *series_of(const struct series_set *set, int first, int end, const char *backend)
{
    for (int i = first; i < end; i++)
        if (strcmp(set->list[i].backend, backend) == 0) return &set->list[i];
    return NULL;
}

/* Compares each backend with itself.  Returns the number of cases. */
static int print_backends(const struct series_set *set, int n_a)
{
    int cases = 0;
    for (int i = 0; i < set->n; i++) {
        const char *backend = set->list[i].backend;
        bool in_a = i < n_a;
        const struct series *other = series_of(set, in_a ? n_a : 0, in_a ? set->n : n_a, backend);
        if (!other)
            printf("# backend %s: left out, because only %c has it\n", backend, in_a ? 'A' : 'B');
        else if (in_a)
            printf("# backend %s\n", backend);
        if (other && in_a) cases += print_cases(&set->list[i], other);
    }
    return cases;
}

/* Prints the cases of each backend.  Two files of one backend each are compared even if these differ. */
static bool print_all(const struct series_set *set, int n_a)
{
    const struct series *a = &set->list[0], *b = &set->list[n_a];
    bool single = n_a == 1 && set->n == 2;
    if (single && strcmp(a->backend, b->backend) != 0)
        printf("# beware: backend is %s and %s\n", a->backend, b->backend);
    int cases = single ? print_cases(a, b) : print_backends(set, n_a);
    if (cases == 0) fprintf(stderr, "tutti-bench: --compare: the files have no case in common\n");
    return cases > 0;
}

static bool read_file(const doc *document, const char *path, const char *label, struct series_set *set)
{
    const char *wrong = document ? series_read(set, document, label) : "";
    if (wrong && *wrong) fprintf(stderr, "tutti-bench: --compare: %s: %s\n", path, wrong);
    return wrong == NULL;
}

static bool compare_documents(const struct options *options, const doc *a, const doc *b)
{
    static struct series_set set;
    char labels[2][64];
    const char *const *paths = options->compare;
    for (int i = 0; i < 2; i++) label_of(paths[i], labels[i], sizeof labels[i]);
    bool same = strcmp(labels[0], labels[1]) == 0;
    for (int i = 0; i < 2 && same; i++) snprintf(labels[i], sizeof labels[i], "%c", 'A' + i);
    bool good = read_file(a, paths[0], labels[0], &set);
    int n_a = set.n;
    good = good && read_file(b, paths[1], labels[1], &set);
    if (good) {
        print_file('A', paths[0], a);
        print_file('B', paths[1], b);
        print_differences(a, b);
        good = print_all(&set, n_a);
    }
    snprintf(set.title, sizeof set.title, "%s and %s: median time, up to the 95th percentile, and bandwidth", labels[0],
             labels[1]);
    if (good && options->plot) good = plot_draw(options, &set);
    series_free(&set);
    return good;
}

bool compare_files(const struct options *options)
{
    doc *a = doc_read("tutti-bench", options->compare[0]), *b = doc_read("tutti-bench", options->compare[1]);
    bool good = a && b && compare_documents(options, a, b);
    doc_free(a);
    doc_free(b);
    return good;
}
