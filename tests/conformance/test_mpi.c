/* The mpi backend under the launchers of the MPIs that it was built for, the rendezvous through them, and the errors
 * without a launcher.  Skipped if no launcher is installed. */
#include <dlfcn.h>
#include <errno.h>
#include <sys/mman.h>
#include <unistd.h>

#include "mpi_launch.h"
#include "mpi_ranks.h"

static char self[4096];

/* ---- ranks of a program that starts and ends MPI itself -------------------------------------------------------- */

/* The part of MPI's interface that both MPIs share.  Levels are 0 to 3, MPI_THREAD_SINGLE to MPI_THREAD_MULTIPLE. */
static struct {
    int (*init_thread)(int *argc, char ***argv, int wanted, int *got);
    int (*finalized)(int *flag);
    int (*finalize)(void);
} own_mpi;

/* Runs at exit after tutti's own handlers: MPI must still be initialized. */
static void end_program(void)
{
    int over = 1;
    if (own_mpi.finalized(&over) != 0 || over || own_mpi.finalize() != 0) {
        printf("MPI was finalized by somebody else\n");
        fflush(stdout);
        _exit(1);
    }
}

/* MPI is finalized before the group is destroyed.  The group's memory is freed as usual. */
static int finalized_early(void)
{
    int x = 1;
    if (mpi_ranks_open() != 0) return 1;
    OK(tutti_all_reduce(tutti_view(&x, 1), TUTTI_SUM, tutti_with(.group = mpi_ranks.mpi)));
    OK(tutti_barrier(NULL));
    if (own_mpi.finalize() != 0) return mpi_ranks_wrong("MPI_Finalize", "it fails");
    SHOULD(tutti_all_reduce(tutti_view(&x, 1), TUTTI_SUM, tutti_with(.group = mpi_ranks.mpi, .timeout_ms = 200)),
           TUTTI_ERR_TIMEOUT);
    tutti_destroy_process_group(mpi_ranks.mpi);
    tutti_store_free(mpi_ranks.store);
    OK(tutti_destroy_process_group(NULL));
    printf("rank %d of %d: all right\n", mpi_ranks.rank, mpi_ranks.size);
    return 0;
}

/* A root only sends, so its tensor may be read-only memory, such as a mapped file. */
static int read_only_root(void)
{
    OK(tutti_init_process_group("mpi", NULL));
    mpi_ranks.rank = tutti_get_rank(NULL);
    for (int root = 0; root < tutti_get_world_size(NULL); root++) {
        size_t bytes = 6 << 20;
        char *data = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (data == MAP_FAILED) return mpi_ranks_wrong("mmap", strerror(errno));
        memset(data, mpi_ranks.rank == root ? root + 1 : 0, bytes);
        if (mpi_ranks.rank == root) mprotect(data, bytes, PROT_READ);
        OK(tutti_broadcast(tutti_tensor_of(data, (int64_t)bytes, TUTTI_INT8), root, NULL));
        if (data[0] != root + 1 || data[bytes - 1] != root + 1) return mpi_ranks_wrong("broadcast", "another result");
        munmap(data, bytes);
    }
    OK(tutti_destroy_process_group(NULL));
    printf("rank %d: all right\n", mpi_ranks.rank);
    return 0;
}

/* The table has entries only for MPI's own operations, as the environment asks. */
static int natives(const char *expected)
{
    char text[4096];
    OK(tutti_describe_backend("mpi", text, sizeof text));
    if (strstr(text, expected) == NULL) return mpi_ranks_wrong("describe", text);
    printf("all right\n");
    return 0;
}

/* This rank loads the plug-in before the variable is set, and the others after it.  This rank then also loads a second
 * name, `other`. All ranks report that they differ. */
static int native_set_late(const char *other)
{
    const char *rank = getenv("OMPI_COMM_WORLD_RANK");
    bool loads = rank != NULL && strcmp(rank, "0") == 0;
    if (loads && !tutti_is_backend_available("mpi")) return mpi_ranks_wrong("mpi", tutti_last_error());
    setenv("TUTTI_MPI_NATIVE", "1", 1);
    if (loads && other != NULL && !tutti_is_backend_available(other)) return mpi_ranks_wrong(other, tutti_last_error());
    int status = tutti_init_process_group("mpi", NULL);
    if (status != TUTTI_ERR_INVALID_ARGUMENT || strstr(tutti_last_error(), "TUTTI_MPI_NATIVE differed") == NULL)
        return mpi_ranks_wrong("init", tutti_last_error());
    printf("all right\n");
    return 0;
}

/* The plug-in for the other MPI refuses to work: its calls would reach the program's own MPI with invalid handles. */
static int plug_in_of_the_other(bool is_open)
{
    const char *built = is_open ? "mpi_mpich was built for MPICH" : "mpi_openmpi was built for Open MPI";
    const char *loaded = is_open ? "this program has loaded Open MPI v" : "this program has loaded MPICH Version";
    int status = tutti_init_process_group(is_open ? "mpi_mpich" : "mpi_openmpi", NULL);
    if (status != TUTTI_ERR_BACKEND) return mpi_ranks_wrong("the other plug-in", "it starts");
    if (strstr(tutti_last_error(), built) == NULL || strstr(tutti_last_error(), loaded) == NULL)
        return mpi_ranks_wrong("the other plug-in", tutti_last_error());
    OK(tutti_init_process_group("mpi", NULL));
    OK(tutti_barrier(NULL));
    OK(tutti_destroy_process_group(NULL));
    if (own_mpi.finalize() != 0) return mpi_ranks_wrong("MPI_Finalize", "it fails");
    printf("all right\n");
    return 0;
}

/* Runs the program. `end` selects an unusual end. */
static int program_main(const char *mpi, int level, const char *end)
{
    int got = -1;
    void *library = dlopen(strcmp(mpi, "openmpi") == 0 ? "libmpi.so.40" : "libmpich.so.12", RTLD_NOW | RTLD_GLOBAL);
    if (library == NULL) return mpi_ranks_wrong("libmpi", dlerror());
    *(void **)&own_mpi.init_thread = dlsym(library, "MPI_Init_thread");
    *(void **)&own_mpi.finalized = dlsym(library, "MPI_Finalized");
    *(void **)&own_mpi.finalize = dlsym(library, "MPI_Finalize");
    if (own_mpi.init_thread(NULL, NULL, level, &got) != 0) return mpi_ranks_wrong("MPI_Init_thread", "it fails");
    if (got != level) return mpi_ranks_wrong("the level of threads", "MPI gives another");
    if (end != NULL && strcmp(end, "early") == 0) return finalized_early();
    if (end != NULL) return plug_in_of_the_other(strcmp(mpi, "openmpi") == 0);
    bool at_exit = strcmp(mpi, "openmpi") == 0; /* MPICH must be finalized before its launcher sees the process end */
    if (at_exit) atexit(end_program);
    int failed = mpi_ranks_main();
    if (!at_exit) end_program();
    return failed;
}

static void expect_of(const char *part, const char *mpi, const char *environment, int ranks)
{
    struct launch launch;
    mpi_launch_run(mpi, environment, ranks, self, part, &launch);
    const char *out = launch.out.data != NULL ? launch.out.data : "",
               *err = launch.err.data != NULL ? launch.err.data : "";
    if (launch.status != 0 || text_count(out, "all right") != ranks)
        fail_msg("status %d\n%s\n%s", launch.status, out, err);
    launch_free(&launch);
}

static void expect_ranks(const char *mpi, const char *environment, int ranks)
{
    if (!mpi_launch_has(mpi)) skip();
    expect_of("rank", mpi, environment, ranks);
}

static void read_only_roots(void **state)
{
    (void)state;
    static const char *const mpis[] = {"openmpi", "mpich"};
    for (int i = 0; i < 2; i++) {
        if (!mpi_launch_has(mpis[i])) continue;
        expect_of("read_only", mpis[i], "", 2);
        expect_of("read_only", mpis[i], "TUTTI_MPI_NATIVE=1", 3);
    }
}

/* The program calls MPI_Init itself, with each level of threads.  With the lowest level only the main thread calls MPI.
 */
static void programs_own(void **state)
{
    (void)state;
    static const char *const mpis[] = {"openmpi", "mpich"};
    for (int i = 0; i < 2; i++) {
        for (int level = 0; level < 4 && mpi_launch_has(mpis[i]); level++) {
            char arguments[64];
            struct launch launch;
            if (strcmp(mpis[i], "openmpi") == 0 && level == 0) continue; /* it returns FUNNELED for SINGLE */
            snprintf(arguments, sizeof arguments, "program %s %d", mpis[i], level);
            mpi_launch_run(mpis[i], "", 2, self, arguments, &launch);
            if (launch.status != 0 || text_count(launch.out.data, "all right") != 2)
                fail_msg("%s: status %d\n%s\n%s", arguments, launch.status, launch.out.data, launch.err.data);
            launch_free(&launch);
        }
    }
}

/* MPI grants a lower level than the plug-in requests.  With the two lowest levels, only the plug-in's own thread calls
 * MPI. */
static void mpi_grants_less(void **state)
{
    (void)state;
    static const struct {
        const char *mpi, *library;
    } mpis[] = {{"openmpi", "libmpi.so.40"}, {"mpich", "libmpich.so.12"}};
    for (int i = 0; i < 2; i++) {
        for (int level = 1; level < 3 && mpi_launch_has(mpis[i].mpi); level++) {
            char environment[4200];
            snprintf(environment, sizeof environment,
                     "LD_PRELOAD=%s/tests/plugins/libtutti_few_threads.so FEW_THREADS=%d FEW_THREADS_OF=%s",
                     TUTTI_BUILD_DIR, level, mpis[i].library);
            expect_of("rank", mpis[i].mpi, environment, 2);
        }
    }
}

static void native_is_set_late(void **state)
{
    (void)state;
    if (!mpi_launch_has("openmpi")) skip();
    expect_of("native_late", "openmpi", "", 2);
    expect_of("native_late mpi_openmpi", "openmpi", "", 2);
}

static void natives_as_asked(void **state)
{
    (void)state;
    static const struct {
        const char *mpi, *environment, *expected;
    } cases[] = {{"openmpi", "", "'does broadcast; messages'"},
                 {"openmpi", "TUTTI_MPI_NATIVE=1", "all_reduce"},
                 {"openmpi", "TUTTI_MPI_NATIVE=0", "'tensors: messages'"},
                 {"mpich", "", "'tensors: messages'"},
                 {"mpich", "TUTTI_MPI_NATIVE=1", "'does all_reduce'"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char call[80];
        snprintf(call, sizeof call, "natives %s", cases[i].expected);
        if (mpi_launch_has(cases[i].mpi)) expect_of(call, cases[i].mpi, cases[i].environment, 1);
    }
}

static void programs_own_ends_early(void **state)
{
    (void)state;
    if (mpi_launch_has("openmpi")) expect_of("program openmpi 3 early", "openmpi", "", 2);
    if (mpi_launch_has("mpich")) expect_of("program mpich 3 early", "mpich", "", 2);
}

static void programs_own_is_another(void **state)
{
    (void)state;
    if (!mpi_launch_has("openmpi") || !mpi_launch_has("mpich")) skip();
    expect_of("program openmpi 3 other", "openmpi", "", 2);
    expect_of("program mpich 3 other", "mpich", "", 2);
}

static void openmpi_2(void **state)
{
    (void)state;
    expect_ranks("openmpi", "", 2);
}

static void openmpi_3(void **state)
{
    (void)state;
    expect_ranks("openmpi", "", 3);
}

static void openmpi_native(void **state)
{
    (void)state;
    expect_ranks("openmpi", "TUTTI_MPI_NATIVE=1", 2);
    expect_ranks("openmpi", "TUTTI_MPI_NATIVE=1", 3);
}

static void mpich_2(void **state)
{
    (void)state;
    expect_ranks("mpich", "", 2);
}

static void mpich_native(void **state)
{
    (void)state;
    expect_ranks("mpich", "TUTTI_MPI_NATIVE=1", 2);
}

/* Runs the conformance suite, by plans and by MPI's own collectives. */
static void conformance(void **state)
{
    (void)state;
    static const struct {
        const char *mpi, *environment;
        int ranks;
    } runs[] = {{"openmpi", "", 4}, {"openmpi", "TUTTI_MPI_NATIVE=1", 3}, {"mpich", "", 2}};
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++) {
        struct launch launch;
        if (!mpi_launch_has(runs[i].mpi)) continue;
        mpi_launch_run(runs[i].mpi, runs[i].environment, runs[i].ranks, TUTTI_BUILD_DIR "/bin/tutti-conformance",
                       "--join --quick --backend mpi", &launch);
        if (launch.status != 0)
            fail_msg("%s %s: status %d\n%s\n%s", runs[i].mpi, runs[i].environment, launch.status, launch.out.data,
                     launch.err.data);
        launch_free(&launch);
    }
}

/* Returns the lines of a program's output, sorted. */
static char *sorted_lines(const char *text)
{
    char *copy = strdup(text != NULL ? text : "");
    char *lines[256];
    int n = 0;
    for (char *line = strtok(copy, "\n"); line != NULL && n < 256; line = strtok(NULL, "\n")) lines[n++] = line;
    for (int i = 1; i < n; i++)
        for (int k = i; k > 0 && strcmp(lines[k - 1], lines[k]) > 0; k--) {
            char *swap = lines[k];
            lines[k] = lines[k - 1];
            lines[k - 1] = swap;
        }
    char *all = calloc(1, strlen(text != NULL ? text : "") + 2);
    for (int i = 0; i < n; i++) {
        strcat(all, lines[i]);
        strcat(all, "\n");
    }
    free(copy);
    return all;
}

/* A program needs only another backend string. */
static void examples(void **state)
{
    (void)state;
    static const char *const names[] = {"hello",   "send_recv",      "broadcast", "gather",     "all_gather",
                                        "scatter", "reduce_scatter", "reduce",    "all_reduce", "all_to_all_single"};
    if (!mpi_launch_has("openmpi")) skip();
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char path[4200];
        struct launch launch[2];
        snprintf(path, sizeof path, "%s/%s", TUTTI_EXAMPLES_DIR, names[i]);
        mpi_launch_run("openmpi", "", 3, path, "tcp", &launch[0]);
        mpi_launch_run("openmpi", "", 3, path, "mpi", &launch[1]);
        char *tcp = sorted_lines(launch[0].out.data), *mpi = sorted_lines(launch[1].out.data);
        if (launch[0].status != 0 || launch[1].status != 0 || *tcp == '\0')
            fail_msg("%s: %d, %d\n%s\n%s", names[i], launch[0].status, launch[1].status, launch[0].err.data,
                     launch[1].err.data);
        assert_string_equal(tcp, mpi);
        free(tcp);
        free(mpi);
        launch_free(&launch[0]);
        launch_free(&launch[1]);
    }
}

/* These launchers do not set RANK. */
static void lines_of_the_log_have_a_rank(void **state)
{
    (void)state;
    static const char *const mpis[] = {"openmpi", "mpich"};
    for (int i = 0; i < 2; i++) {
        char path[4200];
        struct launch launch;
        if (!mpi_launch_has(mpis[i])) continue;
        snprintf(path, sizeof path, "%s/hello", TUTTI_EXAMPLES_DIR);
        mpi_launch_run(mpis[i], "TUTTI_LOG=info", 2, path, "tcp", &launch);
        assert_int_equal(launch.status, 0);
        assert_has(&launch.err, "tutti[0] info group: group world: rank 0 of 2");
        assert_has(&launch.err, "tutti[1] info group: group world: rank 1 of 2");
        assert_has_not(&launch.err, "tutti[-]");
        launch_free(&launch);
    }
}

/* Without a launcher there is an error, not n worlds of one rank. */
static void no_launcher(void **state)
{
    (void)state;
    char path[4200];
    snprintf(path, sizeof path, "%s/hello", TUTTI_EXAMPLES_DIR);
    if (!mpi_launch_has("openmpi") && !mpi_launch_has("mpich")) skip();
    setenv("TUTTI_BACKEND_PATH", TUTTI_BACKENDS_DIR, 1);
    struct launch launch = RUN("-n", "2", path, "mpi");
    assert_int_not_equal(launch.status, 0);
    assert_non_null(strstr(launch.err.data, "started without an MPI launcher: start it with tutti-run --mpi"));
    assert_null(strstr(launch.out.data != NULL ? launch.out.data : "", "Hello"));
    launch_free(&launch);
}

/* Uses the launcher of one MPI with the backend of the other. */
static void other_launcher(void **state)
{
    (void)state;
    if (!mpi_launch_has("openmpi") || !mpi_launch_has("mpich")) skip();
    char path[4200];
    struct launch launch;
    snprintf(path, sizeof path, "%s/hello", TUTTI_EXAMPLES_DIR);
    mpi_launch_run("mpich", "", 2, path, "mpi_openmpi", &launch);
    assert_int_not_equal(launch.status, 0);
    assert_non_null(strstr(launch.err.data, "built for Open MPI"));
    assert_non_null(strstr(launch.err.data, "MPICH's mpiexec"));
    launch_free(&launch);
    mpi_launch_run("openmpi", "", 2, path, "mpi_mpich", &launch);
    assert_int_not_equal(launch.status, 0);
    assert_non_null(strstr(launch.err.data, "built for MPICH"));
    assert_non_null(strstr(launch.err.data, "Open MPI's mpirun"));
    launch_free(&launch);
}

/* The innermost launcher's ranks count.  The outer launcher has started one process. */
static void launcher_in_a_launcher(void **state)
{
    (void)state;
    static const char *const last[] = {
        "mpiexec.mpich -n 2", "mpirun.openmpi --allow-run-as-root --oversubscribe --mca mpi_yield_when_idle 1 -n 2"};
    if (!mpi_launch_has("openmpi") || !mpi_launch_has("mpich")) skip();
    for (int i = 0; i < 2; i++) {
        char program[4400];
        struct launch launch;
        snprintf(program, sizeof program, "%s %s/hello", last[i], TUTTI_EXAMPLES_DIR);
        mpi_launch_run(i == 0 ? "openmpi" : "mpich", "", 1, program, "tcp", &launch);
        if (launch.status != 0 || strstr(launch.out.data, "Hello from rank 1 out of 2 processes!") == NULL)
            fail_msg("%s: %d\n%s\n%s", program, launch.status, launch.out.data, launch.err.data);
        launch_free(&launch);
    }
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "rank") == 0) return mpi_ranks_main();
    if (argc > 1 && strcmp(argv[1], "read_only") == 0) return read_only_root();
    if (argc > 1 && strcmp(argv[1], "native_late") == 0) return native_set_late(argv[2]);
    if (argc > 2 && strcmp(argv[1], "natives") == 0) return natives(argv[2]);
    if (argc > 3 && strcmp(argv[1], "program") == 0) return program_main(argv[2], atoi(argv[3]), argv[4]);
    if (realpath("/proc/self/exe", self) == NULL) return 1;
    if (!mpi_launch_has("openmpi") && !mpi_launch_has("mpich")) {
        fprintf(stderr,
                "skipped: no mpi backend was built, or neither mpirun.openmpi nor mpiexec.mpich is installed\n");
        return 77;
    }
    const struct CMUnitTest tests[] = {cmocka_unit_test(openmpi_2),
                                       cmocka_unit_test(openmpi_3),
                                       cmocka_unit_test(openmpi_native),
                                       cmocka_unit_test(mpich_2),
                                       cmocka_unit_test(mpich_native),
                                       cmocka_unit_test(read_only_roots),
                                       cmocka_unit_test(conformance),
                                       cmocka_unit_test(programs_own),
                                       cmocka_unit_test(programs_own_ends_early),
                                       cmocka_unit_test(programs_own_is_another),
                                       cmocka_unit_test(mpi_grants_less),
                                       cmocka_unit_test(native_is_set_late),
                                       cmocka_unit_test(natives_as_asked),
                                       cmocka_unit_test(examples),
                                       cmocka_unit_test(lines_of_the_log_have_a_rank),
                                       cmocka_unit_test(no_launcher),
                                       cmocka_unit_test(other_launcher),
                                       cmocka_unit_test(launcher_in_a_launcher)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
