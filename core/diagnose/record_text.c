#include "diagnose/record_text.h"

#include <inttypes.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/dtype.h"
#include "base/error.h"
#include "base/log.h"
#include "base/marks.h"
#include "diagnose/stragglers.h"
#include "op/fingerprint.h"
#include "op/record.h"
#include "progress/work.h"
#include "state/group_state.h"

enum { WAITS_MOST = 64 };

/* Writes " key=text" with blanks, control characters and percent signs as %XX. */
static void write_text(FILE *out, const char *key, const char *text)
{
    fprintf(out, " %s=", key);
    for (; *text != '\0'; text++) {
        unsigned char c = (unsigned char)*text;
        if (c > ' ' && c != '%' && c < 0x7f)
            fputc(c, out);
        else
            fprintf(out, "%%%02X", c);
    }
}

void record_text_process(FILE *out, uint64_t job, const char *why)
{
    static const char *const version = TUTTI_VERSION;
    struct mark marks[MARKS_KEPT];
    char host[256] = "?";
    gethostname(host, sizeof host - 1);
    fprintf(out, "tutti-record 1\nprocess job=%016" PRIx64 " rank=%d pid=%d ns=%" PRId64 " wall_ns=%" PRId64, job,
            log_rank(), (int)getpid(), clock_now_ns(), clock_unix_ns());
    write_text(out, "host", host);
    write_text(out, "version", version);
    write_text(out, "why", why);
    fputc('\n', out);
    int n = marks_read(marks);
    for (int i = 0; i < n; i++) {
        fprintf(out, "mark number=%" PRIu32 " ns=%" PRId64, marks[i].number, marks[i].ns);
        write_text(out, "text", marks[i].text);
        fputc('\n', out);
    }
}

/* ---- operations ---------------------------------------------------------------------------------------------- */

/* Writes ranks as "0-3,7". */
static void write_ranks(FILE *out, const char *key, const int *global, const bool *chosen, int n)
{
    const char *before = "";
    fprintf(out, " %s=", key);
    for (int first = 0, next; first < n; first = next) {
        next = first + 1;
        if (chosen != NULL && !chosen[first]) continue;
        while (next < n && (chosen == NULL || chosen[next]) && global[next] == global[next - 1] + 1) next++;
        fprintf(out, next - first > 1 ? "%s%d-%d" : "%s%d", before, global[first], global[next - 1]);
        before = ",";
    }
}

static int translate(const struct tutti_group *group, int root)
{
    return root >= 0 && root < group->size ? group->global_ranks[root] : root;
}

/* Writes what an operation is.  `call` is equal on all ranks if their calls are. */
static void write_call(FILE *out, const struct tutti_group *group, const struct record *record)
{
    tutti_kind kind = (tutti_kind)(record->kind_state & 0xff);
    char call[160];
    fprintf(out, " kind=%s", tutti_kind_find(kind)->name);
    if (record->sequence > 0) fprintf(out, " seq=%" PRIu64, record->sequence);
    if (tutti_kind_is_message(kind)) fprintf(out, " tag=%d", record->tag);
    if (tutti_kind_is_message(kind) || record->root >= 0) fprintf(out, " root=%d", translate(group, record->root));
    if (record->dtype != 0)
        fprintf(out, " dtype=%s numel=%" PRId64 " bytes=%" PRId64, dtype_name((tutti_dtype)record->dtype),
                record->numel, record->numel * tutti_dtype_bytes((tutti_dtype)record->dtype));
    if (record->sequence == 0) return;
    fingerprint_describe(record->fingerprint, call, sizeof call);
    fprintf(out, " fingerprint=%016" PRIx64, record->fingerprint);
    write_text(out, "call", call);
}

static int64_t time_of(const struct record *record, uint32_t units)
{
    return record->issued_ns + ((int64_t)units << RECORD_TIME_SHIFT);
}

static void write_record(FILE *out, const struct tutti_group *group, const struct record *record)
{
    static const char *const states[] = {"under_way", "done", "failed", "undone"};
    int status = (int16_t)(record->kind_state >> RECORD_STATUS_AT);
    fprintf(out, "op state=%s", states[record->kind_state >> RECORD_STATE_AT & 3]);
    write_call(out, group, record);
    fprintf(out, " issued=%" PRId64, record->issued_ns);
    if (record->started > 0) fprintf(out, " started=%" PRId64, time_of(record, record->started));
    if (record->ended > 0) fprintf(out, " ended=%" PRId64, time_of(record, record->ended));
    if (status != TUTTI_OK) fprintf(out, " status=%s", error_name(status));
    if (record->mark > 0) fprintf(out, " mark=%" PRIu32, record->mark);
    fputc('\n', out);
}

static void write_ring(FILE *out, const struct tutti_group *group, const struct record_ring *ring)
{
    uint64_t mask = __atomic_load_n(&ring->mask, __ATOMIC_ACQUIRE); /* see grow */
    const struct record *slots = __atomic_load_n(&ring->slots, __ATOMIC_ACQUIRE);
    uint64_t next = ring->next, n = next < mask + 1 ? next : mask + 1;
    if (slots == NULL) return;
    for (uint64_t i = next - n; i < next; i++)
        if ((slots[i & mask].kind_state >> RECORD_STATE_AT & 3) != RECORD_UNDONE)
            write_record(out, group, &slots[i & mask]);
}

/* ---- operations under way -------------------------------------------------------------------------------------- */

/* Returns the record of a work: its own, or one made from the work if later ones have replaced it. */
static struct record record_of(const struct tutti_work *work)
{
    struct record_ring *ring = group_record(work->group, work->op.sequence);
    const struct record *own = record_find(ring, work->record);
    if (own != NULL) return *own;
    const tutti_tensor *tensor = work->op.n_in > 0 ? work->op.in : work->op.n_out > 0 ? work->op.out : NULL;
    return (struct record){.fingerprint = work->fingerprint,
                           .kind_state = (uint32_t)work->op.kind,
                           .dtype = (int32_t)work->op.dtype,
                           .root = work->op.root,
                           .tag = work->op.tag,
                           .sequence = work->op.sequence,
                           .numel = tensor != NULL ? tensor->numel : 0,
                           .issued_ns = work->start_ns};
}

static void write_wait(FILE *out, const struct tutti_work *work)
{
    const struct tutti_group *group = work->group;
    struct record record = record_of(work);
    bool *awaited = stragglers_awaited(work);
    fprintf(out, "wait state=%s", !work->started ? "blocked" : work->draining ? "draining" : "under_way");
    write_call(out, group, &record);
    fprintf(out, " issued=%" PRId64, work->start_ns > 0 ? work->start_ns : record.issued_ns);
    if (record.mark > 0) fprintf(out, " mark=%" PRIu32, record.mark);
    if (awaited != NULL && work->started) write_ranks(out, "peers", group->global_ranks, awaited, group->size);
    fputc('\n', out);
    free(awaited);
}

static void write_waits(FILE *out, const struct tutti_group *group)
{
    const struct tutti_work *work;
    int n = 0;
    TAILQ_FOREACH(work, &group->works, group_link)
    {
        bool inner = work->op.kind == TUTTI_COPY || work->op.kind == TUTTI_COALESCED || work->group != group;
        if (!inner && n++ < WAITS_MOST) write_wait(out, work);
    }
}

char *record_text_waits(const struct tutti_group *group)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);
    if (out == NULL) return NULL;
    write_waits(out, group);
    if (fclose(out) == 0) return text;
    free(text);
    return NULL;
}

/* ---- groups ---------------------------------------------------------------------------------------------------- */

void record_text_group(FILE *out, struct tutti_group *group, bool locked)
{
    fprintf(out, "group id=%016" PRIx64 " rank=%d size=%d seq=%" PRIu64, group->id, group->global_ranks[group->rank],
            group->size, group->sequence);
    write_text(out, "name", group->name);
    write_ranks(out, "ranks", group->global_ranks, NULL, group->size);
    if (!locked) fprintf(out, " busy=1");
    if (locked && group->failed != TUTTI_OK) fprintf(out, " status=%s", error_name(group->failed));
    if (locked && group->failed_text != NULL) write_text(out, "text", group->failed_text);
    fputc('\n', out);
    write_ring(out, group, &group->record);
    write_ring(out, group, &group->record_messages);
    if (!locked) return;
    if (group->failed != TUTTI_OK && group->recorded_waits != NULL)
        fputs(group->recorded_waits, out);
    else
        write_waits(out, group);
}
