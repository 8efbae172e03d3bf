#include "tcp/net/iface.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- items --------------------------------------------------------------------------------------------------- */

enum item_kind { ITEM_NAME, ITEM_EXACT_NAME, ITEM_NETWORK };

/* A part of the value between commas. */
struct item {
    const char *text;
    int length;
    enum item_kind kind;
    uint32_t family; /* of an address or a network in CIDR notation */
    uint8_t ip[16];
    int bits;
};

static bool parse_network(struct item *item)
{
    char copy[IFACE_TEXT + 8], *end;
    if ((size_t)item->length >= sizeof copy) return false;
    memcpy(copy, item->text, (size_t)item->length);
    copy[item->length] = '\0';
    char *slash = strchr(copy, '/');
    if (slash != NULL) *slash = '\0';
    item->family = inet_pton(AF_INET, copy, item->ip) == 1 ? 4 : inet_pton(AF_INET6, copy, item->ip) == 1 ? 6 : 0;
    int most = item->family == 4 ? 32 : 128;
    item->bits = most;
    if (item->family == 0 || slash == NULL) return item->family != 0;
    long bits = strtol(slash + 1, &end, 10);
    item->bits = (int)bits;
    return end != slash + 1 && *end == '\0' && bits >= 0 && bits <= most;
}

/* Reads the item at *at and moves *at behind it.  Returns false at the end. */
static bool next_item(const char **at, struct item *item)
{
    if (*at == NULL) return false;
    const char *comma = strchr(*at, ',');
    *item = (struct item){.text = *at, .length = (int)(comma != NULL ? (size_t)(comma - *at) : strlen(*at))};
    *at = comma != NULL ? comma + 1 : NULL;
    if (item->text[0] == '=')
        item->kind = ITEM_EXACT_NAME;
    else
        item->kind = parse_network(item) ? ITEM_NETWORK : ITEM_NAME;
    return true;
}

bool iface_in_network(const struct iface *iface, uint32_t family, const uint8_t *ip, int bits)
{
    if (iface->family != family) return false;
    int whole = bits / 8, rest = bits % 8;
    if (memcmp(iface->ip, ip, (size_t)whole) != 0) return false;
    return rest == 0 || (iface->ip[whole] ^ ip[whole]) >> (8 - rest) == 0;
}

static bool has_name(const struct iface *iface, const char *name, int length, bool prefix)
{
    if (length == 0 || strncmp(iface->name, name, (size_t)length) != 0) return false;
    return prefix || strlen(iface->name) == (size_t)length;
}

static bool matches(const struct item *item, const struct iface *iface, bool prefix)
{
    if (item->kind == ITEM_NETWORK) return iface_in_network(iface, item->family, item->ip, item->bits);
    if (item->kind == ITEM_EXACT_NAME) return has_name(iface, item->text + 1, item->length - 1, false);
    return has_name(iface, item->text, item->length, prefix);
}

/* ---- choosing ------------------------------------------------------------------------------------------------ */

/* Returns a rank of preference; lower is better. */
static int rate(const struct iface *iface)
{
    return (iface->family == 6) + 2 * iface->is_loopback;
}

const struct iface *iface_best(const struct iface_list *list, bool loopback)
{
    const struct iface *best = NULL;
    for (int i = 0; i < list->n; i++) {
        const struct iface *iface = &list->at[i];
        if ((loopback || !iface->is_loopback) && (best == NULL || rate(iface) < rate(best))) best = iface;
    }
    return best;
}

/* The interfaces chosen so far. */
struct choice {
    const struct iface **chosen;
    int most, n;
};

static bool is_chosen(const struct choice *choice, const struct iface *iface)
{
    for (int i = 0; i < choice->n && i < choice->most; i++)
        if (strcmp(choice->chosen[i]->name, iface->name) == 0) return true;
    return false;
}

static void choose(struct choice *choice, const struct iface *iface)
{
    if (is_chosen(choice, iface)) return;
    if (choice->n < choice->most) choice->chosen[choice->n] = iface;
    choice->n++;
}

/* Returns the preferred address that the item matches.  All rails have the IP version of the first one. */
static const struct iface *find_best(const struct iface_list *list, const struct item *item,
                                     const struct choice *choice)
{
    const struct iface *best = NULL;
    for (int i = 0; i < list->n; i++) {
        const struct iface *iface = &list->at[i];
        if (!matches(item, iface, false) || (choice->n > 0 && iface->family != choice->chosen[0]->family)) continue;
        if (best == NULL || rate(iface) < rate(best)) best = iface;
    }
    return best;
}

/* True if an address of the list matches, of any IP version. */
static bool matches_any(const struct iface_list *list, const struct item *item)
{
    for (int i = 0; i < list->n; i++)
        if (matches(item, &list->at[i], false)) return true;
    return false;
}

/* Chooses every interface whose name begins with the item, unless one has exactly this name.  Returns false if there is
 * none. */
static bool choose_by_prefix(const struct iface_list *list, const struct item *item, struct choice *choice)
{
    bool found = false;
    if (item->kind != ITEM_NAME || matches_any(list, item)) return false;
    for (int i = 0; i < list->n; i++) {
        const struct iface *iface = &list->at[i];
        if (!matches(item, iface, true)) continue;
        struct item whole = {.text = iface->name, .length = (int)strlen(iface->name), .kind = ITEM_NAME};
        const struct iface *best = find_best(list, &whole, choice);
        if (best == NULL) continue;
        choose(choice, best);
        found = true;
    }
    return found;
}

int iface_include(const struct iface_list *list, const char *wanted, const struct iface **chosen, int most,
                  const char **unknown, int *length)
{
    struct choice choice = {.chosen = chosen, .most = most};
    struct item item;
    while (next_item(&wanted, &item)) {
        const struct iface *best = find_best(list, &item, &choice);
        if (best != NULL) {
            choose(&choice, best);
        } else if (!choose_by_prefix(list, &item, &choice)) {
            *unknown = item.text;
            *length = item.length;
            return 0;
        }
    }
    return choice.n;
}

void iface_exclude(struct iface_list *list, const char *unwanted)
{
    struct item item;
    while (next_item(&unwanted, &item)) {
        int n = 0;
        for (int i = 0; i < list->n; i++)
            if (!matches(&item, &list->at[i], true)) list->at[n++] = list->at[i];
        list->n = n;
    }
}

int iface_append_others(const struct iface_list *list, const struct iface **chosen, int most)
{
    struct choice choice = {.chosen = chosen, .most = most, .n = 1};
    for (int i = 0; i < list->n; i++) {
        const struct iface *iface = &list->at[i];
        if (iface->is_loopback || iface->family != chosen[0]->family) continue;
        choose(&choice, iface);
    }
    return choice.n;
}

void iface_print(const struct iface *const *iface, int n, char *out, size_t bytes)
{
    size_t used = 0;
    out[0] = '\0';
    for (int i = 0; i < n && used < bytes; i++) {
        int more = snprintf(out + used, bytes - used, "%s%s %s", i > 0 ? ", " : "", iface[i]->name, iface[i]->text);
        used += more > 0 ? (size_t)more : 0;
    }
}
