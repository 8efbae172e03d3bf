/* Ranks are stopped and continued, and at last one is killed, at random moments, over shared memory and the network in
 * turns.  No rank hangs or computes a wrong value, and every survivor names the killed rank.
 *
 * FAULTS_SECONDS is the duration (tests/soak/faults.sh: 300), and FAULTS_SEED chooses other moments. */
#include "procs.h"
#include "text.h"

enum {
    RANKS = 4,
    KINDS = 6,
    SMALL = 100,
    LARGE = 200000,
    SECONDS = 10,
    STOPS = 4,
    STOP_MS = 300,
    SOON_S = PROCS_SOON_S
};

/* Exit codes of a rank. */
enum verdict { GOOD, NO_START = 10, WRONG_VALUE, WRONG_STATUS, WRONG_NAME, WRONG_END };

struct turn {
    uint64_t seed;
    bool wire;
    int victim;
};

/* ---- the ranks ------------------------------------------------------------------------------------------------- */

static bool is_all(const int64_t *data, int64_t n, int64_t value)
{
    for (int64_t i = 0; i < n; i++)
        if (data[i] != value) return false;
    return true;
}

static void set_all(int64_t *data, int64_t n, int64_t value)
{
    for (int64_t i = 0; i < n; i++) data[i] = value;
}

/* Runs one operation of the kind.  Sets *right if its result is right. */
static int call(int kind, int rank, int size, int64_t *in, int64_t *out, int64_t n, bool *right)
{
    int next = (rank + 1) % size, before = (rank + size - 1) % size, status;
    tutti_work *sent = NULL;
    set_all(in, n * size, rank + 1);
    set_all(out, n * size, -1);
    switch (kind) {
    case 0:
        status = tutti_all_reduce(tutti_view(in, n), TUTTI_SUM, NULL);
        *right = is_all(in, n, size * (size + 1) / 2);
        return status;
    case 1:
        status = tutti_all_gather_into_tensor(tutti_view(out, n * size), tutti_view(in, n), NULL);
        for (int i = 0; i < size; i++) *right &= is_all(out + i * n, n, i + 1);
        return status;
    case 2:
        status = tutti_all_to_all_single(tutti_view(out, n * size), tutti_view(in, n * size), NULL, NULL, NULL);
        for (int i = 0; i < size; i++) *right &= is_all(out + i * n, n, i + 1);
        return status;
    case 3:
        status = tutti_broadcast(tutti_view(in, n), 1, NULL);
        *right = is_all(in, n, 2);
        return status;
    case 4:
        return tutti_barrier(NULL);
    default:
        status = tutti_isend(tutti_view(in, n), next, NULL, &sent);
        if (status == TUTTI_OK) status = tutti_recv(tutti_view(out, n), before, NULL);
        *right = is_all(out, n, before + 1);
        int other = sent != NULL ? tutti_wait(&sent, TUTTI_DEFAULT_TIMEOUT) : TUTTI_OK;
        return status != TUTTI_OK ? status : other;
    }
}

static int judge(int victim, int rank, int status)
{
    char guilty[32];
    const char *text = tutti_last_error();
    snprintf(guilty, sizeof guilty, "rank %d is lost: ", victim);
    bool lost = status == TUTTI_ERR_PEER_LOST || status == TUTTI_ERR_ABORTED; /* between two calls of an exchange */
    bool named = strstr(text, guilty) != NULL && text_count(text, " is lost: ") == 1;
    int verdict = !lost ? WRONG_STATUS : !named ? WRONG_NAME : GOOD;
    if (verdict != GOOD)
        fprintf(stderr, "rank %d: %s, but rank %d was killed: %s\n", rank, tutti_status_string(status), victim, text);
    return verdict;
}

static int rank_of_soak(int rank, int size, void *argument)
{
    const struct turn *turn = argument;
    int64_t *in = calloc((size_t)LARGE * RANKS, sizeof *in), *out = calloc((size_t)LARGE * RANKS, sizeof *out);
    uint64_t chance = turn->seed; /* the same on all ranks */
    int status = TUTTI_OK;
    if (in == NULL || out == NULL || proc_init(30000) != TUTTI_OK) return NO_START;
    proc_set_step(1);
    while (status == TUTTI_OK) {
        bool right = true;
        int kind = (int)procs_random(&chance, KINDS);
        int64_t n = procs_random(&chance, 8) == 0 ? LARGE : SMALL;
        status = call(kind, rank, size, in, out, n, &right);
        if (status == TUTTI_OK && !right) {
            fprintf(stderr, "rank %d: success, but the result of kind %d, %" PRIi64 " elements, is wrong\n", rank, kind,
                    n);
            return WRONG_VALUE;
        }
    }
    proc_set_step(2);
    int verdict = judge(turn->victim, rank, status);
    free(in);
    free(out);
    return tutti_destroy_process_group(NULL) == TUTTI_OK ? verdict : WRONG_END;
}

/* ---- the parent ------------------------------------------------------------------------------------------------ */

static void stop_some(struct procs *procs, uint64_t *chance)
{
    for (int i = (int)procs_random(chance, STOPS); i > 0; i--) {
        int rank = (int)procs_random(chance, RANKS);
        usleep((useconds_t)procs_random(chance, 100000));
        procs_signal(procs, rank, SIGSTOP);
        procs_sleep_ms((int)procs_random(chance, STOP_MS));
        procs_signal(procs, rank, SIGCONT);
    }
}

/* Stops another rank now and then while the victim dies. */
static void act(struct procs *procs, void *argument)
{
    const struct turn *turn = argument;
    uint64_t chance = turn->seed ^ 0x5eed;
    if (!procs_wait_for_step(procs, 1)) return;
    stop_some(procs, &chance);
    int other = (int)procs_random(&chance, 3 * RANKS);
    usleep((useconds_t)procs_random(&chance, 20000));
    bool stops = other < RANKS && other != turn->victim;
    if (stops) procs_signal(procs, other, SIGSTOP);
    if (procs_random(&chance, 4) == 0) procs_signal(procs, turn->victim, SIGSTOP); /* the victim dies while stopped */
    procs_signal(procs, turn->victim, SIGKILL);
    if (stops) procs_sleep_ms((int)procs_random(&chance, 2 * STOP_MS));
    if (stops) procs_signal(procs, other, SIGCONT);
    int64_t killed_ns = monotonic_ns();
    procs_wait(procs);
    procs_check_notified(procs, turn->victim, killed_ns, SOON_S);
}

struct counts {
    int turns, hangs, values, names, others;
};

static void count(struct counts *counts, const struct procs *procs, const struct turn *turn)
{
    counts->turns++;
    for (int i = 0; i < RANKS; i++) {
        int code = procs->code[i];
        if (i == turn->victim && code == -SIGKILL) continue;
        counts->hangs += code == PROCS_HUNG;
        counts->values += code == WRONG_VALUE;
        counts->names += code == WRONG_NAME || code == WRONG_STATUS;
        counts->others += code != GOOD && code != PROCS_HUNG && (code < WRONG_VALUE || code > WRONG_NAME);
        if (code != GOOD)
            fprintf(stderr, "rank %d: code %d; rank %d was killed, %s, seed %" PRIu64 "\n", i, code, turn->victim,
                    turn->wire ? "network" : "shared memory", turn->seed);
    }
}

static void run_turn(struct counts *counts, struct turn *turn)
{
    struct procs procs = {.size = RANKS, .fn = rank_of_soak, .argument = turn, .act = act, .may_fail = true};
    if (turn->wire)
        setenv("TUTTI_SHM", "0", 1);
    else
        unsetenv("TUTTI_SHM");
    procs_run(&procs);
    count(counts, &procs, turn);
}

static void test_stopped_and_killed(void **state)
{
    (void)state;
    const char *seconds = getenv("FAULTS_SECONDS"), *seed = getenv("FAULTS_SEED"), *only = getenv("FAULTS_WIRE");
    uint64_t chance = seed != NULL ? strtoull(seed, NULL, 10) : 1;
    double limit = seconds != NULL ? atof(seconds) : SECONDS;
    struct counts counts = {0};
    for (int64_t begin = monotonic_ns(); procs_seconds(begin) < limit;) {
        struct turn turn = {.seed = procs_random(&chance, UINT32_MAX), .wire = counts.turns % 2 == 0};
        if (only != NULL) turn.wire = atoi(only) != 0;
        turn.victim = (int)procs_random(&chance, RANKS);
        run_turn(&counts, &turn);
    }
    fprintf(stderr, "%d kills: %d hangs, %d wrong values, %d wrong names, %d other failures\n", counts.turns,
            counts.hangs, counts.values, counts.names, counts.others);
    assert_int_equal(counts.hangs + counts.values + counts.names + counts.others, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_stopped_and_killed)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
