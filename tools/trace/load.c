#include "trace/load.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Thirty years: longer times are wrong, and sums of these do not overflow. */
static const double time_max_ns = 1e18;

/* ---- files ------------------------------------------------------------------------------------------------- */

static bool read_file(struct load_rank *rank)
{
    struct stat info;
    int fd = open(rank->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* opening a FIFO must not block */
    if (fd < 0) return false;
    bool good = fstat(fd, &info) == 0 && S_ISREG(info.st_mode);
    if (good) rank->data = malloc((size_t)info.st_size + 8);
    while (good && rank->data != NULL && rank->size < (size_t)info.st_size) {
        ssize_t n = read(fd, rank->data + rank->size, (size_t)info.st_size - rank->size);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) break;
        rank->size += (size_t)n;
    }
    close(fd);
    return rank->data != NULL;
}

/* ---- blocks ------------------------------------------------------------------------------------------------ */

/* Appends records to an array.  Returns false if out of memory. */
static bool append(void **array, size_t *n, const void *records, size_t count, size_t each)
{
    void *more = realloc(*array, (*n + count) * each + 1);
    if (more == NULL) return false;
    memcpy((char *)more + *n * each, records, count * each);
    *array = more;
    *n += count;
    return true;
}

/* Returns the bytes of the character at text, or 0 if it is no UTF-8 or a control character.  JSON takes nothing else.
 */
static int character_bytes(const unsigned char *at)
{
    static const uint32_t least[] = {' ', 0xa0, 0x800, 0x10000}; /* by the number of bytes after the first */
    int more = at[0] < 0x80 ? 0 : at[0] < 0xc0 ? -1 : at[0] < 0xe0 ? 1 : at[0] < 0xf0 ? 2 : at[0] < 0xf8 ? 3 : -1;
    uint32_t code = more > 0 ? at[0] & (0x3fU >> more) : at[0];
    for (int i = 1; i <= more; i++) {
        if ((at[i] & 0xc0) != 0x80) return 0;
        code = code << 6 | (at[i] & 0x3f);
    }
    bool is_surrogate = code >= 0xd800 && code < 0xe000;
    return more < 0 || code < least[more] || code > 0x10ffff || is_surrogate ? 0 : more + 1;
}

static void end_text(char *text, size_t size)
{
    text[size - 1] = '\0';
    while (*text != '\0') {
        int bytes = character_bytes((const unsigned char *)text);
        if (bytes == 0) *text = '?';
        text += bytes > 0 ? bytes : 1;
    }
}

static bool take_begin(struct load_rank *rank, const void *content, size_t bytes)
{
    if (bytes < sizeof rank->begin) return false;
    memcpy(&rank->begin, content, sizeof rank->begin);
    end_text(rank->begin.host, sizeof rank->begin.host);
    end_text(rank->begin.library, sizeof rank->begin.library);
    return rank->begin.version == TUTTI_TRACE_VERSION && rank->begin.op_bytes == sizeof(tutti_trace_op) &&
           rank->begin.rank >= 0 && rank->begin.rank < rank->begin.world_size;
}

static void take_clock(struct load_rank *rank, const void *content, size_t bytes)
{
    tutti_trace_clock clock;
    if (bytes < sizeof clock) return;
    memcpy(&clock, content, sizeof clock);
    if (rank->first.ticks == 0) rank->first = clock;
    if (clock.ticks > rank->first.ticks) rank->last = clock;
}

static bool take_group(struct load_rank *rank, void *content, size_t bytes)
{
    tutti_trace_group *group = content;
    if (bytes < sizeof *group || group->number == 0 || group->number > rank->size || group->number > INT32_MAX ||
        group->world_size < 1)
        return true; /* a file of so many bytes has fewer groups */
    if ((size_t)group->world_size > (bytes - sizeof *group) / sizeof(int32_t)) return true;
    if (group->rank < 0 || group->rank >= group->world_size) return true;
    end_text(group->name, sizeof group->name);
    end_text(group->backend, sizeof group->backend);
    if ((int)group->number > rank->n_groups) {
        const tutti_trace_group **more = realloc(rank->groups, group->number * sizeof *more);
        if (more == NULL) return false;
        while (rank->n_groups < (int)group->number) more[rank->n_groups++] = NULL;
        rank->groups = more;
    }
    rank->groups[group->number - 1] = group;
    return true;
}

/* Takes the whole records of a block.  Returns false if the file cannot be used. */
static bool take_block(struct load_rank *rank, uint32_t type, void *content, size_t bytes)
{
    switch (type) {
    case TUTTI_TRACE_BEGIN:
        return take_begin(rank, content, bytes);
    case TUTTI_TRACE_CLOCK:
        take_clock(rank, content, bytes);
        return true;
    case TUTTI_TRACE_ALIGN:
        if (bytes >= sizeof rank->align) memcpy(&rank->align, content, sizeof rank->align);
        return true;
    case TUTTI_TRACE_GROUP:
        return take_group(rank, content, bytes);
    case TUTTI_TRACE_OPS:
        return append((void **)&rank->ops, &rank->n_ops, content, bytes / sizeof(tutti_trace_op),
                      sizeof(tutti_trace_op));
    case TUTTI_TRACE_RANGES:
        return append((void **)&rank->ranges, &rank->n_ranges, content, bytes / sizeof(tutti_trace_range),
                      sizeof(tutti_trace_range));
    }
    return true; /* of a later version */
}

static bool take_blocks(struct load_rank *rank)
{
    size_t at = 0;
    bool has_begin = false;
    while (rank->size - at >= sizeof(tutti_trace_block)) {
        tutti_trace_block block;
        memcpy(&block, rank->data + at, sizeof block);
        at += sizeof block;
        if (block.magic != TUTTI_TRACE_MAGIC || block.bytes % 8 != 0) break;
        size_t left = rank->size - at, bytes = block.bytes < left ? (size_t)block.bytes : left;
        if ((block.type == TUTTI_TRACE_BEGIN) == has_begin) return false; /* it comes first, and once */
        has_begin = true;
        if (!take_block(rank, block.type, rank->data + at, bytes)) return false;
        at += bytes;
        if (bytes < block.bytes) {
            rank->was_cut = true;
            return has_begin;
        }
    }
    rank->was_cut = at != rank->size;
    return has_begin;
}

/* True if the time is one that a recorder writes. */
static bool is_time(const struct load_rank *rank, uint64_t ticks)
{
    return fabs((double)(int64_t)(ticks - rank->first.ticks) * rank->ns_per_tick) < time_max_ns;
}

static bool is_op(const struct load_rank *rank, const tutti_trace_op *op)
{
    return op->ended >= op->issued && op->ended - op->issued >= op->started && is_time(rank, op->issued) &&
           is_time(rank, op->ended);
}

static bool has_clock(const struct load_rank *rank)
{
    bool runs = rank->ns_per_tick > 0 && isfinite(rank->ns_per_tick);
    return runs && fabs((double)rank->first.monotonic_ns) < time_max_ns &&
           fabs((double)rank->align.offset_ns) < time_max_ns && (double)rank->align.error_ns < time_max_ns;
}

/* Removes operations and ranges that no recorder writes. */
static void drop_bad(struct load_rank *rank)
{
    size_t n = 0;
    for (size_t i = 0; i < rank->n_ops; i++)
        if (is_op(rank, &rank->ops[i])) rank->ops[n++] = rank->ops[i];
    rank->n_ops = n;
    n = 0;
    for (size_t i = 0; i < rank->n_ranges; i++) {
        end_text(rank->ranges[i].name, sizeof rank->ranges[i].name);
        if (rank->ranges[i].end >= rank->ranges[i].begin && is_time(rank, rank->ranges[i].begin) &&
            is_time(rank, rank->ranges[i].end))
            rank->ranges[n++] = rank->ranges[i];
    }
    rank->n_ranges = n;
}

static bool load_rank(struct load_rank *rank)
{
    if (!read_file(rank) || !take_blocks(rank)) return false;
    rank->ns_per_tick = 1;
    if (rank->last.ticks > rank->first.ticks)
        rank->ns_per_tick = ((double)rank->last.monotonic_ns - (double)rank->first.monotonic_ns) /
                            (double)(rank->last.ticks - rank->first.ticks);
    if (!has_clock(rank)) return false;
    drop_bad(rank);
    rank->wait_ns = calloc(rank->n_ops + 1, sizeof *rank->wait_ns);
    return rank->wait_ns != NULL;
}

static void free_rank(struct load_rank *rank)
{
    free(rank->path);
    free(rank->data);
    free(rank->groups);
    free(rank->ops);
    free(rank->wait_ns);
    free(rank->ranges);
}

/* ---- folders ----------------------------------------------------------------------------------------------- */

static int is_trace(const struct dirent *entry)
{
    size_t n = strlen(entry->d_name), end = strlen(TUTTI_TRACE_SUFFIX);
    return n > end && strcmp(entry->d_name + n - end, TUTTI_TRACE_SUFFIX) == 0;
}

static int by_rank(const void *a, const void *b)
{
    const struct load_rank *x = a, *y = b;
    if (x->begin.rank != y->begin.rank) return x->begin.rank < y->begin.rank ? -1 : 1;
    return strcmp(x->path, y->path);
}

static void find_begin(struct load *load)
{
    load->begin_ns = INT64_MAX;
    for (int i = 0; i < load->n; i++) {
        const struct load_rank *rank = &load->ranks[i];
        load->n_ops += rank->n_ops;
        for (size_t k = 0; k < rank->n_ops; k++)
            if (load_time_ns(rank, rank->ops[k].issued) < load->begin_ns)
                load->begin_ns = load_time_ns(rank, rank->ops[k].issued);
        for (size_t k = 0; k < rank->n_ranges; k++)
            if (load_time_ns(rank, rank->ranges[k].begin) < load->begin_ns)
                load->begin_ns = load_time_ns(rank, rank->ranges[k].begin);
    }
    if (load->begin_ns == INT64_MAX) load->begin_ns = 0;
}

static void add_file(struct load *load, const char *folder, const char *name)
{
    struct load_rank *rank = &load->ranks[load->n];
    *rank = (struct load_rank){.align = {.error_ns = -1}};
    if (asprintf(&rank->path, "%s/%s", folder, name) < 0) {
        rank->path = NULL;
        return;
    }
    if (load_rank(rank)) {
        if (rank->was_cut)
            fprintf(stderr, "tutti-trace: %s was cut short; %zu operations are read\n", rank->path, rank->n_ops);
        load->n++;
        return;
    }
    fprintf(stderr, "tutti-trace: %s is skipped: it is not a trace of this version\n", rank->path);
    free_rank(rank);
}

bool load_folder(const char *folder, struct load *load)
{
    struct dirent **entries = NULL;
    *load = (struct load){0};
    int n = scandir(folder, &entries, is_trace, alphasort);
    if (n < 0) {
        fprintf(stderr, "tutti-trace: cannot read the folder %s: %s\n", folder, strerror(errno));
        return false;
    }
    load->ranks = calloc((size_t)n + 1, sizeof *load->ranks);
    for (int i = 0; i < n; i++) {
        if (load->ranks != NULL) add_file(load, folder, entries[i]->d_name);
        free(entries[i]);
    }
    free(entries);
    if (load->n == 0) {
        fprintf(stderr, "tutti-trace: %s has no trace (*%s); run the job with TUTTI_TRACE=%s\n", folder,
                TUTTI_TRACE_SUFFIX, folder);
        load_free(load);
        return false;
    }
    qsort(load->ranks, (size_t)load->n, sizeof *load->ranks, by_rank);
    find_begin(load);
    return true;
}

void load_free(struct load *load)
{
    for (int i = 0; i < load->n; i++) free_rank(&load->ranks[i]);
    free(load->ranks);
    *load = (struct load){0};
}

const tutti_trace_group *load_group(const struct load_rank *rank, const tutti_trace_op *op)
{
    return op->group >= 1 && op->group <= (uint32_t)rank->n_groups ? rank->groups[op->group - 1] : NULL;
}
