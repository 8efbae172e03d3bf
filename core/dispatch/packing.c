#include "dispatch/packing.h"

#include <stdlib.h>
#include <string.h>
#include <tutti/tutti.h>

#include "state/work_state.h"

void packing_free(struct packing *packing)
{
    if (packing == NULL) return;
    free(packing->memory);
    free(packing);
}

void packing_unpack(struct tutti_work *work, int status)
{
    struct packing *packing = work->packing;
    if (packing == NULL) return;
    const char *from = packing->memory;
    for (int i = 0; i < packing->n && status == TUTTI_OK; i++) {
        tutti_copy(packing->part[i].data, from, packing->part[i].bytes);
        from += packing->part[i].bytes;
    }
    packing_free(packing);
    work->packing = NULL;
}
