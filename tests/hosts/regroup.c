#include "regroup.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <tutti/tutti.h>
#include <unistd.h>

enum { NUMEL = 1024, RANKS_MOST = 64, LOOK_US = 5000, PAUSE_US = 1000, TIMEOUT_MS = 30000 };
enum { STOP, GO_ON, IDLE, WRONG };

static const char *folder;

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_REALTIME, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static bool has_file(const char *name)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return access(path, F_OK) == 0;
}

static void say(const char *what)
{
    printf("%s %.3f %d %d\n", what, now(), (int)tutti_get_generation(NULL), tutti_get_world_size(NULL));
}

/* Element 0 is what rank 0 wants; each rank adds its number to the others. */
static int compute(int *next)
{
    int64_t x[NUMEL];
    int rank = tutti_get_rank(NULL), world = tutti_get_world_size(NULL);
    for (int i = 0; i < NUMEL; i++) x[i] = rank + i;
    x[0] = rank > 0 ? 0 : has_file("stop") ? STOP : has_file("idle") ? IDLE : GO_ON;
    int status = tutti_all_reduce(tutti_view(x, NUMEL), TUTTI_SUM, NULL);
    *next = (int)x[0];
    for (int64_t i = 1; i < NUMEL && status == TUTTI_OK; i++)
        if (x[i] != (int64_t)world * (world - 1) / 2 + i * world) *next = WRONG;
    return status;
}

/* Says that a rank is lost, or that another rank wants to regroup. */
static int report_loss(const tutti_rank_health *health, int n)
{
    int lost = 0;
    while (lost < n && health[lost].state != TUTTI_RANK_LOST) lost++;
    printf("heard %.3f %s\n", now(), lost < n ? health[lost].why : "another rank regroups");
    return TUTTI_ERR_ABORTED;
}

/* Sends a message that ends at once on this side. */
static int send_message(void)
{
    int64_t x = 0;
    int status = tutti_send(tutti_view(&x, 1), tutti_get_world_size(NULL) - 1, NULL);
    say("sent");
    return status;
}

/* Waits without an operation and without traffic.  The first call connects all ranks. */
static int stay_idle(void)
{
    tutti_rank_health health[RANKS_MOST];
    int n = tutti_get_world_size(NULL), status = tutti_group_health(NULL, health, n);
    bool sends = tutti_get_rank(NULL) == 0 && n > 1;
    say("idle");
    for (; status == TUTTI_OK && has_file("idle") && !tutti_regroup_wanted(NULL); usleep(LOOK_US)) {
        if (!sends || !has_file("send")) continue;
        status = send_message();
        sends = false;
    }
    if (status == TUTTI_OK) status = tutti_group_health(NULL, health, n);
    return status == TUTTI_OK && tutti_regroup_wanted(NULL) ? report_loss(health, n) : status;
}

/* Computes in one group.  Returns OK when all ranks leave. */
static int run_group(int *next)
{
    int status = compute(next);
    if (status == TUTTI_OK) say("again");
    while (status == TUTTI_OK && (*next == GO_ON || *next == IDLE)) {
        if (*next == IDLE) status = stay_idle();
        usleep(PAUSE_US);
        if (status == TUTTI_OK && tutti_regroup_wanted(NULL)) status = TUTTI_ERR_ABORTED;
        if (status == TUTTI_OK) status = compute(next);
    }
    return status;
}

static bool may_go_on(int status)
{
    return status == TUTTI_ERR_PEER_LOST || status == TUTTI_ERR_ABORTED || status == TUTTI_ERR_TIMEOUT;
}

static int report_failure(int status)
{
    printf("%s: %s\n", tutti_status_string(status), tutti_last_error());
    return 3;
}

int regroup_main(char **argument)
{
    tutti_init_opts opts = {.timeout_ms = TIMEOUT_MS};
    int next = GO_ON;
    folder = argument[0];
    setvbuf(stdout, NULL, _IOLBF, 0);
    setenv("TUTTI_BACKEND_PATH", TUTTI_BACKENDS_DIR, 0);
    int status = tutti_init_process_group("tcp", &opts);
    if (status != TUTTI_OK) return report_failure(status);
    while ((status = run_group(&next)) != TUTTI_OK) {
        if (may_go_on(status)) status = tutti_regroup(NULL, NULL, NULL);
        if (status != TUTTI_OK) return report_failure(status);
    }
    if (next == WRONG) printf("WRONG\n");
    tutti_destroy_process_group(NULL);
    return next == WRONG ? 4 : 0;
}
