#include "rendezvous_ranks.h"

enum { PATIENT_MS = 20000 };

struct result *rendezvous_results;

static const char *const cleared[] = {"MASTER_ADDR",
                                      "MASTER_PORT",
                                      "RANK",
                                      "WORLD_SIZE",
                                      "LOCAL_RANK",
                                      "LOCAL_WORLD_SIZE",
                                      "TUTTI_TOKEN",
                                      "TUTTI_TOKEN_FD",
                                      "TUTTI_TOKEN_FILE",
                                      "TUTTI_STORE_HOSTED",
                                      "TORCHELASTIC_USE_AGENT_STORE",
                                      "PMI_RANK",
                                      "PMI_SIZE",
                                      "PMI_FD",
                                      "PMIX_RANK",
                                      "OMPI_COMM_WORLD_RANK",
                                      "OMPI_COMM_WORLD_SIZE",
                                      "OMPI_COMM_WORLD_LOCAL_RANK",
                                      "OMPI_COMM_WORLD_LOCAL_SIZE",
                                      "SLURM_PROCID",
                                      "SLURM_NTASKS",
                                      "SLURM_STEP_NUM_TASKS",
                                      "SLURM_LOCALID",
                                      "SLURM_NODEID",
                                      "SLURM_STEP_TASKS_PER_NODE",
                                      "GROUP_RANK",
                                      "NODE_RANK",
                                      "TORCHELASTIC_RUN_ID"};

int rendezvous_ranks_setup(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cleared / sizeof *cleared; i++) unsetenv(cleared[i]);
    rendezvous_results =
        mmap(NULL, RESULTS_MAX * sizeof *rendezvous_results, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return rendezvous_results == MAP_FAILED;
}

void rendezvous_ranks_setenv(const char *text)
{
    char copy[1024], *rest = NULL;
    snprintf(copy, sizeof copy, "%s", text);
    for (char *word = strtok_r(copy, " ", &rest); word != NULL; word = strtok_r(NULL, " ", &rest)) {
        char *equals = strchr(word, '=');
        *equals = '\0';
        setenv(word, equals + 1, 1);
    }
}

/* Exchanges a key with the next rank through the store. */
static bool exchange(const struct rendezvous *met)
{
    char key[32], value[8];
    size_t bytes;
    snprintf(key, sizeof key, "hello/%d", met->rank);
    if (tutti_store_set(met->store, key, key, 6) != TUTTI_OK) return false;
    snprintf(key, sizeof key, "hello/%d", (met->rank + 1) % met->world_size);
    if (tutti_store_get(met->store, key, value, sizeof value, &bytes, PATIENT_MS) != TUTTI_OK) return false;
    return tutti_store_barrier(met->store, "end", met->world_size, PATIENT_MS) == TUTTI_OK;
}

void rendezvous_ranks_main(const struct rendezvous_args *args, struct result *result)
{
    struct rendezvous met;
    int64_t begun = clock_now_ns();
    result->status = rendezvous_join(args, &met);
    result->ms = (clock_now_ns() - begun) / 1000000;
    snprintf(result->text, sizeof result->text, "%s", error_text());
    result->rank = met.rank;
    result->world_size = met.world_size;
    result->local_rank = met.local_rank;
    result->local_world_size = met.local_world_size;
    result->node_rank = met.node_rank;
    result->exchanged = result->status == TUTTI_OK && exchange(&met);
    if (result->exchanged && met.rank == 0) tutti_store_linger(met.store, PATIENT_MS); /* the others leave first */
    rendezvous_leave(&met);
}

pid_t rendezvous_ranks_start(int i, const char *environment, const struct rendezvous_args *args)
{
    rendezvous_results[i] = (struct result){.status = 1};
    pid_t child = fork();
    if (child != 0) return child;
    rendezvous_ranks_setenv(environment);
    rendezvous_ranks_main(args, &rendezvous_results[i]);
    _exit(0);
}

void rendezvous_ranks_wait(pid_t child)
{
    int result = -1;
    assert_int_equal(waitpid(child, &result, 0), child);
    assert_int_equal(result, 0);
}

void rendezvous_ranks_run(int n, char environments[][256], const struct rendezvous_args *args)
{
    static const struct rendezvous_args usual = {.rank = -1, .world_size = -1, .timeout_ms = 20000};
    pid_t children[RESULTS_MAX];
    for (int i = 0; i < n; i++) children[i] = rendezvous_ranks_start(i, environments[i], args == NULL ? &usual : args);
    for (int i = 0; i < n; i++) rendezvous_ranks_wait(children[i]);
}

void rendezvous_ranks_expect(int i, int status, const char *part)
{
    if (rendezvous_results[i].status != status || strstr(rendezvous_results[i].text, part) == NULL)
        fail_msg("result %d is %s after %d ms: %s; expected %s: ...%s...", i, error_name(rendezvous_results[i].status),
                 (int)rendezvous_results[i].ms, rendezvous_results[i].text, error_name(status), part);
}

void rendezvous_ranks_expect_joined(int i, int rank, int world_size)
{
    rendezvous_ranks_expect(i, TUTTI_OK, "");
    assert_int_equal(rendezvous_results[i].rank, rank);
    assert_int_equal(rendezvous_results[i].world_size, world_size);
    assert_true(rendezvous_results[i].exchanged);
}
