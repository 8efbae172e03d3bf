/* PMI-1: MPICH's mpiexec (Hydra).  Lines of text over a descriptor that the launcher hands down in PMI_FD:
 *
 *   cmd=init pmi_version=1 pmi_subversion=1     cmd=response_to_init .. rc=0
 *   cmd=get_my_kvsname                          cmd=my_kvsname kvsname=K
 *   cmd=put kvsname=K key=X value=V             cmd=put_result rc=0 ..
 *   cmd=barrier_in                              cmd=barrier_out
 *   cmd=get kvsname=K key=X                     cmd=get_result rc=0 .. value=V
 *
 * MPICH in the same process speaks the same over the same descriptor, later; the launcher does not mind a second init.
 */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/env.h"
#include "base/error.h"
#include "bootstrap/launcher_exchange.h"

enum { LINE_BYTES = 2048 };

static struct {
    int fd;
    bool ready;
    pid_t pid;        /* of the process that greeted: a forked child's exit is not the rank's */
    struct stat stat; /* what fd was: MPI may close it, and the number may be another file's then */
    char name[256];   /* of the key-value space */
} pmi;

static int pmi1_error(const char *what)
{
    return error_set(TUTTI_ERR_BACKEND, "the launcher's PMI-1 does not answer as it should: %.200s", what);
}

static int send_line(const char *line)
{
    size_t sent = 0, bytes = strlen(line);
    while (sent < bytes) {
        ssize_t n = send(pmi.fd, line + sent, bytes - sent, MSG_NOSIGNAL); /* Hydra's is one of a socketpair */
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return error_errno(TUTTI_ERR_BACKEND, "the launcher's PMI-1, PMI_FD");
        sent += (size_t)n;
    }
    return TUTTI_OK;
}

static int read_line(char line[LINE_BYTES], int64_t timeout_ms)
{
    int64_t deadline = clock_deadline_ns(timeout_ms);
    for (size_t used = 0; used + 1 < LINE_BYTES;) {
        struct pollfd polled = {pmi.fd, POLLIN, 0};
        int64_t left = (deadline - clock_now_ns()) / 1000000;
        int n = poll(&polled, 1, left < 0 ? 0 : left > 1000000 ? 1000000 : (int)left + 1);
        if (n < 0 && errno == EINTR) continue;
        if (n == 0 && clock_now_ns() < deadline) continue;
        if (n == 0) return error_set(TUTTI_ERR_TIMEOUT, "the launcher's PMI-1: not all ranks came to its barrier");
        ssize_t got = n < 0 ? -1 : read(pmi.fd, line + used, 1);
        if (got < 0) return error_errno(TUTTI_ERR_BACKEND, "the launcher's PMI-1, PMI_FD");
        if (got == 0) return pmi1_error("it has closed PMI_FD");
        if (line[used++] != '\n') continue;
        line[used - 1] = '\0';
        return TUTTI_OK;
    }
    return pmi1_error("a line without an end");
}

/* Asks, and checks that the answer begins as it should. */
static int ask(const char *question, const char *answer, char line[LINE_BYTES], int64_t timeout_ms)
{
    int status = send_line(question);
    if (status == TUTTI_OK) status = read_line(line, timeout_ms);
    if (status != TUTTI_OK) return status;
    return strncmp(line, answer, strlen(answer)) == 0 ? TUTTI_OK : pmi1_error(line);
}

/* Hydra takes a process that has greeted it and leaves without a word for a failed one. */
static void take_leave(void)
{
    struct stat now;
    char line[LINE_BYTES];
    if (getpid() != pmi.pid) return;
    if (fstat(pmi.fd, &now) != 0 || now.st_dev != pmi.stat.st_dev || now.st_ino != pmi.stat.st_ino) return;
    ask("cmd=finalize\n", "cmd=finalize_ack", line, 1000);
}

static int pmi1_ready(int64_t timeout_ms)
{
    char line[LINE_BYTES];
    int64_t fd = -1;
    if (pmi.ready) return TUTTI_OK;
    int status = env_int("PMI_FD", -1, 0, INT32_MAX, &fd);
    if (status != TUTTI_OK) return status;
    pmi.fd = (int)fd;
    if (fstat(pmi.fd, &pmi.stat) != 0) return error_errno(TUTTI_ERR_BACKEND, "PMI_FD");
    status = ask("cmd=init pmi_version=1 pmi_subversion=1\n", "cmd=response_to_init", line, timeout_ms);
    if (status == TUTTI_OK) status = ask("cmd=get_my_kvsname\n", "cmd=my_kvsname", line, timeout_ms);
    if (status != TUTTI_OK) return status;
    const char *name = strstr(line, "kvsname=");
    if (strstr(line, " kvsname=") == NULL || sscanf(strstr(line, " kvsname="), " kvsname=%255s", pmi.name) != 1)
        return pmi1_error(name != NULL ? name : line);
    pmi.ready = true;
    pmi.pid = getpid();
    atexit(take_leave);
    return TUTTI_OK;
}

bool launcher_pmi1_is_last(void)
{
    int64_t fd = -1;
    struct ucred other; /* of a pair of sockets: who has made it */
    socklen_t bytes = sizeof other;
    if (env_string("PMI_RANK", NULL) == NULL || env_int("PMI_FD", -1, 0, INT32_MAX, &fd) != TUTTI_OK) return false;
    return getsockopt((int)fd, SOL_SOCKET, SO_PEERCRED, &other, &bytes) == 0 && other.pid > 0 && other.pid != getpid();
}

static bool pmi1_present(void)
{
    return env_string("PMI_FD", NULL) != NULL && env_string("PMI_RANK", NULL) != NULL;
}

/* A value has no blanks and no '=' to be safe: ours goes over in hexadecimal. */
static void to_digits(const char *text, char *digits)
{
    for (; *text != '\0'; text++, digits += 2) snprintf(digits, 3, "%02x", (unsigned char)*text);
    *digits = '\0';
}

static int from_digits(const char *digits, char *text, size_t capacity)
{
    size_t n = strspn(digits, "0123456789abcdef") / 2;
    if (n >= capacity) return pmi1_error("a value that is too long");
    for (size_t i = 0; i < n; i++) {
        unsigned byte = 0;
        sscanf(digits + 2 * i, "%2x", &byte);
        text[i] = (char)byte;
    }
    text[n] = '\0';
    return TUTTI_OK;
}

static int pmi1_share(int rank, const char *key, char *text, size_t capacity, int64_t timeout_ms)
{
    char line[LINE_BYTES], question[LINE_BYTES], digits[LINE_BYTES / 2];
    int status = pmi1_ready(timeout_ms);
    if (status == TUTTI_OK && rank == 0) {
        if (2 * strlen(text) + 1 > sizeof digits) return pmi1_error("a value that is too long");
        to_digits(text, digits);
        snprintf(question, sizeof question, "cmd=put kvsname=%s key=%s value=%s\n", pmi.name, key, digits);
        status = ask(question, "cmd=put_result rc=0", line, timeout_ms);
    }
    if (status == TUTTI_OK) status = ask("cmd=barrier_in\n", "cmd=barrier_out", line, timeout_ms);
    if (status != TUTTI_OK || rank == 0) return status;
    snprintf(question, sizeof question, "cmd=get kvsname=%s key=%s\n", pmi.name, key);
    status = ask(question, "cmd=get_result rc=0", line, timeout_ms);
    if (status != TUTTI_OK) return status;
    const char *value = strstr(line, " value=");
    return value != NULL ? from_digits(value + strlen(" value="), text, capacity) : pmi1_error(line);
}

const struct launcher_exchange launcher_pmi1 = {.name = "PMI-1", .present = pmi1_present, .share = pmi1_share};
