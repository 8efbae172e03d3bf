#include "plan.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void plan_write_report(const struct plan_report *report, char text[PLAN_REPORT_MAX])
{
    snprintf(text, PLAN_REPORT_MAX, "%" PRId64 " %d %d %d %d %d %d %d %s %s", report->beat, report->round,
             report->running, report->outcome, report->status, report->nproc, report->node_rank, report->first_member,
             report->host[0] ? report->host : "?", report->reason);
}

/* Copies a text of another process, without control characters, which could disturb a terminal. */
static void copy_text(char *to, const char *from, size_t capacity)
{
    size_t n = 0;
    for (; from[n] && n + 1 < capacity; n++) to[n] = (unsigned char)from[n] < ' ' || from[n] == 127 ? '?' : from[n];
    to[n] = '\0';
}

bool plan_read_report(const char *text, struct plan_report *report)
{
    int running = 0, used = 0;
    char host[PLAN_HOST_MAX];
    *report = (struct plan_report){0};
    int found = sscanf(text, "%18" SCNd64 " %9d %9d %9d %9d %9d %9d %9d %63s %n", &report->beat, &report->round,
                       &running, &report->outcome, &report->status, &report->nproc, &report->node_rank,
                       &report->first_member, host, &used);
    if (found < 9 || used == 0 || report->outcome < 0 || report->outcome >= PLAN_OUTCOMES) return false;
    if (report->round < -1 || report->nproc < 1 || report->nproc > 1 << 20 || report->node_rank < -1 ||
        report->first_member < -1)
        return false;
    report->running = running != 0;
    report->status &= 255;
    copy_text(report->host, host, sizeof report->host);
    copy_text(report->reason, text + used, sizeof report->reason);
    return true;
}

/* Reads one node, "ID:RANKS" or "ID:RANKS+MEMBER".  Returns its length, or 0. */
static int read_node(const char *text, int *id, int *ranks, int *member)
{
    int used = 0, more = 0;
    *member = -1;
    if (sscanf(text, "%9d:%9d%n", id, ranks, &used) < 2 || used == 0 || *ranks < 1) return 0;
    if (text[used] == '+' && (sscanf(text + used, "+%9d%n", member, &more) < 1 || *member < 0)) return 0;
    used += more;
    return text[used] && text[used] != ' ' ? 0 : used + (int)strspn(text + used, " ");
}

/* Reads the nodes of a round.  An id of 0 is a lost node's place. */
static bool read_nodes(const char *text, int id, struct plan *plan)
{
    int64_t world = 0;
    for (int other, ranks, member, used; *text; text += used, plan->n_nodes++) {
        used = read_node(text, &other, &ranks, &member);
        if (used == 0 || plan->n_nodes >= PLAN_NODES_MAX) return false;
        if (other == id) {
            plan->node_rank = plan->n_nodes;
            plan->first_rank = (int)world;
            plan->first_member = member;
        }
        world += ranks;
        if (world > INT_MAX) return false;
    }
    plan->world_size = (int)world;
    return world > 0;
}

bool plan_read(const char *text, int id, struct plan *plan)
{
    char verb[8];
    int used = 0, port;
    *plan = (struct plan){.node_rank = -1, .first_member = -1};
    if (sscanf(text, "%18" SCNd64 " %7s %9d %9d %n", &plan->serial, verb, &plan->round, &plan->status, &used) < 4 ||
        used == 0 || plan->round < 0)
        return false;
    text += used;
    plan->verb = strcmp(verb, "run") == 0 ? PLAN_RUN : strcmp(verb, "stop") == 0 ? PLAN_STOP : PLAN_OVER;
    if (plan->verb != PLAN_RUN) {
        copy_text(plan->reason, text, sizeof plan->reason);
        plan->status &= 255;
        return plan->verb == PLAN_STOP || strcmp(verb, "over") == 0;
    }
    plan->restarts = plan->status;
    plan->status = used = 0;
    if (sscanf(text, "%5d %n", &port, &used) < 1 || used == 0 || port < 1 || port > UINT16_MAX) return false;
    plan->port = (uint16_t)port;
    return read_nodes(text + used, id, plan);
}
