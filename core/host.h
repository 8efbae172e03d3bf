/* What the core offers to plug-ins: the one tutti_host. */
#ifndef HOST_H
#define HOST_H

#include <tutti/backend.h>

extern const tutti_host host_services;

#endif
