//! The functions and types of libtutti, as its C headers declare them.
//!
//! `include/tutti/tutti.h` and `store.h` describe them.  Functions that take a struct of options are
//! those of `sized.h`, which take its size as well.  `tests/headers.rs` compares everything here with
//! the headers.  The crate `tutti` is a safe interface.
//!
//! Left out: the interfaces for plug-ins (`backend.h`), tools (`tool.h`) and training (`train/`).

#![allow(non_camel_case_types)]

mod functions;
mod types;

pub use functions::*;
pub use types::*;
