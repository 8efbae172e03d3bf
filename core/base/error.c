#include "base/error.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

static _Thread_local char error_buffer[ERROR_TEXT_MAX];
static _Thread_local unsigned error_n;

/* Libraries report EMFILE in messages of their own. */
void error_append_limit(char *text, size_t capacity)
{
    struct rlimit limit;
    size_t used = strlen(text);
    if (strstr(text, strerror(EMFILE)) == NULL || strstr(text, "RLIMIT_NOFILE") != NULL) return;
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0)
        snprintf(text + used, capacity - used, " (RLIMIT_NOFILE is %llu; raise it with `ulimit -n`)",
                 (unsigned long long)limit.rlim_cur);
}

int error_vset(int status, const char *format, va_list args)
{
    char text[ERROR_TEXT_MAX]; /* arguments may point into error_buffer */
    vsnprintf(text, sizeof text, format, args);
    if (status < 0) error_append_limit(text, sizeof text);
    memcpy(error_buffer, text, sizeof text);
    error_n++;
    return status;
}

int error_set(int status, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    error_vset(status, format, args);
    va_end(args);
    return status;
}

int error_errno(int status, const char *format, ...)
{
    int saved = errno;
    char text[ERROR_TEXT_MAX];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    error_set(status, "%.900s: %s", text, strerror(saved));
    errno = saved;
    return status;
}

int error_prefix(int status, const char *format, ...)
{
    char text[ERROR_TEXT_MAX];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return error_set(status, "%.500s: %.500s", text, error_buffer);
}

const char *error_text(void)
{
    return error_buffer;
}

unsigned error_count(void)
{
    return error_n;
}

const char *error_name(int status)
{
    static const char *const names[] = {"TUTTI_OK",
                                        "TUTTI_ERR_INVALID_ARGUMENT",
                                        "TUTTI_ERR_UNSUPPORTED",
                                        "TUTTI_ERR_TIMEOUT",
                                        "TUTTI_ERR_PEER_LOST",
                                        "TUTTI_ERR_MISMATCH",
                                        "TUTTI_ERR_ABORTED",
                                        "TUTTI_ERR_STORE",
                                        "TUTTI_ERR_AUTH",
                                        "TUTTI_ERR_NO_MEMORY",
                                        "TUTTI_ERR_SYSTEM",
                                        "TUTTI_ERR_BACKEND",
                                        "TUTTI_ERR_NOT_FOUND"};
    if (status > 0 || status <= -(int)(sizeof names / sizeof *names)) return "unknown status";
    return names[-status];
}
