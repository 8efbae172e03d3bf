/* tutti-info describes the machine, and under tutti-run the world.  It refuses unknown arguments. */
#include "tools/launch.h"

#include <fcntl.h>
#include <unistd.h>

#define INFO TUTTI_BUILD_DIR "/bin/tutti-info"

static void has(const struct launch *launch, const char *part)
{
    if (strstr(launch->out.data, part) == NULL) fail_msg("\"%s\" is not in: %s", part, launch->out.data);
}

static void machine(void **state)
{
    (void)state;
    struct launch launch = RUN("-n", "1", "/usr/bin/env", "-u", "RANK", INFO);
    assert_int_equal(launch.status, 0);
    has(&launch, "cores in the affinity mask");
    has(&launch, "backend tcp: found\n");
    has(&launch, "/libtutti_tcp.so, version ");
    has(&launch, "; in use: tcp\n");
    has(&launch, "interfaces: ");
    has(&launch, "address for ranks on other hosts: ");
    has(&launch, "backend nccl: ");
    assert_null(strstr(launch.out.data, "world of"));
    launch_free(&launch);
}

/* libfabric cannot be loaded here, so the ranks share memory. */
static void shared_memory_alone(void **state)
{
    (void)state;
    char folder[] = "/tmp/tutti-info-XXXXXX", library[64], path[64];
    assert_non_null(mkdtemp(folder));
    snprintf(library, sizeof library, "%s/libfabric.so.1", folder);
    snprintf(path, sizeof path, "LD_LIBRARY_PATH=%s", folder);
    int fd = open(library, O_CREAT | O_WRONLY | O_CLOEXEC, 0600); /* an empty file is not a library */
    assert_true(fd >= 0);
    close(fd);
    struct launch launch = RUN("-n", "1", "/usr/bin/env", "-u", "RANK", path, INFO);
    struct launch world = RUN("-n", "2", "/usr/bin/env", path, INFO);
    struct launch off = RUN("-n", "1", "/usr/bin/env", "-u", "RANK", "TUTTI_SHM=0", path, INFO);
    unlink(library);
    rmdir(folder);
    assert_int_equal(launch.status, 0);
    has(&launch, "backend tcp: found\n");
    has(&launch, "ranks of this host: through shared memory\n");
    has(&launch, "ranks on other hosts: not reachable, libfabric.so.1 cannot be loaded (Debian: libfabric1)");
    assert_int_equal(world.status, 0);
    has(&world, "tcp: rank 1 shares memory with 1 of 1 ranks");
    has(&off, "backend tcp: refused\n");
    has(&off, "libfabric.so.1 cannot be loaded");
    launch_free(&launch);
    launch_free(&world);
    launch_free(&off);
}

static void refused(void **state)
{
    (void)state;
    struct launch launch =
        RUN("-n", "1", "/usr/bin/env", "-u", "RANK", "TUTTI_FABRIC_PROVIDER=tcp", "PATH=/bin", INFO, "--backend");
    assert_int_not_equal(launch.status, 0);
    assert_non_null(strstr(launch.err.data, "--backend needs a value"));
    launch_free(&launch);
}

static void world(void **state)
{
    (void)state;
    struct launch launch = RUN("-n", "3", INFO);
    assert_int_equal(launch.status, 0);
    has(&launch, "world of 3 ranks on cpu:tcp\n");
    has(&launch, "rank 0: host 0 (");
    has(&launch, "rank 2: host 0 (");
    has(&launch, "tcp: rank 2 shares memory with 2 of 2 ranks");
    assert_int_equal(text_count(launch.out.data, "world of"), 1); /* rank 0 alone prints */
    launch_free(&launch);
    launch = RUN("-n", "2", "/usr/bin/env", "TUTTI_SHM=off", INFO);
    assert_int_equal(launch.status, 0);
    has(&launch, "tcp: rank 1 listens on 127.0.0.1:");
    has(&launch, "all_reduce from 4 bytes: algorithm ");
    has(&launch, "barrier from 4 bytes: algorithm ");
    assert_null(strstr(launch.out.data, "shares memory"));
    launch_free(&launch);
}

/* Each rank warns once about each variable with an invalid value, and reports the value that it uses instead. */
static void invalid_values(void **state)
{
    (void)state;
    struct launch launch = RUN("-n", "2", "/usr/bin/env", "TUTTI_LOG=nonsense", "TUTTI_SHM=maybe",
                               "TUTTI_BACKEND_PATH=/there/is/none:/tmp", INFO);
    assert_int_equal(launch.status, 0);
    static const char *const lines[] = {
        "TUTTI_LOG: \"nonsense\" is neither a level (off, error, warn, info, debug) nor SUBSYSTEM:LEVEL, and is "
        "ignored",
        "TUTTI_SHM=maybe is not a boolean (use 0, false, no, off, 1, true, yes or on); using 1",
        "TUTTI_BACKEND_PATH: /there/is/none is skipped: No such file or directory"};
    for (int i = 0; i < 3; i++)
        if (text_count(launch.err.data, lines[i]) != 2)
            fail_msg("not once a rank \"%s\": %s", lines[i], launch.err.data);
    launch_free(&launch);
}

/* The lines of plug-ins carry the subsystems that they name. */
static void log_by_subsystem(void **state)
{
    (void)state;
    struct launch launch = RUN("-n", "2", "/usr/bin/env", "TUTTI_LOG=off,net:info", "TUTTI_SHM=off", INFO);
    assert_int_equal(launch.status, 0);
    if (strstr(launch.err.data, " tutti[1] info net: tcp: rank 1 listens on ") == NULL ||
        strstr(launch.err.data, " info group: ") != NULL)
        fail_msg("not the lines of net alone: %s", launch.err.data);
    launch_free(&launch);
}

/* ---- --support ------------------------------------------------------------------------------------------------- */

static void has_page(const char *text)
{
    static char page[64 * 1024];
    FILE *file = fopen(TUTTI_SOURCE_DIR "/docs/support.md", "r");
    assert_non_null(file);
    page[fread(page, 1, sizeof page - 1, file)] = '\0';
    fclose(file);
    if (strncmp(text, "## c", 4) != 0 || strstr(page, text) == NULL)
        fail_msg("docs/support.md differs; docs/reference/support.sh writes it:\n%s", text);
}

/* docs/support.md has what --support prints. */
static void support(void **state)
{
    (void)state;
    struct launch launch = RUN("-n", "2", "--no-prefix", INFO, "--support");
    assert_int_equal(launch.status, 0);
    has_page(launch.out.data);
    launch_free(&launch);
    launch_assert_refused(ARGS("-n", "1", INFO, "--support"), 2, "--support needs 2 ranks");
}

static void support_of_mpi(void **state)
{
    (void)state;
    if (access(TUTTI_BACKENDS_DIR "/libtutti_mpi_openmpi.so", F_OK) != 0) skip();
    struct launch launch = RUN("--mpi=openmpi", "-n", "2", "--no-prefix", INFO, "--support", "--backend", "mpi");
    if (launch.status != 0) fail_msg("%s", launch.err.data);
    has_page(launch.out.data);
    launch_free(&launch);
}

static void support_of_nccl(void **state)
{
    (void)state;
    if (access(TUTTI_BUILD_DIR "/tests/fakes/libnccl.so.2", F_OK) != 0) skip();
    struct launch launch =
        RUN("-n", "2", "--no-prefix", "/usr/bin/env", "LD_LIBRARY_PATH=" TUTTI_BUILD_DIR "/tests/fakes", INFO,
            "--support", "--backend", "nccl");
    if (launch.status != 0) fail_msg("%s", launch.err.data);
    has_page(launch.out.data);
    launch_free(&launch);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(machine), cmocka_unit_test(shared_memory_alone), cmocka_unit_test(refused),
        cmocka_unit_test(world),   cmocka_unit_test(invalid_values),      cmocka_unit_test(log_by_subsystem),
        cmocka_unit_test(support), cmocka_unit_test(support_of_mpi),      cmocka_unit_test(support_of_nccl)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
