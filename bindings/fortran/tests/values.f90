!> The calls of the module on 2 to 4 ranks.  Ends with status 1 at the first wrong value.
module reductions
  use tutti
  implicit none

  type, bind(c) :: loss
    real(c_double) :: value
    integer(c_int64_t) :: rank
  end type loss

contains

  !> Keeps the smaller loss.
  subroutine keep_smaller(inout, in, n, dtype, argument) bind(c)
    type(c_ptr), value :: inout, in, argument
    integer(c_int64_t), value :: n
    integer(c_int), value :: dtype
    type(loss), pointer :: mine(:), lower(:)
    integer(c_int64_t) :: i
    if (c_associated(argument) .or. dtype /= TUTTI_UINT8%value) error stop "wrong arguments of the op"
    call c_f_pointer(inout, mine, [n])
    call c_f_pointer(in, lower, [n])
    do i = 1, n
      if (lower(i)%value < mine(i)%value) mine(i) = lower(i)
    end do
  end subroutine keep_smaller

  subroutine count_call(work, argument) bind(c)
    type(c_ptr), value :: work, argument
    integer(c_int), pointer :: calls
    call c_f_pointer(argument, calls)
    if (c_associated(work)) calls = calls + 1
  end subroutine count_call

end module reductions

program values
  use tutti
  use reductions
  use, intrinsic :: iso_fortran_env, only: int8, int16, int32, int64, real32, real64
  implicit none
  integer :: rank, n

  call tutti_init_process_group("tcp  ", timeout_ms=60000_c_int64_t)
  rank = tutti_get_rank()
  n = tutti_get_world_size()
  call check(logical(tutti_is_initialized()) .and. tutti_get_backend() == "cpu:tcp", "backend: "//tutti_get_backend())
  call every_dtype()
  call every_collective()
  call uneven()
  call started()
  call messages()
  call strings()
  call groups()
  call ops_and_memory()
  call stores()
  call tutti_destroy_process_group()

contains

  subroutine check(right, what)
    logical, intent(in) :: right
    character(len=*), intent(in) :: what
    if (right) return
    print "(a, i0, 2a)", "rank ", rank, ": wrong: ", what
    error stop 1
  end subroutine check

  !> The sum of 1 .. n.
  integer function total()
    total = n*(n + 1)/2
  end function total

  subroutine every_dtype()
    integer(int8) :: i8(5)
    integer(int16) :: i16(3, 2)
    integer(int32) :: i32
    integer(int64), allocatable :: i64(:, :, :)
    real(real32) :: r32(7), half_source(2)
    real(real64) :: r64(2, 2, 2, 2)
    complex(real32) :: c32(2)
    complex(real64) :: c64
    logical(c_bool) :: flags(3)
    character(len=4) :: text
    integer(int16) :: half(2)
    i8 = int(rank + 1, int8)
    call tutti_all_reduce(i8, TUTTI_SUM)
    call check(all(i8 == total()), "int8")
    i16 = int(rank + 1, int16)
    call tutti_all_reduce(i16, TUTTI_MAX)
    call check(all(i16 == n), "int16")
    i32 = ibset(0, rank)
    call tutti_all_reduce(i32, TUTTI_BOR)
    call check(i32 == 2**n - 1, "int32")
    allocate (i64(2, 3, 4), source=int(rank + 1, int64))
    call tutti_all_reduce(i64, TUTTI_PRODUCT)
    call check(all(i64 == product([(i32, i32=1, n)])), "int64")
    r32 = real(rank + 1)
    call tutti_all_reduce(r32, TUTTI_AVG)
    call check(all(abs(r32 - (n + 1)/2.0) < 1e-6), "real32")
    r64 = 1
    call tutti_all_reduce(r64, TUTTI_PREMUL_SUM, factor=0.5_c_double)
    call check(all(abs(r64 - n/2.0) < 1e-12), "real64")
    c32 = cmplx(1, rank)
    call tutti_all_reduce(c32, TUTTI_SUM)
    call check(all(c32 == cmplx(n, total() - n)), "complex32")
    c64 = cmplx(rank, 1, real64)
    call tutti_broadcast(c64, n - 1)
    call check(c64 == cmplx(n - 1, 1, real64), "complex64")
    flags = [logical(c_bool) :: .true., rank == 0, .false.]
    call tutti_all_reduce(flags, TUTTI_BAND)
    call check(all(logical(flags) .eqv. [.true., .false., .false.]), "logical")
    text = "no"
    if (rank == 0) text = "four"
    call tutti_broadcast(text, 0)
    call check(text == "four", "character")
    half_source = [1.5, 2.0]
    call tutti_cast(half, half_source, out_dtype=TUTTI_BFLOAT16)
    call tutti_all_reduce(half, TUTTI_SUM, dtype=TUTTI_BFLOAT16)
    call tutti_cast(half_source, half, in_dtype=TUTTI_BFLOAT16)
    call check(all(abs(half_source - n*[1.5, 2.0]) < 1e-6), "bfloat16 in integer(int16)")
    call check(tutti_dtype_name(TUTTI_BFLOAT16) == "bfloat16" .and. TUTTI_INT8 == TUTTI_INT8, "names")
  end subroutine every_dtype

  subroutine every_collective()
    integer :: part(2), whole(2, 0:n - 1), turned(2, 0:n - 1), r
    integer :: x, y
    part = [rank, -rank]
    call tutti_all_gather_into_tensor(whole, part)
    call check(all(whole(1, :) == [(r, r=0, n - 1)]) .and. all(whole(2, :) == -whole(1, :)), "all_gather_into_tensor")
    turned = -1
    if (rank == 1) then
      call tutti_gather_into_tensor(turned, part, 1)
    else
      call tutti_gather_into_tensor(in=part, root=1)
    end if
    call check(all(turned == merge(whole, -1, rank == 1)), "gather_into_tensor")
    part = 0
    if (rank == 0) then
      call tutti_scatter_tensor(part, whole, 0)
    else
      call tutti_scatter_tensor(part, root=0)
    end if
    call check(all(part == [rank, -rank]), "scatter_tensor")
    call tutti_all_to_all_single(turned, whole)
    call check(all(turned(1, :) == rank), "all_to_all_single")
    call tutti_reduce_scatter_tensor(part, whole, TUTTI_SUM)
    call check(all(part == n*[rank, -rank]), "reduce_scatter_tensor")
    x = rank + 1
    call tutti_scan(x, TUTTI_SUM)
    call check(x == (rank + 1)*(rank + 2)/2, "scan")
    x = rank + 1
    y = -5
    call tutti_exscan_into(y, x, TUTTI_SUM)
    call check(y == merge(-5, rank*(rank + 1)/2, rank == 0), "exscan_into")
    call tutti_scan_into(y, x, TUTTI_MAX)
    call check(y == x, "scan_into")
    call tutti_exscan(y, TUTTI_MAX)
    call check(y == max(rank, 1), "exscan")
    call tutti_all_reduce_into(y, x, TUTTI_MIN)
    call check(y == 1 .and. x == rank + 1, "all_reduce_into")
    call tutti_reduce(x, n - 1, TUTTI_SUM)
    call check(x == merge(total(), rank + 1, rank == n - 1), "reduce")
    x = 1
    if (rank == 0) then
      call tutti_reduce_into(y, x, 0, TUTTI_SUM)
    else
      call tutti_reduce_into(in=x, root=0, op=TUTTI_SUM)
    end if
    call check(y == merge(n, 1, rank == 0), "reduce_into")
    call tutti_barrier()
    call tutti_monitored_barrier()
  end subroutine every_collective

  !> Lists and splits of sizes that differ.
  subroutine uneven()
    real(real64), target, asynchronous :: all_parts(n*(n + 1)/2), mine(rank + 1)
    real(real64), target, asynchronous :: sums(rank + 1), contributions(n*(n + 1)/2)
    type(tutti_tensor) :: parts(n)
    integer(c_int64_t) :: in_splits(n), out_splits(n)
    integer, allocatable :: out(:), in(:)
    integer :: r, at
    at = 1
    do r = 1, n
      parts(r) = tutti_view(all_parts(at:at + r - 1))
      at = at + r
    end do
    mine = rank + 1
    call tutti_all_gather(parts, mine)
    call check(all_parts(1) == 1 .and. all(all_parts(at - n:) == n), "all_gather of lists")
    mine = 0
    if (rank == 0) then
      call tutti_scatter(mine, parts, 0)
    else
      call tutti_scatter(mine, root=0)
    end if
    call check(all(mine == rank + 1), "scatter of lists")
    all_parts = 0
    if (rank == 0) then
      call tutti_gather(mine, parts, 0)
    else
      call tutti_gather(mine, root=0)
    end if
    call check(rank /= 0 .or. all(all_parts(at - n:) == n), "gather of lists")
    contributions = 2
    at = 1
    do r = 1, n
      parts(r) = tutti_view(contributions(at:at + r - 1))
      at = at + r
    end do
    call tutti_reduce_scatter(sums, parts, TUTTI_SUM)
    call check(all(sums == 2*n), "reduce_scatter of lists")
    do r = 0, n - 1
      in_splits(r + 1) = r ! nothing for rank 0
      out_splits(r + 1) = rank
    end do
    allocate (in(sum(in_splits)), source=rank)
    allocate (out(sum(out_splits)), source=-1)
    call tutti_all_to_all_single(out, in, out_splits, in_splits)
    call check(all(out == [(spread(r, 1, rank), r=0, n - 1)]), "all_to_all_single with splits")
    call exchange_lists()
  end subroutine uneven

  subroutine exchange_lists()
    integer, target, asynchronous :: from(0:n - 1), to(0:n - 1)
    type(tutti_tensor) :: outs(0:n - 1), ins(0:n - 1)
    integer :: r
    do r = 0, n - 1
      from(r) = 10*rank + r
      ins(r) = tutti_view(from(r))
      outs(r) = tutti_view(to(r))
    end do
    call tutti_all_to_all(outs, ins)
    call check(all(to == [(10*r + rank, r=0, n - 1)]), "all_to_all of lists")
  end subroutine exchange_lists

  subroutine started()
    real(real64), asynchronous :: x(1000), y(1000)
    integer(c_int), target :: calls
    type(tutti_work) :: works(3), work
    integer(c_int) :: position, stat
    x = rank
    y = 1
    call tutti_all_reduce(x, TUTTI_SUM, work=works(1))
    call tutti_all_reduce(y, TUTTI_SUM, work=works(2))
    calls = 0
    call tutti_work_then(works(2), count_call, c_loc(calls))
    call tutti_wait_all(works)
    call check(all(x == total() - n) .and. all(y == n), "two at once")
    call check(.not. c_associated(works(1)%handle), "a waited work is null")
    call tutti_barrier(work=work)
    call tutti_work_wait(work)
    call check(logical(tutti_work_is_completed(work)) .and. tutti_work_status(work) == TUTTI_OK, "completed")
    call check(tutti_work_op(work) == TUTTI_BARRIER_KIND .and. tutti_work_sequence(work) == tutti_get_sequence(), &
      "what the work says")
    call check(tutti_work_error(work) == "" .and. tutti_work_duration_ns(work) >= 0, "no error")
    call tutti_work_free(work)
    call tutti_barrier(work=works(3))
    call tutti_wait_any(works, position)
    call check(position == 3, "wait_any")
    call tutti_wait_any(works, position)
    call check(position == 0, "wait_any of nothing")
    call check(calls == 1, "the callback")
    call tutti_coalesce_begin()
    call tutti_all_reduce(x, TUTTI_MAX)
    call tutti_broadcast(y, 0)
    call tutti_coalesce_end(work=work)
    call tutti_wait(work, 60000_c_int64_t)
    call tutti_group_quiesce()
    call tutti_wait(work, stat=stat)
    call check(stat == TUTTI_ERR_INVALID_ARGUMENT, "a null work")
  end subroutine started

  subroutine messages()
    integer, asynchronous :: out, in, more(4)
    integer(c_int64_t), asynchronous :: received
    integer :: right, left
    integer(c_int) :: source, tag
    type(tutti_work) :: works(2), work
    type(tutti_p2p_op) :: ops(2)
    type(tutti_message) :: message
    logical(c_bool) :: found
    right = modulo(rank + 1, n)
    left = modulo(rank - 1, n)
    out = rank
    call tutti_irecv(in, left, works(1), tag=7)
    call tutti_isend(out, right, works(2), tag=7)
    call tutti_work_wait(works(1))
    call check(in == left .and. tutti_work_source(works(1)) == left .and. tutti_work_tag(works(1)) == 7, "isend, irecv")
    call check(tutti_work_received(works(1)) == 4, "received")
    call tutti_wait_all(works)
    ops(1) = tutti_p2p_op(kind=TUTTI_SEND_KIND, tensor=tutti_view(out), peer=right)
    ops(2) = tutti_p2p_op(kind=TUTTI_RECV_KIND, tensor=tutti_view(in), peer=left)
    in = -1
    call tutti_batch_isend_irecv(ops, works)
    call tutti_wait_all(works)
    call check(in == left, "batch")
    call tutti_isend(out, right, work, tag=9)
    call tutti_probe(left, message, tag=TUTTI_ANY_TAG)
    call check(message%source == left .and. message%tag == 9 .and. message%bytes == 4, "probe")
    call tutti_iprobe(TUTTI_ANY_SOURCE, found, message, tag=9)
    call check(logical(found), "iprobe")
    call tutti_recv(more, TUTTI_ANY_SOURCE, tag=TUTTI_ANY_TAG, source=source, received_tag=tag, received=received)
    call check(more(1) == left .and. source == left .and. tag == 9 .and. received == 4, "a smaller message")
    call tutti_wait(work)
    call tutti_iprobe(left, found, message)
    call check(.not. logical(found), "no message")
  end subroutine messages

  subroutine strings()
    character(len=:), allocatable :: text
    type(tutti_bytes) :: all_texts(n), part
    type(tutti_bytes) :: given(n)
    character(len=n), target :: letters
    integer :: r
    text = "only root's"
    if (rank == 1) text = "from rank 1 "
    call tutti_broadcast_bytes(text, 1)
    call check(text == "from rank 1 " .and. len(text) == 12, "broadcast_bytes")
    call tutti_all_gather_bytes(all_texts, repeat("x", rank))
    do r = 1, n
      call check(tutti_text(all_texts(r)) == repeat("x", r - 1), "all_gather_bytes")
    end do
    call tutti_bytes_free(all_texts)
    call tutti_gather_bytes(all_texts, repeat("y", rank), 0)
    if (rank == 0) call check(tutti_text(all_texts(n)) == repeat("y", n - 1), "gather_bytes")
    call tutti_bytes_free(all_texts)
    letters = "abcd"
    do r = 1, n
      given(r) = tutti_bytes(c_loc(letters(r:r)), 1)
    end do
    if (rank == 0) then
      call tutti_scatter_bytes(part, given, 0)
    else
      call tutti_scatter_bytes(part, root=0)
    end if
    call check(tutti_text(part) == letters(rank + 1:rank + 1), "scatter_bytes")
    all_texts(1) = part
    call tutti_bytes_free(all_texts)
    if (rank == 0) call tutti_send_bytes("a sentence", 1, tag=3)
    if (rank == 1) then
      call tutti_recv_bytes(text, 0, tag=3)
      call check(text == "a sentence", "recv_bytes")
    end if
  end subroutine strings

  subroutine groups()
    type(tutti_group) :: half, pair
    type(tutti_rank_health) :: health(n)
    type(tutti_stats) :: stats
    type(tutti_device) :: device
    integer :: x
    call tutti_split_group(mod(rank, 2), -rank, half)
    x = 1
    call tutti_all_reduce(x, TUTTI_SUM, group=half)
    call check(x == tutti_get_world_size(half), "split_group")
    call check(tutti_get_global_rank(tutti_get_rank(half), half) == rank, "global_rank")
    call tutti_destroy_process_group(half)
    call check(.not. c_associated(half%handle), "a destroyed group is null")
    call tutti_destroy_process_group(half, stat=x)
    call check(x == TUTTI_ERR_INVALID_ARGUMENT, "destroyed twice")
    call tutti_new_group([1, 0], pair, name="pair")
    if (rank < 2) then
      call check(tutti_get_name(pair) == "pair" .and. tutti_get_rank(pair) == 1 - rank, "new_group")
      x = rank
      call tutti_broadcast(x, 0, group=pair, group_rank=TUTTI_TRUE)
      call check(x == 1, "group_rank")
    else
      call check(tutti_get_rank(pair) == -1, "a non-member")
    end if
    call tutti_destroy_process_group(pair)
    call tutti_group_health(health)
    call check(all(health%state == TUTTI_RANK_ALIVE), "health")
    call tutti_get_stats(stats)
    call check(stats%operations(TUTTI_ALL_REDUCE_KIND) > 10 .and. stats%failed == 0, "stats")
    call tutti_get_device(device)
    call check(device%type == TUTTI_CPU .and. tutti_get_host(0) == 0, "device and host")
    call check(index(tutti_describe_group(), "tcp") > 0, "describe_group")
    call check(index(tutti_explain(TUTTI_ALL_REDUCE_KIND, 4096_c_int64_t), "all_reduce") > 0, "explain")
    call check(index(tutti_list_backends(), "tcp") > 0, "list_backends")
    call check(tutti_get_local_rank() == rank .and. tutti_get_generation() == 0, "local_rank")
    call check(.not. logical(tutti_regroup_wanted()), "regroup_wanted")
    call tutti_mark("the end of groups")
    call tutti_range_push("range")
    call tutti_range_pop()
    call tutti_log("plugin", TUTTI_LOG_DEBUG, "a line")
  end subroutine groups

  subroutine ops_and_memory()
    type(tutti_reduce_op) :: minloc_op
    type(loss) :: losses(3)
    type(c_ptr) :: memory
    real(real32), pointer :: x(:, :)
    integer :: i, a(2), b(2)
    call tutti_op_create("minloc", keep_smaller, minloc_op, element_bytes=c_sizeof(losses(1)), commutative=TUTTI_TRUE)
    losses = [(loss(modulo(i - rank, n), rank), i=1, 3)]
    call tutti_all_reduce(losses, minloc_op, dtype=TUTTI_UINT8)
    call check(all(losses%value == 0) .and. all(losses%rank == [(modulo(i, n), i=1, 3)]), "an op of the program's")
    call tutti_op_free(minloc_op)
    call tutti_alloc(int(24, c_int64_t), memory)
    call c_f_pointer(memory, x, [3, 2])
    x = 1
    call tutti_all_reduce(x, TUTTI_SUM)
    call check(all(x == n), "memory of tutti_alloc")
    call tutti_free(memory)
    call check(.not. c_associated(memory), "freed memory is null")
    a = [1, 2]
    b = [3, 1]
    call tutti_reduce_local(a, b, TUTTI_MAX)
    call check(all(a == [3, 2]), "reduce_local")
  end subroutine ops_and_memory

  subroutine stores()
    type(tutti_store) :: server, client, view
    character(len=:), allocatable :: value
    character(len=TUTTI_TOKEN_BYTES) :: token
    integer(c_int64_t) :: sum
    logical(c_bool) :: there
    integer(c_int) :: stat
    token = repeat("t", TUTTI_TOKEN_BYTES)
    call tutti_store_tcp("127.0.0.1", 0, server, server=TUTTI_TRUE, token=token)
    call tutti_store_tcp("127.0.0.1", tutti_store_port(server), client, token=token)
    call tutti_store_set(client, "key ", "value ")
    call tutti_store_append(client, "key", "s")
    call tutti_store_get(server, "key", value)
    call check(value == "value s", "store: "//value)
    call tutti_store_add(client, "n", 5_c_int64_t)
    call tutti_store_add(client, "n", -2_c_int64_t, sum)
    call check(sum == 3, "add")
    call tutti_store_check(client, [character(len=6) :: "key", "absent"], there)
    call check(.not. logical(there), "check")
    call tutti_store_wait(client, [character(len=3) :: "key", "n"])
    call tutti_store_compare_set(client, "n", "3", "4", value)
    call check(value == "4", "compare_set")
    call tutti_store_prefix(client, "p", view)
    call tutti_store_set(view, "q", "")
    call tutti_store_get(client, "p/q", value)
    call check(len(value) == 0, "an empty value")
    call tutti_store_num_keys(view, sum)
    call check(sum == 1, "num_keys")
    call tutti_store_delete(client, "key", there)
    call check(logical(there), "delete")
    call tutti_store_get(client, "key", value, timeout_ms=0_c_int64_t, stat=stat)
    call check(stat == TUTTI_ERR_TIMEOUT .and. len(value) == 0, "an absent key")
    call tutti_store_barrier(client, "all", 1)
    call tutti_store_free(view)
    call tutti_store_free(client)
    call tutti_store_free(server)
    call tutti_store_memory(server)
    call tutti_create_group_alone(server)
    call tutti_store_free(server)
  end subroutine stores

  subroutine tutti_create_group_alone(store)
    type(tutti_store), intent(in) :: store
    type(tutti_group) :: group
    integer :: x
    x = 3
    call tutti_create_group("tcp", store, 0, 1, group)
    call tutti_all_reduce(x, TUTTI_SUM, group=group)
    call check(x == 3 .and. tutti_get_world_size(group) == 1, "create_group")
    call tutti_destroy_process_group(group)
  end subroutine tutti_create_group_alone

end program values
