/* Cases that start and end the default group, by every method.  Only ranks that are processes can do so. */
#include "conformance/starts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "conformance/cases.h"
#include "conformance/options.h"

static const char *const variables[VARIABLES] = {"RANK",
                                                 "WORLD_SIZE",
                                                 "LOCAL_RANK",
                                                 "LOCAL_WORLD_SIZE",
                                                 "MASTER_ADDR",
                                                 "MASTER_PORT",
                                                 "TUTTI_STORE_HOSTED",
                                                 "OMPI_COMM_WORLD_RANK",
                                                 "OMPI_COMM_WORLD_SIZE",
                                                 "OMPI_COMM_WORLD_LOCAL_RANK",
                                                 "OMPI_COMM_WORLD_LOCAL_SIZE",
                                                 "PMI_RANK",
                                                 "PMI_SIZE",
                                                 "PMIX_RANK",
                                                 "SLURM_PROCID",
                                                 "SLURM_NTASKS",
                                                 "SLURM_STEP_NUM_TASKS",
                                                 "SLURM_LOCALID"};

struct environment starts_take_away(int from)
{
    struct environment saved;
    for (int i = 0; i < VARIABLES; i++) {
        saved.value[i] = getenv(variables[i]) != NULL ? strdup(getenv(variables[i])) : NULL;
        if (i >= from) unsetenv(variables[i]);
    }
    return saved;
}

void starts_restore(struct environment *saved)
{
    for (int i = 0; i < VARIABLES; i++) {
        if (saved->value[i] != NULL)
            setenv(variables[i], saved->value[i], 1);
        else
            unsetenv(variables[i]);
        free(saved->value[i]);
    }
}

enum verdict starts_use_and_end(struct rank *rank, int number, int size)
{
    int32_t x = number + 1;
    FAIL_UNLESS(tutti_is_initialized());
    FAIL_UNLESS(tutti_get_rank(NULL) == number && tutti_get_world_size(NULL) == size);
    TRY(tutti_all_reduce(tutti_view(&x, 1), TUTTI_SUM, NULL));
    FAIL_UNLESS(x == size * (size + 1) / 2);
    TRY(tutti_destroy_process_group(NULL));
    FAIL_UNLESS(!tutti_is_initialized() && tutti_get_rank(NULL) == -1 && tutti_get_world_size(NULL) == -1);
    return PASSED;
}

static enum verdict env(struct rank *rank)
{
    const char *backend = rank->options->backend;
    FAIL_UNLESS(!tutti_is_initialized() && tutti_get_rank(NULL) == -1);
    tutti_init_opts both = {.init_method = "env://", .store = rank->store, .rank = 0, .world_size = 1};
    REFUSED(tutti_init_process_group(backend, &both), TUTTI_ERR_INVALID_ARGUMENT);
    tutti_init_opts wrong = {.init_method = "carrier-pigeon://x"};
    REFUSED(tutti_init_process_group(backend, &wrong), TUTTI_ERR_INVALID_ARGUMENT);
    REFUSED(tutti_barrier(NULL), TUTTI_ERR_INVALID_ARGUMENT); /* there is no default group */
    TRY(tutti_init_process_group(backend, NULL));
    REFUSED(tutti_init_process_group(backend, NULL), TUTTI_ERR_INVALID_ARGUMENT);
    return starts_use_and_end(rank, rank->rank, rank->size);
}

/* Starts the default group with the caller's store, rank and world size. */
static enum verdict given_store(struct rank *rank)
{
    tutti_store *store = NULL;
    TRY(tutti_store_prefix(rank->store, "given", &store));
    tutti_init_opts opts = {.store = store, .rank = rank->rank, .world_size = rank->size, .timeout_ms = 20000};
    TRY(tutti_init_process_group(rank->options->backend, &opts));
    enum verdict verdict = starts_use_and_end(rank, rank->rank, rank->size);
    tutti_store_free(store);
    return verdict;
}

static enum verdict bad_variable(struct rank *rank, const char *name, const char *value)
{
    struct environment saved = starts_take_away(STARTS_OWN);
    if (value != NULL)
        setenv(name, value, 1);
    else
        unsetenv(name);
    int status = tutti_init_process_group(rank->options->backend, NULL);
    bool named = strstr(tutti_last_error(), name) != NULL;
    bool quoted = value == NULL || value[0] == '\0' || strstr(tutti_last_error(), value) != NULL;
    starts_restore(&saved);
    if (status == TUTTI_OK) tutti_destroy_process_group(NULL);
    if (status == TUTTI_ERR_INVALID_ARGUMENT && named && quoted) return PASSED;
    return rank_fail(rank, "with %s %s%s: %s: %s", name, value != NULL ? "= " : "not set", value != NULL ? value : "",
                     tutti_status_string(status), tutti_last_error());
}

static enum verdict bad_env(struct rank *rank)
{
    static const struct {
        const char *name, *value;
    } rows[] = {{"MASTER_ADDR", NULL},  {"MASTER_PORT", NULL}, {"RANK", NULL}, {"WORLD_SIZE", NULL},
                {"MASTER_ADDR", ""},    {"WORLD_SIZE", ""},    {"RANK", ""},   {"RANK", "two"},
                {"WORLD_SIZE", "4x"},   {"WORLD_SIZE", "0"},   {"RANK", "-1"}, {"MASTER_PORT", "99999"},
                {"MASTER_PORT", "http"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        enum verdict verdict = bad_variable(rank, rows[i].name, rows[i].value);
        if (verdict != PASSED) return verdict;
    }
    return PASSED;
}

static enum verdict nobody_launched(struct rank *rank)
{
    struct environment saved = starts_take_away(0);
    int status = tutti_init_process_group(rank->options->backend, NULL);
    enum verdict verdict = status == TUTTI_OK ? starts_use_and_end(rank, 0, 1)
                                              : rank_status(rank, __FILE__, __LINE__, "a world of one", status);
    starts_restore(&saved);
    return verdict;
}

/* ---- the backend's text, on a world of one ----------------------------------------------------------------------- */

static int make_one(struct rank *rank, const char *text)
{
    tutti_store *store = NULL;
    tutti_group *group = NULL;
    (void)rank;
    int status = tutti_store_memory(NULL, &store);
    if (status == TUTTI_OK) status = tutti_create_group(text, store, 0, 1, NULL, &group);
    if (status == TUTTI_OK) status = tutti_barrier(tutti_with(.group = group));
    if (group != NULL) tutti_destroy_process_group(group);
    tutti_store_free(store);
    return status;
}

static enum verdict backend_text(struct rank *rank)
{
    const char *name = rank->options->backend;
    static const char *const bad[] = {"cpu:", "cpu:tcp,cpu:tcp", "abacus:tcp", "cpu:tcp|tcp", "cpu:tcp|", "tcp,",
                                      ":tcp"};
    char text[512];
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        int status = make_one(rank, bad[i]);
        if (status != TUTTI_ERR_INVALID_ARGUMENT || strstr(tutti_last_error(), bad[i]) == NULL)
            return rank_fail(rank, "\"%s\" was accepted as a backend, or the error does not name it: %s", bad[i],
                             tutti_last_error());
    }
    FAIL_UNLESS(make_one(rank, "none_of_this_name") == TUTTI_ERR_BACKEND);
    FAIL_UNLESS(strstr(tutti_last_error(), "none_of_this_name") != NULL);
    FAIL_UNLESS(!tutti_is_backend_available("none_of_this_name"));
    TRY(make_one(rank, name));
    if (tutti_is_backend_available("tcp")) { /* NULL and "auto" choose the best available backend, and there is one */
        TRY(make_one(rank, NULL));
        TRY(make_one(rank, "Auto"));
    }
    if (strpbrk(name, ":|,/") != NULL) return PASSED;
    FAIL_UNLESS(tutti_is_backend_available(name));
    snprintf(text, sizeof text, "CPU:%s|%s", name, name);
    for (char *c = text; *c != '\0'; c++)
        if (*c >= 'a' && *c <= 'z') *c = (char)(*c - 'a' + 'A');
    TRY(make_one(rank, text + strlen(text) - strlen(name)));
    snprintf(text, sizeof text, "cpu:%s", name);
    TRY(make_one(rank, text));
    return PASSED;
}

/* Makes the default group again after it has ended. */
static enum verdict again(struct rank *rank)
{
    for (int round = 0; round < 2; round++) {
        TRY(tutti_init_process_group(rank->options->backend, NULL));
        enum verdict verdict = starts_use_and_end(rank, rank->rank, rank->size);
        if (verdict != PASSED) return verdict;
    }
    return PASSED;
}

static enum verdict spawned(struct rank *rank)
{
    FAIL_UNLESS(getenv("RANK") != NULL && atoi(getenv("RANK")) == rank->rank);
    FAIL_UNLESS(getenv("WORLD_SIZE") != NULL && atoi(getenv("WORLD_SIZE")) == rank->size);
    return PASSED;
}

const struct case_row start_rows[] = {
    {"env", env, 1, {L_I_METHOD}, 'p'},
    {"given_store", given_store, 1, {L_I_METHOD}, 'p'},
    {"bad_env", bad_env, 1, {L_I_ENV}, 'p'},
    {"nobody_launched", nobody_launched, 1, {L_I_LAUNCHERS}, 'p'},
    {"backend_text", backend_text, 1, {L_I_BACKEND}, 0},
    {"again", again, 1, {L_I_METHOD}, 'p'},
    {"spawned", spawned, 1, {L_T_SPAWN}, 's'},
};
const int n_start_rows = sizeof start_rows / sizeof *start_rows;
