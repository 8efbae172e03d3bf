/* tutti-run --hosts over ssh and sshd, where they are installed.  ssh starts sshd itself, so no port is needed. */
#include "launch.h"

#include <signal.h>
#include <unistd.h>

static char folder[] = "/tmp/tutti-sshd-XXXXXX", ssh[128];
static bool works;

/* Configures ssh and sshd in the test's folder, with keys of its own. */
static const char configure[] =
    "cd %s && dir=$PWD && command -v ssh >/dev/null && test -x /usr/sbin/sshd && mkdir -p /run/sshd && "
    "ssh-keygen -q -t ed25519 -N '' -f host && ssh-keygen -q -t ed25519 -N '' -f user && "
    "printf '%%s\\n' \"HostKey $dir/host\" \"AuthorizedKeysFile $dir/user.pub\" 'StrictModes no' 'UsePAM no' "
    "'PermitRootLogin yes' >config && "
    "printf '%%s\\n' \"IdentityFile $dir/user\" \"UserKnownHostsFile $dir/known\" 'StrictHostKeyChecking no' "
    "'LogLevel ERROR' \"ProxyCommand /usr/sbin/sshd -i -f $dir/config -E $dir/log\" >client && "
    "/usr/sbin/sshd -t -f config";

static int set_up(void **state)
{
    char command[1500];
    (void)state;
    if (!mkdtemp(folder)) return -1;
    snprintf(command, sizeof command, configure, folder);
    works = system(command) == 0; /* else not installed, or not permitted */
    snprintf(ssh, sizeof ssh, "ssh -F %s/client", folder);
    return 0;
}

static int tear_down(void **state)
{
    char command[64];
    (void)state;
    launch_nothing_left();
    snprintf(command, sizeof command, "rm -r %s", folder);
    return system(command);
}

static void ranks_run(void **state)
{
    (void)state;
    if (!works) skip();
    struct launch launch =
        launch_run(ARGS("--ssh-command", ssh, "--hosts", "127.0.0.1:2", TUTTI_EXAMPLES_DIR "/all_reduce", "tcp"));
    if (launch.status != 0) fail_msg("%d: %s%s", launch.status, launch.out.data, launch.err.data);
    assert_int_equal(text_count(launch.out.data, "has the sum of the ranks [1]"), 2);
    launch_free(&launch);
}

/* 255 is also what ssh ends with when it fails. */
static void exit_codes_pass(void **state)
{
    (void)state;
    if (!works) skip();
    struct launch launch =
        launch_run(ARGS("--ssh-command", ssh, "--master-addr=127.0.0.1", "--hosts", "127.0.0.1,localhost", "sh", "-c",
                        "test $RANK = 0 && exec sleep 600; exit 255"));
    assert_int_equal(launch.status, 255);
    assert_has(&launch.err, "tutti-run on localhost: rank 1 (pid ");
    assert_has_not(&launch.err, "lost");
    launch_free(&launch);
}

static void a_refused_key_is_an_error(void **state)
{
    char other[160];
    (void)state;
    if (!works) skip();
    snprintf(other, sizeof other, "%s -o IdentityFile=none -o IdentitiesOnly=yes -o PreferredAuthentications=password",
             ssh);
    struct launch launch = launch_run(ARGS("--ssh-command", other, "--hosts", "127.0.0.1", "true"));
    assert_int_equal(launch.status, 1);
    assert_has(&launch.err, "host 127.0.0.1: it cannot be reached (");
    assert_has(&launch.err, "Permission denied");
    launch_free(&launch);
}

/* The ranks are children of sshd, not of the launcher. */
static void ranks_end_with_the_launcher(void **state)
{
    (void)state;
    if (!works) skip();
    struct launch launch =
        launch_start(ARGS("--ssh-command", ssh, "--hosts", "127.0.0.1:2", "sh", "-c", "echo pid $$; exec sleep 600"));
    launch_expect(&launch, "\n", 2);
    pid_t rank = (pid_t)atoi(strstr(launch.out.data, "pid ") + 4);
    kill(launch.pid, SIGKILL);
    launch_finish(&launch);
    int64_t deadline = launch_now_ms() + LAUNCH_HANG_MS;
    while (kill(rank, 0) == 0 && launch_now_ms() < deadline) usleep(2000);
    assert_int_not_equal(kill(rank, 0), 0);
    launch_free(&launch);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_run),
        cmocka_unit_test(exit_codes_pass),
        cmocka_unit_test(a_refused_key_is_an_error),
        cmocka_unit_test(ranks_end_with_the_launcher),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
