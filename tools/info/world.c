#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <tutti/tutti.h>
#include <unistd.h>

#include "info/describe.h"
#include "info/lines.h"

/* The first line of a rank's text. */
#define RANK_LINE "rank %d: host %d (%s), process %d, %d cores"
#define RANK_LINE_SCAN "rank %d: host %d (%255[^)]), process %d, %d cores"

static void add_rank(doc *list, const char *text)
{
    char name[256] = "?";
    int rank = -1, host = -1, pid = -1, cores = -1;
    doc *member = doc_add(list, doc_object());
    if (sscanf(text, RANK_LINE_SCAN, &rank, &host, name, &pid, &cores) != 5) rank = -1;
    doc_int(member, "rank", rank);
    doc_int(member, "host", host);
    doc_text(member, "host_name", name);
    doc_int(member, "process", pid);
    doc_int(member, "cores_allowed", cores);
    lines_add(member, "lines", text + strcspn(text, "\n") + 1);
}

static void take_rank(doc *list, const char *text)
{
    if (list) {
        add_rank(list, text);
        return;
    }
    printf("%.*s\n", (int)strcspn(text, "\n"), text);
    lines_print("    ", text + strcspn(text, "\n") + 1);
}

/* Gathers the lines of every rank on rank 0. */
static void describe_ranks(doc *world_document)
{
    char text[LINES_MAX], host[256] = "?";
    int rank = tutti_get_rank(NULL), world = tutti_get_world_size(NULL);
    gethostname(host, sizeof host - 1);
    int used = snprintf(text, sizeof text, RANK_LINE "\n", rank, tutti_get_host(NULL, rank), host, (int)getpid(),
                        lines_cores());
    TUTTI_CHECK(tutti_describe_group(NULL, text + used, sizeof text - (size_t)used));
    tutti_bytes *all = calloc((size_t)world, sizeof *all);
    if (all == NULL) abort();
    TUTTI_CHECK(tutti_all_gather_bytes(all, world, text, strlen(text), NULL));
    doc *list = rank == 0 && world_document ? doc_set(world_document, "members", doc_array()) : NULL;
    for (int i = 0; rank == 0 && i < world; i++) {
        snprintf(text, sizeof text, "%.*s", (int)all[i].bytes, (const char *)all[i].data);
        take_rank(list, text);
    }
    tutti_bytes_free(all, world);
    free(all);
}

/* ---- choices ---------------------------------------------------------------------------------------------------- */

/* Returns the first line that begins with `word`, or "". */
static const char *line_of(char *text, const char *word)
{
    for (char *line = strtok(text, "\n"); line != NULL; line = strtok(NULL, "\n"))
        if (strncmp(line, word, strlen(word)) == 0) return line;
    return "";
}

static void take_choice(doc *list, const char *name, int64_t bytes, const char *line)
{
    if (!list) {
        printf("%s from %lld bytes: %s\n", name, (long long)bytes, line);
        return;
    }
    doc *choice = doc_add(list, doc_object());
    doc_text(choice, "op", name);
    doc_int(choice, "from_bytes", bytes);
    doc_text(choice, "line", line);
}

/* Takes a line for each size at which the chosen algorithm changes. */
static void describe_choices(doc *list, const char *name, tutti_kind kind)
{
    char text[LINES_MAX], last[LINES_MAX] = "";
    for (int64_t bytes = 4; bytes <= INT64_C(1) << 30; bytes *= 2) {
        if (tutti_explain(kind, bytes, NULL, text, sizeof text) != TUTTI_OK) {
            if (!list) printf("%s: %s\n", name, tutti_last_error());
            return;
        }
        char *second = strchr(text, '\n') + 1, copy[LINES_MAX];
        snprintf(copy, sizeof copy, "%s", second);
        const char *line = line_of(copy, "algorithm ");
        if (*line == '\0') line = strtok(second, "\n");
        if (strcmp(line, last) != 0) take_choice(list, name, bytes, line);
        snprintf(last, sizeof last, "%s", line);
        if (kind == TUTTI_BARRIER) return;
    }
}

void describe_world(doc *document)
{
    static const struct {
        const char *name;
        tutti_kind kind;
    } kinds[] = {{"barrier", TUTTI_BARRIER},       {"broadcast", TUTTI_BROADCAST},
                 {"all_reduce", TUTTI_ALL_REDUCE}, {"reduce", TUTTI_REDUCE},
                 {"all_gather", TUTTI_ALL_GATHER}, {"gather", TUTTI_GATHER},
                 {"scatter", TUTTI_SCATTER},       {"reduce_scatter", TUTTI_REDUCE_SCATTER},
                 {"all_to_all", TUTTI_ALL_TO_ALL}, {"scan", TUTTI_SCAN},
                 {"exscan", TUTTI_EXSCAN}};
    bool speaks = tutti_get_rank(NULL) == 0;
    doc *world = document ? doc_set(document, "world", doc_object()) : NULL;
    if (world) doc_int(world, "ranks", tutti_get_world_size(NULL));
    if (world) doc_text(world, "backend", tutti_get_backend(NULL));
    if (speaks && !world) printf("world of %d ranks on %s\n", tutti_get_world_size(NULL), tutti_get_backend(NULL));
    TUTTI_CHECK(tutti_barrier(NULL)); /* makes the connections, so that the ranks can describe them */
    describe_ranks(world);
    doc *list = world ? doc_set(world, "choices", doc_array()) : NULL;
    for (size_t i = 0; speaks && i < sizeof kinds / sizeof *kinds; i++)
        describe_choices(list, kinds[i].name, kinds[i].kind);
}
