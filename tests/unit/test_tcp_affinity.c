/* Ranks that share cores return to their own core, and ranks that could each have one do not stay on one core. */
#include "unit/given_cores.h"
#include "unit/shm_ends.h"

#include "../../backends/tcp/shm/affinity.c"

static int first, second;

static void go_to(int core)
{
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(core, &one);
    assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
    assert_int_equal(sched_setaffinity(0, sizeof given_cores, &given_cores), 0);
}

static int two_cores(void **state)
{
    if (given_cores_save(state) != 0) return -1;
    first = given_cores_nth(&given_cores, 0);
    second = given_cores_nth(&given_cores, 1);
    if (second < 0) return 0;
    CPU_ZERO(&given_cores);
    CPU_SET(first, &given_cores);
    CPU_SET(second, &given_cores);
    return sched_setaffinity(0, sizeof given_cores, &given_cores);
}

/* True if this rank, of three, moves from the core to its own one.  The kernel may move it as well, so the test tries
 * again. */
static bool returns(int local_rank, int core, void (*change)(struct end *end))
{
    struct end end[ENDS];
    cpu_set_t found;
    bool moved = false;
    ends_open(end, ENDS);
    for (int tries = 0; !moved && tries < 20; tries++) {
        end[local_rank].shm.preferred_core = -1;
        end[local_rank].shm.migrate_ns = 0;
        if (change != NULL) change(&end[local_rank]);
        int64_t before = end[local_rank].shm.migrate_ns;
        go_to(core);
        shm_affinity_restore(&end[local_rank].shm);
        moved = end[local_rank].shm.migrate_ns != before;
    }
    if (moved) assert_int_not_equal(end[local_rank].shm.preferred_core, core);
    if (moved) assert_true(CPU_ISSET(end[local_rank].shm.preferred_core, &given_cores));
    if (moved) assert_true(end[local_rank].shm.migrate_gap_ns > 0);
    assert_int_equal(sched_getaffinity(0, sizeof found, &found), 0);
    assert_true(CPU_EQUAL(&found, &given_cores));
    ends_close(end, ENDS);
    return moved;
}

static void test_returns_to_its_core(void **state)
{
    (void)state;
    given_cores_need_two();
    for (int local_rank = 0; local_rank < ENDS; local_rank++) { /* two on the first core, one on the second */
        int own_core = local_rank < 2 ? first : second;
        struct end end[ENDS];
        assert_true(returns(local_rank, own_core == first ? second : first, NULL));
        ends_open(end, ENDS);
        end[local_rank].shm.preferred_core = -1;
        go_to(own_core);
        shm_affinity_restore(&end[local_rank].shm);
        assert_int_equal(end[local_rank].shm.preferred_core, own_core);
        ends_close(end, ENDS);
    }
}

static void sleep_one(struct end *end)
{
    shm_rank_at(&end->shm, 0)->asleep = 1;
}

static void lose_a_sleeper(struct end *end)
{
    shm_rank_at(&end->shm, 0)->asleep = 1;
    end->shm.peer[0].lost = true;
}

/* Puts a second rank that is awake on rank 2's core, the first one, and nobody on its own. */
static void crowd(struct end *end)
{
    sleep_one(end);
    atomic_store(&shm_rank_at(&end->shm, 1)->core, (uint32_t)first + 1);
}

/* The same, but the second rank is on rank 2's own core. */
static void crowd_home(struct end *end)
{
    crowd(end);
    atomic_store(&shm_rank_at(&end->shm, 1)->core, (uint32_t)second + 1);
}

static void hold_back(struct end *end)
{
    end->shm.migrate_ns = INT64_MAX;
}

/* Rank 2's own core is the second one. */
static void need_on_first(struct end *end)
{
    end->shm.moved = true;
    end->shm.balanced_core = first;
}

/* A core that has left the mask. */
static void need_on_none(struct end *end)
{
    end->shm.moved = true;
    for (end->shm.balanced_core = 0; CPU_ISSET(end->shm.balanced_core, &given_cores); end->shm.balanced_core++)
        continue;
}

static void test_stays_for_the_balance(void **state)
{
    (void)state;
    given_cores_need_two();
    assert_true(returns(2, second, need_on_first));
    assert_false(returns(2, first, need_on_first));
    assert_true(returns(2, first, need_on_none));
}

static void test_stays(void **state)
{
    (void)state;
    given_cores_need_two();
    assert_false(returns(2, first, sleep_one)); /* rank 0's core may be free */
    assert_true(returns(2, first, crowd));      /* unless more ranks that are awake run here than there */
    assert_false(returns(2, first, crowd_home));
    assert_false(returns(2, first, hold_back));
    assert_true(returns(2, first, lose_a_sleeper)); /* a dead rank does not sleep */
}

/* True if rank 1, whose own core is the second one, leaves the first one when `change` has been applied. */
static bool leaves(void (*change)(struct end *end))
{
    struct end end[ENDS];
    bool moved = false;
    ends_open(end, ENDS);
    struct shm *shm = &end[1].shm;
    shm->n = 2; /* as many ranks as cores */
    for (int tries = 0; !moved && tries < 20; tries++) {
        shm->preferred_core = -1;
        shm->migrate_ns = 0;
        atomic_store(&shm_rank_at(shm, 0)->core, (uint32_t)first + 1);
        if (change != NULL) change(&end[1]);
        int64_t before = shm->migrate_ns;
        go_to(first);
        shm_affinity_spread(shm);
        moved = shm->migrate_ns != before;
    }
    shm->n = ENDS;
    ends_close(end, ENDS);
    return moved;
}

static void move_away(struct end *end)
{
    atomic_store(&shm_rank_at(&end->shm, 0)->core, (uint32_t)second + 1);
}

static void know_nothing(struct end *end)
{
    atomic_store(&shm_rank_at(&end->shm, 0)->core, 0);
}

static void test_spreads(void **state)
{
    (void)state;
    given_cores_need_two();
    assert_true(leaves(NULL));
    assert_false(leaves(move_away));
    assert_false(leaves(know_nothing));
    assert_false(leaves(sleep_one)); /* it takes no time from this one */
    assert_false(leaves(hold_back));
}

static void test_waits_ever_longer(void **state)
{
    struct shm shm = {.config.host = &ends_host};
    int64_t gap = GAP_NS;
    (void)state;
    for (int64_t now = INT64_C(10) * GAP_MAX_NS; gap < GAP_MAX_NS; gap *= 2) {
        back_off(&shm, now, GAP_MAX_NS);
        assert_int_equal(shm.migrate_gap_ns, gap);
        assert_int_equal(shm.migrate_ns, now + gap);
        now = shm.migrate_ns;
    }
    back_off(&shm, shm.migrate_ns, GAP_MAX_NS);
    back_off(&shm, shm.migrate_ns, GAP_MAX_NS);
    assert_int_equal(shm.migrate_gap_ns, GAP_MAX_NS);
    back_off(&shm, shm.migrate_ns + GAP_MAX_NS + 1, GAP_MAX_NS); /* the rank had stayed for longer than the gap */
    assert_int_equal(shm.migrate_gap_ns, GAP_NS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_returns_to_its_core),
        cmocka_unit_test(test_stays_for_the_balance),
        cmocka_unit_test(test_stays),
        cmocka_unit_test(test_spreads),
        cmocka_unit_test(test_waits_ever_longer),
    };
    return cmocka_run_group_tests(tests, two_cores, NULL);
}
