//! Process groups.

use std::cell::Cell;
use std::marker::PhantomData;
use std::os::raw::c_int;
use std::ptr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tutti_sys as sys;

use crate::error::{check, text_of, Error, Result};
use crate::op::c_string;
use crate::store::{Handle, Store};
use crate::work::milliseconds;

// ---- life --------------------------------------------------------------------------------------

/// The stores of groups.  Groups share connections, so the store of the first one is used until the last
/// one has ended.
struct Stores {
    groups: usize,
    used: Vec<Arc<Handle>>,
}

static STORES: Mutex<Stores> = Mutex::new(Stores { groups: 0, used: Vec::new() });

fn stores() -> std::sync::MutexGuard<'static, Stores> {
    STORES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Keeps the stores of groups, from before the making of a group to after its end.
struct StoreUse;

impl StoreUse {
    fn of(store: Option<&Store>) -> StoreUse {
        let mut stores = stores();
        stores.groups += 1;
        stores.used.extend(store.map(|store| store.handle.clone()));
        StoreUse
    }
}

impl Drop for StoreUse {
    fn drop(&mut self) {
        let mut stores = stores();
        stores.groups -= 1;
        if stores.groups == 0 {
            let used = std::mem::take(&mut stores.used);
            drop(stores);
            drop(used);
        }
    }
}

/// A group of the library.  It is destroyed when neither its owner nor a group made from it needs it:
/// the library forbids that while another thread makes a group from it.
struct Inner {
    handle: *mut sys::tutti_group, // NULL: the default group
    _parent: Option<Arc<Inner>>,
    _stores: Option<StoreUse>,
}

// SAFETY: any thread may call the functions of a group
unsafe impl Send for Inner {}
// SAFETY: several may call at a time
unsafe impl Sync for Inner {}

impl Inner {
    /// A group that was made from another one.
    fn child(handle: *mut sys::tutti_group, parent: &Arc<Inner>) -> Arc<Inner> {
        Arc::new(Inner { handle, _parent: Some(parent.clone()), _stores: None })
    }

    /// A group with connections of its own.
    fn root(handle: *mut sys::tutti_group, stores: StoreUse) -> Arc<Inner> {
        Arc::new(Inner { handle, _parent: None, _stores: Some(stores) })
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // SAFETY: the last owner destroys it, so no thread makes a group from it
        unsafe { sys::tutti_destroy_process_group(self.handle) };
    }
}

// ---- groups ------------------------------------------------------------------------------------

/// A process group, of which this process is a member.
///
/// [`Operations`](crate::Operations) has its collectives and messages.  Any thread may call.  The order of
/// the calls is the order of the collectives.
///
/// The group is destroyed when the value and all groups made from it have been dropped.
pub struct ProcessGroup {
    inner: Arc<Inner>,
}

/// How to make the default group.  The default values take everything from the launcher (tutti-run,
/// torchrun, mpirun, srun).
#[derive(Clone, Default)]
pub struct InitOptions<'a> {
    /// `"tcp"`, `"mpi"`, `"cpu:tcp|mpi"`.  None: the best one there is.
    pub backend: Option<&'a str>,
    /// `"env://"`, `"tcp://host:port"`, `"file:///path"`, `"redis://host/JOB"`.  None: `env://`.
    pub init_method: Option<&'a str>,
    /// Rendezvous through this store.  Needs `rank_and_size`.
    pub store: Option<Store>,
    /// This rank and the number of ranks.
    pub rank_and_size: Option<(usize, usize)>,
    /// The default timeout of operations.  None: 30 minutes.
    pub timeout: Option<Duration>,
    /// The limit of the rendezvous.  None: 5 minutes.
    pub store_timeout: Option<Duration>,
    /// Join a job that is under way.
    pub newcomer: bool,
}

/// Options of a group.  The default values are the parent's.
#[derive(Clone, Default)]
pub struct GroupOptions<'a> {
    pub backend: Option<&'a str>,
    /// The name in messages.
    pub name: Option<&'a str>,
    pub timeout: Option<Duration>,
    /// Only the members call.
    pub members_only: bool,
    /// As the variable `TUTTI_ALGO`, for this group.
    pub algorithm: Option<&'a str>,
}

/// Whether a rank is alive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RankState {
    Alive,
    /// It has destroyed the group, or ended by exit.
    Left,
    /// Its process or its connection has ended.
    Lost,
}

/// An optional time as C has it, where 0 means the default.
fn option_ms(time: Option<Duration>) -> i64 {
    time.map_or(0, |time| milliseconds(time).max(1))
}

fn option_string(text: Option<&str>) -> Result<Option<std::ffi::CString>> {
    text.map(c_string).transpose()
}

fn pointer(text: &Option<std::ffi::CString>) -> *const std::os::raw::c_char {
    text.as_ref().map_or(ptr::null(), |text| text.as_ptr())
}

fn int(value: usize) -> c_int {
    c_int::try_from(value).unwrap_or(c_int::MAX)
}

/// A rank that C returned, where -1 means none.
fn rank_from(rank: c_int) -> Option<usize> {
    usize::try_from(rank).ok()
}

/// Makes the default group with a backend, as the launcher says.
///
/// ```
/// # fn main() -> tutti::Result<()> {
/// let world = tutti::init("tcp")?;
/// println!("Hello from rank {} out of {} processes!", world.rank(), world.size());
/// # Ok(())
/// # }
/// ```
pub fn init(backend: &str) -> Result<ProcessGroup> {
    ProcessGroup::init(&InitOptions { backend: Some(backend), ..Default::default() })
}

impl ProcessGroup {
    /// Makes the default group.  Returns when all ranks have joined.
    pub fn init(options: &InitOptions<'_>) -> Result<ProcessGroup> {
        let (backend, method) = (option_string(options.backend)?, option_string(options.init_method)?);
        let (rank, world_size) = options.rank_and_size.unwrap_or((0, 0));
        let opts = sys::tutti_init_opts {
            init_method: pointer(&method),
            store: options.store.as_ref().map_or(ptr::null_mut(), |store| store.raw()),
            rank: int(rank),
            world_size: int(world_size),
            timeout_ms: option_ms(options.timeout),
            store_timeout_ms: option_ms(options.store_timeout),
            newcomer: options.newcomer,
            ..Default::default()
        };
        let stores = StoreUse::of(options.store.as_ref());
        // SAFETY: the strings are valid during the call, and the store until the group has ended
        check(unsafe { sys::tutti_init_process_group_sized(pointer(&backend), &opts, std::mem::size_of_val(&opts)) })?;
        Ok(ProcessGroup { inner: Inner::root(ptr::null_mut(), stores) })
    }

    /// Makes a group of the callers that share a store, apart from the default group.  Ranks may be
    /// threads.
    pub fn create(
        backend: &str,
        store: &Store,
        rank: usize,
        world_size: usize,
        options: &GroupOptions<'_>,
    ) -> Result<ProcessGroup> {
        let (backend, stores) = (c_string(backend)?, StoreUse::of(Some(store)));
        let handle = with_options(options, ptr::null_mut(), |opts, bytes, handle| {
            let (rank, n) = (int(rank), int(world_size));
            // SAFETY: the strings are valid during the call, and the store until the group has ended
            unsafe { sys::tutti_create_group_sized(backend.as_ptr(), store.raw(), rank, n, opts, bytes, handle) }
        })?;
        Ok(ProcessGroup { inner: Inner::root(handle, stores) })
    }

    /// The group of a handle, or None if this rank is not a member.
    fn member(&self, handle: *mut sys::tutti_group) -> Option<ProcessGroup> {
        let group = ProcessGroup { inner: Inner::child(handle, &self.inner) };
        // SAFETY: the handle is valid
        (unsafe { sys::tutti_get_rank(handle) } >= 0).then_some(group)
    }

    /// Makes a group of some ranks of this one, in their order.  All ranks call, unless
    /// `members_only`.  Returns None on a rank that is not a member.
    ///
    /// `ranks` are global ranks.
    pub fn new_group(&self, ranks: &[usize], options: &GroupOptions<'_>) -> Result<Option<ProcessGroup>> {
        let ranks: Vec<c_int> = ranks.iter().map(|&rank| int(rank)).collect();
        let handle = with_options(options, self.raw(), |opts, bytes, handle| {
            // SAFETY: the ranks are valid during the call
            unsafe { sys::tutti_new_group_sized(ranks.as_ptr(), int(ranks.len()), opts, bytes, handle) }
        })?;
        Ok(self.member(handle))
    }

    /// Splits the group as MPI_Comm_split does.  None joins no group.
    pub fn split(&self, color: Option<u32>, key: i32) -> Result<Option<ProcessGroup>> {
        let color = color.map_or(-1, |color| c_int::try_from(color).unwrap_or(c_int::MAX));
        let handle = with_options(&GroupOptions::default(), self.raw(), |opts, bytes, handle| {
            // SAFETY: the options are valid during the call
            unsafe { sys::tutti_split_group_sized(color, key, opts, bytes, handle) }
        })?;
        Ok(self.member(handle))
    }

    /// Makes a group of the survivors after a failure.  Every survivor calls this.
    pub fn shrink(&self) -> Result<ProcessGroup> {
        let mut handle = ptr::null_mut();
        // SAFETY: the group is valid
        check(unsafe { sys::tutti_shrink_group(self.raw(), &mut handle) })?;
        Ok(ProcessGroup { inner: Inner::child(handle, &self.inner) })
    }

    /// Makes this the group of the survivors and of newcomers, after a failure or to let newcomers in.
    /// Groups made from it must have been dropped.
    pub fn regroup(&mut self, timeout: Option<Duration>) -> Result<()> {
        let inner = Arc::get_mut(&mut self.inner)
            .ok_or_else(|| Error::invalid("groups made from this one exist; drop them before regroup"))?;
        let opts = sys::tutti_regroup_opts { timeout_ms: option_ms(timeout), ..Default::default() };
        let (bytes, old, mut next) = (std::mem::size_of_val(&opts), inner.handle, ptr::null_mut());
        let to = if old.is_null() { ptr::null_mut() } else { &mut next };
        // SAFETY: nobody else uses the group
        check(unsafe { sys::tutti_regroup_sized(old, &opts, bytes, to) })?;
        if !old.is_null() {
            inner.handle = next;
            // SAFETY: only the old handle is left
            unsafe { sys::tutti_destroy_process_group(old) };
        }
        Ok(())
    }

    /// True if the group has failed, or if newcomers or other ranks wait to regroup.
    pub fn regroup_wanted(&self) -> bool {
        // SAFETY: the group is valid, here and below
        unsafe { sys::tutti_regroup_wanted(self.raw()) }
    }

    pub(crate) fn raw(&self) -> *mut sys::tutti_group {
        self.inner.handle
    }

    // ---- queries ---------------------------------------------------------------------------------

    /// This rank's number in the group.
    pub fn rank(&self) -> usize {
        // SAFETY: the group is valid
        rank_from(unsafe { sys::tutti_get_rank(self.raw()) }).unwrap_or(0)
    }

    /// The number of ranks.
    pub fn size(&self) -> usize {
        // SAFETY: the group is valid
        rank_from(unsafe { sys::tutti_get_world_size(self.raw()) }).unwrap_or(0)
    }

    /// The global rank of a rank of the group.
    pub fn global_rank(&self, rank: usize) -> Option<usize> {
        // SAFETY: the group is valid
        rank_from(unsafe { sys::tutti_get_global_rank(self.raw(), int(rank)) })
    }

    /// The rank in the group of a global rank.
    pub fn group_rank(&self, rank: usize) -> Option<usize> {
        // SAFETY: the group is valid
        rank_from(unsafe { sys::tutti_get_group_rank(self.raw(), int(rank)) })
    }

    /// The number of the host of a rank of the group, if the backend knows it.
    pub fn host(&self, rank: usize) -> Option<usize> {
        // SAFETY: the group is valid
        rank_from(unsafe { sys::tutti_get_host(self.raw(), int(rank)) })
    }

    /// The group's name, as messages have it.
    pub fn name(&self) -> String {
        // SAFETY: the text is valid while the group exists
        unsafe { text_of(sys::tutti_get_name(self.raw())) }
    }

    /// The backends as a map, `"cpu:tcp"`.
    pub fn backend(&self) -> String {
        // SAFETY: the text is valid while the group exists
        unsafe { text_of(sys::tutti_get_backend(self.raw())) }
    }

    /// The number of the last collective that this rank has started.
    pub fn sequence(&self) -> u64 {
        // SAFETY: the group is valid
        unsafe { sys::tutti_get_sequence(self.raw()) }
    }

    /// Describes what the backends use, for people.
    pub fn describe(&self) -> Result<String> {
        let mut text = vec![0; 65536];
        // SAFETY: the buffer has its capacity
        check(unsafe { sys::tutti_describe_group(self.raw(), text.as_mut_ptr(), text.len()) })?;
        // SAFETY: the library ends the text with a zero byte
        Ok(unsafe { text_of(text.as_ptr()) })
    }

    /// What this rank knows of the others.  Does not wait.
    pub fn health(&self) -> Result<Vec<RankState>> {
        let mut ranks = vec![sys::tutti_rank_health::default(); self.size()];
        let (bytes, n) = (std::mem::size_of::<sys::tutti_rank_health>(), int(ranks.len()));
        // SAFETY: as many entries as ranks
        check(unsafe { sys::tutti_group_health_sized(self.raw(), ranks.as_mut_ptr(), bytes, n) })?;
        let state = |health: &sys::tutti_rank_health| match health.state {
            sys::TUTTI_RANK_ALIVE => RankState::Alive,
            sys::TUTTI_RANK_LEFT => RankState::Left,
            _ => RankState::Lost,
        };
        Ok(ranks.iter().map(state).collect())
    }

    /// Waits until every operation that this process has started has ended.
    pub fn quiesce(&self, timeout: Option<Duration>) -> Result<()> {
        let ms = timeout.map_or(sys::TUTTI_DEFAULT_TIMEOUT, milliseconds);
        // SAFETY: the group is valid
        check(unsafe { sys::tutti_group_quiesce(self.raw(), ms) })
    }

    /// Fails all operations of the group, on every rank, with Aborted.
    pub fn abort(&self, reason: &str) -> Result<()> {
        let reason = c_string(reason)?;
        // SAFETY: the group is valid
        check(unsafe { sys::tutti_abort(self.raw(), reason.as_ptr()) })
    }
}

/// Makes a group with options, and returns its handle.
fn with_options(
    options: &GroupOptions<'_>,
    parent: *mut sys::tutti_group,
    make: impl FnOnce(*const sys::tutti_group_opts, usize, *mut *mut sys::tutti_group) -> c_int,
) -> Result<*mut sys::tutti_group> {
    let (backend, name) = (option_string(options.backend)?, option_string(options.name)?);
    let algorithm = option_string(options.algorithm)?;
    let opts = sys::tutti_group_opts {
        backend: pointer(&backend),
        parent,
        timeout_ms: option_ms(options.timeout),
        members_only: options.members_only,
        name: pointer(&name),
        algorithm: pointer(&algorithm),
        ..Default::default()
    };
    let mut handle = ptr::null_mut();
    check(make(&opts, std::mem::size_of_val(&opts), &mut handle))?;
    Ok(handle)
}

// ---- coalescing --------------------------------------------------------------------------------

thread_local! {
    /// The group that this thread coalesces on, if any.
    static COALESCING: Cell<Option<*mut sys::tutti_group>> = const { Cell::new(None) };
}

impl ProcessGroup {
    /// Refuses a call that would be queued, because its buffers would be free before it starts.
    pub(crate) fn refuse_while_coalescing(&self) -> Result<()> {
        if COALESCING.with(Cell::get) == Some(self.raw()) {
            return Err(Error::invalid("inside of coalesce call the methods of its argument, not the group's"));
        }
        Ok(())
    }

    /// Starts the operations that a function queues together, and waits for them.
    ///
    /// ```
    /// # fn main() -> tutti::Result<()> {
    /// use tutti::ReduceOp;
    /// let world = tutti::init("tcp")?;
    /// let (mut a, mut b) = (vec![1.0f32; 8], vec![2i64; 3]);
    /// world.coalesce(|batch| {
    ///     batch.all_reduce(&mut a, ReduceOp::Sum)?;
    ///     batch.broadcast(&mut b, 0)
    /// })?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// If the function fails or panics, the operations that it has queued are done nevertheless.
    ///
    /// A buffer must outlive the call:
    ///
    /// ```compile_fail
    /// # fn main() -> tutti::Result<()> {
    /// use tutti::ReduceOp;
    /// let world = tutti::init("tcp")?;
    /// world.coalesce(|batch| {
    ///     let mut a = vec![1.0f32; 8];
    ///     batch.all_reduce(&mut a, ReduceOp::Sum)
    /// })?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn coalesce<'env, R>(&'env self, queue: impl FnOnce(&Batch<'env>) -> Result<R>) -> Result<R> {
        if COALESCING.with(Cell::get).is_some() {
            return Err(Error::invalid("coalesce inside of coalesce; end the outer one first"));
        }
        // SAFETY: the group is valid
        check(unsafe { sys::tutti_coalesce_begin(self.raw()) })?;
        COALESCING.with(|group| group.set(Some(self.raw())));
        let end = End { group: self, done: false };
        let result = queue(&Batch { group: self, _thread: PhantomData, _env: PhantomData });
        let ended = end.now();
        let value = result?;
        ended.map(|()| value)
    }
}

/// Ends coalescing, also when a panic passes.
struct End<'g> {
    group: &'g ProcessGroup,
    done: bool,
}

impl End<'_> {
    fn now(mut self) -> Result<()> {
        self.done = true;
        end_coalescing(self.group)
    }
}

impl Drop for End<'_> {
    fn drop(&mut self) {
        if !self.done {
            let _ = end_coalescing(self.group);
        }
    }
}

/// Starts what is queued, and returns when all of it has ended.
fn end_coalescing(group: &ProcessGroup) -> Result<()> {
    COALESCING.with(|group| group.set(None));
    // SAFETY: begin was called in this thread.  Without a work the call ends after the operations.
    check(unsafe { sys::tutti_coalesce_end(group.raw(), ptr::null_mut()) })
}

/// Queues operations: see [`ProcessGroup::coalesce`].  Their buffers are borrowed until its end.
pub struct Batch<'env> {
    group: &'env ProcessGroup,
    _thread: PhantomData<*mut ()>, // the queue is this thread's
    /// Keeps 'env as it is.  If it could be shortened, a buffer that ends within the function would be taken.
    _env: PhantomData<&'env mut &'env ()>,
}

impl<'env> Batch<'env> {
    fn opts(&self, tag: i32) -> sys::tutti_opts {
        sys::tutti_opts { tag, ..crate::operations::Call::new(self.group).opts() }
    }

    /// Queues an all_reduce.
    pub fn all_reduce<T: crate::Element>(&self, x: &'env mut [T], op: impl crate::Reduce<T>) -> Result<()> {
        let (x, opts) = (crate::element::tensor_mut(x), self.opts(0));
        // SAFETY: the buffer is borrowed until coalesce has ended, here and below
        check(unsafe { sys::tutti_all_reduce_sized(x, op.code(), &opts, std::mem::size_of_val(&opts)) })
    }

    /// Queues a broadcast.
    pub fn broadcast<T: crate::Element>(&self, x: &'env mut [T], root: usize) -> Result<()> {
        let (x, opts) = (crate::element::tensor_mut(x), self.opts(0));
        // SAFETY: as above
        check(unsafe { sys::tutti_broadcast_sized(x, int(root), &opts, std::mem::size_of_val(&opts)) })
    }

    /// Queues an all_gather into consecutive parts of `out`.
    pub fn all_gather_into<T: crate::Element>(&self, out: &'env mut [T], input: &'env [T]) -> Result<()> {
        let (out, input, opts) = (crate::element::tensor_mut(out), crate::element::tensor(input), self.opts(0));
        // SAFETY: as above
        check(unsafe { sys::tutti_all_gather_into_tensor_sized(out, input, &opts, std::mem::size_of_val(&opts)) })
    }

    /// Queues a send.
    pub fn send<T: crate::Element>(&self, x: &'env [T], dst: usize, tag: i32) -> Result<()> {
        let (x, opts) = (crate::element::tensor(x), self.opts(tag));
        // SAFETY: as above
        check(unsafe { sys::tutti_send_sized(x, int(dst), &opts, std::mem::size_of_val(&opts)) })
    }

    /// Queues a receive.
    pub fn recv<T: crate::Element>(&self, x: &'env mut [T], src: usize, tag: i32) -> Result<()> {
        let (x, opts) = (crate::element::tensor_mut(x), self.opts(tag));
        // SAFETY: as above
        check(unsafe { sys::tutti_recv_sized(x, int(src), &opts, std::mem::size_of_val(&opts)) })
    }
}
