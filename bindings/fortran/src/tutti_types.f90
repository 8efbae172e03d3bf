!> Tutti: the constants and types of the C headers, as the other modules use them.
!>
!> tests/constants.f90 compares them with the headers.
module tutti_types
  use, intrinsic :: iso_c_binding
  implicit none
  public

  ! ---- status ----------------------------------------------------------------------------------------------------

  integer(c_int), parameter :: TUTTI_OK = 0
  integer(c_int), parameter :: TUTTI_ERR_INVALID_ARGUMENT = -1
  integer(c_int), parameter :: TUTTI_ERR_UNSUPPORTED = -2
  integer(c_int), parameter :: TUTTI_ERR_TIMEOUT = -3
  integer(c_int), parameter :: TUTTI_ERR_PEER_LOST = -4
  integer(c_int), parameter :: TUTTI_ERR_MISMATCH = -5
  integer(c_int), parameter :: TUTTI_ERR_ABORTED = -6
  integer(c_int), parameter :: TUTTI_ERR_STORE = -7
  integer(c_int), parameter :: TUTTI_ERR_AUTH = -8
  integer(c_int), parameter :: TUTTI_ERR_NO_MEMORY = -9
  integer(c_int), parameter :: TUTTI_ERR_SYSTEM = -10
  integer(c_int), parameter :: TUTTI_ERR_BACKEND = -11
  integer(c_int), parameter :: TUTTI_ERR_NOT_FOUND = -12

  ! ---- dtypes ----------------------------------------------------------------------------------------------------

  !> A type of its own, so that an argument cannot be mistaken for a rank.
  type, bind(c) :: tutti_dtype
    integer(c_int) :: value = 0
  end type tutti_dtype

  type(tutti_dtype), parameter :: TUTTI_INT8 = tutti_dtype(8)
  type(tutti_dtype), parameter :: TUTTI_INT16 = tutti_dtype(16)
  type(tutti_dtype), parameter :: TUTTI_INT32 = tutti_dtype(32)
  type(tutti_dtype), parameter :: TUTTI_INT64 = tutti_dtype(64)
  type(tutti_dtype), parameter :: TUTTI_UINT8 = tutti_dtype(264)
  type(tutti_dtype), parameter :: TUTTI_UINT16 = tutti_dtype(272)
  type(tutti_dtype), parameter :: TUTTI_UINT32 = tutti_dtype(288)
  type(tutti_dtype), parameter :: TUTTI_UINT64 = tutti_dtype(320)
  type(tutti_dtype), parameter :: TUTTI_FLOAT16 = tutti_dtype(528)
  type(tutti_dtype), parameter :: TUTTI_FLOAT32 = tutti_dtype(544)
  type(tutti_dtype), parameter :: TUTTI_FLOAT64 = tutti_dtype(576)
  type(tutti_dtype), parameter :: TUTTI_BFLOAT16 = tutti_dtype(1040)
  type(tutti_dtype), parameter :: TUTTI_COMPLEX64 = tutti_dtype(1344)
  type(tutti_dtype), parameter :: TUTTI_COMPLEX128 = tutti_dtype(1408)
  type(tutti_dtype), parameter :: TUTTI_BOOL = tutti_dtype(1544)
  type(tutti_dtype), parameter :: TUTTI_FLOAT8_E4M3FN = tutti_dtype(2568)
  type(tutti_dtype), parameter :: TUTTI_FLOAT8_E5M2 = tutti_dtype(3080)

  ! ---- reduce operations -----------------------------------------------------------------------------------------

  type, bind(c) :: tutti_reduce_op
    integer(c_int) :: value = 0
  end type tutti_reduce_op

  type(tutti_reduce_op), parameter :: TUTTI_SUM = tutti_reduce_op(0)
  type(tutti_reduce_op), parameter :: TUTTI_PRODUCT = tutti_reduce_op(1)
  type(tutti_reduce_op), parameter :: TUTTI_MIN = tutti_reduce_op(2)
  type(tutti_reduce_op), parameter :: TUTTI_MAX = tutti_reduce_op(3)
  type(tutti_reduce_op), parameter :: TUTTI_AVG = tutti_reduce_op(4)
  type(tutti_reduce_op), parameter :: TUTTI_PREMUL_SUM = tutti_reduce_op(5)
  type(tutti_reduce_op), parameter :: TUTTI_BAND = tutti_reduce_op(6)
  type(tutti_reduce_op), parameter :: TUTTI_BOR = tutti_reduce_op(7)
  type(tutti_reduce_op), parameter :: TUTTI_BXOR = tutti_reduce_op(8)

  ! ---- kinds of operation ----------------------------------------------------------------------------------------

  integer(c_int), parameter :: TUTTI_BROADCAST_KIND = 0
  integer(c_int), parameter :: TUTTI_ALL_REDUCE_KIND = 1
  integer(c_int), parameter :: TUTTI_REDUCE_KIND = 2
  integer(c_int), parameter :: TUTTI_ALL_GATHER_KIND = 3
  integer(c_int), parameter :: TUTTI_GATHER_KIND = 4
  integer(c_int), parameter :: TUTTI_SCATTER_KIND = 5
  integer(c_int), parameter :: TUTTI_REDUCE_SCATTER_KIND = 6
  integer(c_int), parameter :: TUTTI_ALL_TO_ALL_KIND = 7
  integer(c_int), parameter :: TUTTI_BARRIER_KIND = 8
  integer(c_int), parameter :: TUTTI_MONITORED_BARRIER_KIND = 9
  integer(c_int), parameter :: TUTTI_SEND_KIND = 10
  integer(c_int), parameter :: TUTTI_RECV_KIND = 11
  integer(c_int), parameter :: TUTTI_COALESCED_KIND = 12
  integer(c_int), parameter :: TUTTI_COPY_KIND = 13
  integer(c_int), parameter :: TUTTI_PROBE_KIND = 14
  integer(c_int), parameter :: TUTTI_SCAN_KIND = 15
  integer(c_int), parameter :: TUTTI_EXSCAN_KIND = 16

  ! ---- other constants -------------------------------------------------------------------------------------------

  integer(c_int), parameter :: TUTTI_CPU = 1
  integer(c_int), parameter :: TUTTI_CUDA = 2
  integer(c_int), parameter :: TUTTI_ANY_SOURCE = -1
  integer(c_int), parameter :: TUTTI_ANY_TAG = -1
  integer(c_int), parameter :: TUTTI_RANK_ALIVE = 0
  integer(c_int), parameter :: TUTTI_RANK_LEFT = 1
  integer(c_int), parameter :: TUTTI_RANK_LOST = 2
  integer(c_int), parameter :: TUTTI_LOG_ERROR = 0
  integer(c_int), parameter :: TUTTI_LOG_WARN = 1
  integer(c_int), parameter :: TUTTI_LOG_INFO = 2
  integer(c_int), parameter :: TUTTI_LOG_DEBUG = 3
  integer(c_int), parameter :: TUTTI_ABI_VERSION = 1
  integer(c_int), parameter :: TUTTI_TOKEN_BYTES = 32
  integer(c_int64_t), parameter :: TUTTI_INFINITE = huge(0_c_int64_t)
  integer(c_int64_t), parameter :: TUTTI_NOW = -huge(0_c_int64_t)
  integer(c_int64_t), parameter :: TUTTI_DEFAULT_TIMEOUT = huge(0_c_int64_t) - 1

  !> The kind of optional flags: group_rank=TUTTI_TRUE.
  logical(c_bool), parameter :: TUTTI_TRUE = .true._c_bool
  logical(c_bool), parameter :: TUTTI_FALSE = .false._c_bool

  ! ---- handles ---------------------------------------------------------------------------------------------------

  type, bind(c) :: tutti_group
    type(c_ptr) :: handle = c_null_ptr
  end type tutti_group

  type, bind(c) :: tutti_work
    type(c_ptr) :: handle = c_null_ptr
  end type tutti_work

  type, bind(c) :: tutti_store
    type(c_ptr) :: handle = c_null_ptr
  end type tutti_store

  ! ---- structs ---------------------------------------------------------------------------------------------------

  type, bind(c) :: tutti_device
    integer(c_int32_t) :: type = TUTTI_CPU
    integer(c_int32_t) :: index = 0
  end type tutti_device

  !> An entry of a list of tensors, which tutti_view makes.  It borrows the array's memory.
  type, bind(c) :: tutti_tensor
    type(c_ptr) :: data = c_null_ptr
    integer(c_int64_t) :: numel = 0
    type(tutti_dtype) :: dtype
    type(tutti_device) :: device
  end type tutti_tensor

  !> A byte string that the library allocated.  tutti_text copies it, tutti_bytes_free frees it.
  type, bind(c) :: tutti_bytes
    type(c_ptr) :: data = c_null_ptr
    integer(c_size_t) :: bytes = 0
  end type tutti_bytes

  !> One send (TUTTI_SEND_KIND) or receive (TUTTI_RECV_KIND) of a batch.
  type, bind(c) :: tutti_p2p_op
    integer(c_int) :: kind = TUTTI_SEND_KIND
    type(tutti_tensor) :: tensor
    integer(c_int) :: peer = 0
    integer(c_int) :: tag = 0
    type(c_ptr) :: source = c_null_ptr
  end type tutti_p2p_op

  type, bind(c) :: tutti_message
    integer(c_int) :: source = -1
    integer(c_int) :: tag = -1
    integer(c_int64_t) :: bytes = 0
  end type tutti_message

  type, bind(c) :: tutti_rank_health
    integer(c_int32_t) :: state = 0
    integer(c_int32_t) :: reserved = 0
    integer(c_int64_t) :: silent_ms = 0
    character(kind=c_char) :: why(112) = c_null_char
  end type tutti_rank_health

  type, bind(c) :: tutti_traffic
    integer(c_int64_t) :: sent = 0
    integer(c_int64_t) :: received = 0
  end type tutti_traffic

  type, bind(c) :: tutti_counters
    type(tutti_traffic) :: shared
    type(tutti_traffic) :: wire
    integer(c_int64_t) :: retries = 0
    integer(c_int64_t) :: memory = 0
    type(tutti_traffic) :: library
    integer(c_int64_t) :: reserved(2) = 0
  end type tutti_counters

  type, bind(c) :: tutti_stats
    integer(c_int64_t) :: operations(0:31) = 0 !< by kind
    integer(c_int64_t) :: failed = 0
    integer(c_int64_t) :: waits = 0
    integer(c_int64_t) :: sleeps = 0
    type(tutti_counters) :: transport
  end type tutti_stats

  ! ---- procedures of the program ---------------------------------------------------------------------------------

  abstract interface
    !> A reduction: inout(i) = in(i) op inout(i) for n elements, where in holds the contributions of lower ranks.
    !> c_f_pointer gives both as arrays.  dtype is the value of a tutti_dtype.
    subroutine tutti_op_fn(inout, in, n, dtype, argument) bind(c)
      import :: c_ptr, c_int64_t, c_int
      type(c_ptr), value :: inout
      type(c_ptr), value :: in
      integer(c_int64_t), value :: n
      integer(c_int), value :: dtype
      type(c_ptr), value :: argument
    end subroutine tutti_op_fn

    !> Called once an operation has ended.  work is the handle of a tutti_work.
    subroutine tutti_work_callback(work, argument) bind(c)
      import :: c_ptr
      type(c_ptr), value :: work
      type(c_ptr), value :: argument
    end subroutine tutti_work_callback

    !> The main procedure of a rank of tutti_spawn.  Returns its exit status.
    function tutti_rank_main(rank, argument) bind(c) result(status)
      import :: c_ptr, c_int
      integer(c_int), value :: rank
      type(c_ptr), value :: argument
      integer(c_int) :: status
    end function tutti_rank_main
  end interface

  interface operator(==)
    module procedure same_dtype
    module procedure same_op
  end interface

  private :: same_dtype, same_op, strlen

  interface
    pure function strlen(text) bind(c, name="strlen") result(n)
      import :: c_ptr, c_size_t
      type(c_ptr), intent(in), value :: text
      integer(c_size_t) :: n
    end function strlen
  end interface

contains

  elemental function same_dtype(a, b) result(same)
    type(tutti_dtype), intent(in) :: a, b
    logical :: same
    same = a%value == b%value
  end function same_dtype

  elemental function same_op(a, b) result(same)
    type(tutti_reduce_op), intent(in) :: a, b
    logical :: same
    same = a%value == b%value
  end function same_op

  !> Copies n bytes to a string.
  function tutti_text_at(data, n) result(text)
    type(c_ptr), intent(in) :: data
    integer(c_size_t), intent(in) :: n
    character(kind=c_char, len=:), allocatable :: text
    character(kind=c_char), pointer :: chars(:)
    integer(c_size_t) :: i
    allocate (character(kind=c_char, len=n) :: text)
    if (n == 0) return
    call c_f_pointer(data, chars, [n])
    do i = 1, n
      text(i:i) = chars(i)
    end do
  end function tutti_text_at

  !> Copies a string of C, up to its zero byte.  A null pointer is an empty string.
  function tutti_c_text(data) result(text)
    type(c_ptr), intent(in) :: data
    character(kind=c_char, len=:), allocatable :: text
    if (c_associated(data)) then
      text = tutti_text_at(data, strlen(data))
    else
      text = ""
    end if
  end function tutti_c_text

  !> Copies a byte string.
  function tutti_text(bytes) result(text)
    type(tutti_bytes), intent(in) :: bytes
    character(kind=c_char, len=:), allocatable :: text
    text = tutti_text_at(bytes%data, bytes%bytes)
  end function tutti_text

end module tutti_types
