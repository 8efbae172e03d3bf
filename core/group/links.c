#include "group/links.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/cores.h"
#include "base/log.h"
#include "group/entries.h"
#include "progress/engine.h"

enum {
    LATENCY_MOST = 1000000000, /* ns */
    BYTES_MOST = 100000000,    /* per us */
    CORES_MOST = 999999,
    LINE_MAX_BYTES = 300
};

/* ---- rounding ------------------------------------------------------------------------------------------------ */

/* Returns the nearest power of the square root of 2; 0 for 0. */
static int64_t round_figure(int64_t value, int64_t most)
{
    if (value <= 0) return 0;
    if (value > most) value = most;
    return llround(exp2(round(2 * log2((double)value)) / 2));
}

void links_round(tutti_link *link)
{
    link->latency_ns = round_figure(link->latency_ns, LATENCY_MOST);
    link->overhead_ns = round_figure(link->overhead_ns, LATENCY_MOST);
    link->bytes_per_us = round_figure(link->bytes_per_us, BYTES_MOST);
}

/* ---- text ---------------------------------------------------------------------------------------------------- */

static int print_link(char *text, size_t capacity, const tutti_link *link)
{
    return snprintf(text, capacity, " %" PRIi64 " %" PRIi64 " %" PRIi64 " %" PRIi32 " %" PRIi32, link->latency_ns,
                    link->overhead_ns, link->bytes_per_us, link->latency_from, link->bytes_from);
}

static size_t print_line(char line[LINE_MAX_BYTES], const char *backend, const tutti_links *links)
{
    int n = snprintf(line, LINE_MAX_BYTES, "link %.32s", backend);
    n += print_link(line + n, LINE_MAX_BYTES - (size_t)n, &links->between);
    n += print_link(line + n, LINE_MAX_BYTES - (size_t)n, &links->within);
    n += snprintf(line + n, LINE_MAX_BYTES - (size_t)n, " %" PRIu32 "\n", links->cores);
    return (size_t)n;
}

static bool is_source(int32_t source)
{
    return source >= TUTTI_LINK_ASSUMED && source <= TUTTI_LINK_MEASURED;
}

static bool is_valid(const tutti_link *link)
{
    return link->latency_ns >= 0 && link->latency_ns <= 2 * (int64_t)LATENCY_MOST && link->overhead_ns >= 0 &&
           link->overhead_ns <= 2 * (int64_t)LATENCY_MOST && link->bytes_per_us >= 0 &&
           link->bytes_per_us <= 2 * (int64_t)BYTES_MOST && is_source(link->latency_from) &&
           is_source(link->bytes_from);
}

static const char *parse_link(const char *text, tutti_link *link)
{
    int used = 0;
    int n = sscanf(text, " %12" SCNi64 " %12" SCNi64 " %12" SCNi64 " %3" SCNi32 " %3" SCNi32 "%n", &link->latency_ns,
                   &link->overhead_ns, &link->bytes_per_us, &link->latency_from, &link->bytes_from, &used);
    return n == 5 && is_valid(link) ? text + used : NULL;
}

const char *links_parse(const char *line, char backend[33], tutti_links *links)
{
    int used = 0;
    *links = (tutti_links){.size = sizeof *links};
    if (sscanf(line, "link %32[a-z0-9_]%n", backend, &used) != 1) return NULL;
    const char *at = parse_link(line + used, &links->between);
    if (at != NULL) at = parse_link(at, &links->within);
    if (at == NULL || sscanf(at, " %7" SCNu32 "%n", &links->cores, &used) != 1) return NULL;
    return links->cores <= CORES_MOST && at[used] == '\n' ? at + used + 1 : NULL;
}

/* ---- groups -------------------------------------------------------------------------------------------------- */

static bool is_known(const tutti_links *links)
{
    return links->between.latency_ns > 0 || links->between.bytes_per_us > 0 || links->within.latency_ns > 0 ||
           links->cores > 0;
}

/* True for the first of the entries that share a state: one backend may serve both devices. */
static bool is_first_of(const struct tutti_group *group, const struct backend_entry *entry)
{
    return entries_find(group, entry->backend) == entry;
}

static void set_links(struct tutti_group *group, const char *backend, const tutti_links *links)
{
    for (int device = 0; device < 2; device++)
        for (int i = 0; i < group->n_entries[device]; i++) {
            struct backend_entry *entry = &group->entries[device][i];
            if (strcmp(entry->backend->name, backend) == 0) entry->links = *links;
        }
}

static int ask_backend(struct tutti_group *group, const struct backend_entry *entry)
{
    tutti_links links = {.size = sizeof links};
    engine_lock(group->engine);
    int status = entry->backend->links(entry->state, &links);
    engine_unlock(group->engine);
    if (status != TUTTI_OK || group->rank != 0) return status;
    links_round(&links.between);
    links_round(&links.within);
    links.cores = (uint32_t)cores_shared(group->local_world_size > 0 ? group->local_world_size : group->size);
    set_links(group, entry->backend->name, &links);
    return TUTTI_OK;
}

int links_find(struct tutti_group *group)
{
    int status = TUTTI_OK;
    for (int device = 0; device < 2; device++)
        for (int i = 0; i < group->n_entries[device] && status == TUTTI_OK; i++) {
            const struct backend_entry *entry = &group->entries[device][i];
            if (TUTTI_HAS(entry->backend, links) && is_first_of(group, entry)) status = ask_backend(group, entry);
        }
    return status;
}

static void log_link(const struct tutti_group *group, const char *backend, const char *where, const tutti_link *link)
{
    log_write(LOG_INFO, LOG_GROUP,
              "group %s: rank %d: %s messages %s: latency %" PRIi64 " ns, %" PRIi64 " of it busy, %" PRIi64
              " bytes/us (0: assumed)",
              group->name, group->rank, backend, where, link->latency_ns, link->overhead_ns, link->bytes_per_us);
}

void links_log(const struct tutti_group *group)
{
    for (int device = 0; device < 2; device++)
        for (int i = 0; i < group->n_entries[device]; i++) {
            const struct backend_entry *entry = &group->entries[device][i];
            if (!is_known(&entry->links) || !is_first_of(group, entry)) continue;
            log_link(group, entry->backend->name, "between hosts", &entry->links.between);
            log_link(group, entry->backend->name, "within a host", &entry->links.within);
        }
}

size_t links_print(const struct tutti_group *group, char text[LINKS_TEXT_MAX])
{
    size_t used = 0;
    for (int device = 0; device < 2; device++)
        for (int i = 0; i < group->n_entries[device]; i++) {
            const struct backend_entry *entry = &group->entries[device][i];
            if (!is_known(&entry->links) || !is_first_of(group, entry)) continue;
            if (used + LINE_MAX_BYTES < LINKS_TEXT_MAX)
                used += print_line(text + used, entry->backend->name, &entry->links);
        }
    text[used] = '\0';
    return used;
}

const char *links_read(struct tutti_group *group, const char *text)
{
    while (text != NULL && strncmp(text, "link ", 5) == 0) {
        char backend[33];
        tutti_links links;
        text = links_parse(text, backend, &links);
        if (text != NULL) set_links(group, backend, &links);
    }
    return text;
}
