#include "bench/plot.h"

#include <errno.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PANEL_WIDTH = 420, PANEL_HEIGHT = 300, COLUMNS = 3, TITLE_HEIGHT = 50 };

struct point {
    const struct bench_op *op;
    int backend;
    int64_t bytes;
    double us;
};

static struct point *points;
static int n_points, ranks;

/* Colours that people with colour blindness can tell apart (Okabe and Ito). */
static const char *const colours[BACKENDS_MAX] = {"#0072B2", "#D55E00", "#009E73", "#CC79A7",
                                                  "#E69F00", "#56B4E9", "#000000", "#999999"};

static bool is_in_path(const char *program)
{
    char path[4096];
    const char *folder = getenv("PATH");
    while (folder && *folder) {
        size_t n = strcspn(folder, ":");
        snprintf(path, sizeof path, "%.*s/%s", (int)n, folder, program);
        if (access(path, X_OK) == 0) return true;
        folder += n + (folder[n] == ':');
    }
    return false;
}

static bool ends_with(const char *text, const char *end)
{
    size_t n = strlen(text), m = strlen(end);
    return n >= m && strcmp(text + n - m, end) == 0;
}

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

void plot_check(const struct options *options)
{
    if (!options->plot) return;
    if (strpbrk(options->plot, "'\n")) options_refuse("--plot: the file's name must not contain quotes or line ends");
    bool named = strchr(base_name(options->plot), '.') != NULL; /* without an extension the format is SVG */
    if (named && !ends_with(options->plot, ".svg") && !ends_with(options->plot, ".png"))
        options_refuse("--plot draws SVG and PNG: the file's name must end in .svg or .png");
    if (!is_in_path("gnuplot")) options_refuse("--plot needs gnuplot, which is not in PATH (Debian: gnuplot-nox)");
}

void plot_add(int backend, const struct bench_case *c, const struct result *result)
{
    struct point *grown = realloc(points, (size_t)(n_points + 1) * sizeof *grown);
    if (!grown) options_refuse("no memory");
    points = grown;
    points[n_points++] = (struct point){c->op, backend, c->bytes, result->us};
    ranks = c->ranks;
}

/* ---- drawing ------------------------------------------------------------------------------------------------ */

/* Writes the points of an operation, for one backend or (-1) for all.  Skips points of 0 bytes, which a logarithmic
 * scale cannot show. */
static int count_points(const struct bench_op *op, int backend)
{
    int n = 0;
    for (int i = 0; i < n_points; i++)
        n += points[i].op == op && points[i].bytes > 0 && (backend < 0 || points[i].backend == backend);
    return n;
}

static int count_panels(void)
{
    int n = 0;
    for (const struct bench_op *op = bench_ops; op->name; op++) n += count_points(op, -1) > 0;
    return n;
}

/* Escapes underscores, which gnuplot's text markup would interpret. */
static void draw_title(FILE *out, const char *name)
{
    fprintf(out, "set title \"%s\" noenhanced\n", name);
}

static void draw_panel(FILE *out, const struct options *options, const struct bench_op *op, bool key)
{
    bool first = true;
    for (int b = 0; b < options->backends; b++) {
        if (!count_points(op, b)) continue;
        fprintf(out, "$d%d << EOD\n", b);
        for (int i = 0; i < n_points; i++)
            if (points[i].op == op && points[i].backend == b && points[i].bytes > 0)
                fprintf(out, "%lld %.3f\n", (long long)points[i].bytes, points[i].us);
        fprintf(out, "EOD\n");
    }
    draw_title(out, op->name);
    fprintf(out, "set %s\nplot ", key ? "key" : "nokey");
    for (int b = 0; b < options->backends; b++) {
        if (!count_points(op, b)) continue;
        fprintf(out, "%s$d%d using 1:2 with linespoints lw 2 pt 7 ps 0.5 lc rgb \"%s\" title \"%s\" noenhanced",
                first ? "" : ", ", b, colours[b], options->backend[b]);
        first = false;
    }
    fprintf(out, "\n");
}

static void draw(FILE *out, const struct options *options)
{
    int panels = count_panels(), columns = panels < COLUMNS ? panels : COLUMNS, rows = (panels - 1) / columns + 1;
    bool key = true; /* only the first panel has a key */
    fprintf(out,
            "set terminal %s size %d,%d font 'sans-serif,12' background '#ffffff'\nset output '%s'\n"
            "set multiplot layout %d,%d title \"tutti %s, %d ranks, %s: the median time in µs by bytes\" font ',15'\n"
            "set logscale x 2\nset logscale y 10\nset format y '%%g'\n"
            "set xtics ('4' 4, '64' 64, '1K' 1024, '16K' 16384, '256K' 262144, '4M' 4194304, '64M' 67108864, "
            "'1G' 1073741824)\n"
            "set grid xtics ytics lc rgb '#e0e0e0' lt 1\nset border 3 lc rgb '#808080'\nset tics nomirror\n"
            "set key top left samplen 2\nset offsets graph 0.03, graph 0.03, 0, 0\n",
            ends_with(options->plot, ".png") ? "pngcairo" : "svg dynamic", columns * PANEL_WIDTH,
            rows * PANEL_HEIGHT + TITLE_HEIGHT, options->plot, rows, columns, tutti_version(), ranks,
            tutti_dtype_name(options->dtype->dtype));
    for (const struct bench_op *op = bench_ops; op->name; op++) {
        if (!count_points(op, -1)) continue;
        draw_panel(out, options, op, key);
        key = false;
    }
    fprintf(out, "unset multiplot\n");
}

bool plot_draw(const struct options *options)
{
    if (count_panels() == 0) {
        fprintf(stderr, "tutti-bench: --plot: no operation with a size was measured, so there is nothing to draw\n");
        return false;
    }
    FILE *out = popen("gnuplot", "w");
    if (out) draw(out, options);
    int status = out ? pclose(out) : -1;
    if (status != 0) fprintf(stderr, "tutti-bench: --plot: gnuplot failed with status %d\n", status);
    free(points);
    return status == 0;
}
