/* The services that the core offers to plug-ins: the one tutti_host. */
#ifndef HOST_SERVICES_H
#define HOST_SERVICES_H

#include <tutti/backend.h>

extern const tutti_host host_services;

/* Sets the default of TUTTI_STORE_ADDR for backends, which choose an address on the same network: where the default
 * group's ranks met.  Call it before a group is opened. "": on one host, or not by address. */
void host_services_set_store_address(const char *address);

#endif
