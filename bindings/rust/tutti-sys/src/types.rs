//! Types and constants.

use std::os::raw::{c_char, c_int, c_uint, c_void};

// ---- status ------------------------------------------------------------------------------------

pub const TUTTI_OK: c_int = 0;
pub const TUTTI_ERR_INVALID_ARGUMENT: c_int = -1;
pub const TUTTI_ERR_UNSUPPORTED: c_int = -2;
pub const TUTTI_ERR_TIMEOUT: c_int = -3;
pub const TUTTI_ERR_PEER_LOST: c_int = -4;
pub const TUTTI_ERR_MISMATCH: c_int = -5;
pub const TUTTI_ERR_ABORTED: c_int = -6;
pub const TUTTI_ERR_STORE: c_int = -7;
pub const TUTTI_ERR_AUTH: c_int = -8;
pub const TUTTI_ERR_NO_MEMORY: c_int = -9;
pub const TUTTI_ERR_SYSTEM: c_int = -10;
pub const TUTTI_ERR_BACKEND: c_int = -11;
pub const TUTTI_ERR_NOT_FOUND: c_int = -12;

// ---- dtypes, reduce operations, kinds ------------------------------------------------------------

// Aliases, not Rust enums, because the library may return values that these headers do not have.
pub type tutti_dtype = c_uint;
pub type tutti_reduce_op = c_uint;
pub type tutti_kind = c_uint;

pub const TUTTI_INT8: tutti_dtype = 0x0008;
pub const TUTTI_INT16: tutti_dtype = 0x0010;
pub const TUTTI_INT32: tutti_dtype = 0x0020;
pub const TUTTI_INT64: tutti_dtype = 0x0040;
pub const TUTTI_UINT8: tutti_dtype = 0x0108;
pub const TUTTI_UINT16: tutti_dtype = 0x0110;
pub const TUTTI_UINT32: tutti_dtype = 0x0120;
pub const TUTTI_UINT64: tutti_dtype = 0x0140;
pub const TUTTI_FLOAT16: tutti_dtype = 0x0210;
pub const TUTTI_FLOAT32: tutti_dtype = 0x0220;
pub const TUTTI_FLOAT64: tutti_dtype = 0x0240;
pub const TUTTI_BFLOAT16: tutti_dtype = 0x0410;
pub const TUTTI_COMPLEX64: tutti_dtype = 0x0540;
pub const TUTTI_COMPLEX128: tutti_dtype = 0x0580;
pub const TUTTI_BOOL: tutti_dtype = 0x0608;
pub const TUTTI_FLOAT8_E4M3FN: tutti_dtype = 0x0a08;
pub const TUTTI_FLOAT8_E5M2: tutti_dtype = 0x0c08;

pub const TUTTI_SUM: tutti_reduce_op = 0;
pub const TUTTI_PRODUCT: tutti_reduce_op = 1;
pub const TUTTI_MIN: tutti_reduce_op = 2;
pub const TUTTI_MAX: tutti_reduce_op = 3;
pub const TUTTI_AVG: tutti_reduce_op = 4;
pub const TUTTI_PREMUL_SUM: tutti_reduce_op = 5;
pub const TUTTI_BAND: tutti_reduce_op = 6;
pub const TUTTI_BOR: tutti_reduce_op = 7;
pub const TUTTI_BXOR: tutti_reduce_op = 8;

pub const TUTTI_BROADCAST: tutti_kind = 0;
pub const TUTTI_ALL_REDUCE: tutti_kind = 1;
pub const TUTTI_REDUCE: tutti_kind = 2;
pub const TUTTI_ALL_GATHER: tutti_kind = 3;
pub const TUTTI_GATHER: tutti_kind = 4;
pub const TUTTI_SCATTER: tutti_kind = 5;
pub const TUTTI_REDUCE_SCATTER: tutti_kind = 6;
pub const TUTTI_ALL_TO_ALL: tutti_kind = 7;
pub const TUTTI_BARRIER: tutti_kind = 8;
pub const TUTTI_MONITORED_BARRIER: tutti_kind = 9;
pub const TUTTI_SEND: tutti_kind = 10;
pub const TUTTI_RECV: tutti_kind = 11;
pub const TUTTI_COALESCED: tutti_kind = 12;
pub const TUTTI_COPY: tutti_kind = 13;
pub const TUTTI_PROBE: tutti_kind = 14;
pub const TUTTI_SCAN: tutti_kind = 15;
pub const TUTTI_EXSCAN: tutti_kind = 16;

// ---- other constants -----------------------------------------------------------------------------

pub const TUTTI_CPU: i32 = 1;
pub const TUTTI_CUDA: i32 = 2;
pub const TUTTI_ANY_SOURCE: c_int = -1;
pub const TUTTI_ANY_TAG: c_int = -1;
pub const TUTTI_INFINITE: i64 = i64::MAX;
pub const TUTTI_NOW: i64 = -i64::MAX;
pub const TUTTI_DEFAULT_TIMEOUT: i64 = i64::MAX - 1;
pub const TUTTI_RANK_ALIVE: i32 = 0;
pub const TUTTI_RANK_LEFT: i32 = 1;
pub const TUTTI_RANK_LOST: i32 = 2;
pub const TUTTI_LOG_ERROR: c_int = 0;
pub const TUTTI_LOG_WARN: c_int = 1;
pub const TUTTI_LOG_INFO: c_int = 2;
pub const TUTTI_LOG_DEBUG: c_int = 3;
pub const TUTTI_ABI_VERSION: c_int = 1;
pub const TUTTI_STORE_KEY_MAX: usize = 8192;
pub const TUTTI_STORE_VALUE_MAX: usize = 8 << 20;
pub const TUTTI_TOKEN_BYTES: usize = 32;
pub const TUTTI_STATS_KINDS: usize = 32;

// ---- handles -------------------------------------------------------------------------------------

macro_rules! opaque {
    ($($name:ident),*) => {$(
        #[repr(C)]
        pub struct $name {
            _unknown: [u8; 0],
            _not_send: std::marker::PhantomData<*mut u8>,
        }
    )*};
}
opaque!(tutti_group, tutti_work, tutti_store);

// ---- functions of the program --------------------------------------------------------------------

pub type tutti_op_fn = Option<
    unsafe extern "C" fn(inout: *mut c_void, in_: *const c_void, n: i64, dtype: tutti_dtype, argument: *mut c_void),
>;
pub type tutti_logger = Option<unsafe extern "C" fn(line: *const tutti_log_line, argument: *mut c_void)>;

// ---- structs -------------------------------------------------------------------------------------

macro_rules! structs {
    ($($name:ident { $($field:ident: $type:ty),* $(,)? })*) => {
        $(
            #[repr(C)]
            #[derive(Clone, Copy)]
            pub struct $name {
                $(pub $field: $type),*
            }

            impl Default for $name {
                /// All fields are zero, which means their defaults.
                fn default() -> Self {
                    // SAFETY: the fields are numbers, bools, raw pointers and Option<fn>, for which zero is valid
                    unsafe { std::mem::zeroed() }
                }
            }
        )*

        /// Each struct's name, size and alignment, and its fields' names and offsets, for the test.
        #[doc(hidden)]
        #[allow(clippy::type_complexity)]
        pub fn layouts() -> Vec<(&'static str, usize, usize, Vec<(&'static str, usize)>)> {
            vec![$({
                let value = std::mem::MaybeUninit::<$name>::uninit();
                let base = value.as_ptr();
                (
                    stringify!($name),
                    std::mem::size_of::<$name>(),
                    std::mem::align_of::<$name>(),
                    vec![$((
                        stringify!($field),
                        // SAFETY: takes an address inside of value, and reads nothing
                        unsafe { std::ptr::addr_of!((*base).$field) as usize - base as usize },
                    )),*],
                )
            }),*]
        }
    };
}

structs! {
    tutti_device { type_: i32, index: i32 }
    tutti_tensor { data: *mut c_void, numel: i64, dtype: tutti_dtype, device: tutti_device }
    tutti_bytes { data: *mut c_void, bytes: usize }
    tutti_log_line {
        size: u32,
        level: i32,
        rank: i32,
        unused: i32,
        subsystem: *const c_char,
        text: *const c_char,
        unix_ns: i64,
    }
    tutti_init_opts {
        init_method: *const c_char,
        store: *mut tutti_store,
        rank: c_int,
        world_size: c_int,
        timeout_ms: i64,
        store_timeout_ms: i64,
        device: tutti_device,
        newcomer: bool,
        reserved: [bool; 7],
    }
    tutti_group_opts {
        backend: *const c_char,
        parent: *mut tutti_group,
        timeout_ms: i64,
        members_only: bool,
        high_priority: bool,
        name: *const c_char,
        device: tutti_device,
        algorithm: *const c_char,
    }
    tutti_regroup_opts { timeout_ms: i64, world_size: c_int, reserved: c_int }
    tutti_rank_health { state: i32, reserved: i32, silent_ms: i64, why: [c_char; 112] }
    tutti_op_opts { element_bytes: i64, commutative: bool, reserved: [u8; 7] }
    tutti_opts {
        group: *mut tutti_group,
        async_op: *mut *mut tutti_work,
        stream: *mut c_void,
        timeout_ms: i64,
        tag: c_int,
        group_rank: bool,
        source: *mut c_int,
        factor: f64,
        received: *mut i64,
        received_tag: *mut c_int,
    }
    tutti_message { source: c_int, tag: c_int, bytes: i64 }
    tutti_p2p_op {
        kind: tutti_kind,
        tensor: tutti_tensor,
        peer: c_int,
        tag: c_int,
        source: *mut c_int,
    }
    tutti_traffic { sent: u64, received: u64 }
    tutti_counters {
        shared: tutti_traffic,
        wire: tutti_traffic,
        retries: u64,
        memory: u64,
        library: tutti_traffic,
        reserved: [u64; 2],
    }
    tutti_stats {
        operations: [u64; TUTTI_STATS_KINDS],
        failed: u64,
        waits: u64,
        sleeps: u64,
        transport: tutti_counters,
    }
    tutti_store_opts {
        timeout_ms: i64,
        token: *const u8,
        server: bool,
        insecure: bool,
        world_size: i32,
    }
    tutti_store_calls {
        set: Option<unsafe extern "C" fn(*mut c_void, *const c_char, *const c_void, usize) -> c_int>,
        get: Option<unsafe extern "C" fn(*mut c_void, *const c_char, *mut tutti_bytes, i64) -> c_int>,
        wait: Option<unsafe extern "C" fn(*mut c_void, *const *const c_char, c_int, i64) -> c_int>,
        check:
            Option<unsafe extern "C" fn(*mut c_void, *const *const c_char, c_int, *mut bool) -> c_int>,
        add: Option<unsafe extern "C" fn(*mut c_void, *const c_char, i64, *mut i64) -> c_int>,
        compare_set: Option<
            unsafe extern "C" fn(
                *mut c_void,
                *const c_char,
                tutti_bytes,
                tutti_bytes,
                *mut tutti_bytes,
            ) -> c_int,
        >,
        remove: Option<unsafe extern "C" fn(*mut c_void, *const c_char, *mut bool) -> c_int>,
        append:
            Option<unsafe extern "C" fn(*mut c_void, *const c_char, *const c_void, usize) -> c_int>,
        multi_get: Option<
            unsafe extern "C" fn(
                *mut c_void,
                *const *const c_char,
                c_int,
                *mut tutti_bytes,
                i64,
            ) -> c_int,
        >,
        multi_set: Option<
            unsafe extern "C" fn(
                *mut c_void,
                *const *const c_char,
                *const tutti_bytes,
                c_int,
            ) -> c_int,
        >,
        num_keys: Option<unsafe extern "C" fn(*mut c_void, *const c_char, *mut i64) -> c_int>,
        close: Option<unsafe extern "C" fn(*mut c_void)>,
    }
}
