/* Sharded training (ZeRO-2): the digit classifier of train.c, with gradients and optimizer state divided among the
 * ranks, and checkpoints that any other number of ranks can continue from.
 *
 *     tutti-run -n 3 build/examples/train_zero [tcp|mpi] [--epochs N] [--checkpoint DIR] [--resume DIR] [--data FILE]
 *         [--csv-log FILE]
 */
#include "../example.h"
#include "../options.h"
#include "../train/digits.h"
#include "../train/mlp.h"

#include <errno.h>
#include <tutti/train/checkpoint.h>

#ifndef EXAMPLES_DATA_DIR
#define EXAMPLES_DATA_DIR "examples/data"
#endif

static const char usage[] =
    "train_zero [tcp|mpi] [--epochs N] [--checkpoint DIR] [--resume DIR] [--data FILE] [--csv-log FILE]";

enum { HELD_OUT = 357, BATCH = 64 };

struct options {
    const char *backend, *data, *csv_log, *checkpoint, *resume;
    int epochs;
};

/* The model and this rank's share of the optimizer. */
struct trainer {
    struct mlp *net;
    tutti_sharded *sharded;
    float *value, *gradient, *velocity; /* of the shard */
    int64_t numel, epoch;
    tutti_checkpoint_state states[2];
};

/* Makes the sharded optimizer.  All layers compute their gradients in the same memory, because each is copied into a
 * bucket at once. */
static void trainer_init(struct trainer *trainer, struct mlp *net)
{
    char name[MLP_LAYERS_MAX][16];
    tutti_parameter list[MLP_LAYERS_MAX];
    *trainer = (struct trainer){.net = net};
    for (int i = 0; i < net->layers; i++) {
        int64_t numel = mlp_layer_numel(net, i);
        snprintf(name[i], sizeof name[i], "layer%d", i);
        list[i] =
            (tutti_parameter){name[i], tutti_view(net->value + net->begin[i], numel), tutti_view(net->gradient, numel)};
    }
    tutti_sharded_opts opts = {.bucket_bytes = 32 * 1024, .sum = true};
    TUTTI_CHECK(tutti_sharded_create(list, net->layers, &opts, &trainer->sharded));
    trainer->value = tutti_sharded_value(trainer->sharded).data;
    trainer->gradient = tutti_sharded_gradient(trainer->sharded).data;
    trainer->numel = tutti_sharded_value(trainer->sharded).numel;
    trainer->velocity = calloc((size_t)trainer->numel + 1, sizeof *trainer->velocity);
    if (!trainer->velocity) abort();
    trainer->states[0] = (tutti_checkpoint_state){"velocity", tutti_view(trainer->velocity, trainer->numel), false};
    trainer->states[1] = (tutti_checkpoint_state){"epoch", tutti_view(&trainer->epoch, 1), .replicated = true};
}

static void trainer_free(struct trainer *trainer)
{
    tutti_sharded_destroy(trainer->sharded);
    free(trainer->velocity);
}

/* Updates the shard: SGD with momentum.  Then starts to gather the values of all shards. */
static void step(struct trainer *trainer, float rate, float momentum)
{
    for (int64_t i = 0; i < trainer->numel; i++) {
        trainer->velocity[i] = momentum * trainer->velocity[i] + trainer->gradient[i];
        trainer->value[i] -= rate * trainer->velocity[i];
    }
    TUTTI_CHECK(tutti_sharded_update(trainer->sharded));
}

/* Copies this rank's share of n rows into the network's input.  Returns their number. */
static int load(struct mlp *net, const struct digits *data, const int *order, int n, int *label)
{
    int rank = tutti_get_rank(NULL), world = tutti_get_world_size(NULL);
    int first = n * rank / world, rows = n * (rank + 1) / world - first;
    for (int r = 0; r < rows; r++) {
        const struct digit *digit = &data->row[order[first + r]];
        memcpy(net->active[0] + r * DIGIT_PIXELS, digit->pixel, sizeof digit->pixel);
        label[r] = digit->label;
    }
    return rows;
}

/* Trains on a batch of n rows.  Returns the sum of the losses of this rank's rows. */
static double train_batch(struct trainer *trainer, const struct digits *data, const int *order, int n)
{
    struct mlp *net = trainer->net;
    int label[n], rows = load(net, data, order, n, label);
    TUTTI_CHECK(tutti_sharded_wait_values(trainer->sharded)); /* of the last step */
    mlp_forward(net, rows);
    double loss = mlp_loss(net, label, 0, rows, 1 / (float)n);
    for (int layer = net->layers - 1; layer >= 0; layer--) {
        mlp_backward(net, layer, 0, rows, net->gradient);
        TUTTI_CHECK(tutti_sharded_ready(trainer->sharded, layer));
    }
    TUTTI_CHECK(tutti_sharded_wait(trainer->sharded));
    step(trainer, 0.03f, 0.9f);
    return loss;
}

/* Trains for an epoch.  Stores the loss and the accuracy on the held-out rows, over all ranks. */
static void train_epoch(struct trainer *trainer, const struct digits *data, const int *order, double *total)
{
    int rows = data->rows - HELD_OUT, label[HELD_OUT];
    total[0] = total[1] = 0;
    for (int at = 0; at < rows; at += BATCH)
        total[0] += train_batch(trainer, data, order + at, rows - at < BATCH ? rows - at : BATCH);
    TUTTI_CHECK(tutti_sharded_wait_values(trainer->sharded));
    int mine = load(trainer->net, data, order + rows, HELD_OUT, label);
    mlp_forward(trainer->net, mine);
    for (int r = 0; r < mine; r++) total[1] += mlp_guess(trainer->net, r) == label[r];
    TUTTI_CHECK(tutti_all_reduce(tutti_view(total, 2), TUTTI_SUM, NULL));
    total[0] /= rows;
    total[1] *= 100.0 / HELD_OUT;
}

/* Loads the latest checkpoint, if one is wanted. */
static void resume(struct trainer *trainer, const struct options *options)
{
    int64_t number;
    tutti_checkpoint_opts opts = {.used = &number};
    if (!options->resume) return;
    TUTTI_CHECK(tutti_checkpoint_load(trainer->sharded, options->resume, trainer->states, 2, &opts));
    if (tutti_get_rank(NULL) == 0)
        printf("continue after epoch %d from checkpoint %d\n", (int)trainer->epoch, (int)number);
    if (trainer->epoch >= options->epochs)
        example_refuse("checkpoint %d has %d epochs already; pass --epochs above that", (int)number,
                       (int)trainer->epoch);
}

/* Trains up to the last epoch.  Returns the accuracy in percent. */
static double train(struct trainer *trainer, const struct digits *data, const struct options *options, FILE *csv)
{
    int order[data->rows], rows = data->rows - HELD_OUT;
    uint64_t random = 20260101;
    double total[2] = {0, 0};
    for (int i = 0; i < data->rows; i++) order[i] = i;
    digits_shuffle(order, data->rows, &random); /* the last HELD_OUT rows are never used for training */
    resume(trainer, options);
    for (int epoch = 1; epoch <= options->epochs; epoch++) {
        double start = seconds();
        digits_shuffle(order, rows, &random);
        if (epoch <= trainer->epoch) continue; /* the checkpoint has it */
        train_epoch(trainer, data, order, total);
        trainer->epoch = epoch;
        if (options->checkpoint)
            TUTTI_CHECK(tutti_checkpoint_save(trainer->sharded, options->checkpoint, trainer->states, 2, NULL));
        if (tutti_get_rank(NULL) == 0)
            printf("epoch %2d  loss %.6f  accuracy %.2f %%  %.3f s\n", epoch, total[0], total[1], seconds() - start);
        if (csv) fprintf(csv, "%d,%.17g,%.4f\n", epoch, total[0], total[1]);
    }
    return total[1];
}

static void parse(int argc, char **argv, struct options *options)
{
    const struct example_option list[] = {
        {"epochs", .integer = &options->epochs, .most = 100000},
        {"checkpoint", .text = &options->checkpoint},
        {"resume", .text = &options->resume},
        {"data", .text = &options->data},
        {"csv-log", .text = &options->csv_log},
        {.name = NULL},
    };
    options->backend = example_parse(usage, list, argc, argv);
}

/* Opens the file of the loss curve, or returns NULL if this rank writes none. */
static FILE *csv_open(const char *path)
{
    if (!path || tutti_get_rank(NULL) != 0) return NULL;
    FILE *csv = fopen(path, "w");
    if (!csv) {
        fprintf(stderr, "%s: %s\n", path, strerror(errno));
        exit(1);
    }
    fprintf(csv, "epoch,loss,accuracy\n");
    return csv;
}

int main(int argc, char **argv)
{
    struct options options = {.backend = "tcp", .data = EXAMPLES_DATA_DIR "/digits.csv", .epochs = 20};
    struct mlp net = {.layers = 3, .size = {DIGIT_PIXELS, 128, 64, DIGIT_CLASSES}};
    struct trainer trainer;
    parse(argc, argv, &options);
    setvbuf(stdout, NULL, _IOLBF, 0);
    struct digits data = digits_read(options.data);
    if (data.rows <= HELD_OUT)
        example_refuse("%s has %d rows, but more than %d are needed", options.data, data.rows, HELD_OUT);

    TUTTI_CHECK(tutti_init_process_group(options.backend, NULL));
    mlp_init(&net, data.rows, 42);
    trainer_init(&trainer, &net);
    FILE *csv = csv_open(options.csv_log);
    double accuracy = train(&trainer, &data, &options, csv);
    if (csv) fclose(csv);
    if (tutti_get_rank(NULL) == 0)
        printf("accuracy %.2f %%; rank 0 of %d keeps optimizer state for %d of %d parameters\n", accuracy,
               tutti_get_world_size(NULL), (int)trainer.numel, (int)net.numel);
    trainer_free(&trainer);
    TUTTI_CHECK(tutti_destroy_process_group(NULL));
    mlp_free(&net);
    free(data.row);
    return 0;
}
