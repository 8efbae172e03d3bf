/* tools/trace: files of the flight recorder. */
#include "fuzz.h"
#include "targets.h"
#include "trace/groups.h"

/* Texts are printed, so they have no control characters. */
static void check_text(const char *text)
{
    FUZZ_CHECK(text != NULL);
    for (; *text != '\0'; text++) FUZZ_CHECK((unsigned char)*text >= ' ' && *text != 0x7f);
}

static void check_ops(const struct record_file *file)
{
    for (size_t i = 0; i < file->n_ops; i++) {
        const struct record_op *op = &file->ops[i];
        check_text(op->state);
        check_text(op->kind);
        check_text(op->call);
        check_text(op->status);
        check_text(op->peers);
        record_mark_text(file, op->mark);
    }
}

static void check_groups(const struct record_file *file)
{
    size_t ops = 0;
    for (size_t i = 0; i < file->n_groups; i++) {
        FUZZ_CHECK(file->groups[i].first == ops);
        ops += file->groups[i].n;
        check_text(file->groups[i].name);
        check_text(file->groups[i].text);
    }
    FUZZ_CHECK(ops == file->n_ops);
}

/* Looks at every rank of every group, as `tutti-trace stuck` does. */
static void look(const struct record_file *file)
{
    struct folder folder = {(struct record_file *)(uintptr_t)file, 1};
    struct groups groups;
    FUZZ_CHECK(groups_collect(&folder, &groups));
    for (size_t i = 0; i < groups.n; i++)
        for (int k = 0; k < groups.all[i].n && k < 8; k++) {
            const struct view *view = &groups.all[i].views[k];
            const struct group *other;
            const struct record_op *latest = view_latest(view), *waiting = view_waiting(view);
            FUZZ_CHECK(latest != NULL || view_oldest(view) == UINT64_MAX);
            FUZZ_CHECK(latest == NULL || view_find(view, latest->seq) != NULL);
            FUZZ_CHECK(waiting == NULL || waiting->seq <= latest->seq);
            groups_waiting(&groups, groups.all[i].ranks[k], &other);
        }
    groups_free(&groups);
}

/* Every file is parsed or refused, and also when it is cut anywhere. */
void fuzz_flight_record(const uint8_t *in, size_t bytes)
{
    char *data = malloc(bytes + 1);
    struct record_file file = {0};
    FUZZ_CHECK(data != NULL);
    memcpy(data, in, bytes);
    if (record_parse(data, bytes, &file) == NULL) {
        check_groups(&file);
        check_ops(&file);
        look(&file);
    }
    record_close(&file);
}
