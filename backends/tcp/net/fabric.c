/* Opens and closes a fabric. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "portable/sockets.h"
#include "tcp/net/fabric_impl.h"

enum { DESCRIPTORS = 8 };

bool fabric_lacks_descriptors(int n)
{
    int fd[DESCRIPTORS], got = 0;
    while (got < n && (fd[got] = sockets_open(AF_UNIX, SOCK_DGRAM, true)) >= 0) got++;
    bool lacks = got < n && errno == EMFILE;
    while (got > 0) close(fd[--got]);
    return lacks;
}

/* Returns the error's text.  The provider reports EIO even if a system call failed for lack of a descriptor.  It has
 * released its own descriptors since, so there may be a few. */
const char *fabric_reason(int error)
{
    if (error < 0) error = -error;
    return fabric_library.strerror(error == FI_EIO && fabric_lacks_descriptors(DESCRIPTORS) ? FI_EMFILE : error);
}

int fabric_fail(struct fabric *fabric, const char *what, int error)
{
    return fabric->config.host->error(TUTTI_ERR_BACKEND, "libfabric: %s failed: %s", what, fabric_reason(error));
}

/* ---- opening ------------------------------------------------------------------------------------------------- */

/* Finds a provider.  Prefers connected endpoints: those of the tcp provider are faster than the datagrams layered on
 * it, report a peer's end, and carry a handshake (docs/tcp-backend.md).  Uses reliable datagrams if the user names a
 * provider that has nothing else. */
static int find_provider(struct fabric *fabric)
{
    const struct iface *own = &fabric->rails.own[0];
    const char *wanted = fabric->config.host->env("TUTTI_FABRIC_PROVIDER");
    fabric->kind = &msg_kind;
    int status = msg_kind.find(fabric, wanted != NULL ? wanted : "tcp", own);
    if (status != 0 && wanted != NULL) {
        fabric->kind = &rdm_kind;
        status = rdm_kind.find(fabric, wanted, own);
    }
    if (status == 0) return TUTTI_OK;
    fabric->kind = NULL;
    if (wanted != NULL)
        return fabric->config.host->error(TUTTI_ERR_BACKEND,
                                          "TUTTI_FABRIC_PROVIDER=%.64s: libfabric has no such provider with connected "
                                          "or reliable datagram endpoints on %s (%s); `fi_info` lists the providers",
                                          wanted, own->text, fabric_library.strerror(-status));
    return fabric->config.host->error(
        TUTTI_ERR_BACKEND, "libfabric's tcp provider cannot use the address %s: %s; TUTTI_IFACE chooses another one",
        own->text, fabric_library.strerror(-status));
}

static int read_limits(struct fabric *fabric)
{
    enum { SILENT_MS = 5000, MIN_MS = 1000, MAX_MS = 100000 };
    const char *text = fabric->config.host->env("TUTTI_SILENT_MS");
    char *end = NULL;
    long ms = text != NULL ? strtol(text, &end, 10) : SILENT_MS;
    if (text != NULL && (end == text || *end != '\0' || ms < MIN_MS || ms > MAX_MS))
        return fabric->config.host->error(TUTTI_ERR_INVALID_ARGUMENT,
                                          "TUTTI_SILENT_MS is \"%.40s\"; set it to a number from %d to %d", text,
                                          MIN_MS, MAX_MS);
    fabric->silent_ms = (int)ms;
    return TUTTI_OK;
}

static void init(struct fabric *fabric)
{
    TAILQ_INIT(&fabric->rdm.spare);
    TAILQ_INIT(&fabric->rdm.receives);
    TAILQ_INIT(&fabric->rdm.unposted);
    TAILQ_INIT(&fabric->rdm.readings);
    TAILQ_INIT(&fabric->rdm.reader.spare);
    fabric->msg.timer_fd = fabric->rdm.timer_fd = fabric->rdm.listener = fabric->rdm.reader.cq_fd = -1;
    fabric->probes.partner = -1;
    STAILQ_INIT(&fabric->spare[0]);
    STAILQ_INIT(&fabric->spare[1]);
    STAILQ_INIT(&fabric->all_links);
}

static struct fabric *new_fabric(const struct transport_config *config)
{
    size_t n = (size_t)config->world_size;
    struct fabric *fabric = calloc(1, sizeof *fabric + n * sizeof *fabric->link);
    struct wire_address *addresses = calloc(n, sizeof *addresses);
    if (fabric == NULL || addresses == NULL) {
        free(fabric);
        free(addresses);
        config->host->error(TUTTI_ERR_NO_MEMORY, "no memory for the addresses of %d ranks", config->world_size);
        return NULL;
    }
    fabric->config = *config;
    fabric->addresses = addresses;
    init(fabric);
    return fabric;
}

/* Uses the first interface alone if the provider cannot use several: datagram endpoints are opened on one, and other
 * providers than these bind a domain to a device. */
static void use_one_rail_if_needed(struct fabric *fabric)
{
    const char *provider = fabric->info->fabric_attr->prov_name;
    bool can = fabric->kind == &msg_kind && (strcmp(provider, "tcp") == 0 || strcmp(provider, "net") == 0);
    if (can || fabric->rails.n == 1) return;
    TUTTI_LOG_AS(fabric->config.host, "net", 1,
                 "tcp: libfabric's provider %s uses one interface, so this rank uses %s alone", provider,
                 fabric->rails.own[0].name);
    fabric->rails.n = 1;
}

static int open_kind(struct fabric *fabric)
{
    int status = fabric_library.fabric(fabric->info->fabric_attr, &fabric->fabric, NULL);
    if (status != 0) return fabric_fail(fabric, "fi_fabric", status);
    fabric->config.host->random(fabric->address.nonce, HANDSHAKE_NONCE);
    fabric->address.host = fabric_host_id();
    use_one_rail_if_needed(fabric);
    return fabric->kind->open(fabric);
}

static void log_rails(const struct fabric *fabric)
{
    char text[256];
    if (fabric->rails.n == 1) return;
    fabric_print_rails(&fabric->rails, text, sizeof text);
    TUTTI_LOG_AS(fabric->config.host, "net", 2, "tcp: rank %d uses %d interfaces: %s", fabric->config.rank,
                 fabric->rails.n, text);
}

int fabric_open(const struct transport_config *config, struct fabric **out)
{
    struct fabric *fabric = new_fabric(config);
    if (fabric == NULL) return TUTTI_ERR_NO_MEMORY;
    int status = fabric_load(config->host);
    if (status == TUTTI_OK) status = read_limits(fabric);
    if (status == TUTTI_OK) status = fabric_choose_rails(config, &fabric->rails);
    if (status == TUTTI_OK) status = find_provider(fabric);
    if (status == TUTTI_OK) status = open_kind(fabric);
    if (status == TUTTI_OK) status = fabric_publish(fabric);
    if (status != TUTTI_OK) {
        fabric_close(fabric);
        return status;
    }
    TUTTI_LOG_AS(config->host, "net", 2, "tcp: rank %d listens on %s, provider %s", config->rank, fabric->address_text,
                 fabric->info->fabric_attr->prov_name);
    log_rails(fabric);
    *out = fabric;
    return TUTTI_OK;
}

void fabric_close_fid(struct fid *fid)
{
    if (fid != NULL) fi_close(fid);
}

void fabric_close(struct fabric *fabric)
{
    if (fabric == NULL) return;
    fabric->closing = true;
    struct fabric_link *link;
    STAILQ_FOREACH(link, &fabric->all_links, entry)
    {
        if (link->state != FABRIC_IDLE) fabric_drop(fabric, link->rank, "closed", false);
    }
    if (fabric->kind != NULL) fabric->kind->close(fabric);
    FABRIC_CLOSE(fabric->fabric);
    if (fabric->info != NULL) fabric_library.freeinfo(fabric->info);
    fabric_free_links(fabric);
    fabric_free_buffers(&fabric->spare[0]);
    fabric_free_buffers(&fabric->spare[1]);
    free(fabric->addresses);
    free(fabric);
}
