#include "bench/alternatives.h"
#include "bench/measure.h"
#include "bench/memory.h"

#include <string.h>

void alternatives_world(char text[DESCRIPTION_MAX])
{
    char backend[64];
    const char *name = tutti_get_backend(NULL), *colon = strchr(name, ':');
    snprintf(backend, sizeof backend, "%s", colon ? colon + 1 : name);
    backend[strcspn(backend, "|,")] = '\0';
    int hosts = 1, ranks = tutti_get_world_size(NULL);
    for (int i = 0; i < ranks; i++) hosts = tutti_get_host(NULL, i) >= hosts ? tutti_get_host(NULL, i) + 1 : hosts;
    snprintf(text, DESCRIPTION_MAX, "%s %d %d ", backend, ranks, hosts);
}

bool alternatives_taken(const struct bench_case *c, tutti_group *group, char name[ALTERNATIVE_NAME_MAX])
{
    static const char lead[] = "\nalgorithm ";
    char text[4096];
    TUTTI_CHECK(tutti_explain((tutti_kind)c->op->kind, c->bytes, tutti_with(.group = group), text, sizeof text));
    const char *at = strstr(text, lead);
    if (at == NULL) return false;
    at += strlen(lead);
    snprintf(name, ALTERNATIVE_NAME_MAX, "%.*s", (int)strcspn(at, ":"), at);
    return true;
}

tutti_group *alternatives_group(const struct bench_case *c, const char *algorithm)
{
    tutti_group *group;
    int ranks[c->ranks];
    for (int i = 0; i < c->ranks; i++) ranks[i] = i;
    TUTTI_CHECK(tutti_new_group(ranks, c->ranks, &(tutti_group_opts){.algorithm = algorithm}, &group));
    return group;
}

void alternatives_open(const struct bench_case *c, struct alternatives *list)
{
    const char *wanted, *kind = tutti_kind_find((tutti_kind)c->op->kind)->name;
    list->n = 0;
    for (int i = 0; list->n < ALTERNATIVES_MAX; i++) {
        char algorithm[128], taken[ALTERNATIVE_NAME_MAX];
        wanted = tutti_algorithm_name((tutti_kind)c->op->kind, i);
        if (wanted == NULL) return;
        snprintf(algorithm, sizeof algorithm, "%s=%s", kind, wanted);
        tutti_group *group = alternatives_group(c, algorithm);
        /* A path may not be possible for the size. */
        if (alternatives_taken(c, group, taken) && strcmp(taken, wanted) == 0) {
            list->name[list->n] = wanted;
            list->group[list->n++] = group;
        } else {
            TUTTI_CHECK(tutti_destroy_process_group(group));
        }
    }
}

void alternatives_close(struct alternatives *list)
{
    for (int i = 0; i < list->n; i++) TUTTI_CHECK(tutti_destroy_process_group(list->group[i]));
    list->n = 0;
}

double alternatives_time(const struct options *options, struct bench_case *c, tutti_group *group, bool *right)
{
    struct result result = {0};
    c->group = group;
    c->in = memory_new(bench_numel(c), options->dtype->dtype, options->from_tutti);
    c->out = memory_new(bench_numel(c), options->dtype->dtype, options->from_tutti);
    data_fill(&c->data, c->rank, c->in);
    TUTTI_CHECK(measure(c, options->milliseconds, &result));
    memory_free(c->in, options->from_tutti);
    memory_free(c->out, options->from_tutti);
    *right &= result.wrong == 0;
    return result.mean;
}
