/* Decides whether each rank can have a core of its own.  Then polling costs nobody anything, and a waiting rank need
 * not yield to the rank it waits for.
 *
 * Launchers bind ranks to one core or to several, so a single mask does not tell.  What counts is whether the cores can
 * be assigned so that each rank gets one of its mask.  That is a bipartite matching, found with augmenting paths (Kuhn
 * 1955, "The Hungarian Method for the Assignment Problem"; Ahuja, Magnanti and Orlin, "Network Flows", 12.3).
 */
#include "tcp/shm/shm.h"

struct matching {
    const struct shm *shm;
    int16_t owner[CPU_SETSIZE]; /* seat, or -1 */
    bool tried[CPU_SETSIZE];
};

static bool assign_free(struct matching *matching, int seat)
{
    for (int core = 0; core < CPU_SETSIZE; core++) {
        if (!CPU_ISSET(core, &shm_seat_at(matching->shm, seat)->cores) || matching->owner[core] >= 0) continue;
        matching->owner[core] = (int16_t)seat;
        return true;
    }
    return false;
}

/* Assigns a core to the seat, moving other seats to other cores if needed. */
static bool assign(struct matching *matching, int seat)
{
    for (int core = 0; core < CPU_SETSIZE; core++) {
        if (!CPU_ISSET(core, &shm_seat_at(matching->shm, seat)->cores) || matching->tried[core]) continue;
        matching->tried[core] = true;
        if (matching->owner[core] >= 0 && !assign(matching, matching->owner[core])) continue;
        matching->owner[core] = (int16_t)seat;
        return true;
    }
    return false;
}

bool shm_have_cores(const struct shm *shm, const bool *present)
{
    struct matching matching = {.shm = shm};
    for (int core = 0; core < CPU_SETSIZE; core++) matching.owner[core] = -1;
    for (int seat = 0; seat < shm->n; seat++) {
        if (!present[seat] || assign_free(&matching, seat)) continue;
        for (int core = 0; core < CPU_SETSIZE; core++) matching.tried[core] = false;
        if (!assign(&matching, seat)) return false;
    }
    return true;
}
