//! Element types, their dtypes, and buffers of them.

use std::os::raw::c_void;
use std::sync::Arc;

use tutti_sys as sys;

/// A type of the elements of tensors.
///
/// `bool` is none, because a peer may send bytes that are neither 0 nor 1: use [`Bool8`].
///
/// # Safety
/// The type has the size of an element of `DTYPE`, and every pattern of its bits is a valid value.
pub unsafe trait Element: Copy + Send + Sync + 'static {
    /// The library's number of the dtype, such as `tutti_sys::TUTTI_FLOAT32`.
    const DTYPE: u32;
}

macro_rules! elements {
    ($($type:ty: $dtype:ident),* $(,)?) => {$(
        // SAFETY: a number of the dtype's size, which is valid in every pattern of bits
        unsafe impl Element for $type {
            const DTYPE: u32 = sys::$dtype;
        }
    )*};
}

macro_rules! wrappers {
    ($($(#[$doc:meta])* $name:ident($bits:ty): $dtype:ident),* $(,)?) => {$(
        $(#[$doc])*
        #[repr(transparent)]
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
        pub struct $name(pub $bits);

        // SAFETY: as the integer that it wraps
        unsafe impl Element for $name {
            const DTYPE: u32 = sys::$dtype;
        }
    )*};
}

elements! {
    i8: TUTTI_INT8, i16: TUTTI_INT16, i32: TUTTI_INT32, i64: TUTTI_INT64,
    u8: TUTTI_UINT8, u16: TUTTI_UINT16, u32: TUTTI_UINT32, u64: TUTTI_UINT64,
    f32: TUTTI_FLOAT32, f64: TUTTI_FLOAT64,
    Complex<f32>: TUTTI_COMPLEX64, Complex<f64>: TUTTI_COMPLEX128,
}

wrappers! {
    /// The bits of a 16-bit float of IEEE 754.
    F16(u16): TUTTI_FLOAT16,
    /// The bits of a bfloat16, the upper half of an `f32`.
    BF16(u16): TUTTI_BFLOAT16,
    /// The bits of an 8-bit float with 4 bits of exponent.
    F8E4M3(u8): TUTTI_FLOAT8_E4M3FN,
    /// The bits of an 8-bit float with 5 bits of exponent.
    F8E5M2(u8): TUTTI_FLOAT8_E5M2,
    /// A bool in a byte, 0 or 1.
    Bool8(u8): TUTTI_BOOL,
}

/// A complex number.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Complex<T> {
    pub re: T,
    pub im: T,
}

impl From<bool> for Bool8 {
    fn from(value: bool) -> Bool8 {
        Bool8(value.into())
    }
}

impl From<Bool8> for bool {
    fn from(value: Bool8) -> bool {
        value.0 != 0
    }
}

// ---- buffers -----------------------------------------------------------------------------------

/// A buffer that an operation reads, and that moves into its [`Work`](crate::Work).
/// It is `Send`, because the thread that completes the operation may drop it.
///
/// # Safety
/// The elements stay at their address, and are neither freed nor changed, until the value is dropped,
/// however it is moved.
pub unsafe trait Source: Send {
    type Element: Element;

    fn elements(&self) -> &[Self::Element];
}

/// A buffer that an operation writes.
///
/// # Safety
/// As for [`Source`], and nothing else reads or writes the elements.
pub unsafe trait Sink: Source {
    fn elements_mut(&mut self) -> &mut [Self::Element];
}

macro_rules! buffers {
    ($($type:ty),*) => {$(
        // SAFETY: moving the value does not move its elements
        unsafe impl<T: Element> Source for $type {
            type Element = T;

            fn elements(&self) -> &[T] {
                self
            }
        }
    )*};
}

macro_rules! sinks {
    ($($type:ty),*) => {$(
        // SAFETY: the elements belong to the value alone
        unsafe impl<T: Element> Sink for $type {
            fn elements_mut(&mut self) -> &mut [T] {
                self
            }
        }
    )*};
}

buffers!(&[T], &mut [T], Vec<T>, Box<[T]>, Arc<[T]>);
sinks!(&mut [T], Vec<T>, Box<[T]>);

/// A reference to a buffer, whose end does not free it: what operations of a [`scope`](crate::scope)
/// take.
///
/// # Safety
/// Dropping the value does not free the elements.
pub unsafe trait Borrowed: Source {}

// SAFETY: references own nothing
unsafe impl<T: Element> Borrowed for &[T] {}
// SAFETY: references own nothing
unsafe impl<T: Element> Borrowed for &mut [T] {}

/// Describes elements that are only read.
pub(crate) fn tensor<T: Element>(elements: &[T]) -> sys::tutti_tensor {
    described::<T>(elements.as_ptr() as *mut c_void, elements.len())
}

/// Describes elements that are written.
pub(crate) fn tensor_mut<T: Element>(elements: &mut [T]) -> sys::tutti_tensor {
    described::<T>(elements.as_mut_ptr().cast(), elements.len())
}

fn described<T: Element>(data: *mut c_void, n: usize) -> sys::tutti_tensor {
    let device = sys::tutti_device { type_: sys::TUTTI_CPU, index: 0 };
    sys::tutti_tensor { data, numel: n as i64, dtype: T::DTYPE, device }
}
