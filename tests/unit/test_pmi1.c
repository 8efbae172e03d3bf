/* PMI-1 after the launcher has ended: an error, and no SIGPIPE. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/error.h"
#include "bootstrap/launcher_exchange.h"

/* Uses a descriptor whose other end no longer reads (SHUT_RD) or writes (SHUT_WR). */
static void share_with(int shut, const char *part)
{
    int ends[2];
    char number[16], text[64] = "the store's place";
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    assert_int_equal(shutdown(ends[1], shut), 0);
    snprintf(number, sizeof number, "%d", ends[0]);
    setenv("PMI_FD", number, 1);
    int status = launcher_pmi1.share(0, "key", text, sizeof text, 20000);
    if (status != TUTTI_ERR_BACKEND || strstr(error_text(), part) == NULL)
        fail_msg("%s: %s, not ...%s...", error_name(status), error_text(), part);
    close(ends[0]);
    close(ends[1]);
}

static void test_launcher_gone(void **state)
{
    (void)state;
    share_with(SHUT_WR, "the launcher closed PMI_FD");
    share_with(SHUT_RD, "(PMI_FD) failed: Broken pipe");
}

/* Answers the requests of rank 0 until the end of the descriptor.  Returns how many ranks have finalized. */
static int serve(int fd)
{
    static const struct {
        const char *question, *answer;
    } lines[] = {{"cmd=init", "cmd=response_to_init rc=0\n"},
                 {"cmd=get_my_kvsname", "cmd=my_kvsname kvsname=space\n"},
                 {"cmd=put", "cmd=put_result rc=0\n"},
                 {"cmd=barrier_in", "cmd=barrier_out\n"},
                 {"cmd=finalize", "cmd=finalize_ack\n"}};
    char line[2048];
    int leaves = 0;
    FILE *file = fdopen(fd, "r");
    while (fgets(line, sizeof line, file) != NULL)
        for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
            if (strncmp(line, lines[i].question, strlen(lines[i].question)) != 0) continue;
            leaves += strcmp(lines[i].question, "cmd=finalize") == 0;
            if (send(fd, lines[i].answer, strlen(lines[i].answer), MSG_NOSIGNAL) < 0) break;
        }
    fclose(file);
    return leaves;
}

/* Runs a rank whose own child ends before it. */
static _Noreturn void be_rank_with_child(int fd)
{
    char number[16], text[64] = "the store's place";
    snprintf(number, sizeof number, "%d", fd);
    setenv("PMI_FD", number, 1);
    if (launcher_pmi1.share(0, "key", text, sizeof text, 20000) != TUTTI_OK) _exit(1);
    pid_t child = fork();
    if (child == 0) exit(0); /* runs the rank's exit handlers */
    int how = 0;
    waitpid(child, &how, 0);
    exit(how != 0);
}

static void test_only_the_rank_takes_leave(void **state)
{
    (void)state;
    int ends[2], how = 0;
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    pid_t rank = fork();
    if (rank == 0) {
        close(ends[1]);
        be_rank_with_child(ends[0]);
    }
    close(ends[0]);
    assert_int_equal(serve(ends[1]), 1);
    assert_int_equal(waitpid(rank, &how, 0), rank);
    assert_int_equal(how, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_launcher_gone),
                                       cmocka_unit_test(test_only_the_rank_takes_leave)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
