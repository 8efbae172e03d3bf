//! The exported functions, in the order of `tests/abi/exports.txt`.

use crate::types::*;
use std::os::raw::{c_char, c_int, c_void};

extern "C" {
    pub fn tutti_abi_version() -> c_int;
    pub fn tutti_abort(group: *mut tutti_group, reason: *const c_char) -> c_int;
    pub fn tutti_algorithm_name(kind: tutti_kind, i: c_int) -> *const c_char;
    pub fn tutti_all_gather_bytes_sized(
        out: *mut tutti_bytes,
        n: c_int,
        data: *const c_void,
        bytes: usize,
        opts: *const tutti_opts,
        opts_bytes: usize,
    ) -> c_int;
    pub fn tutti_all_gather_into_tensor_sized(
        out: tutti_tensor,
        in_: tutti_tensor,
        opts: *const tutti_opts,
        opts_bytes: usize,
    ) -> c_int;
    pub fn tutti_all_gather_sized(
        out: *const tutti_tensor,
        n: c_int,
        in_: tutti_tensor,
        opts: *const tutti_opts,
        opts_bytes: usize,
    ) -> c_int;
    pub fn tutti_all_reduce_into_sized(
        out: tutti_tensor,
        in_: tutti_tensor,
        op: tutti_reduce_op,
        opts: *const tutti_opts,
        opts_bytes: usize,
    ) -> c_int;
    pub fn tutti_all_reduce_sized(
        tensor: tutti_tensor,
        op: tutti_reduce_op,
        opts: *const tutti_opts,
        opts_bytes: usize,
    ) -> c_int;
    pub fn tutti_all_to_all_single_sized(
        out: tutti_tensor,
        in_: tutti_tensor,
        out_splits: *const i64,
        in_splits: *const i64,
        opts: *const tutti_opts,
        opts_bytes: usize,
    ) -> c_int;
    pub fn tutti_all_to_all_sized(
        out: *const tutti_tensor,
        in_: *const tutti_tensor,
        n: c_int,
        opts: *const tutti_opts,
        opts_bytes: usize,
    ) -> c_int;
    pub fn tutti_alloc(group: *mut tutti_group, bytes: i64, memory: *mut *mut c_void) -> c_int;
    pub fn tutti_barrier_sized(opts: *const tutti_opts, opts_bytes: usize) -> c_int;
    pub fn tutti_batch_isend_irecv_sized(
        ops: *const tutti_p2p_op,
        op_bytes: usize,
        n: c_int,
        opts: *const tutti_opts,
        opts_bytes: usize,
        works: *mut *mut tutti_work,
    ) -> c_int;
    pub fn tutti_broadcast_bytes_sized(
        inout: *mut tutti_bytes,
        root: c_int,
        opts: *const tutti_opts,
        opts_bytes: usize,
    ) -> c_int;
    pub fn tutti_broadcast_sized(
        tensor: tutti_tensor,
        root: c_int,
        opts: *const tutti_opts,
        opts_bytes: usize,
    ) -> c_int;
    pub fn tutti_bytes_free(values: *mut tutti_bytes, n: c_int);
    pub fn tutti_cast(out: tutti_tensor, in_: tutti_tensor) -> c_int;
    pub fn tutti_coalesce_begin(group: *mut tutti_group) -> c_int;
    pub fn tutti_coalesce_end(group: *mut tutti_group, work: *mut *mut tutti_work) -> c_int;
    pub fn tutti_create_group_sized(
        backend: *const c_char,
        store: *mut tutti_store,
        rank: c_int,
        world_size: c_int,
        opts: *const tutti_group_opts,
        opts_bytes: usize,
        group: *mut *mut tutti_group,
    ) -> c_int;
    pub fn tutti_describe_backend(name: *const c_char, text: *mut c_char, capacity: usize) -> c_int;
    pub fn tutti_describe_group(group: *mut tutti_group, text: *mut c_char, capacity: usize) -> c_int;
    pub fn tutti_destroy_process_group(group: *mut tutti_group) -> c_int;
    pub fn tutti_destroy_process_group_within(group: *mut tutti_group, delivery_ms: i64) -> c_int;
    pub fn tutti_dtype_name(dtype: tutti_dtype) -> *const c_char;
    pub fn tutti_explain_sized(
        kind: tutti_kind,
        bytes: i64,
        opts: *const tutti_opts,
        opts_bytes: usize,
        text: *mut c_char,
        capacity: usize,
    ) -> c_int;
    pub fn tutti_exscan_into_sized(
        out: tutti_tensor,
        in_: tutti_tensor,
        op: tutti_reduce_op,
        opts: *const tutti_opts,
        opts_bytes: usize,
    ) -> c_int;
    pub fn tutti_exscan_sized(
        tensor: tutti_tensor,
        op: tutti_reduce_op,
        opts: *const tutti_opts,
        opts_bytes: usize,
    ) -> c_int;
    pub fn tutti_free(group: *mut tutti_group, memory: *mut c_void) -> c_int;
    pub fn tutti_gather_bytes_sized(
        out: *mut tutti_bytes,
        n: c_int,
        data: *const c_void,
        bytes: usize,
        root: c_int,
        opts: *const tutti_opts,
        opts_bytes: usize,
    ) -> c_int;
    pub fn tutti_gather_into_tensor_sized(
        out: tutti_tensor,
        in_: tutti_tensor,
        root: c_int,
        opts: *const tutti_opts,
        opts_bytes: usize,
    ) -> c_int;
    pub fn tutti_gather_sized(
        in_: tutti_tensor,
        out: *const tutti_tensor,
        n: c_int,
        root: c_int,
        opts: *const tutti_opts,
        opts_bytes: usize,
    ) -> c_int;
    pub fn tutti_get_backend(group: *const tutti_group) -> *const c_char;
    pub fn tutti_get_device(group: *const tutti_group) -> tutti_device;
    pub fn tutti_get_generation(group: *const tutti_group) -> u64;
    pub fn tutti_get_global_rank(group: *const tutti_group, group_rank: c_int) -> c_int;
    pub fn tutti_get_group_rank(group: *const tutti_group, global_rank: c_int) -> c_int;
    pub fn tutti_get_host(group: *const tutti_group, group_rank: c_int) -> c_int;
    pub fn tutti_get_local_rank() -> c_int;
    pub fn tutti_get_local_world_size() -> c_int;
    pub fn tutti_get_name(group: *const tutti_group) -> *const c_char;
    pub fn tutti_get_node_rank() -> c_int;
    pub fn tutti_get_old_rank(group: *const tutti_group, group_rank: c_int) -> c_int;
    pub fn tutti_get_rank(group: *const tutti_group) -> c_int;
    pub fn tutti_get_sequence(group: *const tutti_group) -> u64;
    pub fn tutti_get_stats_sized(group: *mut tutti_group, stats: *mut tutti_stats, bytes: usize) -> c_int;
    pub fn tutti_get_world_size(group: *const tutti_group) -> c_int;
    pub fn tutti_group_health_sized(
        group: *mut tutti_group,
        ranks: *mut tutti_rank_health,
        rank_bytes: usize,
        n: c_int,
    ) -> c_int;
    pub fn tutti_group_quiesce(group: *mut tutti_group, timeout_ms: i64) -> c_int;
    pub fn tutti_init_process_group_sized(
        backend: *const c_char,
        opts: *const tutti_init_opts,
        opts_bytes: usize,
    ) -> c_int;
    pub fn tutti_iprobe_sized(
        src: c_int,
        opts: *const tutti_opts,
        opts_bytes: usize,
        found: *mut bool,
        message: *mut tutti_message,
    ) -> c_int;
    pub fn tutti_irecv_sized(
        tensor: tutti_tensor,
        src: c_int,
        opts: *const tutti_opts,
        opts_bytes: usize,
        work: *mut *mut tutti_work,
    ) -> c_int;
    pub fn tutti_is_backend_available(name: *const c_char) -> bool;
    pub fn tutti_is_initialized() -> bool;
    pub fn tutti_isend_sized(
        tensor: tutti_tensor,
        dst: c_int,
        opts: *const tutti_opts,
        opts_bytes: usize,
        work: *mut *mut tutti_work,
    ) -> c_int;
    pub fn tutti_join_group_sized(
        backend: *const c_char,
        store: *mut tutti_store,
        opts: *const tutti_group_opts,
        opts_bytes: usize,
        group: *mut *mut tutti_group,
    ) -> c_int;
    pub fn tutti_kind_name(kind: tutti_kind) -> *const c_char;
    pub fn tutti_last_error() -> *const c_char;
    pub fn tutti_list_backends(text: *mut c_char, capacity: usize) -> c_int;
    pub fn tutti_log(subsystem: *const c_char, level: c_int, format: *const c_char, ...);
    pub fn tutti_mark(text: *const c_char) -> c_int;
    pub fn tutti_monitored_barrier_sized(opts: *const tutti_opts, opts_bytes: usize) -> c_int;
    pub fn tutti_new_group_sized(
        ranks: *const c_int,
        n: c_int,
        opts: *const tutti_group_opts,
        opts_bytes: usize,
        group: *mut *mut tutti_group,
    ) -> c_int;
    pub fn tutti_op_create_sized(
        name: *const c_char,
        func: tutti_op_fn,
        argument: *mut c_void,
        opts: *const tutti_op_opts,
        opts_bytes: usize,
        op: *mut tutti_reduce_op,
    ) -> c_int;
    pub fn tutti_op_free(op: tutti_reduce_op) -> c_int;
    pub fn tutti_probe_sized(
        src: c_int,
        opts: *const tutti_opts,
        opts_bytes: usize,
        message: *mut tutti_message,
    ) -> c_int;
    pub fn tutti_range_pop();
    pub fn tutti_range_push(name: *const c_char);
    pub fn tutti_record_write(folder: *const c_char) -> c_int;
    pub fn tutti_recv_bytes_sized(
        out: *mut tutti_bytes,
        src: c_int,
        opts: *const tutti_opts,
        opts_bytes: usize,
    ) -> c_int;
    pub fn tutti_recv_sized(tensor: tutti_tensor, src: c_int, opts: *const tutti_opts, opts_bytes: usize) -> c_int;
    pub fn tutti_reduce_into_sized(
        out: tutti_tensor,
        in_: tutti_tensor,
        root: c_int,
        op: tutti_reduce_op,
        opts: *const tutti_opts,
        opts_bytes: usize,
    ) -> c_int;
    pub fn tutti_reduce_local(inout: tutti_tensor, in_: tutti_tensor, op: tutti_reduce_op) -> c_int;
    pub fn tutti_reduce_op_name(op: tutti_reduce_op) -> *const c_char;
    pub fn tutti_reduce_scatter_sized(
        out: tutti_tensor,
        in_: *const tutti_tensor,
        n: c_int,
        op: tutti_reduce_op,
        opts: *const tutti_opts,
        opts_bytes: usize,
    ) -> c_int;
    pub fn tutti_reduce_scatter_tensor_sized(
        out: tutti_tensor,
        in_: tutti_tensor,
        op: tutti_reduce_op,
        opts: *const tutti_opts,
        opts_bytes: usize,
    ) -> c_int;
    pub fn tutti_reduce_sized(
        tensor: tutti_tensor,
        root: c_int,
        op: tutti_reduce_op,
        opts: *const tutti_opts,
        opts_bytes: usize,
    ) -> c_int;
    pub fn tutti_regroup_sized(
        group: *mut tutti_group,
        opts: *const tutti_regroup_opts,
        opts_bytes: usize,
        next: *mut *mut tutti_group,
    ) -> c_int;
    pub fn tutti_regroup_wanted(group: *mut tutti_group) -> bool;
    pub fn tutti_scan_into_sized(
        out: tutti_tensor,
        in_: tutti_tensor,
        op: tutti_reduce_op,
        opts: *const tutti_opts,
        opts_bytes: usize,
    ) -> c_int;
    pub fn tutti_scan_sized(
        tensor: tutti_tensor,
        op: tutti_reduce_op,
        opts: *const tutti_opts,
        opts_bytes: usize,
    ) -> c_int;
    pub fn tutti_scatter_bytes_sized(
        out: *mut tutti_bytes,
        in_: *const tutti_bytes,
        n: c_int,
        root: c_int,
        opts: *const tutti_opts,
        opts_bytes: usize,
    ) -> c_int;
    pub fn tutti_scatter_sized(
        out: tutti_tensor,
        in_: *const tutti_tensor,
        n: c_int,
        root: c_int,
        opts: *const tutti_opts,
        opts_bytes: usize,
    ) -> c_int;
    pub fn tutti_scatter_tensor_sized(
        out: tutti_tensor,
        in_: tutti_tensor,
        root: c_int,
        opts: *const tutti_opts,
        opts_bytes: usize,
    ) -> c_int;
    pub fn tutti_send_bytes_sized(
        data: *const c_void,
        bytes: usize,
        dst: c_int,
        opts: *const tutti_opts,
        opts_bytes: usize,
    ) -> c_int;
    pub fn tutti_send_sized(tensor: tutti_tensor, dst: c_int, opts: *const tutti_opts, opts_bytes: usize) -> c_int;
    pub fn tutti_set_error(status: c_int, format: *const c_char, ...) -> c_int;
    pub fn tutti_set_logger(logger: tutti_logger, argument: *mut c_void) -> c_int;
    pub fn tutti_shrink_group(group: *mut tutti_group, smaller: *mut *mut tutti_group) -> c_int;
    pub fn tutti_sized_read(
        name: *const c_char,
        given: *const c_void,
        bytes: usize,
        copy: *mut c_void,
        known: usize,
    ) -> c_int;
    pub fn tutti_spawn(
        func: Option<unsafe extern "C" fn(rank: c_int, argument: *mut c_void) -> c_int>,
        argument: *mut c_void,
        nprocs: c_int,
    ) -> c_int;
    pub fn tutti_split_group_sized(
        color: c_int,
        key: c_int,
        opts: *const tutti_group_opts,
        opts_bytes: usize,
        group: *mut *mut tutti_group,
    ) -> c_int;
    pub fn tutti_status_string(status: c_int) -> *const c_char;
    pub fn tutti_store_add(store: *mut tutti_store, key: *const c_char, delta: i64, value: *mut i64) -> c_int;
    pub fn tutti_store_append(store: *mut tutti_store, key: *const c_char, value: *const c_void, bytes: usize)
        -> c_int;
    pub fn tutti_store_barrier(
        store: *mut tutti_store,
        name: *const c_char,
        world_size: c_int,
        timeout_ms: i64,
    ) -> c_int;
    pub fn tutti_store_check(
        store: *mut tutti_store,
        keys: *const *const c_char,
        n: c_int,
        present: *mut bool,
    ) -> c_int;
    pub fn tutti_store_compare_set(
        store: *mut tutti_store,
        key: *const c_char,
        expected: *const c_void,
        expected_bytes: usize,
        desired: *const c_void,
        desired_bytes: usize,
        buffer: *mut c_void,
        capacity: usize,
        bytes: *mut usize,
    ) -> c_int;
    pub fn tutti_store_custom_sized(
        name: *const c_char,
        calls: *const tutti_store_calls,
        calls_bytes: usize,
        this: *mut c_void,
        opts: *const tutti_store_opts,
        opts_bytes: usize,
        store: *mut *mut tutti_store,
    ) -> c_int;
    pub fn tutti_store_delete(store: *mut tutti_store, key: *const c_char, existed: *mut bool) -> c_int;
    pub fn tutti_store_file_sized(
        path: *const c_char,
        opts: *const tutti_store_opts,
        opts_bytes: usize,
        store: *mut *mut tutti_store,
    ) -> c_int;
    pub fn tutti_store_free(store: *mut tutti_store);
    pub fn tutti_store_get(
        store: *mut tutti_store,
        key: *const c_char,
        buffer: *mut c_void,
        capacity: usize,
        bytes: *mut usize,
        timeout_ms: i64,
    ) -> c_int;
    pub fn tutti_store_linger(store: *mut tutti_store, timeout_ms: i64) -> c_int;
    pub fn tutti_store_memory_sized(
        opts: *const tutti_store_opts,
        opts_bytes: usize,
        store: *mut *mut tutti_store,
    ) -> c_int;
    pub fn tutti_store_multi_get(
        store: *mut tutti_store,
        keys: *const *const c_char,
        n: c_int,
        values: *mut tutti_bytes,
        timeout_ms: i64,
    ) -> c_int;
    pub fn tutti_store_multi_set(
        store: *mut tutti_store,
        keys: *const *const c_char,
        values: *const tutti_bytes,
        n: c_int,
    ) -> c_int;
    pub fn tutti_store_num_keys(store: *mut tutti_store, count: *mut i64) -> c_int;
    pub fn tutti_store_num_requests(store: *mut tutti_store, count: *mut i64) -> c_int;
    pub fn tutti_store_own_address(host: *mut c_char, capacity: usize) -> c_int;
    pub fn tutti_store_port(store: *const tutti_store) -> u16;
    pub fn tutti_store_prefix(base: *mut tutti_store, prefix: *const c_char, store: *mut *mut tutti_store) -> c_int;
    pub fn tutti_store_redis_sized(
        url: *const c_char,
        opts: *const tutti_store_opts,
        opts_bytes: usize,
        store: *mut *mut tutti_store,
    ) -> c_int;
    pub fn tutti_store_set(store: *mut tutti_store, key: *const c_char, value: *const c_void, bytes: usize) -> c_int;
    pub fn tutti_store_set_timeout(store: *mut tutti_store, timeout_ms: i64) -> c_int;
    pub fn tutti_store_tcp_sized(
        host: *const c_char,
        port: u16,
        opts: *const tutti_store_opts,
        opts_bytes: usize,
        store: *mut *mut tutti_store,
    ) -> c_int;
    pub fn tutti_store_wait(store: *mut tutti_store, keys: *const *const c_char, n: c_int, timeout_ms: i64) -> c_int;
    pub fn tutti_version() -> *const c_char;
    pub fn tutti_wait(work: *mut *mut tutti_work, timeout_ms: i64) -> c_int;
    pub fn tutti_wait_all(works: *mut *mut tutti_work, n: c_int, timeout_ms: i64) -> c_int;
    pub fn tutti_wait_any(works: *mut *mut tutti_work, n: c_int, timeout_ms: i64, index: *mut c_int) -> c_int;
    pub fn tutti_wait_stream(work: *mut tutti_work, stream: *mut c_void) -> c_int;
    pub fn tutti_work_duration_ns(work: *const tutti_work) -> i64;
    pub fn tutti_work_error(work: *mut tutti_work) -> *const c_char;
    pub fn tutti_work_fd(work: *mut tutti_work) -> c_int;
    pub fn tutti_work_free(work: *mut tutti_work);
    pub fn tutti_work_is_completed(work: *mut tutti_work) -> bool;
    pub fn tutti_work_op(work: *const tutti_work) -> tutti_kind;
    pub fn tutti_work_received(work: *const tutti_work) -> i64;
    pub fn tutti_work_sequence(work: *const tutti_work) -> u64;
    pub fn tutti_work_source(work: *const tutti_work) -> c_int;
    pub fn tutti_work_status(work: *mut tutti_work) -> c_int;
    pub fn tutti_work_tag(work: *const tutti_work) -> c_int;
    pub fn tutti_work_then(
        work: *mut tutti_work,
        callback: Option<unsafe extern "C" fn(work: *mut tutti_work, argument: *mut c_void)>,
        argument: *mut c_void,
    ) -> c_int;
    pub fn tutti_work_wait(work: *mut tutti_work, timeout_ms: i64) -> c_int;
}
