/* Pipeline parallelism: a network's layers are split over the ranks, and a batch flows through them in micro-batches.
 *
 *     tutti-run -n 4 build/examples/pipeline [tcp|mpi|nccl]
 *
 * The schedule is 1F1B, one forward, one backward (Narayanan et al., PipeDream-Flush).  4 ranks, 6 micro-batches:
 *
 *     rank 0   F0 F1 F2 F3 .  .  .  B0 F4 B1 F5 B2 .  B3 .  B4 .  B5
 *     rank 1      F0 F1 F2 .  .  B0 F3 B1 F4 B2 F5 B3 .  B4 .  B5
 *     rank 2         F0 F1 .  B0 F2 B1 F3 B2 F4 B3 F5 B4 .  B5
 *     rank 3            F0 B0 F1 B1 F2 B2 F3 B3 F4 B4 F5 B5
 *
 * Rank r holds the activations of at most world - r micro-batches.  Each rank idles for world - 1 forward and backward
 * passes, the bubble.  The network is in host memory; with nccl the messages are on the GPU.
 */
#include "example.h"

#include <math.h>

enum { LAYERS = 12, WIDTH = 64, ROWS = 16, MICRO_BATCHES = 12, SLICE = ROWS * WIDTH, WEIGHTS = WIDTH * WIDTH };

/* Consecutive layers: each computes tanh(x W).  One stage a rank, or one stage of all layers to compare with. */
struct stage {
    int first, layers;
    float *weight, *gradient; /* [layers][WIDTH][WIDTH] */
    float *active;            /* [slot][layers + 1][ROWS][WIDTH]: slot s has micro-batch m if m % slots == s */
    int slots;
};

/* Messages between this stage and its neighbours. */
struct link {
    int previous, next; /* ranks, or -1 */
    tutti_tensor x_in, x_out, gradient_in, gradient_out;
    double waited; /* seconds */
};

static struct stage stage_new(int first, int layers, int slots)
{
    struct stage stage = {first, layers, floats(layers * WEIGHTS), floats(layers * WEIGHTS), NULL, slots};
    stage.active = floats((int64_t)slots * (layers + 1) * SLICE);
    for (int i = 0; i < layers * WEIGHTS; i++) stage.weight[i] = 0.2f * noise(1, first * WEIGHTS + i);
    return stage;
}

static void stage_free(struct stage *stage)
{
    free(stage->weight);
    free(stage->gradient);
    free(stage->active);
}

static float *stage_active(const struct stage *stage, int micro_batch, int layer)
{
    return stage->active + (micro_batch % stage->slots * (stage->layers + 1) + layer) * SLICE;
}

/* Computes the stage's output from its input, active 0, for one micro-batch. */
static void forward(struct stage *stage, int micro_batch)
{
    for (int layer = 0; layer < stage->layers; layer++) {
        const float *x = stage_active(stage, micro_batch, layer), *weight = stage->weight + layer * WEIGHTS;
        float *y = stage_active(stage, micro_batch, layer + 1);
        memset(y, 0, SLICE * sizeof *y);
        for (int r = 0; r < ROWS; r++)
            for (int k = 0; k < WIDTH; k++)
                for (int j = 0; j < WIDTH; j++) y[r * WIDTH + j] += x[r * WIDTH + k] * weight[k * WIDTH + j];
        for (int i = 0; i < SLICE; i++) y[i] = tanhf(y[i]);
    }
}

/* Adds to the weights' gradients.  `error` is the gradient of the stage's output, and becomes that of its input. */
static void backward(struct stage *stage, int micro_batch, float *error)
{
    for (int layer = stage->layers - 1; layer >= 0; layer--) {
        const float *x = stage_active(stage, micro_batch, layer), *y = stage_active(stage, micro_batch, layer + 1);
        const float *weight = stage->weight + layer * WEIGHTS;
        float *gradient = stage->gradient + layer * WEIGHTS, before[WIDTH];
        for (int r = 0; r < ROWS; r++, x += WIDTH, y += WIDTH) {
            float *after = error + r * WIDTH;
            for (int j = 0; j < WIDTH; j++) after[j] *= 1 - y[j] * y[j]; /* the derivative of tanh */
            for (int k = 0; k < WIDTH; k++) {
                before[k] = 0;
                for (int j = 0; j < WIDTH; j++) {
                    gradient[k * WIDTH + j] += x[k] * after[j];
                    before[k] += weight[k * WIDTH + j] * after[j];
                }
            }
            memcpy(after, before, sizeof before);
        }
    }
}

/* Fills the input of a micro-batch. */
static void load(struct stage *stage, int micro_batch)
{
    float *x = stage_active(stage, micro_batch, 0);
    for (int i = 0; i < SLICE; i++) x[i] = noise(2, micro_batch * SLICE + i);
}

/* Computes the gradient of the loss, half the squared distance of the output from the target. */
static void loss_gradient(const struct stage *stage, int micro_batch, float *error)
{
    const float *y = stage_active(stage, micro_batch, stage->layers);
    for (int i = 0; i < SLICE; i++) error[i] = y[i] - noise(3, micro_batch * SLICE + i);
}

static void add_op(tutti_p2p_op *ops, int *n, tutti_kind kind, tutti_tensor x, int peer)
{
    if (peer >= 0) ops[(*n)++] = (tutti_p2p_op){.kind = kind, .tensor = x, .peer = peer};
}

enum { X_OUT = 1, GRADIENT_IN = 2, GRADIENT_OUT = 4, X_IN = 8 };

/* Sends and receives at once the messages of the set. */
static void exchange(struct link *link, int set)
{
    tutti_p2p_op ops[4];
    tutti_work *works[4];
    int n = 0;
    double start = seconds();
    if (set & X_OUT) add_op(ops, &n, TUTTI_SEND, link->x_out, link->next);
    if (set & GRADIENT_IN) add_op(ops, &n, TUTTI_RECV, link->gradient_in, link->next);
    if (set & GRADIENT_OUT) add_op(ops, &n, TUTTI_SEND, link->gradient_out, link->previous);
    if (set & X_IN) add_op(ops, &n, TUTTI_RECV, link->x_in, link->previous);
    if (n > 0) TUTTI_CHECK(tutti_batch_isend_irecv(ops, n, NULL, works));
    TUTTI_CHECK(tutti_wait_all(works, n, TUTTI_DEFAULT_TIMEOUT));
    link->waited += seconds() - start;
}

static void run_forward(struct stage *stage, struct link *link, int micro_batch)
{
    if (link->previous >= 0)
        tensor_get(stage_active(stage, micro_batch, 0), link->x_in);
    else
        load(stage, micro_batch);
    forward(stage, micro_batch);
    if (link->next >= 0) tensor_set(link->x_out, stage_active(stage, micro_batch, stage->layers));
}

static void run_backward(struct stage *stage, struct link *link, int micro_batch)
{
    float error[SLICE];
    if (link->next >= 0)
        tensor_get(error, link->gradient_in);
    else
        loss_gradient(stage, micro_batch, error);
    backward(stage, micro_batch, error);
    if (link->previous >= 0) tensor_set(link->gradient_out, error);
}

/* Runs a batch through this rank's stage: a warm-up of forward passes only, then one forward and one backward in turn,
 * then the backward passes that remain. */
static void run_1f1b(struct stage *stage, struct link *link)
{
    int warm_up = stage->slots - 1, f = 0, b = 0;
    exchange(link, X_IN);
    for (; f < warm_up; f++) {
        run_forward(stage, link, f);
        exchange(link, X_OUT);
        exchange(link, X_IN);
    }
    for (; f < MICRO_BATCHES; f++, b++) {
        run_forward(stage, link, f);
        exchange(link, X_OUT | GRADIENT_IN);
        run_backward(stage, link, b);
        exchange(link, f + 1 < MICRO_BATCHES ? GRADIENT_OUT | X_IN : GRADIENT_OUT);
    }
    for (; b < MICRO_BATCHES; b++) {
        exchange(link, GRADIENT_IN);
        run_backward(stage, link, b);
        exchange(link, GRADIENT_OUT);
    }
}

/* Returns the largest difference of this rank's gradients from those of one rank that computes everything. */
static float compare(const struct stage *stage)
{
    struct stage whole = stage_new(0, LAYERS, 1);
    struct link none = {.previous = -1, .next = -1};
    run_1f1b(&whole, &none);
    float largest =
        largest_difference(stage->gradient, whole.gradient + stage->first * WEIGHTS, stage->layers * WEIGHTS);
    stage_free(&whole);
    return largest;
}

int main(int argc, char **argv)
{
    TUTTI_CHECK(tutti_init_process_group(argc > 1 ? argv[1] : "tcp", NULL));
    int rank = tutti_get_rank(NULL), world = tutti_get_world_size(NULL), first = first_of(LAYERS, rank, world);
    int slots = world - rank < MICRO_BATCHES ? world - rank : MICRO_BATCHES;
    struct stage stage = stage_new(first, first_of(LAYERS, rank + 1, world) - first, slots);
    struct link link = {.previous = rank - 1, .next = rank + 1 < world ? rank + 1 : -1};
    tutti_tensor *const messages[] = {&link.x_in, &link.x_out, &link.gradient_in, &link.gradient_out};
    for (int i = 0; i < 4; i++) *messages[i] = ZEROS(float, SLICE);
    TUTTI_CHECK(tutti_barrier(NULL));
    double start = seconds();
    run_1f1b(&stage, &link);
    double took = seconds() - start;
    printf("Rank %d: %d layers, %d micro-batches in flight, waited %.0f %% of the time\n", rank, stage.layers, slots,
           100 * link.waited / took);

    float difference = compare(&stage);
    tutti_tensor largest = TENSOR(float, difference);
    TUTTI_CHECK(tutti_all_reduce(largest, TUTTI_MAX, NULL));
    difference = (float)tensor_item(largest, 0);
    if (rank == 0) {
        printf("bubble of %d stages and %d micro-batches: %.0f %% of the schedule\n", world, MICRO_BATCHES,
               100.0 * (world - 1) / (MICRO_BATCHES + world - 1));
        printf("gradients differ by at most %g from one rank's\n", (double)difference);
    }
    stage_free(&stage);
    tensor_free(largest);
    for (int i = 0; i < 4; i++) tensor_free(*messages[i]);
    TUTTI_CHECK(tutti_destroy_process_group(NULL));
    return difference <= 1e-5f ? 0 : 1;
}
