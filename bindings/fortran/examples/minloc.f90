!> A reduction of the program's own: the smallest loss and the rank that has it.  tutti-run -n 4 minloc
module losses
  use tutti
  implicit none

  type, bind(c) :: loss
    real(c_double) :: value
    integer(c_int64_t) :: rank
  end type loss

contains

  !> Called by the library: inout(i) = in(i) op inout(i).
  subroutine keep_smaller(inout, in, n, dtype, argument) bind(c)
    type(c_ptr), value :: inout, in, argument
    integer(c_int64_t), value :: n
    integer(c_int), value :: dtype
    type(loss), pointer :: mine(:), lower(:)
    integer(c_int64_t) :: i
    call c_f_pointer(inout, mine, [n])
    call c_f_pointer(in, lower, [n])
    do i = 1, n
      if (lower(i)%value < mine(i)%value) mine(i) = lower(i)
    end do
  end subroutine keep_smaller

end module losses

program minloc_example
  use losses
  implicit none
  type(tutti_reduce_op) :: smaller
  type(loss) :: best
  integer :: rank

  call tutti_init_process_group("tcp")
  rank = tutti_get_rank()
  call tutti_op_create("smaller", keep_smaller, smaller, element_bytes=c_sizeof(best), commutative=TUTTI_TRUE)
  best = loss(abs(rank - 1.75_c_double), rank)
  call tutti_all_reduce(best, smaller, dtype=TUTTI_UINT8)
  if (rank == 0) print "(a, i0, a, f4.2)", "rank ", best%rank, " has the smallest loss, ", best%value
  call tutti_op_free(smaller)
  call tutti_destroy_process_group()
end program minloc_example
