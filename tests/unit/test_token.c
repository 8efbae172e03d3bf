/* The job token: its three sources, and the reasons for refusal. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/error.h"
#include "base/token.h"

static const char hex_a[] = "00112233445566778899aabbccddeeff00112233445566778899AABBCCDDEEFF";
static const char hex_b[] = "0101010101010101010101010101010101010101010101010101010101010101";
static char path[64];

static int setup(void **state)
{
    (void)state;
    unsetenv("TUTTI_TOKEN");
    unsetenv("TUTTI_TOKEN_FD");
    unsetenv("TUTTI_TOKEN_FILE");
    snprintf(path, sizeof path, "/tmp/test_token.%d", (int)getpid());
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    unlink(path);
    return 0;
}

static void write_file(const void *data, size_t bytes, mode_t mode)
{
    unlink(path);
    int fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    assert_true(fd >= 0 && write(fd, data, bytes) == (ssize_t)bytes && fchmod(fd, mode) == 0);
    close(fd);
}

static void expect_token(uint8_t first, uint8_t last)
{
    uint8_t token[TOKEN_BYTES];
    bool present = false;
    if (token_get(token, &present) != TUTTI_OK) fail_msg("%s", error_text());
    assert_true(present);
    assert_int_equal(token[0], first);
    assert_int_equal(token[TOKEN_BYTES - 1], last);
}

static void expect_refusal(int status, const char *part)
{
    uint8_t token[TOKEN_BYTES];
    bool present = true;
    assert_int_equal(token_get(token, &present), status);
    assert_false(present);
    assert_true(token_is_none(token));
    if (strstr(error_text(), part) == NULL) fail_msg("\"%s\" does not say \"%s\"", error_text(), part);
    assert_null(strstr(error_text(), "00112233")); /* no error message contains a token */
}

static void test_none(void **state)
{
    (void)state;
    uint8_t token[TOKEN_BYTES] = {9};
    bool present = true;
    assert_int_equal(token_get(token, &present), TUTTI_OK);
    assert_false(present);
    assert_true(token_is_none(token));
}

static void test_variable(void **state)
{
    (void)state;
    setenv("TUTTI_TOKEN", hex_a, 1);
    expect_token(0x00, 0xff);
    static const char *const bad[] = {"0011223344", "x0112233445566778899aabbccddeeff00112233445566778899AABBCCDDEEFF",
                                      "00112233445566778899aabbccddeeff00112233445566778899AABBCCDDEEFF00",
                                      "12345678901234567890123456789012"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        setenv("TUTTI_TOKEN", bad[i], 1);
        expect_refusal(TUTTI_ERR_INVALID_ARGUMENT, "TUTTI_TOKEN is not a job token");
    }
    setenv("TUTTI_TOKEN", "0000000000000000000000000000000000000000000000000000000000000000", 1);
    expect_refusal(TUTTI_ERR_INVALID_ARGUMENT, "zeros");
}

static void test_file(void **state)
{
    (void)state;
    char line[70];
    setenv("TUTTI_TOKEN_FILE", path, 1);
    setenv("TUTTI_TOKEN", hex_b, 1); /* the file has precedence */
    write_file(hex_a, 64, 0600);
    expect_token(0x00, 0xff);
    snprintf(line, sizeof line, "%s\n", hex_a);
    write_file(line, 65, 0400);
    expect_token(0x00, 0xff);
    write_file("\x07raw bytes: exactly thirty-two.\x08", 32, 0600);
    expect_token(7, 8);
    write_file(hex_a, 64, 0640);
    expect_refusal(TUTTI_ERR_INVALID_ARGUMENT, "mode 0640");
    write_file(hex_a, 64, 0604);
    expect_refusal(TUTTI_ERR_INVALID_ARGUMENT, "mode 0604");
    write_file(hex_a, 63, 0600);
    expect_refusal(TUTTI_ERR_INVALID_ARGUMENT, "is not a job token");
    write_file("", 0, 0600);
    expect_refusal(TUTTI_ERR_INVALID_ARGUMENT, "is not a job token");
    unlink(path);
    expect_refusal(TUTTI_ERR_SYSTEM, "cannot open TUTTI_TOKEN_FILE");
    assert_int_equal(mkfifo(path, 0600), 0);
    expect_refusal(TUTTI_ERR_INVALID_ARGUMENT, "not a regular file");
    if (geteuid() == 0) {
        write_file(hex_a, 64, 0600);
        assert_int_equal(chown(path, 12345, 12345), 0);
        expect_refusal(TUTTI_ERR_INVALID_ARGUMENT, "is owned by user 12345");
    }
}

static void test_descriptor(void **state)
{
    (void)state;
    char number[16];
    write_file(hex_a, 64, 0600);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    snprintf(number, sizeof number, "%d", fd);
    setenv("TUTTI_TOKEN_FD", number, 1);
    setenv("TUTTI_TOKEN_FILE", "/nonexistent", 1);
    expect_token(0x00, 0xff);
    expect_token(0x00, 0xff); /* a second time: the descriptor is still open, and its position does not matter */
    close(fd);
    expect_refusal(TUTTI_ERR_SYSTEM, "TUTTI_TOKEN_FD");
    setenv("TUTTI_TOKEN_FD", "three", 1);
    expect_refusal(TUTTI_ERR_INVALID_ARGUMENT, "TUTTI_TOKEN_FD is \"three\"");
    int pipes[2];
    assert_int_equal(pipe(pipes), 0);
    snprintf(number, sizeof number, "%d", pipes[0]);
    setenv("TUTTI_TOKEN_FD", number, 1);
    expect_refusal(TUTTI_ERR_SYSTEM, "TUTTI_TOKEN_FD");
    close(pipes[0]);
    close(pipes[1]);
}

static void test_codes(void **state)
{
    (void)state;
    uint8_t a[TOKEN_BYTES], b[TOKEN_BYTES], first[TOKEN_MAC_BYTES], second[TOKEN_MAC_BYTES];
    assert_int_equal(token_init(), TUTTI_OK);
    token_random(a, sizeof a);
    token_random(b, sizeof b);
    assert_false(token_equal(a, b));
    token_mac(first, a, "message", 7);
    token_mac(second, a, "message", 7);
    assert_true(token_equal(first, second));
    token_mac(second, a, "messagf", 7);
    assert_false(token_equal(first, second));
    token_mac(second, b, "message", 7);
    assert_false(token_equal(first, second));
    token_mac(second, a, NULL, 0);
    assert_false(token_equal(first, second));
    token_wipe(a, sizeof a);
    assert_true(token_is_none(a));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_none, setup, teardown),
        cmocka_unit_test_setup_teardown(test_variable, setup, teardown),
        cmocka_unit_test_setup_teardown(test_file, setup, teardown),
        cmocka_unit_test_setup_teardown(test_descriptor, setup, teardown),
        cmocka_unit_test_setup_teardown(test_codes, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
