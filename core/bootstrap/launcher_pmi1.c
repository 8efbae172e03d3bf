/* PMI-1: MPICH's mpiexec (Hydra).  Lines of text over a descriptor that the launcher passes in PMI_FD:
 *
 *   cmd=init pmi_version=1 pmi_subversion=1     cmd=response_to_init .. rc=0
 *   cmd=get_my_kvsname                          cmd=my_kvsname kvsname=K
 *   cmd=put kvsname=K key=X value=V             cmd=put_result rc=0 ..
 *   cmd=barrier_in                              cmd=barrier_out
 *   cmd=get kvsname=K key=X                     cmd=get_result rc=0 .. value=V
 *
 * MPICH in the same process later speaks the same over the same descriptor; the launcher accepts a second init. */
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
#include "portable/sockets.h"

enum { LINE_BYTES = 2048 };

static struct {
    int fd;
    bool ready;
    pid_t pid;        /* the process that sent init: a forked child's exit is not the rank's */
    struct stat stat; /* identifies fd: MPI may close it, and its number may be reused */
    char name[256];   /* name of the key-value space */
} pmi;

static int report_error(const char *what)
{
    return error_set(TUTTI_ERR_BACKEND, "unexpected answer from the launcher over PMI-1: %.200s", what);
}

static int send_line(const char *line)
{
    size_t sent = 0, bytes = strlen(line);
    while (sent < bytes) {
        ssize_t n = send(pmi.fd, line + sent, bytes - sent, MSG_NOSIGNAL); /* Hydra passes one end of a socketpair */
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return error_errno(TUTTI_ERR_BACKEND, "PMI-1: the connection to the launcher (PMI_FD) failed");
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
        if (n == 0)
            return error_set(TUTTI_ERR_TIMEOUT,
                             "PMI-1: not all ranks reached the launcher's barrier before the timeout");
        ssize_t got = n < 0 ? -1 : read(pmi.fd, line + used, 1);
        if (got < 0) return error_errno(TUTTI_ERR_BACKEND, "PMI-1: the connection to the launcher (PMI_FD) failed");
        if (got == 0) return report_error("the launcher closed PMI_FD");
        if (line[used++] != '\n') continue;
        line[used - 1] = '\0';
        return TUTTI_OK;
    }
    return report_error("the line is too long");
}

/* Sends a line, reads the answer, and checks that it begins as expected. */
static int request(const char *line_out, const char *expected, char line[LINE_BYTES], int64_t timeout_ms)
{
    int status = send_line(line_out);
    if (status == TUTTI_OK) status = read_line(line, timeout_ms);
    if (status != TUTTI_OK) return status;
    return strncmp(line, expected, strlen(expected)) == 0 ? TUTTI_OK : report_error(line);
}

/* Sends finalize at exit.  Hydra takes a process that has sent init and exits without finalize as failed. */
static void finalize_at_exit(void)
{
    struct stat now;
    char line[LINE_BYTES];
    if (getpid() != pmi.pid) return;
    if (fstat(pmi.fd, &now) != 0 || now.st_dev != pmi.stat.st_dev || now.st_ino != pmi.stat.st_ino) return;
    request("cmd=finalize\n", "cmd=finalize_ack", line, 1000);
}

static int init_once(int64_t timeout_ms)
{
    char line[LINE_BYTES];
    int64_t fd = -1;
    if (pmi.ready) return TUTTI_OK;
    int status = env_int("PMI_FD", -1, 0, INT32_MAX, &fd);
    if (status != TUTTI_OK) return status;
    pmi.fd = (int)fd;
    if (fstat(pmi.fd, &pmi.stat) != 0) return error_errno(TUTTI_ERR_BACKEND, "PMI_FD");
    status = request("cmd=init pmi_version=1 pmi_subversion=1\n", "cmd=response_to_init", line, timeout_ms);
    if (status == TUTTI_OK) status = request("cmd=get_my_kvsname\n", "cmd=my_kvsname", line, timeout_ms);
    if (status != TUTTI_OK) return status;
    const char *name = strstr(line, "kvsname=");
    if (strstr(line, " kvsname=") == NULL || sscanf(strstr(line, " kvsname="), " kvsname=%255s", pmi.name) != 1)
        return report_error(name != NULL ? name : line);
    pmi.ready = true;
    pmi.pid = getpid();
    atexit(finalize_at_exit);
    return TUTTI_OK;
}

bool launcher_pmi1_is_last(void)
{
    int64_t fd = -1;
    if (env_string("PMI_RANK", NULL) == NULL || env_int("PMI_FD", -1, 0, INT32_MAX, &fd) != TUTTI_OK) return false;
    pid_t other = sockets_peer_process((int)fd); /* for a socketpair: the process that made it */
    return other > 0 && other != getpid();
}

static bool is_present(void)
{
    return env_string("PMI_FD", NULL) != NULL && env_string("PMI_RANK", NULL) != NULL;
}

/* Encodes text in hexadecimal, because a value must not contain blanks or '='. */
static void encode_hex(const char *text, char *digits)
{
    for (; *text != '\0'; text++, digits += 2) snprintf(digits, 3, "%02x", (unsigned char)*text);
    *digits = '\0';
}

static int decode_hex(const char *digits, char *text, size_t capacity)
{
    size_t n = strspn(digits, "0123456789abcdef") / 2;
    if (n >= capacity) return report_error("the value is too long");
    for (size_t i = 0; i < n; i++) {
        unsigned byte = 0;
        sscanf(digits + 2 * i, "%2x", &byte);
        text[i] = (char)byte;
    }
    text[n] = '\0';
    return TUTTI_OK;
}

static int share_text(int rank, const char *key, char *text, size_t capacity, int64_t timeout_ms)
{
    char line[LINE_BYTES], question[LINE_BYTES], digits[LINE_BYTES / 2];
    int status = init_once(timeout_ms);
    if (status == TUTTI_OK && rank == 0) {
        if (2 * strlen(text) + 1 > sizeof digits) return report_error("the value is too long");
        encode_hex(text, digits);
        snprintf(question, sizeof question, "cmd=put kvsname=%s key=%s value=%s\n", pmi.name, key, digits);
        status = request(question, "cmd=put_result rc=0", line, timeout_ms);
    }
    if (status == TUTTI_OK) status = request("cmd=barrier_in\n", "cmd=barrier_out", line, timeout_ms);
    if (status != TUTTI_OK || rank == 0) return status;
    snprintf(question, sizeof question, "cmd=get kvsname=%s key=%s\n", pmi.name, key);
    status = request(question, "cmd=get_result rc=0", line, timeout_ms);
    if (status != TUTTI_OK) return status;
    const char *value = strstr(line, " value=");
    return value != NULL ? decode_hex(value + strlen(" value="), text, capacity) : report_error(line);
}

const struct launcher_exchange launcher_pmi1 = {.name = "PMI-1", .present = is_present, .share = share_text};
