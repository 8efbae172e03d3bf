!> Tutti: functions that the other modules wrap, because their results are strings.  Copies of strings.
module tutti_raw
  use tutti_types
  implicit none

  interface
    function last_error() bind(c, name="tutti_last_error") result(text)
      import :: c_ptr
      type(c_ptr) :: text
    end function last_error

    function status_string(status) bind(c, name="tutti_status_string") result(text)
      import :: c_ptr, c_int
      integer(c_int), intent(in), value :: status
      type(c_ptr) :: text
    end function status_string

    function library_version() bind(c, name="tutti_version") result(text)
      import :: c_ptr
      type(c_ptr) :: text
    end function library_version

    function kind_name(kind) bind(c, name="tutti_kind_name") result(text)
      import :: c_ptr, c_int
      integer(c_int), intent(in), value :: kind
      type(c_ptr) :: text
    end function kind_name

    function dtype_name(dtype) bind(c, name="tutti_dtype_name") result(text)
      import :: c_ptr, c_int
      integer(c_int), intent(in), value :: dtype
      type(c_ptr) :: text
    end function dtype_name

    function op_name(op) bind(c, name="tutti_reduce_op_name") result(text)
      import :: c_ptr, c_int
      integer(c_int), intent(in), value :: op
      type(c_ptr) :: text
    end function op_name

    function group_name(group) bind(c, name="tuttif_get_name") result(text)
      import :: tutti_group, c_ptr
      type(tutti_group), intent(in), optional :: group
      type(c_ptr) :: text
    end function group_name

    function group_backend(group) bind(c, name="tuttif_get_backend") result(text)
      import :: tutti_group, c_ptr
      type(tutti_group), intent(in), optional :: group
      type(c_ptr) :: text
    end function group_backend

    function describe(what, group, kind, bytes, name, text, capacity) bind(c, name="tuttif_describe") result(status)
      import :: tutti_group, c_int, c_int64_t, c_size_t, c_char
      integer(c_int), intent(in), value :: what
      type(tutti_group), intent(in), optional :: group
      integer(c_int), intent(in), value :: kind
      integer(c_int64_t), intent(in), value :: bytes
      character(kind=c_char, len=*), intent(in) :: name
      character(kind=c_char), intent(inout) :: text(*)
      integer(c_size_t), intent(in), value :: capacity
      integer(c_int) :: status
    end function describe

    subroutine receive_bytes(out, src, tag, source, received_tag, group, timeout_ms, group_rank, stat) &
      bind(c, name="tuttif_recv_bytes")
      import :: tutti_bytes, tutti_group, c_int, c_int64_t, c_bool
      type(tutti_bytes), intent(out) :: out
      integer(c_int), intent(in), value :: src
      integer(c_int), intent(in), optional :: tag
      integer(c_int), intent(inout), optional :: source
      integer(c_int), intent(inout), optional :: received_tag
      type(tutti_group), intent(in), optional :: group
      integer(c_int64_t), intent(in), optional :: timeout_ms
      logical(c_bool), intent(in), optional :: group_rank
      integer(c_int), intent(out), optional :: stat
    end subroutine receive_bytes

    subroutine share_bytes(out, is_root, text, root, group, timeout_ms, group_rank, stat) &
      bind(c, name="tuttif_broadcast_bytes")
      import :: tutti_bytes, tutti_group, c_char, c_int, c_int64_t, c_bool
      type(tutti_bytes), intent(out) :: out
      logical(c_bool), intent(out) :: is_root
      character(kind=c_char, len=*), intent(in) :: text
      integer(c_int), intent(in), value :: root
      type(tutti_group), intent(in), optional :: group
      integer(c_int64_t), intent(in), optional :: timeout_ms
      logical(c_bool), intent(in), optional :: group_rank
      integer(c_int), intent(out), optional :: stat
    end subroutine share_bytes

    subroutine describe_view(x, tensor, dtype, stat) bind(c, name="tuttif_view")
      import :: tutti_tensor, tutti_dtype, c_int
      type(*), dimension(..), intent(in), asynchronous :: x
      type(tutti_tensor), intent(out) :: tensor
      type(tutti_dtype), intent(in), optional :: dtype
      integer(c_int), intent(out), optional :: stat
    end subroutine describe_view

    function error_of_work(work) bind(c, name="tuttif_work_error") result(text)
      import :: tutti_work, c_ptr
      type(tutti_work), intent(in) :: work
      type(c_ptr) :: text
    end function error_of_work

    subroutine open_named(redis, name, store, timeout_ms, stat) bind(c, name="tuttif_store_named")
      import :: tutti_store, c_char, c_int, c_int64_t, c_bool
      logical(c_bool), intent(in), value :: redis
      character(kind=c_char, len=*), intent(in) :: name
      type(tutti_store), intent(out) :: store
      integer(c_int64_t), intent(in), optional :: timeout_ms
      integer(c_int), intent(out), optional :: stat
    end subroutine open_named

    subroutine get_bytes(store, key, value, timeout_ms, stat) bind(c, name="tuttif_store_get")
      import :: tutti_store, tutti_bytes, c_char, c_int, c_int64_t
      type(tutti_store), intent(in) :: store
      character(kind=c_char, len=*), intent(in) :: key
      type(tutti_bytes), intent(out) :: value
      integer(c_int64_t), intent(in), optional :: timeout_ms
      integer(c_int), intent(out), optional :: stat
    end subroutine get_bytes

    subroutine compare_set(store, key, expected, desired, buffer, capacity, bytes, stat) &
      bind(c, name="tuttif_store_compare_set")
      import :: tutti_store, c_char, c_int, c_size_t
      type(tutti_store), intent(in) :: store
      character(kind=c_char, len=*), intent(in) :: key
      character(kind=c_char, len=*), intent(in) :: expected
      character(kind=c_char, len=*), intent(in) :: desired
      character(kind=c_char), intent(inout) :: buffer(*)
      integer(c_size_t), intent(in), value :: capacity
      integer(c_size_t), intent(out) :: bytes
      integer(c_int), intent(out), optional :: stat
    end subroutine compare_set

    subroutine free_bytes(values, n) bind(c, name="tutti_bytes_free")
      import :: tutti_bytes, c_int
      type(tutti_bytes), intent(inout) :: values(*)
      integer(c_int), intent(in), value :: n
    end subroutine free_bytes

    !> Reports that the procedure of this name could not allocate bytes: sets stat, or ends the program without it.
    subroutine report_no_memory(name, bytes, stat) bind(c, name="tuttif_no_memory")
      import :: c_char, c_int, c_size_t
      character(kind=c_char, len=*), intent(in) :: name
      integer(c_size_t), intent(in), value :: bytes
      integer(c_int), intent(inout), optional :: stat
    end subroutine report_no_memory
  end interface

contains

  !> Copies n bytes to text.  Without memory for them, text is empty and stat becomes NO_MEMORY.  A copy leaves stat as
  !> it is.  The text is no function's result, because compilers copy these and do not check the copy's allocation.
  subroutine copy_text(name, data, n, text, stat)
    character(kind=c_char, len=*), intent(in) :: name
    type(c_ptr), intent(in) :: data
    integer(c_size_t), intent(in) :: n
    character(kind=c_char, len=:), allocatable, intent(out) :: text
    integer(c_int), intent(inout), optional :: stat
    character(kind=c_char), pointer :: chars(:)
    integer(c_size_t) :: i
    integer :: failed
    allocate (character(kind=c_char, len=n) :: text, stat=failed)
    if (failed /= 0) then
      text = ""
      call report_no_memory(name, n, stat)
      return
    end if
    if (n == 0) return
    call c_f_pointer(data, chars, [n])
    do i = 1, n
      text(i:i) = chars(i)
    end do
  end subroutine copy_text

end module tutti_raw
