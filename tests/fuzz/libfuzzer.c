/* The target for libFuzzer that FUZZ_TARGET in the environment names.  Built and run by run.sh. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "targets.h"

static const struct fuzz_target *chosen;

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    const char *name = getenv("FUZZ_TARGET");
    (void)argc;
    (void)argv;
    for (int i = 0; fuzz_targets[i].name != NULL && name != NULL; i++)
        if (strcmp(fuzz_targets[i].name, name) == 0) chosen = &fuzz_targets[i];
    if (chosen != NULL) return 0;
    fprintf(stderr, "set FUZZ_TARGET to one of:");
    for (int i = 0; fuzz_targets[i].name != NULL; i++) fprintf(stderr, " %s", fuzz_targets[i].name);
    fprintf(stderr, "\n");
    exit(1);
}

int LLVMFuzzerTestOneInput(const uint8_t *in, size_t bytes)
{
    chosen->run(in, bytes);
    return 0;
}
