/* Which groups have boards.
 *
 * One rank of a group takes an entry for it, with the pages of its board, and tells the others (tutti_backend.offer):
 * so all of them have the board, or none has.  An entry is taken by exchanging its state, and nothing is locked: what
 * is slow, such as to have pages reserved, is done by the rank that has the entry alone.  The last rank of a group to
 * leave makes the entry free again.  It leaves the pages of some boards where they are, since the next group wants
 * them: to have them taken and cleared by the kernel costs much more than all else about making a group.
 *
 * A rank that dies while it takes an entry leaves a state that names it, and the next one to look takes that over.
 */
#include <poll.h>
#include <string.h>

#include "board.h"

enum { FREE, TAKEN, TAKING /* and the seat */ };
enum { KEEP_BYTES = 16 << 20 }; /* pages of free boards */

/* Whether the rank that is taking an entry has died. */
static bool has_died(const struct shm *shm, uint32_t state)
{
    uint32_t seat = state - TAKING;
    if (seat == (uint32_t)shm->seat) return true; /* it was interrupted by its own end, and forgot */
    if (seat >= (uint32_t)shm->n) return true;
    struct pollfd life = {shm->peer[seat].life, POLLIN, 0};
    return poll(&life, 1, 0) > 0;
}

static bool take_entry(const struct shm *shm, struct shm_entry *entry)
{
    uint32_t mine = TAKING + (uint32_t)shm->seat;
    uint32_t found = atomic_load_explicit(&entry->state, memory_order_relaxed); /* a guess */
    if (found == TAKEN || (found != FREE && !has_died(shm, found))) return false;
    /* acquire: all that the ranks of the group before have read and written in the board comes before */
    return atomic_compare_exchange_strong_explicit(&entry->state, &found, mine, memory_order_acquire,
                                                   memory_order_relaxed);
}

/* Those that have pages first. */
static int take_any(const struct shm *shm)
{
    struct shm_entry *entry = shm_directory(shm)->entry;
    for (int pages = 1; pages >= 0; pages--)
        for (int i = 0; i < SHM_BOARDS; i++)
            if ((entry[i].has_pages != 0) == pages && take_entry(shm, &entry[i])) return i;
    return BOARD_ABSENT;
}

/* As a new board: nobody has entered any step. */
static void clear_steps(const struct shm *shm, int index, int n)
{
    struct board board = {.base = (char *)shm_board_at(shm, index) + SHM_LINE};
    memset(shm_board_at(shm, index), 0, SHM_LINE);
    for (int rank = 0; rank < n; rank++)
        for (uint64_t i = 0; i < BOARD_DEPTH; i++) /* relaxed: the group's ranks hear of the board with a message */
            atomic_store_explicit(&board_cell_of(&board, rank, i)->step, 0, memory_order_relaxed);
}

static void give_entry(struct shm_entry *entry, uint32_t state)
{
    atomic_store_explicit(&entry->state, state, memory_order_release); /* with the entry, and what is in the board */
}

int board_directory_take(struct shm *shm, int n)
{
    int index = take_any(shm);
    if (index == BOARD_ABSENT) return BOARD_ABSENT;
    struct shm_entry *entry = &shm_directory(shm)->entry[index];
    if (entry->has_pages)
        clear_steps(shm, index, n);
    else
        entry->has_pages = shm_reserve_board(shm, index);
    atomic_store_explicit(&entry->left, 0, memory_order_relaxed); /* as the steps */
    bool taken = entry->has_pages;
    give_entry(entry, taken ? TAKEN : FREE);
    return taken ? index : BOARD_ABSENT;
}

bool board_directory_has(const struct shm *shm, int index)
{
    return atomic_load_explicit(&shm_directory(shm)->entry[index].state, memory_order_acquire) == TAKEN;
}

/* Whether this one's pages can stay for the next group. */
static bool may_keep(const struct shm *shm)
{
    size_t kept = shm->board_span;
    const struct shm_entry *entry = shm_directory(shm)->entry;
    for (int i = 0; i < SHM_BOARDS; i++)
        if (entry[i].has_pages && atomic_load_explicit(&entry[i].state, memory_order_relaxed) == FREE)
            kept += shm->board_span;
    return kept <= KEEP_BYTES;
}

void board_directory_leave(struct shm *shm, int index, int n)
{
    struct shm_entry *entry = &shm_directory(shm)->entry[index];
    /* release for this rank's part, acquire for the last one's, who gives the board to whoever comes next */
    if (atomic_fetch_add_explicit(&entry->left, 1, memory_order_acq_rel) + 1 != (uint32_t)n) return;
    if (!may_keep(shm) && shm_release_board(shm, index)) entry->has_pages = 0;
    give_entry(entry, FREE);
}
