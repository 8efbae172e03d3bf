/* Text that people write, and text that ranks write: init methods, backend names, TUTTI_ALGO, TUTTI_TUNING, control
 * messages, fingerprints. */
#include "base/error.h"
#include "bootstrap/rendezvous_spec.h"
#include "coll/coll.h"
#include "coll/tuning.h"
#include "fuzz.h"
#include "op/control_message.h"
#include "op/fingerprint.h"
#include "plugin/backend_spec.h"
#include "targets.h"

void fuzz_control_message(const uint8_t *in, size_t bytes)
{
    struct control_message message;
    uint8_t out[CONTROL_BYTES];
    if (!control_message_parse(in, bytes, &message)) return;
    if (message.type == CONTROL_HERE || message.type == CONTROL_LEFT) {
        FUZZ_CHECK(control_message_encode(&message, out) == bytes && memcmp(in, out, bytes) == 0);
        return;
    }
    size_t length = strlen(message.text), ranks = (size_t)message.given_up.n * sizeof(uint32_t);
    for (size_t i = 0; i < length; i++) FUZZ_CHECK((uint8_t)message.text[i] >= 0x20 && message.text[i] != 0x7f);
    FUZZ_CHECK(control_message_encode(&message, out) == bytes && length + ranks + CONTROL_HEAD == bytes);
    FUZZ_CHECK(memcmp(in, out, CONTROL_HEAD) == 0);
    for (size_t i = CONTROL_HEAD; i < bytes; i++) FUZZ_CHECK(in[i] == out[i] || out[i] == '?');
}

/* Peers send fingerprints, and error messages describe them.  Any number must have a description. */
void fuzz_fingerprint(const uint8_t *in, size_t bytes)
{
    struct fuzz_bytes from = {in, in + bytes};
    uint64_t fingerprint = fuzz_take(&from, 8);
    size_t capacity = 1 + (fuzz_take(&from, 1) & 0xff);
    char *text = malloc(capacity);
    FUZZ_CHECK(text != NULL);
    fingerprint_describe(fingerprint, text, capacity);
    FUZZ_CHECK(strnlen(text, capacity) < capacity);
    free(text);
}

/* A parsed URL, written as a URL, parses to the same. */
void fuzz_init_method(const uint8_t *in, size_t bytes)
{
    char *url = fuzz_text(in, bytes), again[RENDEZVOUS_PATH_MAX + 128];
    static struct rendezvous_spec place, other;
    place = other = (struct rendezvous_spec){.rank = -1, .world_size = -1, .local_rank = -1, .local_world_size = -1};
    int status = rendezvous_spec_from_url(url, &place), used = 0;
    FUZZ_CHECK(status == TUTTI_OK || (status == TUTTI_ERR_INVALID_ARGUMENT && error_text()[0] != '\0'));
    free(url);
    if (status != TUTTI_OK) return;
    FUZZ_CHECK(place.rank >= -1 && (place.world_size == -1 || place.world_size > 0));
    if (place.kind == RENDEZVOUS_TCP)
        used = snprintf(again, sizeof again, "tcp://%s%s%s:%d", strchr(place.host, ':') != NULL ? "[" : "", place.host,
                        strchr(place.host, ':') != NULL ? "]" : "", place.port);
    else
        used = snprintf(again, sizeof again, "%s%s", place.kind == RENDEZVOUS_FILE ? "file://" : "", place.path);
    if (place.rank >= 0) used += snprintf(again + used, sizeof again - (size_t)used, "?rank=%d", place.rank);
    if (place.world_size >= 0)
        snprintf(again + used, sizeof again - (size_t)used, "%cworld_size=%d", place.rank >= 0 ? '&' : '?',
                 place.world_size);
    if (strchr(place.host, '[') != NULL) return; /* not the name of a host, but it can be written */
    FUZZ_CHECK(rendezvous_spec_from_url(again, &other) == TUTTI_OK);
    FUZZ_CHECK(other.kind == place.kind && other.rank == place.rank && other.world_size == place.world_size);
    FUZZ_CHECK(other.port == place.port && strcmp(other.host, place.host) == 0 && strcmp(other.path, place.path) == 0);
}

static void write_names(const struct backend_spec *names, char *text)
{
    static const char *const device[2] = {"cpu:", "cuda:"};
    text[0] = '\0';
    for (int d = 0; d < 2; d++)
        for (int i = 0; i < names->n[d]; i++) {
            if (i == 0 && names->by_device) strcat(strcat(text, *text != '\0' ? "," : ""), device[d]);
            strcat(strcat(text, i > 0 ? "|" : ""), names->name[d][i]);
        }
}

void fuzz_backend_names(const uint8_t *in, size_t bytes)
{
    static struct backend_spec names, other;
    static char again[2 * SPEC_TEXT_MAX];
    char *text = fuzz_text(in, bytes);
    int status = backend_spec_parse(text, &names);
    free(text);
    FUZZ_CHECK(status == TUTTI_OK || (status == TUTTI_ERR_INVALID_ARGUMENT && error_text()[0] != '\0'));
    if (status != TUTTI_OK || names.automatic) return;
    FUZZ_CHECK(names.n[0] + names.n[1] > 0 && names.n[0] <= SPEC_MOST && names.n[1] <= SPEC_MOST);
    write_names(&names, again);
    if (strcmp(again, "auto") == 0) return;
    FUZZ_CHECK(backend_spec_parse(again, &other) == TUTTI_OK);
    FUZZ_CHECK(memcmp(&names, &other, sizeof names) == 0);
}

void fuzz_algo(const uint8_t *in, size_t bytes)
{
    struct fuzz_bytes from = {in, in + bytes};
    int64_t counts[16] = {0};
    struct coll_args args = {.kind = (tutti_kind)(fuzz_take(&from, 1) % (TUTTI_BARRIER + 1)), .element = 4};
    args.size = 1 + (int)(fuzz_take(&from, 1) & 15);
    args.count = (int64_t)fuzz_take(&from, 6);
    args.even = (fuzz_take(&from, 1) & 1) != 0;
    args.in = args.out = (struct coll_blocks){.list = true, .count = counts};
    char *text = fuzz_text(from.at, (size_t)(from.end - from.at));
    const struct coll_algorithm *chosen = coll_select(&args, &(struct coll_override){.names = text}, NULL);
    if (chosen == NULL)
        FUZZ_CHECK(strstr(error_text(), "TUTTI_ALGO") != NULL);
    else
        FUZZ_CHECK(chosen->kind == args.kind &&
                   coll_select(&args, &(struct coll_override){.names = chosen->name}, NULL) == chosen);
    free(text);
}

/* The rows of an accepted file belong to its operations.  A file is accepted for every group or for none. */
void fuzz_tuning(const uint8_t *in, size_t bytes)
{
    struct tuning tuning, other;
    char *text = fuzz_text(in, bytes);
    int status = tuning_parse(text, "tcp", 4, 1, NULL, &tuning);
    FUZZ_CHECK(status == TUTTI_OK || (status == TUTTI_ERR_INVALID_ARGUMENT && strstr(error_text(), "line ") != NULL));
    FUZZ_CHECK(status == TUTTI_OK || (tuning.rows == NULL && tuning.n == 0));
    for (int i = 0; i < tuning.n; i++)
        FUZZ_CHECK(tuning.rows[i].algorithm->kind == tuning.rows[i].kind && tuning.rows[i].max_bytes >= 0);
    /* each group refuses unknown algorithms in its own backend's rows alone */
    int elsewhere = tuning_parse(text, "other", 9, 9, NULL, &other);
    FUZZ_CHECK(elsewhere == status || strstr(text, elsewhere == TUTTI_OK ? "tcp" : "other") != NULL);
    tuning_free(&tuning);
    tuning_free(&other);
    free(text);
}
