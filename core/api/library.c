/* The library's version, its error messages and its names, and what other libraries need to report failures and to read
 * structs as it does. */
#include <string.h>
#include <tutti/tutti.h>

#include "base/dtype.h"
#include "base/error.h"
#include "base/log.h"
#include "base/log_logger.h"
#include "base/sized.h"

const char *tutti_version(void)
{
    return TUTTI_VERSION;
}

int tutti_abi_version(void)
{
    return TUTTI_ABI_VERSION;
}

/* ---- errors -------------------------------------------------------------------------------------------------- */

const char *tutti_last_error(void)
{
    return error_text();
}

int tutti_set_error(int status, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    error_vset(status, format, arguments);
    va_end(arguments);
    return status;
}

const char *tutti_status_string(int status)
{
    return error_name(status);
}

/* ---- log ----------------------------------------------------------------------------------------------------- */

int tutti_set_logger(tutti_logger logger, void *argument)
{
    if (log_logger_set(logger, argument)) return TUTTI_OK;
    return error_set(TUTTI_ERR_INVALID_ARGUMENT,
                     "set_logger: called inside the logger, for which it would have to wait; call it elsewhere");
}

void tutti_log(const char *subsystem, int level, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    log_vas(subsystem != NULL ? subsystem : "plugin", level, format, args);
    va_end(args);
}

/* ---- names --------------------------------------------------------------------------------------------------- */

const char *tutti_kind_name(tutti_kind kind)
{
    return tutti_kind_find(kind)->name;
}

const char *tutti_dtype_name(tutti_dtype dtype)
{
    return dtype_name(dtype);
}

const char *tutti_reduce_op_name(tutti_reduce_op op)
{
    return reduce_op_name(op);
}

/* ---- structs ------------------------------------------------------------------------------------------------- */

int tutti_sized_read(const char *name, const void *given, size_t bytes, void *copy, size_t known)
{
    const void *found = given;
    memset(copy, 0, known);
    int status = sized_read(name, &found, bytes, copy, known);
    if (status == TUTTI_OK && found != NULL && found != copy) memcpy(copy, found, known);
    return status;
}
