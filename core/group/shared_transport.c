#include "group/shared_transport.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/token.h"
#include "bootstrap/liveness.h"
#include "group/agreement.h"
#include "group/backends.h"
#include "group/group.h"
#include "group/group_args.h"
#include "group/group_id.h"

enum { OFFERS_MOST = 16, NUMBER_TEXT = 18, KEY_MAX = 48 };

struct shared_transport {
    LIST_ENTRY(shared_transport) link;
    struct tutti_group *root;
    uint64_t number;   /* the same on all of its ranks */
    uint64_t settings; /* see hash_settings */
    int users;         /* number of groups, and of calls that have offered it */
};

static LIST_HEAD(, shared_transport) transports;
/* Guards the list and the users.  Taken before engines' locks. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void lock_list(void)
{
    pthread_mutex_lock(&lock);
}

static void unlock_list(void)
{
    pthread_mutex_unlock(&lock);
}

static void watch_forks(void)
{
    pthread_atfork(lock_list, unlock_list, unlock_list); /* so that a child gets a consistent list */
}

/* ---- the process's transports ------------------------------------------------------------------------------- */

/* Hashes everything that a transport depends on: backends, device, and the environment, which backends read. */
static uint64_t hash_settings(const struct group_args *args)
{
    char backends[SPEC_TEXT_MAX];
    uint64_t variables = 0;
    backend_spec_print(args->names, backends, sizeof backends);
    for (char **at = environ; at != NULL && *at != NULL; at++)
        if (strncmp(*at, "TUTTI_", 6) == 0) variables += group_id_mix_text(1, *at); /* sum: the order does not matter */
    return group_id_mix(group_id_mix(group_id_mix_text(variables, backends), (uint64_t)args->device.type),
                        (uint64_t)args->device.index);
}

static bool is_healthy(struct tutti_group *root)
{
    if (engine_is_forked(root->engine)) return false; /* belongs to the parent */
    engine_lock(root->engine);
    bool healthy = root->failed == TUTTI_OK && !root->shut && !engine_is_disowned(root->engine);
    for (int i = 0; i < root->size; i++) healthy &= !root->lost[i];
    engine_unlock(root->engine);
    return healthy;
}

static void release(struct shared_transport *transport, int64_t delivery_ms)
{
    lock_list();
    bool last = --transport->users == 0;
    if (last) LIST_REMOVE(transport, link);
    unlock_list();
    if (!last) return;
    group_close(transport->root, delivery_ms);
    free(transport);
}

static struct shared_transport *add(struct tutti_group *root, uint64_t number, uint64_t settings)
{
    struct shared_transport *transport = malloc(sizeof *transport);
    if (transport == NULL) return NULL;
    *transport = (struct shared_transport){.root = root, .number = number, .settings = settings, .users = 1};
    lock_list();
    LIST_INSERT_HEAD(&transports, transport, link);
    unlock_list();
    return transport;
}

/* ---- choice of a transport --------------------------------------------------------------------------------------- */

/* State of the ranks' search for a transport that all of them have. */
struct search {
    tutti_store *store;
    int size;
    struct shared_transport *offer[OFFERS_MOST]; /* offered by this rank; each is kept open meanwhile */
    int n_offers;
    char offers_key[KEY_MAX], processes_key[KEY_MAX];
    struct liveness_list processes;
};

static void find_offers(struct search *search, const struct group_args *args, uint64_t settings)
{
    struct shared_transport *transport;
    lock_list();
    LIST_FOREACH(transport, &transports, link)
    {
        const struct tutti_group *root = transport->root;
        bool fits = root->rank == args->rank && root->size == args->size && transport->settings == settings;
        if (!fits || search->n_offers == OFFERS_MOST || !is_healthy(transport->root)) continue;
        transport->users++;
        search->offer[search->n_offers++] = transport;
    }
    unlock_list();
}

/* The line begins with the rank: a store may lose one of two equal values (see tutti_store_calls.append). */
static int publish_offers(const struct search *search, int rank)
{
    char line[16 + OFFERS_MOST * NUMBER_TEXT];
    if (search->n_offers == 0) return TUTTI_OK;
    size_t used = (size_t)snprintf(line, sizeof line, "\n%d", rank);
    for (int i = 0; i < search->n_offers; i++)
        used += (size_t)snprintf(line + used, sizeof line - used, " %016" PRIx64, search->offer[i]->number);
    return tutti_store_append(search->store, search->offers_key, line, used);
}

static int count_offers(const char *text, uint64_t number)
{
    char word[NUMBER_TEXT];
    int n = 0;
    snprintf(word, sizeof word, " %016" PRIx64, number);
    for (const char *at = text; (at = strstr(at, word)) != NULL; at += NUMBER_TEXT - 1) n++;
    return n;
}

/* Finds a number that all ranks have offered, this rank included.  Sets it to 0 if there is none. */
static int find_common(const struct search *search, uint64_t *number)
{
    tutti_bytes offers = {0};
    *number = 0;
    if (search->n_offers == 0) return TUTTI_OK;
    int status = tutti_store_multi_get(search->store, (const char *[]){search->offers_key}, 1, &offers, 0);
    if (status != TUTTI_OK) return status;
    char *text = strndup(offers.data, offers.bytes);
    tutti_bytes_free(&offers, 1);
    if (text == NULL) return error_set(TUTTI_ERR_NO_MEMORY, "out of memory for the offers of %d ranks", search->size);
    for (int i = 0; i < search->n_offers && *number == 0; i++)
        if (count_offers(text, search->offer[i]->number) == search->size) *number = search->offer[i]->number;
    free(text);
    return TUTTI_OK;
}

/* Writes "TRANSPORT GROUP", two numbers.  TRANSPORT is 0 if a new one must be opened. */
static int decide(void *context, char text[AGREEMENT_TEXT])
{
    uint64_t transport = 0, group = 0;
    int status = find_common(context, &transport);
    if (status != TUTTI_OK) return status;
    token_random(&group, sizeof group);
    snprintf(text, AGREEMENT_TEXT, "%" PRIx64 " %" PRIx64, transport, group);
    return TUTTI_OK;
}

static int check_processes(void *context)
{
    struct search *search = context;
    return liveness_check_list(&search->processes, search->store, search->processes_key, search->size);
}

/* Takes part in the search.  Sets *transport to the number of a transport that all ranks have, or to 0, and *group to
 * the new group's id. */
static int run_search(struct search *search, const struct group_args *args, uint64_t *transport, uint64_t *group)
{
    int64_t n_arrived = 0;
    int status = token_init();
    if (status == TUTTI_OK) status = tutti_store_add(search->store, "created", 1, &n_arrived);
    if (status != TUTTI_OK) return status;
    struct agreement agreement = {
        .store = search->store,
        .turn = (n_arrived - 1) / args->size,
        .name = "transport",
        .what = "cannot make the group",
        .rank = args->rank,
        .size = args->size,
        .timeout_ms = args->timeout_ms,
        .check = check_processes,
        .decide = decide,
        .context = search,
    };
    snprintf(search->offers_key, sizeof search->offers_key, "transports/%" PRIi64, agreement.turn);
    snprintf(search->processes_key, sizeof search->processes_key, "creators/%" PRIi64, agreement.turn);
    status = liveness_append(search->store, search->processes_key, args->rank);
    if (status == TUTTI_OK) status = publish_offers(search, args->rank);
    status = agreement_reach(&agreement, status);
    liveness_list_free(&search->processes);
    if (status != TUTTI_OK) return status;
    if (sscanf(agreement.decided, "%" SCNx64 " %" SCNx64, transport, group) != 2)
        return error_set(TUTTI_ERR_STORE, "cannot make the group: the store has \"%s\" instead of two numbers",
                         agreement.decided);
    return TUTTI_OK;
}

/* ---- groups on a transport --------------------------------------------------------------------------------------- */

/* Opens a new transport.  If its backends cannot share one (opening an MPI subgroup blocks for all its ranks), sets
 * *group to the group itself and *transport to NULL. */
static int open_new(const struct group_args *args, uint64_t number, uint64_t settings,
                    struct shared_transport **transport, struct tutti_group **group)
{
    struct group_args first = *args;
    struct tutti_group *root = NULL;
    first.is_shared = backends_may_share(args->names, args->hooks->host);
    int status = group_open(&first, &root);
    if (status != TUTTI_OK) return status;
    bool can_share = backends_can_share(root);
    engine_lock(root->engine); /* a thread that exits reads it */
    root->is_shared = can_share;
    engine_unlock(root->engine);
    if (!can_share) {
        *group = root;
        return TUTTI_OK;
    }
    *transport = add(root, number, settings);
    if (*transport != NULL) return TUTTI_OK;
    group_close(root, 0);
    return error_set(TUTTI_ERR_NO_MEMORY, "out of memory for group %s", args->name);
}

static int open_subgroup(const struct group_args *args, struct shared_transport *transport, uint64_t id,
                         struct tutti_group **group)
{
    char text[ERROR_TEXT_MAX];
    struct group_args subgroup = *args;
    subgroup.parent = transport->root;
    subgroup.id = subgroup.key = id;
    int status = group_open(&subgroup, group);
    if (status == TUTTI_OK) {
        (*group)->transport = transport;
        return TUTTI_OK;
    }
    snprintf(text, sizeof text, "%s", error_text()); /* copied, because release may overwrite it */
    release(transport, 0);
    return error_set(status, "%s", text);
}

/* Keeps the transport of this number and releases the others. */
static struct shared_transport *choose(struct search *search, uint64_t number)
{
    struct shared_transport *chosen = NULL;
    for (int i = 0; i < search->n_offers; i++) {
        if (search->offer[i]->number == number)
            chosen = search->offer[i];
        else
            release(search->offer[i], TUTTI_DEFAULT_TIMEOUT);
    }
    return chosen;
}

int shared_transport_open_group(const struct group_args *args, struct tutti_group **group)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    if (args->size == 1) return group_open(args, group);
    pthread_once(&once, watch_forks);
    struct search search = {.size = args->size};
    uint64_t number = 0, id = 0, settings = hash_settings(args);
    int status = tutti_store_prefix(args->store, "tutti", &search.store);
    if (status != TUTTI_OK) return status;
    find_offers(&search, args, settings);
    status = run_search(&search, args, &number, &id);
    char text[ERROR_TEXT_MAX];
    snprintf(text, sizeof text, "%s", error_text()); /* copied, because release may overwrite it */
    struct shared_transport *transport = choose(&search, status == TUTTI_OK ? number : 0);
    tutti_store_free(search.store);
    if (status != TUTTI_OK) return error_set(status, "%s", text);
    if (number != 0 && transport == NULL)
        return error_set(TUTTI_ERR_STORE, "cannot make the group: no rank offered transport %016" PRIx64, number);
    if (transport == NULL) status = open_new(args, id, settings, &transport, group);
    return status != TUTTI_OK || transport == NULL ? status : open_subgroup(args, transport, id, group);
}

void shared_transport_end_group(struct tutti_group *group, int64_t delivery_ms)
{
    struct shared_transport *transport = group->transport;
    engine_lock(group->engine);
    bool failed = group->failed != TUTTI_OK;
    group->transport = NULL;
    engine_unlock(group->engine);
    group_end(group, delivery_ms);
    if (transport != NULL) release(transport, failed ? 0 : delivery_ms); /* after a failure, peers may not be there */
}

void shared_transport_close_group(struct tutti_group *group, int64_t delivery_ms)
{
    if (engine_is_forked(group->engine)) return; /* everything belongs to the parent */
    shared_transport_end_group(group, delivery_ms);
    group_drop(group);
}
