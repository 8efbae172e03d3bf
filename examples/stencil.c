/* Halo exchange: the heat equation on a plate, which is split into one block a rank.  A rank updates the inside of its
 * block while the edges of its neighbours are on their way.  The result equals that of one rank bit for bit.
 *
 *     tutti-run -n 4 build/examples/stencil [tcp|mpi|nccl]
 *
 * Blocks are in host memory.  With nccl only the edges are copied to the GPU, whose NCCL exchanges them.
 */
#include "example.h"

enum { ROWS = 250, COLUMNS = 300, STEPS = 400, REPORT = 100 };

enum { UP, DOWN, LEFT, RIGHT, SIDES };

struct block {
    int first_row, first_column, rows, columns;
    int neighbour[SIDES]; /* rank, or -1 at the plate's edge */
    tutti_tensor outgoing[SIDES], halo[SIDES];
    float *now, *next; /* [rows + 2][columns + 2]: a frame of neighbours' cells around the block's own */
    double waited;     /* seconds */
};

/* Chooses the numbers of blocks, down and across, whose product is the number of ranks: as square as possible. */
static void choose_grid(int world, int *down, int *across)
{
    *down = 1;
    for (int i = 1; i * i <= world; i++)
        if (world % i == 0) *down = i;
    *across = world / *down;
}

/* Makes the block of a rank in a grid of blocks.  The plate is cold, but for its hot upper edge. */
static struct block block_new(int rank, int down, int across)
{
    int row = rank / across, column = rank % across;
    struct block block = {.first_row = first_of(ROWS, row, down), .first_column = first_of(COLUMNS, column, across)};
    block.rows = first_of(ROWS, row + 1, down) - block.first_row;
    block.columns = first_of(COLUMNS, column + 1, across) - block.first_column;
    block.neighbour[UP] = row > 0 ? rank - across : -1;
    block.neighbour[DOWN] = row < down - 1 ? rank + across : -1;
    block.neighbour[LEFT] = column > 0 ? rank - 1 : -1;
    block.neighbour[RIGHT] = column < across - 1 ? rank + 1 : -1;
    for (int side = 0; side < SIDES; side++) {
        if (block.neighbour[side] < 0) continue;
        block.outgoing[side] = ZEROS(float, side <= DOWN ? block.columns : block.rows);
        block.halo[side] = ZEROS(float, side <= DOWN ? block.columns : block.rows);
    }
    block.now = floats((int64_t)(block.rows + 2) * (block.columns + 2));
    block.next = floats((int64_t)(block.rows + 2) * (block.columns + 2));
    for (int i = 0; i < block.columns + 2 && row == 0; i++) block.now[i] = block.next[i] = 1;
    return block;
}

static void block_free(struct block *block)
{
    for (int side = 0; side < SIDES; side++) {
        if (block->neighbour[side] < 0) continue;
        tensor_free(block->outgoing[side]);
        tensor_free(block->halo[side]);
    }
    free(block->now);
    free(block->next);
}

/* Copies one line of cells to a tensor, or from it: the block's own cells at its edge, or the frame around them. */
static void copy_edge(struct block *block, int side, tutti_tensor x, bool from_tensor)
{
    int width = block->columns + 2, n = (int)x.numel, outside = from_tensor;
    float line[n], *cell = block->now + width + 1;
    if (side == UP) cell -= outside * width;
    if (side == DOWN) cell += (block->rows - 1 + outside) * width;
    if (side == LEFT) cell -= outside;
    if (side == RIGHT) cell += block->columns - 1 + outside;
    int stride = side <= DOWN ? 1 : width;
    if (from_tensor) tensor_get(line, x);
    for (int i = 0; i < n; i++)
        *(from_tensor ? &cell[i * stride] : &line[i]) = from_tensor ? line[i] : cell[i * stride];
    if (!from_tensor) tensor_set(x, line);
}

/* Starts to exchange edges with all neighbours.  Returns the number of works. */
static int start_exchange(struct block *block, tutti_work **works)
{
    tutti_p2p_op ops[2 * SIDES];
    int n = 0;
    for (int side = 0; side < SIDES; side++) {
        if (block->neighbour[side] < 0) continue;
        copy_edge(block, side, block->outgoing[side], false);
        ops[n++] = (tutti_p2p_op){.kind = TUTTI_SEND, .tensor = block->outgoing[side], .peer = block->neighbour[side]};
        ops[n++] = (tutti_p2p_op){.kind = TUTTI_RECV, .tensor = block->halo[side], .peer = block->neighbour[side]};
    }
    if (n > 0) TUTTI_CHECK(tutti_batch_isend_irecv(ops, n, NULL, works));
    return n;
}

/* Waits for the neighbours' edges and puts them around the block. */
static void finish_exchange(struct block *block, tutti_work **works, int n)
{
    double start = seconds();
    TUTTI_CHECK(tutti_wait_all(works, n, TUTTI_DEFAULT_TIMEOUT));
    block->waited += seconds() - start;
    for (int side = 0; side < SIDES; side++)
        if (block->neighbour[side] >= 0) copy_edge(block, side, block->halo[side], true);
}

/* Computes the next values of the rows and columns [from, to), counted from 1.  Returns the largest change. */
static float update(struct block *block, int from_row, int to_row, int from_column, int to_column)
{
    int width = block->columns + 2;
    float largest = 0;
    for (int i = from_row; i < to_row; i++) {
        const float *cell = block->now + i * width;
        for (int j = from_column; j < to_column; j++) {
            float change = 0.25f * (cell[j - width] + cell[j + width] + cell[j - 1] + cell[j + 1]) - cell[j];
            block->next[i * width + j] = cell[j] + 0.9f * change;
            if (change < 0) change = -change;
            if (change > largest) largest = change;
        }
    }
    return largest;
}

/* Does one step: the inside while edges are on their way, then the four edges.  Returns the largest change. */
static float step(struct block *block)
{
    tutti_work *works[2 * SIDES];
    int rows = block->rows, columns = block->columns, n = start_exchange(block, works);
    float part[] = {update(block, 2, rows, 2, columns), 0, 0, 0, 0}, largest = 0;
    finish_exchange(block, works, n);
    part[1] = update(block, 1, 2, 1, columns + 1);
    part[2] = update(block, rows, rows + 1, 1, columns + 1);
    part[3] = update(block, 2, rows, 1, 2);
    part[4] = update(block, 2, rows, columns, columns + 1);
    for (int i = 0; i < 5; i++) largest = part[i] > largest ? part[i] : largest;
    float *before = block->now;
    block->now = block->next;
    block->next = before;
    return largest;
}

/* Does all steps.  Rank 0 prints the largest change on the whole plate now and then. */
static void solve(struct block *block)
{
    tutti_tensor residual = ZEROS(float, 1);
    for (int i = 1; i <= STEPS; i++) {
        float change = step(block);
        if (i % REPORT != 0) continue;
        tensor_set(residual, &change);
        TUTTI_CHECK(tutti_all_reduce(residual, TUTTI_MAX, NULL));
        if (tutti_get_rank(NULL) == 0) printf("step %d: the largest change is %.6f\n", i, tensor_item(residual, 0));
    }
    tensor_free(residual);
}

/* Computes the whole plate alone and counts the cells of this rank's block that differ. */
static int64_t count_differences(const struct block *block)
{
    struct block whole = block_new(0, 1, 1);
    int64_t differ = 0;
    for (int i = 1; i <= STEPS; i++) step(&whole);
    for (int i = 1; i <= block->rows; i++) {
        const float *mine = block->now + i * (block->columns + 2);
        const float *right = whole.now + (block->first_row + i) * (COLUMNS + 2) + block->first_column;
        for (int j = 1; j <= block->columns; j++) differ += memcmp(&mine[j], &right[j], sizeof *mine) != 0;
    }
    block_free(&whole);
    return differ;
}

int main(int argc, char **argv)
{
    TUTTI_CHECK(tutti_init_process_group(argc > 1 ? argv[1] : "tcp", NULL));
    int rank = tutti_get_rank(NULL), world = tutti_get_world_size(NULL), down, across;
    choose_grid(world, &down, &across);
    if (down > ROWS / 2 || across > COLUMNS / 2) {
        fprintf(stderr, "stencil: a plate of %d x %d is too small for %d x %d ranks\n", ROWS, COLUMNS, down, across);
        return 1;
    }
    struct block block = block_new(rank, down, across);
    double start = seconds();
    solve(&block);
    double took = seconds() - start;

    tutti_tensor differ = TENSOR(int64_t, count_differences(&block));
    TUTTI_CHECK(tutti_all_reduce(differ, TUTTI_SUM, NULL));
    double wrong = tensor_item(differ, 0);
    if (rank == 0) {
        printf("%d x %d ranks: %.0f million cells a second, %.0f %% of the time waiting for edges\n", down, across,
               1e-6 * ROWS * COLUMNS * STEPS / took, 100 * block.waited / took);
        printf("%.0f of %d cells differ from one rank's\n", wrong, ROWS * COLUMNS);
    }
    tensor_free(differ);
    block_free(&block);
    TUTTI_CHECK(tutti_destroy_process_group(NULL));
    return wrong == 0 ? 0 : 1;
}
