/* Parameter server: rank 0 has the weights of a linear model.  Each worker computes sparse gradients at its own speed
 * and gets new weights in return (asynchronous SGD).  The server knows neither whose message comes next nor its size.
 *
 *     tutti-run -n 4 build/examples/parameter_server [tcp|mpi]
 *
 * It needs 2 ranks or more.  nccl has no messages of any source or unknown size.
 */
#include "example.h"

enum { FEATURES = 64, SAMPLES = 8, STEPS = 150, ACTIVE = 6 };
enum { GRADIENT = 1, WEIGHTS = 2, REPORT = 3 }; /* tags */

/* One element of a sparse gradient. */
struct entry {
    int32_t feature;
    float value;
};

/* What the server answers.  updates is the number of gradients that it had applied. */
struct weights {
    float value[FEATURES];
    int32_t updates;
};

/* The weights that the workers' samples follow. */
static float true_weight(int feature)
{
    return noise(1, feature);
}

static tutti_tensor bytes_of(void *memory, size_t bytes)
{
    return tutti_tensor_of(memory, (int64_t)bytes, TUTTI_UINT8);
}

/* ---- server ------------------------------------------------------------------------------------------------- */

/* Receives a gradient of at most FEATURES entries and applies it. */
static void apply_gradient(struct weights *weights, int worker)
{
    struct entry entry[FEATURES];
    int64_t bytes = 0;
    TUTTI_CHECK(tutti_recv(bytes_of(entry, sizeof entry), worker, tutti_with(.tag = GRADIENT, .received = &bytes)));
    for (int i = 0; i < bytes / (int64_t)sizeof *entry; i++)
        if (entry[i].feature >= 0 && entry[i].feature < FEATURES)
            weights->value[entry[i].feature] -= 0.1f * entry[i].value;
    weights->updates++;
}

/* Receives and prints a worker's last message: text of any length. */
static void print_report(int worker)
{
    tutti_bytes text;
    TUTTI_CHECK(tutti_recv_bytes(&text, worker, tutti_with(.tag = REPORT)));
    printf("Rank %d %.*s\n", worker, (int)text.bytes, (const char *)text.data);
    tutti_bytes_free(&text, 1);
}

static float mean_error(const struct weights *weights)
{
    float sum = 0;
    for (int i = 0; i < FEATURES; i++) {
        float error = weights->value[i] - true_weight(i);
        sum += error < 0 ? -error : error;
    }
    return sum / FEATURES;
}

/* Serves until every worker has sent its report.  Returns the mean error of the weights. */
static float serve(int workers)
{
    struct weights weights = {{0}, 0};
    float before = mean_error(&weights);
    while (workers > 0) {
        tutti_message message;
        TUTTI_CHECK(tutti_probe(TUTTI_ANY_SOURCE, tutti_with(.tag = TUTTI_ANY_TAG), &message));
        if (message.tag == REPORT) {
            print_report(message.source);
            workers--;
        } else {
            apply_gradient(&weights, message.source);
            TUTTI_CHECK(tutti_send(bytes_of(&weights, sizeof weights), message.source, tutti_with(.tag = WEIGHTS)));
        }
    }
    float after = mean_error(&weights);
    printf("Rank 0 applied %d gradients: mean error of the weights %.2g before, %.2g after\n", (int)weights.updates,
           (double)before, (double)after);
    return after;
}

/* ---- worker ------------------------------------------------------------------------------------------------- */

/* Adds one sample's gradient: the sample has ACTIVE features, the others are 0. */
static void add_sample(const struct weights *weights, float *gradient, int64_t seed)
{
    int feature[ACTIVE];
    float x[ACTIVE], error = 0;
    for (int i = 0; i < ACTIVE; i++) {
        feature[i] = (int)((noise(2, seed * ACTIVE + i) + 1) / 2 * FEATURES);
        x[i] = noise(3, seed * ACTIVE + i);
        error += x[i] * (weights->value[feature[i]] - true_weight(feature[i]));
    }
    for (int i = 0; i < ACTIVE; i++) gradient[feature[i]] += error * x[i];
}

/* Computes the gradient of a few samples.  Returns the number of entries: the features that occurred. */
static int sparse_gradient(const struct weights *weights, int rank, int step, struct entry *entry)
{
    float gradient[FEATURES] = {0};
    int n = 0;
    for (int i = 0; i < SAMPLES; i++) add_sample(weights, gradient, ((int64_t)rank * STEPS + step) * SAMPLES + i);
    for (int i = 0; i < FEATURES; i++)
        if (gradient[i] != 0) entry[n++] = (struct entry){i, gradient[i]};
    return n;
}

static void work(int rank)
{
    struct weights weights = {{0}, 0};
    struct entry entry[FEATURES];
    char report[128];
    int entries = 0, others = 0;
    for (int step = 0; step < STEPS; step++) {
        int n = sparse_gradient(&weights, rank, step, entry), updates = weights.updates;
        TUTTI_CHECK(tutti_send(bytes_of(entry, (size_t)n * sizeof *entry), 0, tutti_with(.tag = GRADIENT)));
        TUTTI_CHECK(tutti_recv(bytes_of(&weights, sizeof weights), 0, tutti_with(.tag = WEIGHTS)));
        entries += n;
        others += weights.updates - updates - 1; /* gradients of others that came in between */
    }
    snprintf(report, sizeof report, "sent %d gradients of %.1f entries, each late by %.2f gradients of others", STEPS,
             (double)entries / STEPS, (double)others / STEPS);
    TUTTI_CHECK(tutti_send_bytes(report, strlen(report), 0, tutti_with(.tag = REPORT)));
}

int main(int argc, char **argv)
{
    TUTTI_CHECK(tutti_init_process_group(argc > 1 ? argv[1] : "tcp", NULL));
    int rank = tutti_get_rank(NULL), world = tutti_get_world_size(NULL);
    float error = 0;
    if (world < 2)
        fprintf(stderr, "parameter_server needs 2 ranks or more: a server and its workers\n");
    else if (rank == 0)
        error = serve(world - 1);
    else
        work(rank);
    TUTTI_CHECK(tutti_destroy_process_group(NULL));
    return world > 1 && error < 0.1f ? 0 : 1;
}
