/* The public functions that describe backends and groups, and explain how an operation would be done. */
#include <dlfcn.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <tutti/tutti.h>

#include "base/error.h"
#include "base/sized.h"
#include "base/text.h"
#include "coll/cost_phases.h"
#include "coll/override.h"
#include "group/default_group.h"
#include "group/group_check.h"
#include "group/host_services.h"
#include "plugin/registry.h"
#include "progress/engine.h"
#include "progress/plan_cache.h"

static int check_buffer(const char *what, const char *text, size_t capacity)
{
    if (text != NULL && capacity > 0) return TUTTI_OK;
    return error_set(TUTTI_ERR_INVALID_ARGUMENT, "%s: text is NULL or its capacity is 0", what);
}

static int put_description(struct text *text, const tutti_backend *backend, void *state)
{
    if (!TUTTI_HAS(backend, describe)) return TUTTI_OK;
    text->at[0] = '\0';
    size_t room = (size_t)(text->end - text->at);
    int status = backend->describe(&host_services, state, text->at, room + 1);
    text->at += strnlen(text->at, room);
    return status;
}

/* ---- backends ---------------------------------------------------------------------------------------------- */

int tutti_list_backends(char *text, size_t capacity)
{
    int status = check_buffer("list_backends", text, capacity);
    if (status == TUTTI_OK) registry_list(text, capacity);
    return status;
}

/* Appends the devices and the operations of a backend's table. */
static void put_operations(struct text *text, const tutti_backend *backend)
{
    int native = 0;
    text_print(text, "for %s%s%s tensors: ", backend->devices >> TUTTI_CPU & 1 ? "CPU" : "",
               (backend->devices >> TUTTI_CPU & 1) != 0 && (backend->devices >> TUTTI_CUDA & 1) != 0 ? " and " : "",
               backend->devices >> TUTTI_CUDA & 1 ? "CUDA" : "");
    for (int kind = 0; kind < TUTTI_KIND_COUNT; kind++) {
        if (!TUTTI_HAS(backend, native[kind])) continue;
        text_print(text, "%s%s", native++ > 0 ? ", " : "does ", tutti_kind_find((tutti_kind)kind)->name);
    }
    if (TUTTI_HAS(backend, send)) text_print(text, "%smessages, and plans over them", native > 0 ? "; " : "");
    text_print(text, "\n");
}

int tutti_describe_backend(const char *name, char *out, size_t capacity)
{
    const tutti_backend *backend = NULL;
    Dl_info file;
    int status = check_buffer("describe_backend", out, capacity);
    if (status == TUTTI_OK && name == NULL)
        status = error_set(TUTTI_ERR_INVALID_ARGUMENT, "describe_backend: name is NULL; pass one such as \"tcp\"");
    if (status == TUTTI_OK) status = registry_load(name, &host_services, &backend);
    if (status != TUTTI_OK) return status;
    struct text text = text_in(out, capacity);
    text_print(&text, "%s, version %s\n", dladdr(backend, &file) != 0 ? file.dli_fname : backend->name,
               backend->version != NULL ? backend->version : "unknown");
    put_operations(&text, backend);
    status = put_description(&text, backend, NULL); /* before probe, which may fail early */
    return status == TUTTI_OK && TUTTI_HAS(backend, probe) ? backend->probe(&host_services) : status;
}

/* ---- groups ------------------------------------------------------------------------------------------------ */

static int find_group(const char *what, const tutti_group *given, struct tutti_group **group)
{
    *group = group_for_call(given);
    if (*group == NULL) return TUTTI_ERR_INVALID_ARGUMENT;
    if ((*group)->rank < 0)
        return error_set(TUTTI_ERR_INVALID_ARGUMENT, "%s: this rank is not in group %s; only members may call this",
                         what, (*group)->name);
    if ((*group)->shut)
        return error_set(TUTTI_ERR_ABORTED, "%s: group %s has been destroyed; use another group", what, (*group)->name);
    return TUTTI_OK;
}

/* Appends the descriptions of the group's backends for a device, most preferred first. */
static int put_group(struct text *text, struct tutti_group *group, int device)
{
    int status = TUTTI_OK;
    engine_lock(group->engine);
    engine_count_call(group->engine);
    for (int i = 0; status == TUTTI_OK && i < group->n_entries[device]; i++)
        status = put_description(text, group->entries[device][i].backend, group->entries[device][i].state);
    engine_unlock(group->engine);
    return status;
}

int tutti_describe_group(tutti_group *given, char *out, size_t capacity)
{
    struct tutti_group *group = NULL;
    int status = check_buffer("describe_group", out, capacity);
    if (status == TUTTI_OK) status = find_group("describe_group", given, &group);
    if (status != TUTTI_OK) return status;
    struct text text = text_in(out, capacity);
    for (int device = 0; status == TUTTI_OK && device < 2; device++) {
        bool same = device == 1 && group->n_entries[0] > 0 && group->n_entries[1] > 0 &&
                    group->entries[0][0].state == group->entries[1][0].state;
        if (!same) status = put_group(&text, group, device);
    }
    return status;
}

static const struct coll_hosts *hosts_of(const struct tutti_group *group)
{
    int device = group->device.type == TUTTI_CUDA;
    return group->entries[device][0].hosts;
}

int tutti_get_host(const tutti_group *group, int group_rank)
{
    group = default_group_peek(group);
    if (group == NULL || group->rank < 0 || group_rank < 0 || group_rank >= group->size || hosts_of(group) == NULL)
        return -1;
    return hosts_of(group)->of[group_rank];
}

/* ---- operations -------------------------------------------------------------------------------------------- */

const char *tutti_algorithm_name(tutti_kind kind, int i)
{
    int plans = 0;
    if (i < 0) return NULL;
    for (const struct coll_algorithm *found; (found = coll_nth(kind, plans)) != NULL; plans++)
        if (plans == i) return found->name;
    return registry_path(kind, i - plans);
}

static void put_others(struct text *text, tutti_kind kind, const char *taken)
{
    text_print(text, "others:");
    for (int i = 0; tutti_algorithm_name(kind, i) != NULL; i++)
        if (strcmp(tutti_algorithm_name(kind, i), taken) != 0) text_print(text, " %s", tutti_algorithm_name(kind, i));
    text_print(text, "\n");
}

static void put_named(struct text *text, const struct tutti_group *group)
{
    text_print(text, "%s asks for \"%s\"\n",
               group->own_algorithm != NULL ? "the group" : "TUTTI_ALGO or TUTTI_DETERMINISTIC", group->algorithm);
}

/* Lists the algorithms with their estimates, cheapest first. */
static void put_estimates(struct text *text, tutti_kind kind, const struct coll_reason *reason)
{
    double last = -1;
    int before = -1;
    text_print(text, "estimates in us:");
    for (;;) {
        int next = -1;
        for (int i = 0; i < COLL_CHOICES && coll_nth(kind, i) != NULL; i++) {
            double ns = reason->estimate[i];
            bool is_later = ns > last || (ns == last && i > before);
            if (is_later && ns < INFINITY && (next < 0 || ns < reason->estimate[next])) next = i;
        }
        if (next < 0) break;
        text_print(text, " %s %.1f", coll_nth(kind, next)->name, reason->estimate[next] / 1000);
        before = next;
        last = reason->estimate[next];
    }
    text_print(text, "\n");
}

static void put_reason(struct text *text, const struct tutti_group *group, const struct coll_algorithm *algorithm,
                       const struct coll_reason *reason)
{
    text_print(text, "algorithm %s: ", algorithm->name);
    if (reason->by == COLL_BY_NAME)
        put_named(text, group);
    else if (reason->by == COLL_BY_KIND)
        text_print(text, "every rank reports to every other one, so that each can name all stragglers\n");
    else if (reason->by == COLL_BY_COST)
        text_print(text, "its estimate is the lowest\n");
    else if (reason->max_bytes == INT64_MAX)
        text_print(text, "TUTTI_TUNING selects it for %s of any size\n", coll_kind_name(algorithm->kind));
    else
        text_print(text, "TUTTI_TUNING selects it for %s of up to %" PRId64 " bytes\n", coll_kind_name(algorithm->kind),
                   reason->max_bytes);
    if (reason->by == COLL_BY_COST)
        put_estimates(text, algorithm->kind, reason);
    else
        put_others(text, algorithm->kind, algorithm->name);
}

static const char *source_of(int32_t source)
{
    return source == TUTTI_LINK_MEASURED ? "measured" : source == TUTTI_LINK_INTERFACE ? "interface" : "assumed";
}

static void put_link(struct text *text, const char *where, const tutti_link *known, int64_t latency_ns,
                     int64_t overhead_ns, int64_t bytes_per_us)
{
    text_print(text, "%s: latency %.2f us (%s), %.2f us of it busy, %" PRId64 " bytes/us (%s)\n", where,
               (double)latency_ns / 1000, source_of(known->latency_from), (double)overhead_ns / 1000, bytes_per_us,
               source_of(known->bytes_from));
}

/* Prints the figures of the links, from which the estimates follow, and where they come from. */
static void put_links(struct text *text, const struct backend_entry *entry)
{
    struct coll_link given = plan_cache_link(entry), link = cost_link(&given);
    if (entry->hosts == NULL || entry->hosts->n > 1)
        put_link(text, "between hosts", &entry->links.between, link.latency_ns, link.overhead_ns, link.bytes_per_us);
    if (entry->hosts == NULL || entry->hosts->most > 1)
        put_link(text, "within a host", &entry->links.within, link.local_latency_ns, link.local_overhead_ns,
                 link.local_bytes_per_us);
    if (link.host_cores > 0) text_print(text, "the ranks of a host share %" PRId64 " cores\n", link.host_cores);
}

/* Counts the bytes that this rank sends in the plan, in total and to other hosts. */
static void put_steps(struct text *text, const struct plan *plan, const struct coll_hosts *hosts)
{
    int64_t sends = 0, sent = 0, to_others = 0;
    for (uint32_t i = 0; i < plan->n_steps; i++) {
        const struct plan_step *step = &plan->steps[i];
        if (step->kind != PLAN_SEND) continue;
        sends++;
        sent += step->numel;
        if (hosts != NULL && hosts->of[step->peer] != hosts->of[plan->rank]) to_others += step->numel;
    }
    text_print(text, "rank %d: %u steps, %" PRId64 " messages with %" PRId64 " bytes", plan->rank, plan->n_steps, sends,
               sent);
    if (hosts != NULL && hosts->n > 1) text_print(text, ", %" PRId64 " of them to other hosts", to_others);
    text_print(text, ", %" PRId64 " bytes of scratch\n", plan->scratch);
}

static int put_plan(struct text *text, const struct tutti_group *group, const struct backend_entry *entry,
                    const tutti_op *op)
{
    const struct coll_algorithm *algorithm = NULL;
    struct coll_reason reason;
    struct plan *plan = NULL;
    int status = plan_cache_explain(group, entry, op, &algorithm, &reason, &plan);
    if (status != TUTTI_OK) return status;
    text_print(text, "%s: a plan over its messages\n", entry->backend->name);
    put_reason(text, group, algorithm, &reason);
    put_links(text, entry);
    if (TUTTI_HAS(entry->backend, segment_bytes) && entry->backend->segment_bytes > 0)
        text_print(text, "segments of up to %" PRId64 " bytes\n", entry->backend->segment_bytes);
    put_steps(text, plan, entry->hosts);
    plan_free(plan);
    return TUTTI_OK;
}

/* An operation of a given size in flat tensors.  Its data is never read. */
struct example {
    tutti_tensor in, out;
    tutti_op op;
};

static void make_example(struct example *example, const struct tutti_group *group, tutti_kind kind, int64_t bytes)
{
    static char memory[2];
    const tutti_kind_row *row = tutti_kind_find(kind);
    bool in_blocks = tutti_kind_in_blocks(kind), out_blocks = tutti_kind_out_blocks(kind);
    int64_t part = bytes / group->size, whole = in_blocks || out_blocks ? part * group->size : bytes;
    int64_t in = out_blocks && !in_blocks ? part : whole, out = in_blocks && !out_blocks ? part : whole;
    example->in = (tutti_tensor){&memory[0], in, TUTTI_UINT8, group->device};
    example->out = (tutti_tensor){&memory[1], out, TUTTI_UINT8, group->device};
    example->op = (tutti_op){.size = sizeof example->op,
                             .kind = kind,
                             .dtype = TUTTI_UINT8,
                             .n_in = row->in != TUTTI_SIDE_NONE,
                             .n_out = row->out != TUTTI_SIDE_NONE,
                             .in = &example->in,
                             .out = &example->out};
}

/* Returns the bytes of an operation with flat tensors, counted over the blocks of all ranks. */
static int64_t bytes_of(const tutti_op *op, int size)
{
    int64_t in = op->n_in > 0 ? op->in->numel : 0, out = op->n_out > 0 ? op->out->numel : 0;
    if (op->kind == TUTTI_ALL_TO_ALL) return in / size * size;
    return in > out ? in : out;
}

/* True if a measured row selects this path for the operation. */
static bool is_tuned(const struct backend_entry *entry, tutti_kind kind, int64_t bytes, const char *name)
{
    for (int i = 0; i < entry->tuned.n; i++) {
        const struct coll_tuned *row = &entry->tuned.rows[i];
        if (row->kind == kind && bytes <= row->max_bytes) return strcmp(row->algorithm->name, name) == 0;
    }
    return false;
}

/* Prints how a backend with paths does an operation, given its explanation "path: how". */
static void put_path(struct text *text, const struct tutti_group *group, const struct backend_entry *entry,
                     const tutti_op *op, const char *how)
{
    const struct coll_algorithm *named = NULL;
    tutti_kind kind = op->kind == TUTTI_MONITORED_BARRIER ? TUTTI_BARRIER : op->kind;
    size_t length = strcspn(how, ":");
    char name[64];
    snprintf(name, sizeof name, "%.*s", (int)length, how);
    text_print(text, "%s: %s, %s\n", entry->backend->name, op_is_message(op) ? "one message" : "native",
               how + length + strspn(how + length, ": "));
    text_print(text, "algorithm %s: ", name);
    if (group->algorithm != NULL) override_find(group->algorithm, group->paths, kind, &named);
    if (named != NULL && strcmp(named->name, name) == 0)
        put_named(text, group);
    else if (is_tuned(entry, kind, bytes_of(op, group->size), name))
        text_print(text, "TUTTI_TUNING selects it for this size\n");
    else
        text_print(text, "the backend selects it for this size\n");
    put_others(text, kind, name);
}

static int put_operation(struct text *text, struct tutti_group *group, tutti_kind kind, int64_t bytes)
{
    struct example example;
    int device = group->device.type == TUTTI_CUDA;
    make_example(&example, group, kind, bytes);
    for (int i = 0; i < group->n_entries[device]; i++) {
        const struct backend_entry *entry = &group->entries[device][i];
        const char *how = TUTTI_HAS(entry->backend, native[kind]) ? "for the dtypes that it supports" : NULL;
        bool has_paths = TUTTI_HAS(entry->backend, paths) && op_is_message(&example.op);
        if ((how != NULL || has_paths) && TUTTI_HAS(entry->backend, explain)) {
            engine_lock(group->engine);
            how = entry->backend->explain(entry->state, &example.op);
            engine_unlock(group->engine);
        }
        if (how != NULL && TUTTI_HAS(entry->backend, paths)) {
            put_path(text, group, entry, &example.op, how);
            return TUTTI_OK;
        }
        if (how != NULL) {
            text_print(text, "%s: native, %s\n", entry->backend->name, how);
            return TUTTI_OK;
        }
        if (!TUTTI_HAS(entry->backend, send)) continue;
        if (!op_is_message(&example.op)) return put_plan(text, group, entry, &example.op);
        text_print(text, "%s: one message\n", entry->backend->name);
        return TUTTI_OK;
    }
    return error_set(TUTTI_ERR_UNSUPPORTED, "explain: no backend of group %s supports %s", group->name,
                     tutti_kind_find(kind)->name);
}

static bool can_explain(tutti_kind kind)
{
    return tutti_kind_is_collective(kind) || kind == TUTTI_SEND || kind == TUTTI_RECV;
}

int tutti_explain_sized(tutti_kind kind, int64_t bytes, const tutti_opts *opts, size_t opts_bytes, char *out,
                        size_t capacity)
{
    tutti_opts copy;
    struct tutti_group *group = NULL;
    int status = SIZED_READ(tutti_opts, opts, opts_bytes, &copy);
    if (status == TUTTI_OK) status = check_buffer("explain", out, capacity);
    if (status == TUTTI_OK && !can_explain(kind))
        status =
            error_set(TUTTI_ERR_INVALID_ARGUMENT, "explain: kind %d is neither a collective nor a message", (int)kind);
    if (status == TUTTI_OK && bytes < 0)
        status = error_set(TUTTI_ERR_INVALID_ARGUMENT, "explain: bytes is %" PRId64 "; it must not be negative", bytes);
    if (status == TUTTI_OK) status = find_group("explain", opts != NULL ? opts->group : NULL, &group);
    if (status != TUTTI_OK) return status;
    const struct coll_hosts *hosts = hosts_of(group);
    struct text text = text_in(out, capacity);
    text_print(&text, "%s of %" PRId64 " bytes in group %s: %d ranks", tutti_kind_find(kind)->name, bytes, group->name,
               group->size);
    if (hosts != NULL) text_print(&text, " on %d host%s", hosts->n, hosts->n == 1 ? "" : "s");
    text_print(&text, "\n");
    return put_operation(&text, group, kind, bytes);
}
