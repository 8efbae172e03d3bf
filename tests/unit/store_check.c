#include "store_check.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/error.h"

void store_check(int got, int want, const char *call, int line)
{
    if (got == want) return;
    fail_msg("line %d: %s returned %s, not %s: %s", line, call, error_name(got), error_name(want), error_text());
}
