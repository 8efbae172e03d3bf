#include "bench/plot.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PANEL_WIDTH = 420, PANEL_HEIGHT = 300, TITLE_HEIGHT = 50, OPS_DRAWN_MAX = 64 };

/* Series differ in colour, dashes and marks, so that they can be told apart in black and white, too.  The colours are
 * those of Okabe and Ito, for people with colour blindness. */
static const struct style {
    const char *colour;
    int dashes, mark;
} styles[] = {{"#0072B2", 1, 7}, {"#D55E00", 2, 5}, {"#009E73", 4, 9},  {"#CC79A7", 3, 13},
              {"#000000", 1, 6}, {"#E69F00", 2, 4}, {"#56B4E9", 4, 11}, {"#666666", 3, 8}};

enum { STYLES = sizeof styles / sizeof *styles };

/* What a panel shows: columns of the data, and those of bars, or NULL. */
static const struct view {
    const char *label, *scale, *columns, *bars;
} views[] = {
    {"time (µs)", "set logscale y 10\nset autoscale y", "1:2", "1:2:2:3"}, /* the bars end at the percentile */
    {"bus bandwidth (GB/s)", "unset logscale y\nset yrange [0:*]", "1:4", NULL},
};

enum { VIEWS = sizeof views / sizeof *views };

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

/* ---- drawing ------------------------------------------------------------------------------------------------ */

/* Counts the points of an operation.  Those of 0 bytes are left out, which a logarithmic scale cannot show. */
static int count_points(const struct series *series, const char *op)
{
    int n = 0;
    for (int i = 0; i < series->n; i++) n += series->points[i].bytes > 0 && strcmp(series->points[i].op, op) == 0;
    return n;
}

/* Lists the operations that have points, in order.  Returns their number. */
static int list_ops(const struct series_set *set, const char *ops[OPS_DRAWN_MAX])
{
    int n = 0;
    for (int s = 0; s < set->n; s++)
        for (int i = 0; i < set->list[s].n; i++) {
            const struct point *point = &set->list[s].points[i];
            int k = 0;
            while (k < n && strcmp(ops[k], point->op) != 0) k++;
            if (k == n && n < OPS_DRAWN_MAX && point->bytes > 0) ops[n++] = point->op;
        }
    return n;
}

/* Writes text in gnuplot's single quotes.  In double quotes gnuplot would run commands between backquotes. */
static void draw_text(FILE *out, const char *text)
{
    fputc('\'', out);
    for (; *text; text++) {
        if (*text == '\'') fputc('\'', out);
        fputc((unsigned char)*text >= ' ' ? *text : ' ', out);
    }
    fputc('\'', out);
}

/* Writes the data of an operation: size, median, percentile, bandwidth. */
static void draw_data(FILE *out, const struct series *series, int number, const char *op)
{
    fprintf(out, "$d%d << EOD\n", number);
    for (int i = 0; i < series->n; i++) {
        const struct point *point = &series->points[i];
        double p95 = point->p95 > point->us ? point->p95 : point->us;
        if (point->bytes > 0 && strcmp(point->op, op) == 0)
            fprintf(out, "%lld %.3f %.3f %.4f\n", (long long)point->bytes, point->us, p95, point->busbw);
    }
    fprintf(out, "EOD\n");
}

/* Draws one operation in one panel. */
static void draw_panel(FILE *out, const struct series_set *set, const char *op, const struct view *view, bool key)
{
    bool first = true;
    for (int s = 0; s < set->n; s++)
        if (count_points(&set->list[s], op)) draw_data(out, &set->list[s], s, op);
    fputs("set title ", out);
    draw_text(out, op);
    fprintf(out, " noenhanced\nset ylabel \"%s\"\n%s\nset %s\nplot ", view->label, view->scale,
            key ? "key top left" : "nokey");
    for (int s = 0; s < set->n; s++) {
        const struct style *style = &styles[s % STYLES];
        if (!count_points(&set->list[s], op)) continue;
        if (view->bars)
            fprintf(out, "%s$d%d using %s with yerrorbars lw 1 dt 1 pt 0 lc rgb \"%s\" notitle", first ? "" : ", ", s,
                    view->bars, style->colour);
        fprintf(out, "%s$d%d using %s with linespoints lw 2 dt %d pt %d ps 0.7 lc rgb \"%s\" title ",
                first && !view->bars ? "" : ", ", s, view->columns, style->dashes, style->mark, style->colour);
        draw_text(out, set->list[s].label);
        fprintf(out, " noenhanced");
        first = false;
    }
    fprintf(out, "\n");
}

static void draw_head(FILE *out, const struct options *options, const char *title, int columns, int rows)
{
    fprintf(out,
            "set encoding utf8\nset terminal %s size %d,%d font 'sans-serif,12' background '#ffffff'\nset output '%s'\n"
            "set multiplot layout %d,%d title ",
            ends_with(options->plot, ".png") ? "pngcairo" : "svg dynamic", columns * PANEL_WIDTH,
            rows * PANEL_HEIGHT + TITLE_HEIGHT, options->plot, rows, columns);
    draw_text(out, title);
    fprintf(out, " noenhanced font ',15'\n"
                 "set logscale x 2\nset format y '%%g'\nset xlabel \"message size (bytes)\"\n"
                 "set xtics ('4' 4, '64' 64, '1K' 1024, '16K' 16384, '256K' 262144, '4M' 4194304, '64M' 67108864, "
                 "'1G' 1073741824)\n"
                 "set grid xtics ytics lc rgb '#e0e0e0' lt 1\nset border 3 lc rgb '#404040'\nset tics nomirror\n"
                 "set key samplen 4\nset offsets graph 0.03, graph 0.03, 0, 0\n");
}

static void draw(FILE *out, const struct options *options, const struct series_set *set)
{
    const char *ops[OPS_DRAWN_MAX];
    int n = list_ops(set, ops), columns = n < 3 ? VIEWS : 2 * VIEWS, rows = (n * VIEWS + columns - 1) / columns;
    draw_head(out, options, set->title, columns, rows);
    for (int i = 0; i < n; i++)
        for (int v = 0; v < VIEWS; v++) draw_panel(out, set, ops[i], &views[v], i == 0); /* the first ones have a key */
    fprintf(out, "unset multiplot\n");
}

bool plot_draw(const struct options *options, const struct series_set *set)
{
    const char *ops[OPS_DRAWN_MAX];
    if (list_ops(set, ops) == 0) {
        fprintf(stderr, "tutti-bench: --plot: no operation with a size was measured, so there is nothing to draw\n");
        return false;
    }
    FILE *out = popen("gnuplot", "w");
    if (out) draw(out, options, set);
    int status = out ? pclose(out) : -1;
    if (status != 0) fprintf(stderr, "tutti-bench: --plot: gnuplot failed with status %d\n", status);
    return status == 0;
}
