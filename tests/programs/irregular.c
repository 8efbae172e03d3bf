/* Irregular programs: sizes that differ, servers and workers, messages from anyone. */
#include "programs.h"

enum { RECEIVES_MOST = 1000 };

/* Sizes of blocks that differ: from half to three halves of bytes. */
static const int *sizes_around(int bytes)
{
    static int sizes[MAX_RANKS];
    for (int r = 0; r < n; r++) sizes[r] = bytes / 2 + (int)((unsigned)(r * 5 + 3) % 8u) * (bytes / 8);
    return sizes;
}

static void uneven_gather(int bytes)
{
    gather_of(out, sizes_around(bytes), in, 0);
    compute(5);
}

static void uneven_scatter(int bytes)
{
    scatter_of(out, in, sizes_around(bytes), 0);
    compute(5);
}

static void uneven_all_gather(int bytes)
{
    all_gather_of(out, sizes_around(bytes), in);
    compute(5);
}

/* Samples are shared, then counts, then the elements themselves. */
static void sample_sort(int bytes)
{
    int counts[MAX_RANKS], theirs[MAX_RANKS];
    for (int r = 0; r < n; r++) counts[r] = bytes / 2 + ((me + r + (int)step) % 4) * (bytes / 4);
    compute(4);
    all_gather(out, in, 64);
    compute(1);
    all_to_all(theirs, counts, sizeof *counts);
    all_to_all_of(out, theirs, in, counts);
    compute(4);
}

static void server(int bytes)
{
    gather(out, in, bytes, 0);
    if (me == 0) compute(5);
    broadcast(out, bytes, 0);
    compute(5);
}

static void to_one(int bytes)
{
    if (me == 0) {
        for (int i = 0; i < 8 * (n - 1); i++) recv_any(out, bytes);
        for (int r = 1; r < n; r++) send(in, 8, r);
        return;
    }
    for (int i = 0; i < 8; i++) send(in, bytes, 0);
    recv(out, 8, 0);
}

/* Rank 0 hands out 4 tasks a worker to whoever is free. */
static void tasks(int bytes)
{
    int left = 4 * (n - 1), working = n - 1;
    if (me == 0) {
        for (; working > 0; left--) {
            int worker = recv_any(out, bytes);
            in[0] = left > 0;
            send(in, bytes, worker);
            working -= left <= 0;
        }
        return;
    }
    do {
        send(in, bytes, 0);
        recv(out, bytes, 0);
        compute(1 + me % 3);
    } while (out[0]);
}

static void request_and_reply(int bytes)
{
    if (me == 0) {
        for (int i = 0; i < n - 1; i++) send(out, bytes, recv_any(out, bytes));
        return;
    }
    send(in, bytes, 0);
    recv(out, bytes, 0);
    compute(2);
}

/* Sizes that only the sender knows. */
static void sizes_unknown(int bytes)
{
    request sent;
    isend(in, bytes / 2 + (me + (int)step) % 5 * (bytes / 8), next(1), &sent);
    recv_probed(out, previous(1));
    wait_all(&sent, 1);
    compute(2);
}

static void gossip(int bytes)
{
    int by = 1 + (int)(step * 2654435761u >> 16) % (n - 1);
    request both[2];
    irecv(out, bytes, previous(by), &both[0]);
    isend(in, bytes, next(by), &both[1]);
    wait_all(both, 2);
    compute(2);
}

static void token(int bytes)
{
    if (me > 0) recv(out, bytes, me - 1);
    send(out, bytes, next(1));
    if (me == 0) recv(out, bytes, n - 1);
}

/* Down a binary tree, and up again. */
static void tree(int bytes)
{
    int left = 2 * me + 1, right = 2 * me + 2, parent = (me - 1) / 2;
    if (me > 0) recv(out, bytes, parent);
    if (left < n) send(out, bytes, left);
    if (right < n) send(out, bytes, right);
    compute(2);
    if (left < n) recv(in, bytes, left);
    if (right < n) recv(in, bytes, right);
    if (me > 0) send(in, bytes, parent);
}

static void reverse_order(int bytes)
{
    request all[64];
    for (int i = 0; i < 32; i++) isend(block(in, i, bytes), bytes, next(1), &all[i]);
    for (int i = 31; i >= 0; i--) irecv(block(out, i, bytes), bytes, previous(1), &all[32 + i]);
    for (int i = 63; i >= 0; i--) wait_all(&all[i], 1);
}

static void differing_compute(int bytes)
{
    compute((int)((unsigned)me * 7u + step * 5u) % 11);
    all_reduce(doubles(out), bytes);
}

static void barrier_beside_compute(int bytes)
{
    request all;
    (void)bytes;
    ibarrier(&all);
    compute(8);
    wait_all(&all, 1);
}

/* Sums, as a control loop does, beside receives that have been posted for later: their number is in `count`. */
static void beside_receives(int count)
{
    static request all[2 * RECEIVES_MOST];
    double sum[2] = {1, 1};
    for (int i = 0; i < count; i++) irecv(block(out, i, 64), 64, previous(1), &all[i]);
    for (int i = 0; i < count; i++) all_reduce(sum, sizeof sum);
    for (int i = 0; i < count; i++) isend(block(in, i, 64), 64, next(1), &all[count + i]);
    wait_all(all, 2 * count);
}

/* Computes until the last of `count` receives has ended, and asks for that again and again. */
static void last_receive_polled(int count)
{
    static request all[2 * RECEIVES_MOST];
    for (int i = 0; i < count; i++) irecv(block(out, i, 64), 64, previous(1), &all[i]);
    compute(3);
    for (int i = 0; i < count; i++) isend(block(in, i, 64), 64, next(1), &all[count + i]);
    while (!is_done(&all[count - 1])) compute(1);
    wait_all(all, count - 1);
    wait_all(all + count, count);
}

static void reduce_in_turn(int bytes)
{
    for (int root = 0; root < n; root++) {
        compute(3);
        reduce(doubles(out), doubles(in), bytes, root);
    }
}

const struct program irregular_programs[] = {
    {"uneven_gather", uneven_gather, {1024, 65536, 262144}},
    {"uneven_scatter", uneven_scatter, {1024, 65536, 262144}},
    {"uneven_all_gather", uneven_all_gather, {1024, 65536}},
    {"sample_sort", sample_sort, {16384}},
    {"server", server, {1024, 65536}},
    {"to_one", to_one, {64, 8192}},
    {"tasks", tasks, {64, 8192}},
    {"request_and_reply", request_and_reply, {64, 4096}},
    {"sizes_unknown", sizes_unknown, {1024, 32768}},
    {"gossip", gossip, {1024, 65536}},
    {"token", token, {8, 16384}},
    {"tree", tree, {256, 32768}},
    {"reverse_order", reverse_order, {64, 4096}},
    {"differing_compute", differing_compute, {8, 8192}},
    {"barrier_beside_compute", barrier_beside_compute, {8}},
    {"beside_receives", beside_receives, {16, RECEIVES_MOST}},
    {"last_receive_polled", last_receive_polled, {16, RECEIVES_MOST}},
    {"reduce_in_turn", reduce_in_turn, {1024, 65536}},
    {NULL, NULL, {0}},
};
