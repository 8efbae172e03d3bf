/* Who is named where several processes have ended: the rank that a failing rank has named before it ended. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "base/error.h"
#include "bootstrap/liveness.h"
#include "group/group.h"
#include "group/processes.h"
#include "store/store_impl.h"

enum { RANKS = 3 };

/* The name of a process that has ended. */
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

/* A store in memory in which a rank fails just after somebody has looked whether one has: it says why, and ends. */
struct late_store {
    tutti_store base; /* first */
    tutti_store *inner;
    const char *said; /* NULL: nothing */
};

static int call_late(tutti_store *store, const struct store_request *request, struct store_reply *reply)
{
    struct late_store *late = (struct late_store *)store;
    int status = late->inner->class->call(late->inner, request, reply);
    bool looked = request->op == STORE_GET && strncmp(request->keys[0].data, "world/lost", strlen("world/lost")) == 0;
    if (looked && late->said != NULL) liveness_say_lost(late->inner, "world/lost", TUTTI_ERR_PEER_LOST, late->said);
    return status;
}

static void close_late(tutti_store *store, bool forked)
{
    (void)forked;
    tutti_store_free(((struct late_store *)store)->inner);
}

static const struct store_class late_class = {.call = call_late, .close = close_late};

/* Ranks 2 and 0 have ended, and stand in the list in this order. */
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_an_ended_process_is_named),
        cmocka_unit_test(test_a_rank_that_failed_and_ended_is_not_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
