/* Trains a small character-level GPT, data-parallel: each rank has its share of every batch, and gradients are averaged
 * while the backward pass runs.
 *
 *     tutti-run -n 4 build/examples/transformer [tcp|mpi|nccl] [--steps N] [--batch N] [--width N] [--layers N]
 *         [--dtype float32|bf16|fp16|fp8] [--bucket KIB] [--text FILE]
 *
 * --batch counts the sequences of all ranks together, so the losses do not depend on the number of ranks.  --dtype is
 * that of the gradients on their way; nccl takes float32 only.  The model is in host memory.
 */
#include "../example.h"
#include "../options.h"
#include "gradients.h"
#include "model.h"
#include "text.h"

#include <unistd.h>

static const char usage[] = "transformer [tcp|mpi|nccl] [--steps N] [--batch N] [--width N] [--layers N] "
                            "[--dtype float32|bf16|fp16|fp8] [--bucket KIB] [--text FILE]";

enum { CONTEXT = 64, HEADS = 4, REPORT = 10, ALONE_STEPS = 20 };

struct options {
    const char *backend, *text;
    int steps, batch, width, layers, bucket_kib;
    tutti_dtype dtype;
};

/* One rank's part of the training. */
struct trainer {
    struct model model;
    struct adam adam;
    struct gradients gradients;
    const struct text *text;
    int batch, first, share; /* sequences of a batch; this rank's are `share` of them, from `first` */
    uint8_t *input, *target;
    double waited; /* for gradients, in seconds */
};

/* Trains on this rank's share of a batch.  Returns the sum of its losses. */
static double train_step(struct trainer *trainer, int step, bool together)
{
    for (int i = 0; i < trainer->share; i++)
        text_sequence(trainer->text, (int64_t)step * trainer->batch + trainer->first + i, CONTEXT,
                      trainer->input + i * CONTEXT, trainer->target + i * CONTEXT);
    struct model *model = &trainer->model;
    /* Scale, so that the average over ranks is the average over the batch, even if shares differ. */
    float scale = (float)tutti_get_world_size(NULL) / (float)(trainer->batch * CONTEXT);
    model_forward(model, trainer->input, trainer->share);
    double loss = model_backward(model, trainer->input, trainer->target, trainer->share, scale,
                                 together ? gradients_ready : NULL, &trainer->gradients);
    double start = seconds();
    if (together) gradients_wait(&trainer->gradients);
    trainer->waited += seconds() - start;
    adam_step(&trainer->adam, model->value, model->gradient, model->numel);
    return loss;
}

/* Prints the average loss of a step. */
static void print_loss(int step, double loss, int batch)
{
    tutti_tensor sum = TENSOR(float, (float)(loss / batch / CONTEXT));
    TUTTI_CHECK(tutti_all_reduce(sum, TUTTI_SUM, NULL));
    if (tutti_get_rank(NULL) == 0) printf("step %4d  loss %.5f\n", step, tensor_item(sum, 0));
    tensor_free(sum);
}

static int compare(const void *a, const void *b)
{
    const double *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

/* Does steps together with the other ranks, or alone.  Returns the median time of a step, in seconds. */
static double train(struct trainer *trainer, int steps, bool together)
{
    double *took = malloc((size_t)steps * sizeof *took);
    if (!took) abort();
    for (int step = 1; step <= steps; step++) {
        double start = seconds(), loss = train_step(trainer, step, together);
        took[step - 1] = seconds() - start;
        if (together && (step == 1 || step % REPORT == 0 || step == steps)) print_loss(step, loss, trainer->batch);
    }
    qsort(took, (size_t)steps, sizeof *took, compare);
    double median = took[steps / 2];
    free(took);
    return median;
}

/* Lets the model continue a text: prints the likeliest symbol after the last ones, again and again. */
static void print_continuation(struct trainer *trainer)
{
    struct model *model = &trainer->model;
    text_sequence(trainer->text, 0, CONTEXT, trainer->input, trainer->target);
    printf("the model continues: \"");
    for (int n = 0; n < CONTEXT; n++) {
        model_forward(model, trainer->input, 1);
        const float *logits = model->logits + (CONTEXT - 1) * model->symbols;
        int best = 0;
        for (int i = 1; i < trainer->text->symbols; i++)
            if (logits[i] > logits[best]) best = i;
        char letter = trainer->text->letter[best];
        putchar(letter >= ' ' && letter <= '~' ? letter : '|');
        memmove(trainer->input, trainer->input + 1, CONTEXT - 1);
        trainer->input[CONTEXT - 1] = (uint8_t)best;
    }
    printf("\"\n");
}

/* Prints the rates of all ranks, and of rank 0 while the others waited.  Efficiency is the rate of all ranks against
 * that of as many ranks that neither wait for nor disturb each other.  Ranks that share a core do disturb. */
static void print_rates(const struct trainer *trainer, int steps, double together, double alone)
{
    int world = tutti_get_world_size(NULL);
    double all_rate = trainer->batch * CONTEXT / together, alone_rate = trainer->share * CONTEXT / alone;
    double sent = (double)tutti_reducer_bytes(trainer->gradients.reducer) / steps;
    printf("%d rank%s: %.0f tokens/s; a step reduces %.3f MB, and rank 0 waits for it %.1f %% of the time\n", world,
           world > 1 ? "s" : "", all_rate, 1e-6 * sent, 100 * trainer->waited / steps / together);
    printf("rank 0 alone, on its %d of %d sequences: %.0f tokens/s; scaling efficiency %.0f %% (%ld cores)\n",
           trainer->share, trainer->batch, alone_rate, 100 * all_rate / (world * alone_rate),
           sysconf(_SC_NPROCESSORS_ONLN));
}

static void trainer_init(struct trainer *trainer, const struct options *options, const struct text *text)
{
    int rank = tutti_get_rank(NULL), world = tutti_get_world_size(NULL), symbols = (text->symbols + 15) / 16 * 16;
    int first = first_of(options->batch, rank, world), share = first_of(options->batch, rank + 1, world) - first;
    int most = share > 1 ? share : 1;
    *trainer = (struct trainer){.model = {.layers = options->layers,
                                          .heads = HEADS,
                                          .width = options->width,
                                          .context = CONTEXT,
                                          .symbols = symbols,
                                          .batch_max = most},
                                .text = text,
                                .batch = options->batch,
                                .first = first,
                                .share = share};
    model_init(&trainer->model);
    adam_init(&trainer->adam, trainer->model.numel, 3e-3f);
    gradients_init(&trainer->gradients, &trainer->model, options->dtype, options->bucket_kib);
    trainer->input = calloc((size_t)most, CONTEXT);
    trainer->target = calloc((size_t)most, CONTEXT);
    if (!trainer->input || !trainer->target) abort();
}

static void trainer_free(struct trainer *trainer)
{
    gradients_free(&trainer->gradients);
    adam_free(&trainer->adam);
    model_free(&trainer->model);
    free(trainer->input);
    free(trainer->target);
}

static void parse_dtype(const char *name, void *argument)
{
    static const char *const names[] = {"float32", "bf16", "fp16", "fp8"};
    static const tutti_dtype dtypes[] = {TUTTI_FLOAT32, TUTTI_BFLOAT16, TUTTI_FLOAT16, TUTTI_FLOAT8_E4M3FN};
    int i = 0;
    while (i < 4 && strcmp(name, names[i]) != 0) i++;
    if (i == 4) example_refuse("--dtype needs float32, bf16, fp16 or fp8, not \"%s\"", name);
    *(tutti_dtype *)argument = dtypes[i];
}

static void parse(int argc, char **argv, struct options *options)
{
    const struct example_option list[] = {
        {"steps", .integer = &options->steps, .most = 1000000},
        {"batch", .integer = &options->batch, .most = 4096},
        {"width", .integer = &options->width, .unit = 16 * HEADS, .most = 1024},
        {"layers", .integer = &options->layers, .most = MODEL_LAYERS_MAX},
        {"text", .text = &options->text},
        {"bucket", .integer = &options->bucket_kib, .most = 1 << 20},
        {"dtype", .set = parse_dtype, .argument = &options->dtype},
        {.name = NULL},
    };
    options->backend = example_parse(usage, list, argc, argv);
}

int main(int argc, char **argv)
{
    static struct trainer trainer;
    struct options options = {"tcp", NULL, 200, 16, 64, 2, 64, TUTTI_FLOAT32};
    parse(argc, argv, &options);
    setvbuf(stdout, NULL, _IOLBF, 0);
    struct text text = text_new(options.text, CONTEXT + 1);
    TUTTI_CHECK(tutti_init_process_group(options.backend, NULL));
    if (options.batch < tutti_get_world_size(NULL)) example_refuse("--batch needs a sequence for each rank");
    trainer_init(&trainer, &options, &text);
    int rank = tutti_get_rank(NULL);
    if (rank == 0)
        printf("%lld parameters in %d tensors, %d characters of %d kinds\n", (long long)trainer.model.numel,
               trainer.model.n, text.length, text.symbols);

    double together = train(&trainer, options.steps, true), alone = 0;
    if (rank == 0) {
        print_continuation(&trainer);
        alone = train(&trainer, ALONE_STEPS, false); /* changes rank 0's model only, which is not used any more */
    }
    TUTTI_CHECK(tutti_barrier(NULL)); /* the other ranks wait here */
    if (rank == 0) print_rates(&trainer, options.steps, together, alone);

    trainer_free(&trainer);
    text_free(&text);
    return tutti_destroy_process_group(NULL);
}
