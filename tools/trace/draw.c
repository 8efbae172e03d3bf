/* Draws a report: a bar for each kind and size with its shares, then a bar for each rank's lateness. */
#include <errno.h>
#include <tutti/tutti.h>

#include "trace/report.h"

enum { LABELS = 190, BAR = 560, LINE = 20, MARGIN = 20, WIDTH = LABELS + BAR + 150, RANKS_SHOWN = 64 };

/* Colours that people with colour blindness can tell apart (Okabe and Ito), as in tutti-bench --plot. */
static const char *const colours[] = {"#D55E00", "#0072B2", "#009E73"};
static const char *const shares[] = {"waiting for other ranks", "transfer", "reduction"};

static void text(FILE *out, int x, int y, const char *anchor, const char *words)
{
    fprintf(out, "<text x=\"%d\" y=\"%d\" text-anchor=\"%s\">%s</text>\n", x, y, anchor, words);
}

static void box(FILE *out, double x, int y, double width, const char *colour)
{
    if (width > 0)
        fprintf(out, "<rect x=\"%.1f\" y=\"%d\" width=\"%.1f\" height=\"%d\" fill=\"%s\"/>\n", x, y - 13, width,
                LINE - 4, colour);
}

static int draw_key(FILE *out, int y)
{
    for (int i = 0, x = LABELS; i < 3; i++, x += 200) {
        box(out, x, y, 14, colours[i]);
        text(out, x + 20, y, "start", shares[i]);
    }
    return y + 2 * LINE;
}

static int draw_row(FILE *out, int y, const struct report_row *row)
{
    char words[128];
    double total = row->total_ns > 0 ? row->total_ns : 1, x = LABELS;
    double wait = row->wait_ns / total, reduce = row->reduce_ns / total;
    double part[3] = {wait, wait + reduce < 1 ? 1 - wait - reduce : 0, reduce};
    snprintf(words, sizeof words, "%s, up to %llu B", tutti_kind_name((tutti_kind)row->kind),
             (unsigned long long)row->bytes);
    text(out, LABELS - 8, y, "end", words);
    for (int i = 0; i < 3; x += part[i++] * BAR) box(out, x, y, part[i] * BAR, colours[i]);
    snprintf(words, sizeof words, "%lld x %.1f us", (long long)row->n, row->total_ns / 1e3 / (double)row->n);
    text(out, LABELS + BAR + 8, y, "start", words);
    return y + LINE;
}

static int draw_ranks(FILE *out, int y, const struct load *load, const struct report *report)
{
    char words[128];
    double most = 1;
    for (int i = 0; i < load->n; i++)
        if (report->ranks[i].late_ns > most) most = report->ranks[i].late_ns;
    text(out, MARGIN, y, "start", "time by which each rank arrived after all others");
    y += LINE;
    for (int i = 0; i < load->n && i < RANKS_SHOWN; i++, y += LINE) {
        const struct report_rank *rank = &report->ranks[i];
        snprintf(words, sizeof words, "rank %d", load->ranks[i].begin.rank);
        text(out, LABELS - 8, y, "end", words);
        box(out, LABELS, y, rank->late_ns / most * BAR, colours[0]);
        snprintf(words, sizeof words, "%.3f ms, %lld times", rank->late_ns / 1e6, (long long)rank->n_last);
        text(out, LABELS + BAR + 8, y, "start", words);
    }
    return y;
}

bool report_draw(const struct load *load, const struct report *report, const char *path)
{
    FILE *out = fopen(path, "w");
    if (out == NULL) return false;
    int ranks = load->n < RANKS_SHOWN ? load->n : RANKS_SHOWN, y = 2 * MARGIN;
    int height = (report->n_rows + ranks + 7) * LINE + 2 * MARGIN;
    fprintf(out,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" font-family=\"sans-serif\" "
            "font-size=\"12\">\n<rect width=\"100%%\" height=\"100%%\" fill=\"#ffffff\"/>\n",
            WIDTH, height);
    text(out, MARGIN, y, "start", "where the time of each kind and size of operation goes");
    y = draw_key(out, y + LINE);
    for (int i = 0; i < report->n_rows; i++) y = draw_row(out, y, &report->rows[i]);
    draw_ranks(out, y + LINE, load, report);
    fprintf(out, "</svg>\n");
    bool good = ferror(out) == 0;
    int reason = errno;
    if (fclose(out) != 0) return false;
    errno = reason;
    return good;
}
