/* The sentinel, which shows whether the program has closed the library's descriptors. */
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
    struct descriptor_identity first, second;
    (void)state;
    assert_true(descriptors_join_sentinel(&first) && descriptors_join_sentinel(&second));
    assert_int_equal(first.fd, second.fd);
    int fd = first.fd;
    descriptors_leave_sentinel(&first);
    assert_true(descriptors_is_same(&second));
    descriptors_leave_sentinel(&second);
    assert_false(is_open(fd));
    descriptors_leave_sentinel(&second); /* it has left already */
}

static void test_a_closed_one_is_replaced(void **state)
{
    struct descriptor_identity old, fresh;
    (void)state;
    assert_true(descriptors_join_sentinel(&old));
    close(old.fd);
    assert_false(descriptors_is_same(&old));
    assert_true(descriptors_join_sentinel(&fresh)); /* most likely with the same number */
    assert_false(descriptors_is_same(&old));
    descriptors_leave_sentinel(&old);
    assert_true(descriptors_is_same(&fresh));
    int fd = fresh.fd;
    descriptors_leave_sentinel(&fresh);
    assert_false(is_open(fd));
}

static void test_a_child_has_its_own(void **state)
{
    struct descriptor_identity parents, childs;
    int status = -1;
    (void)state;
    assert_true(descriptors_join_sentinel(&parents));
    pid_t pid = fork();
    if (pid == 0) {
        bool fine = descriptors_join_sentinel(&childs) && childs.inode != parents.inode;
        descriptors_leave_sentinel(&childs);
        _exit(fine && descriptors_is_same(&parents) ? 0 : 1);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    descriptors_leave_sentinel(&parents);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_users_share_one_socket),
                                       cmocka_unit_test(test_a_closed_one_is_replaced),
                                       cmocka_unit_test(test_a_child_has_its_own)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
