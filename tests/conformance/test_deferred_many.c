/* More small messages than are deferred at a time (core/dispatch/message.c), and of more bytes than have credit. */
#include "procs.h"

enum { LIMIT_MS = 30000, MANY = 1000, WORDS = 1024 };

static tutti_tensor words_of(int32_t *words)
{
    return tutti_view(words, WORDS);
}

/* Receives many messages of 4 KiB, `window` at a time. */
static int receive_many(int32_t *words, int window)
{
    tutti_work *works[MANY];
    for (int i = 0; i < MANY; i++) {
        EXPECT(tutti_irecv(words_of(words + i * WORDS), 1, tutti_with(.tag = 4), &works[i]) == TUTTI_OK);
        if ((i + 1) % window > 0) continue;
        proc_set_step(2);
        EXPECT(tutti_wait_all(works + i + 1 - window, window, TUTTI_DEFAULT_TIMEOUT) == TUTTI_OK);
    }
    for (int i = 0; i < MANY; i++) EXPECT(words[i * WORDS] == i && words[i * WORDS + WORDS - 1] == -i);
    return 0;
}

static int send_many(int32_t *words)
{
    tutti_work *works[MANY];
    for (int i = 0; i < MANY; i++) {
        words[i * WORDS] = i;
        words[i * WORDS + WORDS - 1] = -i;
        EXPECT(tutti_isend(words_of(words + i * WORDS), 0, tutti_with(.tag = 4), &works[i]) == TUTTI_OK);
    }
    proc_set_step(2);
    EXPECT(tutti_wait_all(works, MANY, TUTTI_DEFAULT_TIMEOUT) == TUTTI_OK);
    return 0;
}

struct many {
    int first; /* the rank that begins */
    int window;
};

static int rank_of_many(int rank, int size, void *argument)
{
    struct many *many = argument;
    int32_t *words = calloc(MANY, WORDS * sizeof *words);
    EXPECT(words != NULL && proc_init(LIMIT_MS) == TUTTI_OK);
    if (rank == 1) EXPECT(tutti_send(words_of(words), 0, NULL) == TUTTI_OK);
    if (rank == 0) EXPECT(tutti_recv(words_of(words), 1, NULL) == TUTTI_OK);
    proc_barrier(size, 1);
    if (rank != many->first) proc_wait_for_step(many->first, 2);
    EXPECT((rank == 0 ? receive_many(words, many->window) : send_many(words)) == 0);
    proc_barrier(size, 3);
    free(words);
    EXPECT(tutti_destroy_process_group(NULL) == TUTTI_OK);
    return 0;
}

static void test_many(void **state)
{
    (void)state;
    procs_run_ranks(2, rank_of_many, &(struct many){.first = 0, .window = MANY});
    procs_run_ranks(2, rank_of_many, &(struct many){.first = 1, .window = MANY});
    procs_run_ranks(2, rank_of_many, &(struct many){.first = 1, .window = 1});
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_many)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
