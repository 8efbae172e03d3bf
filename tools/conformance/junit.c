#include "conformance/junit.h"

#include <stdio.h>

static void escape(FILE *file, const char *text)
{
    for (; *text != '\0'; text++) {
        unsigned char c = (unsigned char)*text;
        if (c == '&' || c == '<' || c == '>' || c == '"')
            fprintf(file, "&#%d;", c);
        else
            fputc(c >= 0x20 ? c : ' ', file);
    }
}

static void write_case(FILE *file, const struct outcome *outcome)
{
    fprintf(file, "    <testcase classname=\"%s\" name=\"", outcome->check->kind);
    escape(file, outcome->check->name);
    fprintf(file, "\" time=\"%.6f\"", outcome->seconds);
    if (outcome->verdict == PASSED) {
        fputs("/>\n", file);
        return;
    }
    fprintf(file, ">\n      <%s message=\"", outcome->verdict == FAILED ? "failure" : "skipped");
    escape(file, outcome->text);
    fputs("\"/>\n    </testcase>\n", file);
}

/* Writes the outcomes of one number of ranks, which are consecutive. */
static int write_suite(FILE *file, const struct options *options, const struct outcome *outcomes, int n)
{
    int count[FAILED + 1] = {0}, length = 0;
    double seconds = 0;
    for (; length < n && outcomes[length].ranks == outcomes[0].ranks; length++) {
        count[outcomes[length].verdict]++;
        seconds += outcomes[length].seconds;
    }
    fprintf(file, "  <testsuite name=\"");
    escape(file, options->backend);
    fprintf(file, ", %d %s\" tests=\"%d\" failures=\"%d\" skipped=\"%d\" time=\"%.3f\">\n", outcomes[0].ranks,
            options->threads ? "threads"
            : options->join  ? "processes of a job"
                             : "processes",
            length, count[FAILED], count[SKIPPED], seconds);
    for (int i = 0; i < length; i++) write_case(file, &outcomes[i]);
    fputs("  </testsuite>\n", file);
    return length;
}

bool junit_write(const struct options *options, const struct outcome *outcomes, int n)
{
    FILE *file = fopen(options->junit, "w");
    if (file == NULL) return false;
    fputs("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites name=\"tutti-conformance\">\n", file);
    for (int at = 0; at < n;) at += write_suite(file, options, outcomes + at, n - at);
    fputs("</testsuites>\n", file);
    bool written = !ferror(file);
    return fclose(file) == 0 && written;
}
