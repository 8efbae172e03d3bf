#include "store/redis_url.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <tutti/types.h>

#include "base/env.h"
#include "base/error.h"

enum { DEFAULT_PORT = 6379 };

const char *redis_url_hide(const char *url, char text[REDIS_URL_TEXT_MAX])
{
    const char *begin = strstr(url, "://"), *at = strrchr(url, '@'); /* the last one: a password may have others */
    if (at == NULL)
        snprintf(text, REDIS_URL_TEXT_MAX, "%.200s", url);
    else if (begin == NULL || at < begin) /* mistyped, and may still hold a password */
        snprintf(text, REDIS_URL_TEXT_MAX, "***%.180s", at);
    else
        snprintf(text, REDIS_URL_TEXT_MAX, "%.*s://***%.180s", (int)(begin - url < 20 ? begin - url : 20), url, at);
    return text;
}

static int report(const char *url, const char *what)
{
    char text[REDIS_URL_TEXT_MAX];
    return error_set(TUTTI_ERR_INVALID_ARGUMENT, "redis store \"%s\": %s", redis_url_hide(url, text), what);
}

static int hex_digit(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : isxdigit((unsigned char)c) ? tolower((unsigned char)c) - 'a' + 10 : -1;
}

/* Decodes %XX in n bytes of text.  Returns false if a % is malformed, a byte is zero, or the result does not fit. */
static bool decode(const char *text, size_t n, char *out, size_t capacity)
{
    size_t used = 0;
    for (size_t i = 0; i < n; i++) {
        int value = (unsigned char)text[i];
        if (value == '%') {
            int high = i + 2 < n ? hex_digit(text[i + 1]) : -1;
            int low = high >= 0 ? hex_digit(text[i + 2]) : -1;
            value = low < 0 ? 0 : high * 16 + low;
            i += 2;
        }
        if (value == 0 || used + 1 >= capacity) return false;
        out[used++] = (char)value;
    }
    out[used] = '\0';
    return true;
}

/* Parses "user:password", n bytes long. */
static bool parse_secrets(const char *text, size_t n, struct redis_url *out)
{
    const char *colon = memchr(text, ':', n);
    size_t user = colon != NULL ? (size_t)(colon - text) : n;
    return decode(text, user, out->user, sizeof out->user) &&
           decode(text + user + (colon != NULL), n - user - (colon != NULL), out->password, sizeof out->password);
}

/* Parses "host:port", "[ipv6]:port" or a host alone, n bytes long. */
static int parse_address(const char *url, const char *text, size_t n, struct redis_url *out)
{
    char copy[ADDRESS_TEXT_MAX], *host = copy, *end;
    int64_t port = DEFAULT_PORT;
    if (n == 0 || n >= sizeof copy) return report(url, n == 0 ? "there is no host" : "the host is too long");
    memcpy(copy, text, n);
    copy[n] = '\0';
    if (*copy == '[') {
        host = copy + 1;
        end = strchr(host, ']');
        if (end == NULL) return report(url, "the IPv6 address has no closing ]");
        *end++ = '\0';
        if (*end != '\0' && *end != ':') return report(url, "after the IPv6 address there must be a port");
    } else {
        end = strchr(copy, ':');
        if (end != NULL && strchr(end + 1, ':') != NULL)
            return report(url, "an IPv6 address must be written [address]:port");
    }
    if (end != NULL && *end == ':') {
        *end++ = '\0';
        int status = env_parse_int("the redis server's port", end, 1, 65535, &port);
        if (status != TUTTI_OK) return status;
    }
    out->port = (uint16_t)port;
    return address_host(host, out->host);
}

/* Job names are parts of keys and of messages, so they have no spaces and no control characters. */
static bool is_plain(const char *job)
{
    for (; *job != '\0'; job++)
        if (!isgraph((unsigned char)*job) || *job == '{' || *job == '}') return false;
    return true;
}

static int parse_job(const char *url, const char *text, size_t n, const char *fallback, struct redis_url *out)
{
    if (n == 0 && fallback == NULL)
        return report(url, "there is no job; write redis://host:port/JOB or set TUTTI_JOB_ID, to a name that no other "
                           "job on that server has");
    if (n == 0 ? strlen(fallback) > REDIS_JOB_MAX : !decode(text, n, out->job, sizeof out->job))
        return report(url, "the job is longer than 200 bytes, or has a malformed %");
    if (n == 0) strcpy(out->job, fallback);
    return is_plain(out->job) ? TUTTI_OK : report(url, "the job must have letters, digits and signs, without { and }");
}

/* Returns the last such character of n, or NULL. */
static const char *find_last(const char *text, size_t n, char wanted)
{
    while (n > 0)
        if (text[--n] == wanted) return text + n;
    return NULL;
}

int redis_url_parse(const char *url, const char *fallback, struct redis_url *out)
{
    *out = (struct redis_url){0};
    if (strncmp(url, "rediss://", 9) == 0)
        return report(url, "TLS is not supported; use redis:// within a network "
                           "that you trust, or a tunnel");
    if (strncmp(url, "redis://", 8) != 0) return report(url, "it must begin with redis://");
    const char *rest = url + 8;
    size_t authority = strcspn(rest, "/?"), path = strcspn(rest + authority, "?");
    const char *at = find_last(rest, authority, '@'), *job = rest + authority + (rest[authority] == '/');
    if (at == NULL && strchr(rest, '@') != NULL) return report(url, "write / and ? in a password as %2F and %3F");
    if (at != NULL && !parse_secrets(rest, (size_t)(at - rest), out))
        return report(url, "the user or password is longer than 255 bytes, or has a malformed %");
    const char *address = at != NULL ? at + 1 : rest;
    int status = parse_address(url, address, (size_t)(rest + authority - address), out);
    if (status != TUTTI_OK) return status;
    return parse_job(url, job, path - (rest[authority] == '/'), fallback, out);
}
