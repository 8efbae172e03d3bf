/* Selects the path of a message above SHM_EAGER_MAX bytes, or without credit.
 *
 * A row that the core has passed (tutti_backend.choose) decides if its path is possible.  Otherwise the sender measures
 * the paths for each peer and size class (choice.h).  The receiver follows the path that the message's packet names,
 * unless that offers the message (offers.c).
 *
 * A message alone cannot be timed: a copy into the ring ends before the receiver begins its own, and a message that is
 * to be read costs its sender nothing.  What is timed is a round: the messages that follow each other without a wait,
 * from the first of them to the first of the next round.  That includes the wait, and so the peer's work.
 *
 * Ranks that exchange messages take the same path both ways.  If one rank alone took another path, one of the two would
 * do most of the work, so a rank that measures alone would often find that path slow, although it is the fastest for
 * both.  So the lower rank measures, and the other one follows the path of the last message that it got, unless it
 * has sent ROUND_MAX messages since.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tcp/shm/offers.h"
#include "tcp/shm/stores.h"

enum { ROUND_MAX = 64 }; /* messages */

static unsigned bit(enum transport_path path)
{
    return 1u << path;
}

/* Returns the possible paths of a message. */
static unsigned find_paths(const struct shm *shm, size_t bytes, bool may_eager, bool blocked)
{
    unsigned paths = shm->can_read_memory && bytes > 0 ? bit(TRANSPORT_READ) : 0;
    if (may_eager && bytes <= shm->transport.eager_max) paths |= bit(TRANSPORT_EAGER);
    /* Only a blocked sender copies without delay. */
    if (blocked || paths == 0) paths |= bit(TRANSPORT_WRITE);
    return paths;
}

static bool is_possible(const struct shm *shm, const tutti_request *request, bool may_eager, int path)
{
    if (path == TRANSPORT_RMA) return false;
    if (path == TRANSPORT_EAGER) return may_eager && request->bytes <= shm->transport.eager_max;
    return path == TRANSPORT_WRITE ||
           (request->bytes > 0 && (shm->can_read_memory || shm_is_shared(shm, request->data, request->bytes)));
}

/* Returns the path that is taken without a measurement.  A message that waits for space in the ring is copied once
 * more.  Two copies at once can be faster than a single copy, but where data move slowly between cores, they take
 * several times as long.  Where ranks share cores, a sender whose message fits the ring runs on instead of waiting for
 * a reader that has no core yet. */
static enum transport_path usual_path(struct shm *shm, int local_rank, size_t bytes, unsigned paths, bool blocked)
{
    bool eager = (paths & bit(TRANSPORT_EAGER)) != 0, reads = (paths & bit(TRANSPORT_READ)) != 0;
    if (eager && bytes <= SHM_EAGER_MAX) return TRANSPORT_EAGER;
    if (blocked && !shm->shares_cores) return reads ? TRANSPORT_READ : TRANSPORT_WRITE;
    if (eager && (!reads || shm_fits(shm, local_rank, bytes))) return TRANSPORT_EAGER;
    if (!reads || blocked) return TRANSPORT_WRITE;
    return shm->shares_cores ? TRANSPORT_OFFER : TRANSPORT_READ;
}

/* Returns the calls of the size class, or NULL if there is no memory for them. */
static struct shm_messages *messages_of(struct shm_peer *peer, size_t bytes)
{
    if (peer->messages == NULL) peer->messages = calloc(CHOICE_CLASSES, sizeof *peer->messages);
    return peer->messages != NULL ? &peer->messages[choice_class(bytes)] : NULL;
}

/* Ends the round before a message, and the span with it if that is due. */
static void begin_round(struct shm *shm, struct shm_messages *messages, unsigned paths, int shortest)
{
    bool is_timed = messages->begin_ns != 0, is_late = messages->calls + (uint64_t)shortest > messages->end;
    int64_t now_ns = is_timed || is_late ? shm->config.host->now_ns() : 0;
    if (is_timed) choice_add(&messages->measured, (now_ns - messages->begin_ns) / messages->in_round);
    messages->n_timed += is_timed;
    messages->in_round = 0;
    bool ends_span = messages->calls >= messages->end && messages->n_timed > 0;
    messages->begin_ns = is_late && !ends_span ? now_ns : 0;
    if (!ends_span) return;
    messages->end = messages->calls + (uint64_t)choice_end_span(&messages->measured, paths, shortest);
    messages->n_timed = 0;
}

/* True if the path is measured.  Where ranks share cores, times say more about the scheduler than about a path. */
static bool is_measured(const struct shm *shm, size_t bytes)
{
    return bytes > SHM_EAGER_MAX && !shm->shares_cores;
}

void shm_hear_path(struct shm *shm, int local_rank, size_t bytes, enum transport_path path)
{
    if (shm->local_rank < local_rank || !is_measured(shm, bytes)) return;
    struct shm_messages *messages = messages_of(&shm->peer[local_rank], bytes);
    if (messages == NULL) return;
    messages->heard = bit(path);
    messages->follows = ROUND_MAX;
}

/* Returns the path that the message takes because the peer takes it, as a bit, or 0.  Such a message is not counted,
 * and the current round is not timed. */
static unsigned follow(struct shm_messages *messages, unsigned paths)
{
    if (messages->follows == 0 || (messages->heard & paths) == 0) return 0;
    messages->follows--;
    messages->followed++;
    messages->begin_ns = 0;
    messages->in_round = 0;
    return messages->heard;
}

/* Prepares the measurement of a class before its first message, which takes the usual path if nothing is known. */
static void start_class(struct shm_messages *messages, unsigned paths, enum transport_path usual, size_t bytes)
{
    messages->measured = (struct choice){.way = (uint8_t)usual};
    choice_start(&messages->measured, paths, choice_class(bytes), sizeof *messages);
}

/* Counts a message, and begins a round or a span. */
static void count_message(struct shm *shm, struct shm_messages *messages, unsigned paths, size_t bytes, bool blocked)
{
    int shortest = choice_short_span(choice_class(bytes));
    if (messages->calls == 0) messages->end = (uint64_t)shortest;
    if (messages->waited || messages->turn != shm->turns || messages->in_round == ROUND_MAX)
        begin_round(shm, messages, paths, shortest);
    messages->turn = shm->turns;
    messages->waited = blocked;
    messages->in_round++;
    messages->calls++;
}

enum transport_path shm_choose_path(struct shm *shm, int local_rank, const tutti_request *request, bool may_eager,
                                    bool blocked, const tutti_path_row *choice)
{
    size_t bytes = request->bytes;
    if (choice != NULL && is_possible(shm, request, may_eager, choice->path)) return (enum transport_path)choice->path;
    if (bytes > SHM_EAGER_MAX && shm_is_shared(shm, request->data, bytes)) return TRANSPORT_READ;
    unsigned paths = find_paths(shm, bytes, may_eager, blocked);
    enum transport_path path = usual_path(shm, local_rank, bytes, paths, blocked);
    struct shm_messages *messages = is_measured(shm, bytes) ? messages_of(&shm->peer[local_rank], bytes) : NULL;
    unsigned followed = messages != NULL ? follow(messages, paths) : 0;
    if (followed != 0) {
        path = (enum transport_path)__builtin_ctz(followed);
    } else if (messages != NULL) {
        if (messages->calls == 0) start_class(messages, paths, path, bytes);
        count_message(shm, messages, paths, bytes, blocked);
        int way = messages->measured.way;
        if ((paths >> way & 1) != 0) path = (enum transport_path)way;
    }
    bool has_memory = path == TRANSPORT_READ || (path == TRANSPORT_EAGER ? shm_ring_reserve(shm, local_rank, bytes)
                                                                         : shm_fifo_reserve(shm, local_rank, bytes));
    return !has_memory && (paths & bit(TRANSPORT_READ)) != 0 ? TRANSPORT_READ : path;
}

static const char *describe_path(int path)
{
    if (path == TRANSPORT_EAGER) return "eager: copied into the receiver's ring at once";
    if (path == TRANSPORT_READ) return "read: read by the receiver from the sender's memory";
    return "fifo: copied through the FIFO of the receiver's ring";
}

/* Returns the peer that got the most messages of this size class; if none got one, the one that got the most copies and
 * offers, or any peer. */
static int find_busiest(const struct shm *shm, size_t bytes)
{
    uint64_t most = 0, most_copies = 0;
    int busiest = shm->local_rank == 0 && shm->n > 1;
    for (int i = 0; i < shm->n; i++) {
        const struct shm_moves *stores = shm->peer[i].stores, *offers = shm->peer[i].offers;
        uint64_t copies = stores != NULL ? stores->count : 0, offered = offers != NULL ? offers->count : 0;
        if (copies + offered <= most_copies) continue;
        most_copies = copies + offered;
        busiest = i;
    }
    for (int i = 0; i < shm->n; i++) {
        if (shm->peer[i].messages == NULL) continue;
        const struct shm_messages *messages = &shm->peer[i].messages[choice_class(bytes)];
        uint64_t sent = messages->calls + messages->followed;
        if (sent > most) busiest = i;
        if (sent > most) most = sent;
    }
    return busiest;
}

/* Prints the path of a message to the rank, and why it is taken.  Where ranks share cores, the receiver chooses that of
 * the largest messages.  This rank's own choice, for those that it receives, is most likely the same. */
static void explain_path(struct shm *shm, int local_rank, size_t bytes, const tutti_path_row *choice, char *text)
{
    static const char *const names[CHOICE_WAYS] = {
        [TRANSPORT_EAGER] = "eager", [TRANSPORT_READ] = "read", [TRANSPORT_WRITE] = "fifo"};
    tutti_request request = {.bytes = bytes};
    bool chooses = bytes > shm->transport.eager_certain;
    if (chooses && choice != NULL && is_possible(shm, &request, true, choice->path)) {
        snprintf(text, CHOICE_TEXT, "%s", describe_path(choice->path));
        return;
    }
    unsigned paths = find_paths(shm, bytes, true, false);
    enum transport_path usual = usual_path(shm, local_rank, bytes, paths, false);
    bool measures = chooses && is_measured(shm, bytes);
    struct shm_messages *messages = measures ? messages_of(&shm->peer[local_rank], bytes) : NULL;
    if (messages == NULL) {
        if (usual == TRANSPORT_OFFER && shm_prefers_reads(shm, local_rank)) usual = TRANSPORT_READ;
        snprintf(text, CHOICE_TEXT, "%s", describe_path(chooses ? (int)usual : TRANSPORT_EAGER));
        return;
    }
    int peer = (int)shm->peer[local_rank].rank;
    if (messages->follows > 0 && (messages->heard & paths) != 0) {
        snprintf(text, CHOICE_TEXT, "%s, as rank %d does, which measures",
                 describe_path(__builtin_ctz(messages->heard)), peer);
        return;
    }
    if (messages->calls == 0) start_class(messages, find_paths(shm, bytes, true, true), usual, bytes);
    int way = messages->measured.way;
    int length = snprintf(text, CHOICE_TEXT, "%s; message %llu to rank %d", describe_path(way),
                          (unsigned long long)messages->calls, peer);
    choice_print(&messages->measured, "measured", names, text + length, CHOICE_TEXT - (size_t)length);
}

const char *shm_explain_message(struct shm *shm, size_t bytes, const tutti_path_row *choice)
{
    static _Thread_local char text[CHOICE_TEXT];
    int local_rank = find_busiest(shm, bytes);
    explain_path(shm, local_rank, bytes, choice, text);
    size_t length = strlen(text);
    if (bytes >= SHM_STORES_MIN) shm_print_stores(shm, local_rank, text + length, sizeof text - length);
    length = strlen(text);
    if (bytes > shm->transport.eager_max) shm_print_offers(shm, local_rank, text + length, sizeof text - length);
    return text;
}
