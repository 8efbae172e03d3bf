/* tutti-run --hosts over ssh and sshd on loopback, where they are installed. */
#include "launch.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

static char folder[] = "/tmp/tutti-sshd-XXXXXX", ssh[128];
static pid_t sshd;

/* Starts sshd in the test's folder, with keys of its own, on a free port, and prints its pid and the port. */
static const char start_sshd[] =
    "cd %s && dir=$PWD && test -x /usr/sbin/sshd && mkdir -p /run/sshd && "
    "ssh-keygen -q -t ed25519 -N '' -f host && ssh-keygen -q -t ed25519 -N '' -f user && "
    "printf '%%s\\n' \"HostKey $dir/host\" \"AuthorizedKeysFile $dir/user.pub\" 'ListenAddress 127.0.0.1' "
    "'StrictModes no' 'UsePAM no' \"PidFile $dir/pid\" 'PermitRootLogin yes' >config && "
    "printf '%%s\\n' \"IdentityFile $dir/user\" \"UserKnownHostsFile $dir/known\" 'StrictHostKeyChecking no' "
    "'LogLevel ERROR' >client && for port in $(seq 20022 23 20600); do "
    "/usr/sbin/sshd -f config -p $port -E log && for i in $(seq 100); do "
    "test -s pid && echo $(cat pid) $port && exit 0; sleep 0.02; done; done; exit 1";

static int set_up(void **state)
{
    char command[1500];
    int pid = 0, port = 0;
    (void)state;
    if (!mkdtemp(folder)) return -1;
    snprintf(command, sizeof command, start_sshd, folder);
    FILE *pipe = popen(command, "r");
    if (pipe && fscanf(pipe, "%d %d", &pid, &port) != 2) pid = 0; /* not installed, or not permitted */
    if (pipe) pclose(pipe);
    sshd = pid;
    snprintf(ssh, sizeof ssh, "ssh -F %s/client -p %d", folder, port);
    return 0;
}

static int tear_down(void **state)
{
    char command[64];
    (void)state;
    if (sshd > 0) kill(sshd, SIGTERM);
    launch_nothing_left();
    snprintf(command, sizeof command, "rm -r %s", folder);
    return system(command);
}

/* Runs tutti-run to its end.  sshd stays, which may be a child of this process by now. */
static struct launch run(const char *const *arguments)
{
    struct launch launch = launch_start(arguments);
    launch_finish(&launch);
    return launch;
}

static void ranks_run(void **state)
{
    (void)state;
    if (sshd == 0) skip();
    struct launch launch =
        run(ARGS("--ssh-command", ssh, "--hosts", "127.0.0.1:2", TUTTI_EXAMPLES_DIR "/all_reduce", "tcp"));
    if (launch.status != 0) fail_msg("%d: %s%s", launch.status, launch.out.data, launch.err.data);
    assert_int_equal(text_count(launch.out.data, "has the sum of the ranks [1]"), 2);
    launch_free(&launch);
}

/* 255 is also what ssh ends with when it fails. */
static void exit_codes_pass(void **state)
{
    (void)state;
    if (sshd == 0) skip();
    struct launch launch = run(ARGS("--ssh-command", ssh, "--master-addr=127.0.0.1", "--hosts", "127.0.0.1,localhost",
                                    "sh", "-c", "test $RANK = 0 && exec sleep 600; exit 255"));
    assert_int_equal(launch.status, 255);
    assert_has(&launch.err, "tutti-run on localhost: rank 1 (pid ");
    assert_has_not(&launch.err, "lost");
    launch_free(&launch);
}

static void a_refused_key_is_an_error(void **state)
{
    char other[160];
    (void)state;
    if (sshd == 0) skip();
    snprintf(other, sizeof other, "%s -o IdentityFile=none -o IdentitiesOnly=yes -o PreferredAuthentications=password",
             ssh);
    struct launch launch = run(ARGS("--ssh-command", other, "--hosts", "127.0.0.1", "true"));
    assert_int_equal(launch.status, 1);
    assert_has(&launch.err, "host 127.0.0.1: it cannot be reached (");
    assert_has(&launch.err, "Permission denied");
    launch_free(&launch);
}

/* The ranks are children of sshd, not of the launcher. */
static void ranks_end_with_the_launcher(void **state)
{
    (void)state;
    if (sshd == 0) skip();
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
