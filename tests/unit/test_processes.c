/* Which process counts as ended, and which rank is named if several have ended: the rank that a failing rank named
 * before. */
#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "base/error.h"
#include "bootstrap/liveness.h"
#include "group/processes.h"
#include "state/group_state.h"
#include "store/store_impl.h"

enum { RANKS = 3 };

/* Returns the name of a process that has ended. */
static void name_ended(char name[LIVENESS_NAME_MAX])
{
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    pid_t pid = fork();
    if (pid == 0) {
        char mine[LIVENESS_NAME_MAX] = "";
        liveness_name(mine);
        _exit(write(ends[1], mine, sizeof mine) != sizeof mine);
    }
    assert_true(pid > 0);
    assert_int_equal(read(ends[0], name, LIVENESS_NAME_MAX), LIVENESS_NAME_MAX);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    close(ends[0]);
    close(ends[1]);
}

/* A store in memory.  A rank fails, gives its reason and ends just after another rank has checked. */
struct late_store {
    tutti_store base; /* first */
    tutti_store *inner;
    const char *said; /* reason, or NULL */
};

static int call_late(tutti_store *store, const struct store_request *request, struct store_reply *reply)
{
    struct late_store *late = (struct late_store *)store;
    int status = late->inner->class->call(late->inner, request, reply);
    bool looked = request->op == STORE_GET && strncmp(request->keys[0].data, "world/lost", strlen("world/lost")) == 0;
    if (looked && late->said != NULL) liveness_report_lost(late->inner, "world/lost", TUTTI_ERR_PEER_LOST, late->said);
    return status;
}

static void close_late(tutti_store *store)
{
    tutti_store_free(((struct late_store *)store)->inner);
}

static const struct store_class late_class = {.call = call_late, .close = close_late};

/* Checks with ranks 2 and 0 ended, and listed in this order. */
static int check(const char *said)
{
    char ended[LIVENESS_NAME_MAX], line[LIVENESS_NAME_MAX + 16];
    int local_of[RANKS] = {0, 1, 2}, ranks[RANKS] = {0, 1, 2};
    struct late_store late = {.said = said};
    assert_int_equal(store_base_init(&late.base, &late_class, NULL), TUTTI_OK);
    assert_int_equal(tutti_store_memory(NULL, &late.inner), TUTTI_OK);
    struct tutti_group group = {
        .rank = 1, .size = RANKS, .world = RANKS, .global_ranks = ranks, .local_of = local_of, .store = &late.base};
    group.root = &group;
    name_ended(ended);
    for (int rank = 2; rank >= 0; rank -= 2) {
        snprintf(line, sizeof line, "%d %s\n", rank, ended);
        assert_int_equal(tutti_store_append(late.inner, "process/0", line, strlen(line)), TUTTI_OK);
    }
    int status = processes_check(&group);
    liveness_list_free(&group.processes);
    tutti_store_free(&late.base);
    return status;
}

static void test_an_ended_process_is_named(void **state)
{
    (void)state;
    assert_int_equal(check(NULL), TUTTI_ERR_PEER_LOST);
    assert_non_null(strstr(error_text(), "rank 2 is lost: "));
}

static void test_a_rank_that_failed_and_ended_is_not_named(void **state)
{
    (void)state;
    assert_int_equal(check("rank 0 is lost: its process has ended"), TUTTI_ERR_PEER_LOST);
    assert_string_equal(error_text(), "rank 0 is lost: its process has ended");
}

/* ---- a reused id ------------------------------------------------------------------------------------------------- */

enum { REUSED = 300, CANNOT = 77 };

static bool take_next_id(int pid)
{
    FILE *file = fopen("/proc/sys/kernel/ns_last_pid", "w");
    return file != NULL && fprintf(file, "%d", pid - 1) > 0 && fclose(file) == 0;
}

/* Forks a process with the id REUSED and returns its name.  The process runs until *end is closed, if end is given. */
static pid_t fork_with_id(char name[LIVENESS_NAME_MAX], int *end)
{
    int names[2], lifetime[2];
    if (pipe(names) != 0 || pipe(lifetime) != 0 || !take_next_id(REUSED)) return -1;
    pid_t pid = fork();
    if (pid == 0) {
        char byte, mine[LIVENESS_NAME_MAX] = "";
        close(lifetime[1]);
        liveness_name(mine);
        if (write(names[1], mine, sizeof mine) != sizeof mine) _exit(1);
        if (end != NULL && read(lifetime[0], &byte, 1) != 0) _exit(1);
        _exit(0);
    }
    close(lifetime[0]);
    if (read(names[0], name, LIVENESS_NAME_MAX) != LIVENESS_NAME_MAX) return -1;
    if (end == NULL) close(lifetime[1]);
    if (end != NULL) *end = lifetime[1];
    return pid;
}

/* Runs as the first process of a pid namespace, which sees two processes with one id, one after the other. */
static int judge_in_namespace(void)
{
    char first[LIVENESS_NAME_MAX], second[LIVENESS_NAME_MAX];
    int end;
    if (unshare(CLONE_NEWNS) != 0 || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
        mount("proc", "/proc", "proc", 0, NULL) != 0)
        return CANNOT;
    if (fork_with_id(first, NULL) != REUSED) return CANNOT;
    if (waitpid(REUSED, NULL, 0) != REUSED) return CANNOT;
    usleep(30000); /* the start has a resolution of 10 ms */
    if (fork_with_id(second, &end) != REUSED) return CANNOT;
    int result = liveness_ended(first) != REUSED ? 1 : liveness_ended(second) != 0 ? 2 : 0;
    close(end);
    return waitpid(REUSED, NULL, 0) == REUSED ? result : 3;
}

static void test_an_id_that_is_used_again_names_another_process(void **state)
{
    (void)state;
    int status = 0;
    pid_t helper = fork(); /* unshare changes the children of the calling process for good */
    if (helper == 0) {
        if (unshare(CLONE_NEWPID) != 0) _exit(CANNOT);
        pid_t first = fork();
        if (first == 0) _exit(judge_in_namespace());
        _exit(first > 0 && waitpid(first, &status, 0) == first && WIFEXITED(status) ? WEXITSTATUS(status) : 4);
    }
    assert_int_equal(waitpid(helper, &status, 0), helper);
    if (WIFEXITED(status) && WEXITSTATUS(status) == CANNOT) {
        print_message("skipped: pid namespaces, or choosing the next id in one, are not permitted here\n");
        skip();
    }
    assert_int_equal(WEXITSTATUS(status), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_an_id_that_is_used_again_names_another_process),
        cmocka_unit_test(test_an_ended_process_is_named),
        cmocka_unit_test(test_a_rank_that_failed_and_ended_is_not_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
