/* Mixture of experts: a router sends each token to the two experts that it scores highest, wherever they are.
 *
 *     tutti-run -n 4 build/examples/moe [tcp|mpi|nccl]
 *
 * 1. The router scores a rank's tokens, and sorts two copies of each by expert.
 * 2. Ranks exchange how many copies each expert gets: all_to_all_single with equal splits.
 * 3. They exchange the copies: all_to_all_single, whose splits follow from these numbers.
 * 4. The experts compute, and the results take the same way back, with the splits of both sides swapped.
 * 5. A token's result is the sum of its two experts' results, weighted by the router.
 *
 * Computation is in host memory; with nccl the exchanges are on the GPU.
 */
#include "example.h"

#include <math.h>

enum { WIDTH = 16, TOP = 2, EXPERTS_PER_RANK = 2, TOKENS_MAX = 256 };

/* A rank's tokens, and where the router sends them. */
struct batch {
    int tokens, experts;
    float x[TOKENS_MAX][WIDTH], y[TOKENS_MAX][WIDTH];
    int expert[TOKENS_MAX][TOP];
    float gate[TOKENS_MAX][TOP];
    int place[TOKENS_MAX][TOP]; /* row of the token's copy, sorted by expert */
};

/* Computes y = tanh(x W) with the expert's own W, for one token. */
static void apply_expert(int expert, const float *x, float *y)
{
    for (int j = 0; j < WIDTH; j++) {
        float sum = 0;
        for (int k = 0; k < WIDTH; k++) sum += x[k] * noise(10 + (uint64_t)expert, k * WIDTH + j);
        y[j] = tanhf(sum);
    }
}

static float score(const float *x, int expert)
{
    float sum = 0;
    for (int k = 0; k < WIDTH; k++) sum += x[k] * noise(1, expert * WIDTH + k);
    return sum;
}

/* Chooses a token's experts.  Their gates are the softmax of their scores. */
static void route_token(struct batch *batch, int token)
{
    int *expert = batch->expert[token];
    float best[TOP] = {-INFINITY, -INFINITY};
    for (int e = 0; e < batch->experts; e++) {
        float value = score(batch->x[token], e);
        int at = value > best[0] ? 0 : 1;
        if (value <= best[at]) continue;
        if (at == 0) best[1] = best[0], expert[1] = expert[0];
        best[at] = value, expert[at] = e;
    }
    batch->gate[token][1] = 1 / (1 + expf(best[0] - best[1]));
    batch->gate[token][0] = 1 - batch->gate[token][1];
}

/* Routes all tokens, counts each expert's copies, and numbers the copies in the order of their experts. */
static void route(struct batch *batch, int64_t *count)
{
    int64_t next[batch->experts];
    for (int t = 0; t < batch->tokens; t++) {
        route_token(batch, t);
        for (int i = 0; i < TOP; i++) count[batch->expert[t][i]]++;
    }
    next[0] = 0;
    for (int e = 1; e < batch->experts; e++) next[e] = next[e - 1] + count[e - 1];
    for (int t = 0; t < batch->tokens; t++)
        for (int i = 0; i < TOP; i++) batch->place[t][i] = (int)next[batch->expert[t][i]]++;
}

/* Exchanges counts: out[s][e] is the number of copies from rank s for this rank's expert e. */
static void exchange_counts(int64_t *out, const int64_t *count, int experts)
{
    tutti_tensor sent = tensor_new(count, experts, TUTTI_INT64), received = ZEROS(int64_t, experts);
    TUTTI_CHECK(tutti_all_to_all_single(received, sent, NULL, NULL, NULL));
    tensor_get(out, received);
    tensor_free(sent);
    tensor_free(received);
}

/* Fills the splits, in elements, from counts by expert.  Returns the number of rows of all ranks. */
static int64_t splits_of(int64_t *split, const int64_t *count, int world)
{
    int64_t rows = 0;
    for (int r = 0; r < world; r++) {
        split[r] = 0;
        for (int e = 0; e < EXPERTS_PER_RANK; e++) split[r] += count[r * EXPERTS_PER_RANK + e] * WIDTH;
        rows += split[r] / WIDTH;
    }
    return rows;
}

/* Exchanges rows of WIDTH floats. */
static void exchange_rows(float *out, const int64_t *out_split, const float *in, const int64_t *in_split, int world)
{
    int64_t n_out = 0, n_in = 0;
    for (int r = 0; r < world; r++) n_out += out_split[r], n_in += in_split[r];
    tutti_tensor sent = tensor_new(in, n_in, TUTTI_FLOAT32), received = ZEROS(float, n_out);
    TUTTI_CHECK(tutti_all_to_all_single(received, sent, out_split, in_split, NULL));
    tensor_get(out, received);
    tensor_free(sent);
    tensor_free(received);
}

/* Applies this rank's experts in place: rows are sorted by the rank they came from, then by expert. */
static void apply_experts(float *row, const int64_t *count, int world, int rank)
{
    float y[WIDTH];
    for (int i = 0; i < world * EXPERTS_PER_RANK; i++)
        for (int64_t k = 0; k < count[i]; k++, row += WIDTH) {
            apply_expert(rank * EXPERTS_PER_RANK + i % EXPERTS_PER_RANK, row, y);
            memcpy(row, y, sizeof y);
        }
}

/* Computes y from x: the whole layer.  Returns the number of rows that this rank's experts got. */
static int64_t run_layer(struct batch *batch, int rank, int world)
{
    int64_t count[batch->experts], arriving[batch->experts], in_split[world], out_split[world];
    memset(count, 0, sizeof count);
    route(batch, count);
    exchange_counts(arriving, count, batch->experts);
    int64_t rows = splits_of(out_split, arriving, world);

    float *copies = floats(splits_of(in_split, count, world) * WIDTH), *work = floats(rows * WIDTH);
    for (int t = 0; t < batch->tokens; t++)
        for (int i = 0; i < TOP; i++) memcpy(copies + batch->place[t][i] * WIDTH, batch->x[t], sizeof batch->x[t]);
    exchange_rows(work, out_split, copies, in_split, world);
    apply_experts(work, arriving, world, rank);
    exchange_rows(copies, in_split, work, out_split, world);

    for (int t = 0; t < batch->tokens; t++)
        for (int i = 0; i < TOP; i++)
            for (int j = 0; j < WIDTH; j++)
                batch->y[t][j] += batch->gate[t][i] * copies[batch->place[t][i] * WIDTH + j];
    free(copies);
    free(work);
    return rows;
}

/* Returns the largest difference from what this rank computes with all experts itself. */
static float compare(const struct batch *batch)
{
    float largest = 0, part[WIDTH];
    for (int t = 0; t < batch->tokens; t++) {
        float right[WIDTH] = {0};
        for (int i = 0; i < TOP; i++) {
            apply_expert(batch->expert[t][i], batch->x[t], part);
            for (int j = 0; j < WIDTH; j++) right[j] += batch->gate[t][i] * part[j];
        }
        largest = fmaxf(largest, largest_difference(batch->y[t], right, WIDTH));
    }
    return largest;
}

int main(int argc, char **argv)
{
    static struct batch batch;
    TUTTI_CHECK(tutti_init_process_group(argc > 1 ? argv[1] : "tcp", NULL));
    int rank = tutti_get_rank(NULL), world = tutti_get_world_size(NULL);
    batch.tokens = TOKENS_MAX - 50 * (rank % 5); /* ranks need not have equally many */
    batch.experts = EXPERTS_PER_RANK * world;
    for (int i = 0; i < batch.tokens * WIDTH; i++) batch.x[i / WIDTH][i % WIDTH] = noise(2, (int64_t)rank << 20 | i);

    int64_t rows = run_layer(&batch, rank, world);
    float difference = compare(&batch);
    printf("Rank %d sent %d copies of %d tokens, its experts got %lld: %s\n", rank, TOP * batch.tokens, batch.tokens,
           (long long)rows, difference < 1e-5f ? "right" : "WRONG");
    tutti_tensor most = TENSOR(int64_t, rows), sum = TENSOR(int64_t, rows);
    TUTTI_CHECK(tutti_all_reduce(most, TUTTI_MAX, NULL));
    TUTTI_CHECK(tutti_all_reduce(sum, TUTTI_SUM, NULL));
    if (rank == 0)
        printf("the busiest rank has %.2f times the average load\n",
               tensor_item(most, 0) * world / tensor_item(sum, 0));
    tensor_free(most);
    tensor_free(sum);
    TUTTI_CHECK(tutti_destroy_process_group(NULL));
    return difference < 1e-5f ? 0 : 1;
}
