//! Errors: the library's status and message.

use std::ffi::CStr;
use std::fmt;
use std::os::raw::c_int;

use tutti_sys as sys;

/// What kind of error it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Status {
    /// Refused before anything was sent.  The group stays usable.
    InvalidArgument,
    /// No backend of the group does this operation with this dtype.
    Unsupported,
    /// The timeout of the operation, the wait or the store has passed.
    Timeout,
    /// A rank died, left, or can no longer be reached.
    PeerLost,
    /// The ranks' calls differ: operation, count, dtype, reduce op, root or size.
    Mismatch,
    /// The group failed earlier or was aborted.  The message has the first cause.
    Aborted,
    /// The key-value store cannot be reached or refused a request.
    Store,
    /// The job token is wrong or missing.
    Auth,
    NoMemory,
    /// A system call failed.  The message has the name of errno.
    System,
    /// A plug-in is missing, does not load, or its library failed.
    Backend,
    NotFound,
    /// A status that this crate does not know.
    Other(c_int),
}

impl Status {
    pub(crate) fn of(code: c_int) -> Status {
        match code {
            sys::TUTTI_ERR_INVALID_ARGUMENT => Status::InvalidArgument,
            sys::TUTTI_ERR_UNSUPPORTED => Status::Unsupported,
            sys::TUTTI_ERR_TIMEOUT => Status::Timeout,
            sys::TUTTI_ERR_PEER_LOST => Status::PeerLost,
            sys::TUTTI_ERR_MISMATCH => Status::Mismatch,
            sys::TUTTI_ERR_ABORTED => Status::Aborted,
            sys::TUTTI_ERR_STORE => Status::Store,
            sys::TUTTI_ERR_AUTH => Status::Auth,
            sys::TUTTI_ERR_NO_MEMORY => Status::NoMemory,
            sys::TUTTI_ERR_SYSTEM => Status::System,
            sys::TUTTI_ERR_BACKEND => Status::Backend,
            sys::TUTTI_ERR_NOT_FOUND => Status::NotFound,
            other => Status::Other(other),
        }
    }
}

/// A call or an operation failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    status: Status,
    message: String,
}

impl Error {
    /// What kind of error it is.
    pub fn status(&self) -> Status {
        self.status
    }

    /// The library's message: what failed, with which values, and what to do.
    pub fn message(&self) -> &str {
        &self.message
    }

    pub(crate) fn invalid(message: impl Into<String>) -> Error {
        Error { status: Status::InvalidArgument, message: message.into() }
    }

    /// The error of this thread's last failed call, which returned `code`.
    fn last(code: c_int) -> Error {
        // SAFETY: takes no arguments.  The text is valid until this thread's next failing call.
        let message = unsafe { text_of(sys::tutti_last_error()) };
        Error { status: Status::of(code), message }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.status, self.message)
    }
}

impl std::error::Error for Error {}

/// The result of a call.
pub type Result<T> = std::result::Result<T, Error>;

/// Turns a returned status into a result.
pub(crate) fn check(code: c_int) -> Result<()> {
    if code < 0 {
        return Err(Error::last(code));
    }
    Ok(())
}

/// Copies a string of C.
///
/// # Safety
/// `text` is NULL, or a string that ends with a zero byte.
pub(crate) unsafe fn text_of(text: *const std::os::raw::c_char) -> String {
    if text.is_null() {
        return String::new();
    }
    // SAFETY: the caller's promise
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}
