!> The heat equation on a plate whose columns are split over the ranks.  Each rank sends the edges of its part to its
!> neighbours and updates the inside meanwhile.  The total heat equals that of one rank.
!>
!>     tutti-run -n 4 heat
program heat
  use tutti
  use, intrinsic :: iso_fortran_env, only: real64
  implicit none
  integer, parameter :: rows = 200, columns = 240, steps = 300
  real(real64), allocatable, asynchronous :: now(:, :), next(:, :)
  real(real64) :: total, change
  type(tutti_work) :: works(4)
  integer :: rank, ranks, first, last, step

  call tutti_init_process_group("tcp")
  rank = tutti_get_rank()
  ranks = tutti_get_world_size()
  first = rank*columns/ranks + 1 ! this rank's columns
  last = (rank + 1)*columns/ranks

  allocate (now(0:rows + 1, first - 1:last + 1)) ! a frame of neighbours' cells around them
  now = 0
  if (first == 1) now(:, 0) = 1 ! the hot edge
  next = now

  do step = 1, steps
    call start_exchange()
    call update(first + 1, last - 1)
    call tutti_wait_all(works)
    call update(first, first)
    if (last > first) call update(last, last)
    change = maxval(abs(next(1:rows, first:last) - now(1:rows, first:last)))
    now(1:rows, first:last) = next(1:rows, first:last)
    if (mod(step, 100) == 0) then
      call tutti_all_reduce(change, TUTTI_MAX)
      if (rank == 0) print "(a, i0, a, f9.6)", "step ", step, ": the largest change is ", change
    end if
  end do

  total = sum(now(1:rows, first:last))
  call tutti_reduce(total, 0, TUTTI_SUM)
  if (rank == 0) print "(a, f0.6)", "total heat ", total
  call tutti_destroy_process_group()

contains

  !> Starts to send both edges and to receive the neighbours' edges.  Columns are contiguous.
  subroutine start_exchange()
    if (rank > 0) then
      call tutti_irecv(now(:, first - 1), rank - 1, works(1))
      call tutti_isend(now(:, first), rank - 1, works(2))
    end if
    if (rank < ranks - 1) then
      call tutti_irecv(now(:, last + 1), rank + 1, works(3))
      call tutti_isend(now(:, last), rank + 1, works(4))
    end if
  end subroutine start_exchange

  !> Computes columns of the next step.
  subroutine update(from, to)
    integer, intent(in) :: from, to
    integer :: i, j
    do j = from, to
      do i = 1, rows
        next(i, j) = now(i, j) + 0.2_real64*(now(i - 1, j) + now(i + 1, j) + now(i, j - 1) + now(i, j + 1) &
          - 4*now(i, j))
      end do
    end do
  end subroutine update

end program heat
