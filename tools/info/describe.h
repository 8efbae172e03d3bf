/* What tutti-info says of this machine and of a world: as text, or into a document. */
#ifndef INFO_DESCRIBE_H
#define INFO_DESCRIBE_H

#include "common/doc.h"

/* Each prints if `document` is NULL. */
void describe_machine(doc *document);
void describe_backends(doc *document);

/* Describes the default group's world.  All ranks call it; rank 0 prints or fills the document. */
void describe_world(doc *document);

#endif
