/* A fresh store of each kind, with a second handle, as another rank would have.  A test is written once and runs for
 * each kind. */
#ifndef TESTS_STORE_FIXTURE_H
#define TESTS_STORE_FIXTURE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <tutti/store.h>

#include <cmocka.h>

#include "base/error.h"
#include "store_check.h"

/* The state of a test. */
struct fixture {
    tutti_store *a, *b; /* two handles on one store */
    tutti_store *below; /* store that a prefix store forwards to */
    bool custom;        /* lacks optional functions */
    char path[64];
};

struct store_test {
    const char *name;
    void (*run)(void **state);
};

#define STORE_TEST(test)                                                                                               \
    {                                                                                                                  \
#test, test                                                                                                    \
    }

/* Runs all tests for every kind of store.  Returns the number that failed. */
int store_fixture_run(const struct store_test *tests, size_t n);

/* Functions of a custom store whose `self` is another store, which they own.  Without those that may be left out. */
extern const tutti_store_calls store_fixture_calls;

/* Checks the value of a key. */
void store_fixture_check_value(tutti_store *store, const char *key, const char *want);

void store_fixture_sleep_ms(int ms);

#endif
