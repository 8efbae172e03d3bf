/* The public function that tells which ranks of a group are alive. */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "diagnose/health.h"
#include "diagnose/stragglers.h"
#include "group/entries.h"
#include "group/group_check.h"
#include "group/losses.h"
#include "op/control_message.h"
#include "progress/engine.h"
#include "progress/engine_step.h"
#include "state/group_state.h"

static void describe_rank(const struct tutti_group *group, int rank, int64_t now, tutti_rank_health *health)
{
    const struct tutti_group *root = group->root;
    const struct loss *loss = losses_find(root, group->global_ranks[rank]);
    bool lost = root->lost[group->global_ranks[rank]], left = stragglers_has_left(group->stragglers, rank);
    *health = (tutti_rank_health){.state = TUTTI_RANK_ALIVE};
    if (left || (loss != NULL && loss->left))
        health->state = TUTTI_RANK_LEFT;
    else if (lost)
        health->state = TUTTI_RANK_LOST;
    else
        health->silent_ms = stragglers_silent_ms(group->stragglers, rank, now);
    if (health->state != TUTTI_RANK_ALIVE)
        snprintf(health->why, sizeof health->why, "%s",
                 loss != NULL ? loss->why
                 : left       ? "it has destroyed the group"
                              : "its connection has ended");
}

/* Asks a rank of the tree's first group reliably, which connects it to this rank.  Questions to ranks without a
 * connection are dropped. */
static void connect_rank(struct tutti_group *root, int rank)
{
    uint8_t wire[CONTROL_BYTES];
    size_t bytes = control_message_encode(&(struct control_message){.type = CONTROL_ASK}, wire);
    const struct backend_entry *entry = entries_find_control(root);
    if (entry != NULL) entry->backend->tell(entry->state, rank, wire, bytes); /* an error is reported as a loss */
}

/* Asks for a sign of life, and connects the ranks first if the group has not. */
static void probe(struct tutti_group *group, int rank)
{
    if (health_probe(group, rank) && !stragglers_has_answered(group->stragglers, rank))
        connect_rank(group->root, group->global_ranks[rank]);
}

static int check_list(const tutti_rank_health *ranks, size_t rank_bytes, int n, const struct tutti_group *group)
{
    if (rank_bytes == 0 || rank_bytes > 4096 || rank_bytes % 8 != 0)
        return error_set(TUTTI_ERR_INVALID_ARGUMENT,
                         "group_health: the size of an entry is %zu; pass sizeof(tutti_rank_health)", rank_bytes);
    if (group->rank < 0)
        return error_set(TUTTI_ERR_INVALID_ARGUMENT,
                         "group_health: this rank is not in group %s; only members may call this", group->name);
    if (ranks == NULL || n != group->size)
        return error_set(TUTTI_ERR_INVALID_ARGUMENT, "group_health: %d entries were passed, but group %s has %d ranks",
                         ranks == NULL ? 0 : n, group->name, group->size);
    return TUTTI_OK;
}

int tutti_group_health_sized(tutti_group *group, tutti_rank_health *ranks, size_t rank_bytes, int n)
{
    group = group_for_call(group);
    int status = group != NULL ? check_list(ranks, rank_bytes, n, group) : TUTTI_ERR_INVALID_ARGUMENT;
    if (status != TUTTI_OK) return status;
    engine_lock(group->engine);
    status = group_check_open(group);
    if (status == TUTTI_OK) engine_step(group->engine); /* takes in what has arrived */
    int64_t now = clock_now_ns();
    for (int rank = 0; status == TUTTI_OK && rank < n; rank++) {
        tutti_rank_health health;
        describe_rank(group, rank, now, &health);
        char *entry = (char *)ranks + (size_t)rank * rank_bytes;
        memset(entry, 0, rank_bytes);
        memcpy(entry, &health, rank_bytes < sizeof health ? rank_bytes : sizeof health);
        if (health.state == TUTTI_RANK_ALIVE && rank != group->rank) probe(group, rank);
    }
    engine_unlock(group->engine);
    return status;
}
