/* Folders of checkpoints with what people, other programs and crashes put there: links, FIFOs, gaps and odd numbers. */
#include "ranks.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "checkpoint_file.h"
#include "train/checkpoint_model.h"
#include "train/scratch_folder.h"

static void path_in(const char *name, char path[256])
{
    snprintf(path, 256, "%s/%s", folder, name);
}

static void make(const char *name)
{
    char path[256];
    path_in(name, path);
    assert_int_equal(mkdir(path, 0777), 0);
}

static void touch(const char *name)
{
    char path[256];
    path_in(name, path);
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL, 0666);
    assert_true(fd >= 0);
    close(fd);
}

struct saves {
    int first, last; /* generations */
    int keep;
    int64_t number; /* of the last one; 0: any */
};

static int save_some(tutti_group *group, int rank, int size, void *argument)
{
    const struct saves *saves = argument;
    struct checkpoint_model model;
    int64_t number;
    tutti_checkpoint_opts opts = {.keep = saves->keep, .used = &number};
    (void)rank;
    (void)size;
    EXPECT(checkpoint_model_make(&model, group, 0, 0) == TUTTI_OK);
    for (int i = saves->first; i <= saves->last; i++) {
        checkpoint_model_set(&model, i);
        EXPECT(tutti_checkpoint_save(model.sharded, folder, model.states, CHECKPOINT_STATES, &opts) == TUTTI_OK);
    }
    EXPECT(saves->number == 0 || saves->number == number);
    checkpoint_model_set(&model, 0);
    EXPECT(checkpoint_model_load(&model, folder) == TUTTI_OK && checkpoint_model_is(&model, saves->last, true));
    checkpoint_model_free(&model);
    return 0;
}

/* A link to a folder elsewhere is removed, and not what the folder has. */
static void test_links(void **state)
{
    static const char *const links[] = {"0000000001", "0000000002.partial"};
    char target[256], path[256];
    (void)state;
    make("archive");
    touch("archive/best");
    path_in("archive", target);
    for (int i = 0; i < 2; i++) {
        path_in(links[i], path);
        assert_int_equal(symlink(target, path), 0);
    }
    ranks_run(2, save_some, &(struct saves){1, 2, .keep = 1, .number = 3});
    for (int i = 0; i < 2; i++) assert_false(scratch_folder_has(links[i]));
    assert_true(scratch_folder_has("archive/best") && scratch_folder_has("0000000003"));
}

/* A file in the place of an unfinished checkpoint does not prevent a save. */
static void test_file(void **state)
{
    (void)state;
    touch("0000000001.partial");
    ranks_run(1, save_some, &(struct saves){1, 1, .number = 1});
}

/* `keep` counts checkpoints, not numbers. */
static void test_gaps(void **state)
{
    char command[128];
    (void)state;
    ranks_run(1, save_some, &(struct saves){1, 5, .keep = -1, .number = 5});
    snprintf(command, sizeof command, "rm -r %s/0000000003 %s/0000000004", folder, folder);
    assert_int_equal(system(command), 0);
    ranks_run(1, save_some, &(struct saves){6, 6, .keep = 3, .number = 6});
    assert_true(scratch_folder_has("0000000002") && scratch_folder_has("0000000005"));
    assert_false(scratch_folder_has("0000000001"));
    ranks_run(1, save_some, &(struct saves){7, 7, .keep = 100, .number = 7});
    assert_true(scratch_folder_has("0000000002"));
}

/* Names that only look like numbers of checkpoints are none; the largest numbers are. */
static void test_odd_numbers(void **state)
{
    static const char *const names[] = {"00000000000042", "99999999999999999999", "0000000007 ", "+000000007"};
    (void)state;
    for (int i = 0; i < 4; i++) make(names[i]);
    ranks_run(1, save_some, &(struct saves){1, 1, .number = 1});
    for (int i = 0; i < 4; i++) assert_true(scratch_folder_has(names[i]));
    make("900000000000000000");
    ranks_run(1, save_some, &(struct saves){2, 2, .number = 900000000000000001});
}

/* ---- files of other kinds ---------------------------------------------------------------------------------- */

static int load_refused(tutti_group *group, int rank, int size, void *argument)
{
    struct checkpoint_model model;
    (void)rank;
    (void)size;
    EXPECT(checkpoint_model_make(&model, group, 0, 0) == TUTTI_OK);
    EXPECT(checkpoint_model_load(&model, folder) == TUTTI_ERR_SYSTEM);
    EXPECT(strstr(tutti_last_error(), (const char *)argument) != NULL);
    EXPECT(strstr(tutti_last_error(), "not a regular file") != NULL);
    checkpoint_model_free(&model);
    return 0;
}

/* A FIFO that nobody writes to is refused; the load does not wait for a writer. */
static void test_fifos(void **state)
{
    static char *const names[] = {"0000000001/rank-00001", "0000000001/manifest"};
    char path[256];
    (void)state;
    ranks_run(2, save_some, &(struct saves){1, 1, .keep = 0});
    for (int i = 0; i < 2; i++) {
        path_in(names[i], path);
        assert_int_equal(unlink(path), 0);
        assert_int_equal(mkfifo(path, 0600), 0);
        ranks_run(2, load_refused, names[i]);
    }
}

/* ---- other jobs -------------------------------------------------------------------------------------------- */

static int save_refused(tutti_group *group, int rank, int size, void *argument)
{
    struct checkpoint_model model;
    (void)argument;
    (void)rank;
    (void)size;
    EXPECT(checkpoint_model_make(&model, group, 0, 0) == TUTTI_OK);
    EXPECT(checkpoint_model_save(&model, folder) == TUTTI_ERR_SYSTEM);
    EXPECT(strstr(tutti_last_error(), "rank 0: checkpoint: another job is saving to") != NULL);
    checkpoint_model_free(&model);
    return 0;
}

/* A save that finds another one under way changes nothing of it. */
static void test_other_job(void **state)
{
    int lock;
    (void)state;
    assert_int_equal(checkpoint_folder_lock(folder, &lock), TUTTI_OK);
    make("0000000001.partial");
    ranks_run(2, save_refused, NULL);
    assert_true(scratch_folder_has("0000000001.partial"));
    checkpoint_folder_unlock(lock);
    ranks_run(2, save_some, &(struct saves){1, 3, .number = 3});
}

/* ---- names ------------------------------------------------------------------------------------------------- */

/* The format's limit of a name is an error of save, and not of the load after it. */
static int save_long_name(tutti_group *group, int rank, int size, void *argument)
{
    float value[3] = {1, 2, 3};
    char name[5000];
    tutti_sharded *sharded;
    (void)argument;
    (void)rank;
    (void)size;
    memset(name, 'x', sizeof name);
    name[4096] = '\0';
    tutti_parameter list = {name, tutti_view(value, 3), tutti_view(value, 3)};
    EXPECT(tutti_sharded_create(&list, 1, &(tutti_sharded_opts){.group = group}, &sharded) == TUTTI_OK);
    EXPECT(tutti_checkpoint_save(sharded, folder, NULL, 0, NULL) == TUTTI_ERR_INVALID_ARGUMENT);
    EXPECT(strstr(tutti_last_error(), "name of parameter 0 has 4096 bytes; give it at most 4095") != NULL);
    tutti_sharded_destroy(sharded);
    name[4095] = '\0';
    EXPECT(tutti_sharded_create(&list, 1, &(tutti_sharded_opts){.group = group}, &sharded) == TUTTI_OK);
    EXPECT(tutti_checkpoint_save(sharded, folder, NULL, 0, NULL) == TUTTI_OK);
    EXPECT(tutti_checkpoint_load(sharded, folder, NULL, 0, NULL) == TUTTI_OK);
    tutti_sharded_destroy(sharded);
    return 0;
}

static void test_long_names(void **state)
{
    (void)state;
    ranks_run(2, save_long_name, NULL);
}

int main(void)
{
    ranks_setup();
    const struct CMUnitTest tests[] = {CASE(test_links),       CASE(test_file),  CASE(test_gaps),
                                       CASE(test_odd_numbers), CASE(test_fifos), CASE(test_other_job),
                                       CASE(test_long_names)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
