/* A rank of the message protocol for its tests.  The transport is a stub. */
#ifndef PROTO_RANK_H
#define PROTO_RANK_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "../../backends/tcp/p2p/kinds.c"
#include "../../backends/tcp/p2p/proto.c"
#include "../../backends/tcp/p2p/proto_arrive.c"
#include "../../backends/tcp/p2p/proto_cancel.c"
#include "../../backends/tcp/p2p/proto_group.c"
static bool is_starved; /* there is no memory for operations */
static void *starve(size_t n, size_t bytes);
#define calloc starve
#include "../../backends/tcp/p2p/proto_op.c"
#undef calloc
#include "../../backends/tcp/p2p/proto_read.c"
#include "../../backends/tcp/p2p/proto_recv.c"
#include "../../backends/tcp/p2p/proto_send.c"
#include "../../backends/tcp/p2p/proto_talk.c"

static void *starve(size_t n, size_t bytes)
{
    return is_starved ? NULL : calloc(n, bytes);
}

/* ---- a transport ------------------------------------------------------------------------------------------- */

static int dropped;            /* links */
static bool loses;             /* the next unwrite finds no memory to start the next write, which ends the link */
static bool loses_sending;     /* the next message finds no memory, which ends the link */
static struct proto *protocol; /* the user of the transport */

/* Stubs ignore their parameters.  NOLINTBEGIN(misc-unused-parameters) */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-parameter"
static bool reaches(const struct transport *transport, int32_t rank)
{
    return true;
}

static int connect_rank(struct transport *transport, int32_t rank)
{
    return TUTTI_OK;
}

static const char *lost(const struct transport *transport, int32_t rank)
{
    return NULL;
}

static bool is_down(const struct transport *transport, int32_t rank)
{
    return false;
}

static bool is_flushed(const struct transport *transport, int32_t rank)
{
    return true;
}

static void drop(struct transport *transport, int32_t rank, const char *why, bool notify)
{
    dropped += notify;
}

static struct transport_header last_sent;
static int record_message(struct transport *transport, int32_t rank, const struct transport_header *header,
                          const void *payload, size_t bytes)
{
    last_sent = *header;
    if (!loses_sending) return TUTTI_OK;
    loses_sending = false;
    proto_events.lost(protocol, rank, "no memory");
    return TUTTI_ERR_NO_MEMORY;
}

static bool has_left(struct transport *transport, int32_t rank, uint8_t kind, uint64_t id)
{
    return false;
}

static uint8_t parts = 1; /* of the next writes */
static int expose(struct transport *transport, int32_t rank, struct transport_memory *memory)
{
    memory->transport = transport;
    memory->parts = parts;
    return TUTTI_OK;
}

static void conceal(struct transport_memory *memory)
{
    memory->transport = NULL;
}

static bool unwrite(struct transport *transport, int32_t rank, struct transport_write *write)
{
    write->queued = false;
    if (!loses) return true;
    loses = false;
    proto_events.lost(protocol, rank, "no memory");
    return true;
}

static enum transport_path choose_write(struct transport *transport, int32_t rank, const tutti_request *request,
                                        bool may_eager, bool blocked, const tutti_path_row *row)
{
    return TRANSPORT_WRITE;
}

static void write_nothing(struct transport *transport, int32_t rank, struct transport_write *write)
{
}

static bool read_nothing(struct transport *transport, int32_t rank, tutti_request *one, size_t at, uint64_t from,
                         size_t bytes)
{
    return true;
}

static void close_nothing(struct transport *transport)
{
}

static int no_progress(struct transport *transport)
{
    return 0;
}
#pragma GCC diagnostic pop
/* NOLINTEND(misc-unused-parameters) */

static const struct transport_ops stub_ops = {.reaches = reaches,
                                              .connect = connect_rank,
                                              .is_up = is_down,
                                              .lost = lost,
                                              .is_flushed = is_flushed,
                                              .drop = drop,
                                              .send = record_message,
                                              .unsend = has_left,
                                              .expose = expose,
                                              .conceal = conceal,
                                              .choose = choose_write,
                                              .write = write_nothing,
                                              .unwrite = unwrite,
                                              .read = read_nothing,
                                              .progress = no_progress,
                                              .close = close_nothing};
static struct transport stub = {.ops = &stub_ops, .copies_out = true};

/* ---- a rank ------------------------------------------------------------------------------------------------ */

static int64_t now_ns(void)
{
    return 1;
}

static int error(int status, const char *format, ...)
{
    (void)format;
    return status;
}

static void completed(tutti_request *request, int status)
{
    assert_int_equal(*(int *)request->owner, 0); /* once: the caller may free the request then */
    *(int *)request->owner = status == TUTTI_OK ? 1 : status;
}

static void peer_lost(void *core, int32_t rank, bool left, const char *why)
{
    (void)core, (void)rank, (void)left, (void)why;
}

static const tutti_host host = {.abi = TUTTI_BACKEND_ABI,
                                .size = sizeof host,
                                .now_ns = now_ns,
                                .error = error,
                                .complete = completed,
                                .peer_lost = peer_lost};

enum { WORLD = 3, OURS = 5 };

/* Opens rank 0 of three.  Ranks 0 and 1 are a group. */
static void open_rank(struct proto *proto, struct proto_group *group)
{
    static const int32_t ranks[] = {0, 1};
    struct proto_config config = {.world_size = WORLD, .host = &host};
    dropped = 0;
    protocol = proto;
    assert_int_equal(proto_open(proto, &config), TUTTI_OK);
    assert_true(proto_add_transport(proto, &stub));
    *group = (struct proto_group){.id = OURS, .world_size = 2, .global_ranks = ranks};
    proto_add_group(proto, group);
}

static void close_rank(struct proto *proto, struct proto_group *group)
{
    LIST_REMOVE(group, link);
    proto_close(proto);
}

static void bring(struct proto *proto, int32_t from, struct transport_header header, const void *payload)
{
    header.source = (uint32_t)from;
    assert_true(proto_events.message(proto, &stub, &header, payload, header.kind == KIND_EAGER ? header.bytes : 0));
}

#endif
