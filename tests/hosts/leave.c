#include "leave.h"

#include <stdio.h>
#include <stdlib.h>
#include <tutti/tutti.h>
#include <unistd.h>

static bool is_right(const int32_t *x, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (x[i] != (int32_t)i) return false;
    return true;
}

/* Exchanges small messages for long enough that all connections are made. */
static int connect_all(void)
{
    enum { ROUNDS = 30, PAUSE_US = 10000 };
    int status = TUTTI_OK;
    for (int i = 0; i < ROUNDS && status == TUTTI_OK; i++) {
        int32_t x = 1;
        usleep(PAUSE_US);
        status = tutti_all_reduce(tutti_view(&x, 1), TUTTI_SUM, NULL);
    }
    return status;
}

int leave_main(char **argument)
{
    size_t n = (size_t)atol(argument[0]) / sizeof(int32_t);
    int32_t *x = calloc(n, sizeof *x);
    tutti_init_opts opts = {.timeout_ms = 20000};
    setvbuf(stdout, NULL, _IOLBF, 0);
    setenv("TUTTI_BACKEND_PATH", TUTTI_BACKENDS_DIR, 0);
    if (x == NULL) abort();
    int status = tutti_init_process_group("tcp", &opts);
    if (status == TUTTI_OK) status = connect_all();
    if (status == TUTTI_OK && tutti_get_rank(NULL) == 0) {
        for (size_t i = 0; i < n; i++) x[i] = (int32_t)i;
        status = tutti_send(tutti_view(x, (int64_t)n), 1, NULL);
    } else if (status == TUTTI_OK) {
        status = tutti_recv(tutti_view(x, (int64_t)n), 0, NULL);
        if (status == TUTTI_OK) printf("%s\n", is_right(x, n) ? "right" : "WRONG");
    }
    if (status == TUTTI_OK) status = tutti_destroy_process_group(NULL);
    if (status != TUTTI_OK) printf("%s: %s\n", tutti_status_string(status), tutti_last_error());
    free(x);
    return status == TUTTI_OK ? 0 : 3;
}
