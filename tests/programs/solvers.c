/* Solvers: transforms, factorizations, meshes. */
#include "programs.h"

static void fft(int bytes)
{
    all_to_all(out, in, bytes);
    compute(5);
    all_to_all(in, out, bytes);
    compute(5);
}

static void wavefront(int bytes)
{
    for (int i = 0; i < 8; i++) {
        if (me > 0) recv(out, bytes, me - 1);
        compute(2);
        if (me < n - 1) send(out, bytes, me + 1);
    }
    for (int i = 0; i < 8; i++) {
        if (me < n - 1) recv(out, bytes, me + 1);
        compute(2);
        if (me > 0) send(out, bytes, me - 1);
    }
}

static void lu(int bytes)
{
    for (int root = 0; root < n; root++) {
        if (me == root) compute(10);
        broadcast(out, bytes, root);
        compute(10);
    }
}

/* The owner of the next panel sends it before it updates the rest. */
static void lu_ahead(int bytes)
{
    request panel[2];
    ibroadcast(out, bytes, 0, &panel[0]);
    for (int root = 0; root < n; root++) {
        wait_all(&panel[root % 2], 1);
        if (root + 1 < n) ibroadcast(block(out, (root + 1) % 2, bytes), bytes, root + 1, &panel[(root + 1) % 2]);
        compute(20);
    }
}

/* Starts six receives and six sends of faces, from and to three neighbors on each side. */
static void start_faces(int bytes, const int part[3], request *received, request *sent)
{
    for (int i = 0; i < 3; i++) {
        int by = 1 + i % (n - 1);
        irecv(block(out, 2 * i, bytes), bytes / part[i], previous(by), &received[2 * i]);
        irecv(block(out, 2 * i + 1, bytes), bytes / part[i], next(by), &received[2 * i + 1]);
    }
    for (int i = 0; i < 3; i++) {
        int by = 1 + i % (n - 1);
        isend(block(in, 2 * i, bytes), bytes / part[i], next(by), &sent[2 * i]);
        isend(block(in, 2 * i + 1, bytes), bytes / part[i], previous(by), &sent[2 * i + 1]);
    }
}

static void faces(int bytes)
{
    static const int part[3] = {1, 4, 16};
    request all[12];
    start_faces(bytes, part, all, all + 6);
    wait_all(all, 12);
    compute(20);
}

/* Each face is used when it arrives. */
static void faces_as_they_come(int bytes)
{
    static const int whole[3] = {1, 1, 1};
    request received[6], sent[6];
    start_faces(bytes, whole, received, sent);
    for (int i = 0; i < 6; i++) {
        wait_any(received, 6);
        compute(3);
    }
    wait_all(sent, 6);
}

static void shifts(int bytes)
{
    for (int by = 1; by < n; by++) {
        request sent;
        isend(in, bytes, next(by), &sent);
        recv(out, bytes, previous(by));
        wait_all(&sent, 1);
        compute(2);
    }
}

static void shifts_polled(int bytes)
{
    request both[2];
    bool done[2] = {false, false};
    irecv(out, bytes, previous(1), &both[0]);
    isend(in, bytes, next(1), &both[1]);
    do {
        compute(1);
        for (int i = 0; i < 2; i++) done[i] = done[i] || is_done(&both[i]);
    } while (!done[0] || !done[1]);
}

static void rows_and_columns(int bytes)
{
    broadcast_in(row, out, bytes, 0);
    compute(3);
    all_reduce_in(column, doubles(in), bytes);
    compute(3);
}

/* Three sums of one to three numbers around compute, as iterative solvers do. */
static void dot_products(int bytes)
{
    double x[3] = {1, 1, 1};
    (void)bytes;
    for (int k = 1; k <= 3; k++) {
        compute(4);
        all_reduce(x, 8 * k);
    }
}

static void polled_sum(int bytes)
{
    request sum;
    iall_reduce(doubles(out), bytes, &sum);
    do compute(1);
    while (!is_done(&sum));
}

static void scans(int bytes)
{
    scan(doubles(out), bytes);
    compute(3);
}

const struct program solver_programs[] = {
    {"fft", fft, {1024, 16384, 131072}},
    {"wavefront", wavefront, {512, 8192}},
    {"lu", lu, {8192, 524288}},
    {"lu_ahead", lu_ahead, {8192, 524288}},
    {"faces", faces, {2048, 32768}},
    {"faces_as_they_come", faces_as_they_come, {2048, 32768}},
    {"shifts", shifts, {1024, 65536}},
    {"shifts_polled", shifts_polled, {1024, 65536}},
    {"rows_and_columns", rows_and_columns, {1024, 65536}},
    {"dot_products", dot_products, {8}},
    {"polled_sum", polled_sum, {64, 16384}},
    {"scans", scans, {8, 8192}},
    {NULL, NULL, {0}},
};
