//! Operations of a group: collectives and messages.

use std::os::raw::c_int;
use std::ptr;
use std::time::Duration;

use tutti_sys as sys;

use crate::element::{tensor, tensor_mut, Element, Sink, Source};
use crate::error::{check, Error, Result};
use crate::group::ProcessGroup;
use crate::op::Reduce;
use crate::store::take_bytes;
use crate::work::{milliseconds, Message, Work};

/// A group, and options for calls on it.
///
/// ```
/// # fn main() -> tutti::Result<()> {
/// use std::time::Duration;
/// use tutti::{Operations, ReduceOp};
/// let world = tutti::init("tcp")?;
/// let mut x = [1.0f32];
/// world.call().timeout(Duration::from_secs(5)).all_reduce(&mut x, ReduceOp::Sum)?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy)]
pub struct Call<'g> {
    group: &'g ProcessGroup,
    timeout_ms: i64,
    group_rank: bool,
    factor: f64,
}

/// The value, or returns 0 from the function if there is none.
macro_rules! some_or_zero {
    ($value:expr) => {
        match $value {
            Some(value) => value,
            None => return 0,
        }
    };
}

const OPTS_BYTES: usize = std::mem::size_of::<sys::tutti_opts>();

/// A rank as C has it.  One that does not fit is no rank of any group.
fn rank_of(rank: usize) -> c_int {
    c_int::try_from(rank).unwrap_or(c_int::MAX)
}

fn source_of(src: Option<usize>) -> c_int {
    src.map_or(sys::TUTTI_ANY_SOURCE, rank_of)
}

/// Splits as C takes them, if they are as many as ranks.
fn splits_of(name: &str, splits: &[usize], ranks: usize) -> Result<Vec<i64>> {
    if splits.len() != ranks {
        let n = splits.len();
        return Err(Error::invalid(format!("{name} has {n} entries, but the group has {ranks} ranks")));
    }
    Ok(splits.iter().map(|&n| n as i64).collect())
}

impl<'g> Call<'g> {
    pub(crate) fn new(group: &'g ProcessGroup) -> Call<'g> {
        Call { group, timeout_ms: 0, group_rank: false, factor: 0.0 }
    }

    /// Sets the timeout of the operation.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout_ms = match milliseconds(timeout) {
            0 => sys::TUTTI_NOW,
            ms => ms,
        };
        self
    }

    /// Roots and peers are ranks of the group, not global ones.
    pub fn group_rank(mut self) -> Self {
        self.group_rank = true;
        self
    }

    /// Sets the factor of [`ReduceOp::PremulSum`](crate::ReduceOp::PremulSum).
    pub fn factor(mut self, factor: f64) -> Self {
        self.factor = factor;
        self
    }

    /// The options as C takes them.
    pub(crate) fn opts(&self) -> sys::tutti_opts {
        sys::tutti_opts {
            group: self.group.raw(),
            timeout_ms: self.timeout_ms,
            group_rank: self.group_rank,
            factor: self.factor,
            ..Default::default()
        }
    }

    /// The options of a call that blocks.  Inside of coalesce such a call would be queued, and its
    /// buffers would be free before it starts.
    fn blocking(&self) -> Result<sys::tutti_opts> {
        self.group.refuse_while_coalescing()?;
        Ok(self.opts())
    }

    fn async_opts(&self, work: *mut *mut sys::tutti_work) -> Option<sys::tutti_opts> {
        self.group.refuse_while_coalescing().ok()?;
        Some(sys::tutti_opts { async_op: work, ..self.opts() })
    }

    // ---- operations that are started: the buffers and *work are valid during the call --------------

    pub(crate) fn start_broadcast<B: Sink>(self, x: &mut B, root: usize, work: *mut *mut sys::tutti_work) -> c_int {
        let opts = some_or_zero!(self.async_opts(work));
        // SAFETY: the Work keeps the buffers until the operation has ended, here and below
        unsafe { sys::tutti_broadcast_sized(tensor_mut(x.elements_mut()), rank_of(root), &opts, OPTS_BYTES) }
    }

    pub(crate) fn start_all_reduce<B: Sink>(
        self,
        x: &mut B,
        op: impl Reduce<B::Element>,
        work: *mut *mut sys::tutti_work,
    ) -> c_int {
        let opts = some_or_zero!(self.async_opts(work));
        // SAFETY: as above
        unsafe { sys::tutti_all_reduce_sized(tensor_mut(x.elements_mut()), op.code(), &opts, OPTS_BYTES) }
    }

    pub(crate) fn start_all_gather_into<O: Sink, I: Source<Element = O::Element>>(
        self,
        out: &mut O,
        input: &I,
        work: *mut *mut sys::tutti_work,
    ) -> c_int {
        let opts = some_or_zero!(self.async_opts(work));
        let (out, input) = (tensor_mut(out.elements_mut()), tensor(input.elements()));
        // SAFETY: as above
        unsafe { sys::tutti_all_gather_into_tensor_sized(out, input, &opts, OPTS_BYTES) }
    }

    pub(crate) fn start_reduce_scatter<O: Sink, I: Source<Element = O::Element>>(
        self,
        out: &mut O,
        input: &I,
        op: impl Reduce<O::Element>,
        work: *mut *mut sys::tutti_work,
    ) -> c_int {
        let opts = some_or_zero!(self.async_opts(work));
        let (out, input) = (tensor_mut(out.elements_mut()), tensor(input.elements()));
        // SAFETY: as above
        unsafe { sys::tutti_reduce_scatter_tensor_sized(out, input, op.code(), &opts, OPTS_BYTES) }
    }

    pub(crate) fn start_all_to_all<O: Sink, I: Source<Element = O::Element>>(
        self,
        out: &mut O,
        input: &I,
        work: *mut *mut sys::tutti_work,
    ) -> c_int {
        let opts = some_or_zero!(self.async_opts(work));
        let (out, input) = (tensor_mut(out.elements_mut()), tensor(input.elements()));
        // SAFETY: as above
        unsafe { sys::tutti_all_to_all_single_sized(out, input, ptr::null(), ptr::null(), &opts, OPTS_BYTES) }
    }

    pub(crate) fn start_send<B: Source>(self, x: &B, dst: usize, tag: i32, work: *mut *mut sys::tutti_work) -> c_int {
        let opts = some_or_zero!(self.async_opts(ptr::null_mut()));
        let opts = sys::tutti_opts { tag, ..opts };
        // SAFETY: as above
        unsafe { sys::tutti_isend_sized(tensor(x.elements()), rank_of(dst), &opts, OPTS_BYTES, work) }
    }

    pub(crate) fn start_recv<B: Sink>(
        self,
        x: &mut B,
        src: Option<usize>,
        tag: i32,
        work: *mut *mut sys::tutti_work,
    ) -> c_int {
        let opts = some_or_zero!(self.async_opts(ptr::null_mut()));
        let opts = sys::tutti_opts { tag, ..opts };
        // SAFETY: as above
        unsafe { sys::tutti_irecv_sized(tensor_mut(x.elements_mut()), source_of(src), &opts, OPTS_BYTES, work) }
    }
}

/// Starts an operation that owns its buffers.
fn own<B: 'static>(
    buffers: B,
    call: impl FnOnce(&mut B, *mut *mut sys::tutti_work) -> c_int,
) -> Result<Work<'static, B>> {
    // SAFETY: without a scope, the buffers are dropped after the operation
    unsafe { Work::start(buffers, None, call) }
}

/// The operations of a [`ProcessGroup`], and of a [`Call`], which has options.
///
/// `docs/semantics.md` describes the operations.  All ranks of the group make the same collective calls in the same
/// order.  Ranks are global unless [`Call::group_rank`] is set.  Functions whose names begin with `async_`,
/// [`isend`](Operations::isend) and [`irecv`](Operations::irecv) own their buffers; those of a
/// [`Scope`](crate::Scope) borrow them.
pub trait Operations {
    /// The group, with options.
    fn call(&self) -> Call<'_>;

    /// Copies root's elements to every rank.
    fn broadcast<T: Element>(&self, x: &mut [T], root: usize) -> Result<()> {
        let opts = self.call().blocking()?;
        // SAFETY: the slices are valid during the call, which ends after the operation, here and below
        check(unsafe { sys::tutti_broadcast_sized(tensor_mut(x), rank_of(root), &opts, OPTS_BYTES) })
    }

    /// Reduces the elements of all ranks into every rank's.
    fn all_reduce<T: Element>(&self, x: &mut [T], op: impl Reduce<T>) -> Result<()> {
        let opts = self.call().blocking()?;
        // SAFETY: as above
        check(unsafe { sys::tutti_all_reduce_sized(tensor_mut(x), op.code(), &opts, OPTS_BYTES) })
    }

    /// Reduces the elements of all ranks into `out`.
    fn all_reduce_into<T: Element>(&self, out: &mut [T], input: &[T], op: impl Reduce<T>) -> Result<()> {
        let opts = self.call().blocking()?;
        let (out, input) = (tensor_mut(out), tensor(input));
        // SAFETY: as above
        check(unsafe { sys::tutti_all_reduce_into_sized(out, input, op.code(), &opts, OPTS_BYTES) })
    }

    /// Reduces the elements of ranks 0 to r into rank r's.
    fn scan<T: Element>(&self, x: &mut [T], op: impl Reduce<T>) -> Result<()> {
        let opts = self.call().blocking()?;
        // SAFETY: as above
        check(unsafe { sys::tutti_scan_sized(tensor_mut(x), op.code(), &opts, OPTS_BYTES) })
    }

    /// Reduces the elements of ranks 0 to r - 1 into rank r's.  Rank 0's stay.
    fn exscan<T: Element>(&self, x: &mut [T], op: impl Reduce<T>) -> Result<()> {
        let opts = self.call().blocking()?;
        // SAFETY: as above
        check(unsafe { sys::tutti_exscan_sized(tensor_mut(x), op.code(), &opts, OPTS_BYTES) })
    }

    /// Reduces the elements of all ranks into root's.
    fn reduce<T: Element>(&self, x: &mut [T], root: usize, op: impl Reduce<T>) -> Result<()> {
        let opts = self.call().blocking()?;
        // SAFETY: as above
        check(unsafe { sys::tutti_reduce_sized(tensor_mut(x), rank_of(root), op.code(), &opts, OPTS_BYTES) })
    }

    /// Copies rank r's elements to `out[r]`, whose length they have.
    fn all_gather<T: Element>(&self, out: &mut [&mut [T]], input: &[T]) -> Result<()> {
        let opts = self.call().blocking()?;
        let list: Vec<_> = out.iter_mut().map(|part| tensor_mut(part)).collect();
        let n = rank_of(list.len());
        // SAFETY: as above
        check(unsafe { sys::tutti_all_gather_sized(list.as_ptr(), n, tensor(input), &opts, OPTS_BYTES) })
    }

    /// Copies the elements of all ranks into consecutive parts of `out`.
    fn all_gather_into<T: Element>(&self, out: &mut [T], input: &[T]) -> Result<()> {
        let opts = self.call().blocking()?;
        let (out, input) = (tensor_mut(out), tensor(input));
        // SAFETY: as above
        check(unsafe { sys::tutti_all_gather_into_tensor_sized(out, input, &opts, OPTS_BYTES) })
    }

    /// Copies rank r's elements to `out[r]` on the root.  Other ranks pass an empty list.
    fn gather<T: Element>(&self, out: &mut [&mut [T]], input: &[T], root: usize) -> Result<()> {
        let opts = self.call().blocking()?;
        let list: Vec<_> = out.iter_mut().map(|part| tensor_mut(part)).collect();
        let data = if list.is_empty() { ptr::null() } else { list.as_ptr() };
        let n = rank_of(list.len());
        // SAFETY: as above
        check(unsafe { sys::tutti_gather_sized(tensor(input), data, n, rank_of(root), &opts, OPTS_BYTES) })
    }

    /// Copies root's `input[r]` to rank r's `out`.  Other ranks pass an empty list.
    fn scatter<T: Element>(&self, out: &mut [T], input: &[&[T]], root: usize) -> Result<()> {
        let opts = self.call().blocking()?;
        let list: Vec<_> = input.iter().map(|part| tensor(part)).collect();
        let data = if list.is_empty() { ptr::null() } else { list.as_ptr() };
        let n = rank_of(list.len());
        // SAFETY: as above
        check(unsafe { sys::tutti_scatter_sized(tensor_mut(out), data, n, rank_of(root), &opts, OPTS_BYTES) })
    }

    /// Reduces `input[r]` of all ranks into rank r's `out`.
    fn reduce_scatter<T: Element>(&self, out: &mut [T], input: &[&[T]], op: impl Reduce<T>) -> Result<()> {
        let opts = self.call().blocking()?;
        let list: Vec<_> = input.iter().map(|part| tensor(part)).collect();
        let (out, n) = (tensor_mut(out), rank_of(list.len()));
        // SAFETY: as above
        check(unsafe { sys::tutti_reduce_scatter_sized(out, list.as_ptr(), n, op.code(), &opts, OPTS_BYTES) })
    }

    /// Reduces consecutive parts of `input`: rank r gets part r.
    fn reduce_scatter_tensor<T: Element>(&self, out: &mut [T], input: &[T], op: impl Reduce<T>) -> Result<()> {
        let opts = self.call().blocking()?;
        let (out, input) = (tensor_mut(out), tensor(input));
        // SAFETY: as above
        check(unsafe { sys::tutti_reduce_scatter_tensor_sized(out, input, op.code(), &opts, OPTS_BYTES) })
    }

    /// Sends `input[r]` to rank r, and receives rank r's part in `out[r]`.
    fn all_to_all<T: Element>(&self, out: &mut [&mut [T]], input: &[&[T]]) -> Result<()> {
        let opts = self.call().blocking()?;
        if out.len() != input.len() {
            let (n, m) = (out.len(), input.len());
            return Err(Error::invalid(format!("out has {n} entries and input {m}; pass one per rank each")));
        }
        let outs: Vec<_> = out.iter_mut().map(|part| tensor_mut(part)).collect();
        let ins: Vec<_> = input.iter().map(|part| tensor(part)).collect();
        let n = rank_of(ins.len());
        // SAFETY: as above
        check(unsafe { sys::tutti_all_to_all_sized(outs.as_ptr(), ins.as_ptr(), n, &opts, OPTS_BYTES) })
    }

    /// Exchanges consecutive parts of equal size.
    fn all_to_all_single<T: Element>(&self, out: &mut [T], input: &[T]) -> Result<()> {
        let opts = self.call().blocking()?;
        let (out, input, none) = (tensor_mut(out), tensor(input), ptr::null());
        // SAFETY: as above
        check(unsafe { sys::tutti_all_to_all_single_sized(out, input, none, none, &opts, OPTS_BYTES) })
    }

    /// Exchanges consecutive parts.  A split is the number of elements of each rank's part.
    fn all_to_all_splits<T: Element>(
        &self,
        out: &mut [T],
        input: &[T],
        out_splits: &[usize],
        in_splits: &[usize],
    ) -> Result<()> {
        let call = self.call();
        let opts = call.blocking()?;
        let outs = splits_of("out_splits", out_splits, call.group.size())?;
        let ins = splits_of("in_splits", in_splits, call.group.size())?;
        let (out, input) = (tensor_mut(out), tensor(input));
        // SAFETY: as above.  The splits have an entry for each rank.
        check(unsafe { sys::tutti_all_to_all_single_sized(out, input, outs.as_ptr(), ins.as_ptr(), &opts, OPTS_BYTES) })
    }

    /// Returns once every rank of the group has called it.
    fn barrier(&self) -> Result<()> {
        let opts = self.call().blocking()?;
        // SAFETY: the options are valid during the call
        check(unsafe { sys::tutti_barrier_sized(&opts, OPTS_BYTES) })
    }

    /// Waits as barrier does.  Its Timeout names the ranks that did not arrive.
    fn monitored_barrier(&self) -> Result<()> {
        let opts = self.call().blocking()?;
        // SAFETY: the options are valid during the call
        check(unsafe { sys::tutti_monitored_barrier_sized(&opts, OPTS_BYTES) })
    }

    // ---- messages --------------------------------------------------------------------------------

    /// Sends.  Above 16 KiB it may wait for the receive.
    fn send<T: Element>(&self, x: &[T], dst: usize, tag: i32) -> Result<()> {
        let opts = sys::tutti_opts { tag, ..self.call().blocking()? };
        // SAFETY: as above
        check(unsafe { sys::tutti_send_sized(tensor(x), rank_of(dst), &opts, OPTS_BYTES) })
    }

    /// Receives as many elements as were sent.
    fn recv<T: Element>(&self, x: &mut [T], src: usize, tag: i32) -> Result<()> {
        let opts = sys::tutti_opts { tag, ..self.call().blocking()? };
        // SAFETY: as above
        check(unsafe { sys::tutti_recv_sized(tensor_mut(x), rank_of(src), &opts, OPTS_BYTES) })
    }

    /// Receives a message of up to the slice's size.  None: from any rank, of any tag.
    fn recv_up_to<T: Element>(&self, x: &mut [T], src: Option<usize>, tag: Option<i32>) -> Result<Message> {
        let (mut source, mut found, mut bytes) = (0, 0, 0);
        let opts = sys::tutti_opts {
            tag: tag.unwrap_or(sys::TUTTI_ANY_TAG),
            source: &mut source,
            received_tag: &mut found,
            received: &mut bytes,
            ..self.call().blocking()?
        };
        // SAFETY: as above
        check(unsafe { sys::tutti_recv_sized(tensor_mut(x), source_of(src), &opts, OPTS_BYTES) })?;
        Ok(Message { source: source as usize, tag: found, bytes: bytes as usize })
    }

    /// Waits for a message and describes it, without receiving it.
    fn probe(&self, src: Option<usize>, tag: Option<i32>) -> Result<Message> {
        let tag = tag.unwrap_or(sys::TUTTI_ANY_TAG);
        let opts = sys::tutti_opts { tag, ..self.call().blocking()? };
        let mut found = sys::tutti_message::default();
        // SAFETY: as above
        check(unsafe { sys::tutti_probe_sized(source_of(src), &opts, OPTS_BYTES, &mut found) })?;
        Ok(Message { source: found.source as usize, tag: found.tag, bytes: found.bytes as usize })
    }

    // ---- byte strings ----------------------------------------------------------------------------

    /// Sends bytes, whose number the receiver need not know.
    fn send_bytes(&self, data: &[u8], dst: usize, tag: i32) -> Result<()> {
        let opts = sys::tutti_opts { tag, ..self.call().blocking()? };
        let (data, bytes) = (data.as_ptr().cast(), data.len());
        // SAFETY: as above
        check(unsafe { sys::tutti_send_bytes_sized(data, bytes, rank_of(dst), &opts, OPTS_BYTES) })
    }

    /// Receives what `send_bytes` sent.
    fn recv_bytes(&self, src: Option<usize>, tag: i32) -> Result<Vec<u8>> {
        let opts = sys::tutti_opts { tag, ..self.call().blocking()? };
        let mut out = [sys::tutti_bytes::default()];
        // SAFETY: as above
        check(unsafe { sys::tutti_recv_bytes_sized(out.as_mut_ptr(), source_of(src), &opts, OPTS_BYTES) })?;
        Ok(take_bytes(&mut out).pop().unwrap_or_default())
    }

    /// Returns the bytes of all ranks, in rank order.
    fn all_gather_bytes(&self, data: &[u8]) -> Result<Vec<Vec<u8>>> {
        let call = self.call();
        let opts = call.blocking()?;
        let mut out = vec![sys::tutti_bytes::default(); call.group.size()];
        let (n, data, bytes) = (rank_of(out.len()), data.as_ptr().cast(), data.len());
        // SAFETY: as above.  out has an entry for each rank.
        check(unsafe { sys::tutti_all_gather_bytes_sized(out.as_mut_ptr(), n, data, bytes, &opts, OPTS_BYTES) })?;
        Ok(take_bytes(&mut out))
    }

    /// Returns root's bytes on every rank.
    fn broadcast_bytes(&self, data: &[u8], root: usize) -> Result<Vec<u8>> {
        let call = self.call();
        let opts = call.blocking()?;
        let mine = if call.group_rank { Some(call.group.rank()) } else { call.group.global_rank(call.group.rank()) };
        let mut out = [sys::tutti_bytes::default()];
        if mine == Some(root) {
            out[0] = sys::tutti_bytes { data: data.as_ptr() as *mut _, bytes: data.len() };
        }
        // SAFETY: as above.  The root's bytes are only read.
        check(unsafe { sys::tutti_broadcast_bytes_sized(out.as_mut_ptr(), rank_of(root), &opts, OPTS_BYTES) })?;
        if mine == Some(root) {
            return Ok(data.to_vec());
        }
        Ok(take_bytes(&mut out).pop().unwrap_or_default())
    }

    // ---- operations that are started -------------------------------------------------------------

    /// Starts a broadcast.
    fn async_broadcast<B: Sink + 'static>(&self, x: B, root: usize) -> Result<Work<'static, B>> {
        let call = self.call();
        own(x, |x, work| call.start_broadcast(x, root, work))
    }

    /// Starts an all_reduce.
    ///
    /// ```
    /// # fn main() -> tutti::Result<()> {
    /// use tutti::{Operations, ReduceOp};
    /// let world = tutti::init("tcp")?;
    /// let work = world.async_all_reduce(vec![1.0f32; 1000], ReduceOp::Sum)?;
    /// // .. compute meanwhile ..
    /// let sums = work.wait()?;
    /// assert_eq!(sums[999], world.size() as f32);
    /// # Ok(())
    /// # }
    /// ```
    fn async_all_reduce<B: Sink + 'static>(&self, x: B, op: impl Reduce<B::Element>) -> Result<Work<'static, B>> {
        let call = self.call();
        own(x, |x, work| call.start_all_reduce(x, op, work))
    }

    /// Starts an all_gather into consecutive parts of `out`.
    fn async_all_gather_into<O, I>(&self, out: O, input: I) -> Result<Work<'static, (O, I)>>
    where
        O: Sink + 'static,
        I: Source<Element = O::Element> + 'static,
    {
        let call = self.call();
        own((out, input), |(out, input), work| call.start_all_gather_into(out, input, work))
    }

    /// Starts a reduce_scatter of consecutive parts.
    fn async_reduce_scatter_tensor<O, I>(
        &self,
        out: O,
        input: I,
        op: impl Reduce<O::Element>,
    ) -> Result<Work<'static, (O, I)>>
    where
        O: Sink + 'static,
        I: Source<Element = O::Element> + 'static,
    {
        let call = self.call();
        own((out, input), |(out, input), work| call.start_reduce_scatter(out, input, op, work))
    }

    /// Starts to send.
    fn isend<B: Source + 'static>(&self, x: B, dst: usize, tag: i32) -> Result<Work<'static, B>> {
        let call = self.call();
        own(x, |x, work| call.start_send(x, dst, tag, work))
    }

    /// Starts to receive.  None: from any rank.
    fn irecv<B: Sink + 'static>(&self, x: B, src: impl Into<Option<usize>>, tag: i32) -> Result<Work<'static, B>> {
        let (call, src) = (self.call(), src.into());
        own(x, |x, work| call.start_recv(x, src, tag, work))
    }
}

impl Operations for ProcessGroup {
    fn call(&self) -> Call<'_> {
        Call::new(self)
    }
}

impl Operations for Call<'_> {
    fn call(&self) -> Call<'_> {
        *self
    }
}
