/* tutti-run: the command line, the environment of a rank, and its output. */
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <tutti/tutti.h>

#include "launch.h"
#include "train/scratch_folder.h"

/* ---- the command line -------------------------------------------------------------------------------------- */

static void refuses_a_bad_command_line(void **state)
{
    (void)state;
    launch_assert_refused(ARGS("-n", "2"), 2, "no program to run");
    launch_assert_refused(ARGS("--frobnicate", "true"), 2, "unknown option --frobnicate");
    launch_assert_refused(ARGS("-z", "true"), 2, "unknown option -z");
    launch_assert_refused(ARGS("--rdzv-backend=c10d", "true"), 2,
                          "tutti-run does not have torchrun's --rdzv-backend=c10d");
    launch_assert_refused(ARGS("--max_restarts", "3:4", "true"), 2, "--max-restarts takes a number from 0");
    launch_assert_refused(ARGS("--replace=all", "true"), 2, "--replace takes a number from 0");
    launch_assert_refused(ARGS("--on-failure=ignore", "true"), 2, "end, restart or continue, not \"ignore\"");
    launch_assert_refused(ARGS("--on-failure=end", "--max-restarts=1", "true"), 2, "needs --on-failure=restart");
    launch_assert_refused(ARGS("--on-failure=restart", "--replace=1", "true"), 2, "needs --on-failure=continue");
    launch_assert_refused(ARGS("--replace=1", "--max-restarts=1", "true"), 2, "give one of them");
    launch_assert_refused(ARGS("--mpi", "--on-failure=restart", "true"), 2, "--mpi goes with --on-failure=end only");
    launch_assert_refused(ARGS("-m", "module"), 2, "python -m MODULE");
    launch_assert_refused(ARGS("--nnodes", "1:2", "true"), 2, "--nnodes 1:2 needs --rdzv-endpoint");
    launch_assert_refused(ARGS("--nnodes", "3:2", "true"), 2, "the least number of nodes is larger than the most");
    launch_assert_refused(ARGS("--nnodes", ":2", "true"), 2, "--nnodes takes a number from 1");
    launch_assert_refused(ARGS("--nnodes", "1:", "true"), 2, "--nnodes takes a number from 1");
    launch_assert_refused(ARGS("--rdzv-endpoint=:1", "true"), 2, "takes HOST:PORT, not \":1\"");
    launch_assert_refused(ARGS("--rdzv-endpoint=[::1", "true"), 2, "takes HOST:PORT");
    launch_assert_refused(ARGS("--rdzv-endpoint=a:x", "true"), 2, "from 0 to 65535, not \"x\"");
    launch_assert_refused(ARGS("--rdzv-endpoint=a:1", "--node-rank=0", "true"), 2, "omit --node-rank");
    launch_assert_refused(ARGS("--rdzv-endpoint=a:1", "--master-addr=a", "true"), 2, "omit --master-addr");
    launch_assert_refused(ARGS("--rdzv-endpoint=a:0", "--nnodes=2", "true"), 2, "a port other than 0");
    launch_assert_refused(ARGS("--rdzv-conf=read_timeout=3", "true"), 2, "takes join_timeout=SECONDS");
    launch_assert_refused(ARGS("--rdzv-id=a b", "true"), 2, "without blanks");
    launch_assert_refused(ARGS("-n", "zero", "true"), 2, "--nproc-per-node takes a number from 1");
    launch_assert_refused(ARGS("-n", "0", "true"), 2, "not \"0\"");
    launch_assert_refused(ARGS("--nproc-per-node"), 2, "--nproc-per-node needs a value");
    launch_assert_refused(ARGS("--token-file=", "true"), 2, "--token-file is empty");
    launch_assert_refused(ARGS("--no-prefix=1", "true"), 2, "takes no value");
    launch_assert_refused(ARGS("--master-port=70000", "true"), 2, "from 0 to 65535");
    launch_assert_refused(ARGS("--grace=-1", "true"), 2, "seconds");
    launch_assert_refused(ARGS("--bind", "numa", "true"), 2, "--bind takes none, core or socket, not \"numa\"");
    launch_assert_refused(ARGS("--node-rank=1", "true"), 2, "--node-rank is 1");
    launch_assert_refused(ARGS("--nnodes=2", "true"), 2, "--node-rank");
    launch_assert_refused(ARGS("--nnodes=2", "--node-rank=0", "true"), 2, "--master-addr");
    launch_assert_refused(ARGS("--nnodes=2", "--node-rank=0", "--master-addr=::1", "true"), 2, "--master-port");
}

static void takes_torchruns_spellings(void **state)
{
    (void)state;
    const char *const *forms[] = {ARGS("-n", "3", "sh", "-c", "echo $WORLD_SIZE"),
                                  ARGS("-n3", "sh", "-c", "echo $WORLD_SIZE"),
                                  ARGS("--nproc-per-node=3", "sh", "-c", "echo $WORLD_SIZE"),
                                  ARGS("--nproc_per_node", "3", "--", "sh", "-c", "echo $WORLD_SIZE"),
                                  ARGS("--standalone", "--nproc_per_node=3", "sh", "-c", "echo $WORLD_SIZE")};
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        struct launch launch = launch_run(forms[i]);
        assert_int_equal(launch.status, 0);
        assert_int_equal(text_count(launch.out.data, "] 3\n"), 3);
        launch_free(&launch);
    }
}

static void leaves_the_programs_arguments_alone(void **state)
{
    (void)state;
    struct launch launch = RUN("sh", "-c", "echo \"$@\"", "sh", "--nproc_per_node=4", "-n", "--", "--help");
    assert_string_equal(launch.out.data, "[0] --nproc_per_node=4 -n -- --help\n");
    launch_free(&launch);
}

static void auto_is_one_rank_a_core(void **state)
{
    (void)state;
    cpu_set_t mask;
    sched_getaffinity(0, sizeof mask, &mask);
    struct launch launch = RUN("-n", "auto", "echo", "here");
    assert_int_equal(text_count(launch.out.data, "here\n"), CPU_COUNT(&mask));
    launch_free(&launch);
}

/* Returns the n-th core of the mask, or -1. */
static int core_of(const cpu_set_t *mask, int n)
{
    for (int core = 0; core < CPU_SETSIZE; core++)
        if (CPU_ISSET(core, mask) && n-- == 0) return core;
    return -1;
}

static void bind_itself_to(int core)
{
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(core, &one);
    assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
}

static void binds_ranks_to_cores(void **state)
{
    cpu_set_t mask;
    char expected[64];
    (void)state;
    launch_assert_refused(ARGS("--bind", "core", "-n", "4096", "true"), 2, "4096 ranks on this node, but");
    sched_getaffinity(0, sizeof mask, &mask);
    int last = core_of(&mask, CPU_COUNT(&mask) - 1);
    bind_itself_to(last);
    launch_assert_refused(ARGS("--bind", "core", "-n", "2", "true"), 2, "tutti-run may use 1 core;");
    struct launch inside = RUN("--bind", "core", "grep", "Cpus_allowed_list", "/proc/self/status");
    struct launch both = RUN("--bind", "socket", "-n", "2", "grep", "Cpus_allowed_list", "/proc/self/status");
    assert_int_equal(sched_setaffinity(0, sizeof mask, &mask), 0);
    snprintf(expected, sizeof expected, "Cpus_allowed_list:\t%d\n", last);
    assert_int_equal(text_count(inside.out.data, expected), 1);
    assert_int_equal(text_count(both.out.data, expected), 2);
    launch_free(&inside);
    launch_free(&both);
}

static void bound_ranks_have_different_cores(void **state)
{
    static const char list[] = "x=$(grep Cpus_allowed_list /proc/self/status); echo \"$x\"";
    (void)state;
    struct launch launch = RUN("--no-prefix", "--bind=core", "-n", "2", "sh", "-c", list);
    if (launch.status == 2) skip(); /* only one core may be used */
    assert_int_equal(launch.status, 0);
    size_t line = strcspn(launch.out.data, "\n") + 1;
    assert_int_equal(text_count(launch.out.data, "Cpus_allowed_list:"), 2);
    assert_int_not_equal(strncmp(launch.out.data, launch.out.data + line, line), 0);
    launch_free(&launch);
}

static void tells_its_options_and_version(void **state)
{
    (void)state;
    struct launch launch = RUN("--help");
    assert_int_equal(launch.status, 0);
    assert_has(&launch.out, "--nproc-per-node");
    launch_free(&launch);
    launch = RUN("--version");
    assert_int_equal(launch.status, 0);
    assert_has(&launch.out, "tutti-run 0.");
    launch_free(&launch);
}

static void says_what_cannot_be_run(void **state)
{
    (void)state;
    launch_assert_refused(ARGS("-n", "4", "/nonexistent/program"), 127,
                          "cannot run /nonexistent/program: No such file");
    launch_assert_refused(ARGS("no-such-program-in-path"), 127, "cannot run no-such-program-in-path");
    launch_assert_refused(ARGS("-n", "2", "/etc"), 126, "cannot run /etc: Permission denied");
}

/* ---- what a rank finds ----------------------------------------------------------------------------------------- */

static void sets_the_variables(void **state)
{
    (void)state;
    unsetenv("OMP_NUM_THREADS");
    unsetenv("CUDA_DEVICE_MAX_CONNECTIONS");
    struct launch launch =
        RUN("-n", "2", "sh", "-c",
            "echo $RANK/$WORLD_SIZE local $LOCAL_RANK/$LOCAL_WORLD_SIZE node $NODE_RANK $GROUP_RANK at $MASTER_ADDR "
            "hosted $TUTTI_STORE_HOSTED omp $OMP_NUM_THREADS "
            "queues $CUDA_DEVICE_MAX_CONNECTIONS; test $MASTER_PORT -gt 0 && echo port");
    assert_int_equal(launch.status, 0);
    assert_has(&launch.out, "[0] 0/2 local 0/2 node 0 0 at 127.0.0.1 hosted 1 omp 1 queues 32\n");
    assert_has(&launch.out, "[1] 1/2 local 1/2 node 0 0 at 127.0.0.1 hosted 1 omp 1 queues 32\n");
    assert_int_equal(text_count(launch.out.data, "] port\n"), 2);
    launch_free(&launch);
    setenv("RANK", "77", 1); /* an older value is replaced */
    setenv("OMP_NUM_THREADS", "5", 1);
    setenv("CUDA_DEVICE_MAX_CONNECTIONS", "4", 1);
    launch = RUN("-n", "2", "env"); /* a shell would hide a duplicate variable */
    assert_has(&launch.out, "[1] RANK=1\n");
    assert_int_equal(text_count(launch.out.data, "] RANK="), 2);
    assert_int_equal(text_count(launch.out.data, "] OMP_NUM_THREADS=5\n"), 2);
    assert_int_equal(text_count(launch.out.data, "] CUDA_DEVICE_MAX_CONNECTIONS=4\n"), 2);
    launch_free(&launch);
    unsetenv("RANK");
    unsetenv("OMP_NUM_THREADS");
    unsetenv("CUDA_DEVICE_MAX_CONNECTIONS");
}

static void gives_all_ranks_one_sealed_token(void **state)
{
    (void)state;
    static const char script[] = "od -An -v -tx1 /proc/self/fd/$TUTTI_TOKEN_FD | tr -d ' \\n'; echo; "
                                 "wc -c </proc/self/fd/$TUTTI_TOKEN_FD; "
                                 "(printf x 1<>/proc/self/fd/$TUTTI_TOKEN_FD) 2>/dev/null || echo sealed";
    struct launch one = RUN("-n", "2", "sh", "-c", script), other = RUN("sh", "-c", script);
    char *token = strstr(one.out.data, "[0] ");
    assert_non_null(token);
    token[4 + 64] = '\0';
    assert_int_equal(strspn(token + 4, "0123456789abcdef"), 64);
    char *rest = token + 4 + 65;
    assert_true(strstr(rest, token + 4) || strstr(one.out.data, token + 4) < token);
    assert_int_equal(text_count(rest, "] 32\n") + (token > one.out.data ? text_count(one.out.data, "] 32\n") : 0), 2);
    assert_null(strstr(other.out.data, token + 4));
    assert_has(&other.out, "[0] sealed\n");
    launch_free(&one);
    launch_free(&other);
}

/* A rank's open descriptors: its three streams, the token and the launcher's stdout. ls lists those of the shell. */
static void leaks_no_descriptor(void **state)
{
    (void)state;
    char option[80], path[96];
    snprintf(option, sizeof option, "--log-dir=%s", folder);
    snprintf(path, sizeof path, "%s/rank_0.out", folder);
#define LIST_OPEN "ls /proc/$$/fd; echo $((TUTTI_TOKEN_FD > 2 && TUTTI_STDOUT_FD > 2)) ok"
    const char *const *ways[] = {ARGS("-n", "3", "sh", "-c", LIST_OPEN),
                                 ARGS("-n", "1", "--no-prefix", "sh", "-c", LIST_OPEN),
                                 ARGS("-n", "1", option, "sh", "-c", LIST_OPEN)};
    for (int i = 0; i < 3; i++) {
        struct launch launch = launch_run(ways[i]);
        if (i == 2) {
            int file = open(path, O_RDONLY | O_CLOEXEC);
            launch_read(&file, &launch.out);
            close(file);
        }
        int ranks = i == 0 ? 3 : 1;
        assert_int_equal(text_count(launch.out.data, "1 ok\n"), ranks);
        assert_int_equal(text_count(launch.out.data, "\n"), ranks * 6);
        launch_free(&launch);
    }
}

static void rank_0_has_our_stdin(void **state)
{
    (void)state;
    int ends[2];
    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    assert_int_equal(write(ends[1], "hello\n", 6), 6);
    close(ends[1]);
    struct launch launch = launch_start_from(ends[0], ARGS("-n", "2", "sh", "-c", "echo \"<$(cat)>\""));
    close(ends[0]);
    launch_finish(&launch);
    assert_has(&launch.out, "[0] <hello>\n");
    assert_has(&launch.out, "[1] <>\n");
    launch_free(&launch);
}

/* ---- output ---------------------------------------------------------------------------------------------------- */

static void prefixes_each_line_and_keeps_the_streams_apart(void **state)
{
    (void)state;
    struct launch launch = RUN("-n", "3", "sh", "-c", "echo out; echo err >&2; printf unfinished");
    for (int rank = 0; rank < 3; rank++) {
        char line[32];
        snprintf(line, sizeof line, "[%d] out\n", rank);
        assert_has(&launch.out, line);
        snprintf(line, sizeof line, "[%d] unfinished\n", rank);
        assert_has(&launch.out, line);
        snprintf(line, sizeof line, "[%d] err\n", rank);
        assert_has(&launch.err, line);
    }
    assert_int_equal(text_count(launch.out.data, "\n"), 6);
    assert_int_equal(text_count(launch.err.data, "\n"), 3);
    launch_free(&launch);
}

/* Rank r writes lines of its own letter, in pieces of any length. */
static void never_mixes_lines(void **state)
{
    (void)state;
    enum { LINES = 4000, LENGTH = 97 };
    struct launch launch = RUN("-n", "4", "sh", "-c",
                               "c=$(echo abcd | cut -c$((RANK + 1))); "
                               "head -c $((4000 * 97)) /dev/zero | tr '\\0' $c | fold -w 97 | dd bs=1009 status=none");
    int lines = 0;
    for (char *line = launch.out.data; *line; lines++) {
        assert_true(line[0] == '[' && line[2] == ']' && line[3] == ' ');
        char letter[2] = {(char)('a' + line[1] - '0'), '\0'};
        assert_int_equal(strspn(line + 4, letter), LENGTH);
        assert_int_equal(line[4 + LENGTH], '\n');
        line += 4 + LENGTH + 1;
    }
    assert_int_equal(lines, 4 * LINES);
    launch_free(&launch);
}

static void cuts_a_long_line(void **state)
{
    (void)state;
    struct launch launch = RUN("sh", "-c", "head -c 150000 /dev/zero | tr '\\0' a");
    assert_int_equal(text_count(launch.out.data, "a"), 150000);
    assert_int_equal(text_count(launch.out.data, "\n"), 3);
    assert_int_equal(text_count(launch.out.data, "[0] a"), 3);
    launch_free(&launch);
    launch =
        RUN("sh", "-c", "head -c 65536 /dev/zero | tr '\\0' a; echo; echo b"); /* just fits, so no empty line follows */
    assert_int_equal(text_count(launch.out.data, "\n"), 2);
    launch_free(&launch);
}

static void passes_all_bytes(void **state)
{
    (void)state;
    struct launch launch = RUN("printf", "a\\000\\377\\r\\nb\\n");
    assert_int_equal(launch.out.used, 15);
    assert_memory_equal(launch.out.data, "[0] a\0\377\r\n[0] b\n", 15);
    launch_free(&launch);
}

/* Both streams share a pipe, as with 2>&1.  A pipe keeps at most 4 KiB together. */
static void one_file_for_both_streams_keeps_lines_whole(void **state)
{
    (void)state;
    char path[] = "/tmp/tutti-run-test-XXXXXX", script[512];
    close(mkstemp(path));
    snprintf(script, sizeof script,
             "exec %s -n 2 sh -c 'x() { head -c 3000000 /dev/zero | tr \"\\\\0\" $1 | fold -w 30000; echo; }; "
             "x o & x e >&2; wait' 2>&1 | cat >%s",
             launch_path(), path);
    assert_int_equal(system(script), 0);
    snprintf(script, sizeof script,
             "test $(cut -c1-5 %s | grep -cE '^\\[[01]\\] [oe]') = 400 && test $(wc -l <%s) = 400 && "
             "test $(awk 'length != 30004 || (/o/ && /e/)' %s | wc -l) = 0",
             path, path, path);
    assert_int_equal(system(script), 0);
    unlink(path);
}

static void no_prefix_passes_output_unchanged(void **state)
{
    (void)state;
    struct launch launch = RUN("-n", "2", "--no-prefix", "sh", "-c", "echo out; echo err >&2");
    assert_string_equal(launch.out.data, "out\nout\n");
    assert_string_equal(launch.err.data, "err\nerr\n");
    launch_free(&launch);
}

static void log_dir_files_each_stream(void **state)
{
    (void)state;
    char dir[] = "/tmp/tutti-run-test-XXXXXX", option[128], script[512];
    assert_non_null(mkdtemp(dir));
    snprintf(option, sizeof option, "--log-dir=%s/a/b", dir);
    struct launch launch = RUN("-n", "2", option, "sh", "-c",
                               "test $RANK = 0 || until test -s $0/a/b/rank_0.err; do sleep 0.01; done; "
                               "echo out $RANK; echo why $RANK >&2; exit $RANK",
                               dir);
    assert_int_equal(launch.status, 1);
    assert_string_equal(launch.out.data, "");
    assert_has(&launch.err, "rank 1 (pid ");
    assert_has(&launch.err, "rank_1.err:\n    why 1\n");
    snprintf(script, sizeof script,
             "cd %s/a/b && test \"$(cat rank_0.out rank_0.err rank_1.out rank_1.err | tr '\\n' ,)\" = "
             "'out 0,why 0,out 1,why 1,' && rm rank_* && cd / && rmdir -p %s/a/b 2>/dev/null; test ! -e %s",
             dir, dir, dir);
    assert_int_equal(system(script), 0);
    launch_free(&launch);
    launch_assert_refused(ARGS("--log-dir=/proc/no", "true"), 1, "cannot create the folder /proc/no");
}

/* The reader waits until the ranks are blocked in writing, then reads everything. */
static void a_slow_reader_slows_the_ranks(void **state)
{
    (void)state;
    struct launch launch =
        launch_start(ARGS("-n", "2", "sh", "-c", "head -c 60000000 /dev/zero | tr '\\0' x | fold -w 999"));
    usleep(500000);
    launch_finish(&launch);
    assert_int_equal(launch.status, 0);
    int x = 0;
    for (size_t i = 0; i < launch.out.used; i++) x += launch.out.data[i] == 'x';
    assert_int_equal(x, 120000000);
    assert_true(launch.max_rss_kb < 48 << 10);
    launch_free(&launch);
    launch_nothing_left();
}

static void a_reader_that_leaves_ends_the_ranks(void **state)
{
    (void)state;
    struct launch launch = launch_start(ARGS("-n", "2", "yes"));
    launch_expect(&launch, "y\n", 1);
    close(launch.from_out);
    launch.from_out = -1;
    launch_finish(&launch);
    assert_int_equal(launch.status, 128 + SIGPIPE);
    assert_has(&launch.err, "died of SIGPIPE");
    launch_free(&launch);
    launch_nothing_left();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(refuses_a_bad_command_line),
        cmocka_unit_test(takes_torchruns_spellings),
        cmocka_unit_test(leaves_the_programs_arguments_alone),
        cmocka_unit_test(auto_is_one_rank_a_core),
        cmocka_unit_test(binds_ranks_to_cores),
        cmocka_unit_test(bound_ranks_have_different_cores),
        cmocka_unit_test(tells_its_options_and_version),
        cmocka_unit_test(says_what_cannot_be_run),
        cmocka_unit_test(sets_the_variables),
        cmocka_unit_test(gives_all_ranks_one_sealed_token),
        CASE(leaks_no_descriptor),
        cmocka_unit_test(rank_0_has_our_stdin),
        cmocka_unit_test(prefixes_each_line_and_keeps_the_streams_apart),
        cmocka_unit_test(never_mixes_lines),
        cmocka_unit_test(cuts_a_long_line),
        cmocka_unit_test(passes_all_bytes),
        cmocka_unit_test(one_file_for_both_streams_keeps_lines_whole),
        cmocka_unit_test(no_prefix_passes_output_unchanged),
        cmocka_unit_test(log_dir_files_each_stream),
        cmocka_unit_test(a_slow_reader_slows_the_ranks),
        cmocka_unit_test(a_reader_that_leaves_ends_the_ranks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
