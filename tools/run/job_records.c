/* Flight records: a rank writes one when its group fails, or when it is asked by SIGUSR2 (docs/flight-recorder.md). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "job.h"

enum {
    ASKED_MS = 500,   /* to write a record */
    NOTICED_MS = 1500 /* to notice first that a rank has failed, which takes up to a second within a host */
};

/* True if the ranks have the variable, and it is no word for off. */
static bool is_set(const struct job *job, const char *name)
{
    static const char *const off[] = {"", "0", "false", "no", "off"};
    const char *value = exports_get(&job->options->exports, name);
    if (!value) return false;
    for (size_t i = 0; i < sizeof off / sizeof *off; i++)
        if (strcasecmp(value, off[i]) == 0) return false;
    return true;
}

/* True if the process has a handler for the signal, which would end it otherwise. */
static bool has_handler(pid_t pid, int signal)
{
    char path[48], line[128];
    unsigned long long caught = 0;
    snprintf(path, sizeof path, "/proc/%d/status", (int)pid);
    FILE *file = fopen(path, "re");
    if (!file) return false;
    while (fgets(line, sizeof line, file))
        if (strncmp(line, "SigCgt:", 7) == 0) caught = strtoull(line + 7, NULL, 16);
    fclose(file);
    return caught >> (signal - 1) & 1;
}

int64_t job_ask_for_records(struct job *job, bool failed)
{
    bool all = true, any = false, by_signal = is_set(job, "TUTTI_RECORD_SIGNAL");
    if (!is_set(job, "TUTTI_RECORD_DIR") || job->starter) return 0;
    if (job->ssh) return failed ? NOTICED_MS : 0; /* the ranks run elsewhere */
    for (int i = 0; i < job->n; i++) {
        struct rank *rank = &job->ranks[i];
        if (!rank->pid || rank->ended) continue;
        bool takes = by_signal && has_handler(rank->pid, SIGUSR2);
        if (takes) rank_signal(rank, SIGUSR2, false);
        any |= takes;
        all &= takes;
    }
    if (failed && !all) return NOTICED_MS;
    return any ? ASKED_MS : 0;
}
