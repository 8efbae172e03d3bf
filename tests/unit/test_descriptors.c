/* The witness that tells whether the program has closed the library's descriptors. */
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "base/descriptors.h"

static bool is_open(int fd)
{
    return fcntl(fd, F_GETFD) >= 0;
}

static void test_users_share_one_socket(void **state)
{
    struct witness first, second;
    (void)state;
    assert_true(witness_join(&first) && witness_join(&second));
    assert_int_equal(first.fd, second.fd);
    int fd = first.fd;
    witness_leave(&first);
    assert_true(witness_holds(&second));
    witness_leave(&second);
    assert_false(is_open(fd));
    witness_leave(&second); /* has left already */
}

static void test_a_closed_one_is_replaced(void **state)
{
    struct witness old, fresh;
    (void)state;
    assert_true(witness_join(&old));
    close(old.fd);
    assert_false(witness_holds(&old));
    assert_true(witness_join(&fresh)); /* most likely with the same number */
    assert_false(witness_holds(&old));
    witness_leave(&old);
    assert_true(witness_holds(&fresh));
    int fd = fresh.fd;
    witness_leave(&fresh);
    assert_false(is_open(fd));
}

static void test_a_child_has_its_own(void **state)
{
    struct witness parents, childs;
    int status = -1;
    (void)state;
    assert_true(witness_join(&parents));
    pid_t pid = fork();
    if (pid == 0) {
        bool fine = witness_join(&childs) && childs.inode != parents.inode;
        witness_leave(&childs);
        _exit(fine && witness_holds(&parents) ? 0 : 1);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    witness_leave(&parents);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_users_share_one_socket),
                                       cmocka_unit_test(test_a_closed_one_is_replaced),
                                       cmocka_unit_test(test_a_child_has_its_own)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
