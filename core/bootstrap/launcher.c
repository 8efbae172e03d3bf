/* The exchanged text is "host port token".  Only processes of the launcher can read the exchange, so it may carry the
 * job token.  The store then admits no one else, even at an address of the network. */
#include "bootstrap/launcher.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/log.h"
#include "base/token.h"
#include "bootstrap/launcher_exchange.h"

enum { TEXT_MAX = RENDEZVOUS_HOST_MAX + 2 * TOKEN_BYTES + 32 };

static const struct launcher_exchange *find_exchange(void)
{
    if (launcher_torchrun.present()) return &launcher_torchrun; /* srun may have started torchrun */
    if (launcher_pmix.present() && !launcher_pmi1_is_last()) return &launcher_pmix;
    return launcher_pmi1.present() ? &launcher_pmi1 : NULL;
}

bool launcher_present(void)
{
    return find_exchange() != NULL;
}

static void choose_address(const struct rendezvous_spec *spec, char host[RENDEZVOUS_HOST_MAX])
{
    bool one_host = spec->local_world_size == spec->world_size;
    if (one_host || tutti_store_own_address(host, RENDEZVOUS_HOST_MAX) != TUTTI_OK) strcpy(host, "127.0.0.1");
}

/* ---- rank 0 and others ----------------------------------------------------------------------------------------- */

static int start_store(struct rendezvous_spec *spec, int64_t timeout_ms, char text[TEXT_MAX], tutti_store **store)
{
    uint8_t token[TOKEN_BYTES];
    char digits[2 * TOKEN_BYTES + 1] = "-"; /* "-" if every rank has the token */
    bool present = false;
    int status = token_get(token, &present);
    if (status != TUTTI_OK) return status;
    if (!present) {
        token_random(token, sizeof token);
        token_adopt(token);
        for (int i = 0; i < TOKEN_BYTES; i++) snprintf(digits + 2 * i, 3, "%02x", token[i]);
    }
    token_wipe(token, sizeof token);
    tutti_store_opts opts = {.timeout_ms = timeout_ms, .server = true, .world_size = spec->world_size};
    choose_address(spec, spec->host);
    status = tutti_store_tcp(spec->host, 0, &opts, store);
    if (status != TUTTI_OK) return status;
    spec->port = tutti_store_port(*store);
    snprintf(text, TEXT_MAX, "%s %u %s", spec->host, spec->port, digits);
    token_wipe(digits, sizeof digits);
    return TUTTI_OK;
}

static int join_store(struct rendezvous_spec *spec, int64_t timeout_ms, const char *text, tutti_store **store)
{
    unsigned port = 0;
    char digits[2 * TOKEN_BYTES + 1] = "";
    uint8_t token[TOKEN_BYTES];
    _Static_assert(RENDEZVOUS_HOST_MAX == 256 && TOKEN_BYTES == 32, "sscanf's widths below");
    if (sscanf(text, "%255s %u %64s", spec->host, &port, digits) != 3 || port == 0 || port > 65535)
        return error_set(TUTTI_ERR_STORE, "rank 0 failed to start the store: %.400s", text);
    spec->port = (uint16_t)port;
    if (strcmp(digits, "-") != 0) {
        for (int i = 0; i < TOKEN_BYTES; i++) {
            unsigned byte = 0;
            sscanf(digits + 2 * i, "%2x", &byte);
            token[i] = (uint8_t)byte;
        }
        token_adopt(token);
        token_wipe(token, sizeof token);
    }
    token_wipe(digits, sizeof digits);
    tutti_store_opts opts = {.timeout_ms = timeout_ms};
    int status = tutti_store_tcp(spec->host, spec->port, &opts, store);
    return status == TUTTI_ERR_STORE ? error_prefix(status, "rank 0's store cannot be reached") : status;
}

int launcher_open(struct rendezvous_spec *spec, int64_t timeout_ms, tutti_store **store)
{
    static unsigned n_opened; /* all ranks create and destroy the default group in the same order */
    const struct launcher_exchange *exchange = find_exchange();
    char key[40], text[TEXT_MAX] = "", why[ERROR_TEXT_MAX];
    int status = TUTTI_OK;
    snprintf(key, sizeof key, "tutti-store-%u", __atomic_fetch_add(&n_opened, 1, __ATOMIC_RELAXED));
    if (spec->rank == 0) {
        status = start_store(spec, timeout_ms, text, store);
        snprintf(why, sizeof why, "%s", error_text());
        if (status != TUTTI_OK) snprintf(text, sizeof text, "! 0 %.200s", why);
    }
    int shared = exchange->share(spec->rank, key, text, sizeof text, timeout_ms);
    if (status != TUTTI_OK) return error_set(status, "%s", why);
    if (shared == TUTTI_OK && spec->rank > 0) shared = join_store(spec, timeout_ms, text, store);
    token_wipe(text, sizeof text);
    if (shared != TUTTI_OK && spec->rank == 0) {
        snprintf(why, sizeof why, "%s", error_text());
        tutti_store_free(*store);
        *store = NULL;
        return error_set(shared, "%s", why);
    }
    if (shared == TUTTI_OK)
        log_write(LOG_INFO, LOG_INIT, "the store's address was exchanged through %s", exchange->name);
    return shared;
}
