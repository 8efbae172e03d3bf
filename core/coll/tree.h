/* Index arithmetic of binomial trees and hypercubes.
 *
 * Trees are rooted at virtual rank 0; tree_virtual and tree_real convert between ranks and virtual ranks.  The parent
 * of v is v without its lowest bit, and the subtree of v is the consecutive ranks [v, v + tree_span(v)). */
#ifndef COLL_TREE_H
#define COLL_TREE_H

static inline int tree_virtual(int rank, int root, int size)
{
    return (rank - root + size) % size;
}

static inline int tree_real(int v, int root, int size)
{
    return (v + root) % size;
}

/* Returns the largest power of two that is at most n. */
static inline int tree_power(int n)
{
    int power = 1;
    while (power <= n / 2) power *= 2;
    return power;
}

/* Returns the distance to v's parent, which is its lowest bit; for the root the smallest power of two that is at least
 * size. */
static inline int tree_bit(int v, int size)
{
    if (v != 0) return v & -v;
    int power = tree_power(size);
    return power < size ? 2 * power : power;
}

/* Returns the number of ranks in the subtree of v. */
static inline int tree_span(int v, int size)
{
    int bit = tree_bit(v, size);
    return bit < size - v ? bit : size - v;
}

/* A hypercube needs a power of two, so some ranks are folded.  Of the first 2 * extra ranks the odd ones are folded:
 * each sends its part to the rank before it and gets the result from there.  The other ranks are corners, numbered in
 * order of rank. */
struct tree_fold {
    int corners, extra;
};

static inline struct tree_fold tree_fold(int size)
{
    int corners = tree_power(size);
    return (struct tree_fold){corners, size - corners};
}

/* Returns v's corner, or -1 if v is folded into v - 1. */
static inline int tree_corner(struct tree_fold fold, int v)
{
    if (v >= 2 * fold.extra) return v - fold.extra;
    return v % 2 == 0 ? v / 2 : -1;
}

/* True if v + 1 is folded into v. */
static inline int tree_has_folded(struct tree_fold fold, int v)
{
    return v < 2 * fold.extra && v % 2 == 0;
}

/* Returns the virtual rank at a corner; for the number of corners: size. */
static inline int tree_corner_rank(struct tree_fold fold, int corner)
{
    return corner < fold.extra ? 2 * corner : corner + fold.extra;
}

#endif
