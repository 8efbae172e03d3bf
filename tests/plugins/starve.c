/* Library to load before a test (LD_PRELOAD).  It makes one call for memory, a mapping, a descriptor or a thread fail.
 *
 * Only calls from the library, its plug-ins and the test program count. libc, libuv and libfabric handle shortages of
 * their own. */
#include <dlfcn.h>
#include <errno.h>
#include <execinfo.h>
#include <fcntl.h>
#include <link.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#define EXPORTED __attribute__((visibility("default")))
#define FAILS(error) fails(__builtin_return_address(0), error)

EXPORTED void starve_arm(int nth);
EXPORTED int starve_count(void);
void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t n, size_t bytes);
void *__libc_realloc(void *memory, size_t bytes);
void *__libc_memalign(size_t alignment, size_t bytes);

static atomic_bool armed;
static atomic_int count, wanted;

/* Makes the nth call from now on fail, or none if nth is 0, and counts the calls.  A negative nth stops that. */
void starve_arm(int nth)
{
    atomic_store(&count, 0);
    atomic_store(&wanted, nth);
    atomic_store(&armed, nth >= 0);
}

int starve_count(void)
{
    return atomic_load(&count);
}

static bool is_ours(void *caller)
{
    struct dl_find_object object;
    if (_dl_find_object(caller, &object) != 0) return false;
    const char *name = object.dlfo_link_map->l_name;
    return name[0] == '\0' || strstr(name, "libtutti") != NULL; /* the program itself has an empty name */
}

static void show_stack(void)
{
    void *stack[12];
    backtrace_symbols_fd(stack, backtrace(stack, 12), STDERR_FILENO);
}

static bool fails(void *caller, int error)
{
    if (!atomic_load(&armed) || !is_ours(caller)) return false;
    if (atomic_fetch_add(&count, 1) + 1 != atomic_load(&wanted)) return false;
    atomic_store(&armed, false);
    if (getenv("STARVED_SHOW") != NULL) show_stack();
    errno = error;
    return true;
}

/* ---- memory ------------------------------------------------------------------------------------------------ */

EXPORTED void *malloc(size_t bytes)
{
    return FAILS(ENOMEM) ? NULL : __libc_malloc(bytes);
}

EXPORTED void *calloc(size_t n, size_t bytes)
{
    return FAILS(ENOMEM) ? NULL : __libc_calloc(n, bytes);
}

EXPORTED void *realloc(void *memory, size_t bytes)
{
    return FAILS(ENOMEM) ? NULL : __libc_realloc(memory, bytes);
}

EXPORTED void *aligned_alloc(size_t alignment, size_t bytes)
{
    return FAILS(ENOMEM) ? NULL : __libc_memalign(alignment, bytes);
}

EXPORTED char *strdup(const char *text)
{
    char *copy = FAILS(ENOMEM) ? NULL : __libc_malloc(strlen(text) + 1);
    return copy != NULL ? strcpy(copy, text) : NULL;
}

EXPORTED void *mmap(void *at, size_t bytes, int protection, int flags, int fd, off_t offset)
{
    if (FAILS(ENOMEM)) return MAP_FAILED;
    return (void *)syscall(SYS_mmap, at, bytes, protection, flags, fd, offset);
}

/* ---- descriptors and threads ------------------------------------------------------------------------------- */

EXPORTED int memfd_create(const char *name, unsigned flags)
{
    return FAILS(EMFILE) ? -1 : (int)syscall(SYS_memfd_create, name, flags);
}

EXPORTED int eventfd(unsigned value, int flags)
{
    return FAILS(EMFILE) ? -1 : (int)syscall(SYS_eventfd2, value, flags);
}

EXPORTED int pipe2(int ends[2], int flags)
{
    return FAILS(EMFILE) ? -1 : (int)syscall(SYS_pipe2, ends, flags);
}

EXPORTED int socket(int domain, int type, int protocol)
{
    return FAILS(EMFILE) ? -1 : (int)syscall(SYS_socket, domain, type, protocol);
}

EXPORTED int socketpair(int domain, int type, int protocol, int ends[2])
{
    return FAILS(EMFILE) ? -1 : (int)syscall(SYS_socketpair, domain, type, protocol, ends);
}

EXPORTED int accept4(int fd, struct sockaddr *address, socklen_t *bytes, int flags)
{
    return FAILS(EMFILE) ? -1 : (int)syscall(SYS_accept4, fd, address, bytes, flags);
}

EXPORTED int epoll_create1(int flags)
{
    return FAILS(EMFILE) ? -1 : (int)syscall(SYS_epoll_create1, flags);
}

EXPORTED int open(const char *path, int flags, ...)
{
    va_list arguments;
    va_start(arguments, flags);
    int mode = (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(arguments, int) : 0;
    va_end(arguments);
    return FAILS(EMFILE) ? -1 : (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
}

EXPORTED int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *), void *argument)
{
    static int (*create)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
    if (FAILS(EAGAIN)) return EAGAIN;
    if (create == NULL) *(void **)&create = dlsym(RTLD_NEXT, "pthread_create");
    return create(thread, attributes, run, argument);
}
