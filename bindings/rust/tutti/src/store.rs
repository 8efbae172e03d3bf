//! The key-value store through which ranks find each other.

use std::ffi::CString;
use std::ptr;
use std::sync::Arc;
use std::time::Duration;

use tutti_sys as sys;

use crate::error::{check, Error, Result, Status};
use crate::op::c_string;
use crate::work::milliseconds;

/// The handle of a store, which is freed when nobody uses it any more.
pub(crate) struct Handle(pub(crate) *mut sys::tutti_store);

// SAFETY: any thread may call the functions of a store
unsafe impl Send for Handle {}
// SAFETY: several may call at a time
unsafe impl Sync for Handle {}

impl Drop for Handle {
    fn drop(&mut self) {
        // SAFETY: the last owner frees it, so no call is running
        unsafe { sys::tutti_store_free(self.0) }
    }
}

/// A key-value store.  Clones are the same store.
///
/// Keys have 1 to 8,192 bytes, values up to 8 MiB.
///
/// ```
/// # fn main() -> tutti::Result<()> {
/// let store = tutti::Store::memory()?;
/// store.set("colour", b"blue")?;
/// assert_eq!(store.get("colour", None)?, b"blue");
/// assert_eq!(store.add("count", 3)?, 3);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Store {
    pub(crate) handle: Arc<Handle>,
}

/// Options of a tcp store.  The default is a client with the launcher's token.  Not `Debug`, which would print it.
#[derive(Clone, Default)]
pub struct TcpOptions {
    /// Also run the server.  Port 0 selects a free one: [`Store::port`].
    pub server: bool,
    /// The job's token.  None: that of the environment.
    pub token: Option<[u8; sys::TUTTI_TOKEN_BYTES]>,
    /// Serve an address other than loopback without a token.
    pub insecure: bool,
    /// The default timeout of the store's calls.  None: 5 minutes.
    pub timeout: Option<Duration>,
}

/// Keys as C takes them.
struct Keys {
    _strings: Vec<CString>,
    pointers: Vec<*const std::os::raw::c_char>,
}

impl Keys {
    fn new(keys: &[&str]) -> Result<Keys> {
        let strings = keys.iter().map(|key| c_string(key)).collect::<Result<Vec<_>>>()?;
        let pointers = strings.iter().map(|key| key.as_ptr()).collect();
        Ok(Keys { _strings: strings, pointers })
    }

    fn n(&self) -> i32 {
        self.pointers.len() as i32
    }
}

impl Store {
    fn open(
        call: impl FnOnce(*const sys::tutti_store_opts, usize, *mut *mut sys::tutti_store) -> i32,
        opts: &sys::tutti_store_opts,
    ) -> Result<Store> {
        let mut handle = ptr::null_mut();
        check(call(opts, std::mem::size_of_val(opts), &mut handle))?;
        Ok(Store { handle: Arc::new(Handle(handle)) })
    }

    /// Opens a tcp store.
    pub fn tcp(host: &str, port: u16, options: &TcpOptions) -> Result<Store> {
        let host = c_string(host)?;
        let opts = sys::tutti_store_opts {
            timeout_ms: options.timeout.map_or(0, |t| milliseconds(t).max(1)),
            token: options.token.as_ref().map_or(ptr::null(), |token| token.as_ptr()),
            server: options.server,
            insecure: options.insecure,
            world_size: 0,
        };
        // SAFETY: the string and the options are valid during the call
        Store::open(|o, n, to| unsafe { sys::tutti_store_tcp_sized(host.as_ptr(), port, o, n, to) }, &opts)
    }

    /// Opens a store in a file on a path that all processes share.
    pub fn file(path: &str) -> Result<Store> {
        let path = c_string(path)?;
        let opts = Default::default();
        // SAFETY: as in tcp
        Store::open(|o, n, to| unsafe { sys::tutti_store_file_sized(path.as_ptr(), o, n, to) }, &opts)
    }

    /// Opens a store on a redis server: `"redis://host:port/JOB"`.
    pub fn redis(url: &str) -> Result<Store> {
        let url = c_string(url)?;
        let opts = Default::default();
        // SAFETY: as in tcp
        Store::open(|o, n, to| unsafe { sys::tutti_store_redis_sized(url.as_ptr(), o, n, to) }, &opts)
    }

    /// Makes a store in this process's memory, for ranks that are threads.
    pub fn memory() -> Result<Store> {
        let opts = Default::default();
        // SAFETY: as in tcp
        Store::open(|o, n, to| unsafe { sys::tutti_store_memory_sized(o, n, to) }, &opts)
    }

    /// Makes a view of the keys that begin with `prefix` and `/`.
    pub fn prefix(&self, prefix: &str) -> Result<Store> {
        let prefix = c_string(prefix)?;
        let opts = Default::default();
        // SAFETY: the handle is valid.  The view holds a reference of its own to the base.
        Store::open(|_, _, to| unsafe { sys::tutti_store_prefix(self.raw(), prefix.as_ptr(), to) }, &opts)
    }

    pub(crate) fn raw(&self) -> *mut sys::tutti_store {
        self.handle.0
    }

    /// The port of a tcp store, 0 for other kinds.
    pub fn port(&self) -> u16 {
        // SAFETY: the handle is valid, here and below
        unsafe { sys::tutti_store_port(self.raw()) }
    }

    /// Sets key to value.
    pub fn set(&self, key: &str, value: &[u8]) -> Result<()> {
        let key = c_string(key)?;
        // SAFETY: borrowed during the call
        check(unsafe { sys::tutti_store_set(self.raw(), key.as_ptr(), value.as_ptr().cast(), value.len()) })
    }

    /// Appends to the value under key.
    pub fn append(&self, key: &str, value: &[u8]) -> Result<()> {
        let key = c_string(key)?;
        // SAFETY: borrowed during the call
        check(unsafe { sys::tutti_store_append(self.raw(), key.as_ptr(), value.as_ptr().cast(), value.len()) })
    }

    /// Waits until key exists, and returns its value.  None: the store's timeout.
    pub fn get(&self, key: &str, timeout: Option<Duration>) -> Result<Vec<u8>> {
        let mut values = self.multi_get(&[key], timeout)?;
        Ok(values.pop().unwrap_or_default())
    }

    /// Waits until all keys exist, and returns their values.
    pub fn multi_get(&self, keys: &[&str], timeout: Option<Duration>) -> Result<Vec<Vec<u8>>> {
        let (keys, mut values) = (Keys::new(keys)?, vec![Default::default(); keys.len()]);
        let ms = wait_ms(timeout);
        // SAFETY: as many entries as keys
        check(unsafe {
            sys::tutti_store_multi_get(self.raw(), keys.pointers.as_ptr(), keys.n(), values.as_mut_ptr(), ms)
        })?;
        Ok(take_bytes(&mut values))
    }

    /// Adds to the decimal integer under key (0 if absent), and returns the sum.
    pub fn add(&self, key: &str, delta: i64) -> Result<i64> {
        let (key, mut value) = (c_string(key)?, 0);
        // SAFETY: borrowed during the call
        check(unsafe { sys::tutti_store_add(self.raw(), key.as_ptr(), delta, &mut value) })?;
        Ok(value)
    }

    /// Waits until all keys exist.
    pub fn wait(&self, keys: &[&str], timeout: Option<Duration>) -> Result<()> {
        let (keys, ms) = (Keys::new(keys)?, wait_ms(timeout));
        // SAFETY: borrowed during the call
        check(unsafe { sys::tutti_store_wait(self.raw(), keys.pointers.as_ptr(), keys.n(), ms) })
    }

    /// True if all keys exist.
    pub fn check(&self, keys: &[&str]) -> Result<bool> {
        let (keys, mut present) = (Keys::new(keys)?, false);
        // SAFETY: borrowed during the call
        check(unsafe { sys::tutti_store_check(self.raw(), keys.pointers.as_ptr(), keys.n(), &mut present) })?;
        Ok(present)
    }

    /// Sets key to `desired` if its value is `expected`.  An absent key equals an empty one.  True if
    /// the value after the call is `desired`.
    pub fn compare_set(&self, key: &str, expected: &[u8], desired: &[u8]) -> Result<bool> {
        let key = c_string(key)?;
        let (mut now, mut bytes) = (vec![0u8; desired.len()], 0);
        // SAFETY: the buffer has its capacity.  The rest is borrowed during the call.
        check(unsafe {
            sys::tutti_store_compare_set(
                self.raw(),
                key.as_ptr(),
                expected.as_ptr().cast(),
                expected.len(),
                desired.as_ptr().cast(),
                desired.len(),
                now.as_mut_ptr().cast(),
                now.len(),
                &mut bytes,
            )
        })?;
        Ok(bytes == desired.len() && now == desired)
    }

    /// Removes key.  True if it existed.
    pub fn delete(&self, key: &str) -> Result<bool> {
        let (key, mut existed) = (c_string(key)?, false);
        // SAFETY: borrowed during the call
        check(unsafe { sys::tutti_store_delete(self.raw(), key.as_ptr(), &mut existed) })?;
        Ok(existed)
    }

    /// The number of keys; of a view, those with its prefix.
    pub fn num_keys(&self) -> Result<usize> {
        let mut count = 0;
        // SAFETY: borrowed during the call
        check(unsafe { sys::tutti_store_num_keys(self.raw(), &mut count) })?;
        Ok(count as usize)
    }

    /// Returns once `world_size` callers have entered the barrier of this name.
    pub fn barrier(&self, name: &str, world_size: usize, timeout: Option<Duration>) -> Result<()> {
        let name = c_string(name)?;
        let n = i32::try_from(world_size).map_err(|_| Error::invalid("world_size is too large"))?;
        // SAFETY: borrowed during the call
        check(unsafe { sys::tutti_store_barrier(self.raw(), name.as_ptr(), n, wait_ms(timeout)) })
    }

    /// The value of key if it exists now.
    pub fn try_get(&self, key: &str) -> Result<Option<Vec<u8>>> {
        match self.get(key, Some(Duration::ZERO)) {
            Err(error) if error.status() == Status::Timeout => Ok(None),
            other => other.map(Some),
        }
    }
}

fn wait_ms(timeout: Option<Duration>) -> i64 {
    timeout.map_or(sys::TUTTI_DEFAULT_TIMEOUT, milliseconds)
}

/// Copies byte strings that the library allocated, and frees them.
pub(crate) fn take_bytes(values: &mut [sys::tutti_bytes]) -> Vec<Vec<u8>> {
    let copy = |value: &sys::tutti_bytes| {
        if value.data.is_null() || value.bytes == 0 {
            return Vec::new();
        }
        // SAFETY: the library allocated that many bytes
        unsafe { std::slice::from_raw_parts(value.data.cast::<u8>(), value.bytes) }.to_vec()
    };
    let result = values.iter().map(copy).collect();
    // SAFETY: they are the library's, and are not used any more
    unsafe { sys::tutti_bytes_free(values.as_mut_ptr(), values.len() as i32) };
    result
}
