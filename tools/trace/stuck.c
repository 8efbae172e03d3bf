/* tutti-trace stuck FOLDER: says in sentences where each rank stands. */
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "trace/commands.h"
#include "trace/groups.h"

enum { CALLS_MOST = 16, POINTS_MOST = 8, MESSAGES_MOST = 16, MISSING_MOST = 8 };

/* A set of a group's ranks, by their place in it. */
struct set {
    const struct group *group;
    bool *has;
    int n;
};

static bool make_set(const struct group *group, struct set *set)
{
    *set = (struct set){.group = group, .has = calloc((size_t)group->n + 1, sizeof *set->has)};
    return set->has != NULL;
}

static void add_to(struct set *set, int i)
{
    set->n += !set->has[i];
    set->has[i] = true;
}

/* Prints "rank 2" or "ranks 0-3, 7".  begins: at the beginning of a sentence. */
static void print_ranks(const struct set *set, bool begins)
{
    const int *ranks = set->group->ranks;
    const char *before = set->n == 1 ? "ank " : "anks ";
    printf(begins ? "R" : "r");
    for (int first = 0, next; first < set->group->n; first = next) {
        next = first + 1;
        if (!set->has[first]) continue;
        while (next < set->group->n && set->has[next] && ranks[next] == ranks[next - 1] + 1) next++;
        printf(next - first > 1 ? "%s%d-%d" : "%s%d", before, ranks[first], ranks[next - 1]);
        before = ", ";
    }
}

/* ---- operations ------------------------------------------------------------------------------------------------ */

/* Prints "#3 all_reduce(float32, 4 elements, SUM)" or "recv from rank 1, tag 5 (4 bytes)". */
static void print_op(const struct record_op *op)
{
    if (op->seq > 0) {
        printf("#%" PRIu64 " %s", op->seq, op->call[0] != '\0' ? op->call : op->kind);
        return;
    }
    bool sends = strcmp(op->kind, "send") == 0;
    printf("%s %s ", op->kind, sends ? "to" : "from");
    if (op->root >= 0)
        printf("rank %d", op->root);
    else
        printf("any rank");
    if (op->tag >= 0) printf(", tag %d", op->tag);
    printf(" (%" PRId64 " bytes)", op->bytes);
}

static double seconds_since(const struct view *view, int64_t ns)
{
    return ((double)view->file->ns - (double)ns) / 1e9;
}

static void print_mark(const struct view *view, const struct record_op *op)
{
    const char *text = op->mark > 0 ? record_mark_text(view->file, op->mark) : NULL;
    if (text != NULL) printf(", after the mark \"%s\"", text);
}

/* True if the ranks' calls of an operation are not the same. */
static bool differ(const struct record_op *a, const struct record_op *b)
{
    return a->fingerprint != b->fingerprint || strcmp(a->call, b->call) != 0;
}

/* ---- calls that differ ------------------------------------------------------------------------------------------ */

/* Returns the first sequence number at which two ranks' calls differ, or 0. */
static uint64_t find_difference(const struct group *group)
{
    uint64_t first = 0, last = 0;
    for (int i = 0; i < group->n; i++) {
        const struct record_op *latest = view_latest(&group->views[i]);
        uint64_t oldest = view_oldest(&group->views[i]);
        if (latest == NULL) continue;
        if (latest->seq > last) last = latest->seq;
        if (first == 0 || oldest < first) first = oldest;
    }
    for (uint64_t seq = first; seq > 0 && seq <= last && seq - first < UINT16_MAX; seq++) {
        const struct record_op *any = NULL;
        for (int i = 0; i < group->n; i++) {
            const struct record_op *op = view_find(&group->views[i], seq);
            if (op != NULL && any != NULL && differ(op, any)) return seq;
            if (op != NULL) any = op;
        }
    }
    return 0;
}

/* Collects the ranks from `from` on whose call is the same as that of `from`. */
static void collect_alike(const struct group *group, uint64_t seq, int from, struct set *alike, struct set *printed)
{
    const struct record_op *call = view_find(&group->views[from], seq);
    for (int i = from; i < group->n; i++) {
        const struct record_op *op = view_find(&group->views[i], seq);
        if (op == NULL || printed->has[i] || strcmp(op->call, call->call) != 0) continue;
        add_to(alike, i);
        add_to(printed, i);
    }
}

/* Prints the calls of a sequence number, each with its ranks.  Returns their number. */
static int print_calls(const struct group *group, uint64_t seq)
{
    struct set printed, alike;
    int n = 0;
    if (!make_set(group, &printed)) return 0;
    for (int i = 0; i < group->n && n < CALLS_MOST; i++) {
        if (printed.has[i] || view_find(&group->views[i], seq) == NULL || !make_set(group, &alike)) continue;
        collect_alike(group, seq, i, &alike, &printed);
        printf(n++ > 0 ? "; " : "");
        print_ranks(&alike, false);
        printf(" called %s", view_find(&group->views[i], seq)->call);
        free(alike.has);
    }
    free(printed.has);
    return n;
}

static bool print_difference(const struct group *group)
{
    uint64_t seq = find_difference(group);
    if (seq == 0) return false;
    printf("  The calls differ at #%" PRIu64 ": ", seq);
    int n = print_calls(group, seq);
    printf(n == 1 ? ", but with parts of other sizes, or after other calls, which are no longer recorded.\n" : ".\n");
    return true;
}

/* ---- waiting ---------------------------------------------------------------------------------------------------- */

/* Says where a rank is that others wait for. */
static void print_missing(const struct groups *groups, const struct group *group, int i)
{
    const struct view *view = &group->views[i];
    const struct record_op *latest = view_latest(view);
    const struct group *other = NULL;
    const struct record_op *waits = groups_waiting(groups, group->ranks[i], &other);
    if (latest == NULL) {
        printf("    Rank %d has not called it, and nothing else in this group", group->ranks[i]);
    } else {
        printf("    Rank %d has not called it: its latest is ", group->ranks[i]);
        print_op(latest);
        printf(waits == latest ? "" : ", which has ended");
        print_mark(view, latest);
    }
    if (waits == NULL) {
        printf("; it is in no operation");
    } else if (waits != latest) {
        printf("; it waits in ");
        print_op(waits);
        printf(" of group %s", other->name);
    }
    printf(".\n");
}

/* The ranks of a group, by what they have done about one collective. */
struct point {
    uint64_t seq;
    const struct record_op *op; /* of a rank that waits in it */
    const struct view *view;    /* of that rank */
    struct set waiting, missing, absent;
};

static void free_point(struct point *point)
{
    free(point->waiting.has);
    free(point->missing.has);
    free(point->absent.has);
}

static bool make_point(const struct group *group, uint64_t seq, struct point *point)
{
    *point = (struct point){.seq = seq};
    bool made = make_set(group, &point->waiting) && make_set(group, &point->missing) && make_set(group, &point->absent);
    for (int i = 0; made && i < group->n; i++) {
        const struct view *view = &group->views[i];
        const struct record_op *op = view_waiting(view);
        if (view->group == NULL) {
            add_to(&point->absent, i);
        } else if (op != NULL && op->seq == seq) {
            add_to(&point->waiting, i);
            bool longer =
                point->op == NULL || seconds_since(view, op->issued) > seconds_since(point->view, point->op->issued);
            if (longer) point->op = op;
            if (longer) point->view = view;
        } else if (view->group->seq < seq) {
            add_to(&point->missing, i);
        }
    }
    return made;
}

/* Says where the ranks are that have not called it: of many ranks only the first. */
static void print_all_missing(const struct groups *groups, const struct group *group, const struct point *point)
{
    struct set rest;
    int n = 0;
    if (!make_set(group, &rest)) return;
    for (int i = 0; i < group->n; i++) {
        if (!point->missing.has[i]) continue;
        if (n++ < MISSING_MOST)
            print_missing(groups, group, i);
        else
            add_to(&rest, i);
    }
    if (rest.n > 0) {
        printf("    ");
        print_ranks(&rest, true);
        printf(rest.n == 1 ? " has not called it either.\n" : " have not called it either.\n");
    }
    free(rest.has);
}

static void print_point(const struct groups *groups, const struct group *group, const struct point *point)
{
    printf("  ");
    if (point->waiting.n == group->n)
        printf("All ranks");
    else
        print_ranks(&point->waiting, true);
    printf(point->waiting.n == 1 ? " waits in " : " wait in ");
    print_op(point->op);
    printf(" for %.1f s", seconds_since(point->view, point->op->issued));
    print_mark(point->view, point->op);
    printf(".\n");
    print_all_missing(groups, group, point);
    if (point->absent.n > 0) {
        printf("    ");
        print_ranks(&point->absent, true);
        printf(point->absent.n == 1 ? " has no file: it may be the one that is awaited.\n"
                                    : " have no file: they may be the ones that are awaited.\n");
    }
    if (point->missing.n + point->absent.n > 0) return;
    printf("    Every rank has called it");
    if (point->op->peers[0] != '\0')
        printf("; the rank that waits longest waits for data of rank %s", point->op->peers);
    printf(".\n");
}

/* Returns the smallest sequence number above `after` that a rank waits in, or 0. */
static uint64_t next_point(const struct group *group, uint64_t after)
{
    uint64_t found = 0;
    for (int i = 0; i < group->n; i++) {
        const struct record_op *op = view_waiting(&group->views[i]);
        if (op != NULL && op->seq > after && (found == 0 || op->seq < found)) found = op->seq;
    }
    return found;
}

static int print_points(const struct groups *groups, const struct group *group)
{
    struct point point;
    int n = 0;
    for (uint64_t seq = 0; n < POINTS_MOST && (seq = next_point(group, seq)) != 0; n++) {
        if (make_point(group, seq, &point)) print_point(groups, group, &point);
        free_point(&point);
    }
    return n;
}

/* Prints the messages under way of each rank.  Returns their number. */
static int print_messages(const struct group *group)
{
    int n = 0;
    for (int i = 0; i < group->n; i++) {
        const struct view *view = &group->views[i];
        for (size_t k = 0; view->group != NULL && k < view->group->n; k++) {
            const struct record_op *op = &view->file->ops[view->group->first + k];
            if (!view_is_under_way(view, op) || op->seq > 0 || n++ >= MESSAGES_MOST) continue;
            printf("  Rank %d waits in ", group->ranks[i]);
            print_op(op);
            printf(" for %.1f s", seconds_since(view, op->issued));
            print_mark(view, op);
            printf(".\n");
        }
    }
    if (n > MESSAGES_MOST) printf("  %d more messages are under way.\n", n - MESSAGES_MOST);
    return n;
}

/* ---- groups ----------------------------------------------------------------------------------------------------- */

static bool print_failure(const struct group *group)
{
    for (int i = 0; i < group->n; i++) {
        const struct record_group *found = group->views[i].group;
        if (found == NULL || found->status[0] == '\0') continue;
        printf("  It has failed: %s: %s.\n", found->status, found->text);
        return true;
    }
    return false;
}

/* Prints how many collectives the ranks of a group without operations under way have called. */
static void print_counts(const struct group *group)
{
    uint64_t least = UINT64_MAX, most = 0;
    for (int i = 0; i < group->n; i++) {
        if (group->views[i].group == NULL) continue;
        if (group->views[i].group->seq < least) least = group->views[i].group->seq;
        if (group->views[i].group->seq > most) most = group->views[i].group->seq;
    }
    printf("  No operation is under way. ");
    if (least == most)
        printf("The ranks have called %" PRIu64 " collectives.\n", most);
    else
        printf("The ranks have called %" PRIu64 " to %" PRIu64 " collectives.\n", least, most);
}

static void print_absent(const struct group *group)
{
    struct set absent;
    if (!make_set(group, &absent)) return;
    for (int i = 0; i < group->n; i++)
        if (group->views[i].group == NULL) add_to(&absent, i);
    if (absent.n > 0) {
        printf("  No file has ");
        print_ranks(&absent, false);
        printf(": killed, stopped, without this group, or with files in another folder.\n");
    }
    free(absent.has);
}

/* True if anything about the group is worth a sentence. */
static bool is_of_interest(const struct group *group)
{
    for (int i = 0; i < group->n; i++) {
        const struct view *view = &group->views[i];
        if (view->group == NULL || view->group->status[0] != '\0') return true;
        for (size_t k = 0; k < view->group->n; k++)
            if (view_is_under_way(view, &view->file->ops[view->group->first + k])) return true;
        if (view_waiting(view) != NULL || view->group->seq != group->views[0].group->seq) return true;
    }
    return find_difference(group) != 0;
}

static void print_group(const struct groups *groups, const struct group *group)
{
    printf("Group %s of %d ranks:\n", group->name, group->n);
    print_absent(group);
    print_difference(group);
    if (print_points(groups, group) + print_messages(group) == 0) print_counts(group);
    print_failure(group);
}

/* ---- the command ------------------------------------------------------------------------------------------------ */

static void print_files(const struct folder *folder)
{
    int64_t first = INT64_MAX, last = 0;
    for (size_t i = 0; i < folder->n; i++) {
        if (folder->files[i].wall_ns < first) first = folder->files[i].wall_ns;
        if (folder->files[i].wall_ns > last) last = folder->files[i].wall_ns;
    }
    printf("%zu %s, written within %.1f s.\n", folder->n, folder->n == 1 ? "file" : "files",
           ((double)last - (double)first) / 1e9);
}

/* True if the file is whole, of a rank, and without a group. */
static bool is_groupless(const struct record_file *file)
{
    return file->is_whole && file->n_groups == 0 && file->rank >= 0 && file->rank < INT_MAX;
}

/* Names the ranks whose files have no group. */
static void print_groupless(const struct folder *folder)
{
    struct group none = {.ranks = calloc(folder->n + 1, sizeof *none.ranks)};
    struct set set = {0};
    for (size_t i = 0; none.ranks != NULL && i < folder->n; i++)
        if (is_groupless(&folder->files[i])) none.ranks[none.n++] = folder->files[i].rank;
    if (none.n > 0 && make_set(&none, &set)) {
        for (int i = 0; i < none.n; i++) add_to(&set, i);
        print_ranks(&set, true);
        printf(set.n == 1 ? " is" : " are");
        printf(" in no group: still in tutti_init_process_group, or without a group again.\n");
    }
    free(set.has);
    free(none.ranks);
}

static int report(const char *path)
{
    struct folder folder;
    struct groups groups = {0};
    size_t quiet = 0;
    bool read = folder_read(path, &folder), fits = read && groups_collect(&folder, &groups);
    if (read && !fits) fprintf(stderr, "tutti-trace: out of memory for the groups of %zu files\n", folder.n);
    if (fits) print_files(&folder);
    if (fits) print_groupless(&folder);
    for (size_t i = 0; fits && i < groups.n; i++) {
        if (is_of_interest(&groups.all[i]))
            print_group(&groups, &groups.all[i]);
        else
            quiet++;
    }
    if (fits && quiet > 0)
        printf("%zu %s no operation under way, and equal calls on all ranks.\n", quiet,
               quiet == 1 ? "group has" : "groups have");
    groups_free(&groups);
    folder_close(&folder);
    return fits ? 0 : 1;
}

const struct cli trace_stuck_cli = {
    .program = "tutti-trace",
    .command = "stuck",
    .usage = "tutti-trace stuck DIR",
    .summary = "Says where each rank stands.\n"
               "It reads the files that a job has written to TUTTI_RECORD_DIR, and names the ranks that are\n"
               "missing in a call, and the calls that differ.",
    .words = CLI_FOLDER,
};

int trace_stuck(int argc, char **argv)
{
    int first = 0, status = cli_parse(&trace_stuck_cli, argc, argv, NULL, &first);
    if (status != CLI_GO_ON) return status;
    if (first + 1 == argc) return report(argv[first]);
    cli_refuse(&trace_stuck_cli, "name one folder");
    return CLI_USAGE;
}
