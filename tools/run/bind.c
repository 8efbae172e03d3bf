/* A rank is bound to a core with all its hardware threads, or to a socket.  Ranks fill cores and sockets in order, so
 * neighbors are close.  What this process itself may not use, by its own binding or a control group's, is left out. */
#include "bind.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const char *const names[] = {[BIND_NONE] = "none", [BIND_CORE] = "core", [BIND_SOCKET] = "socket"};

enum bind bind_of(const char *name)
{
    for (int bind = BIND_NONE; bind <= BIND_SOCKET; bind++)
        if (strcmp(name, names[bind]) == 0) return (enum bind)bind;
    return BIND_UNSET;
}

const char *bind_name(enum bind bind)
{
    return names[bind];
}

static bool refuse(enum bind bind, const char *format, ...) __attribute__((format(printf, 2, 3)));

static bool refuse(enum bind bind, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fprintf(stderr, "tutti-run: --bind %s: ", bind_name(bind));
    vfprintf(stderr, format, args);
    fputs("\n", stderr);
    va_end(args);
    return false;
}

#if RUN_HAS_HWLOC
#include <hwloc.h>
#include <hwloc/glibc-sched.h>

static bool find_in(hwloc_topology_t topology, enum bind bind, int n, cpu_set_t *processors)
{
    hwloc_obj_type_t type = bind == BIND_CORE ? HWLOC_OBJ_CORE : HWLOC_OBJ_PACKAGE;
    int found = hwloc_get_nbobjs_by_type(topology, type);
    if (found < 1) return refuse(bind, "hwloc finds no %s on this machine; use --bind none", bind_name(bind));
    if (bind == BIND_CORE && n > found)
        return refuse(bind, "%d ranks on this node, but tutti-run may use %d core%s; use fewer ranks or --bind none", n,
                      found, found == 1 ? "" : "s");
    for (int i = 0; i < n; i++) {
        int at = bind == BIND_CORE ? i : (int)((int64_t)i * found / n);
        hwloc_obj_t place = hwloc_get_obj_by_type(topology, type, (unsigned)at);
        CPU_ZERO(&processors[i]);
        if (hwloc_cpuset_to_glibc_sched_affinity(topology, place->cpuset, &processors[i], sizeof processors[i]) != 0)
            return refuse(bind, "%s %d has processors beyond number %d; use --bind none", bind_name(bind), at,
                          CPU_SETSIZE - 1);
    }
    return true;
}

bool bind_find(enum bind bind, int n, cpu_set_t *processors)
{
    hwloc_topology_t topology;
    if (hwloc_topology_init(&topology) != 0) return refuse(bind, "hwloc cannot start; use --bind none");
    bool found = hwloc_topology_set_flags(topology, HWLOC_TOPOLOGY_FLAG_IS_THISSYSTEM |
                                                        HWLOC_TOPOLOGY_FLAG_RESTRICT_TO_CPUBINDING) == 0 &&
                 hwloc_topology_load(topology) == 0;
    found = found ? find_in(topology, bind, n, processors)
                  : refuse(bind, "hwloc cannot read this machine's topology; use --bind none");
    hwloc_topology_destroy(topology);
    return found;
}
#else
bool bind_find(enum bind bind, int n, cpu_set_t *processors)
{
    (void)n, (void)processors;
    return refuse(bind, "this tutti-run was built without hwloc 2.5 or later; install libhwloc-dev and build again");
}
#endif
