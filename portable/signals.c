/* Names of signals.  glibc has sigabbrev_np since 2.32, and other C libraries have no such function. */
#include <signal.h>
#include <stddef.h>

#include "portable/environment.h"

static const struct {
    int signal;
    const char *name;
} names[] = {
    {SIGABRT, "ABRT"},     {SIGALRM, "ALRM"}, {SIGBUS, "BUS"},   {SIGFPE, "FPE"},       {SIGHUP, "HUP"},
    {SIGILL, "ILL"},       {SIGINT, "INT"},   {SIGKILL, "KILL"}, {SIGPIPE, "PIPE"},     {SIGPROF, "PROF"},
    {SIGQUIT, "QUIT"},     {SIGSEGV, "SEGV"}, {SIGSYS, "SYS"},   {SIGTERM, "TERM"},     {SIGTRAP, "TRAP"},
    {SIGTSTP, "TSTP"},     {SIGTTIN, "TTIN"}, {SIGTTOU, "TTOU"}, {SIGUSR1, "USR1"},     {SIGUSR2, "USR2"},
    {SIGXCPU, "XCPU"},     {SIGXFSZ, "XFSZ"}, {SIGSTOP, "STOP"}, {SIGVTALRM, "VTALRM"}, {SIGIO, "IO"},
#ifdef SIGPWR
    {SIGPWR, "PWR"},
#endif
#ifdef SIGSTKFLT
    {SIGSTKFLT, "STKFLT"},
#endif
};

const char *environment_signal(int signal)
{
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (names[i].signal == signal) return names[i].name;
    return NULL;
}
