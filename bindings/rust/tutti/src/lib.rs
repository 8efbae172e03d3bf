//! Process groups, collectives and messages with torch.distributed's names: a safe interface to
//! libtutti.
//!
//! ```
//! use tutti::{Operations, ReduceOp};
//!
//! fn main() -> tutti::Result<()> {
//!     let world = tutti::init("tcp")?;
//!     let mut x = [world.rank() as f32; 4];
//!     world.all_reduce(&mut x, ReduceOp::Sum)?;
//!     Ok(())
//! }
//! ```
//!
//! Run it with `tutti-run -n 4 program`.  `docs/rust.md` of Tutti describes the crate.
//!
//! # Soundness
//!
//! An operation that has been started owns its buffers ([`Operations`]), or borrows them for a scope that
//! waits for it ([`scope`]).  So no safe program can touch memory that the library uses, with one
//! exception: the mpi backend cannot cancel a send.  After a send of more than 3 KiB has *failed* there, by a
//! timeout or a lost rank, MPI may still read the buffer, and the program should end.
//!
//! Element types are those in which every pattern of bits is valid, because peers fill buffers.

#![deny(unsafe_op_in_unsafe_fn)]

mod element;
mod error;
mod group;
mod op;
mod operations;
mod store;
mod work;

pub use element::{Bool8, Borrowed, Complex, Element, Sink, Source, BF16, F16, F8E4M3, F8E5M2};
pub use error::{Error, Result, Status};
pub use group::{init, Batch, GroupOptions, InitOptions, ProcessGroup, RankState};
pub use op::{Reduce, ReduceOp, UserOp};
pub use operations::{Call, Operations};
pub use store::{Store, TcpOptions};
pub use work::{scope, Message, Scope, Work};

/// The version of the loaded library.
pub fn version() -> String {
    // SAFETY: a string that is valid for ever
    unsafe { error::text_of(tutti_sys::tutti_version()) }
}

/// True if the plug-in of this name can be loaded here.
pub fn is_backend_available(name: &str) -> bool {
    // SAFETY: the string is valid during the call
    op::c_string(name).map_or(false, |name| unsafe { tutti_sys::tutti_is_backend_available(name.as_ptr()) })
}
