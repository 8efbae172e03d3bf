/* Whether ranks have a core each: then to look for one another costs nobody anything, and a rank that waits need not
 * give its core to whom it waits for.
 *
 * Launchers bind ranks, to one core each or to some, so that one rank's mask does not tell: what counts is whether the
 * cores can be given out so that each rank gets one of its own mask.  That is a matching of ranks and cores, found with
 * augmenting paths (Kuhn 1955, "The Hungarian Method for the Assignment Problem"; Ahuja, Magnanti and Orlin, "Network
 * Flows", 12.3).
 */
#include "shm.h"

struct matching {
    const struct shm *shm;
    int16_t owner[CPU_SETSIZE]; /* seat, or -1 */
    bool tried[CPU_SETSIZE];
};

static bool give_free(struct matching *matching, int seat)
{
    for (int core = 0; core < CPU_SETSIZE; core++) {
        if (!CPU_ISSET(core, &shm_seat_at(matching->shm, seat)->cores) || matching->owner[core] >= 0) continue;
        matching->owner[core] = (int16_t)seat;
        return true;
    }
    return false;
}

/* Gives the seat a core, for which others may have to take other ones. */
static bool give(struct matching *matching, int seat)
{
    for (int core = 0; core < CPU_SETSIZE; core++) {
        if (!CPU_ISSET(core, &shm_seat_at(matching->shm, seat)->cores) || matching->tried[core]) continue;
        matching->tried[core] = true;
        if (matching->owner[core] >= 0 && !give(matching, matching->owner[core])) continue;
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
        if (!present[seat] || give_free(&matching, seat)) continue;
        for (int core = 0; core < CPU_SETSIZE; core++) matching.tried[core] = false;
        if (!give(&matching, seat)) return false;
    }
    return true;
}
