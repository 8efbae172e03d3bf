/* Runs every fuzz target over its corpus, without a fuzzer, so that a fault found once stays found. */
#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "../../backends/tcp/base/peer_handshake.c"
#include "../../backends/tcp/net/wire.c"
#include "../../backends/tcp/p2p/kinds.c"
#include "../../tools/trace/groups.c"
#include "../../tools/trace/record.c"
#include "targets.h"

/* Runs on a copy, so that a sanitizer sees a read beyond it. */
static void run_file(const struct fuzz_target *target, const char *path)
{
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    assert_int_equal(fseek(file, 0, SEEK_END), 0);
    size_t bytes = (size_t)ftell(file);
    rewind(file);
    uint8_t *in = malloc(bytes > 0 ? bytes : 1);
    assert_non_null(in);
    assert_int_equal(fread(in, 1, bytes, file), bytes);
    fclose(file);
    for (size_t n = bytes; n + 3 > bytes && n <= bytes; n--) { /* and with its last bytes missing */
        uint8_t *cut = malloc(n > 0 ? n : 1);
        assert_non_null(cut);
        memcpy(cut, in, n);
        target->run(cut, n);
        free(cut);
    }
    free(in);
}

static void test_corpus(void **state)
{
    const struct fuzz_target *target = *state;
    char path[1024];
    int n = 0;
    snprintf(path, sizeof path, "%s/tests/fuzz/corpus/%s", TUTTI_SOURCE_DIR, target->name);
    DIR *folder = opendir(path);
    assert_non_null(folder);
    for (const struct dirent *entry; (entry = readdir(folder)) != NULL; n++) {
        if (entry->d_name[0] == '.') continue;
        snprintf(path, sizeof path, "%s/tests/fuzz/corpus/%s/%s", TUTTI_SOURCE_DIR, target->name, entry->d_name);
        run_file(target, path);
    }
    closedir(folder);
    assert_true(n > 2);
}

int main(void)
{
    enum { MOST = 64 };
    struct CMUnitTest tests[MOST];
    size_t n = 0;
    for (; fuzz_targets[n].name != NULL; n++)
        tests[n] =
            (struct CMUnitTest){fuzz_targets[n].name, test_corpus, NULL, NULL, (void *)(uintptr_t)&fuzz_targets[n]};
    return _cmocka_run_group_tests("fuzz", tests, n, NULL, NULL);
}
