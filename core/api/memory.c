/* tutti_alloc and tutti_free: memory that a backend allocates because it can use it better, or the system's. */
#include <inttypes.h>
#include <stdlib.h>

#include "base/error.h"
#include "group/allocations.h"
#include "group/group_check.h"
#include "progress/engine.h"

/* Returns the first of the group's backends that takes tensors of its device itself and allocates memory, or NULL. */
static const struct backend_entry *find_allocator(const struct tutti_group *group)
{
    int device = group_device_index(group->device);
    for (int i = 0; i < group->n_entries[device]; i++) {
        const tutti_backend *backend = group->entries[device][i].backend;
        if (group_takes_device(backend, device) && TUTTI_HAS(backend, alloc)) return &group->entries[device][i];
    }
    const struct backend_entry *stager = &group->stager;
    return device > 0 && stager->backend != NULL && TUTTI_HAS(stager->backend, alloc) ? stager : NULL;
}

/* Allocates and records under the engine's lock: another thread may free the memory, allocate it again, or close the
 * group. */
static int allocate(const struct tutti_group *group, const struct backend_entry *entry, size_t bytes, void **memory)
{
    void *made = NULL;
    if (group->shut)
        return error_set(TUTTI_ERR_ABORTED, "alloc: group %s has been destroyed; use another group", group->name);
    int status = entry != NULL ? entry->backend->alloc(entry->state, bytes, &made) : TUTTI_ERR_UNSUPPORTED;
    if (status == TUTTI_OK && group->device.type == TUTTI_CPU &&
        !allocations_add(made, bytes, group->engine, entry->backend)) {
        entry->backend->free(entry->state, made);
        status = error_set(TUTTI_ERR_NO_MEMORY, "alloc: out of memory to record the allocation %p", made);
    }
    if (status == TUTTI_OK) *memory = made;
    return status;
}

/* Frees memory that the program has kept after its groups ended. */
static int reclaim(const struct allocation *allocation)
{
    if (!TUTTI_HAS(allocation->backend, reclaim))
        return error_set(TUTTI_ERR_ABORTED,
                         "free: %p is memory of a group that has been destroyed, and backend %s cannot free it "
                         "after that; it stays until the process ends",
                         allocation->memory, allocation->backend->name);
    if (allocations_remove(allocation->memory)) allocation->backend->reclaim(allocation->memory, allocation->bytes);
    return TUTTI_OK;
}

static int give_back(const struct tutti_group *group, const struct backend_entry *entry, void *memory)
{
    struct allocation allocation;
    bool lent = group->device.type == TUTTI_CPU && allocations_find(memory, &allocation);
    if (group->device.type == TUTTI_CPU && !lent) {
        free(memory);
        return TUTTI_OK;
    }
    if (lent && allocation.tree == NULL) return reclaim(&allocation);
    if (group->shut)
        return error_set(TUTTI_ERR_ABORTED,
                         "free: group %s has been destroyed; its memory stays until the process ends", group->name);
    int status = entry != NULL ? entry->backend->free(entry->state, memory) : TUTTI_ERR_UNSUPPORTED;
    if (status == TUTTI_OK && lent) allocations_remove(memory);
    return status;
}

int tutti_alloc(tutti_group *group, int64_t bytes, void **memory)
{
    group = group_for_call(group);
    if (group == NULL) return TUTTI_ERR_INVALID_ARGUMENT;
    if (bytes < 0 || memory == NULL)
        return error_set(TUTTI_ERR_INVALID_ARGUMENT,
                         "alloc: bytes is %" PRId64 " and memory is %s; pass bytes >= 0 and a pointer", bytes,
                         memory == NULL ? "NULL" : "given");
    if (group->rank < 0)
        return error_set(TUTTI_ERR_INVALID_ARGUMENT, "alloc: this rank is not in group %s; only members may call this",
                         group->name);
    if ((uint64_t)bytes > PTRDIFF_MAX) /* on 32 bits */
        return error_set(TUTTI_ERR_NO_MEMORY, "alloc: %" PRId64 " bytes exceed what a process can address", bytes);
    const struct backend_entry *entry = find_allocator(group);
    engine_lock(group->engine);
    int status = allocate(group, entry, (size_t)bytes, memory);
    engine_unlock(group->engine);
    if (group->device.type == TUTTI_CPU && status == TUTTI_ERR_UNSUPPORTED) {
        if (posix_memalign(memory, 4096, bytes > 0 ? (size_t)bytes : 1) == 0) return TUTTI_OK;
        return error_set(TUTTI_ERR_NO_MEMORY, "alloc: out of memory for %" PRId64 " bytes", bytes);
    }
    if (entry == NULL)
        return error_set(TUTTI_ERR_UNSUPPORTED,
                         "alloc: no backend of group %s allocates on its device; use the device's own allocator",
                         group->name);
    return status;
}

int tutti_free(tutti_group *group, void *memory)
{
    if (memory == NULL) return TUTTI_OK;
    struct allocation allocation;
    bool lent = allocations_find(memory, &allocation);
    if (lent && allocation.tree == NULL) return reclaim(&allocation);
    if (!lent && group == NULL && !tutti_is_initialized()) { /* after all groups have ended: the system's memory */
        free(memory);
        return TUTTI_OK;
    }
    group = group_for_call(group);
    if (group == NULL) return TUTTI_ERR_INVALID_ARGUMENT;
    engine_lock(group->engine);
    int status = give_back(group, find_allocator(group), memory);
    engine_unlock(group->engine);
    if (status == TUTTI_ERR_UNSUPPORTED)
        return error_set(TUTTI_ERR_INVALID_ARGUMENT,
                         "free: %p was not allocated on group %s; pass the group of its tutti_alloc", memory,
                         group->name);
    return status;
}
