!> Errors: what stat says, and the end of a program that passes none.  errors [stop|spawn]
module spawned
  use tutti
  implicit none
contains
  function rank_main(rank, argument) bind(c) result(status)
    integer(c_int), value :: rank
    type(c_ptr), value :: argument
    integer(c_int) :: status
    integer :: x
    call tutti_init_process_group("tcp")
    x = rank
    call tutti_all_reduce(x, TUTTI_SUM)
    call tutti_destroy_process_group()
    status = merge(0, 1, x == 1 .and. .not. c_associated(argument))
  end function rank_main
end module spawned

program errors
  use tutti
  use spawned
  implicit none
  real :: matrix(4, 4), vector(8)
  logical :: plain(2)
  type(tutti_work) :: work
  integer(c_int) :: stat
  character(len=8) :: what
  integer, asynchronous :: x

  call get_command_argument(1, what)
  if (what == "spawn") then
    call tutti_spawn(rank_main, 2)
    print "(a)", "spawned"
    stop
  end if
  call tutti_init_process_group("gloo", stat=stat)
  call expect(TUTTI_ERR_BACKEND, "gloo")
  call tutti_barrier(stat=stat)
  call expect(TUTTI_ERR_INVALID_ARGUMENT, "tutti_init_process_group")
  call tutti_init_process_group("tcp", stat=stat)
  call expect(TUTTI_OK, "")
  matrix = 0
  call tutti_all_reduce(matrix(1:2, :), TUTTI_SUM, stat=stat)
  call expect(TUTTI_ERR_INVALID_ARGUMENT, "contiguous")
  call tutti_all_reduce(matrix(:, 2:3), TUTTI_SUM, stat=stat)
  call expect(TUTTI_OK, "")
  plain = .true.
  call tutti_all_reduce(plain, TUTTI_BAND, stat=stat)
  call expect(TUTTI_ERR_INVALID_ARGUMENT, "logical(c_bool)")
  call tutti_all_reduce(x, TUTTI_SUM, dtype=TUTTI_FLOAT64, stat=stat)
  call expect(TUTTI_ERR_INVALID_ARGUMENT, "multiple of the 8")
  call tutti_broadcast(x, 99, stat=stat)
  call expect(TUTTI_ERR_INVALID_ARGUMENT, "99")
  call tutti_all_reduce(vector, TUTTI_BXOR, stat=stat)
  call expect(TUTTI_ERR_UNSUPPORTED, "float32")
  call tutti_all_to_all_single(vector, matrix(:, 1:2), out_splits=[8_c_int64_t], stat=stat)
  call expect(TUTTI_ERR_INVALID_ARGUMENT, "out_splits has 1 entries, but the group has 2 ranks")
  if (tutti_get_rank() == 0) then
    call tutti_recv(x, 1, timeout_ms=100_c_int64_t, stat=stat)
    call expect(TUTTI_ERR_TIMEOUT, "recv")
    call tutti_irecv(x, 1, work)
    call tutti_wait(work, 50_c_int64_t, stat)
    call expect(TUTTI_ERR_TIMEOUT, "")
  end if
  call tutti_barrier()
  x = 5
  if (tutti_get_rank() == 1) call tutti_send(x, 0)
  if (tutti_get_rank() == 0) call tutti_wait(work)
  if (what == "stop") call tutti_broadcast(x, 99)
  if (tutti_get_rank() == 1) then
    call tutti_all_reduce(vector(1:3), TUTTI_SUM, stat=stat)
  else
    call tutti_all_reduce(vector, TUTTI_SUM, stat=stat)
  end if
  if (stat /= TUTTI_ERR_MISMATCH .and. stat /= TUTTI_ERR_ABORTED) error stop "no mismatch"
  call expect_no_memory()
  call tutti_abort(reason="the end", stat=stat)
  call tutti_destroy_process_group(stat=stat)
  print "(a)", "all errors seen"

contains

  !> A string that no memory can hold is an error of the call, not the program's end.
  subroutine expect_no_memory()
    character(kind=c_char), target :: letters(3) = ["a", "b", "c"]
    character(kind=c_char, len=:), allocatable :: text
    call tutti_copy_text(tutti_bytes(c_loc(letters), 3_c_size_t), text, stat)
    call expect(TUTTI_OK, "")
    if (text /= "abc") error stop "tutti_copy_text"
    call tutti_copy_text(tutti_bytes(c_loc(letters), 2_c_size_t**60), text, stat)
    call expect(TUTTI_ERR_NO_MEMORY, "no memory is left for a copy of 1152921504606846976 bytes")
    if (text /= "") error stop "tutti_copy_text: text after an error"
  end subroutine expect_no_memory

  subroutine expect(status, part)
    integer(c_int), intent(in) :: status
    character(len=*), intent(in) :: part
    if (stat == status .and. (part == "" .or. index(tutti_last_error(), part) > 0)) return
    print "(5a)", "expected ", tutti_status_string(status), " and """//part//""", found ", tutti_status_string(stat), &
      ": "//tutti_last_error()
    error stop 1
  end subroutine expect

end program errors
