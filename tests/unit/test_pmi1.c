/* PMI-1 without a launcher: one that has gone is told of, and kills nobody. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/error.h"
#include "launcher.h"

/* Shares over a descriptor whose other end takes nothing (SHUT_RD) or says nothing (SHUT_WR) any more. */
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
    share_with(SHUT_WR, "it has closed PMI_FD");
    share_with(SHUT_RD, "PMI_FD: Broken pipe");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_launcher_gone)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
