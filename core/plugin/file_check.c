#include "plugin/file_check.h"

#include <sys/stat.h>
#include <tutti/types.h>
#include <unistd.h>

#include "base/error.h"

int file_check(const char *path)
{
    struct stat info;
    if (stat(path, &info) != 0) return error_errno(TUTTI_ERR_BACKEND, "%s cannot be read", path);
    if (!S_ISREG(info.st_mode))
        return error_set(TUTTI_ERR_BACKEND, "%s is not a regular file; give the path of a plug-in", path);
    if (info.st_uid != 0 && info.st_uid != geteuid())
        return error_set(TUTTI_ERR_BACKEND, "%s is owned by user %u; it must be owned by root or user %u", path,
                         (unsigned)info.st_uid, (unsigned)geteuid());
    if (info.st_mode & S_IWOTH)
        return error_set(TUTTI_ERR_BACKEND, "%s is writable by all users (mode %04o); run chmod o-w on it", path,
                         (unsigned)info.st_mode & 07777);
    return TUTTI_OK;
}
