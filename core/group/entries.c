#include "group/entries.h"

const struct backend_entry *entries_find(const struct tutti_group *group, const tutti_backend *backend)
{
    for (int device = 0; device < 2; device++)
        for (int i = 0; i < group->n_entries[device]; i++)
            if (group->entries[device][i].backend == backend) return &group->entries[device][i];
    return NULL;
}

const struct backend_entry *entries_find_control(const struct tutti_group *group)
{
    for (int i = 0; i < group->n_entries[0]; i++)
        if (TUTTI_HAS(group->entries[0][i].backend, tell)) return &group->entries[0][i];
    return NULL;
}

void entries_abort(struct tutti_group *group)
{
    if (group->aborted || group->shut) return;
    group->aborted = true;
    for (int device = 0; device < 2; device++)
        for (int i = 0; i < group->n_entries[device]; i++) {
            const struct backend_entry *entry = &group->entries[device][i];
            if (entry->state != NULL && TUTTI_HAS(entry->backend, abort)) entry->backend->abort(entry->state);
        }
}
