/* Training that goes on when ranks die: the survivors regroup, replacements join them, and one rank that has the newest
 * state gives it to all.
 *
 *     tutti-run -n 4 --on-failure=continue --replace 5 build/examples/train_elastic [STEPS] [--checkpoint DIR]
 *
 * With a folder for checkpoints the job can also start again, and continue from the latest one:
 *
 *     tutti-run -n 4 --on-failure=restart build/examples/train_elastic --checkpoint run1
 *
 * Every step trains on the same samples, whatever the number of ranks, so the loss at the end is that of an undisturbed
 * run but for rounding. */
#include "../example.h"
#include "../train/digits.h"
#include "../train/mlp.h"

#include <tutti/train/checkpoint.h>
#include <tutti/train/reducer.h>
#include <tutti/train/sampler.h>
#include <unistd.h>

#ifndef EXAMPLES_DATA_DIR
#define EXAMPLES_DATA_DIR "examples/data"
#endif

enum { HELD_OUT = 357, BATCH = 60, PRINTED_STEPS = 20, SAVED_STEPS = 100 };

/* The state that must survive: the step, and the network's values and velocities.  A newcomer has none: step -1. */
struct training {
    int64_t step, steps;
    struct mlp net;
    float *shared; /* values and velocities, as they are sent */
    struct digits data;
    tutti_reducer *reducer;
    const char *checkpoints; /* folder, or NULL */
};

static void list_parameters(struct training *t, tutti_parameter list[MLP_LAYERS_MAX])
{
    static const char *const names[MLP_LAYERS_MAX] = {"layer0", "layer1"};
    for (int i = 0; i < t->net.layers; i++) {
        int64_t numel = mlp_layer_numel(&t->net, i), at = t->net.begin[i];
        list[i] =
            (tutti_parameter){names[i], tutti_view(t->net.value + at, numel), tutti_view(t->net.gradient + at, numel)};
    }
}

/* Saves the state, or loads the latest one.  A checkpoint is that of a sharded optimizer, which holds the values here.
 */
static int checkpoint(struct training *t, bool loads)
{
    tutti_parameter list[MLP_LAYERS_MAX];
    tutti_sharded *sharded = NULL;
    tutti_checkpoint_state states[] = {{"velocity", tutti_view(t->net.velocity, t->net.numel), .replicated = true},
                                       {"step", tutti_view(&t->step, 1), .replicated = true}};
    list_parameters(t, list);
    int status = tutti_sharded_create(list, t->net.layers, NULL, &sharded);
    if (status == TUTTI_OK)
        status = loads ? tutti_checkpoint_load(sharded, t->checkpoints, states, 2, NULL)
                       : tutti_checkpoint_save(sharded, t->checkpoints, states, 2, NULL);
    tutti_sharded_destroy(sharded);
    return status;
}

/* Continues from the latest checkpoint, if there is one.  If the group fails meanwhile, the step is loaded but values
 * may not be: then this rank has no state that others could take. */
static int resume(struct training *t)
{
    int status = checkpoint(t, true);
    if (status != TUTTI_OK) t->step = 0;
    if (status == TUTTI_ERR_NOT_FOUND) return TUTTI_OK;
    if (status == TUTTI_OK && tutti_get_rank(NULL) == 0) printf("continues after step %d\n", (int)t->step);
    return status;
}

/* Gives the newest state to all ranks.  Ranks may be one step apart: some had the sum of the gradients when others
 * found that a rank was lost. */
static int share_state(struct training *t)
{
    int rank = tutti_get_rank(NULL), world = tutti_get_world_size(NULL);
    int64_t newest = t->step;
    size_t bytes = (size_t)t->net.numel * sizeof(float);
    int status = tutti_all_reduce(tutti_view(&newest, 1), TUTTI_MAX, NULL);
    int64_t root = t->step == newest ? rank : world;
    if (status == TUTTI_OK) status = tutti_all_reduce(tutti_view(&root, 1), TUTTI_MIN, NULL);
    memcpy(t->shared, t->net.value, bytes);
    memcpy(t->shared + t->net.numel, t->net.velocity, bytes);
    if (status == TUTTI_OK) status = tutti_broadcast(tutti_view(t->shared, 2 * t->net.numel), (int)root, NULL);
    if (status != TUTTI_OK) return status; /* this rank keeps what it has */
    memcpy(t->net.value, t->shared, bytes);
    memcpy(t->net.velocity, t->shared + t->net.numel, bytes);
    t->step = newest < 0 ? 0 : newest; /* nobody survived: all start anew */
    return TUTTI_OK;
}

/* Prepares to train with the ranks of a new group. */
static int begin(struct training *t)
{
    tutti_parameter list[MLP_LAYERS_MAX];
    int status = share_state(t);
    if (status == TUTTI_OK && t->step == 0 && t->checkpoints) status = resume(t);
    if (status != TUTTI_OK) return status;
    list_parameters(t, list);
    return tutti_reducer_create(list, t->net.layers, &(tutti_reducer_opts){.sum = true, .bucket_bytes = 16 << 10},
                                &t->reducer);
}

/* Loads this rank's part of the step's samples.  The position follows from the step, so a sampler needs no state. */
static int load(struct training *t, int *label)
{
    int rank = tutti_get_rank(NULL), world = tutti_get_world_size(NULL), n = 0;
    tutti_sampler sampler;
    TUTTI_CHECK(tutti_sampler_init(&sampler, t->data.rows - HELD_OUT,
                                   &(tutti_sampler_opts){.world_size = 1, .shuffle = true, .seed = 7}));
    int64_t steps = sampler.size / BATCH, at = t->step % steps * BATCH;
    tutti_sampler_set_epoch(&sampler, t->step / steps);
    for (int i = first_of(BATCH, rank, world); i < first_of(BATCH, rank + 1, world); i++, n++) {
        const struct digit *digit = &t->data.row[tutti_sampler_index(&sampler, at + i)];
        memcpy(t->net.active[0] + n * DIGIT_PIXELS, digit->pixel, sizeof digit->pixel);
        label[n] = digit->label;
    }
    return n;
}

static int train_step(struct training *t)
{
    int label[BATCH], rows = load(t, label), status = TUTTI_OK;
    mlp_forward(&t->net, rows);
    mlp_loss(&t->net, label, 0, rows, 1.0f / BATCH);
    for (int layer = t->net.layers - 1; layer >= 0 && status == TUTTI_OK; layer--) {
        mlp_backward(&t->net, layer, 0, rows, t->net.gradient + t->net.begin[layer]);
        status = tutti_reducer_ready(t->reducer, layer);
    }
    if (status == TUTTI_OK) status = tutti_reducer_wait(t->reducer);
    if (status != TUTTI_OK) return status;
    mlp_step(&t->net, 0.05f, 0.9f);
    t->step++;
    if (tutti_get_rank(NULL) == 0 && t->step % PRINTED_STEPS == 0) printf("step %d\n", (int)t->step);
    return t->checkpoints && t->step % SAVED_STEPS == 0 ? checkpoint(t, false) : TUTTI_OK;
}

/* Trains until the last step, and leaves with the others. */
static int train(struct training *t)
{
    int status = TUTTI_OK;
    while (status == TUTTI_OK && t->step < t->steps) {
        status = train_step(t);
        if (status == TUTTI_OK && tutti_regroup_wanted(NULL)) return TUTTI_ERR_ABORTED; /* newcomers wait */
    }
    return status == TUTTI_OK ? tutti_barrier(NULL) : status;
}

/* Goes on with the ranks that are left, and with newcomers. */
static void regroup(struct training *t)
{
    double start = seconds();
    tutti_reducer_destroy(t->reducer);
    t->reducer = NULL;
    TUTTI_CHECK(tutti_regroup(NULL, NULL, NULL));
    if (tutti_get_rank(NULL) == 0)
        printf("regrouped: %d ranks, generation %d, %.3f s\n", tutti_get_world_size(NULL),
               (int)tutti_get_generation(NULL), seconds() - start);
}

static bool may_go_on(int status)
{
    return status == TUTTI_ERR_PEER_LOST || status == TUTTI_ERR_ABORTED || status == TUTTI_ERR_TIMEOUT;
}

/* Prints the loss on the samples for training, and how many of the others are recognized. */
static void print_result(struct training *t)
{
    int right = 0, *label = calloc((size_t)t->data.rows, sizeof *label), rows = t->data.rows - HELD_OUT;
    if (!label) exit(1);
    for (int i = 0; i < t->data.rows; i++) {
        memcpy(t->net.active[0] + i * DIGIT_PIXELS, t->data.row[i].pixel, sizeof t->data.row[i].pixel);
        label[i] = t->data.row[i].label;
    }
    mlp_forward(&t->net, t->data.rows);
    for (int i = rows; i < t->data.rows; i++) right += mlp_guess(&t->net, i) == label[i];
    double loss = mlp_loss(&t->net, label, 0, rows, 1) / rows;
    printf("after %d steps: loss %.6f, accuracy %.2f %%\n", (int)t->step, loss, 100.0 * right / HELD_OUT);
    free(label);
}

static void parse(int argc, char **argv, struct training *t)
{
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--checkpoint") == 0 && i + 1 < argc)
            t->checkpoints = argv[++i];
        else if ((t->steps = atoi(argv[i])) < 1) {
            fprintf(stderr, "usage: train_elastic [STEPS] [--checkpoint DIR]\n");
            exit(2);
        }
    }
}

int main(int argc, char **argv)
{
    struct training t = {.steps = 600, .net = {.layers = 2, .size = {DIGIT_PIXELS, 32, DIGIT_CLASSES}}};
    parse(argc, argv, &t);
    setvbuf(stdout, NULL, _IOLBF, 0);
    t.data = digits_read(EXAMPLES_DATA_DIR "/digits.csv");
    mlp_init(&t.net, t.data.rows, 42);
    t.shared = floats(2 * t.net.numel);
    TUTTI_CHECK(tutti_init_process_group("tcp", NULL));
    if (tutti_get_generation(NULL) > 0) t.step = -1; /* this process replaces one that died */
    int status;
    while ((status = begin(&t)) != TUTTI_OK || (status = train(&t)) != TUTTI_OK) {
        if (!may_go_on(status)) TUTTI_CHECK(status);
        regroup(&t);
    }
    if (tutti_get_rank(NULL) == 0) print_result(&t);
    tutti_reducer_destroy(t.reducer);
    TUTTI_CHECK(tutti_destroy_process_group(NULL));
    mlp_free(&t.net);
    free(t.shared);
    free(t.data.row);
    return 0;
}
