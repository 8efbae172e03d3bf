/* What tutti-run and its nodes on other hosts send each other, and lists of hosts. */
#include "fuzz.h"
#include "run/hosts.h"
#include "run/node_wire.h"
#include "targets.h"

static void check_head(const uint8_t *in, size_t bytes)
{
    char head[NODE_FRAME_HEAD] = {0}, again[NODE_FRAME_HEAD];
    enum node_frame frame;
    size_t length;
    memcpy(head, in, bytes < sizeof head ? bytes : sizeof head);
    if (!node_read_head(head, &frame, &length)) return;
    FUZZ_CHECK(length <= NODE_FRAME_MAX);
    node_write_head(again, frame, length);
    FUZZ_CHECK(memcmp(head, again, sizeof head) == 0);
}

static void check_lost(const uint8_t *in, size_t bytes)
{
    int node = node_read_lost((const char *)in, bytes < 11 ? bytes : 11, 5);
    FUZZ_CHECK(node == -1 || (node >= 1 && node < 5));
}

static void check_hosts(const uint8_t *in, size_t bytes)
{
    struct hosts hosts = {0};
    char *text = fuzz_text(in, bytes);
    bool good = hosts_add(&hosts, text) == NULL;
    for (int i = 0; i < hosts.n; i++) {
        FUZZ_CHECK(hosts.list[i].name[0] != '-' && hosts.list[i].slots >= 0);
        FUZZ_CHECK(strpbrk(hosts.list[i].name, " '\"$`;&|\n") == NULL); /* a shell takes it as it is */
    }
    FUZZ_CHECK(!good || hosts.n > 0);
    hosts_free(&hosts);
    free(text);
}

/* A configuration that was read, written again, reads the same. */
static void check_config(const uint8_t *in, size_t bytes)
{
    struct node_config config, other;
    struct buffer out = {0};
    char *text = malloc(bytes + 1);
    FUZZ_CHECK(text != NULL);
    for (size_t i = 0; i < bytes; i++) text[i] = in[i] == '\n' ? '\0' : (char)in[i]; /* lines are easier to write */
    bool good = node_read_config(text, bytes, &config) == NULL;
    if (good) {
        node_write_config(&config, &out);
        FUZZ_CHECK(node_read_config(out.data, out.used, &other) == NULL);
        FUZZ_CHECK(other.world_size == config.world_size && other.first_rank + other.nproc <= other.world_size);
        FUZZ_CHECK(other.goes_on == config.goes_on && other.replace == config.replace);
        FUZZ_CHECK(other.backoff_ms == config.backoff_ms && other.replace >= 0);
        FUZZ_CHECK(other.node < other.nodes && strcmp(other.folder, config.folder) == 0);
        FUZZ_CHECK(strcmp(other.program[0], config.program[0]) == 0);
        FUZZ_CHECK(memcmp(other.token, config.token, sizeof other.token) == 0);
        node_free_config(&other);
    }
    node_free_config(&config);
}

void fuzz_node(const uint8_t *in, size_t bytes)
{
    check_head(in, bytes);
    check_lost(in, bytes);
    check_hosts(in, bytes);
    check_config(in, bytes);
}
