#include "group/failure.h"

#include <inttypes.h>
#include <stdio.h>

#include "base/error.h"
#include "diagnose/health.h"
#include "diagnose/recorder.h"
#include "group/group_fail.h"
#include "progress/work.h"

void failure_describe(const struct tutti_work *work, const tutti_request *request, int status, char *text, size_t size)
{
    char what[160], cause[600];
    work_describe(work, what, sizeof what);
    if (status != TUTTI_ERR_MISMATCH || request == NULL) {
        snprintf(cause, sizeof cause, "%s", error_text());
    } else if (work->op.up_to &&
               ((request->found_fingerprint ^ request->fingerprint) & request->fingerprint_mask) == 0) {
        snprintf(cause, sizeof cause, "rank %d has sent %" PRIu64 " bytes and rank %d receives at most %zu",
                 request->source >= 0 ? work->group->global_ranks[request->source] : -1, request->found_bytes,
                 work->group->global_ranks[work->group->rank], request->bytes);
    } else if (request->found_fingerprint != 0 && request->found_fingerprint != request->fingerprint) {
        int peer = request->peer >= 0 ? request->peer : request->source;
        health_describe_mismatch(work->group, peer, request->found_fingerprint, request->fingerprint, cause,
                                 sizeof cause);
    } else {
        int peer = request->peer >= 0 ? request->peer : request->source;
        snprintf(cause, sizeof cause, "rank %d has %" PRIu64 " bytes where rank %d has %zu; both must be equal",
                 peer >= 0 ? work->group->global_ranks[peer] : -1, request->found_bytes,
                 work->group->global_ranks[work->group->rank], request->bytes);
    }
    snprintf(text, size, "%s: %s", what, cause);
}

int failure_explain(const struct tutti_work *work, const tutti_request *request, int status)
{
    char text[ERROR_TEXT_MAX];
    failure_describe(work, request, status, text, sizeof text);
    return error_set(status, "%s", text);
}

void failure_end(struct tutti_work *work, int status)
{
    if (work_is_message(work) && status != TUTTI_ERR_PEER_LOST) {
        recorder_failed(work->group, status, work->text != NULL ? work->text : error_name(status));
        work_withdraw(work, status, NULL);
        return;
    }
    struct tutti_group *group = work->group;
    char text[ERROR_TEXT_MAX]; /* a failure that a peer has reported is the cause of this one */
    if (group->reported_status != TUTTI_OK) status = group->reported_status;
    const char *cause = group->reported_status != TUTTI_OK ? group->reported_text : work->text;
    snprintf(text, sizeof text, "%s", cause != NULL ? cause : error_name(status));
    group_fail(group, status, text, true);
}
