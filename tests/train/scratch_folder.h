/* A folder of its own for each test case, for CASE below. */
#ifndef TESTS_SCRATCH_FOLDER_H
#define TESTS_SCRATCH_FOLDER_H

#include <stdbool.h>

extern char folder[64];

/* Set-up and tear-down of a case: make the folder, and remove it with all that it contains. */
int scratch_folder_make(void **state);
int scratch_folder_remove(void **state);

/* True if the folder has something of this name. */
bool scratch_folder_has(const char *name);

#define CASE(test) cmocka_unit_test_setup_teardown(test, scratch_folder_make, scratch_folder_remove)

#endif
