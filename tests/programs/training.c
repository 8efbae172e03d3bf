/* Training: layers, experts, pipelines of stages. */
#include "programs.h"

/* Each rank sends another amount to each, in both directions. */
static void experts(int bytes)
{
    int give[MAX_RANKS], take[MAX_RANKS];
    for (int r = 0; r < n; r++) {
        give[r] = bytes / 2 + ((me * 3 + r * 5 + (int)(step % 7)) % 8) * (bytes / 8);
        take[r] = bytes / 2 + ((r * 3 + me * 5 + (int)(step % 7)) % 8) * (bytes / 8);
    }
    all_to_all_of(out, take, in, give);
    compute(8);
    all_to_all_of(in, give, out, take);
}

static void sharded(int bytes)
{
    for (int layer = 0; layer < 4; layer++) {
        all_gather(out, in, bytes);
        compute(20);
        reduce_scatter(doubles(in), doubles(out), bytes);
    }
}

/* The next layer's parameters are gathered while this one computes. */
static void sharded_ahead(int bytes)
{
    request gathered[2];
    char *layer_out[2] = {out, out + SPACE / 2};
    iall_gather(layer_out[0], in, bytes, &gathered[0]);
    for (int layer = 0; layer < 4; layer++) {
        wait_all(&gathered[layer % 2], 1);
        if (layer < 3) iall_gather(layer_out[(layer + 1) % 2], in, bytes, &gathered[(layer + 1) % 2]);
        compute(20);
    }
}

static void tensor_parallel(int bytes)
{
    for (int layer = 0; layer < 8; layer++) {
        compute(2);
        all_reduce(doubles(out), bytes);
    }
}

/* Embeddings are exchanged while the dense part's gradients are summed. */
static void embeddings(int bytes)
{
    request both[2];
    iall_to_all(out, in, bytes / 4, &both[0]);
    compute(10);
    iall_reduce(doubles(out + SPACE / 2), bytes, &both[1]);
    compute(10);
    wait_all(both, 2);
}

static void ring_attention(int bytes)
{
    for (int turn = 0; turn < n; turn++) {
        request both[2];
        irecv(turn % 2 ? in : out, bytes, previous(1), &both[0]);
        isend(turn % 2 ? out : in, bytes, next(1), &both[1]);
        compute(10);
        wait_all(both, 2);
    }
}

static void forward_and_back(int bytes)
{
    request sent[16];
    int n_sent = 0;
    for (int turn = 0; turn < 8 + n; turn++) {
        int forward = turn, back = turn - (n - me);
        if (forward < 8) {
            if (me > 0) recv(block(out, forward, bytes), bytes, me - 1);
            compute(10);
            if (me < n - 1) isend(block(out, forward, bytes), bytes, me + 1, &sent[n_sent++]);
        }
        if (back >= 0 && back < 8) {
            if (me < n - 1) recv(block(in, back, bytes), bytes, me + 1);
            compute(20);
            if (me > 0) isend(block(in, back, bytes), bytes, me - 1, &sent[n_sent++]);
        }
    }
    wait_all(sent, n_sent);
}

const struct program training_programs[] = {
    {"experts", experts, {2048, 32768, 262144}},           {"sharded", sharded, {4096, 65536}},
    {"sharded_ahead", sharded_ahead, {4096, 65536}},       {"tensor_parallel", tensor_parallel, {1024, 65536}},
    {"embeddings", embeddings, {16384, 262144}},           {"ring_attention", ring_attention, {16384, 262144}},
    {"forward_and_back", forward_and_back, {8192, 65536}}, {NULL, NULL, {0}},
};
