/* Decides whether each rank can have a core of its own.  Then polling delays no other rank, and a waiting rank need not
 * yield to the rank that it waits for.
 *
 * Launchers bind ranks to one core or to several, so a single mask does not tell.  The ranks have cores if each can be
 * assigned a different core of its mask.  That is a bipartite matching, found with augmenting paths (Kuhn 1955, "The
 * Hungarian Method for the Assignment Problem"; Ahuja, Magnanti and Orlin, "Network Flows", 12.3).
 */
#include "tcp/shm/shm.h"

struct matching {
    const struct shm *shm;
    int16_t owner[CPU_SETSIZE]; /* local rank, or -1 */
    bool tried[CPU_SETSIZE];
};

static bool assign_free(struct matching *matching, int local_rank)
{
    for (int core = 0; core < CPU_SETSIZE; core++) {
        if (!CPU_ISSET(core, &shm_rank_at(matching->shm, local_rank)->cores) || matching->owner[core] >= 0) continue;
        matching->owner[core] = (int16_t)local_rank;
        return true;
    }
    return false;
}

/* Assigns a core to the rank and moves other ranks to other cores if needed.  Returns false if that is impossible. */
static bool assign(struct matching *matching, int local_rank)
{
    for (int core = 0; core < CPU_SETSIZE; core++) {
        if (!CPU_ISSET(core, &shm_rank_at(matching->shm, local_rank)->cores) || matching->tried[core]) continue;
        matching->tried[core] = true;
        if (matching->owner[core] >= 0 && !assign(matching, matching->owner[core])) continue;
        matching->owner[core] = (int16_t)local_rank;
        return true;
    }
    return false;
}

bool shm_have_cores(const struct shm *shm, const bool *present)
{
    struct matching matching = {.shm = shm};
    for (int core = 0; core < CPU_SETSIZE; core++) matching.owner[core] = -1;
    for (int local_rank = 0; local_rank < shm->n; local_rank++) {
        if (!present[local_rank] || assign_free(&matching, local_rank)) continue;
        for (int core = 0; core < CPU_SETSIZE; core++) matching.tried[core] = false;
        if (!assign(&matching, local_rank)) return false;
    }
    return true;
}

/* Returns the number of living ranks, and their cores. */
static int find_cores(const struct shm *shm, cpu_set_t *all)
{
    int n_ranks = 0;
    CPU_ZERO(all);
    for (int local_rank = 0; local_rank < shm->n; local_rank++) {
        if (local_rank != shm->local_rank && shm->peer[local_rank].lost) continue;
        CPU_OR(all, all, &shm_rank_at(shm, local_rank)->cores);
        n_ranks++;
    }
    return n_ranks;
}

int shm_count_cores(const struct shm *shm)
{
    cpu_set_t all;
    find_cores(shm, &all);
    int n = CPU_COUNT(&all);
    return n > 0 ? n : 1; /* a faulty rank may have cleared the masks */
}

bool shm_have_spare_cores(const struct shm *shm)
{
    cpu_set_t all;
    int n_ranks = find_cores(shm, &all);
    return CPU_COUNT(&all) >= 2 * n_ranks;
}
