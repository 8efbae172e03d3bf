/* Data-parallel training, like torch's DistributedDataParallel: a digit classifier. */
#include "../example.h"
#include "../options.h"
#include "digits.h"
#include "mlp.h"
#include "powersgd.h"

#include <errno.h>
#include <tutti/train/reducer.h>
#include <unistd.h>

#ifndef EXAMPLES_DATA_DIR
#define EXAMPLES_DATA_DIR "examples/data"
#endif

static const char usage[] = "train [tcp|mpi|nccl] [--epochs N] [--batch N] [--hidden N[,N..]] [--bucket KIB] "
                            "[--compress DTYPE | --powersgd RANK] [--data FILE] [--csv-log FILE]";

/* A batch is cut into SHARDS parts.  Each rank has consecutive ones.  Their gradients are added in one binary tree,
 * first within the ranks, then by the reducer between them.  So with TUTTI_DETERMINISTIC=1, which fixes the order
 * there, 1, 2, 4 and 8 ranks compute the same bits. */
enum { HELD_OUT = 357, SHARDS = 8, TREE_DEPTH = 3 };

struct options {
    const char *backend, *data, *csv_log;
    int epochs, batch, bucket_kib;
    int powersgd;         /* rank of PowerSGD's matrices; 0: send whole gradients */
    tutti_dtype compress; /* 0: send float32 */
};

struct trainer {
    struct mlp *net;
    tutti_reducer *reducer;
    struct powersgd powersgd;
    tutti_tensor value[MLP_LAYERS_MAX], gradient[MLP_LAYERS_MAX]; /* the network's arrays, or copies on a device */
    float *partial[TREE_DEPTH]; /* sums of a part of the shards, by level of the tree */
    double loss[SHARDS];        /* sums over the epoch */
    double waited;              /* for gradients, seconds of the epoch */
    int first[SHARDS + 1];      /* rows of this rank's shards */
    int shard, shards;          /* this rank's */
};

/* Returns the first row of a shard, of n rows in all. */
static int shard_begin(int n, int shard)
{
    return (int)((int64_t)n * shard / SHARDS);
}

/* Computes this rank's share of n rows: [first, first + the result). */
static int share(int n, int *first)
{
    int rank = tutti_get_rank(NULL), world = tutti_get_world_size(NULL);
    *first = shard_begin(n, SHARDS * rank / world);
    return shard_begin(n, SHARDS * (rank + 1) / world) - *first;
}

/* Copies this rank's share of n rows into the network's input.  Returns their number. */
static int load(struct mlp *net, const struct digits *data, const int *order, int n, int *label)
{
    int first, rows = share(n, &first);
    for (int r = 0; r < rows; r++) {
        const struct digit *digit = &data->row[order[first + r]];
        memcpy(net->active[0] + r * DIGIT_PIXELS, digit->pixel, sizeof digit->pixel);
        label[r] = digit->label;
    }
    return rows;
}

/* Stores the sum of the gradients of n shards: the sum of the first half plus that of the second. */
static void sum_shards(struct trainer *trainer, int layer, int shard, int n, float *sum, int level)
{
    struct mlp *net = trainer->net;
    if (n <= 1) {
        mlp_backward(net, layer, trainer->first[shard], n == 1 ? trainer->first[shard + 1] - trainer->first[shard] : 0,
                     sum);
        return;
    }
    float *right = trainer->partial[level];
    sum_shards(trainer, layer, shard, n / 2, sum, level + 1);
    sum_shards(trainer, layer, shard + n / 2, n - n / 2, right, level + 1);
    for (int64_t i = 0; i < mlp_layer_numel(net, layer); i++) sum[i] += right[i];
}

/* Sums the losses of this rank's shards, and the gradient of the loss of n rows. */
static void add_losses(struct trainer *trainer, const int *label, int n)
{
    int start = shard_begin(n, trainer->shard);
    for (int i = 0; i <= trainer->shards; i++) trainer->first[i] = shard_begin(n, trainer->shard + i) - start;
    for (int i = 0; i < trainer->shards; i++)
        trainer->loss[trainer->shard + i] +=
            mlp_loss(trainer->net, label, trainer->first[i], trainer->first[i + 1] - trainer->first[i], 1 / (float)n);
}

/* Trains on a batch of n rows.  Each layer's gradient is reported when it is complete, so that it is summed over the
 * ranks while the next one is computed. */
static void train_batch(struct trainer *trainer, const struct digits *data, const int *order, int n)
{
    struct mlp *net = trainer->net;
    int label[n];
    mlp_forward(net, load(net, data, order, n, label));
    add_losses(trainer, label, n);
    for (int layer = net->layers - 1; layer >= 0; layer--) {
        float *gradient = net->gradient + net->begin[layer];
        sum_shards(trainer, layer, 0, trainer->shards, gradient, 0);
        if (trainer->gradient[layer].data != gradient) tensor_set(trainer->gradient[layer], gradient);
        TUTTI_CHECK(tutti_reducer_ready(trainer->reducer, layer));
    }
    double start = seconds();
    TUTTI_CHECK(tutti_reducer_wait(trainer->reducer));
    trainer->waited += seconds() - start;
    for (int layer = 0; layer < net->layers; layer++) {
        float *gradient = net->gradient + net->begin[layer];
        if (trainer->gradient[layer].data != gradient) tensor_get(gradient, trainer->gradient[layer]);
    }
    mlp_step(net, 0.03f, 0.9f);
}

/* Returns how many of this rank's share of n held-out rows are guessed right. */
static int count_right(struct mlp *net, const struct digits *data, const int *order, int n)
{
    int label[n], rows = load(net, data, order, n, label), right = 0;
    mlp_forward(net, rows);
    for (int r = 0; r < rows; r++) right += mlp_guess(net, r) == label[r];
    return right;
}

/* Returns a tensor of the layer's part of an array: the array itself, or a copy on the group's device. */
static tutti_tensor layer_tensor(const struct mlp *net, float *array, int layer)
{
    float *part = array + net->begin[layer];
    if (tutti_get_device(NULL).type == TUTTI_CPU) return tutti_view(part, mlp_layer_numel(net, layer));
    return tensor_new(part, mlp_layer_numel(net, layer), TUTTI_FLOAT32);
}

/* Makes the reducer, which replaces every rank's values by those of rank 0. */
static void trainer_init(struct trainer *trainer, struct mlp *net, const struct options *options)
{
    int rank = tutti_get_rank(NULL), world = tutti_get_world_size(NULL);
    int64_t bucket_bytes = (int64_t)options->bucket_kib * 1024;
    char name[MLP_LAYERS_MAX][16];
    tutti_parameter list[MLP_LAYERS_MAX];
    *trainer = (struct trainer){.net = net, .shard = SHARDS * rank / world};
    trainer->shards = SHARDS * (rank + 1) / world - trainer->shard;
    for (int i = 0; i < TREE_DEPTH; i++)
        if ((trainer->partial[i] = calloc((size_t)net->numel, sizeof(float))) == NULL) abort();
    for (int i = 0; i < net->layers; i++) {
        snprintf(name[i], sizeof name[i], "layer%d", i);
        trainer->value[i] = layer_tensor(net, net->value, i);
        trainer->gradient[i] = layer_tensor(net, net->gradient, i);
        list[i] = (tutti_parameter){name[i], trainer->value[i], trainer->gradient[i]};
    }
    tutti_reducer_opts opts = {.sum = true,
                               .bucket_bytes = bucket_bytes,
                               .first_bucket_bytes = bucket_bytes,
                               .compress = options->compress,
                               .error_feedback = options->compress != 0};
    if (options->powersgd > 0) {
        opts.hook = powersgd_hook;
        opts.hook_argument = &trainer->powersgd;
        opts.hook_phases = POWERSGD_PHASES;
        trainer->powersgd.rank = options->powersgd;
    }
    for (int i = 0; i < net->layers && opts.hook; i++)
        powersgd_add(&trainer->powersgd, i, net->size[i] + 1, net->size[i + 1]); /* the biases are the last row */
    TUTTI_CHECK(tutti_reducer_create(list, net->layers, &opts, &trainer->reducer));
    for (int i = 0; i < net->layers; i++)
        if (trainer->value[i].device.type != TUTTI_CPU) tensor_get(net->value + net->begin[i], trainer->value[i]);
}

static void trainer_free(struct trainer *trainer)
{
    tutti_reducer_destroy(trainer->reducer);
    powersgd_free(&trainer->powersgd);
    for (int i = 0; i < TREE_DEPTH; i++) free(trainer->partial[i]);
    for (int i = 0; i < trainer->net->layers; i++) {
        if (trainer->value[i].device.type == TUTTI_CPU) continue;
        tensor_free(trainer->value[i]);
        tensor_free(trainer->gradient[i]);
    }
}

/* Adds the losses of the shards of all ranks, in one order. */
static double sum_losses(const double *loss)
{
    double sum = 0;
    for (int i = 0; i < SHARDS; i++) sum += loss[i];
    return sum;
}

/* Opens the file of the loss curve, or returns NULL if none is wanted. */
static FILE *csv_open(const char *path)
{
    FILE *csv = path ? fopen(path, "w") : NULL;
    if (path && !csv) {
        fprintf(stderr, "%s: %s\n", path, strerror(errno));
        exit(1);
    }
    if (csv) fprintf(csv, "epoch,loss,accuracy\n");
    return csv;
}

/* Trains the network.  Returns the accuracy on the held-out rows, in percent. */
static double train(struct mlp *net, const struct digits *data, const struct options *options)
{
    int rank = tutti_get_rank(NULL), rows = data->rows - HELD_OUT, order[data->rows];
    uint64_t random = 20260101;
    for (int i = 0; i < data->rows; i++) order[i] = i;
    digits_shuffle(order, data->rows, &random); /* the last HELD_OUT rows are never used for training */

    struct trainer trainer;
    tutti_tensor totals = ZEROS(double, SHARDS + 1);
    double total[SHARDS + 1], accuracy = 0;
    trainer_init(&trainer, net, options);

    FILE *csv = rank == 0 ? csv_open(options->csv_log) : NULL;
    for (int epoch = 1; epoch <= options->epochs; epoch++) {
        double start = seconds();
        digits_shuffle(order, rows, &random);
        memset(trainer.loss, 0, sizeof trainer.loss);
        trainer.waited = 0;
        for (int at = 0; at < rows; at += options->batch)
            train_batch(&trainer, data, order + at, rows - at < options->batch ? rows - at : options->batch);
        memcpy(total, trainer.loss, sizeof trainer.loss);
        total[SHARDS] = count_right(net, data, order + rows, HELD_OUT);

        tensor_set(totals, total);
        TUTTI_CHECK(tutti_all_reduce(totals, TUTTI_SUM, NULL));
        tensor_get(total, totals);
        double loss = sum_losses(total) / rows;
        accuracy = 100 * total[SHARDS] / HELD_OUT;
        if (rank == 0)
            printf("epoch %2d  loss %.6f  accuracy %.2f %%  %.3f s, %.3f of them waiting for gradients\n", epoch, loss,
                   accuracy, seconds() - start, trainer.waited);
        if (csv) fprintf(csv, "%d,%.17g,%.4f\n", epoch, loss, accuracy);
    }
    if (csv) fclose(csv);
    int64_t bytes = options->powersgd > 0 ? trainer.powersgd.bytes : tutti_reducer_bytes(trainer.reducer);
    if (rank == 0) printf("%.2f MB of gradients passed to collectives\n", (double)bytes / 1e6);
    trainer_free(&trainer);
    tensor_free(totals);
    return accuracy;
}

/* Parses the sizes of the hidden layers: "128,64" means two. */
static void parse_hidden(const char *value, void *argument)
{
    struct mlp *net = argument;
    char text[128];
    snprintf(text, sizeof text, "%s", value);
    net->layers = 1;
    for (char *part = strtok(text, ","); part; part = strtok(NULL, ",")) {
        if (net->layers == MLP_LAYERS_MAX) example_refuse("--hidden takes at most %d layers", MLP_LAYERS_MAX - 1);
        net->size[net->layers++] = example_integer("hidden", part, 1, 4096);
    }
    net->size[net->layers] = DIGIT_CLASSES;
}

static void parse_compress(const char *text, void *argument)
{
    static const tutti_dtype dtypes[] = {TUTTI_BFLOAT16, TUTTI_FLOAT16, TUTTI_FLOAT8_E4M3FN};
    tutti_dtype *compress = argument;
    *compress = 0;
    for (int i = 0; i < 3; i++)
        if (!strcmp(text, tutti_dtype_name(dtypes[i]))) *compress = dtypes[i];
    if (!*compress) example_refuse("--compress takes bfloat16, float16 or float8_e4m3fn, not \"%s\"", text);
}

static void parse(int argc, char **argv, struct options *options, struct mlp *net)
{
    const struct example_option list[] = {
        {"epochs", .integer = &options->epochs, .most = 100000},
        {"batch", .integer = &options->batch, .most = 100000},
        {"bucket", .integer = &options->bucket_kib, .most = 1 << 20},
        {"compress", .set = parse_compress, .argument = &options->compress},
        {"powersgd", .integer = &options->powersgd, .most = 64},
        {"hidden", .set = parse_hidden, .argument = net},
        {"data", .text = &options->data},
        {"csv-log", .text = &options->csv_log},
        {.name = NULL},
    };
    options->backend = example_parse(usage, list, argc, argv);
}

int main(int argc, char **argv)
{
    struct options options = {"tcp", EXAMPLES_DATA_DIR "/digits.csv", NULL, 20, 64, 32, 0, 0};
    struct mlp net = {.layers = 3, .size = {DIGIT_PIXELS, 128, 64, DIGIT_CLASSES}};
    parse(argc, argv, &options, &net);
    setvbuf(stdout, NULL, _IOLBF, 0);
    struct digits data = digits_read(options.data);
    if (data.rows <= HELD_OUT)
        example_refuse("%s has %d rows, but more than %d are needed", options.data, data.rows, HELD_OUT);

    TUTTI_CHECK(tutti_init_process_group(options.backend, NULL));
    mlp_init(&net, data.rows, 42);
    double accuracy = train(&net, &data, &options);
    int rank = tutti_get_rank(NULL), world = tutti_get_world_size(NULL);
    if (rank == 0)
        printf("accuracy %.2f %% on %d held-out rows, %d rank%s\n", accuracy, HELD_OUT, world, world > 1 ? "s" : "");
    TUTTI_CHECK(tutti_destroy_process_group(NULL));

    mlp_free(&net);
    free(data.row);
    return accuracy >= 95 ? 0 : 1;
}
