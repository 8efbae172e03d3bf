!> Tutti: collectives.  Each subroutine is the C function of the same name, which include/tutti/tutti.h describes.
!>
!> Buffers are scalars and contiguous arrays of any rank of integer, real, complex, logical(c_bool) and character, whose
!> type gives the dtype.  dtype replaces it: integer(int16) with TUTTI_BFLOAT16.
module tutti_collectives
  use tutti_types
  implicit none

  interface
    subroutine tutti_broadcast(x, root, group, work, timeout_ms, group_rank, dtype, stat) &
      bind(c, name="tuttif_broadcast")
      include "options.inc"
      type(*), dimension(..), intent(inout), asynchronous :: x
      integer(c_int), intent(in), value :: root
    end subroutine tutti_broadcast

    ! ---- reductions ----------------------------------------------------------------------------------------------

    !> factor is that of TUTTI_PREMUL_SUM.
    subroutine tutti_all_reduce(x, op, factor, group, work, timeout_ms, group_rank, dtype, stat) &
      bind(c, name="tuttif_all_reduce")
      include "options.inc"
      type(*), dimension(..), intent(inout), asynchronous :: x
      type(tutti_reduce_op), intent(in) :: op
      real(c_double), intent(in), optional :: factor
    end subroutine tutti_all_reduce

    subroutine tutti_all_reduce_into(out, in, op, factor, group, work, timeout_ms, group_rank, dtype, stat) &
      bind(c, name="tuttif_all_reduce_into")
      include "options.inc"
      type(*), dimension(..), intent(inout), asynchronous :: out
      type(*), dimension(..), intent(in), asynchronous :: in
      type(tutti_reduce_op), intent(in) :: op
      real(c_double), intent(in), optional :: factor
    end subroutine tutti_all_reduce_into

    subroutine tutti_scan(x, op, factor, group, work, timeout_ms, group_rank, dtype, stat) bind(c, name="tuttif_scan")
      include "options.inc"
      type(*), dimension(..), intent(inout), asynchronous :: x
      type(tutti_reduce_op), intent(in) :: op
      real(c_double), intent(in), optional :: factor
    end subroutine tutti_scan

    subroutine tutti_scan_into(out, in, op, factor, group, work, timeout_ms, group_rank, dtype, stat) &
      bind(c, name="tuttif_scan_into")
      include "options.inc"
      type(*), dimension(..), intent(inout), asynchronous :: out
      type(*), dimension(..), intent(in), asynchronous :: in
      type(tutti_reduce_op), intent(in) :: op
      real(c_double), intent(in), optional :: factor
    end subroutine tutti_scan_into

    subroutine tutti_exscan(x, op, factor, group, work, timeout_ms, group_rank, dtype, stat) &
      bind(c, name="tuttif_exscan")
      include "options.inc"
      type(*), dimension(..), intent(inout), asynchronous :: x
      type(tutti_reduce_op), intent(in) :: op
      real(c_double), intent(in), optional :: factor
    end subroutine tutti_exscan

    subroutine tutti_exscan_into(out, in, op, factor, group, work, timeout_ms, group_rank, dtype, stat) &
      bind(c, name="tuttif_exscan_into")
      include "options.inc"
      type(*), dimension(..), intent(inout), asynchronous :: out
      type(*), dimension(..), intent(in), asynchronous :: in
      type(tutti_reduce_op), intent(in) :: op
      real(c_double), intent(in), optional :: factor
    end subroutine tutti_exscan_into

    subroutine tutti_reduce(x, root, op, factor, group, work, timeout_ms, group_rank, dtype, stat) &
      bind(c, name="tuttif_reduce")
      include "options.inc"
      type(*), dimension(..), intent(inout), asynchronous :: x
      integer(c_int), intent(in), value :: root
      type(tutti_reduce_op), intent(in) :: op
      real(c_double), intent(in), optional :: factor
    end subroutine tutti_reduce

    !> Only the root passes out.
    subroutine tutti_reduce_into(out, in, root, op, factor, group, work, timeout_ms, group_rank, dtype, stat) &
      bind(c, name="tuttif_reduce_into")
      include "options.inc"
      type(*), dimension(..), intent(inout), asynchronous, optional :: out
      type(*), dimension(..), intent(in), asynchronous :: in
      integer(c_int), intent(in), value :: root
      type(tutti_reduce_op), intent(in) :: op
      real(c_double), intent(in), optional :: factor
    end subroutine tutti_reduce_into

    subroutine tutti_reduce_scatter_tensor(out, in, op, factor, group, work, timeout_ms, group_rank, dtype, stat) &
      bind(c, name="tuttif_reduce_scatter_tensor")
      include "options.inc"
      type(*), dimension(..), intent(inout), asynchronous :: out
      type(*), dimension(..), intent(in), asynchronous :: in
      type(tutti_reduce_op), intent(in) :: op
      real(c_double), intent(in), optional :: factor
    end subroutine tutti_reduce_scatter_tensor

    ! ---- parts of one array, in the order of its elements --------------------------------------------------------

    subroutine tutti_all_gather_into_tensor(out, in, group, work, timeout_ms, group_rank, dtype, stat) &
      bind(c, name="tuttif_all_gather_into_tensor")
      include "options.inc"
      type(*), dimension(..), intent(inout), asynchronous :: out
      type(*), dimension(..), intent(in), asynchronous :: in
    end subroutine tutti_all_gather_into_tensor

    !> Only the root passes out.
    subroutine tutti_gather_into_tensor(out, in, root, group, work, timeout_ms, group_rank, dtype, stat) &
      bind(c, name="tuttif_gather_into_tensor")
      include "options.inc"
      type(*), dimension(..), intent(inout), asynchronous, optional :: out
      type(*), dimension(..), intent(in), asynchronous :: in
      integer(c_int), intent(in), value :: root
    end subroutine tutti_gather_into_tensor

    !> Only the root passes in.
    subroutine tutti_scatter_tensor(out, in, root, group, work, timeout_ms, group_rank, dtype, stat) &
      bind(c, name="tuttif_scatter_tensor")
      include "options.inc"
      type(*), dimension(..), intent(inout), asynchronous :: out
      type(*), dimension(..), intent(in), asynchronous, optional :: in
      integer(c_int), intent(in), value :: root
    end subroutine tutti_scatter_tensor

    !> Without splits all parts are equal.
    subroutine tutti_all_to_all_single(out, in, out_splits, in_splits, group, work, timeout_ms, group_rank, dtype, &
      stat) bind(c, name="tuttif_all_to_all_single")
      include "options.inc"
      type(*), dimension(..), intent(inout), asynchronous :: out
      type(*), dimension(..), intent(in), asynchronous :: in
      integer(c_int64_t), intent(in), optional :: out_splits(:)
      integer(c_int64_t), intent(in), optional :: in_splits(:)
    end subroutine tutti_all_to_all_single

    ! ---- lists of arrays, one for each rank, which tutti_view describes ------------------------------------------

    subroutine tutti_all_gather(out, in, group, work, timeout_ms, group_rank, dtype, stat) &
      bind(c, name="tuttif_all_gather")
      include "options.inc"
      type(tutti_tensor), intent(in) :: out(:)
      type(*), dimension(..), intent(in), asynchronous :: in
    end subroutine tutti_all_gather

    !> Only the root passes out.
    subroutine tutti_gather(in, out, root, group, work, timeout_ms, group_rank, dtype, stat) &
      bind(c, name="tuttif_gather")
      include "options.inc"
      type(*), dimension(..), intent(in), asynchronous :: in
      type(tutti_tensor), intent(in), optional :: out(:)
      integer(c_int), intent(in), value :: root
    end subroutine tutti_gather

    !> Only the root passes in.
    subroutine tutti_scatter(out, in, root, group, work, timeout_ms, group_rank, dtype, stat) &
      bind(c, name="tuttif_scatter")
      include "options.inc"
      type(*), dimension(..), intent(inout), asynchronous :: out
      type(tutti_tensor), intent(in), optional :: in(:)
      integer(c_int), intent(in), value :: root
    end subroutine tutti_scatter

    subroutine tutti_reduce_scatter(out, in, op, factor, group, work, timeout_ms, group_rank, dtype, stat) &
      bind(c, name="tuttif_reduce_scatter")
      include "options.inc"
      type(*), dimension(..), intent(inout), asynchronous :: out
      type(tutti_tensor), intent(in) :: in(:)
      type(tutti_reduce_op), intent(in) :: op
      real(c_double), intent(in), optional :: factor
    end subroutine tutti_reduce_scatter

    subroutine tutti_all_to_all(out, in, group, work, timeout_ms, group_rank, dtype, stat) &
      bind(c, name="tuttif_all_to_all")
      include "options.inc"
      type(tutti_tensor), intent(in) :: out(:)
      type(tutti_tensor), intent(in) :: in(:)
    end subroutine tutti_all_to_all

    ! ---- barriers ------------------------------------------------------------------------------------------------

    subroutine tutti_barrier(group, work, timeout_ms, stat) bind(c, name="tuttif_barrier")
      import :: tutti_group, tutti_work, c_int, c_int64_t
      type(tutti_group), intent(in), optional :: group
      type(tutti_work), intent(out), optional :: work
      integer(c_int64_t), intent(in), optional :: timeout_ms
      integer(c_int), intent(out), optional :: stat
    end subroutine tutti_barrier

    subroutine tutti_monitored_barrier(group, timeout_ms, stat) bind(c, name="tuttif_monitored_barrier")
      import :: tutti_group, c_int, c_int64_t
      type(tutti_group), intent(in), optional :: group
      integer(c_int64_t), intent(in), optional :: timeout_ms
      integer(c_int), intent(out), optional :: stat
    end subroutine tutti_monitored_barrier
  end interface
end module tutti_collectives
