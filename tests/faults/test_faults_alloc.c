/* Faults around memory of tutti_alloc.  A rank is killed while others read its memory.  Memory is still allocated when
 * its group ends.  Nothing of it is left afterwards. */
#include "procs.h"

#include <fcntl.h>

enum { BIG = 1 << 20, SIZE = 3, KILLS = 12 };

static int64_t count_lines(const char *path, const char *word)
{
    char line[512];
    int64_t n = 0;
    FILE *file = fopen(path, "re");
    while (file != NULL && fgets(line, sizeof line, file) != NULL) n += strstr(line, word) != NULL;
    if (file != NULL) fclose(file);
    return n;
}

static int64_t mappings(void)
{
    return count_lines("/proc/self/maps", "memfd:tutti");
}

static int descriptors(void)
{
    int n = 0;
    for (int fd = 0; fd < 1024; fd++) n += fcntl(fd, F_GETFD) >= 0;
    return n;
}

static int sum_in_place(float *data, int64_t n)
{
    for (int64_t i = 0; i < n; i++) data[i] = (float)(proc_rank + 1);
    int status = tutti_all_reduce(tutti_view(data, n), TUTTI_SUM, NULL);
    for (int64_t i = 0; i < n && status == TUTTI_OK; i++)
        if (data[i] != SIZE * (SIZE + 1) / 2) return 1;
    return status;
}

/* ---- the end ----------------------------------------------------------------------------------------------- */

static int rank_that_ends(int rank, int size, void *argument)
{
    void *memory = NULL;
    (void)rank;
    (void)size;
    if (argument != NULL) setenv("TUTTI_SHM_CMA", argument, 1);
    int before = descriptors();
    EXPECT(mappings() == 0);
    for (int round = 0; round < 3; round++) {
        EXPECT(proc_init(20000) == TUTTI_OK);
        EXPECT(tutti_alloc(NULL, BIG * sizeof(float), &memory) == TUTTI_OK);
        EXPECT(sum_in_place(memory, BIG) == TUTTI_OK);
        EXPECT(mappings() > SIZE); /* the segment, this rank's arena, and the arenas of others */
        EXPECT(tutti_free(NULL, memory) == TUTTI_OK);
        EXPECT(tutti_destroy_process_group(NULL) == TUTTI_OK);
        EXPECT(mappings() == 0);
        EXPECT(descriptors() == before);
    }
    return 0;
}

static void test_nothing_is_left(void **state)
{
    (void)state;
    procs_run_ranks(SIZE, rank_that_ends, NULL);
    procs_run_ranks(SIZE, rank_that_ends, "0");
}

/* Memory that is still allocated stays the program's, and can be freed with any group or none. */
static int rank_that_keeps(int rank, int size, void *argument)
{
    void *kept = NULL, *freed = NULL, *ordinary = NULL;
    (void)size;
    (void)argument;
    EXPECT(proc_init(20000) == TUTTI_OK);
    EXPECT(tutti_alloc(NULL, BIG * sizeof(float), &kept) == TUTTI_OK);
    EXPECT(tutti_alloc(NULL, 100, &freed) == TUTTI_OK);
    EXPECT(sum_in_place(kept, BIG) == TUTTI_OK);
    EXPECT(tutti_free(NULL, freed) == TUTTI_OK);
    proc_barrier(SIZE, 1);
    EXPECT(tutti_destroy_process_group(NULL) == TUTTI_OK);
    EXPECT(mappings() == 1);
    float *data = kept;
    for (int i = 0; i < BIG; i++) EXPECT(data[i] == SIZE * (SIZE + 1) / 2);
    data[rank] = -1;
    EXPECT(data[rank] == -1);
    if (rank == 0) EXPECT(tutti_free(NULL, kept) == TUTTI_OK && mappings() == 0);

    EXPECT(proc_init(20000) == TUTTI_OK); /* frees memory of another group tree */
    EXPECT(tutti_alloc(NULL, 100, &ordinary) == TUTTI_OK && (rank == 0 || ordinary != kept));
    if (rank == 1) EXPECT(tutti_free(NULL, kept) == TUTTI_OK);
    EXPECT(tutti_free(NULL, ordinary) == TUTTI_OK);
    EXPECT(tutti_destroy_process_group(NULL) == TUTTI_OK);
    EXPECT(mappings() == (rank == 2));
    if (rank == 2) EXPECT(tutti_free(NULL, kept) == TUTTI_OK && mappings() == 0);
    return 0;
}

static void test_kept_beyond_the_end(void **state)
{
    (void)state;
    procs_run_ranks(SIZE, rank_that_keeps, NULL);
}

/* ---- a rank is killed -------------------------------------------------------------------------------------- */

struct kill {
    int victim, delay_us;
};

static int rank_in_sums(int rank, int size, void *argument)
{
    const struct kill *kill = argument;
    void *memory = NULL;
    char guilty[16];
    (void)rank;
    (void)size;
    snprintf(guilty, sizeof guilty, "rank %d", kill->victim);
    EXPECT(proc_init(30000) == TUTTI_OK);
    EXPECT(tutti_alloc(NULL, BIG * sizeof(float), &memory) == TUTTI_OK);
    int status = sum_in_place(memory, BIG);
    EXPECT(status == TUTTI_OK);
    proc_set_step(1);
    while (status == TUTTI_OK) status = sum_in_place(memory, BIG);
    if (status != TUTTI_ERR_ABORTED) EXPECT_ERROR(status, TUTTI_ERR_PEER_LOST, "all_reduce ", guilty);
    EXPECT_ERROR(status, status, guilty);
    EXPECT(tutti_free(NULL, memory) == TUTTI_OK); /* a failed group frees memory */
    EXPECT(tutti_destroy_process_group(NULL) == TUTTI_OK);
    EXPECT(mappings() == 0);
    return 0;
}

static void kill_one(struct procs *procs, void *argument)
{
    const struct kill *kill = argument;
    if (!procs_wait_for_step(procs, 1)) return;
    usleep((useconds_t)kill->delay_us);
    procs_signal(procs, kill->victim, SIGKILL);
}

static void test_killed_while_others_read(void **state)
{
    (void)state;
    for (int i = 0; i < KILLS; i++) {
        struct kill kill = {.victim = i % SIZE, .delay_us = i * 1237 % 9000};
        procs_run_with(SIZE, rank_in_sums, kill_one, &kill);
    }
}

/* ---- out of memory ------------------------------------------------------------------------------------ */

static int rank_that_wants_all(int rank, int size, void *argument)
{
    void *memory = NULL, *some = NULL;
    int64_t pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
    char number[32];
    (void)size;
    (void)argument;
    EXPECT(proc_init(20000) == TUTTI_OK);
    snprintf(number, sizeof number, "%" PRId64 " bytes", 2 * pages * page);
    EXPECT_ERROR(tutti_alloc(NULL, 2 * pages * page, &memory), TUTTI_ERR_NO_MEMORY, "alloc", number);
    EXPECT_ERROR(tutti_alloc(NULL, pages * page, &memory), TUTTI_ERR_NO_MEMORY, "alloc", "available");
    EXPECT(memory == NULL);
    if (rank == 0) EXPECT(tutti_alloc(NULL, BIG * sizeof(float), &some) == TUTTI_OK); /* on one rank only */
    float *data = rank == 0 ? some : malloc(BIG * sizeof(float));
    EXPECT(sum_in_place(data, BIG) == TUTTI_OK);
    EXPECT(tutti_free(NULL, data) == TUTTI_OK);
    EXPECT(tutti_destroy_process_group(NULL) == TUTTI_OK);
    return 0;
}

static void test_more_than_there_is(void **state)
{
    (void)state;
    procs_run_ranks(SIZE, rank_that_wants_all, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nothing_is_left),
        cmocka_unit_test(test_kept_beyond_the_end),
        cmocka_unit_test(test_killed_while_others_read),
        cmocka_unit_test(test_more_than_there_is),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
