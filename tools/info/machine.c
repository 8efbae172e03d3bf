#include <errno.h>
#include <sched.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <tutti/tutti.h>
#include <unistd.h>

#include "common/output.h"
#include "info/describe.h"
#include "info/lines.h"

void describe_machine(doc *document)
{
    char name[256] = "?";
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    gethostname(name, sizeof name - 1);
    if (!document) {
        printf("tutti %s\n", tutti_version());
        printf("host %s: %d cores in the affinity mask, %ld online\n", name, lines_cores(), online);
        return;
    }
    doc *host = doc_set(document, "host", doc_object());
    doc_text(host, "name", name);
    doc_int(host, "cores_allowed", lines_cores());
    doc_int(host, "cores_online", online);
}

/* ---- backends --------------------------------------------------------------------------------------------------- */

/* Writes '+' or '-' and what Tutti says of a backend. */
static int write_backend(const char *name, int fd)
{
    static char text[LINES_MAX + 1] = "+";
    int status = tutti_describe_backend(name, text + 1, sizeof text - 1);
    if (status != TUTTI_OK) snprintf(text, sizeof text, "-%s", tutti_last_error());
    size_t length = strlen(text);
    return write(fd, text, length) == (ssize_t)length ? 0 : 1;
}

/* Reads to the end. */
static void read_text(int fd, char *text, size_t bytes)
{
    size_t used = 0;
    while (used < bytes - 1) {
        ssize_t n = read(fd, text + used, bytes - 1 - used);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) break;
        used += (size_t)n;
    }
    text[used] = '\0';
}

/* Describes a backend in a process of its own, because the libraries of two backends may conflict.  Returns true if it
 * was found. */
static bool ask_apart(const char *name, char text[LINES_MAX + 1])
{
    int ends[2], status = -1;
    fflush(stdout);
    if (pipe(ends) != 0) return snprintf(text, LINES_MAX, "cannot create a pipe: %s", strerror(errno)) < 0;
    pid_t pid = fork();
    if (pid == 0) _exit(write_backend(name, ends[1]));
    close(ends[1]);
    read_text(ends[0], text, LINES_MAX + 1);
    close(ends[0]);
    while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR) continue;
    if (pid < 0 || status != 0)
        return snprintf(text, LINES_MAX, "the process that describes it ended with status %d", status) < 0;
    bool found = text[0] == '+';
    memmove(text, text + 1, strlen(text));
    return found;
}

static void describe_backend(doc *list, const char *name)
{
    static char text[LINES_MAX + 1];
    bool found = ask_apart(name, text);
    if (list) {
        doc *backend = doc_add(list, doc_object());
        doc_text(backend, "name", name);
        doc_bool(backend, "found", found);
        lines_add(backend, "lines", text);
        return;
    }
    printf("backend %s: %s%s%s\n", name, output_begin(stdout, found ? OUTPUT_GREEN : OUTPUT_YELLOW),
           found ? "found" : "refused", output_end(stdout));
    lines_print("    ", text);
}

void describe_backends(doc *document)
{
    static const char *const usual[] = {"tcp", "mpi", "nccl"};
    static char names[LINES_MAX];
    char *rest = NULL;
    doc *list = document ? doc_set(document, "backends", doc_array()) : NULL;
    TUTTI_CHECK(tutti_list_backends(names, sizeof names));
    for (size_t i = 0; i < sizeof usual / sizeof *usual; i++) describe_backend(list, usual[i]);
    for (char *name = strtok_r(names, " ", &rest); name != NULL; name = strtok_r(NULL, " ", &rest)) {
        bool known = false;
        for (size_t i = 0; i < sizeof usual / sizeof *usual; i++) known |= strcmp(name, usual[i]) == 0;
        if (!known) describe_backend(list, name);
    }
}
