/* One rank is killed in the first operation, before or while the ranks connect over the network.  Every survivor
 * reports PEER_LOST and names that rank.  It never names the store, or another survivor, which leaves because of the
 * failure.
 *
 * FAULTS_KILLS is the number of kills (200 for a soak), and FAULTS_SEED chooses other moments. */
#include "loopback.h"
#include "procs.h"
#include "text.h"

enum { RANKS = 4, KILLS = 24, KINDS = 5, NUMEL = 1000, DELAY_US = 3000, LATE_MS = 400, SOON_S = PROCS_SOON_S };

/* Reaction of a survivor to its error. */
enum leaving { DESTROYS, EXITS, ENDS, LEAVINGS };

struct kill {
    int victim, kind, delay_us; /* delay_us < 0: the rank is dead before the others call */
    int late, late_ms;          /* a survivor that calls later than the others; -1: none */
    enum leaving leaving;
    int store_port; /* rank 0 hosts the store here; 0: the parent does */
};

static int call(int kind, int size, int64_t *in, int64_t *out)
{
    switch (kind) {
    case 0:
        return tutti_all_reduce(tutti_view(in, NUMEL), TUTTI_SUM, NULL);
    case 1:
        return tutti_barrier(NULL);
    case 2:
        return tutti_all_to_all_single(tutti_view(out, NUMEL * size), tutti_view(in, NUMEL * size), NULL, NULL, NULL);
    case 3:
        return tutti_all_gather_into_tensor(tutti_view(out, NUMEL * size), tutti_view(in, NUMEL), NULL);
    default:
        return tutti_broadcast(tutti_view(in, NUMEL), size - 1, NULL);
    }
}

/* True if rank 0, which hosts the store, has not waited for this rank: it waits for a moment, and a busy machine may
 * keep this rank from running for longer. */
static bool store_is_gone(const struct kill *kill)
{
    bool left = kill->store_port != 0 && atomic_load(&proc_shared->step[0]) == 2;
    return left && procs_seconds(atomic_load(&proc_shared->value[0])) > 1;
}

/* True if the error is PEER_LOST and names only the victim. */
static int judge(const struct kill *kill, int status)
{
    char guilty[32];
    int lost =
        store_is_gone(kill) && strstr(tutti_last_error(), "rank 0 is lost: the store") != NULL ? 0 : kill->victim;
    snprintf(guilty, sizeof guilty, "rank %d is lost: ", lost);
    EXPECT_ERROR(status, TUTTI_ERR_PEER_LOST, guilty);
    EXPECT(text_count(tutti_last_error(), " is lost: ") == 1);
    return 0;
}

static int rank_of_cold(int rank, int size, void *argument)
{
    const struct kill *kill = argument;
    int64_t *in = calloc(NUMEL * RANKS, sizeof *in), *out = calloc(NUMEL * RANKS, sizeof *out);
    if (kill->store_port != 0) {
        unsetenv("TUTTI_STORE_HOSTED");
        proc_set_int("MASTER_PORT", kill->store_port);
    }
    EXPECT(proc_init(20000) == TUTTI_OK);
    proc_wait_for_go(1);
    if (rank == kill->victim && kill->delay_us < 0) pause();
    if (rank == kill->late) procs_sleep_ms(kill->late_ms);
    int status = TUTTI_OK;
    for (int64_t begin = monotonic_ns(); status == TUTTI_OK && procs_seconds(begin) < 30;)
        status = call(kill->kind, size, in, out);
    proc_set_step(2);
    int result = judge(kill, status);
    if (kill->leaving == DESTROYS && tutti_destroy_process_group(NULL) != TUTTI_OK) result = __LINE__;
    if (kill->leaving == ENDS) _exit(result & 0xff);
    free(in);
    free(out);
    exit(result & 0xff);
}

/* Kills the victim, and notes the time for the others. */
static void kill_now(struct procs *procs, const struct kill *kill)
{
    atomic_store(&procs->shared->value[0], monotonic_ns());
    procs_signal(procs, kill->victim, SIGKILL);
}

static void kill_cold(struct procs *procs, void *argument)
{
    const struct kill *kill = argument;
    if (!procs_wait_for_step(procs, 1)) return;
    if (kill->delay_us < 0) kill_now(procs, kill);
    if (kill->delay_us < 0) procs_sleep_ms(10);
    procs_release(procs, 1);
    if (kill->delay_us >= 0) usleep((useconds_t)kill->delay_us);
    if (kill->delay_us >= 0) kill_now(procs, kill);
    int64_t killed_ns = monotonic_ns();
    procs_wait(procs);
    procs_check_notified(procs, kill->victim, killed_ns, SOON_S);
}

static struct kill draw_kill(uint64_t *chance)
{
    struct kill kill = {
        .victim = (int)procs_random(chance, RANKS), .kind = (int)procs_random(chance, KINDS), .late = -1};
    kill.delay_us = procs_random(chance, 3) == 0 ? -1 : (int)procs_random(chance, DELAY_US);
    kill.leaving = (enum leaving)procs_random(chance, LEAVINGS);
    if (procs_random(chance, 2) == 0) kill.late = (int)procs_random(chance, RANKS);
    kill.late_ms = (int)procs_random(chance, LATE_MS);
    if (kill.late == kill.victim) kill.late = -1;
    if (procs_random(chance, 3) == 0) kill.store_port = loopback_free_port();
    return kill;
}

/* Returns how many survivors reported something else. */
static int run_kill(const struct kill *kill)
{
    struct procs procs = {.size = RANKS, .fn = rank_of_cold, .argument = (void *)(uintptr_t)kill, .act = kill_cold};
    int wrong = 0;
    procs.may_fail = true;
    procs_run(&procs);
    for (int i = 0; i < RANKS; i++) wrong += i != kill->victim && procs.code[i] != 0;
    if (wrong > 0)
        fprintf(stderr, "%d wrong: victim %d, kind %d, after %d us, rank %d is late by %d ms, leaving %d, store %s\n\n",
                wrong, kill->victim, kill->kind, kill->delay_us, kill->late, kill->late_ms, kill->leaving,
                kill->store_port != 0 ? "on rank 0" : "elsewhere");
    return wrong;
}

static void test_killed_cold(void **state)
{
    (void)state;
    int times = getenv("FAULTS_KILLS") != NULL ? atoi(getenv("FAULTS_KILLS")) : KILLS, wrong = 0, kills = 0;
    uint64_t chance = getenv("FAULTS_SEED") != NULL ? strtoull(getenv("FAULTS_SEED"), NULL, 10) : 1;
    setenv("TUTTI_SHM", "0", 1);
    for (int i = 0; i < times; i++) {
        struct kill kill = draw_kill(&chance);
        int n = run_kill(&kill);
        wrong += n;
        kills += n > 0;
    }
    fprintf(stderr, "%d cold kills, %d blamed wrongly by %d survivors\n", times, kills, wrong);
    assert_int_equal(wrong, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_killed_cold)};
    cmocka_set_test_filter(getenv("FAULTS_ONLY"));
    return cmocka_run_group_tests(tests, NULL, NULL);
}
