#include "trace/groups.h"

#include <stdlib.h>
#include <string.h>

enum { RANKS_MOST = 1 << 20 };

static bool fill_group(struct group *group, const struct record_group *from)
{
    int most = from->size < 0 ? 0 : from->size < RANKS_MOST ? from->size : RANKS_MOST;
    group->name = from->name;
    group->id = from->id;
    group->ranks = malloc(((size_t)most + 1) * sizeof *group->ranks);
    if (group->ranks == NULL) return false;
    group->n = record_ranks(from->ranks, group->ranks, most);
    group->views = calloc((size_t)group->n + 1, sizeof *group->views);
    return group->views != NULL;
}

static bool is_same(const struct group *group, const struct record_group *from)
{
    for (int i = 0; i < group->n; i++) {
        if (group->views[i].group == NULL) continue;
        return group->id == from->id && strcmp(group->name, from->name) == 0 &&
               strcmp(group->views[i].group->ranks, from->ranks) == 0;
    }
    return false;
}

/* Returns the group, which is new if no other file has it, or NULL if out of memory. */
static struct group *find_group(struct groups *groups, const struct record_group *from)
{
    for (size_t i = 0; i < groups->n; i++)
        if (is_same(&groups->all[i], from)) return &groups->all[i];
    struct group *larger = realloc(groups->all, (groups->n + 1) * sizeof *larger);
    if (larger == NULL) return NULL;
    groups->all = larger;
    struct group *group = &larger[groups->n++];
    *group = (struct group){0};
    return fill_group(group, from) ? group : NULL;
}

/* Adds what a file says.  Of two files of one rank, the later one counts. */
static void add_view(struct group *group, const struct record_file *file, const struct record_group *from)
{
    for (int i = 0; i < group->n; i++) {
        struct view *view = &group->views[i];
        if (group->ranks[i] != from->rank) continue;
        if (view->group == NULL || view->file->wall_ns < file->wall_ns) *view = (struct view){file, from};
        return;
    }
}

bool groups_collect(const struct folder *folder, struct groups *groups)
{
    *groups = (struct groups){0};
    for (size_t i = 0; i < folder->n; i++)
        for (size_t k = folder->files[i].n_groups; k-- > 0;) { /* the file has the latest group first */
            struct group *group = find_group(groups, &folder->files[i].groups[k]);
            if (group == NULL) return false;
            add_view(group, &folder->files[i], &folder->files[i].groups[k]);
        }
    return true;
}

void groups_free(struct groups *groups)
{
    for (size_t i = 0; i < groups->n; i++) {
        free(groups->all[i].ranks);
        free(groups->all[i].views);
    }
    free(groups->all);
    *groups = (struct groups){0};
}

/* ---- operations of a rank ---------------------------------------------------------------------------------------- */

static const struct record_op *op_of(const struct view *view, size_t i)
{
    return &view->file->ops[view->group->first + i];
}

bool view_is_under_way(const struct view *view, const struct record_op *op)
{
    return op->waits || (view->group->busy && strcmp(op->state, "under_way") == 0);
}

const struct record_op *view_waiting(const struct view *view)
{
    const struct record_op *found = NULL;
    for (size_t i = 0; view->group != NULL && i < view->group->n; i++) {
        const struct record_op *op = op_of(view, i);
        if (op->seq > 0 && view_is_under_way(view, op) && (found == NULL || op->seq < found->seq)) found = op;
    }
    return found;
}

const struct record_op *view_find(const struct view *view, uint64_t seq)
{
    if (view->group == NULL || view->group->n == 0) return NULL;
    uint64_t guess = seq - op_of(view, 0)->seq; /* collectives come first, in order and without gaps */
    if (guess < view->group->n && op_of(view, guess)->seq == seq) return op_of(view, guess);
    for (size_t i = 0; i < view->group->n; i++)
        if (op_of(view, i)->seq == seq) return op_of(view, i);
    return NULL;
}

const struct record_op *view_latest(const struct view *view)
{
    const struct record_op *found = NULL;
    for (size_t i = 0; view->group != NULL && i < view->group->n; i++) {
        const struct record_op *op = op_of(view, i);
        if (op->seq > 0 && (found == NULL || op->seq > found->seq)) found = op;
    }
    return found;
}

uint64_t view_oldest(const struct view *view)
{
    uint64_t oldest = UINT64_MAX;
    for (size_t i = 0; view->group != NULL && i < view->group->n; i++)
        if (op_of(view, i)->seq > 0 && op_of(view, i)->seq < oldest) oldest = op_of(view, i)->seq;
    return oldest;
}

/* Returns the operation under way that was issued first, or NULL. */
static const struct record_op *longest_of(const struct view *view)
{
    const struct record_op *found = NULL;
    for (size_t i = 0; view->group != NULL && i < view->group->n; i++) {
        const struct record_op *op = op_of(view, i);
        if (view_is_under_way(view, op) && (found == NULL || op->issued < found->issued)) found = op;
    }
    return found;
}

const struct record_op *groups_waiting(const struct groups *groups, int rank, const struct group **group)
{
    const struct record_op *found = NULL;
    for (size_t i = 0; i < groups->n; i++)
        for (int k = 0; k < groups->all[i].n; k++) {
            const struct record_op *op = groups->all[i].ranks[k] == rank ? longest_of(&groups->all[i].views[k]) : NULL;
            if (op == NULL || (found != NULL && found->issued <= op->issued)) continue;
            found = op;
            *group = &groups->all[i];
        }
    return found;
}
