/* Parses tcp://host:port?rank=R&world_size=N, file:///path?.. and redis://host:port/job?.. */
#include <stdio.h>
#include <string.h>

#include "base/env.h"
#include "base/error.h"
#include "base/token.h"
#include "bootstrap/rendezvous_spec.h"
#include "store/redis_url.h"

static int report_url(const char *url, const char *what)
{
    char text[REDIS_URL_TEXT_MAX];
    return error_set(TUTTI_ERR_INVALID_ARGUMENT, "init_method \"%.200s\": %s", redis_url_hide(url, text), what);
}

/* Parses "name=value", n bytes long. */
static int parse_parameter(const char *url, const char *text, size_t n, struct rendezvous_spec *spec)
{
    char copy[64], what[sizeof copy + 64];
    int64_t value;
    if (n >= sizeof copy) return report_url(url, "a parameter is too long; only rank and world_size are known");
    memcpy(copy, text, n);
    copy[n] = '\0';
    char *equals = strchr(copy, '=');
    if (equals != NULL) *equals = '\0';
    bool rank = strcmp(copy, "rank") == 0, size = strcmp(copy, "world_size") == 0;
    if (!rank && !size) {
        snprintf(what, sizeof what, "unknown parameter \"%s\"; only rank and world_size are known", copy);
        return report_url(url, what);
    }
    int *field = rank ? &spec->rank : &spec->world_size;
    snprintf(what, sizeof what, "init_method's %s", copy);
    int status = env_parse_int(what, equals == NULL ? "" : equals + 1, size, INT32_MAX, &value);
    if (status != TUTTI_OK) return status;
    if (*field >= 0 && *field != value) {
        snprintf(what, sizeof what, "%s is given twice; give it once", copy);
        return report_url(url, what);
    }
    *field = (int)value;
    return TUTTI_OK;
}

static int parse_parameters(const char *url, const char *text, struct rendezvous_spec *spec)
{
    int status = TUTTI_OK;
    while (status == TUTTI_OK && *text != '\0') {
        size_t n = strcspn(text, "&");
        status = parse_parameter(url, text, n, spec);
        text += n + (text[n] == '&');
    }
    return status;
}

/* Parses host:port or [ipv6]:port, n bytes long. */
static int parse_authority(const char *url, const char *text, size_t n, struct rendezvous_spec *spec)
{
    char copy[RENDEZVOUS_HOST_MAX + 16];
    int64_t port;
    if (n == 0 || n >= sizeof copy)
        return report_url(url, n == 0 ? "there is no host; use tcp://host:port" : "the host is too long");
    memcpy(copy, text, n);
    copy[n] = '\0';
    char *host = copy, *end;
    if (*copy == '[') {
        host = copy + 1;
        end = strchr(host, ']');
        if (end == NULL) return report_url(url, "the IPv6 address has no closing ]");
        *end++ = '\0';
    } else {
        end = strchr(copy, ':');
        if (end != NULL && strchr(end + 1, ':') != NULL)
            return report_url(url, "an IPv6 address must be written [address]:port");
    }
    if (end == NULL || *end != ':') return report_url(url, "there is no port; use tcp://host:port");
    *end++ = '\0';
    if (*host == '\0' || strlen(host) >= sizeof spec->host)
        return report_url(url, *host == '\0' ? "there is no host; use tcp://host:port" : "the host is too long");
    int status = env_parse_int("init_method's port", end, 1, 65535, &port);
    if (status != TUTTI_OK) return status;
    strcpy(spec->host, host);
    spec->port = (uint16_t)port;
    return TUTTI_OK;
}

static int parse_path(const char *url, const char *text, size_t n, struct rendezvous_spec *spec)
{
    if (n < 2 || *text != '/') return report_url(url, "the path must be absolute, as in file:///path");
    if (n >= sizeof spec->path) return report_url(url, "the path is too long");
    memcpy(spec->path, text, n);
    spec->path[n] = '\0';
    return TUTTI_OK;
}

/* Keeps the URL, n bytes long, for the store. */
static int parse_redis(const char *url, size_t n, struct rendezvous_spec *spec)
{
    struct redis_url parsed;
    if (n >= sizeof spec->path) return report_url("redis://..", "it is too long");
    int status = redis_url_parse(url, env_string("TUTTI_JOB_ID", NULL), &parsed);
    memcpy(spec->path, url, n);
    spec->path[n] = '\0';
    strcpy(spec->host, parsed.host); /* the way to it shows which interface leads to the other hosts */
    spec->port = parsed.port;
    token_wipe(&parsed, sizeof parsed);
    return status;
}

int rendezvous_spec_from_url(const char *url, struct rendezvous_spec *spec)
{
    bool tcp = strncmp(url, "tcp://", 6) == 0, file = strncmp(url, "file://", 7) == 0;
    bool redis = strncmp(url, "redis://", 8) == 0 || strncmp(url, "rediss://", 9) == 0;
    if (!tcp && !file && !redis) return report_url(url, "it must begin with env://, tcp://, file:// or redis://");
    const char *rest = url + (tcp ? 6 : file ? 7 : 8);
    size_t n = strcspn(rest, "?");
    spec->kind = tcp ? RENDEZVOUS_TCP : file ? RENDEZVOUS_FILE : RENDEZVOUS_REDIS;
    int status = tcp    ? parse_authority(url, rest, n, spec)
                 : file ? parse_path(url, rest, n, spec)
                        : parse_redis(url, (size_t)(rest + n - url), spec);
    return status == TUTTI_OK && rest[n] == '?' ? parse_parameters(url, rest + n + 1, spec) : status;
}

int rendezvous_spec_parse(const char *init_method, struct rendezvous_spec *spec)
{
    *spec = (struct rendezvous_spec){
        .rank = -1, .world_size = -1, .local_rank = -1, .local_world_size = -1, .node_rank = -1};
    if (init_method == NULL || strcmp(init_method, "env://") == 0) return rendezvous_spec_from_env(spec);
    if (strncmp(init_method, "env://", 6) == 0) return report_url(init_method, "env:// takes no parameters");
    return rendezvous_spec_from_url(init_method, spec);
}
