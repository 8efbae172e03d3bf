!> Tutti: point to point, and byte strings.  Each subroutine but tutti_copy_text is the C function of the
!> same name.
module tutti_messages
  use tutti_types
  use tutti_raw, only: receive_bytes, share_bytes, copy_text
  implicit none

  interface
    subroutine tutti_send(x, dst, tag, group, work, timeout_ms, group_rank, dtype, stat) bind(c, name="tuttif_send")
      include "options.inc"
      type(*), dimension(..), intent(in), asynchronous :: x
      integer(c_int), intent(in), value :: dst
      integer(c_int), intent(in), optional :: tag
    end subroutine tutti_send

    !> With received, which gets the size in bytes, the message may be smaller than x.
    subroutine tutti_recv(x, src, tag, source, received_tag, received, group, work, timeout_ms, group_rank, dtype, &
      stat) bind(c, name="tuttif_recv")
      include "options.inc"
      type(*), dimension(..), intent(inout), asynchronous :: x
      integer(c_int), intent(in), value :: src
      integer(c_int), intent(in), optional :: tag
      integer(c_int), intent(inout), asynchronous, optional :: source
      integer(c_int), intent(inout), asynchronous, optional :: received_tag
      integer(c_int64_t), intent(inout), asynchronous, optional :: received
    end subroutine tutti_recv

    subroutine tutti_isend(x, dst, work, tag, group, timeout_ms, group_rank, dtype, stat) bind(c, name="tuttif_isend")
      import :: tutti_group, tutti_work, tutti_dtype, c_int, c_int64_t, c_bool
      type(*), dimension(..), intent(in), asynchronous :: x
      integer(c_int), intent(in), value :: dst
      type(tutti_work), intent(out) :: work
      integer(c_int), intent(in), optional :: tag
      type(tutti_group), intent(in), optional :: group
      integer(c_int64_t), intent(in), optional :: timeout_ms
      logical(c_bool), intent(in), optional :: group_rank
      type(tutti_dtype), intent(in), optional :: dtype
      integer(c_int), intent(out), optional :: stat
    end subroutine tutti_isend

    !> received must exist until the operation has ended.
    subroutine tutti_irecv(x, src, work, tag, received, group, timeout_ms, group_rank, dtype, stat) &
      bind(c, name="tuttif_irecv")
      import :: tutti_group, tutti_work, tutti_dtype, c_int, c_int64_t, c_bool
      type(*), dimension(..), intent(inout), asynchronous :: x
      integer(c_int), intent(in), value :: src
      type(tutti_work), intent(out) :: work
      integer(c_int), intent(in), optional :: tag
      integer(c_int64_t), intent(inout), asynchronous, optional :: received
      type(tutti_group), intent(in), optional :: group
      integer(c_int64_t), intent(in), optional :: timeout_ms
      logical(c_bool), intent(in), optional :: group_rank
      type(tutti_dtype), intent(in), optional :: dtype
      integer(c_int), intent(out), optional :: stat
    end subroutine tutti_irecv

    !> Starts all sends and receives.  works has at least as many entries as ops.
    subroutine tutti_batch_isend_irecv(ops, works, group, timeout_ms, group_rank, stat) &
      bind(c, name="tuttif_batch_isend_irecv")
      import :: tutti_p2p_op, tutti_group, tutti_work, c_int, c_int64_t, c_bool
      type(tutti_p2p_op), intent(in) :: ops(:)
      type(tutti_work), intent(inout) :: works(:)
      type(tutti_group), intent(in), optional :: group
      integer(c_int64_t), intent(in), optional :: timeout_ms
      logical(c_bool), intent(in), optional :: group_rank
      integer(c_int), intent(out), optional :: stat
    end subroutine tutti_batch_isend_irecv

    subroutine tutti_probe(src, message, tag, group, timeout_ms, group_rank, stat) bind(c, name="tuttif_probe")
      import :: tutti_message, tutti_group, c_int, c_int64_t, c_bool
      integer(c_int), intent(in), value :: src
      type(tutti_message), intent(out) :: message
      integer(c_int), intent(in), optional :: tag
      type(tutti_group), intent(in), optional :: group
      integer(c_int64_t), intent(in), optional :: timeout_ms
      logical(c_bool), intent(in), optional :: group_rank
      integer(c_int), intent(out), optional :: stat
    end subroutine tutti_probe

    subroutine tutti_iprobe(src, found, message, tag, group, group_rank, stat) bind(c, name="tuttif_iprobe")
      import :: tutti_message, tutti_group, c_int, c_bool
      integer(c_int), intent(in), value :: src
      logical(c_bool), intent(out) :: found
      type(tutti_message), intent(out) :: message
      integer(c_int), intent(in), optional :: tag
      type(tutti_group), intent(in), optional :: group
      logical(c_bool), intent(in), optional :: group_rank
      integer(c_int), intent(out), optional :: stat
    end subroutine tutti_iprobe

    ! ---- byte strings --------------------------------------------------------------------------------------------

    !> Sends a string with its trailing blanks.
    subroutine tutti_send_bytes(text, dst, tag, group, timeout_ms, group_rank, stat) bind(c, name="tuttif_send_bytes")
      import :: tutti_group, c_char, c_int, c_int64_t, c_bool
      character(kind=c_char, len=*), intent(in) :: text
      integer(c_int), intent(in), value :: dst
      integer(c_int), intent(in), optional :: tag
      type(tutti_group), intent(in), optional :: group
      integer(c_int64_t), intent(in), optional :: timeout_ms
      logical(c_bool), intent(in), optional :: group_rank
      integer(c_int), intent(out), optional :: stat
    end subroutine tutti_send_bytes

    !> out has an entry for each rank.  tutti_bytes_free frees them.
    subroutine tutti_all_gather_bytes(out, text, group, timeout_ms, stat) bind(c, name="tuttif_all_gather_bytes")
      import :: tutti_bytes, tutti_group, c_char, c_int, c_int64_t
      type(tutti_bytes), intent(inout) :: out(:)
      character(kind=c_char, len=*), intent(in) :: text
      type(tutti_group), intent(in), optional :: group
      integer(c_int64_t), intent(in), optional :: timeout_ms
      integer(c_int), intent(out), optional :: stat
    end subroutine tutti_all_gather_bytes

    !> out has an entry for each rank, on all ranks.  Only root's are filled.
    subroutine tutti_gather_bytes(out, text, root, group, timeout_ms, group_rank, stat) &
      bind(c, name="tuttif_gather_bytes")
      import :: tutti_bytes, tutti_group, c_char, c_int, c_int64_t, c_bool
      type(tutti_bytes), intent(inout) :: out(:)
      character(kind=c_char, len=*), intent(in) :: text
      integer(c_int), intent(in), value :: root
      type(tutti_group), intent(in), optional :: group
      integer(c_int64_t), intent(in), optional :: timeout_ms
      logical(c_bool), intent(in), optional :: group_rank
      integer(c_int), intent(out), optional :: stat
    end subroutine tutti_gather_bytes

    !> Only the root passes in.  Its entries borrow memory of the program.
    subroutine tutti_scatter_bytes(out, in, root, group, timeout_ms, group_rank, stat) &
      bind(c, name="tuttif_scatter_bytes")
      import :: tutti_bytes, tutti_group, c_int, c_int64_t, c_bool
      type(tutti_bytes), intent(out) :: out
      type(tutti_bytes), intent(in), optional :: in(:)
      integer(c_int), intent(in), value :: root
      type(tutti_group), intent(in), optional :: group
      integer(c_int64_t), intent(in), optional :: timeout_ms
      logical(c_bool), intent(in), optional :: group_rank
      integer(c_int), intent(out), optional :: stat
    end subroutine tutti_scatter_bytes

    !> Frees byte strings that the library allocated.
    subroutine tutti_bytes_free(values) bind(c, name="tuttif_bytes_free")
      import :: tutti_bytes
      type(tutti_bytes), intent(inout) :: values(:)
    end subroutine tutti_bytes_free
  end interface

  private :: receive_bytes, share_bytes, copy_text

contains

  !> Receives what tutti_send_bytes sent.
  subroutine tutti_recv_bytes(text, src, tag, source, received_tag, group, timeout_ms, group_rank, stat)
    character(kind=c_char, len=:), allocatable, intent(out) :: text
    integer(c_int), intent(in) :: src
    integer(c_int), intent(in), optional :: tag
    integer(c_int), intent(inout), optional :: source
    integer(c_int), intent(inout), optional :: received_tag
    type(tutti_group), intent(in), optional :: group
    integer(c_int64_t), intent(in), optional :: timeout_ms
    logical(c_bool), intent(in), optional :: group_rank
    integer(c_int), intent(out), optional :: stat
    type(tutti_bytes) :: out(1)
    call receive_bytes(out(1), src, tag, source, received_tag, group, timeout_ms, group_rank, stat)
    call copy_text("tutti_recv_bytes", out(1)%data, out(1)%bytes, text, stat)
    call tutti_bytes_free(out)
  end subroutine tutti_recv_bytes

  !> Copies root's string to every rank.
  subroutine tutti_broadcast_bytes(text, root, group, timeout_ms, group_rank, stat)
    character(kind=c_char, len=:), allocatable, intent(inout) :: text
    integer(c_int), intent(in) :: root
    type(tutti_group), intent(in), optional :: group
    integer(c_int64_t), intent(in), optional :: timeout_ms
    logical(c_bool), intent(in), optional :: group_rank
    integer(c_int), intent(out), optional :: stat
    type(tutti_bytes) :: out(1)
    logical(c_bool) :: is_root
    if (.not. allocated(text)) text = ""
    call share_bytes(out(1), is_root, text, root, group, timeout_ms, group_rank, stat)
    if (is_root) return
    call copy_text("tutti_broadcast_bytes", out(1)%data, out(1)%bytes, text, stat)
    call tutti_bytes_free(out)
  end subroutine tutti_broadcast_bytes

  !> Copies a byte string, as tutti_text does.  Sets stat to NO_MEMORY, and text to "", if there is no memory for it.
  subroutine tutti_copy_text(bytes, text, stat)
    type(tutti_bytes), intent(in) :: bytes
    character(kind=c_char, len=:), allocatable, intent(out) :: text
    integer(c_int), intent(out), optional :: stat
    if (present(stat)) stat = TUTTI_OK
    call copy_text("tutti_copy_text", bytes%data, bytes%bytes, text, stat)
  end subroutine tutti_copy_text

end module tutti_messages
