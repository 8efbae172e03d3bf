/* tcp://host:port?rank=R&world_size=N and file:///path?rank=R&world_size=N */
#include <stdio.h>
#include <string.h>

#include "base/env.h"
#include "base/error.h"
#include "bootstrap/rendezvous_place.h"

static int url_error(const char *url, const char *what)
{
    return error_set(TUTTI_ERR_INVALID_ARGUMENT, "init_method \"%.200s\": %s", url, what);
}

/* One "name=value", n bytes long. */
static int url_parameter(const char *url, const char *text, size_t n, struct place *place)
{
    char copy[64], what[sizeof copy + 16];
    int64_t value;
    if (n >= sizeof copy) return url_error(url, "a parameter is too long; rank and world_size are the only ones");
    memcpy(copy, text, n);
    copy[n] = '\0';
    char *equals = strchr(copy, '=');
    if (equals != NULL) *equals = '\0';
    bool rank = strcmp(copy, "rank") == 0, size = strcmp(copy, "world_size") == 0;
    if (!rank && !size)
        return error_set(TUTTI_ERR_INVALID_ARGUMENT,
                         "init_method \"%.200s\": parameter \"%s\" is unknown; rank and world_size are the only ones",
                         url, copy);
    int *field = rank ? &place->rank : &place->world_size;
    snprintf(what, sizeof what, "init_method's %s", copy);
    int status = env_parse_int(what, equals == NULL ? "" : equals + 1, size, INT32_MAX, &value);
    if (status != TUTTI_OK) return status;
    if (*field >= 0 && *field != value)
        return error_set(TUTTI_ERR_INVALID_ARGUMENT, "init_method \"%.200s\": %s is given twice", url, copy);
    *field = (int)value;
    return TUTTI_OK;
}

static int url_parameters(const char *url, const char *text, struct place *place)
{
    int status = TUTTI_OK;
    while (status == TUTTI_OK && *text != '\0') {
        size_t n = strcspn(text, "&");
        status = url_parameter(url, text, n, place);
        text += n + (text[n] == '&');
    }
    return status;
}

/* host:port or [ipv6]:port, n bytes long. */
static int url_authority(const char *url, const char *text, size_t n, struct place *place)
{
    char copy[RENDEZVOUS_HOST_MAX + 16];
    int64_t port;
    if (n == 0 || n >= sizeof copy) return url_error(url, n == 0 ? "there is no host" : "the host is too long");
    memcpy(copy, text, n);
    copy[n] = '\0';
    char *host = copy, *end;
    if (*copy == '[') {
        host = copy + 1;
        end = strchr(host, ']');
        if (end == NULL) return url_error(url, "the IPv6 address has no closing ]");
        *end++ = '\0';
    } else {
        end = strchr(copy, ':');
        if (end != NULL && strchr(end + 1, ':') != NULL)
            return url_error(url, "an IPv6 address must be written [address]:port");
    }
    if (end == NULL || *end != ':') return url_error(url, "there is no port: tcp://host:port");
    *end++ = '\0';
    if (*host == '\0' || strlen(host) >= sizeof place->host)
        return url_error(url, *host == '\0' ? "there is no host" : "the host is too long");
    int status = env_parse_int("init_method's port", end, 1, 65535, &port);
    if (status != TUTTI_OK) return status;
    strcpy(place->host, host);
    place->port = (uint16_t)port;
    return TUTTI_OK;
}

static int url_path(const char *url, const char *text, size_t n, struct place *place)
{
    if (n < 2 || *text != '/') return url_error(url, "the path must be absolute: file:///path");
    if (n >= sizeof place->path) return url_error(url, "the path is too long");
    memcpy(place->path, text, n);
    place->path[n] = '\0';
    return TUTTI_OK;
}

int place_from_url(const char *url, struct place *place)
{
    bool tcp = strncmp(url, "tcp://", 6) == 0, file = strncmp(url, "file://", 7) == 0;
    if (!tcp && !file) return url_error(url, "it must begin with env://, tcp:// or file://");
    const char *rest = url + (tcp ? 6 : 7);
    size_t n = strcspn(rest, "?");
    place->kind = tcp ? PLACE_TCP : PLACE_FILE;
    int status = tcp ? url_authority(url, rest, n, place) : url_path(url, rest, n, place);
    return status == TUTTI_OK && rest[n] == '?' ? url_parameters(url, rest + n + 1, place) : status;
}

int place_find(const char *init_method, struct place *place)
{
    *place = (struct place){.rank = -1, .world_size = -1, .local_rank = -1, .local_world_size = -1, .node_rank = -1};
    if (init_method == NULL || strcmp(init_method, "env://") == 0) return place_from_env(place);
    if (strncmp(init_method, "env://", 6) == 0) return url_error(init_method, "env:// takes no parameters");
    return place_from_url(init_method, place);
}
