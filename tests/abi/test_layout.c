/* Offsets of the public structs' fields on x86-64 and arm64, which are compiled into existing programs and plug-ins.
 * Structs with a size field, or whose functions take a size, may only grow at the end (docs/abi.md).  The others do not
 * change within an ABI. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <tutti/backend.h>
#include <tutti/tutti.h>

#include <cmocka.h>

struct place {
    const char *what;
    size_t found, wanted;
};

#define SIZE(type, bytes)                                                                                              \
    {                                                                                                                  \
        "the size of " #type, sizeof(type), bytes                                                                      \
    }
#define AT(type, field, offset)                                                                                        \
    {                                                                                                                  \
#type "." #field, offsetof(type, field), offset                                                                \
    }

static const struct place places[] = {
    SIZE(tutti_device, 8),
    AT(tutti_device, type, 0),
    AT(tutti_device, index, 4),
    SIZE(tutti_tensor, 32),
    AT(tutti_tensor, data, 0),
    AT(tutti_tensor, numel, 8),
    AT(tutti_tensor, dtype, 16),
    AT(tutti_tensor, device, 20),
    SIZE(tutti_bytes, 16),
    AT(tutti_bytes, data, 0),
    AT(tutti_bytes, bytes, 8),
    SIZE(tutti_store_opts, 24),
    AT(tutti_store_opts, timeout_ms, 0),
    AT(tutti_store_opts, token, 8),
    AT(tutti_store_opts, server, 16),
    AT(tutti_store_opts, insecure, 17),
    AT(tutti_store_opts, world_size, 20),
    SIZE(tutti_init_opts, 56),
    AT(tutti_init_opts, init_method, 0),
    AT(tutti_init_opts, store, 8),
    AT(tutti_init_opts, rank, 16),
    AT(tutti_init_opts, world_size, 20),
    AT(tutti_init_opts, timeout_ms, 24),
    AT(tutti_init_opts, store_timeout_ms, 32),
    AT(tutti_init_opts, device, 40),
    AT(tutti_init_opts, newcomer, 48),
    SIZE(tutti_rank_health, 128),
    AT(tutti_rank_health, state, 0),
    AT(tutti_rank_health, silent_ms, 8),
    AT(tutti_rank_health, why, 16),
    SIZE(tutti_regroup_opts, 16),
    AT(tutti_regroup_opts, timeout_ms, 0),
    AT(tutti_regroup_opts, world_size, 8),
    SIZE(tutti_group_opts, 56),
    AT(tutti_group_opts, backend, 0),
    AT(tutti_group_opts, parent, 8),
    AT(tutti_group_opts, timeout_ms, 16),
    AT(tutti_group_opts, members_only, 24),
    AT(tutti_group_opts, high_priority, 25),
    AT(tutti_group_opts, name, 32),
    AT(tutti_group_opts, device, 40),
    AT(tutti_group_opts, algorithm, 48),
    SIZE(tutti_opts, 72),
    AT(tutti_opts, group, 0),
    AT(tutti_opts, async_op, 8),
    AT(tutti_opts, stream, 16),
    AT(tutti_opts, timeout_ms, 24),
    AT(tutti_opts, tag, 32),
    AT(tutti_opts, group_rank, 36),
    AT(tutti_opts, source, 40),
    AT(tutti_opts, factor, 48),
    AT(tutti_opts, received, 56),
    AT(tutti_opts, received_tag, 64),
    SIZE(tutti_op_opts, 16),
    AT(tutti_op_opts, element_bytes, 0),
    AT(tutti_op_opts, commutative, 8),
    AT(tutti_op_opts, reserved, 9),
    SIZE(tutti_message, 16),
    AT(tutti_message, source, 0),
    AT(tutti_message, tag, 4),
    AT(tutti_message, bytes, 8),
    AT(tutti_log_line, size, 0),
    AT(tutti_log_line, level, 4),
    AT(tutti_log_line, rank, 8),
    AT(tutti_log_line, subsystem, 16),
    AT(tutti_log_line, text, 24),
    AT(tutti_log_line, unix_ns, 32),
    SIZE(tutti_p2p_op, 56),
    AT(tutti_p2p_op, kind, 0),
    AT(tutti_p2p_op, tensor, 8),
    AT(tutti_p2p_op, peer, 40),
    AT(tutti_p2p_op, tag, 44),
    AT(tutti_p2p_op, source, 48),
    SIZE(tutti_request, 168),
    AT(tutti_request, peer, 0),
    AT(tutti_request, flags, 4),
    AT(tutti_request, tag, 8),
    AT(tutti_request, fingerprint, 16),
    AT(tutti_request, data, 24),
    AT(tutti_request, bytes, 32),
    AT(tutti_request, addend, 40),
    AT(tutti_request, dtype, 48),
    AT(tutti_request, op, 52),
    AT(tutti_request, owner, 56),
    AT(tutti_request, source, 64),
    AT(tutti_request, found_fingerprint, 72),
    AT(tutti_request, found_bytes, 80),
    AT(tutti_request, priv, 88),
    AT(tutti_request, fingerprint_mask, 152),
    AT(tutti_request, found_tag, 160),
    AT(tutti_op, size, 0),
    AT(tutti_op, kind, 4),
    AT(tutti_op, reduce_op, 8),
    AT(tutti_op, dtype, 12),
    AT(tutti_op, root, 16),
    AT(tutti_op, tag, 20),
    AT(tutti_op, sequence, 24),
    AT(tutti_op, n_in, 32),
    AT(tutti_op, n_out, 36),
    AT(tutti_op, in, 40),
    AT(tutti_op, out, 48),
    AT(tutti_op, in_splits, 56),
    AT(tutti_op, out_splits, 64),
    AT(tutti_op, factor, 72),
    AT(tutti_op, stream, 80),
    AT(tutti_op, timeout_ms, 88),
    AT(tutti_op, async, 96),
    AT(tutti_op, list, 97),
    AT(tutti_op, call, 104),
    AT(tutti_op, up_to, 112),
    AT(tutti_op, tool, 120),
    AT(tutti_host, abi, 0),
    AT(tutti_host, size, 4),
    AT(tutti_host, complete, 8),
    AT(tutti_host, error, 16),
    AT(tutti_host, log, 24),
    AT(tutti_host, now_ns, 32),
    AT(tutti_host, env, 40),
    AT(tutti_host, reduce, 48),
    AT(tutti_host, store_set, 56),
    AT(tutti_host, store_get, 64),
    AT(tutti_host, token_mac, 72),
    AT(tutti_host, token_equal, 80),
    AT(tutti_host, random, 88),
    AT(tutti_host, notified, 96),
    AT(tutti_host, peer_lost, 104),
    AT(tutti_host, failed, 112),
    AT(tutti_host, took, 120),
    AT(tutti_host, reduce_many, 128),
    AT(tutti_host, average, 136),
    AT(tutti_host, forked_gives_up, 144),
    AT(tutti_host, forked_forgets, 152),
    AT(tutti_host, store_append, 160),
    AT(tutti_host, store_gather, 168),
    AT(tutti_host, log_as, 176),
    AT(tutti_group_info, size, 0),
    AT(tutti_group_info, rank, 4),
    AT(tutti_group_info, world_size, 8),
    AT(tutti_group_info, global_ranks, 16),
    AT(tutti_group_info, id, 24),
    AT(tutti_group_info, parent, 32),
    AT(tutti_group_info, core, 40),
    AT(tutti_group_info, store, 48),
    AT(tutti_group_info, device, 56),
    AT(tutti_group_info, timeout_ms, 64),
    AT(tutti_group_info, local_rank, 72),
    AT(tutti_group_info, local_world_size, 76),
    AT(tutti_group_info, high_priority, 80),
    AT(tutti_group_info, name, 88),
    AT(tutti_group_info, made_from, 96),
    AT(tutti_group_info, color, 104),
    AT(tutti_group_info, plans_only, 108),
    AT(tutti_backend, abi, 0),
    AT(tutti_backend, size, 4),
    AT(tutti_backend, name, 8),
    AT(tutti_backend, version, 16),
    AT(tutti_backend, group_bytes, 24),
    AT(tutti_backend, devices, 32),
    AT(tutti_backend, probe, 40),
    AT(tutti_backend, open, 48),
    AT(tutti_backend, close, 56),
    AT(tutti_backend, native, 64),
    AT(tutti_backend, send, 320),
    AT(tutti_backend, recv, 328),
    AT(tutti_backend, recv_reduce, 336),
    AT(tutti_backend, progress, 344),
    AT(tutti_backend, arm, 352),
    AT(tutti_backend, cancel, 360),
    AT(tutti_backend, notify, 368),
    AT(tutti_backend, latency_ns, 376),
    AT(tutti_backend, bytes_per_us, 384),
    AT(tutti_backend, segment_bytes, 392),
    AT(tutti_backend, traits, 400),
    AT(tutti_backend, abort, 408),
    AT(tutti_backend, wait_stream, 416),
    AT(tutti_backend, alloc, 424),
    AT(tutti_backend, free, 432),
    AT(tutti_backend, coalesce, 440),
    AT(tutti_backend, hosts, 448),
    AT(tutti_backend, describe, 456),
    AT(tutti_backend, stage_open, 464),
    AT(tutti_backend, stage_close, 472),
    AT(tutti_backend, leave, 480),
    AT(tutti_backend, abstain, 488),
    AT(tutti_backend, awaits, 496),
    AT(tutti_backend, is_near, 504),
    AT(tutti_backend, explain, 512),
    AT(tutti_backend, recv_reduce_most, 520),
    AT(tutti_backend, instead, 528),
    AT(tutti_backend, drain, 536),
    AT(tutti_backend, tell, 544),
    AT(tutti_backend, ready, 552),
    AT(tutti_backend, offer, 560),
    AT(tutti_backend, reclaim, 568),
    AT(tutti_backend, paths, 576),
    AT(tutti_backend, choose, 584),
    AT(tutti_backend, links, 592),
    SIZE(tutti_link, 32),
    AT(tutti_link, latency_ns, 0),
    AT(tutti_link, overhead_ns, 8),
    AT(tutti_link, bytes_per_us, 16),
    AT(tutti_link, latency_from, 24),
    AT(tutti_link, bytes_from, 28),
    AT(tutti_links, size, 0),
    AT(tutti_links, cores, 4),
    AT(tutti_links, between, 8),
    AT(tutti_links, within, 40),
};

static void test_places(void **state)
{
    int wrong = 0;
    (void)state;
#if !defined(__x86_64__) && !defined(__aarch64__)
    skip();
#endif
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        if (places[i].found == places[i].wanted) continue;
        print_error("%s is %zu, it was %zu\n", places[i].what, places[i].found, places[i].wanted);
        wrong++;
    }
    assert_int_equal(wrong, 0);
}

/* Numbers that are compiled into programs: statuses, dtypes (DLPack's codes), operations, kinds, timeouts. */
static void test_numbers(void **state)
{
    static const struct place numbers[] = {
        {"TUTTI_SUM", TUTTI_SUM, 0},
        {"TUTTI_AVG", TUTTI_AVG, 4},
        {"TUTTI_BXOR", TUTTI_BXOR, 8},
        {"TUTTI_BROADCAST", TUTTI_BROADCAST, 0},
        {"TUTTI_ALL_TO_ALL", TUTTI_ALL_TO_ALL, 7},
        {"TUTTI_SEND", TUTTI_SEND, 10},
        {"TUTTI_COALESCED", TUTTI_COALESCED, 12},
        {"TUTTI_COPY", TUTTI_COPY, 13},
        {"TUTTI_PROBE", TUTTI_PROBE, 14},
        {"TUTTI_SCAN", TUTTI_SCAN, 15},
        {"TUTTI_EXSCAN", TUTTI_EXSCAN, 16},
        {"TUTTI_FLOAT32", TUTTI_FLOAT32, 0x0220},
        {"TUTTI_BFLOAT16", TUTTI_BFLOAT16, 0x0410},
        {"TUTTI_BOOL", TUTTI_BOOL, 0x0608},
        {"TUTTI_CPU", TUTTI_CPU, 1},
        {"TUTTI_CUDA", TUTTI_CUDA, 2},
        {"the kinds that a plug-in's table has room for", sizeof(((tutti_backend *)NULL)->native) / sizeof(void *), 32},
        {"-TUTTI_ERR_INVALID_ARGUMENT", -TUTTI_ERR_INVALID_ARGUMENT, 1},
        {"-TUTTI_ERR_NOT_FOUND", -TUTTI_ERR_NOT_FOUND, 12},
        {"TUTTI_BACKEND_ABI", TUTTI_BACKEND_ABI, 1},
        {"TUTTI_ABI_VERSION", TUTTI_ABI_VERSION, 1},
    };
    (void)state;
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if (numbers[i].found != numbers[i].wanted)
            fail_msg("%s is %zu, it was %zu", numbers[i].what, numbers[i].found, numbers[i].wanted);
    assert_string_equal(TUTTI_BACKEND_SYMBOL, "tutti_backend_v1");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_places), cmocka_unit_test(test_numbers)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
