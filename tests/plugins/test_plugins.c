/* The loader rejects each broken plug-in with a specific error message: which file, and why. */
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ranks.h"

#define FOLDER TUTTI_BUILD_DIR "/tests/plugins"

static void has(const char *part)
{
    if (strstr(tutti_last_error(), part) == NULL) fail_msg("\"%s\" is not in: %s", part, tutti_last_error());
}

/* Starts a world of one rank.  A refusal needs no rendezvous, but open is reached only after a successful one. */
static int start(const char *backend)
{
    tutti_store *store = NULL;
    assert_int_equal(tutti_store_memory(NULL, &store), TUTTI_OK);
    tutti_init_opts opts = {.store = store, .rank = 0, .world_size = 1, .timeout_ms = 5000};
    int status = tutti_init_process_group(backend, &opts);
    if (status == TUTTI_OK) assert_int_equal(tutti_destroy_process_group(NULL), TUTTI_OK);
    assert_false(tutti_is_initialized());
    tutti_store_free(store);
    return status;
}

/* Checks that the plug-in is rejected by name and by path, through init and when queried alone, each time with the same
 * reason. */
static void refuse(const char *name, const char *reason)
{
    char path[4096];
    snprintf(path, sizeof path, FOLDER "/libtutti_%s.so", name);
    for (int twice = 0; twice < 2; twice++) { /* a failure is not cached as a success */
        assert_int_equal(start(name), TUTTI_ERR_BACKEND);
        has(path);
        has(reason);
    }
    assert_false(tutti_is_backend_available(name));
    has(path);
    has(reason);
    assert_false(tutti_is_backend_available(path));
    has(path);
    has(reason);
}

static void tables(void **state)
{
    (void)state;
    refuse("broken_symbol", "has no symbol tutti_backend_v1");
    refuse("broken_abi", "has plug-in ABI 7 and this library 1");
    refuse("broken_size", "has a table of 48 bytes and at least 64 are required");
    refuse("broken_noname", "no valid name");
    refuse("broken_letters", "no valid name");
    refuse("broken_noopen", "lacks the mandatory entry open");
    refuse("broken_noclose", "lacks the mandatory entry close");
    refuse("broken_norecv", "has send or recv but not both");
    refuse("broken_nothing", "implements no operation");
    refuse("broken_noprogress", "lacks the mandatory entry progress");
}

static void dependency(void **state)
{
    (void)state;
    refuse("broken_depends", "cannot be loaded: ");
    has("library_that_was_upgraded");
}

static void other_name(void **state)
{
    (void)state;
    assert_int_equal(start("broken_name"), TUTTI_ERR_BACKEND);
    has(FOLDER "/libtutti_broken_name.so has the name \"somebody_else\" in its table, not \"broken_name\"");
    assert_int_equal(start(FOLDER "/libtutti_broken_name.so"), TUTTI_OK); /* by path any name is accepted */
}

/* A plug-in may return another table in place of its own.  It is asked once it has been loaded, and the other table is
 * checked like its own.  A refusal is not cached. */
static void another_table(void **state)
{
    static const struct {
        const char *what, *reason;
    } wrong[] = {
        {"none", "/libtutti_chooses.so returned no table: nothing that fits"},
        {"silent", "/libtutti_chooses.so returned no table: it gave no reason"},
        {"abi", "/libtutti_chooses.so has plug-in ABI 7 and this library 1"},
        {"short", "/libtutti_chooses.so has a table of 48 bytes and at least 64 are required"},
        {"name", "/libtutti_chooses.so has the name \"somebody_else\" in its table, not \"chooses\""},
    };
    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        setenv("CHOOSES", wrong[i].what, 1);
        assert_int_equal(start("chooses"), TUTTI_ERR_BACKEND);
        has(wrong[i].reason);
        assert_false(tutti_is_backend_available("chooses"));
        has(wrong[i].reason);
    }
    unsetenv("CHOOSES");
    void *library = dlopen(FOLDER "/libtutti_chooses.so", RTLD_NOW | RTLD_NOLOAD);
    assert_non_null(library);
    int *asked = dlsym(library, "chooses_asked");
    *asked = 0;
    for (int twice = 0; twice < 2; twice++) assert_int_equal(start("chooses"), TUTTI_OK);
    assert_int_equal(*asked, 1);
    setenv("CHOOSES", "none", 1);
    assert_int_equal(start("chooses"), TUTTI_OK); /* the table has been chosen already */
    unsetenv("CHOOSES");
    dlclose(library);
}

/* These plug-ins load, so they count as available.  Making a group shows that they cannot work. */
static void start_fails(void **state)
{
    (void)state;
    assert_true(tutti_is_backend_available("broken_probe"));
    assert_int_equal(start("broken_probe"), TUTTI_ERR_BACKEND);
    has("the driver is older than this plug-in");
    assert_int_equal(start("broken_open"), TUTTI_ERR_SYSTEM);
    has("no device for rank 0 of 1");
    void *library = dlopen(FOLDER "/libtutti_broken_open.so", RTLD_NOW | RTLD_NOLOAD);
    assert_non_null(library);
    assert_int_equal(*(int *)dlsym(library, "broken_open_closes"), 1);
    dlclose(library);
}

static void wrong_device(void **state)
{
    (void)state;
    assert_int_equal(start("cpu:cuda_only"), TUTTI_ERR_INVALID_ARGUMENT);
    has("cuda_only does not take CPU tensors");
    assert_int_equal(start("cuda_only"), TUTTI_OK);
}

static void names(void **state)
{
    static const struct {
        const char *name, *reason;
    } wrong[] = {
        {"", "empty"},
        {"no-such", "1 to 32 of a-z, 0-9 and _"},
        {"../loop", "1 to 32 of a-z, 0-9 and _"},
        {"lo op", "1 to 32 of a-z, 0-9 and _"},
        {"a23456789012345678901234567890123", "1 to 32 of a-z, 0-9 and _"},
        {"tpu:loop", "unknown device \"tpu\""},
        {"loop,loop", "has no device"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        assert_int_equal(start(wrong[i].name), TUTTI_ERR_INVALID_ARGUMENT);
        has(wrong[i].reason);
    }
    assert_false(tutti_is_backend_available(NULL));
    has("NULL");
    assert_false(tutti_is_backend_available(""));
    assert_int_equal(start("LOOP"), TUTTI_OK); /* letters of either case */
}

static void missing(void **state)
{
    (void)state;
    assert_int_equal(start("nowhere"), TUTTI_ERR_BACKEND);
    has("backend \"nowhere\" was not found; available: ");
    has(FOLDER "/libtutti_nowhere.so"); /* the searched folders */
    has(TUTTI_BACKENDS_DIR "/libtutti_nowhere.so");
    has("TUTTI_BACKEND_PATH");
    assert_int_equal(start("/nonexistent/libtutti_x.so"), TUTTI_ERR_BACKEND);
    has("/nonexistent/libtutti_x.so cannot be read: No such file or directory");
}

/* ---- files that are not safe ------------------------------------------------------------------------------- */

static void copy_file(const char *of, const char *path)
{
    char buffer[65536];
    int from = open(of, O_RDONLY), to = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0755);
    assert_true(from >= 0 && to >= 0);
    for (ssize_t got; (got = read(from, buffer, sizeof buffer)) > 0;)
        assert_int_equal(write(to, buffer, (size_t)got), got);
    close(from);
    close(to);
}

/* Copies the plug-in of that name to path. */
static void copy(const char *name, const char *path)
{
    char of[4096];
    snprintf(of, sizeof of, FOLDER "/libtutti_%s.so", name);
    copy_file(of, path);
}

/* libtutti_mpi.so chooses a plug-in beside it, which may have been built at another time. */
static void chosen_older(void **state)
{
    static const char *const behind[] = {"broken_abi", "older"};
    char folder[] = "/tmp/tutti-plugins-XXXXXX", path[4096], chosen[4096];
    (void)state;
    if (access(TUTTI_BACKENDS_DIR "/libtutti_mpi.so", F_OK) != 0) skip();
    assert_int_equal(start("older"), TUTTI_OK);
    assert_non_null(mkdtemp(folder));
    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%s/%d", folder, i);
        assert_int_equal(mkdir(path, 0755), 0);
        snprintf(chosen, sizeof chosen, "%s/libtutti_mpi_openmpi.so", path);
        copy(behind[i], chosen);
        strcat(path, "/libtutti_mpi.so");
        copy_file(TUTTI_BACKENDS_DIR "/libtutti_mpi.so", path);
        assert_int_equal(start(path), i == 0 ? TUTTI_ERR_BACKEND : TUTTI_OK);
        if (i == 0) has(chosen);
        if (i == 0) has("built for another version of Tutti");
        assert_int_equal(unlink(path), 0);
        assert_int_equal(unlink(chosen), 0);
        *strrchr(path, '/') = '\0';
        assert_int_equal(rmdir(path), 0);
    }
    assert_int_equal(rmdir(folder), 0);
}

static void unsafe_files(void **state)
{
    char folder[] = "/tmp/tutti-plugins-XXXXXX", path[4096];
    (void)state;
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/libtutti_copy.so", folder);

    copy("loop", path);
    assert_int_equal(chmod(path, 0757), 0);
    assert_int_equal(start(path), TUTTI_ERR_BACKEND);
    has(path);
    has("is writable by all users (mode 0757)");
    if (geteuid() == 0) {
        assert_int_equal(chmod(path, 0755), 0);
        assert_int_equal(chown(path, 12345, 0), 0);
        assert_int_equal(start(path), TUTTI_ERR_BACKEND);
        has(path);
        has("is owned by user 12345");
        assert_int_equal(chown(path, 0, 0), 0);
    }
    assert_int_equal(chmod(path, 0755), 0);
    assert_int_equal(start(path), TUTTI_OK); /* the file had no other fault */

    assert_int_equal(unlink(path), 0);
    assert_int_equal(mkdir(path, 0755), 0);
    assert_int_equal(start(path), TUTTI_OK); /* the plug-in is loaded, so the file at its path no longer matters */
    assert_int_equal(rmdir(path), 0);

    snprintf(path, sizeof path, "%s/libtutti_folder.so", folder);
    assert_int_equal(mkdir(path, 0755), 0);
    assert_int_equal(start(path), TUTTI_ERR_BACKEND);
    has(path);
    has("is not a regular file");
    assert_int_equal(rmdir(path), 0);

    snprintf(path, sizeof path, "%s/libtutti_text.so", folder);
    FILE *text = fopen(path, "w");
    assert_non_null(text);
    fputs("no plug-in at all\n", text);
    fclose(text);
    assert_int_equal(start(path), TUTTI_ERR_BACKEND);
    has(path);
    has("cannot be loaded: ");
    assert_int_equal(unlink(path), 0);
    assert_int_equal(rmdir(folder), 0);
}

/* The first folder that has the file decides, even if the file of another one would work.  A list continues with its
 * next name. */
static void order(void **state)
{
    (void)state;
    assert_int_equal(start("cpu:nowhere|broken_abi|loop"), TUTTI_OK);
    assert_int_equal(start("cpu:nowhere|broken_abi"), TUTTI_ERR_BACKEND);
    has("has plug-in ABI 7");
}

struct opening {
    pthread_t thread;
    tutti_store *store;
    int rank, size, result;
};

/* Opens a group in which one rank's plug-in fails.  Every rank reports which, and why. */
static void *open_one(void *argument)
{
    struct opening *rank = argument;
    tutti_group *group = NULL;
    rank->result = tutti_create_group("loop", rank->store, rank->rank, rank->size, NULL, &group);
    if (rank->result == TUTTI_ERR_BACKEND &&
        strstr(tutti_last_error(), "open fails on rank 1, as LOOP_FAIL_OPEN says") != NULL)
        rank->result = 0;
    else
        fprintf(stderr, "rank %d: %d: %s\n", rank->rank, rank->result, tutti_last_error());
    return NULL;
}

static void together(void **state)
{
    struct opening ranks[3];
    tutti_store *store = NULL;
    (void)state;
    assert_int_equal(tutti_store_memory(NULL, &store), TUTTI_OK);
    setenv("LOOP_FAIL_OPEN", "1", 1);
    for (int i = 0; i < 3; i++) {
        ranks[i] = (struct opening){.store = store, .rank = i, .size = 3};
        assert_int_equal(pthread_create(&ranks[i].thread, NULL, open_one, &ranks[i]), 0);
    }
    for (int i = 0; i < 3; i++) pthread_join(ranks[i].thread, NULL);
    unsetenv("LOOP_FAIL_OPEN");
    tutti_store_free(store);
    for (int i = 0; i < 3; i++) assert_int_equal(ranks[i].result, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tables),      cmocka_unit_test(dependency),    cmocka_unit_test(other_name),
        cmocka_unit_test(start_fails), cmocka_unit_test(wrong_device),  cmocka_unit_test(names),
        cmocka_unit_test(missing),     cmocka_unit_test(unsafe_files),  cmocka_unit_test(order),
        cmocka_unit_test(together),    cmocka_unit_test(another_table), cmocka_unit_test(chosen_older),
    };
    ranks_setup();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
