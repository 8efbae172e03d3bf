/* Broadcast and reduce over two binary trees, each of which carries every second segment (Sanders, Speck, Traeff,
 * "Two-tree algorithms for full bandwidth broadcast, reduction and scan", 2009).
 *
 * The ranks but root are the positions 1 .. n of two trees in which the inner nodes of one are leaves of the other.  So
 * each rank sends and receives all data about once, as in a chain, but after a logarithmic number of rounds. */
#include "parts.h"

/* ---- one tree over the positions 1 .. n, in order: odd positions are leaves ---------------------------------------
 */

/* Returns the parent, or 0 for the top. */
static int parent_of(int at, int n)
{
    int bit = at & -at, up = (at ^ bit) | 2 * bit;
    if (at == tree_power(n)) return 0;
    return up <= n ? up : at ^ bit;
}

/* Returns a child, or 0 if there is none.  upper: the one with the higher position. */
static int child_of(int at, int n, bool upper)
{
    int bit = (at & -at) / 2;
    if (!upper) return bit > 0 ? at - bit : 0;
    while (bit > 0 && at + bit > n) bit /= 2;
    return bit > 0 ? at + bit : 0;
}

/* ---- the two trees ------------------------------------------------------------------------------------------------
 */

/* A rank's neighbors in one tree; -1: none. */
struct node {
    int parent, children[2];
};

/* Returns the position of virtual rank v.  The second tree is mirrored if that turns inner nodes into leaves, which
 * takes an even number of positions, else shifted by one. */
static int position_of(int v, int n, int tree)
{
    if (tree == 0) return v;
    return n % 2 == 0 ? n + 1 - v : v % n + 1;
}

/* Returns the rank at a position. */
static int rank_at(const struct coll_args *args, int at, int tree)
{
    int n = args->size - 1, v = at;
    if (tree == 1) v = n % 2 == 0 ? n + 1 - at : (at + n - 2) % n + 1;
    return tree_real(v, args->root, args->size);
}

static struct node find_node(const struct coll_args *args, int tree)
{
    int n = args->size - 1, v = tree_virtual(args->rank, args->root, args->size);
    struct node node = {-1, {-1, -1}};
    if (n == 0) return node;
    if (v == 0) {
        node.children[0] = rank_at(args, tree_power(n), tree);
        return node;
    }
    int at = position_of(v, n, tree), up = parent_of(at, n);
    node.parent = up == 0 ? args->root : rank_at(args, up, tree);
    for (int i = 0; i < 2; i++) {
        int child = child_of(at, n, i == 1);
        if (child > 0) node.children[i] = rank_at(args, child, tree);
    }
    return node;
}

/* Returns the elements of one piece: a segment, or half of fewer data, so that both trees have one. */
static int64_t piece_numel(const struct coll_args *args)
{
    int64_t half = (args->count + 1) / 2;
    return ring_min(args->segment, half > 0 ? half : 1);
}

void broadcast_double_tree(struct plan *plan, const struct coll_args *args)
{
    const struct node nodes[2] = {find_node(args, 0), find_node(args, 1)};
    int64_t piece = piece_numel(args);
    for (int64_t j = 0; j < ring_segments(args->count, piece); j++) {
        const struct node *node = &nodes[j % 2];
        struct plan_ref data = plan_at(PLAN_OUT(0), j * piece);
        int64_t n = ring_segment_numel(args->count, piece, j);
        if (node->parent >= 0) plan_recv(plan, node->parent, data, n);
        for (int i = 0; i < 2; i++)
            if (node->children[i] >= 0) plan_send(plan, node->children[i], data, n);
    }
}

void reduce_double_tree(struct plan *plan, const struct coll_args *args)
{
    const struct node nodes[2] = {find_node(args, 0), find_node(args, 1)};
    bool is_root = args->rank == args->root;
    int64_t piece = piece_numel(args);
    struct coll_slots slots = coll_slots(plan, args->count, piece, is_root ? 0 : ring_min(piece, args->count));
    for (int64_t j = 0; j < ring_segments(args->count, piece); j++) {
        const struct node *node = &nodes[j % 2];
        int64_t at = j * piece, n = ring_segment_numel(args->count, piece, j);
        struct plan_ref sum = plan_at(PLAN_IN(0), at), acc = is_root ? plan_at(PLAN_OUT(0), at) : coll_slot(slots, j);
        for (int i = 0; i < 2; i++) {
            if (node->children[i] < 0) continue;
            plan_recv_reduce(plan, node->children[i], acc, sum, n);
            sum = acc;
        }
        if (node->parent >= 0)
            plan_send(plan, node->parent, sum, n);
        else if (args->average)
            plan_average(plan, acc, acc, n);
    }
}
