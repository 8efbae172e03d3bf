/* Receives with TUTTI_NOW, again and again: none of them loses a message, and each rank's messages come in order. */
#include "procs.h"

enum { LIMIT_MS = 30000, SIZE = 4, EACH = 12, WORDS_MAX = 1 << 18 };

struct polling {
    int64_t words; /* of a message */
    bool any;      /* the source is not named */
};

static int send_all(int rank, const struct polling *polling, int32_t *words)
{
    tutti_work *works[EACH];
    for (int i = 0; i < EACH; i++) {
        int32_t *message = words + (size_t)i * (size_t)polling->words;
        message[0] = rank;
        message[polling->words - 1] = i;
        EXPECT(tutti_isend(tutti_view(message, polling->words), 0, NULL, &works[i]) == TUTTI_OK);
    }
    EXPECT(tutti_wait_all(works, EACH, TUTTI_DEFAULT_TIMEOUT) == TUTTI_OK);
    return 0;
}

static int receive_all(const struct polling *polling, int32_t *words)
{
    int taken[SIZE] = {0};
    int64_t begin = monotonic_ns();
    for (int received = 0; received < EACH * (SIZE - 1);) {
        int named = 1 + received % (SIZE - 1), source = -1;
        tutti_opts opts = {.timeout_ms = TUTTI_NOW, .source = &source};
        int status = tutti_recv(tutti_view(words, polling->words), polling->any ? TUTTI_ANY_SOURCE : named, &opts);
        EXPECT(status == TUTTI_OK || status == TUTTI_ERR_TIMEOUT);
        EXPECT(procs_seconds(begin) * 1000 < LIMIT_MS);
        if (status != TUTTI_OK) continue;
        EXPECT(source > 0 && source < SIZE && (polling->any || source == named));
        EXPECT(words[0] == source && words[polling->words - 1] == taken[source]);
        taken[source]++;
        received++;
    }
    return 0;
}

static int polling_rank(int rank, int size, void *argument)
{
    const struct polling *polling = argument;
    int32_t *words = calloc(EACH, (size_t)polling->words * sizeof *words);
    EXPECT(words != NULL && proc_init(LIMIT_MS) == TUTTI_OK);
    proc_barrier(size, 1);
    EXPECT((rank == 0 ? receive_all(polling, words) : send_all(rank, polling, words)) == 0);
    proc_barrier(size, 2);
    free(words);
    EXPECT(tutti_destroy_process_group(NULL) == TUTTI_OK);
    return 0;
}

static void test_loses_nothing(void **state)
{
    static const int64_t words[] = {100, 5000, 15000, 25000, WORDS_MAX};
    (void)state;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        for (int any = 0; any < 2; any++)
            procs_run_ranks(SIZE, polling_rank, &(struct polling){.words = words[i], .any = any != 0});
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_loses_nothing)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
