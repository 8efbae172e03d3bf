/* Cases that start the default group under other launchers' variables, and by URLs. */
#include "conformance/starts.h"

#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "conformance/cases.h"
#include "conformance/options.h"

/* Returns a free port at this address of the host, or 0 if the host has no such address.  The socket keeps it until the
 * store's server, which also sets SO_REUSEADDR, listens there. */
static int32_t reserve_port(const char *address, int *fd)
{
    struct addrinfo *found = NULL, hints = {.ai_socktype = SOCK_STREAM};
    struct sockaddr_in6 bound; /* sin_port and sin6_port are at the same offset */
    socklen_t length = sizeof bound;
    int32_t port = 0;
    if (getaddrinfo(address, "0", &hints, &found) != 0) return 0;
    *fd = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (*fd >= 0 && setsockopt(*fd, SOL_SOCKET, SO_REUSEADDR, &(int){1}, sizeof(int)) == 0 &&
        bind(*fd, found->ai_addr, found->ai_addrlen) == 0 && getsockname(*fd, (struct sockaddr *)&bound, &length) == 0)
        port = ntohs(bound.sin6_port);
    freeaddrinfo(found);
    return port;
}

/* Reserves a port on rank 0 and returns it on all ranks.  Rank 0 closes fd. */
static int share_port(struct rank *rank, const char *address, int32_t *port, int *fd)
{
    *port = rank->rank == 0 ? reserve_port(address, fd) : 0;
    return tutti_broadcast(tutti_view(port, 1), 0, tutti_with(.group = rank->groups[WORLD]));
}

/* Uses another launcher's names for rank and size.  Rank 0 hosts the store. */
static enum verdict launched_by(struct rank *rank, const char *const names[4])
{
    char text[16];
    int fd = -1;
    int32_t port = 0;
    const char *address = getenv("MASTER_ADDR");
    FAIL_UNLESS(address != NULL);
    TRY(share_port(rank, address, &port, &fd));
    snprintf(text, sizeof text, "%d", port);
    struct environment saved = starts_take_away(0);
    for (int i = 0; i < 4; i++)
        if (names[i] != NULL && saved.value[i] != NULL) setenv(names[i], saved.value[i], 1);
    setenv("MASTER_ADDR", saved.value[STARTS_MASTER_ADDR], 1);
    setenv("MASTER_PORT", text, 1);
    int status = tutti_init_process_group(rank->options->backend, NULL);
    enum verdict verdict = status == TUTTI_OK ? starts_use_and_end(rank, rank->rank, rank->size)
                                              : rank_status(rank, __FILE__, __LINE__, names[0], status);
    starts_restore(&saved);
    if (fd >= 0) close(fd);
    return verdict;
}

static enum verdict launchers(struct rank *rank)
{
    static const char *const names[][4] = {
        {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"},
        {"PMI_RANK", "PMI_SIZE", NULL, NULL},
        {"PMIX_RANK", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", NULL},
        {"SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", NULL}};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        enum verdict verdict = launched_by(rank, names[i]);
        if (verdict != PASSED) return verdict;
    }
    return PASSED;
}

/* ---- URLs -------------------------------------------------------------------------------------------------------- */

static enum verdict start_by(struct rank *rank, const char *url)
{
    TRY(tutti_init_process_group(rank->options->backend, &(tutti_init_opts){.init_method = url, .timeout_ms = 20000}));
    return starts_use_and_end(rank, rank->rank, rank->size);
}

/* Starts the default group by a tcp URL with this address, in brackets if it is IPv6. */
static enum verdict tcp_url(struct rank *rank, const char *address)
{
    char url[400];
    int fd = -1;
    int32_t port = 0;
    TRY(share_port(rank, address, &port, &fd));
    if (port == 0) return PASSED; /* the host has no IPv6 */
    bool six = strchr(address, ':') != NULL && address[0] != '[';
    snprintf(url, sizeof url, "tcp://%s%s%s:%d?rank=%d&world_size=%d", six ? "[" : "", address, six ? "]" : "", port,
             rank->rank, rank->size);
    enum verdict verdict = start_by(rank, url);
    if (fd >= 0) close(fd);
    return verdict;
}

/* Sets *all if all ranks see the folder.  On several hosts they may not. */
static int all_see(struct rank *rank, const char *folder, bool *all)
{
    int32_t sees = access(folder, F_OK) == 0;
    int status = tutti_all_reduce(tutti_view(&sees, 1), TUTTI_MIN, tutti_with(.group = rank->groups[WORLD]));
    *all = sees == 1;
    return status;
}

/* Checks that the file of an earlier job is refused.  Here each rank is a job, and a second link keeps its file. */
static enum verdict left_over(struct rank *rank, const char *folder)
{
    char path[64], kept[64], url[160];
    snprintf(path, sizeof path, "%s/one-%d", folder, rank->rank);
    snprintf(kept, sizeof kept, "%s/kept-%d", folder, rank->rank);
    snprintf(url, sizeof url, "file://%s?rank=0&world_size=1", path);
    tutti_init_opts opts = {.init_method = url};
    TRY(tutti_init_process_group(rank->options->backend, &opts));
    bool linked = link(path, kept) == 0;
    TRY(tutti_destroy_process_group(NULL));
    snprintf(url, sizeof url, "file://%s?rank=0&world_size=1", kept);
    int status = linked ? tutti_init_process_group(rank->options->backend, &opts) : TUTTI_ERR_SYSTEM;
    unlink(kept);
    if (status == TUTTI_ERR_STORE && strstr(tutti_last_error(), "earlier run") != NULL) return PASSED;
    return rank_fail(rank, "init with the file of an earlier run returned %s, not STORE: %s",
                     tutti_status_string(status), tutti_last_error());
}

static enum verdict file_url(struct rank *rank)
{
    char folder[] = "/tmp/tutti-conformance-XXXXXX", path[64], url[160];
    bool shared = false;
    if (rank->rank == 0 && mkdtemp(folder) == NULL) return rank_fail(rank, "cannot create a folder in /tmp");
    TRY(tutti_broadcast(tutti_tensor_of(folder, sizeof folder, TUTTI_INT8), 0,
                        tutti_with(.group = rank->groups[WORLD])));
    snprintf(path, sizeof path, "%s/store", folder);
    snprintf(url, sizeof url, "file://%s?rank=%d&world_size=%d", path, rank->rank, rank->size);
    TRY(all_see(rank, folder, &shared));
    enum verdict verdict = shared ? start_by(rank, url) : PASSED;
    if (shared && verdict == PASSED) verdict = left_over(rank, folder);
    rank_meet(rank);
    if (rank->rank == 0) {
        unlink(path);
        rmdir(folder);
    }
    return verdict;
}

static bool is_loopback(const char *host)
{
    return strncmp(host, "127.", 4) == 0 || strcmp(host, "localhost") == 0 || strcmp(host, "::1") == 0;
}

/* Tries several addresses if the ranks meet on loopback: then they share a host, which has IPv4 and IPv6.  Otherwise
 * uses the job's own address. */
static enum verdict tcp_urls(struct rank *rank)
{
    const char *address = getenv("MASTER_ADDR");
    FAIL_UNLESS(address != NULL);
    if (is_loopback(address)) {
        enum verdict verdict = tcp_url(rank, "127.0.0.1");
        if (verdict == PASSED) verdict = tcp_url(rank, "localhost");
        return verdict == PASSED ? tcp_url(rank, "::1") : verdict;
    }
    return tcp_url(rank, address);
}

static enum verdict urls(struct rank *rank)
{
    static const char *const bad[] = {"tcp://127.0.0.1?rank=0&world_size=1", "tcp://:1234?rank=0&world_size=1",
                                      "tcp://127.0.0.1:1234?rank=3&world_size=2", "file://relative?rank=0&world_size=1",
                                      "tcp://[::1:1234?rank=0&world_size=1"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        REFUSED(tutti_init_process_group(rank->options->backend, &(tutti_init_opts){.init_method = bad[i]}),
                TUTTI_ERR_INVALID_ARGUMENT);
    enum verdict verdict = tcp_urls(rank);
    return verdict == PASSED ? file_url(rank) : verdict;
}

const struct case_row elsewhere_rows[] = {
    {"launchers", launchers, 1, {L_I_LAUNCHERS}, 'p'},
    {"urls", urls, 1, {L_I_URLS}, 'p'},
};
const int n_elsewhere_rows = sizeof elsewhere_rows / sizeof *elsewhere_rows;
