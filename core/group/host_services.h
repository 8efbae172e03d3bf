/* What the core offers to plug-ins: the one tutti_host. */
#ifndef HOST_SERVICES_H
#define HOST_SERVICES_H

#include <tutti/backend.h>

extern const tutti_host host_services;

/* Where the default group's ranks met: what backends find as TUTTI_STORE_ADDR unless the environment says otherwise, to
 * choose an address on the same network.  Before a group is opened; "": on one host, or not by address. */
void host_services_set_store_address(const char *address);

#endif
