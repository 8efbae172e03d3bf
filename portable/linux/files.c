#include "portable/files.h"

#include <fcntl.h>
#include <sys/mman.h>

int files_unnamed(const char *name)
{
    return memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
}

bool files_seal(int fd)
{
    return fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL) == 0;
}

int files_published(const char *name)
{
    return memfd_create(name, MFD_CLOEXEC);
}
