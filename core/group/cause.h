/* The first cause of a group's failure, kept in the group's store.
 *
 * A rank that detects a failure offers its reason to the store before it informs any peer or closes a connection.  The
 * first reason counts.  So a rank that sees a connection end finds out why its peer has left, even if the two were not
 * connected when the peer could report it. */
#ifndef CAUSE_H
#define CAUSE_H

#include <stdbool.h>

#include "base/error.h"

struct tutti_group;

/* True if a failure with this status may be a consequence of another rank's: that rank left, took its store along, or
 * withdrew its part of an operation. */
bool cause_may_be_elsewhere(int status);

/* Offers status and text as the cause of the group's failure.  If another rank has offered a cause before, and this
 * failure may be its consequence, replaces text by that cause and returns its status.  Otherwise returns status.  Waits
 * briefly for the store.  Lock held. */
int cause_settle(struct tutti_group *group, int status, char text[ERROR_TEXT_MAX]);

#endif
