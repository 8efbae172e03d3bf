#include "leader_peers.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <tutti/tutti.h>

#include "job.h"
#include "memory.h"

enum { GAP_MS = 1000 };

struct leader_peer *leader_peers_find(const struct leader_peers *peers, int id)
{
    for (int i = 0; i < peers->n; i++)
        if (peers->list[i].id == id) return &peers->list[i];
    return NULL;
}

static void add(struct leader_peers *peers, int id)
{
    if (id < 1 || leader_peers_find(peers, id) || peers->n == PLAN_NODES_MAX) return;
    peers->list = memory_resize(peers->list, (size_t)(peers->n + 1) * sizeof *peers->list);
    peers->list[peers->n++] = (struct leader_peer){.id = id, .heard_ms = job_now_ms()};
}

/* Reads the new lines of the list of agents. */
static bool read_list(struct leader_peers *peers)
{
    tutti_bytes value = {0};
    int status = tutti_store_multi_get(peers->store, (const char *const[]){"joined"}, 1, &value, 0);
    if (status != TUTTI_OK) return false;
    char *text = memory_print("%.*s", (int)value.bytes, (const char *)value.data);
    tutti_bytes_free(&value, 1);
    size_t length = strlen(text);
    for (char *at = text + (peers->read < length ? peers->read : length); *at;
         at += strcspn(at, "\n"), at += *at == '\n')
        add(peers, atoi(at));
    peers->read = length;
    free(text);
    return true;
}

static void take_report(struct leader_peer *peer, const tutti_bytes *value)
{
    char text[PLAN_REPORT_MAX];
    struct plan_report report;
    snprintf(text, sizeof text, "%.*s", (int)value->bytes, (const char *)value->data);
    if (!plan_read_report(text, &report) || report.beat == peer->report.beat) return;
    peer->report = report;
    peer->heard_ms = job_now_ms();
    peer->lost = false;
}

static bool read_reports(struct leader_peers *peers)
{
    const char **keys = memory_resize(NULL, (size_t)peers->n * sizeof *keys);
    tutti_bytes *values = memory_resize(NULL, (size_t)peers->n * sizeof *values);
    memset(values, 0, (size_t)peers->n * sizeof *values);
    for (int i = 0; i < peers->n; i++) keys[i] = memory_print("agent/%d", peers->list[i].id);
    bool read = tutti_store_multi_get(peers->store, keys, peers->n, values, 0) == TUTTI_OK;
    for (int i = 0; i < peers->n && read; i++) take_report(&peers->list[i], &values[i]);
    if (read) tutti_bytes_free(values, peers->n);
    for (int i = 0; i < peers->n; i++) free((char *)(uintptr_t)keys[i]);
    free(keys);
    free(values);
    return read;
}

/* While the leader itself did not run (it was stopped), nobody was silent. */
static void forgive_gap(struct leader_peers *peers)
{
    int64_t now = job_now_ms(), gap = peers->read_ms ? now - peers->read_ms : 0;
    peers->read_ms = now;
    for (int i = 0; i < peers->n && gap > GAP_MS; i++) peers->list[i].heard_ms += gap;
}

bool leader_peers_read(struct leader_peers *peers, int silent_ms)
{
    forgive_gap(peers);
    if (!read_list(peers) || !read_reports(peers)) return false;
    for (int i = 0; i < peers->n; i++) {
        struct leader_peer *peer = &peers->list[i];
        if (peer->id != peers->own_id && job_now_ms() - peer->heard_ms > silent_ms) peer->lost = true;
    }
    return true;
}

bool leader_peer_is_usable(const struct leader_peer *peer)
{
    return !peer->lost && peer->report.nproc > 0 && !peer->report.running && peer->report.outcome != PLAN_LEAVES;
}

int leader_peers_count_usable(const struct leader_peers *peers)
{
    int n = 0;
    for (int i = 0; i < peers->n; i++) n += leader_peer_is_usable(&peers->list[i]);
    return n;
}

static bool comes_before(const struct leader_peers *peers, const struct leader_peer *a, const struct leader_peer *b)
{
    bool usable_a = leader_peer_is_usable(a), usable_b = leader_peer_is_usable(b);
    if (usable_a != usable_b) return usable_a;
    if (a->report.node_rank != b->report.node_rank) return a->report.node_rank < b->report.node_rank;
    if ((a->id == peers->own_id) != (b->id == peers->own_id)) return a->id == peers->own_id;
    return a->id < b->id;
}

void leader_peers_sort(struct leader_peers *peers)
{
    for (int i = 1; i < peers->n; i++)
        for (int k = i; k > 0 && comes_before(peers, &peers->list[k], &peers->list[k - 1]); k--) {
            struct leader_peer peer = peers->list[k];
            peers->list[k] = peers->list[k - 1];
            peers->list[k - 1] = peer;
        }
}

bool leader_peers_clash(const struct leader_peers *peers, int n)
{
    for (int i = 1; i < n; i++) {
        int a = peers->list[i - 1].report.node_rank, b = peers->list[i].report.node_rank;
        if (a >= 0 && a == b) return true;
    }
    return false;
}
