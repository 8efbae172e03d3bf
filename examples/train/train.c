/* Data-parallel training, like torch's DistributedDataParallel: a digit classifier. */
#include "../example.h"
#include "digits.h"
#include "mlp.h"

#include <errno.h>
#include <stdarg.h>
#include <unistd.h>

#ifndef EXAMPLES_DATA_DIR
#define EXAMPLES_DATA_DIR "examples/data"
#endif

enum { HELD_OUT = 357, BUCKETS_MAX = MLP_LAYERS_MAX };

struct options {
    const char *backend, *data, *csv_log;
    int epochs, batch, bucket_kib;
};

/* Gradients being averaged.  `memory` has space for all of them, and [begin, end) is being filled. */
struct buckets {
    tutti_tensor memory;
    int64_t capacity, begin, end;
    tutti_work *work[BUCKETS_MAX];
    int works;
};

/* Returns a part of a tensor, in the tensor's memory. */
static tutti_tensor tensor_part(tutti_tensor x, int64_t begin, int64_t numel)
{
    return (tutti_tensor){(char *)x.data + begin * tutti_dtype_bytes(x.dtype), numel, x.dtype, x.device};
}

/* Adds a layer's gradient to the bucket.  Starts to average a bucket that is full or has the first layer. */
static void buckets_add(struct buckets *buckets, const struct mlp *net, int layer)
{
    buckets->end = net->begin[layer] + mlp_layer_numel(net, layer);
    if (buckets->end - buckets->begin < buckets->capacity && layer > 0) return;
    tutti_tensor part = tensor_part(buckets->memory, buckets->begin, buckets->end - buckets->begin);
    tensor_set(part, net->gradient + buckets->begin);
    TUTTI_CHECK(tutti_all_reduce(part, TUTTI_AVG, tutti_with(.async_op = &buckets->work[buckets->works++])));
    buckets->begin = buckets->end;
}

/* Waits for all buckets.  Then the gradients are averages. */
static void buckets_wait(struct buckets *buckets, struct mlp *net)
{
    TUTTI_CHECK(tutti_wait_all(buckets->work, buckets->works, TUTTI_DEFAULT_TIMEOUT));
    tensor_get(net->gradient, buckets->memory);
    buckets->begin = buckets->works = 0;
}

/* Computes this rank's share of n rows: [first, first + the result). */
static int share(int n, int *first)
{
    int rank = tutti_get_rank(NULL), world = tutti_get_world_size(NULL);
    *first = (int)((int64_t)n * rank / world);
    return (int)((int64_t)n * (rank + 1) / world) - *first;
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

/* Trains on a batch of n rows.  Returns the sum of the losses of this rank's rows. */
static double train_batch(struct mlp *net, struct buckets *buckets, const struct digits *data, const int *order, int n)
{
    int label[n], rows = load(net, data, order, n, label);
    mlp_forward(net, rows);
    /* Scale, so that the average over ranks is the average over the batch's rows, even if shares differ by one row. */
    double loss = mlp_loss(net, label, rows, (float)tutti_get_world_size(NULL) / (float)n);
    for (int layer = net->layers - 1; layer >= 0; layer--) {
        mlp_backward(net, layer, rows);
        buckets_add(buckets, net, layer);
    }
    buckets_wait(buckets, net);
    mlp_step(net, 0.03f, 0.9f);
    return loss;
}

/* Returns how many of this rank's share of n held-out rows are guessed right. */
static int count_right(struct mlp *net, const struct digits *data, const int *order, int n)
{
    int label[n], rows = load(net, data, order, n, label), right = 0;
    mlp_forward(net, rows);
    for (int r = 0; r < rows; r++) right += mlp_guess(net, r) == label[r];
    return right;
}

/* Replaces every rank's values by those of rank 0. */
static void broadcast_values(struct mlp *net, tutti_tensor memory)
{
    tensor_set(memory, net->value);
    TUTTI_CHECK(tutti_broadcast(memory, 0, NULL));
    tensor_get(net->value, memory);
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

    struct buckets buckets = {.memory = ZEROS(float, net->numel), .capacity = options->bucket_kib * 1024 / 4};
    tutti_tensor totals = ZEROS(double, 2);
    double total[2] = {0, 0}, accuracy = 0;
    broadcast_values(net, buckets.memory);

    FILE *csv = rank == 0 ? csv_open(options->csv_log) : NULL;
    for (int epoch = 1; epoch <= options->epochs; epoch++) {
        double start = seconds();
        digits_shuffle(order, rows, &random);
        total[0] = 0;
        for (int at = 0; at < rows; at += options->batch) {
            int n = rows - at < options->batch ? rows - at : options->batch;
            total[0] += train_batch(net, &buckets, data, order + at, n);
        }
        total[1] = count_right(net, data, order + rows, HELD_OUT);

        tensor_set(totals, total);
        TUTTI_CHECK(tutti_all_reduce(totals, TUTTI_SUM, NULL));
        tensor_get(total, totals);
        double loss = total[0] / rows;
        accuracy = 100 * total[1] / HELD_OUT;
        if (rank == 0)
            printf("epoch %2d  loss %.6f  accuracy %.2f %%  %.3f s\n", epoch, loss, accuracy, seconds() - start);
        if (csv) fprintf(csv, "%d,%.9g,%.4f\n", epoch, loss, accuracy);
    }
    if (csv) fclose(csv);
    tensor_free(buckets.memory);
    tensor_free(totals);
    return accuracy;
}

/* Prints the reason and the usage, and ends the program. */
__attribute__((format(printf, 1, 2))) static void usage(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    fprintf(stderr, "train: ");
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fprintf(stderr, "\nusage: train [tcp|mpi|nccl] [--epochs N] [--batch N] [--hidden N[,N..]] [--bucket KIB] "
                    "[--data FILE] [--csv-log FILE]\n");
    exit(2);
}

static int positive(const char *name, const char *text, int most)
{
    char *end;
    long value = strtol(text, &end, 10);
    if (end == text || *end != '\0' || value < 1 || value > most)
        usage("%s needs an integer of 1 to %d, not \"%s\"", name, most, text);
    return (int)value;
}

/* Parses the sizes of the hidden layers: "128,64" means two. */
static void parse_hidden(struct mlp *net, char *text)
{
    net->layers = 1;
    for (char *part = strtok(text, ","); part; part = strtok(NULL, ",")) {
        if (net->layers == MLP_LAYERS_MAX) usage("--hidden takes at most %d layers", MLP_LAYERS_MAX - 1);
        net->size[net->layers++] = positive("--hidden", part, 4096);
    }
    net->size[net->layers] = DIGIT_CLASSES;
}

static void parse(int argc, char **argv, struct options *options, struct mlp *net)
{
    for (int i = 1; i < argc; i++) {
        const char *name = argv[i];
        if (i == 1 && name[0] != '-') {
            options->backend = name;
            continue;
        }
        if (++i == argc) usage("%s is not an option, or lacks its value", name);
        if (!strcmp(name, "--epochs"))
            options->epochs = positive(name, argv[i], 100000);
        else if (!strcmp(name, "--batch"))
            options->batch = positive(name, argv[i], 100000);
        else if (!strcmp(name, "--bucket"))
            options->bucket_kib = positive(name, argv[i], 1 << 20);
        else if (!strcmp(name, "--hidden"))
            parse_hidden(net, argv[i]);
        else if (!strcmp(name, "--data"))
            options->data = argv[i];
        else if (!strcmp(name, "--csv-log"))
            options->csv_log = argv[i];
        else
            usage("unknown option %s", name);
    }
}

int main(int argc, char **argv)
{
    struct options options = {"tcp", EXAMPLES_DATA_DIR "/digits.csv", NULL, 20, 64, 32};
    struct mlp net = {.layers = 3, .size = {DIGIT_PIXELS, 128, 64, DIGIT_CLASSES}};
    parse(argc, argv, &options, &net);
    setvbuf(stdout, NULL, _IOLBF, 0);
    struct digits data = digits_read(options.data);
    if (data.rows <= HELD_OUT) usage("%s has %d rows, but more than %d are needed", options.data, data.rows, HELD_OUT);

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
