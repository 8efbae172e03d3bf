#include "diagnose/recorder.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/env.h"
#include "base/error.h"
#include "base/lock.h"
#include "base/log.h"
#include "base/token.h"
#include "base/whole_file.h"
#include "diagnose/record_signal.h"
#include "diagnose/record_text.h"
#include "op/record.h"
#include "progress/engine.h"
#include "state/group_state.h"

enum {
    ENGINE_MS = 100,       /* wait for an engine's lock */
    OWN_MS = 1000,         /* wait for the recorder's */
    BURST = 8,             /* files written because of failures within BURST_NS */
    BURST_NS = 1000000000, /* a job with a thousand groups fails a thousand times */
    PATH_MOST = 4096
};

static struct lock lock; /* never taken with an engine's lock requested while it is held, except by trying */
static LIST_HEAD(, tutti_group) groups = LIST_HEAD_INITIALIZER(groups);
static int64_t burst_ns;
static int burst;
static bool unsaved; /* a failure has not been written */
static uint64_t job; /* 0: not known yet */

/* ---- start ----------------------------------------------------------------------------------------------------- */

static void write_on_signal(void)
{
    if (recorder_write(NULL, "SIGUSR2") != TUTTI_OK) log_write(LOG_WARN, LOG_GROUP, "%s", error_text());
}

/* Computes a number that tells the jobs apart whose files are in one folder: from the job's secret, or from the names
 * that launchers give.  Ranks that have not met may differ in whether they have received a secret, and leave it out. */
static uint64_t compute_job(bool have_met)
{
    static const char *const names[] = {"TUTTI_RESTART_COUNT", "TORCHELASTIC_RUN_ID", "MASTER_ADDR", "MASTER_PORT"};
    char text[512] = "flight recorder";
    uint8_t token[TOKEN_BYTES] = {0}, mac[TOKEN_MAC_BYTES];
    bool secret = false;
    uint64_t number = 0;
    int status = have_met ? token_get(token, &secret) : token_get_given(token, &secret);
    if (status != TUTTI_OK) return 0;
    for (size_t i = 0; i < (secret ? 1 : sizeof names / sizeof *names); i++) {
        size_t used = strlen(text);
        snprintf(text + used, sizeof text - used, " %s", env_string(names[i], "-"));
    }
    token_mac(mac, token, text, strlen(text));
    memcpy(&number, mac, sizeof number);
    token_wipe(token, sizeof token);
    return number;
}

/* Resets the state in a forked child, whose parent may have held the lock at the fork.  The child's copies of the
 * parent's groups are not recorded, and are never removed. */
static void in_child(void)
{
    lock = (struct lock){0};
    LIST_INIT(&groups);
    unsaved = false;
}

static void start(void)
{
    pthread_atfork(NULL, NULL, in_child);
    record_signal_start(write_on_signal);
}

void recorder_start(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, start);
}

void recorder_add(struct tutti_group *group)
{
    recorder_start();
    lock_take(&lock);
    if (job == 0) job = compute_job(true);
    LIST_INSERT_HEAD(&groups, group, recorded);
    group->is_recorded = true;
    lock_give(&lock);
}

/* ---- writing --------------------------------------------------------------------------------------------------- */

/* Writes the folder's name to path, with %h as the host's name, %p as the process id and %r as the rank. */
static void expand_name(const char *name, char path[PATH_MOST])
{
    char host[256] = "host";
    size_t used = 0;
    gethostname(host, sizeof host - 1);
    for (path[0] = '\0'; *name != '\0' && used < PATH_MOST; name++) {
        char *end = path + used;
        char letter = *name == '%' ? name[1] : '\0';
        if (letter == 'h')
            used += (size_t)snprintf(end, PATH_MOST - used, "%s", host);
        else if (letter == 'p')
            used += (size_t)snprintf(end, PATH_MOST - used, "%d", (int)getpid());
        else if (letter == 'r')
            used += (size_t)snprintf(end, PATH_MOST - used, "%d", log_rank());
        else
            used += (size_t)snprintf(end, PATH_MOST - used, "%c", *name);
        if (letter == 'h' || letter == 'p' || letter == 'r') name++;
    }
}

/* Writes the lines of all groups.  The recorder's lock is held, and that of the engine `held`. */
static int write_groups(FILE *out, struct engine *held)
{
    const struct engine *busy = NULL;
    struct tutti_group *group;
    int n = 0;
    LIST_FOREACH(group, &groups, recorded)
    {
        struct engine *engine = group->engine;
        bool takes = engine != held && engine != busy && lock_try_ms(&engine->lock, ENGINE_MS);
        if (engine != held && !takes) busy = engine;
        record_text_group(out, group, takes || engine == held);
        if (takes) lock_give(&engine->lock); /* not engine_unlock, which runs callbacks */
        n++;
    }
    return n;
}

/* Writes the file.  Returns 0 or an errno value.  The recorder's lock is held. */
static int write_file(const char *folder, const char *why, struct engine *held)
{
    char path[PATH_MOST], name[32], *text = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);
    if (out == NULL) return ENOMEM;
    record_text_process(out, job != 0 ? job : compute_job(false), why);
    fprintf(out, "end groups=%d\n", write_groups(out, held));
    if (fclose(out) != 0) {
        free(text);
        return ENOMEM;
    }
    expand_name(folder, path);
    snprintf(name, sizeof name, log_rank() >= 0 ? "rank-%d.record" : "process-%d.record",
             log_rank() >= 0 ? log_rank() : (int)getpid());
    return whole_file_write(path, name, text, bytes);
}

int recorder_write(const char *folder, const char *why)
{
    if (folder == NULL) folder = env_string("TUTTI_RECORD_DIR", NULL);
    if (folder == NULL)
        return error_set(TUTTI_ERR_INVALID_ARGUMENT,
                         "record_write: there is no folder; pass one, or set TUTTI_RECORD_DIR");
    if (!lock_try_ms(&lock, OWN_MS))
        return error_set(TUTTI_ERR_SYSTEM, "record_write: another thread has been writing the record for too long");
    int error = write_file(folder, why, NULL);
    lock_give(&lock);
    if (error == 0) return TUTTI_OK;
    return error_set(TUTTI_ERR_SYSTEM, "record_write: cannot write the record to %.400s: %s", folder, strerror(error));
}

/* Writes the file after a failure.  The recorder's lock is held. */
static void write_failure(const char *why, struct engine *held)
{
    static atomic_bool warned;
    const char *folder = env_string("TUTTI_RECORD_DIR", NULL);
    int error = folder != NULL ? write_file(folder, why, held) : 0;
    unsaved = false;
    if (error != 0 && !atomic_exchange(&warned, true))
        log_write(LOG_WARN, LOG_GROUP, "cannot write the flight record to TUTTI_RECORD_DIR=%.400s: %s", folder,
                  strerror(error));
}

/* True if the file may be written now.  Otherwise a later failure, or the end of a group, writes it. */
static bool is_due(void)
{
    int64_t now = clock_now_ns();
    if (burst_ns == 0 || now - burst_ns > BURST_NS) {
        burst_ns = now;
        burst = 0;
    }
    unsaved = ++burst > BURST;
    return !unsaved;
}

/* ---- failures -------------------------------------------------------------------------------------------------- */

void recorder_keep_waits(struct tutti_group *group)
{
    if (group->is_recorded && group->recorded_waits == NULL) group->recorded_waits = record_text_waits(group);
}

void recorder_failed(struct tutti_group *group, int status, const char *text)
{
    char why[ERROR_TEXT_MAX + 40];
    if (!group->is_recorded || env_string("TUTTI_RECORD_DIR", NULL) == NULL) return;
    snprintf(why, sizeof why, "%s: %s", error_name(status), text);
    if (!lock_try_ms(&lock, OWN_MS)) return; /* another thread writes, to a file system that hangs */
    if (is_due()) write_failure(why, group->engine);
    lock_give(&lock);
}

void recorder_remove(struct tutti_group *group)
{
    if (!group->is_recorded || engine_is_forked(group->engine)) return;
    lock_take(&lock);
    if (unsaved) write_failure("a group that has failed ends", NULL);
    LIST_REMOVE(group, recorded);
    group->is_recorded = false;
    lock_give(&lock);
    free(group->recorded_waits);
    record_free(&group->record);
    record_free(&group->record_messages);
}
