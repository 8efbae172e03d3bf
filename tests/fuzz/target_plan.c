/* What tutti-run's agents and their leader write into the store for each other. */
#include "fuzz.h"
#include "run/plan.h"
#include "targets.h"

/* A report that was read, written again, reads the same. */
static void check_report(const char *text)
{
    char again[PLAN_REPORT_MAX];
    struct plan_report report, other;
    if (!plan_read_report(text, &report)) return;
    for (const char *at = report.reason; *at; at++) FUZZ_CHECK((unsigned char)*at >= ' ' && *at != 127);
    plan_write_report(&report, again);
    FUZZ_CHECK(plan_read_report(again, &other));
    FUZZ_CHECK(memcmp(&report, &other, sizeof report) == 0);
}

void fuzz_plan(const uint8_t *in, size_t bytes)
{
    char *text = fuzz_text(in, bytes);
    struct plan plan;
    check_report(text);
    if (plan_read(text, 1, &plan) && plan.verb == PLAN_RUN) {
        FUZZ_CHECK(plan.n_nodes > 0 && plan.world_size >= plan.n_nodes && plan.port > 0);
        FUZZ_CHECK(plan.node_rank >= -1 && plan.node_rank < plan.n_nodes);
        FUZZ_CHECK(plan.first_rank >= 0 && plan.first_rank < plan.world_size && plan.first_member >= -1);
    }
    free(text);
}
