!> Tutti: works, coalescing, reductions of the program's own, memory.  Each is the C function of the same name.
module tutti_works
  use tutti_types
  use tutti_raw, only: describe_view, error_of_work
  implicit none

  interface
    !> Waits, frees the work and makes it null.
    subroutine tutti_wait(work, timeout_ms, stat) bind(c, name="tuttif_wait")
      import :: tutti_work, c_int, c_int64_t
      type(tutti_work), intent(inout) :: work
      integer(c_int64_t), intent(in), optional :: timeout_ms
      integer(c_int), intent(out), optional :: stat
    end subroutine tutti_wait

    subroutine tutti_work_wait(work, timeout_ms, stat) bind(c, name="tuttif_work_wait")
      import :: tutti_work, c_int, c_int64_t
      type(tutti_work), intent(in) :: work
      integer(c_int64_t), intent(in), optional :: timeout_ms
      integer(c_int), intent(out), optional :: stat
    end subroutine tutti_work_wait

    subroutine tutti_wait_all(works, timeout_ms, stat) bind(c, name="tuttif_wait_all")
      import :: tutti_work, c_int, c_int64_t
      type(tutti_work), intent(inout) :: works(:)
      integer(c_int64_t), intent(in), optional :: timeout_ms
      integer(c_int), intent(out), optional :: stat
    end subroutine tutti_wait_all

    !> position is that of the work that has ended, from 1; 0 if all works are null, or after TIMEOUT.
    subroutine tutti_wait_any(works, position, timeout_ms, stat) bind(c, name="tuttif_wait_any")
      import :: tutti_work, c_int, c_int64_t
      type(tutti_work), intent(inout) :: works(:)
      integer(c_int), intent(out) :: position
      integer(c_int64_t), intent(in), optional :: timeout_ms
      integer(c_int), intent(out), optional :: stat
    end subroutine tutti_wait_any

    function tutti_work_is_completed(work) bind(c, name="tuttif_work_is_completed") result(completed)
      import :: tutti_work, c_bool
      type(tutti_work), intent(in) :: work
      logical(c_bool) :: completed
    end function tutti_work_is_completed

    function tutti_work_status(work) bind(c, name="tuttif_work_status") result(status)
      import :: tutti_work, c_int
      type(tutti_work), intent(in) :: work
      integer(c_int) :: status
    end function tutti_work_status

    !> Calls callback once the operation has ended, from any thread.
    subroutine tutti_work_then(work, callback, argument, stat) bind(c, name="tuttif_work_then")
      import :: tutti_work, tutti_work_callback, c_int, c_ptr
      type(tutti_work), intent(in) :: work
      procedure(tutti_work_callback) :: callback
      type(c_ptr), intent(in), optional :: argument
      integer(c_int), intent(out), optional :: stat
    end subroutine tutti_work_then

    function tutti_work_op(work) bind(c, name="tuttif_work_op") result(kind)
      import :: tutti_work, c_int
      type(tutti_work), intent(in) :: work
      integer(c_int) :: kind
    end function tutti_work_op

    function tutti_work_sequence(work) bind(c, name="tuttif_work_sequence") result(sequence)
      import :: tutti_work, c_int64_t
      type(tutti_work), intent(in) :: work
      integer(c_int64_t) :: sequence
    end function tutti_work_sequence

    function tutti_work_duration_ns(work) bind(c, name="tuttif_work_duration_ns") result(ns)
      import :: tutti_work, c_int64_t
      type(tutti_work), intent(in) :: work
      integer(c_int64_t) :: ns
    end function tutti_work_duration_ns

    function tutti_work_source(work) bind(c, name="tuttif_work_source") result(rank)
      import :: tutti_work, c_int
      type(tutti_work), intent(in) :: work
      integer(c_int) :: rank
    end function tutti_work_source

    function tutti_work_tag(work) bind(c, name="tuttif_work_tag") result(tag)
      import :: tutti_work, c_int
      type(tutti_work), intent(in) :: work
      integer(c_int) :: tag
    end function tutti_work_tag

    function tutti_work_received(work) bind(c, name="tuttif_work_received") result(bytes)
      import :: tutti_work, c_int64_t
      type(tutti_work), intent(in) :: work
      integer(c_int64_t) :: bytes
    end function tutti_work_received

    !> Frees the handle without waiting.  The operation still completes, and its buffers must exist until then.
    subroutine tutti_work_free(work) bind(c, name="tuttif_work_free")
      import :: tutti_work
      type(tutti_work), intent(inout) :: work
    end subroutine tutti_work_free

    subroutine tutti_group_quiesce(group, timeout_ms, stat) bind(c, name="tuttif_group_quiesce")
      import :: tutti_group, c_int, c_int64_t
      type(tutti_group), intent(in), optional :: group
      integer(c_int64_t), intent(in), optional :: timeout_ms
      integer(c_int), intent(out), optional :: stat
    end subroutine tutti_group_quiesce

    ! ---- coalescing ----------------------------------------------------------------------------------------------

    subroutine tutti_coalesce_begin(group, stat) bind(c, name="tuttif_coalesce_begin")
      import :: tutti_group, c_int
      type(tutti_group), intent(in), optional :: group
      integer(c_int), intent(out), optional :: stat
    end subroutine tutti_coalesce_begin

    subroutine tutti_coalesce_end(group, work, stat) bind(c, name="tuttif_coalesce_end")
      import :: tutti_group, tutti_work, c_int
      type(tutti_group), intent(in), optional :: group
      type(tutti_work), intent(out), optional :: work
      integer(c_int), intent(out), optional :: stat
    end subroutine tutti_coalesce_end

    ! ---- reductions of the program's own -------------------------------------------------------------------------

    !> With element_bytes the operation's buffers are bytes: pass dtype=TUTTI_UINT8 with them.
    subroutine tutti_op_create(name, fn, op, argument, element_bytes, commutative, stat) &
      bind(c, name="tuttif_op_create")
      import :: tutti_reduce_op, tutti_op_fn, c_char, c_int, c_int64_t, c_bool, c_ptr
      character(kind=c_char, len=*), intent(in) :: name
      procedure(tutti_op_fn) :: fn
      type(tutti_reduce_op), intent(out) :: op
      type(c_ptr), intent(in), optional :: argument
      integer(c_int64_t), intent(in), optional :: element_bytes
      logical(c_bool), intent(in), optional :: commutative
      integer(c_int), intent(out), optional :: stat
    end subroutine tutti_op_create

    subroutine tutti_op_free(op, stat) bind(c, name="tuttif_op_free")
      import :: tutti_reduce_op, c_int
      type(tutti_reduce_op), intent(in) :: op
      integer(c_int), intent(out), optional :: stat
    end subroutine tutti_op_free

    ! ---- tensors and memory --------------------------------------------------------------------------------------

    !> c_f_pointer makes an array of memory.
    subroutine tutti_alloc(bytes, memory, group, stat) bind(c, name="tuttif_alloc")
      import :: tutti_group, c_int, c_int64_t, c_ptr
      integer(c_int64_t), intent(in), value :: bytes
      type(c_ptr), intent(out) :: memory
      type(tutti_group), intent(in), optional :: group
      integer(c_int), intent(out), optional :: stat
    end subroutine tutti_alloc

    subroutine tutti_free(memory, group, stat) bind(c, name="tuttif_free")
      import :: tutti_group, c_int, c_ptr
      type(c_ptr), intent(inout) :: memory
      type(tutti_group), intent(in), optional :: group
      integer(c_int), intent(out), optional :: stat
    end subroutine tutti_free

    subroutine tutti_reduce_local(inout, in, op, dtype, stat) bind(c, name="tuttif_reduce_local")
      import :: tutti_reduce_op, tutti_dtype, c_int
      type(*), dimension(..), intent(inout) :: inout
      type(*), dimension(..), intent(in) :: in
      type(tutti_reduce_op), intent(in) :: op
      type(tutti_dtype), intent(in), optional :: dtype
      integer(c_int), intent(out), optional :: stat
    end subroutine tutti_reduce_local

    subroutine tutti_cast(out, in, out_dtype, in_dtype, stat) bind(c, name="tuttif_cast")
      import :: tutti_dtype, c_int
      type(*), dimension(..), intent(inout) :: out
      type(*), dimension(..), intent(in) :: in
      type(tutti_dtype), intent(in), optional :: out_dtype
      type(tutti_dtype), intent(in), optional :: in_dtype
      integer(c_int), intent(out), optional :: stat
    end subroutine tutti_cast
  end interface

  private :: describe_view, error_of_work

contains

  !> Describes an array as a tensor, for lists and batches.  It must exist, and be a target or asynchronous, as long as
  !> the tensor is used.
  function tutti_view(x, dtype) result(tensor)
    type(*), dimension(..), intent(in), asynchronous :: x
    type(tutti_dtype), intent(in), optional :: dtype
    type(tutti_tensor) :: tensor
    call describe_view(x, tensor, dtype)
  end function tutti_view

  !> The error message of an operation that has failed; "" otherwise.
  function tutti_work_error(work) result(text)
    type(tutti_work), intent(in) :: work
    character(kind=c_char, len=:), allocatable :: text
    text = tutti_c_text(error_of_work(work))
  end function tutti_work_error

end module tutti_works
