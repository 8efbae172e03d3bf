#include "base/token.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <sodium.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/env.h"
#include "base/error.h"

static int sodium_state = -1;

static void init_once(void)
{
    sodium_state = sodium_init();
}

int token_init(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, init_once);
    if (sodium_state < 0)
        return error_set(TUTTI_ERR_SYSTEM, "libsodium cannot be initialised: this system has no source of random "
                                           "numbers; allow getrandom() or mount /dev");
    return TUTTI_OK;
}

bool token_is_none(const uint8_t token[TOKEN_BYTES])
{
    return sodium_is_zero(token, TOKEN_BYTES);
}

/* Decodes text or raw bytes to a token; `what` names the source in the error message. */
static int decode_token(uint8_t out[TOKEN_BYTES], const char *what, const char *data, size_t bytes, bool raw)
{
    size_t digits = bytes;
    while (digits > 0 && strchr("\r\n", data[digits - 1]) != NULL && data[digits - 1] != '\0') digits--;
    size_t decoded = 0;
    if (raw && bytes == TOKEN_BYTES) {
        memcpy(out, data, TOKEN_BYTES);
    } else if (digits != 2 * TOKEN_BYTES || sodium_hex2bin(out, TOKEN_BYTES, data, digits, NULL, &decoded, NULL) != 0 ||
               decoded != TOKEN_BYTES) {
        token_wipe(out, TOKEN_BYTES);
        return error_set(TUTTI_ERR_INVALID_ARGUMENT,
                         "%s is not a job token: it has %zu characters and must be %s64 hexadecimal digits, as "
                         "`openssl rand -hex 32` "
                         "prints",
                         what, digits, raw ? "32 raw bytes or " : "");
    }
    if (token_is_none(out))
        return error_set(TUTTI_ERR_INVALID_ARGUMENT, "%s is a job token of zeros only; make a random one", what);
    return TUTTI_OK;
}

/* Reads at offset 0 regardless of the descriptor's position, which several processes may share. */
static int read_token(uint8_t out[TOKEN_BYTES], const char *what, int fd)
{
    char data[2 * TOKEN_BYTES + 3];
    ssize_t got;
    do got = pread(fd, data, sizeof data, 0);
    while (got < 0 && errno == EINTR);
    if (got < 0) return error_errno(TUTTI_ERR_SYSTEM, "%s: cannot read the job token", what);
    int status = decode_token(out, what, data, (size_t)got, true);
    token_wipe(data, sizeof data);
    return status;
}

static int read_from_fd(uint8_t out[TOKEN_BYTES])
{
    int64_t fd;
    int status = env_int("TUTTI_TOKEN_FD", -1, 0, INT_MAX, &fd);
    return status != TUTTI_OK ? status : read_token(out, "TUTTI_TOKEN_FD", (int)fd);
}

static int check_file(const char *path, int fd)
{
    struct stat stat;
    if (fstat(fd, &stat) != 0) return error_errno(TUTTI_ERR_SYSTEM, "cannot stat TUTTI_TOKEN_FILE %.200s", path);
    if (!S_ISREG(stat.st_mode))
        return error_set(TUTTI_ERR_INVALID_ARGUMENT,
                         "TUTTI_TOKEN_FILE %.200s is not a regular file; give the path of one", path);
    if (stat.st_uid != geteuid())
        return error_set(
            TUTTI_ERR_INVALID_ARGUMENT,
            "TUTTI_TOKEN_FILE %.200s is owned by user %u and this process runs as user %u; use a file of your own",
            path, stat.st_uid, geteuid());
    if ((stat.st_mode & 077) != 0)
        return error_set(TUTTI_ERR_INVALID_ARGUMENT,
                         "TUTTI_TOKEN_FILE %.200s has mode %04o, so other users can open it; set the mode to 0600",
                         path, stat.st_mode & 07777);
    return TUTTI_OK;
}

static int read_from_file(uint8_t out[TOKEN_BYTES], const char *path)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY); /* opening a FIFO must not block */
    if (fd < 0) return error_errno(TUTTI_ERR_SYSTEM, "cannot open TUTTI_TOKEN_FILE %.200s", path);
    int status = check_file(path, fd);
    if (status == TUTTI_OK) status = read_token(out, "TUTTI_TOKEN_FILE", fd);
    close(fd);
    return status;
}

static pthread_mutex_t adopted_lock = PTHREAD_MUTEX_INITIALIZER;
static uint8_t adopted[TOKEN_BYTES]; /* all zero: none */

void token_adopt(const uint8_t token[TOKEN_BYTES])
{
    pthread_mutex_lock(&adopted_lock);
    memcpy(adopted, token, TOKEN_BYTES);
    pthread_mutex_unlock(&adopted_lock);
}

static bool copy_adopted(uint8_t out[TOKEN_BYTES])
{
    pthread_mutex_lock(&adopted_lock);
    memcpy(out, adopted, TOKEN_BYTES);
    pthread_mutex_unlock(&adopted_lock);
    return !token_is_none(out);
}

int token_get_given(uint8_t out[TOKEN_BYTES], bool *present)
{
    memset(out, 0, TOKEN_BYTES);
    *present = false;
    int status = token_init();
    if (status != TUTTI_OK) return status;
    const char *path = env_string("TUTTI_TOKEN_FILE", NULL);
    const char *text = env_string("TUTTI_TOKEN", NULL);
    if (env_string("TUTTI_TOKEN_FD", NULL) != NULL)
        status = read_from_fd(out);
    else if (path != NULL)
        status = read_from_file(out, path);
    else if (text != NULL)
        status = decode_token(out, "TUTTI_TOKEN", text, strlen(text), false);
    else
        return TUTTI_OK;
    *present = status == TUTTI_OK;
    if (status != TUTTI_OK) token_wipe(out, TOKEN_BYTES);
    return status;
}

int token_get(uint8_t out[TOKEN_BYTES], bool *present)
{
    int status = token_get_given(out, present);
    if (status == TUTTI_OK && !*present) *present = copy_adopted(out);
    return status;
}

void token_mac(uint8_t mac[TOKEN_MAC_BYTES], const uint8_t token[TOKEN_BYTES], const void *message, size_t bytes)
{
    _Static_assert(crypto_auth_BYTES == TOKEN_MAC_BYTES && crypto_auth_KEYBYTES == TOKEN_BYTES, "HMAC-SHA-512-256");
    crypto_auth(mac, message, bytes, token);
}

bool token_equal(const uint8_t a[TOKEN_BYTES], const uint8_t b[TOKEN_BYTES])
{
    return sodium_memcmp(a, b, TOKEN_BYTES) == 0;
}

void token_random(void *buffer, size_t bytes)
{
    randombytes_buf(buffer, bytes);
}

void token_wipe(void *buffer, size_t bytes)
{
    sodium_memzero(buffer, bytes);
}
