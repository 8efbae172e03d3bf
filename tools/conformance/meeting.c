#include "conformance/meeting.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "conformance/options.h"

enum { KEY_MAX = 48, RECORD_MAX = TEXT_MAX + 64 };

static struct rank_state *own_state(struct rank *rank)
{
    return &rank->scoreboard->states[rank->rank];
}

static bool end_run(struct rank *rank, const char *what)
{
    scoreboard_end(rank->scoreboard, "rank %d cannot %s: %s", rank->rank, what, tutti_last_error());
    return false;
}

/* ---- through memory --------------------------------------------------------------------------------------------- */

static long long step_of(const struct rank *rank)
{
    return (long long)rank->at << 16 | rank->met;
}

static bool memory_has_arrived(struct rank *rank, int other)
{
    return atomic_load(&rank->scoreboard->states[other].step) >= step_of(rank) ||
           scoreboard_result(rank->scoreboard, rank->at, other)->verdict != NOT_RUN;
}

static bool wait_at_barrier(struct rank *rank)
{
    pthread_barrier_wait(&rank->scoreboard->meeting);
    return true;
}

/* ---- through the store: keys come/CASE.STEP/RANK, result/CASE/RANK ----------------------------------------------- */

static void key_of_step(const struct rank *rank, int other, char *key)
{
    snprintf(key, KEY_MAX, "come/%d.%d/%d", rank->at, rank->met, other);
}

static void key_of_result(const struct rank *rank, int other, char *key)
{
    snprintf(key, KEY_MAX, "result/%d/%d", rank->at, other);
}

static bool is_there(struct rank *rank, const char *key)
{
    bool present = false;
    return tutti_store_check(rank->store, &key, 1, &present) == TUTTI_OK && present;
}

/* Writes a result as text, in a form that is the same on every machine. */
static int write_record(const struct result *result, char *record)
{
    int used = snprintf(record, RECORD_MAX, "%d %.9g %llx ", (int)result->verdict, (double)result->seconds,
                        (unsigned long long)result->bits);
    return used + snprintf(record + used, (size_t)(RECORD_MAX - used), "%s", result->text);
}

static bool read_record(const tutti_bytes *bytes, struct result *result)
{
    char record[RECORD_MAX];
    int verdict = 0, used = 0;
    float seconds = 0;
    unsigned long long bits = 0;
    if (bytes->bytes >= sizeof record) return false;
    memcpy(record, bytes->data, bytes->bytes);
    record[bytes->bytes] = '\0';
    if (sscanf(record, "%d %f %llx%n", &verdict, &seconds, &bits, &used) < 3 || record[used] != ' ') return false;
    if (verdict < PASSED || verdict > FAILED) return false;
    snprintf(result->text, sizeof result->text, "%s", record + used + 1);
    result->seconds = seconds;
    result->bits = bits;
    result->verdict = (enum verdict)verdict;
    return true;
}

/* Waits for the results of n ranks from `first` on, and keeps those of other ranks. */
static bool fetch(struct rank *rank, int first, int n, int64_t timeout_ms)
{
    char keys[RANKS_MAX][KEY_MAX];
    const char *names[RANKS_MAX] = {NULL};
    tutti_bytes records[RANKS_MAX];
    bool right = true;
    for (int i = 0; i < n; i++) {
        key_of_result(rank, first + i, keys[i]);
        names[i] = keys[i];
    }
    if (tutti_store_multi_get(rank->store, names, n, records, timeout_ms) != TUTTI_OK) return false;
    for (int i = 0; i < n; i++)
        right &= first + i == rank->rank ||
                 read_record(&records[i], scoreboard_result(rank->scoreboard, rank->at, first + i));
    tutti_bytes_free(records, n);
    return right;
}

/* Stores this rank's result and waits for the others'.  It needs no time limit, because the watch has one. */
static bool store_after(struct rank *rank)
{
    char record[RECORD_MAX], key[KEY_MAX];
    int bytes = write_record(scoreboard_result(rank->scoreboard, rank->at, rank->rank), record);
    key_of_result(rank, rank->rank, key);
    if (tutti_store_set(rank->store, key, record, (size_t)bytes) != TUTTI_OK) return end_run(rank, "store its result");
    return fetch(rank, 0, rank->size, TUTTI_INFINITE) || end_run(rank, "get the others' results");
}

static bool store_again(struct rank *rank)
{
    char name[KEY_MAX];
    snprintf(name, sizeof name, "again/%d", rank->at);
    return tutti_store_barrier(rank->store, name, rank->size, TUTTI_INFINITE) == TUTTI_OK ||
           end_run(rank, "wait for the others");
}

/* ------------------------------------------------------------------------------------------------------------------ */

void meeting_arrive(struct rank *rank)
{
    char key[KEY_MAX];
    rank->met++;
    atomic_store(&own_state(rank)->step, step_of(rank));
    key_of_step(rank, rank->rank, key);
    if (rank->options->join)
        tutti_store_set(rank->store, key, "", 0); /* if that fails, the watch ends the others' wait */
}

bool meeting_has_arrived(struct rank *rank, int other)
{
    char key[KEY_MAX];
    if (other == rank->rank || memory_has_arrived(rank, other)) return true;
    if (!rank->options->join) return false;
    key_of_step(rank, other, key);
    if (is_there(rank, key)) return true;
    key_of_result(rank, other, key);
    return is_there(rank, key);
}

bool meeting_after(struct rank *rank)
{
    return rank->options->join ? store_after(rank) : wait_at_barrier(rank);
}

bool meeting_again(struct rank *rank)
{
    return rank->options->join ? store_again(rank) : wait_at_barrier(rank);
}

void meeting_fetch(struct rank *rank)
{
    for (int i = 0; i < rank->size; i++)
        if (i != rank->rank) fetch(rank, i, 1, 0);
}
