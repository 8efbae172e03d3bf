/* For tests that start ranks with the launchers of the MPIs that the mpi backend was built for. */
#ifndef TESTS_MPI_LAUNCH_H
#define TESTS_MPI_LAUNCH_H

#include "tools/launch.h"

/* "openmpi" or "mpich": whether the backend was built for it and its launcher is here. */
static inline bool has(const char *mpi)
{
    char path[4200];
    bool open = strcmp(mpi, "openmpi") == 0;
    snprintf(path, sizeof path, "%s/libtutti_mpi_%s.so", TUTTI_BACKENDS_DIR, mpi);
    bool there = access(path, F_OK) == 0 &&
                 system(open ? "command -v mpirun.openmpi >/dev/null" : "command -v mpiexec.mpich >/dev/null") == 0;
    if (!there) print_message("without %s: its plug-in was not built, or its launcher is not installed\n", mpi);
    return there;
}

/* The program and its arguments under a launcher; what it printed is in launch->out and err. */
static inline void under(const char *mpi, const char *environment, int ranks, const char *program, const char *argument,
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

static inline void end(struct launch *launch)
{
    free(launch->out.data);
    free(launch->err.data);
}

#endif
