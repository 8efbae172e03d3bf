#include "token.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

static int refuse(const char *format, ...) __attribute__((format(printf, 1, 2)));

static int refuse(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fputs("tutti-run: ", stderr);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    va_end(args);
    return -1;
}

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9') return c - '0';
    c = (char)tolower((unsigned char)c);
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static bool from_hex(const char *text, size_t bytes, uint8_t token[TUTTI_TOKEN_BYTES])
{
    while (bytes > 0 && isspace((unsigned char)text[bytes - 1])) bytes--;
    if (bytes != 2 * TUTTI_TOKEN_BYTES) return false;
    for (int i = 0; i < TUTTI_TOKEN_BYTES; i++) {
        int high = hex_digit(text[2 * i]), low = hex_digit(text[2 * i + 1]);
        if (high < 0 || low < 0) return false;
        token[i] = (uint8_t)(high << 4 | low);
    }
    return true;
}

/* Checks that no other user can read or replace the token. */
static int check_file(const char *path, int fd)
{
    struct stat status;
    if (fstat(fd, &status) != 0) return refuse("cannot stat the token file %s: %s", path, strerror(errno));
    if (!S_ISREG(status.st_mode)) return refuse("the token file %s is not a regular file", path);
    if (status.st_uid != geteuid() && status.st_uid != 0)
        return refuse("the token file %s belongs to another user (uid %u)", path, (unsigned)status.st_uid);
    if (status.st_mode & 077)
        return refuse("the token file %s is accessible to others (mode %04o): chmod 600 it", path,
                      (unsigned)(status.st_mode & 07777));
    return 0;
}

static int read_file(const char *path, int fd, uint8_t token[TUTTI_TOKEN_BYTES])
{
    char text[2 * TUTTI_TOKEN_BYTES + 16];
    if (check_file(path, fd) != 0) return -1;
    ssize_t bytes = read(fd, text, sizeof text);
    if (bytes < 0) return refuse("cannot read the token file %s: %s", path, strerror(errno));
    bool good = true;
    if (bytes == TUTTI_TOKEN_BYTES)
        memcpy(token, text, TUTTI_TOKEN_BYTES);
    else
        good = from_hex(text, (size_t)bytes, token);
    explicit_bzero(text, sizeof text);
    return good ? 0 : refuse("the token file %s holds neither 32 bytes nor 64 hex digits", path);
}

static int from_file(const char *path, uint8_t token[TUTTI_TOKEN_BYTES])
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    if (fd < 0) return refuse("cannot open the token file %s: %s", path, strerror(errno));
    int status = read_file(path, fd, token);
    close(fd);
    return status;
}

int token_find(const char *file, bool may_make, uint8_t token[TUTTI_TOKEN_BYTES])
{
    if (!file) file = secure_getenv("TUTTI_TOKEN_FILE");
    if (file && *file) return from_file(file, token);
    const char *text = secure_getenv("TUTTI_TOKEN");
    if (text && *text) return from_hex(text, strlen(text), token) ? 0 : refuse("TUTTI_TOKEN must hold 64 hex digits");
    if (!may_make)
        return refuse("several nodes need the same secret on each: give --token-file FILE "
                      "(create it with: umask 077; head -c 32 /dev/urandom > FILE)");
    if (getrandom(token, TUTTI_TOKEN_BYTES, 0) != TUTTI_TOKEN_BYTES)
        return refuse("cannot get random bytes for the job token: %s", strerror(errno));
    return 0;
}

int token_descriptor(const uint8_t token[TUTTI_TOKEN_BYTES])
{
    int fd = memfd_create("tutti-token", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd >= 0 && pwrite(fd, token, TUTTI_TOKEN_BYTES, 0) == TUTTI_TOKEN_BYTES &&
        fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL) == 0)
        return fd;
    refuse("cannot keep the job token in a memfd: %s%s", strerror(errno), errno == EFBIG ? " (see ulimit -f)" : "");
    if (fd >= 0) close(fd);
    return -1;
}
