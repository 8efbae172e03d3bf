#include "stand_in.h"

#include <fcntl.h>
#include <unistd.h>

static char folder[] = "/tmp/tutti-ssh-XXXXXX", command[64];

/* "down" refuses, "slow" never answers, "bare" has no tutti-run, "noisy" has a login script, "late" awaits a file. */
static const char script[] = "#!/bin/sh\n"
                             "dir=${0%/*}\n"
                             "echo \"$*\" >>$dir/commands\n"
                             "host=$1\n"
                             "shift\n"
                             "echo $$ >$dir/$host.pid\n"
                             "case $host in\n"
                             "down) echo 'ssh: connect to host down port 22: Connection refused' >&2; exit 255 ;;\n"
                             "slow*) exec sleep 600 ;;\n"
                             "bare) echo 'sh: 1: exec: tutti-run: not found' >&2; exit 127 ;;\n"
                             "noisy) echo welcome >&2; printf 'last login: ' >&2 ;;\n"
                             "late) echo late; until test -e $dir/go; do sleep 0.02; done ;;\n"
                             "esac\n"
                             "exec env -u TUTTI_HERE HOST_NAME=$host sh -c \"$*\"\n";

const char *stand_in_folder(void)
{
    return folder;
}

const char *stand_in_command(void)
{
    return command;
}

void stand_in_path(const char *name, char *path, size_t bytes)
{
    snprintf(path, bytes, "%s/%s", folder, name);
}

void stand_in_write(const char *name, const char *text, mode_t mode)
{
    char path[128];
    stand_in_path(name, path, sizeof path);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, mode);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
    close(fd);
}

void stand_in_read(const char *name, struct text *text)
{
    char path[128];
    stand_in_path(name, path, sizeof path);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    while (fd >= 0) launch_read(&fd, text);
}

pid_t stand_in_pid(const char *host)
{
    char name[32];
    struct text text = {0};
    snprintf(name, sizeof name, "%s.pid", host);
    stand_in_read(name, &text);
    pid_t pid = (pid_t)atoi(text.data);
    free(text.data);
    return pid;
}

int stand_in_set_up(void **state)
{
    (void)state;
    if (!mkdtemp(folder)) return -1;
    stand_in_path("rsh", command, sizeof command);
    stand_in_write("rsh", script, 0700);
    return setenv("TUTTI_SSH", command, 1);
}

int stand_in_tear_down(void **state)
{
    char line[128];
    (void)state;
    snprintf(line, sizeof line, "rm -r %s", folder);
    return system(line);
}
