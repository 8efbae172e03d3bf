//! Reduce operations: the library's, and the program's own.

use std::ffi::CString;
use std::marker::PhantomData;
use std::os::raw::c_void;
use std::panic::{catch_unwind, AssertUnwindSafe};

use tutti_sys as sys;

use crate::element::Element;
use crate::error::{check, Error, Result};

/// The library's reduce operations.  `docs/semantics.md` has their rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum ReduceOp {
    /// Integers wrap.
    Sum = sys::TUTTI_SUM,
    Product = sys::TUTTI_PRODUCT,
    /// NaN propagates.
    Min = sys::TUTTI_MIN,
    /// NaN propagates.
    Max = sys::TUTTI_MAX,
    /// The sum, divided by the number of ranks.
    Avg = sys::TUTTI_AVG,
    /// Each input times [`Call::factor`](crate::Call::factor), then the sum.
    PremulSum = sys::TUTTI_PREMUL_SUM,
    Band = sys::TUTTI_BAND,
    Bor = sys::TUTTI_BOR,
    Bxor = sys::TUTTI_BXOR,
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for super::ReduceOp {}
    impl<T> Sealed for super::UserOp<T> {}
    impl<R: Sealed> Sealed for &R {}
}

/// A reduction of elements of type `T`: a [`ReduceOp`], or a [`UserOp`] of that type.
pub trait Reduce<T>: sealed::Sealed {
    #[doc(hidden)]
    fn code(&self) -> u32;
}

impl<T: Element> Reduce<T> for ReduceOp {
    fn code(&self) -> u32 {
        *self as u32
    }
}

impl<T: Element> Reduce<T> for UserOp<T> {
    fn code(&self) -> u32 {
        self.code
    }
}

impl<T, R: Reduce<T>> Reduce<T> for &R {
    fn code(&self) -> u32 {
        (**self).code()
    }
}

/// A reduction that the program defines, for elements of type `T`.
///
/// ```
/// # fn main() -> tutti::Result<()> {
/// use tutti::{Operations, UserOp};
/// let world = tutti::init("tcp")?;
/// let larger = UserOp::new("larger magnitude", true, |inout: &mut [f32], input: &[f32]| {
///     for (a, b) in inout.iter_mut().zip(input) {
///         if b.abs() > a.abs() {
///             *a = *b;
///         }
///     }
/// })?;
/// let mut x = [-3.0f32];
/// world.all_reduce(&mut x, &larger)?;
/// # Ok(())
/// # }
/// ```
pub struct UserOp<T> {
    code: u32,
    _elements: PhantomData<fn(T)>,
}

impl<T: Element> UserOp<T> {
    /// Makes an op of a function that computes `inout[i] = input[i] op inout[i]`, where `input` holds
    /// the contributions of lower ranks.  It must be associative, and the same on all ranks.
    ///
    /// Any thread calls the function, also several at a time.  It must not call Tutti.  A panic in it
    /// ends the process.  The function lives until the process ends, because operations may use it
    /// after the op has been dropped; so make ops once, not in a loop.
    pub fn new<F>(name: &str, commutative: bool, function: F) -> Result<UserOp<T>>
    where
        F: Fn(&mut [T], &[T]) + Send + Sync + 'static,
    {
        let name = c_string(name)?;
        let opts = sys::tutti_op_opts { commutative, ..Default::default() };
        let argument = Box::into_raw(Box::new(function));
        let mut code = 0;
        // SAFETY: name and opts are valid during the call, argument for ever, and `call` expects it
        let status = unsafe {
            sys::tutti_op_create_sized(
                name.as_ptr(),
                Some(call::<T, F>),
                argument.cast(),
                &opts,
                std::mem::size_of_val(&opts),
                &mut code,
            )
        };
        if status < 0 {
            // SAFETY: the library does not keep the pointer after an error
            drop(unsafe { Box::from_raw(argument) });
        }
        check(status)?;
        Ok(UserOp { code, _elements: PhantomData })
    }
}

impl<T> Drop for UserOp<T> {
    fn drop(&mut self) {
        // SAFETY: the op exists.  Operations that use it go on.
        unsafe { sys::tutti_op_free(self.code) };
    }
}

/// Calls the program's function.
unsafe extern "C" fn call<T: Element, F: Fn(&mut [T], &[T])>(
    inout: *mut c_void,
    input: *const c_void,
    n: i64,
    dtype: u32,
    argument: *mut c_void,
) {
    if dtype != T::DTYPE {
        std::process::abort(); // the types of the calls exclude this
    }
    if n <= 0 {
        return;
    }
    // SAFETY: the library passes n elements each, which are disjoint, aligned as their type, and of a
    // dtype in which all bits are valid; argument is new's, which lives for ever
    let (function, inout, input) = unsafe {
        (
            &*argument.cast::<F>(),
            std::slice::from_raw_parts_mut(inout.cast::<T>(), n as usize),
            std::slice::from_raw_parts(input.cast::<T>(), n as usize),
        )
    };
    abort_on_panic(|| function(inout, input));
}

/// Runs a function that C calls through.  Aborts if it panics: before Rust 1.81, a panic that leaves an extern "C"
/// function is undefined behaviour.
pub(crate) fn abort_on_panic(function: impl FnOnce()) {
    if catch_unwind(AssertUnwindSafe(function)).is_err() {
        std::process::abort();
    }
}

/// Copies a string for C.
pub(crate) fn c_string(text: &str) -> Result<CString> {
    CString::new(text).map_err(|_| Error::invalid(format!("{text:?} has a zero byte")))
}
