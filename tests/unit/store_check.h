/* Checks of calls to a store. */
#ifndef TESTS_STORE_CHECK_H
#define TESTS_STORE_CHECK_H

/* Fail the test unless a call returns TUTTI_OK, or this status. */
#define OK(call) store_check(call, TUTTI_OK, #call, __LINE__)
#define FAILS(call, status) store_check(call, status, #call, __LINE__)
void store_check(int got, int want, const char *call, int line);

#endif
