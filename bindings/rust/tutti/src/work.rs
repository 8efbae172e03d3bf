//! Operations that have been started, and scopes for those that borrow.
//!
//! A started operation uses its buffers until it has ended.  So a [`Work`] holds them.  Two ways keep
//! that sound, even if a `Work` is leaked:
//!
//! - An operation of a [`ProcessGroup`](crate::ProcessGroup) owns its buffers.  If its `Work` is
//!   dropped, the library frees them when the operation has ended.
//! - An operation of a [`Scope`] borrows its buffers for as long as the scope, which does not end
//!   before all its operations have.

use std::marker::PhantomData;
use std::mem::{ManuallyDrop, MaybeUninit};
use std::os::raw::c_void;
use std::panic::{catch_unwind, resume_unwind, AssertUnwindSafe};
use std::ptr;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tutti_sys as sys;

use crate::element::{Borrowed, Sink, Source};
use crate::error::{check, text_of, Error, Result};
use crate::op::{abort_on_panic, Reduce};
use crate::operations::{Call, Operations};

/// A received message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message {
    /// The sender's rank.
    pub source: usize,
    pub tag: i32,
    /// The size in bytes.
    pub bytes: usize,
}

/// An operation that has been started, with its buffers.
///
/// [`wait`](Work::wait) returns the buffers.  `'scope` is that of the [`Scope`], or `'static`.
#[must_use = "an operation that nobody waits for may fail unnoticed"]
pub struct Work<'scope, B> {
    handle: *mut sys::tutti_work,
    /// Not a plain B: a reference or a box that is moved would assert that nobody else uses its memory.
    buffers: MaybeUninit<B>,
    scope: Option<&'scope Pending>,
    _scope: PhantomData<&'scope mut ()>,
}

// SAFETY: any thread may call the functions of a work
unsafe impl<B: Send> Send for Work<'_, B> {}
// SAFETY: they may be called at the same time.  No method gives access to the buffers through &self.
unsafe impl<B: Send> Sync for Work<'_, B> {}

impl<'scope, B> Work<'scope, B> {
    /// Starts an operation.  The call stores the handle of the work.
    ///
    /// # Safety
    /// Dropping the buffers is allowed only after the operation if there is no scope, and frees nothing
    /// if there is one.
    pub(crate) unsafe fn start(
        buffers: B,
        scope: Option<&'scope Pending>,
        call: impl FnOnce(&mut B, *mut *mut sys::tutti_work) -> i32,
    ) -> Result<Self> {
        let (mut buffers, mut handle) = (MaybeUninit::new(buffers), ptr::null_mut());
        // SAFETY: the buffers are initialized
        let status = call(unsafe { buffers.assume_init_mut() }, &mut handle);
        if status < 0 || handle.is_null() {
            // SAFETY: nothing was started
            unsafe { buffers.assume_init_drop() };
            check(status)?;
            return Err(Error::invalid("the operation has no work; inside of coalesce use its own methods"));
        }
        if let Some(pending) = scope {
            pending.add(handle);
        }
        Ok(Work { handle, buffers, scope, _scope: PhantomData })
    }

    /// Waits until the operation has ended, and returns its buffers.
    pub fn wait(self) -> Result<B> {
        let (buffers, result) = self.wait_parts();
        result.map(|()| buffers)
    }

    /// As [`wait`](Work::wait), and returns the buffers also if the operation has failed.
    pub fn wait_parts(self) -> (B, Result<()>) {
        let result = self.wait_ended();
        (self.into_buffers(), result)
    }

    /// Waits for a receive.  Returns the buffer and what was received.
    pub fn wait_message(self) -> Result<(B, Message)> {
        self.wait_ended()?;
        // SAFETY: the handle is valid
        let message = unsafe {
            Message {
                source: sys::tutti_work_source(self.handle).max(0) as usize,
                tag: sys::tutti_work_tag(self.handle),
                bytes: sys::tutti_work_received(self.handle).max(0) as usize,
            }
        };
        Ok((self.into_buffers(), message))
    }

    /// Waits for at most this time.  False if it has passed; the operation continues.
    pub fn wait_for(&self, timeout: Duration) -> Result<bool> {
        // SAFETY: the handle is valid
        let status = unsafe { sys::tutti_work_wait(self.handle, milliseconds(timeout)) };
        if status == sys::TUTTI_ERR_TIMEOUT && !self.is_completed() {
            return Ok(false);
        }
        self.wait_ended().map(|()| true)
    }

    /// True if the operation has ended, with success or an error.  Never blocks.
    pub fn is_completed(&self) -> bool {
        // SAFETY: the handle is valid
        unsafe { sys::tutti_work_is_completed(self.handle) }
    }

    /// The error message of an operation that has failed, else "".
    pub fn error(&self) -> String {
        // SAFETY: the handle is valid, and owns the text
        unsafe { text_of(sys::tutti_work_error(self.handle)) }
    }

    /// The operation's number among the group's collectives, from 1; 0 for messages.
    pub fn sequence(&self) -> u64 {
        // SAFETY: the handle is valid
        unsafe { sys::tutti_work_sequence(self.handle) }
    }

    fn wait_ended(&self) -> Result<()> {
        // SAFETY: the handle is valid
        check(unsafe { wait_until_ended(self.handle) })
    }

    /// Takes the buffers out.  The operation has ended.
    fn into_buffers(self) -> B {
        let work = ManuallyDrop::new(self);
        if let Some(pending) = work.scope {
            pending.remove(work.handle);
        }
        // SAFETY: the handle was valid and is not used any more.  The buffers are initialized, and taken once.
        unsafe {
            sys::tutti_work_free(work.handle);
            ptr::read(work.buffers.as_ptr())
        }
    }
}

impl<B> Drop for Work<'_, B> {
    /// Waits for nothing.  Borrowed buffers are waited for at the end of their scope, and owned ones are
    /// freed after the operation.
    fn drop(&mut self) {
        if self.scope.is_some() {
            return; // the scope has the handle
        }
        // SAFETY: the buffers are initialized, and taken once
        let buffers = Box::new(unsafe { ptr::read(&self.buffers) });
        let argument = Box::into_raw(buffers).cast::<c_void>();
        // SAFETY: the handle is valid, and free_buffers expects a box of them.  After an error they leak.
        unsafe {
            sys::tutti_work_then(self.handle, Some(free_buffers::<B>), argument);
            sys::tutti_work_free(self.handle);
        }
    }
}

/// Frees the buffers of an operation that has ended.
unsafe extern "C" fn free_buffers<B>(_work: *mut sys::tutti_work, argument: *mut c_void) {
    // SAFETY: the box that drop made, once
    let mut buffers = unsafe { Box::from_raw(argument.cast::<MaybeUninit<B>>()) };
    // SAFETY: they are initialized, and the operation does not use them any more
    abort_on_panic(|| unsafe { buffers.assume_init_drop() });
}

/// Waits for a work, and returns its status.  Ends the process if that is impossible, because memory that
/// the operation uses would be freed.
///
/// # Safety
/// The handle is valid.
unsafe fn wait_until_ended(handle: *mut sys::tutti_work) -> i32 {
    // SAFETY: the caller's promise
    let (status, ended) = unsafe {
        let status = sys::tutti_work_wait(handle, sys::TUTTI_DEFAULT_TIMEOUT);
        (status, status == sys::TUTTI_OK || sys::tutti_work_is_completed(handle))
    };
    if !ended {
        eprintln!("tutti: an operation cannot be waited for: {}", check(status).unwrap_err());
        std::process::abort();
    }
    status
}

/// A time in milliseconds, rounded up.  Zero means no time at all.
pub(crate) fn milliseconds(time: Duration) -> i64 {
    let ms = (time.as_nanos() + 999_999) / 1_000_000;
    i64::try_from(ms).unwrap_or(sys::TUTTI_INFINITE).min(sys::TUTTI_DEFAULT_TIMEOUT - 1)
}

// ---- scopes ------------------------------------------------------------------------------------

/// The operations of a scope that nobody has waited for.
#[derive(Default)]
pub struct Pending {
    handles: Mutex<Vec<Handle>>,
}

#[derive(PartialEq)]
struct Handle(*mut sys::tutti_work);

// SAFETY: any thread may use a work
unsafe impl Send for Handle {}

impl Pending {
    fn add(&self, handle: *mut sys::tutti_work) {
        self.handles.lock().unwrap_or_else(PoisonError::into_inner).push(Handle(handle));
    }

    fn remove(&self, handle: *mut sys::tutti_work) {
        let mut handles = self.handles.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(at) = handles.iter().position(|h| h.0 == handle) {
            handles.swap_remove(at);
        }
    }

    /// Waits for all operations and frees them.
    fn wait_all(&self) {
        let handles = std::mem::take(&mut *self.handles.lock().unwrap_or_else(PoisonError::into_inner));
        for Handle(handle) in handles {
            // SAFETY: the handle is valid, and its Work is gone or will not be used
            unsafe {
                wait_until_ended(handle);
                sys::tutti_work_free(handle);
            }
        }
    }
}

/// Starts operations on borrowed buffers: see [`scope`].
pub struct Scope<'scope, 'env: 'scope> {
    pending: Pending,
    _scope: PhantomData<&'scope mut &'scope ()>,
    _env: PhantomData<&'env mut &'env ()>,
}

/// Runs a function that may start operations on borrowed buffers, and waits for all of them.
///
/// ```
/// # fn main() -> tutti::Result<()> {
/// use tutti::{Operations, ReduceOp};
/// let world = tutti::init("tcp")?;
/// let (mut a, mut b) = (vec![1.0f32; 8], vec![2.0f64; 8]);
/// tutti::scope(|scope| -> tutti::Result<()> {
///     let first = scope.all_reduce(&world, a.as_mut_slice(), ReduceOp::Sum)?;
///     let second = scope.all_reduce(&world, b.as_mut_slice(), ReduceOp::Max)?;
///     let a = first.wait()?; // a may be used from here on
///     a[0] += 1.0;
///     second.wait()?;
///     Ok(())
/// })?;
/// # Ok(())
/// # }
/// ```
///
/// A buffer that an operation uses cannot be touched:
///
/// ```compile_fail
/// # fn main() -> tutti::Result<()> {
/// use tutti::{Operations, ReduceOp};
/// let world = tutti::init("tcp")?;
/// let mut a = vec![1.0f32; 8];
/// tutti::scope(|scope| {
///     let work = scope.all_reduce(&world, a.as_mut_slice(), ReduceOp::Sum).unwrap();
///     a[0] = 2.0;
///     work.wait().unwrap();
/// });
/// # Ok(())
/// # }
/// ```
pub fn scope<'env, F, R>(function: F) -> R
where
    F: for<'scope> FnOnce(&'scope Scope<'scope, 'env>) -> R,
{
    let scope = Scope { pending: Pending::default(), _scope: PhantomData, _env: PhantomData };
    let result = catch_unwind(AssertUnwindSafe(|| function(&scope)));
    scope.pending.wait_all();
    result.unwrap_or_else(|panic| resume_unwind(panic))
}

impl<'scope, 'env> Scope<'scope, 'env> {
    fn start<B>(
        &'scope self,
        buffers: B,
        call: impl FnOnce(&mut B, *mut *mut sys::tutti_work) -> i32,
    ) -> Result<Work<'scope, B>> {
        // SAFETY: the buffers of this type's methods are Borrowed, and outlive the scope, which waits
        unsafe { Work::start(buffers, Some(&self.pending), call) }
    }

    /// Copies root's elements to every rank.
    pub fn broadcast<B>(&'scope self, group: &impl Operations, x: B, root: usize) -> Result<Work<'scope, B>>
    where
        B: Sink + Borrowed + 'scope,
    {
        let call = group.call();
        self.start(x, |x, work| call.start_broadcast(x, root, work))
    }

    /// Reduces the elements of all ranks into every rank's.
    pub fn all_reduce<B>(
        &'scope self,
        group: &impl Operations,
        x: B,
        op: impl Reduce<B::Element>,
    ) -> Result<Work<'scope, B>>
    where
        B: Sink + Borrowed + 'scope,
    {
        let call = group.call();
        self.start(x, |x, work| call.start_all_reduce(x, op, work))
    }

    /// Copies the elements of all ranks into consecutive parts of `out`.
    pub fn all_gather_into<O, I>(
        &'scope self,
        group: &impl Operations,
        out: O,
        input: I,
    ) -> Result<Work<'scope, (O, I)>>
    where
        O: Sink + Borrowed + 'scope,
        I: Source<Element = O::Element> + Borrowed + 'scope,
    {
        let call = group.call();
        self.start((out, input), |(out, input), work| call.start_all_gather_into(out, input, work))
    }

    /// Reduces consecutive parts of `input`: rank r gets part r.
    pub fn reduce_scatter_tensor<O, I>(
        &'scope self,
        group: &impl Operations,
        out: O,
        input: I,
        op: impl Reduce<O::Element>,
    ) -> Result<Work<'scope, (O, I)>>
    where
        O: Sink + Borrowed + 'scope,
        I: Source<Element = O::Element> + Borrowed + 'scope,
    {
        let call = group.call();
        self.start((out, input), |(out, input), work| call.start_reduce_scatter(out, input, op, work))
    }

    /// Exchanges consecutive parts.
    pub fn all_to_all_single<O, I>(
        &'scope self,
        group: &impl Operations,
        out: O,
        input: I,
    ) -> Result<Work<'scope, (O, I)>>
    where
        O: Sink + Borrowed + 'scope,
        I: Source<Element = O::Element> + Borrowed + 'scope,
    {
        let call = group.call();
        self.start((out, input), |(out, input), work| call.start_all_to_all(out, input, work))
    }

    /// Starts to send.
    pub fn isend<B>(&'scope self, group: &impl Operations, x: B, dst: usize, tag: i32) -> Result<Work<'scope, B>>
    where
        B: Source + Borrowed + 'scope,
    {
        let call = group.call();
        self.start(x, |x, work| call.start_send(x, dst, tag, work))
    }

    /// Starts to receive.  None: from any rank.
    pub fn irecv<B>(
        &'scope self,
        group: &impl Operations,
        x: B,
        src: impl Into<Option<usize>>,
        tag: i32,
    ) -> Result<Work<'scope, B>>
    where
        B: Sink + Borrowed + 'scope,
    {
        let (call, src): (Call<'_>, _) = (group.call(), src.into());
        self.start(x, |x, work| call.start_recv(x, src, tag, work))
    }
}
