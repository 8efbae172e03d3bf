#include "group/unmatched.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "progress/work.h"

/* True if a wrong tag could be the reason that the work waits, and its backend can probe for messages. */
static bool can_look(const struct tutti_work *work)
{
    bool receives = work->op.kind == TUTTI_RECV || work->op.kind == TUTTI_PROBE;
    if (!receives || work->op.tag == TUTTI_ANY_TAG || work->exec != NULL || work->request.owner == NULL) return false;
    return TUTTI_HAS(work->backend, traits) && (work->backend->traits & TUTTI_BACKEND_UNSIZED) != 0 &&
           TUTTI_HAS(work->backend, cancel);
}

/* Fills a request that probes for the first message of the work's peer, with any tag.  It has no owner, so its
 * completion is ignored. */
static void fill_request(const struct tutti_work *work, tutti_request *request)
{
    *request = (tutti_request){.peer = work->request.peer,
                               .tag = work->request.tag,
                               .fingerprint = work->request.fingerprint,
                               .flags = TUTTI_REQUEST_PEEK | TUTTI_REQUEST_ANY_TAG};
}

void unmatched_describe(const struct tutti_work *work, char *text, size_t size)
{
    text[0] = '\0';
    if (!can_look(work)) return;
    tutti_request *request = malloc(sizeof *request);
    if (request == NULL) return;
    fill_request(work, request);
    int status = work->backend->recv(work->state, request);
    if (status == TUTTI_REQUEST_DONE)
        snprintf(text, size, "; rank %d has sent %" PRIu64 " bytes under tag %" PRIu64,
                 work->group->global_ranks[request->source], request->found_bytes, request->found_tag & INT32_MAX);
    bool is_ours = status != TUTTI_REQUEST_PENDING || work->backend->cancel(work->state, request) == TUTTI_OK;
    if (is_ours) free(request); /* otherwise the backend still owns it, and it stays allocated */
}
