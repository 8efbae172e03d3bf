/* Parses redis://[user][:password@]host[:port]/job, and keeps passwords out of messages.  Pure. */
#ifndef STORE_REDIS_URL_H
#define STORE_REDIS_URL_H

#include "store/address.h"

enum { REDIS_SECRET_MAX = 256, REDIS_JOB_MAX = 200, REDIS_URL_TEXT_MAX = 256 };

struct redis_url {
    char host[ADDRESS_HOST_MAX];
    uint16_t port;
    char user[REDIS_SECRET_MAX], password[REDIS_SECRET_MAX]; /* "" if there is none */
    char job[REDIS_JOB_MAX + 1];
};

/* Parses a URL up to its "?", if it has one.  Without a job in the path, job is `fallback`, or INVALID_ARGUMENT if that
 * is NULL.  No error message contains the password. */
int redis_url_parse(const char *url, const char *fallback, struct redis_url *out);

/* Copies a URL for a message, with *** in place of a user and password. */
const char *redis_url_hide(const char *url, char text[REDIS_URL_TEXT_MAX]);

#endif
