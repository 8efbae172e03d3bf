#include "tools/trace_files.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <tutti/types.h>

#include <cmocka.h>

enum { BUFFERED = 1024, BYTES = 4096 };

void trace_make_folder(char path[64])
{
    snprintf(path, 64, "/tmp/tutti-trace-XXXXXX");
    assert_non_null(mkdtemp(path));
}

void trace_remove(const char *folder)
{
    char command[128];
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    assert_int_equal(system(command), 0);
}

const char *trace_path(const char *folder, int rank)
{
    static char path[128];
    snprintf(path, sizeof path, "%s/rank-%d.pid-%d.1%s", folder, rank, 100 + rank, TUTTI_TRACE_SUFFIX);
    return path;
}

static void put(FILE *file, enum tutti_trace_type type, const void *content, size_t bytes)
{
    tutti_trace_block block = {TUTTI_TRACE_MAGIC, (uint32_t)type, bytes};
    assert_int_equal(fwrite(&block, sizeof block, 1, file), 1);
    assert_int_equal(fwrite(content, 1, bytes, file), bytes);
}

static void put_head(FILE *file, const struct trace_job *job, int rank, int64_t skew)
{
    tutti_trace_begin begin = {.version = TUTTI_TRACE_VERSION,
                               .op_bytes = sizeof(tutti_trace_op),
                               .rank = rank,
                               .world_size = job->ranks,
                               .pid = 100 + rank};
    snprintf(begin.host, sizeof begin.host, "host-%d", rank % 2);
    put(file, TUTTI_TRACE_BEGIN, &begin, sizeof begin);
    /* two ticks per ns */
    put(file, TUTTI_TRACE_CLOCK, &(tutti_trace_clock){2000, 1000 + skew}, sizeof(tutti_trace_clock));
    put(file, TUTTI_TRACE_CLOCK, &(tutti_trace_clock){2000000002000, 1000000001000 + skew}, sizeof(tutti_trace_clock));
    tutti_trace_align align = {.offset_ns = -skew, .error_ns = rank % 2 != 0 ? job->error_ns : 0};
    put(file, TUTTI_TRACE_ALIGN, &align, sizeof align);
    tutti_trace_group *group = calloc(1, sizeof *group + (size_t)(job->ranks + 1) / 2 * 8);
    assert_non_null(group);
    *group = (tutti_trace_group){.id = 42, .number = 1, .rank = rank, .world_size = job->ranks, .name = "world"};
    int32_t *ranks = (int32_t *)(void *)(group + 1);
    for (int i = 0; i < job->ranks; i++) ranks[i] = i;
    put(file, TUTTI_TRACE_GROUP, group, sizeof *group + (size_t)(job->ranks + 1) / 2 * 8);
    free(group);
}

static tutti_trace_op make_op(const struct trace_job *job, int rank, int step)
{
    int64_t begin = 2000 + (int64_t)step * TRACE_STEP_NS;
    int64_t arrival = begin + (rank == job->late ? TRACE_LATE_NS : rank * 1000);
    return (tutti_trace_op){.issued = (uint64_t)arrival * 2,
                            .ended = (uint64_t)(begin + TRACE_END_NS) * 2,
                            .bytes = BYTES,
                            .reduce_ns = 1000,
                            .sequence = (uint32_t)step + 1,
                            .root = -1,
                            .group = 1,
                            .kind = TUTTI_ALL_REDUCE};
}

static void write_rank(const struct trace_job *job, int rank)
{
    tutti_trace_op ops[BUFFERED];
    FILE *file = fopen(trace_path(job->folder, rank), "w");
    assert_non_null(file);
    put_head(file, job, rank, rank % 2 != 0 ? job->skew_ns : 0);
    for (int step = 0; step < job->steps;) {
        int n = 0;
        for (; n < BUFFERED && step < job->steps; step++) ops[n++] = make_op(job, rank, step);
        put(file, TUTTI_TRACE_OPS, ops, (size_t)n * sizeof ops[0]);
    }
    assert_int_equal(fclose(file), 0);
}

void trace_write_job(const struct trace_job *job)
{
    for (int rank = 0; rank < job->ranks; rank++) write_rank(job, rank);
}

int trace_run(const char *arguments, char *text, size_t size)
{
    char command[512];
    snprintf(command, sizeof command, TUTTI_BUILD_DIR "/bin/tutti-trace %s 2>&1", arguments);
    FILE *output = popen(command, "r");
    assert_non_null(output);
    size_t n = fread(text, 1, size - 1, output);
    text[n] = '\0';
    while (fgetc(output) != EOF) continue;
    int status = pclose(output);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}
