#include "mpi_launch.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

bool mpi_launch_has(const char *mpi)
{
    char path[4200];
    bool open = strcmp(mpi, "openmpi") == 0;
    snprintf(path, sizeof path, "%s/libtutti_mpi_%s.so", TUTTI_BACKENDS_DIR, mpi);
    bool has = access(path, F_OK) == 0 &&
               system(open ? "command -v mpirun.openmpi >/dev/null" : "command -v mpiexec.mpich >/dev/null") == 0;
    if (!has) print_message("without %s: its plug-in was not built, or its launcher is not installed\n", mpi);
    return has;
}

void mpi_launch_run(const char *mpi, const char *environment, int ranks, const char *program, const char *argument,
                    struct launch *launch)
{
    char command[9000];
    const char *start = strcmp(mpi, "openmpi") == 0
                            ? "mpirun.openmpi --allow-run-as-root --oversubscribe --mca mpi_yield_when_idle 1"
                            : "mpiexec.mpich";
    snprintf(command, sizeof command, "TUTTI_BACKEND_PATH=%s %s exec timeout -k 5 120 %s -n %d %s %s",
             TUTTI_BACKENDS_DIR, environment, start, ranks, program, argument);
    pid_t pid;
    int out[2], err[2];
    assert_int_equal(pipe2(out, O_CLOEXEC), 0);
    assert_int_equal(pipe2(err, O_CLOEXEC), 0);
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        dup2(out[1], 1);
        dup2(err[1], 2);
        execl("/bin/sh", "sh", "-c", command, (char *)NULL);
        _exit(127);
    }
    close(out[1]);
    close(err[1]);
    *launch = (struct launch){.pid = pid, .from_out = out[0], .from_err = err[0]};
    while (launch->from_out >= 0 || launch->from_err >= 0) launch_step(launch, launch_now_ms() + LAUNCH_HANG_MS * 3);
    int status = 0;
    waitpid(pid, &status, 0);
    launch->status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}
