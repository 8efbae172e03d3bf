/* What the core offers to plug-ins: the one tutti_host. */
#ifndef HOST_SERVICES_H
#define HOST_SERVICES_H

#include <tutti/backend.h>

extern const tutti_host host_services;

/* Where the default group's ranks met: what backends find as TUTTI_STORE_ADDR unless the environment says otherwise, to
 * choose an address on the same network.  Before a group is opened; "": on one host, or not by address. */
void host_services_set_store_address(const char *address);

/* This thread opens a backend of this group, NULL: no more.  What the backend waits for in the store meanwhile is
 * another rank's: it ends with PEER_LOST if a rank's process has ended (liveness.h). */
struct tutti_group;
void host_set_opening(struct tutti_group *group);

#endif
