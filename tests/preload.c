#include "preload.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

void *preload_find(const char *symbol)
{
    return dlsym(RTLD_DEFAULT, symbol);
}

bool preload(char **argv, const char *name, const char *symbol)
{
    static const char again[] = "TUTTI_TEST_STARTED_AGAIN"; /* otherwise the program would start itself forever */
    char path[4096];
    if (preload_find(symbol) != NULL) return true;
    snprintf(path, sizeof path, TUTTI_BUILD_DIR "/tests/plugins/libtutti_%s.so", name);
    if (getenv(again) != NULL) {
        fprintf(stderr, "%s was not loaded, or has no %s\n", path, symbol);
        return false;
    }
    setenv(again, "1", 1);
    setenv("LD_PRELOAD", path, 1);
    execv("/proc/self/exe", argv);
    perror("execv");
    return false;
}
