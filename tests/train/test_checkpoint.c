/* Checkpoints: any number of ranks reads what any other wrote; damaged files and those of other models are refused on
 * all ranks, and change nothing. */
#include "ranks.h"

#include <errno.h>
#include <inttypes.h>
#include <sys/stat.h>
#include <unistd.h>

#include "checkpoint_format.h"
#include "train/checkpoint_model.h"
#include "train/scratch_folder.h"

static int wait_for_all(tutti_group *group)
{
    return tutti_barrier(tutti_with(.group = group));
}

#define EXPECT_REFUSED(call, wanted, word)                                                                             \
    do {                                                                                                               \
        EXPECT((call) == (wanted));                                                                                    \
        if (strstr(tutti_last_error(), (word)) == NULL) fprintf(stderr, "no \"%s\"\n", (word));                        \
        EXPECT(strstr(tutti_last_error(), (word)) != NULL);                                                            \
    } while (0)

/* ---- other numbers of ranks -------------------------------------------------------------------------------- */

struct shape {
    int large;
    int64_t bucket_bytes;
};

static int save_one(tutti_group *group, int rank, int size, void *argument)
{
    const struct shape *shape = argument;
    struct checkpoint_model model;
    (void)rank;
    EXPECT(checkpoint_model_make(&model, group, shape->large, shape->bucket_bytes) == TUTTI_OK);
    checkpoint_model_set(&model, size);
    EXPECT(checkpoint_model_save(&model, folder) == TUTTI_OK);
    checkpoint_model_free(&model);
    return 0;
}

struct wanted {
    struct shape shape;
    int generation;
};

static int load_one(tutti_group *group, int rank, int size, void *argument)
{
    const struct wanted *wanted = argument;
    struct checkpoint_model model;
    (void)rank;
    (void)size;
    EXPECT(checkpoint_model_make(&model, group, wanted->shape.large, wanted->shape.bucket_bytes) == TUTTI_OK);
    EXPECT(checkpoint_model_load(&model, folder) == TUTTI_OK);
    EXPECT(checkpoint_model_is(&model, wanted->generation, true));
    checkpoint_model_free(&model);
    return 0;
}

static void test_other_ranks(void **state)
{
    static const int ranks[] = {1, 2, 3, 7};
    (void)state;
    for (int i = 0; i < 4; i++) {
        struct shape shape = {.large = 0, .bucket_bytes = i % 2 ? 100 : 0};
        ranks_run(ranks[i], save_one, &shape);
        for (int k = 0; k < 4; k++) {
            struct wanted wanted = {{.large = 0, .bucket_bytes = k % 2 ? 0 : 64}, ranks[i]};
            ranks_run(ranks[k], load_one, &wanted);
        }
    }
}

/* More than one block of checksums in a file. */
static void test_large(void **state)
{
    struct shape shape = {.large = 700001, .bucket_bytes = 0};
    struct wanted wanted = {shape, 2};
    (void)state;
    ranks_run(2, save_one, &shape);
    ranks_run(1, load_one, &wanted);
    ranks_run(3, load_one, &wanted);
}

/* ---- numbers ----------------------------------------------------------------------------------------------- */

static int keep_some(tutti_group *group, int rank, int size, void *argument)
{
    struct checkpoint_model model;
    int64_t number = 0;
    char inner[80];
    (void)argument;
    (void)rank;
    (void)size;
    EXPECT(checkpoint_model_make(&model, group, 0, 0) == TUTTI_OK);
    EXPECT_REFUSED(checkpoint_model_load(&model, folder), TUTTI_ERR_NOT_FOUND, "has no complete checkpoint");
    snprintf(inner, sizeof inner, "%s/made/here", folder);
    EXPECT_REFUSED(checkpoint_model_load(&model, inner), TUTTI_ERR_NOT_FOUND, "has no complete checkpoint");
    tutti_checkpoint_opts opts = {.used = &number, .keep = 3};
    for (int i = 1; i <= 5; i++) {
        checkpoint_model_set(&model, i);
        EXPECT(tutti_checkpoint_save(model.sharded, folder, model.states, 3, &opts) == TUTTI_OK && number == i);
    }
    EXPECT(wait_for_all(group) == TUTTI_OK);
    EXPECT(!scratch_folder_has("0000000001") && !scratch_folder_has("0000000002") && scratch_folder_has("0000000003") &&
           scratch_folder_has("0000000005"));
    opts.number = 4;
    EXPECT(tutti_checkpoint_load(model.sharded, folder, model.states, 3, &opts) == TUTTI_OK && number == 4);
    EXPECT(checkpoint_model_is(&model, 4, true));
    opts.number = 2;
    EXPECT_REFUSED(tutti_checkpoint_load(model.sharded, folder, model.states, 3, &opts), TUTTI_ERR_NOT_FOUND,
                   "no checkpoint 2; the latest is 5");
    checkpoint_model_free(&model);
    return 0;
}

static void test_numbers(void **state)
{
    (void)state;
    ranks_run(3, keep_some, NULL);
}

/* What a crash, or a person, left in the folder is no checkpoint. */
static void test_other_names(void **state)
{
    static const char *const names[] = {"0000000009.partial", "12", "latest", "0000000010x", "0000000000"};
    char path[128];
    (void)state;
    for (int i = 0; i < 5; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        assert_int_equal(mkdir(path, 0777), 0);
    }
    ranks_run(1, save_one, &(struct shape){0});
    assert_true(scratch_folder_has("0000000001") && !scratch_folder_has("0000000009.partial") &&
                scratch_folder_has("latest"));
    ranks_run(2, load_one, &(struct wanted){{0}, 1});
}

/* ---- damage ------------------------------------------------------------------------------------------------ */

enum { FILE_MOST = 8192 };

struct bytes {
    char path[128];
    uint8_t data[FILE_MOST];
    size_t n;
};

static bool read_bytes(struct bytes *bytes, const char *name)
{
    snprintf(bytes->path, sizeof bytes->path, "%s/0000000001/%s", folder, name);
    FILE *file = fopen(bytes->path, "rb");
    if (file == NULL) return false;
    bytes->n = fread(bytes->data, 1, sizeof bytes->data, file);
    fclose(file);
    return bytes->n > 0 && bytes->n < sizeof bytes->data;
}

/* Replaces a file by the first n of these bytes. */
static bool write_bytes(const struct bytes *bytes, size_t n)
{
    FILE *file = fopen(bytes->path, "wb");
    if (file == NULL) return false;
    bool written = fwrite(bytes->data, 1, n, file) == n;
    return fclose(file) == 0 && written;
}

/* Loads, which must fail on all ranks with a message that names the file, and change nothing. */
static int expect_damage(tutti_group *group, struct checkpoint_model *model, const char *name)
{
    EXPECT(wait_for_all(group) == TUTTI_OK);
    int status = checkpoint_model_load(model, folder);
    EXPECT(status == TUTTI_ERR_SYSTEM && strstr(tutti_last_error(), name) != NULL);
    EXPECT(checkpoint_model_is(model, 50, false));
    EXPECT(wait_for_all(group) == TUTTI_OK);
    return 0;
}

static int damage_file(tutti_group *group, struct checkpoint_model *model, const char *name)
{
    struct bytes bytes;
    int line = 0, rank = tutti_get_rank(group);
    EXPECT(read_bytes(&bytes, name) && wait_for_all(group) == TUTTI_OK);
    for (size_t at = 0; at < bytes.n && line == 0; at += 3) { /* flip a bit */
        bytes.data[at] ^= (uint8_t)(1 << at % 8);
        if (rank == 0) EXPECT(write_bytes(&bytes, bytes.n));
        line = expect_damage(group, model, name);
        bytes.data[at] ^= (uint8_t)(1 << at % 8);
    }
    for (size_t n = 0; n < bytes.n && line == 0; n += 11) { /* cut it short */
        if (rank == 0) EXPECT(write_bytes(&bytes, n));
        line = expect_damage(group, model, name);
    }
    if (line != 0) return line;
    if (rank == 0) EXPECT(write_bytes(&bytes, bytes.n + 1)); /* make it longer */
    line = expect_damage(group, model, name);
    if (rank == 0 && line == 0) EXPECT(unlink(bytes.path) == 0);
    if (line == 0) line = expect_damage(group, model, name);
    if (rank == 0 && line == 0) EXPECT(write_bytes(&bytes, bytes.n));
    return line;
}

static int damage(tutti_group *group, int rank, int size, void *argument)
{
    struct checkpoint_model model;
    (void)argument;
    (void)size;
    (void)rank;
    EXPECT(checkpoint_model_make(&model, group, 0, 0) == TUTTI_OK);
    checkpoint_model_set(&model, 1);
    EXPECT(checkpoint_model_save(&model, folder) == TUTTI_OK);
    checkpoint_model_set(&model, 50);
    int line = damage_file(group, &model, "manifest");
    if (line == 0) line = damage_file(group, &model, "rank-00000");
    if (line == 0) line = damage_file(group, &model, "rank-00001");
    if (line != 0) return line;
    EXPECT(wait_for_all(group) == TUTTI_OK && checkpoint_model_load(&model, folder) == TUTTI_OK);
    EXPECT(checkpoint_model_is(&model, 1, true));
    checkpoint_model_free(&model);
    return 0;
}

static void test_damaged(void **state)
{
    (void)state;
    ranks_run(2, damage, NULL);
}

/* Files of another checkpoint, or in another order, are not mixed. */
static int mix(tutti_group *group, int rank, int size, void *argument)
{
    struct checkpoint_model model;
    struct bytes first, second;
    (void)argument;
    (void)size;
    EXPECT(checkpoint_model_make(&model, group, 0, 0) == TUTTI_OK);
    checkpoint_model_set(&model, 1);
    EXPECT(checkpoint_model_save(&model, folder) == TUTTI_OK);
    checkpoint_model_set(&model, 50);
    EXPECT(read_bytes(&first, "rank-00000") && read_bytes(&second, "rank-00001"));
    EXPECT(wait_for_all(group) == TUTTI_OK);
    if (rank == 0) {
        struct bytes swapped = first;
        memcpy(swapped.data, second.data, second.n);
        EXPECT(write_bytes(&swapped, second.n));
    }
    int line = expect_damage(group, &model, "rank-00000");
    if (line != 0) return line;
    if (rank == 0) { /* a checkpoint under another's number */
        char from[128], to[128];
        EXPECT(write_bytes(&first, first.n));
        snprintf(from, sizeof from, "%s/0000000001", folder);
        snprintf(to, sizeof to, "%s/0000000002", folder);
        EXPECT(rename(from, to) == 0);
    }
    line = expect_damage(group, &model, "0000000002/manifest is not usable at byte");
    checkpoint_model_free(&model);
    return line;
}

static void test_mixed(void **state)
{
    (void)state;
    ranks_run(2, mix, NULL);
}

/* Damaged manifests with right checksums are parsed without harm. */
static void test_parser(void **state)
{
    struct bytes bytes;
    struct checkpoint_manifest manifest;
    unsigned seed = 7;
    size_t at;
    int accepted = 0;
    (void)state;
    ranks_run(3, save_one, &(struct shape){.bucket_bytes = 64});
    assert_true(read_bytes(&bytes, "manifest"));
    for (int round = 0; round < 30000; round++) {
        size_t n = bytes.n - CHECKPOINT_HASH;
        uint8_t *copy = malloc(bytes.n);
        assert_non_null(copy);
        memcpy(copy, bytes.data, bytes.n);
        for (int k = rand_r(&seed) % 3; k >= 0; k--)
            copy[(size_t)rand_r(&seed) % n] = (uint8_t)(rand_r(&seed) % 4 ? rand_r(&seed) : 0xff);
        if (round % 4 == 0) n = (size_t)rand_r(&seed) % n;
        checkpoint_hash(copy, n, copy + n);
        accepted += checkpoint_parse(copy, n + CHECKPOINT_HASH, &manifest, &at) == NULL;
        assert_true(at <= n + CHECKPOINT_HASH);
        checkpoint_manifest_free(&manifest);
        free(copy);
    }
    assert_true(accepted > 100 && accepted < 20000); /* names, numbers and data may be anything */
}

/* ---- refusals ---------------------------------------------------------------------------------------------- */

static int load_other(tutti_group *group, int rank, int size, void *argument)
{
    struct checkpoint_model model;
    tutti_sharded *sharded;
    float memory[64] = {0};
    (void)argument;
    (void)size;
    (void)rank;
    EXPECT(checkpoint_model_make(&model, group, 0, 0) == TUTTI_OK);
    checkpoint_model_set(&model, 1);
    EXPECT(checkpoint_model_save(&model, folder) == TUTTI_OK);
    tutti_parameter list[4];
    memcpy(list, model.list, sizeof list);
    for (int i = 0; i < 4; i++) list[i].value.data = list[i].gradient.data = memory;
    list[2].name = "weights";
    tutti_sharded_opts opts = {.group = group};
    EXPECT(tutti_sharded_create(list, 4, &opts, &sharded) == TUTTI_OK);
    EXPECT_REFUSED(tutti_checkpoint_load(sharded, folder, NULL, 0, NULL), TUTTI_ERR_MISMATCH,
                   "its parameter 2 is \"weight\" of 37 float32, but that of this program is \"weights\" of 37");
    tutti_sharded_destroy(sharded);
    EXPECT(tutti_sharded_create(list, 2, &opts, &sharded) == TUTTI_OK);
    EXPECT_REFUSED(tutti_checkpoint_load(sharded, folder, NULL, 0, NULL), TUTTI_ERR_MISMATCH,
                   "its parameter 2 is \"weight\" of 37 float32, but that of this program is none");
    tutti_sharded_destroy(sharded);
    tutti_checkpoint_state state = {"velocity", model.states[0].tensor, false};
    EXPECT_REFUSED(tutti_checkpoint_load(model.sharded, folder, &state, 1, NULL), TUTTI_ERR_MISMATCH,
                   "the checkpoint has no state \"velocity\"");
    state = (tutti_checkpoint_state){"momentum", model.states[2].tensor, false};
    EXPECT_REFUSED(tutti_checkpoint_load(model.sharded, folder, &state, 1, NULL), TUTTI_ERR_MISMATCH,
                   "state \"momentum\" has 45 elements of float32 in the checkpoint, but 45 of int16");
    EXPECT(tutti_checkpoint_load(model.sharded, folder, NULL, 0, NULL) == TUTTI_OK); /* states may be skipped */
    checkpoint_model_free(&model);
    return 0;
}

static void test_other_model(void **state)
{
    (void)state;
    ranks_run(2, load_other, NULL);
}

static int call_wrong(tutti_group *group, int rank, int size, void *argument)
{
    struct checkpoint_model model;
    tutti_checkpoint_opts opts = {.keep = -2};
    (void)argument;
    (void)size;
    EXPECT(checkpoint_model_make(&model, group, 0, 0) == TUTTI_OK);
    tutti_checkpoint_state *states = model.states, valid = states[0];
    tutti_sharded *sharded = model.sharded;
    int invalid = TUTTI_ERR_INVALID_ARGUMENT;
    EXPECT_REFUSED(tutti_checkpoint_save(sharded, NULL, states, 3, NULL), invalid, "folder is \"NULL\"");
    EXPECT_REFUSED(tutti_checkpoint_save(sharded, folder, NULL, 3, NULL), invalid, "with 3 entries");
    EXPECT_REFUSED(tutti_checkpoint_save(NULL, folder, states, 3, NULL), invalid, "sharded is NULL");
    EXPECT_REFUSED(tutti_checkpoint_save(sharded, folder, states, 3, &opts), invalid, "keep is -2");
    if (rank == 1) states[0].name = "value";
    EXPECT_REFUSED(tutti_checkpoint_save(sharded, folder, states, 3, NULL), invalid,
                   "rank 1: checkpoint_save: state 0 is named \"value\", which the shard's value is named");
    if (rank == 1) states[0].name = "step";
    EXPECT_REFUSED(tutti_checkpoint_save(sharded, folder, states, 3, NULL), invalid, "state 1 is named \"step\"");
    if (rank == 1) states[0].name = "impulse";
    EXPECT_REFUSED(tutti_checkpoint_save(sharded, folder, states, 3, NULL), TUTTI_ERR_MISMATCH,
                   "rank 0 has state \"momentum\" of float32, but this rank has state \"impulse\"");
    states[0] = valid;
    states[0].tensor.numel++;
    EXPECT_REFUSED(tutti_checkpoint_load(sharded, folder, states, 3, NULL), invalid, "pass one for each");
    states[0] = valid;
    states[0].tensor.device.type = TUTTI_CUDA;
    EXPECT_REFUSED(tutti_checkpoint_save(sharded, folder, states, 3, NULL), invalid, "on device type 2");
    states[0] = valid;
    states[0].tensor.dtype = (tutti_dtype)77;
    EXPECT_REFUSED(tutti_checkpoint_save(sharded, folder, states, 3, NULL), invalid, "unknown dtype 0x4d");
    states[0] = valid;
    EXPECT(tutti_sharded_ready(sharded, 0) == TUTTI_OK);
    EXPECT_REFUSED(checkpoint_model_load(&model, folder), invalid, "1 gradients were reported");
    for (int i = 1; i < model.n; i++) EXPECT(tutti_sharded_ready(sharded, i) == TUTTI_OK);
    EXPECT(tutti_sharded_wait(sharded) == TUTTI_OK && checkpoint_model_save(&model, folder) == TUTTI_OK);
    checkpoint_model_free(&model);
    return 0;
}

static void test_wrong_calls(void **state)
{
    (void)state;
    ranks_run(3, call_wrong, NULL);
}

/* Folders that cannot be made, on all ranks. */
static int write_nowhere(tutti_group *group, int rank, int size, void *argument)
{
    struct checkpoint_model model;
    char path[128];
    (void)argument;
    (void)size;
    EXPECT(checkpoint_model_make(&model, group, 0, 0) == TUTTI_OK);
    snprintf(path, sizeof path, "%s/missing/folder", folder);
    EXPECT_REFUSED(checkpoint_model_save(&model, path), TUTTI_ERR_SYSTEM, "missing/folder: No such file or directory");
    snprintf(path, sizeof path, "%s/file", folder);
    FILE *file = rank == 0 ? fopen(path, "w") : NULL;
    if (file != NULL) fclose(file);
    EXPECT_REFUSED(checkpoint_model_save(&model, path), TUTTI_ERR_SYSTEM, "/file: Not a directory");
    EXPECT_REFUSED(checkpoint_model_load(&model, path), TUTTI_ERR_SYSTEM, "/file: Not a directory");
    snprintf(path, sizeof path, "%s/locked", folder);
    if (rank == 0) EXPECT(mkdir(path, 0500) == 0);
    EXPECT(wait_for_all(group) == TUTTI_OK);
    int status = checkpoint_model_save(&model, path);
    if (geteuid() != 0) EXPECT(status == TUTTI_ERR_SYSTEM && strstr(tutti_last_error(), "Permission denied") != NULL);
    checkpoint_model_free(&model);
    return 0;
}

static void test_unwritable(void **state)
{
    (void)state;
    ranks_run(2, write_nowhere, NULL);
}

int main(void)
{
    ranks_setup();
    const struct CMUnitTest tests[] = {CASE(test_other_ranks), CASE(test_large),       CASE(test_numbers),
                                       CASE(test_other_names), CASE(test_damaged),     CASE(test_mixed),
                                       CASE(test_parser),      CASE(test_other_model), CASE(test_wrong_calls),
                                       CASE(test_unwritable)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
