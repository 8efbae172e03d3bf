/* Shared by the intentionally broken plug-ins: entries that do nothing. */
#ifndef BROKEN_H
#define BROKEN_H

#include <tutti/backend.h>

#define UNUSED __attribute__((unused))

/* The mandatory entries of a table. */
#define BROKEN_ENTRIES                                                                                                 \
    .open = broken_open, .close = broken_close, .send = broken_message, .recv = broken_message,                        \
    .progress = broken_progress

UNUSED static int broken_open(void *group, const tutti_group_info *info, const tutti_host *host)
{
    (void)group;
    (void)info;
    (void)host;
    return TUTTI_OK;
}

UNUSED static void broken_close(void *group)
{
    (void)group;
}

UNUSED static int broken_message(void *group, tutti_request *request)
{
    (void)group;
    (void)request;
    return TUTTI_ERR_UNSUPPORTED;
}

UNUSED static int broken_progress(void *group)
{
    (void)group;
    return 0;
}

#endif
