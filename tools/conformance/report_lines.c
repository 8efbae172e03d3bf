#include "conformance/report_lines.h"

#include <stdio.h>

#include "conformance/cases.h"
#include "conformance/report.h"

static bool names(const struct check *check, int line)
{
    for (int i = 0; i < LINES_EACH && check->lines[i] != L_NONE; i++)
        if ((int)check->lines[i] == line) return true;
    return false;
}

/* Returns why this run need not test the line, or NULL if it must. */
static const char *excuse(const struct options *options, int line)
{
    const struct line_text *text = &lines[line];
    if (text->where == 'c') return "needs CUDA; the nccl backend's own tests cover it";
    if (text->where == 'h' && !options->huge) return "only with --huge";
    if (text->where == 'f' && options->quick) return "only without --quick";
    if (text->where == 'p' && options->threads) return "only if ranks are processes";
    if (text->where == 's' && (options->threads || options->join)) return "only if the suite spawns the ranks";
    if (options->cuda) return "only with tensors on the CPU";
    if (options->to_ranks < text->ranks) return "only with more ranks";
    return options->filter != NULL ? "excluded by --filter" : NULL;
}

/* Prints the state of a rule that did not pass, or adds it to the document's list. */
static void take_line(int line, const char *what, const char *why, doc *list)
{
    if (!list) {
        printf("line %-24s %s: %s%s%s%s\n", lines[line].id, what, lines[line].text, why ? " (" : "", why ? why : "",
               why ? ")" : "");
        return;
    }
    doc *object = doc_add(list, doc_object());
    doc_text(object, "id", lines[line].id);
    doc_text(object, "verdict", what);
    doc_text(object, "text", lines[line].text);
    if (why) doc_text(object, "because", why);
}

int report_lines(const struct options *options, const struct outcome *outcomes, int n, doc *document)
{
    int count[LINE_COUNT][FAILED + 1] = {{0}}, passed = 0, lost = 0;
    for (int i = 0; i < n; i++)
        for (int k = 0; k < LINES_EACH && outcomes[i].check->lines[k] != L_NONE; k++)
            count[outcomes[i].check->lines[k]][outcomes[i].verdict]++;
    doc *list = document ? doc_set(document, "rules_not_passed", doc_array()) : NULL;
    if (!document) printf("\n");
    for (int line = 1; line < LINE_COUNT; line++) {
        int *c = count[line];
        const char *why = excuse(options, line);
        if (c[PASSED] > 0 && c[FAILED] == 0) {
            passed++;
            continue;
        }
        if (options->filter != NULL && c[FAILED] == 0) continue;
        const char *what = c[FAILED] > 0 ? "FAILED" : c[SKIPPED] > 0 ? "skipped" : why != NULL ? "not run" : "NO CASE";
        take_line(line, what, c[FAILED] + c[SKIPPED] == 0 ? why : NULL, list);
        lost += c[FAILED] + c[SKIPPED] + c[PASSED] == 0 && why == NULL;
    }
    if (!document) printf("%d of %d rules passed\n", passed, LINE_COUNT - 1);
    if (document) doc_int(document, "rules_passed", passed);
    if (document) doc_int(document, "rules", LINE_COUNT - 1);
    return lost;
}

void report_list(const struct options *options, const struct cases *cases)
{
    for (int c = 0; c < cases->n; c++) printf("%s\n", cases->check[c].name);
    printf("\n%d cases\n\n", cases->n);
    for (int line = 1; line < LINE_COUNT; line++) {
        int count = 0;
        const char *first = NULL, *why = excuse(options, line);
        for (int c = 0; c < cases->n; c++) {
            if (!names(&cases->check[c], line)) continue;
            if (count++ == 0) first = cases->check[c].name;
        }
        printf("%-24s %-11s %s\n    ", lines[line].id, lines[line].section, lines[line].text);
        if (count > 0)
            printf("%d case%s, the first %s\n", count, count == 1 ? "" : "s", first);
        else
            printf("%s\n", why != NULL ? why : "NO CASE");
    }
}
