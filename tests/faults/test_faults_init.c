/* One rank of a job under tutti-run is killed at a random moment between the first instruction of main and the return
 * of init, or a little later.  Every other rank gets an error that names it, within a second.
 *
 * INIT_KILLS is the number of kills on each transport (tests/soak/init.sh: 500), and INIT_SEED chooses other moments.
 */
#include <fcntl.h>
#include <inttypes.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <tutti/tutti.h>
#include <unistd.h>

#include <cmocka.h>

#include "monotonic.h"

enum { RANKS = 4, KILLS = 12, DELAY_MOST_US = 120000, LIMIT_S = 60 };
#define SOON_S 15.0 /* for a busy machine; the output says how many took more than 1 s */

struct seen {
    int status;
    bool named, ended;
    int64_t at_ns;
    char text[300];
};

/* A file that the test and the ranks map. */
struct sheet {
    int victim, delay_us;
    _Atomic int64_t killed_ns;
    struct seen seen[RANKS];
};

static struct sheet *open_sheet(const char *path, int flags)
{
    int fd = open(path, flags | O_RDWR | O_CLOEXEC, 0600);
    if (fd < 0 || ftruncate(fd, sizeof(struct sheet)) != 0) return NULL;
    struct sheet *sheet = mmap(NULL, sizeof *sheet, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    return sheet == MAP_FAILED ? NULL : sheet;
}

/* ---- a rank ------------------------------------------------------------------------------------------------- */

static void arrange_end(struct sheet *sheet)
{
    pid_t rank = getpid();
    if (fork() != 0) return;
    usleep((useconds_t)sheet->delay_us);
    sheet->killed_ns = monotonic_ns();
    if (getppid() == rank) kill(rank, SIGKILL);
    _exit(0);
}

static int be_rank(const char *path)
{
    struct sheet *sheet = open_sheet(path, 0);
    int rank = atoi(getenv("RANK"));
    char name[16];
    if (sheet == NULL) return 1;
    if (rank == sheet->victim) arrange_end(sheet);
    struct seen *seen = &sheet->seen[rank];
    float one = 1;
    int status = tutti_init_process_group("tcp", &(tutti_init_opts){.timeout_ms = 20000, .store_timeout_ms = 20000});
    while (status == TUTTI_OK) status = tutti_all_reduce(tutti_view(&one, 1), TUTTI_MAX, NULL);
    snprintf(name, sizeof name, "rank %d", sheet->victim);
    snprintf(seen->text, sizeof seen->text, "%s", tutti_last_error());
    seen->at_ns = monotonic_ns();
    seen->status = status;
    seen->named = strstr(seen->text, name) != NULL;
    seen->ended = true;
    if (tutti_is_initialized()) tutti_destroy_process_group(NULL);
    return 0;
}

/* ---- the test ------------------------------------------------------------------------------------------------ */

static uint64_t draw(uint64_t *state, uint64_t below)
{
    *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (*state >> 33) % below;
}

static void run_job(const char *path)
{
    char self[4096] = "", ranks[8];
    assert_true(readlink("/proc/self/exe", self, sizeof self - 1) > 0);
    snprintf(ranks, sizeof ranks, "%d", RANKS);
    pid_t pid = fork();
    if (pid == 0) {
        int null = open("/dev/null", O_WRONLY);
        dup2(null, STDERR_FILENO);
        signal(SIGTERM, SIG_IGN); /* ranks inherit it: the launcher ends the others with this signal */
        /* longer than SOON_S: the launcher does not kill a rank that is still in time */
        execl(TUTTI_RUN_PATH, TUTTI_RUN_PATH, "--grace", "25", "-n", ranks, self, "rank", path, (char *)NULL);
        _exit(127);
    }
    int64_t limit = monotonic_ns() + (int64_t)LIMIT_S * 1000000000;
    while (waitpid(pid, NULL, WNOHANG) == 0) {
        if (monotonic_ns() > limit) {
            kill(pid, SIGKILL); /* its ranks are killed with it */
            waitpid(pid, NULL, 0);
            break;
        }
        usleep(2000);
    }
}

/* Returns how many ranks were late or blamed another rank. */
static int check_sheet(const struct sheet *sheet, int time, double *latest, int *late)
{
    int wrong = 0;
    for (int i = 0; i < RANKS; i++) {
        const struct seen *seen = &sheet->seen[i];
        double took = (double)(seen->at_ns - sheet->killed_ns) / 1e9;
        if (i == sheet->victim) continue;
        bool lost = seen->status == TUTTI_ERR_PEER_LOST || seen->status == TUTTI_ERR_ABORTED;
        bool bad = !seen->ended || !lost || !seen->named || took > SOON_S;
        if (seen->ended && took > *latest) *latest = took;
        *late += !seen->ended || took > 1;
        wrong += bad;
        if (bad || took > 1)
            fprintf(stderr, "time %d: rank %d killed after %d us, rank %d: status %d after %.2f s: %s\n", time,
                    sheet->victim, sheet->delay_us, i, seen->status, took, seen->ended ? seen->text : "it hangs");
    }
    return wrong;
}

static void kill_often(const char *transport)
{
    char path[] = "/tmp/tutti-init-XXXXXX";
    int times = getenv("INIT_KILLS") != NULL ? atoi(getenv("INIT_KILLS")) : KILLS, wrong = 0, late = 0;
    uint64_t chance = getenv("INIT_SEED") != NULL ? strtoull(getenv("INIT_SEED"), NULL, 10) : 1;
    double latest = 0;
    close(mkstemp(path));
    struct sheet *sheet = open_sheet(path, 0);
    assert_non_null(sheet);
    for (int i = 0; i < times; i++) {
        memset(sheet, 0, sizeof *sheet);
        sheet->victim = (int)draw(&chance, RANKS);
        sheet->delay_us = (int)draw(&chance, DELAY_MOST_US);
        run_job(path);
        wrong += check_sheet(sheet, i, &latest, &late);
    }
    fprintf(stderr, "%s: %d kills, %d wrong, %d later than 1 s, the latest after %.2f s\n", transport, times, wrong,
            late, latest);
    munmap(sheet, sizeof *sheet);
    unlink(path);
    assert_int_equal(wrong, 0);
}

static void test_killed_in_init_over_shared_memory(void **state)
{
    (void)state;
    unsetenv("TUTTI_SHM");
    kill_often("shared memory");
}

static void test_killed_in_init_over_the_wire(void **state)
{
    (void)state;
    setenv("TUTTI_SHM", "0", 1);
    kill_often("wire");
    unsetenv("TUTTI_SHM");
}

int main(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[1], "rank") == 0) return be_rank(argv[2]);
    setenv("TUTTI_BACKEND_PATH", TUTTI_BACKENDS_DIR, 1);
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_killed_in_init_over_shared_memory),
                                       cmocka_unit_test(test_killed_in_init_over_the_wire)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
