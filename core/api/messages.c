/* Messages whose size only the sender knows: probes and byte strings. */
#include <stdlib.h>
#include <string.h>
#include <tutti/tutti.h>

#include "base/error.h"
#include "base/sized.h"
#include "dispatch/coalesce.h"
#include "dispatch/probe.h"
#include "dispatch/submit.h"
#include "group/group_check.h"
#include "state/group_state.h"

/* Sets the options of a probe, which writes to message. */
static void probe_opts(const tutti_opts *given, tutti_message *message, tutti_opts *opts)
{
    *opts = given != NULL ? *given : (tutti_opts){0};
    opts->async_op = NULL;
    opts->source = &message->source;
    opts->received_tag = &message->tag;
    opts->received = &message->bytes;
}

static tutti_op probe_of(int src)
{
    return (tutti_op){.kind = TUTTI_PROBE, .root = src};
}

/* Refuses to coalesce: these operations look at messages that have arrived, so they cannot be kept for later. */
static int refuse_coalescing(const char *what, const tutti_opts *opts)
{
    const struct tutti_group *group = group_for_call(opts->group);
    if (group == NULL) return TUTTI_ERR_INVALID_ARGUMENT;
    if (!coalesce_is_open(group)) return TUTTI_OK;
    return error_set(TUTTI_ERR_INVALID_ARGUMENT,
                     "%s cannot be coalesced; call it before coalesce_begin or after coalesce_end", what);
}

/* Reports the message that a probe has found. */
static void report_message(const tutti_message *found, const tutti_opts *opts, tutti_message *message)
{
    if (message != NULL) *message = *found;
    if (opts == NULL) return;
    if (opts->source != NULL) *opts->source = found->source;
    if (opts->received_tag != NULL) *opts->received_tag = found->tag;
    if (opts->received != NULL) *opts->received = found->bytes;
}

int tutti_probe_sized(int src, const tutti_opts *opts, size_t opts_bytes, tutti_message *message)
{
    tutti_message found;
    tutti_opts copy, own;
    tutti_op op = probe_of(src);
    int status = SIZED_READ(tutti_opts, opts, opts_bytes, &copy);
    if (status != TUTTI_OK) return status;
    probe_opts(opts, &found, &own);
    status = refuse_coalescing("probe", &own);
    if (status == TUTTI_OK) status = submit(&op, &own, sizeof own);
    if (status == TUTTI_OK) report_message(&found, opts, message);
    return status;
}

int tutti_iprobe_sized(int src, const tutti_opts *opts, size_t opts_bytes, bool *found, tutti_message *message)
{
    tutti_message there;
    tutti_opts copy, own;
    tutti_op op = probe_of(src);
    if (found == NULL)
        return error_set(TUTTI_ERR_INVALID_ARGUMENT, "iprobe: found is NULL; pass an address for the result");
    *found = false;
    int status = SIZED_READ(tutti_opts, opts, opts_bytes, &copy);
    if (status != TUTTI_OK) return status;
    probe_opts(opts, &there, &own);
    status = refuse_coalescing("iprobe", &own);
    if (status == TUTTI_OK) status = probe_now(&op, &own, found);
    if (status == TUTTI_OK && *found) report_message(&there, opts, message);
    return status;
}

int tutti_send_bytes_sized(const void *data, size_t bytes, int dst, const tutti_opts *opts, size_t opts_bytes)
{
    tutti_opts copy;
    int status = SIZED_READ(tutti_opts, opts, opts_bytes, &copy);
    if (status != TUTTI_OK) return status;
    copy = opts != NULL ? *opts : (tutti_opts){0};
    copy.async_op = NULL;
    if (bytes > PTRDIFF_MAX)
        return error_set(TUTTI_ERR_INVALID_ARGUMENT,
                         "send_bytes: bytes is %zu, more than memory can be; pass at most PTRDIFF_MAX", bytes);
    return tutti_send(tutti_tensor_of(data, (int64_t)bytes, TUTTI_UINT8), dst, &copy);
}

int tutti_recv_bytes_sized(tutti_bytes *out, int src, const tutti_opts *opts, size_t opts_bytes)
{
    tutti_message found;
    tutti_opts copy, own;
    tutti_op op = probe_of(src);
    if (out == NULL)
        return error_set(TUTTI_ERR_INVALID_ARGUMENT, "recv_bytes: out is NULL; pass a tutti_bytes for the result");
    *out = (tutti_bytes){0};
    int status = SIZED_READ(tutti_opts, opts, opts_bytes, &copy);
    if (status != TUTTI_OK) return status;
    probe_opts(opts, &found, &own);
    status = refuse_coalescing("recv_bytes", &own);
    if (status == TUTTI_OK) status = probe_recv_bytes(&op, &own, out);
    if (status == TUTTI_OK) report_message(&found, opts, NULL);
    return status;
}
