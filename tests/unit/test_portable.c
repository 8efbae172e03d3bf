/* portable/: what both forms promise, with the calls of Linux and without (TUTTI_PORTABLE). */
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "portable/cores.h"
#include "portable/environment.h"
#include "portable/files.h"
#include "portable/futex.h"
#include "portable/process.h"
#include "portable/sockets.h"
#include "portable/waits.h"
#include "portable/wake.h"

static bool is_readable(int fd)
{
    struct pollfd polled = {fd, POLLIN, 0};
    return poll(&polled, 1, 0) == 1;
}

static bool is_inherited(int fd)
{
    return (fcntl(fd, F_GETFD) & FD_CLOEXEC) == 0;
}

static void test_wake(void **state)
{
    (void)state;
    int fd = wake_open(false), sent = wake_open(true);
    assert_true(fd >= 0 && sent >= 0);
    assert_false(is_inherited(fd) || is_readable(fd));
    assert_true(is_readable(sent));
    wake_take(fd); /* does not wait */
    for (int i = 0; i < 3; i++) wake_send(fd);
    assert_true(is_readable(fd));
    wake_take(fd);
    assert_false(is_readable(fd));
    close(fd);
    close(sent);
}

static atomic_uint word;

static void *change_and_wake(void *argument)
{
    (void)argument;
    usleep(10000);
    atomic_store(&word, 1);
    futex_wake_one(&word);
    return NULL;
}

static int64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static void test_futex(void **state)
{
    (void)state;
    pthread_t thread;
    int64_t begin = now_ns();
    futex_wait(&word, 1, INT64_C(60000000000)); /* holds another value */
    assert_int_equal(pthread_create(&thread, NULL, change_and_wake, NULL), 0);
    while (atomic_load(&word) == 0) futex_wait(&word, 0, INT64_C(60000000000));
    pthread_join(thread, NULL);
    assert_true(now_ns() - begin < INT64_C(30000000000));
    futex_wait(&word, 1, 1000000); /* returns after the time */
}

static void test_waits(void **state)
{
    (void)state;
    int ends[2];
    pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    pthread_cond_t condition;
    int64_t until_ns = now_ns() + 2000000;
    struct timespec until = {.tv_sec = until_ns / 1000000000, .tv_nsec = until_ns % 1000000000};
    assert_int_equal(sockets_pipe(ends), 0);
    assert_false(is_inherited(ends[0]) || is_inherited(ends[1]));
    struct pollfd polled = {ends[0], POLLIN, 0};
    assert_int_equal(waits_poll(&polled, 1, 100000), 0);
    assert_int_equal(write(ends[1], "", 1), 1);
    assert_int_equal(waits_poll(&polled, 1, 100000), 1);
    waits_condition_init(&condition);
    pthread_mutex_lock(&lock);
    while (waits_condition(&condition, &lock, &until) != ETIMEDOUT) continue;
    pthread_mutex_unlock(&lock);
    assert_true(now_ns() >= until_ns);
    pthread_cond_destroy(&condition);
    close(ends[0]);
    close(ends[1]);
}

static void *number_thread(void *argument)
{
    *(uint32_t *)argument = process_thread();
    return NULL;
}

static void test_process(void **state)
{
    (void)state;
    char scope[64], again[64];
    uint32_t other = 0;
    pthread_t thread;
    process_scope(scope, sizeof scope);
    process_scope(again, sizeof again);
    assert_string_equal(scope, again);
    assert_true(process_start(getpid()) == process_start(getpid()));
    assert_true(process_parent(getpid()) == getppid() || process_parent(getpid()) == -1);
    assert_false(process_has_ended(getpid()));
    pid_t child = fork();
    if (child == 0) _exit(0);
    int fd = process_watch(child);
    if (fd >= 0) assert_int_equal(poll(&(struct pollfd){fd, POLLIN, 0}, 1, 30000), 1);
    if (fd >= 0) close(fd);
    assert_int_equal(waitpid(child, NULL, 0), child);
    assert_true(process_has_ended(child));
    assert_int_equal(pthread_create(&thread, NULL, number_thread, &other), 0);
    pthread_join(thread, NULL);
    assert_true(other != 0 && process_thread() != 0 && other != process_thread());
}

static void test_sockets(void **state)
{
    (void)state;
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof address;
    struct sockets_state found;
    int listener = sockets_open(AF_INET, SOCK_STREAM, true), pair[2];
    int client = sockets_open(AF_INET, SOCK_STREAM, true);
    assert_int_equal(bind(listener, (struct sockaddr *)&address, bytes), 0);
    assert_int_equal(listen(listener, 1), 0);
    assert_int_equal(getsockname(listener, (struct sockaddr *)&address, &bytes), 0);
    assert_false(sockets_read_state(-1, &found));
    assert_int_equal(connect(client, (struct sockaddr *)&address, bytes), 0);
    int server = sockets_accept(listener);
    assert_true(server >= 0 && !is_inherited(server) && !is_inherited(client));
    sockets_set_probes(client, &(struct sockets_probes){.idle_s = 2, .interval_s = 1, .count = 4});
    sockets_limit_unsent(client, 1 << 16);
    assert_true(sockets_read_state(client, &found) && found.is_established);
    assert_int_equal(sockets_accept(sockets_open(AF_INET, SOCK_STREAM, false)), -1);
    /* only a system that tells who the peer is says that it is this user */
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    assert_true(sockets_peer_process(pair[0]) == getpid() || sockets_peer_process(pair[0]) == -1);
    assert_true(sockets_peer_is_own_user(pair[0]) || sockets_peer_process(pair[0]) == -1);
    close(pair[0]), close(pair[1]), close(server), close(client), close(listener);
}

static void test_files(void **state)
{
    (void)state;
    char read[4] = "";
    int fd = files_unnamed("tutti-test");
    assert_true(fd >= 0 && !is_inherited(fd));
    assert_int_equal(pwrite(fd, "abc", 3, 0), 3);
    assert_true(files_seal(fd));
    assert_int_equal(pread(fd, read, 3, 0), 3);
    assert_string_equal(read, "abc");
    close(fd);
    fd = files_published("tutti-test");
    assert_true(fd >= 0 || errno == ENOSYS);
    if (fd >= 0) close(fd);
}

static void test_environment(void **state)
{
    (void)state;
    assert_int_equal(setenv("TUTTI_TEST_PORTABLE", "1", 1), 0);
    assert_string_equal(environment_get("TUTTI_TEST_PORTABLE"), "1");
    assert_null(environment_get("TUTTI_TEST_PORTABLE_NOT_SET"));
    assert_string_equal(environment_signal(SIGKILL), "KILL");
    assert_string_equal(environment_signal(SIGSEGV), "SEGV");
    assert_string_equal(environment_signal(SIGIO), "IO");
#ifdef SIGSTKFLT
    assert_string_equal(environment_signal(SIGPWR), "PWR");
    assert_string_equal(environment_signal(SIGSTKFLT), "STKFLT");
#endif
    assert_null(environment_signal(0));
    assert_true(cores_usable(0) >= 1);
    cores_move_to(0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_wake),        cmocka_unit_test(test_futex),   cmocka_unit_test(test_waits),
        cmocka_unit_test(test_process),     cmocka_unit_test(test_sockets), cmocka_unit_test(test_files),
        cmocka_unit_test(test_environment),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
