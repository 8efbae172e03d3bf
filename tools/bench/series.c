#include "bench/series.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct series *series_find(struct series_set *set, const char *label)
{
    for (int i = 0; i < set->n; i++)
        if (strncmp(set->list[i].label, label, SERIES_TEXT_MAX - 1) == 0) return &set->list[i];
    if (set->n == SERIES_MAX) return NULL;
    struct series *series = &set->list[set->n++];
    *series = (struct series){0};
    snprintf(series->label, sizeof series->label, "%s", label);
    return series;
}

bool series_add(struct series *series, const struct point *point)
{
    struct point *grown = realloc(series->points, (size_t)(series->n + 1) * sizeof *grown);
    if (!grown) return false;
    series->points = grown;
    series->points[series->n++] = *point;
    return true;
}

const struct point *series_at(const struct series *series, const char *op, int64_t bytes)
{
    for (int i = 0; i < series->n; i++)
        if (series->points[i].bytes == bytes && strcmp(series->points[i].op, op) == 0) return &series->points[i];
    return NULL;
}

static bool read_point(const doc *result, struct point *point)
{
    *point = (struct point){.us = doc_get_real(result, "us"),
                            .p95 = doc_get_real(result, "us_p95"),
                            .busbw = doc_get_real(result, "busbw")};
    double bytes = doc_get_real(result, "bytes");
    snprintf(point->op, sizeof point->op, "%s", doc_get_text(result, "op"));
    if (!(bytes >= 0 && bytes <= 0x1p50)) return false;
    point->bytes = (int64_t)bytes;
    return point->op[0] && point->us > 0 && isfinite(point->us) && point->p95 >= 0 && isfinite(point->p95) &&
           isfinite(point->busbw);
}

/* True if the results are of several backends. */
static bool has_several(const doc *results)
{
    const char *first = doc_get_text(doc_item(results, 0), "backend");
    for (int i = 1; doc_item(results, i); i++)
        if (strcmp(doc_get_text(doc_item(results, i), "backend"), first) != 0) return true;
    return false;
}

const char *series_read(struct series_set *set, const doc *document, const char *name)
{
    const doc *results = doc_get(document, "results"), *result;
    if (strcmp(doc_get_text(document, "tool"), "tutti-bench") != 0 || !doc_item(results, 0))
        return "it is not a document of tutti-bench --json with results";
    if (doc_get_real(document, "format") != 1)
        return "its format is not 1; compare it with the tutti-bench that wrote it";
    bool several = has_several(results);
    for (int i = 0; (result = doc_item(results, i)); i++) {
        char label[SERIES_TEXT_MAX];
        struct point point;
        const char *backend = doc_get_text(result, "backend");
        if (!read_point(result, &point)) continue; /* not supported there */
        snprintf(label, sizeof label, "%s%s%s", name, several ? " " : "", several ? backend : "");
        struct series *series = series_find(set, label);
        if (!series) return "it has too many backends";
        snprintf(series->backend, sizeof series->backend, "%s", backend);
        if (!series_add(series, &point)) return "there is no memory for it";
    }
    return NULL;
}

void series_free(struct series_set *set)
{
    for (int i = 0; i < set->n; i++) free(set->list[i].points);
    set->n = 0;
}
