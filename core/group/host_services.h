/* The services that the core offers to plug-ins, in its only tutti_host. */
#ifndef HOST_SERVICES_H
#define HOST_SERVICES_H

#include <tutti/backend.h>

extern const tutti_host host_services;

/* Sets the default of TUTTI_STORE_ADDR, which backends use to choose an address on the same network: the address at
 * which the default group's ranks have met.  Must be called before a group is opened.  "" if the ranks are on one host,
 * or have not met by address. */
void host_services_set_store_address(const char *address);

#endif
