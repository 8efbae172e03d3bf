/* A tool that shows Tutti's operations and the program's ranges in NVIDIA's profilers, as NVTX ranges:
 *
 *     TUTTI_TOOL=$PWD/build/examples/nvtx_tool/libnvtx_tool.so nsys profile ...
 *
 * NVTX is headers alone.  Without a profiler its functions return at once. */
#include <stdint.h>
#include <stdio.h>
#include <tutti/tool.h>

#include <nvtx3/nvToolsExt.h>

/* One domain for all groups of the process.  A group's context is the domain. */
static void *group_made(void *argument, const tutti_tool_group *group)
{
    static nvtxDomainHandle_t domain;
    (void)argument;
    (void)group;
    if (domain == NULL) domain = nvtxDomainCreateA("tutti");
    return domain;
}

/* A range of its own for each operation, because asynchronous operations overlap. */
static void op_issued(void *context, const tutti_tool_op *op, void **data)
{
    char text[160];
    snprintf(text, sizeof text, "%s %lld B, %s #%llu", tutti_kind_find(op->kind)->name, (long long)op->bytes,
             op->group->name, (unsigned long long)op->sequence);
    nvtxEventAttributes_t event = {.version = NVTX_VERSION,
                                   .size = NVTX_EVENT_ATTRIB_STRUCT_SIZE,
                                   .category = (uint32_t)op->kind + 1,
                                   .payloadType = NVTX_PAYLOAD_TYPE_INT64,
                                   .payload.llValue = op->bytes,
                                   .messageType = NVTX_MESSAGE_TYPE_ASCII,
                                   .message.ascii = text};
    *data = (void *)(uintptr_t)nvtxDomainRangeStartEx(context, &event);
}

static void op_ended(void *context, const tutti_tool_op *op, void **data)
{
    (void)op;
    nvtxDomainRangeEnd(context, (nvtxRangeId_t)(uintptr_t)*data);
}

static void op_failed(void *context, const tutti_tool_op *op, void **data, int status, const char *why)
{
    (void)status;
    nvtxDomainMarkEx(context, &(nvtxEventAttributes_t){.version = NVTX_VERSION,
                                                       .size = NVTX_EVENT_ATTRIB_STRUCT_SIZE,
                                                       .messageType = NVTX_MESSAGE_TYPE_ASCII,
                                                       .message.ascii = why});
    op_ended(context, op, data);
}

static void range_pushed(void *argument, const char *name)
{
    (void)argument;
    nvtxRangePushA(name);
}

static void range_popped(void *argument)
{
    (void)argument;
    nvtxRangePop();
}

TUTTI_TOOL_EXPORT extern const tutti_tool tutti_tool_v1;

const tutti_tool tutti_tool_v1 = {
    TUTTI_TOOL_HEADER,    .name = "nvtx",         .group_made = group_made,     .op_issued = op_issued,
    .op_ended = op_ended, .op_failed = op_failed, .range_pushed = range_pushed, .range_popped = range_popped};
