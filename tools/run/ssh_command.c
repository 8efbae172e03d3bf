#include "ssh_command.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "memory.h"

/* What the login shell of the host runs, whichever shell that is.  tutti-run is at the same path there, or in PATH. */
#define START "exec sh -c 'x=$0; test -x \"$x\" || x=tutti-run; exec \"$x\" --ssh-node' "

enum { WORDS = 16 };

static void add(char **words, char *word)
{
    int n = 0;
    while (words[n]) n++;
    words[n] = word;
}

/* Returns this program's path. */
static char *own_path(void)
{
    char path[4096];
    ssize_t n = readlink("/proc/self/exe", path, sizeof path - 1);
    path[n < 0 ? 0 : n] = '\0';
    return memory_print("%s", n > 0 ? path : "tutti-run");
}

/* Returns the path within single quotes. */
static char *quote(const char *path)
{
    char *text = memory_resize(NULL, 4 * strlen(path) + 3), *to = text;
    *to++ = '\'';
    for (; *path; path++) {
        if (*path != '\'')
            *to++ = *path;
        else
            to = stpcpy(to, "'\\''");
    }
    stpcpy(to, "'");
    return text;
}

/* True if the first word of the command is ssh, so that it has ssh's options. */
static bool is_ssh(const char *command)
{
    size_t length = strcspn(command, " \t");
    const char *name = command + length;
    while (name > command && name[-1] != '/') name--;
    return (size_t)(command + length - name) == 3 && strncmp(name, "ssh", 3) == 0;
}

/* Adds options with which ssh neither asks nor waits without a bound. */
static void add_ssh_options(char **words, const struct options *options)
{
    int64_t seconds = (options->ssh_timeout_ms + 999) / 1000;
    add(words, memory_print("-T"));
    add(words, memory_print("-oBatchMode=yes"));
    add(words, memory_print("-oConnectTimeout=%d", seconds < 1 ? 1 : (int)seconds));
    add(words, memory_print("-oServerAliveInterval=5"));
    add(words, memory_print("-oServerAliveCountMax=3"));
}

char **ssh_command(const struct options *options, const struct host *host)
{
    const char *ssh = options->ssh_command ? options->ssh_command : getenv("TUTTI_SSH");
    char **words = memory_resize(NULL, WORDS * sizeof *words);
    char *path = own_path(), *quoted = quote(path);
    memset(words, 0, WORDS * sizeof *words);
    if ((!ssh || !*ssh) && hosts_is_this(host)) {
        add(words, path);
        add(words, memory_print("--ssh-node"));
        free(quoted);
        return words;
    }
    if (!ssh || !*ssh) ssh = "ssh";
    add(words, memory_print("/bin/sh")); /* the command may have arguments and quotes */
    add(words, memory_print("-c"));
    add(words, memory_print("exec %s \"$@\"", ssh));
    add(words, memory_print("sh"));
    if (is_ssh(ssh)) add_ssh_options(words, options);
    add(words, memory_print("%s", host->name));
    add(words, memory_print(START "%s", quoted));
    free(path);
    free(quoted);
    return words;
}

void ssh_free_command(char **command)
{
    for (char **word = command; *word; word++) free(*word);
    free(command);
}
