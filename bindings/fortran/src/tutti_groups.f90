!> Tutti: errors, the default group, other groups, and queries.  Each is the C function of the same name.
module tutti_groups
  use tutti_types
  use tutti_raw, only: last_error, status_string, library_version, kind_name, dtype_name, op_name, &
    group_name, group_backend, describe, report_no_memory
  implicit none

  interface
    ! ---- starting and ending -------------------------------------------------------------------------------------

    subroutine tutti_init_process_group(backend, init_method, store, rank, world_size, timeout_ms, store_timeout_ms, &
      device, newcomer, stat) bind(c, name="tuttif_init_process_group")
      import :: tutti_store, tutti_device, c_char, c_int, c_int64_t, c_bool
      character(kind=c_char, len=*), intent(in), optional :: backend
      character(kind=c_char, len=*), intent(in), optional :: init_method
      type(tutti_store), intent(in), optional :: store
      integer(c_int), intent(in), optional :: rank
      integer(c_int), intent(in), optional :: world_size
      integer(c_int64_t), intent(in), optional :: timeout_ms
      integer(c_int64_t), intent(in), optional :: store_timeout_ms
      type(tutti_device), intent(in), optional :: device
      logical(c_bool), intent(in), optional :: newcomer
      integer(c_int), intent(out), optional :: stat
    end subroutine tutti_init_process_group

    !> Destroys the default group, or a group, which becomes null.
    subroutine tutti_destroy_process_group(group, delivery_ms, stat) bind(c, name="tuttif_destroy_process_group")
      import :: tutti_group, c_int, c_int64_t
      type(tutti_group), intent(inout), optional :: group
      integer(c_int64_t), intent(in), optional :: delivery_ms
      integer(c_int), intent(out), optional :: stat
    end subroutine tutti_destroy_process_group

    function tutti_is_initialized() bind(c, name="tutti_is_initialized") result(exists)
      import :: c_bool
      logical(c_bool) :: exists
    end function tutti_is_initialized

    function tutti_is_backend_available(name) bind(c, name="tuttif_is_backend_available") result(available)
      import :: c_char, c_bool
      character(kind=c_char, len=*), intent(in) :: name
      logical(c_bool) :: available
    end function tutti_is_backend_available

    subroutine tutti_abort(group, reason, stat) bind(c, name="tuttif_abort")
      import :: tutti_group, c_char, c_int
      type(tutti_group), intent(in), optional :: group
      character(kind=c_char, len=*), intent(in), optional :: reason
      integer(c_int), intent(out), optional :: stat
    end subroutine tutti_abort

    !> Runs fn in nprocs child processes and waits for them.
    subroutine tutti_spawn(fn, nprocs, argument, stat) bind(c, name="tuttif_spawn")
      import :: tutti_rank_main, c_int, c_ptr
      procedure(tutti_rank_main) :: fn
      integer(c_int), intent(in), value :: nprocs
      type(c_ptr), intent(in), optional :: argument
      integer(c_int), intent(out), optional :: stat
    end subroutine tutti_spawn

    ! ---- making groups -------------------------------------------------------------------------------------------

    subroutine tutti_new_group(ranks, group, parent, backend, name, algorithm, timeout_ms, members_only, stat) &
      bind(c, name="tuttif_new_group")
      import :: tutti_group, c_char, c_int, c_int64_t, c_bool
      integer(c_int), intent(in) :: ranks(:)
      type(tutti_group), intent(out) :: group
      type(tutti_group), intent(in), optional :: parent
      character(kind=c_char, len=*), intent(in), optional :: backend
      character(kind=c_char, len=*), intent(in), optional :: name
      character(kind=c_char, len=*), intent(in), optional :: algorithm
      integer(c_int64_t), intent(in), optional :: timeout_ms
      logical(c_bool), intent(in), optional :: members_only
      integer(c_int), intent(out), optional :: stat
    end subroutine tutti_new_group

    subroutine tutti_split_group(color, key, group, parent, backend, name, algorithm, timeout_ms, stat) &
      bind(c, name="tuttif_split_group")
      import :: tutti_group, c_char, c_int, c_int64_t
      integer(c_int), intent(in), value :: color
      integer(c_int), intent(in), value :: key
      type(tutti_group), intent(out) :: group
      type(tutti_group), intent(in), optional :: parent
      character(kind=c_char, len=*), intent(in), optional :: backend
      character(kind=c_char, len=*), intent(in), optional :: name
      character(kind=c_char, len=*), intent(in), optional :: algorithm
      integer(c_int64_t), intent(in), optional :: timeout_ms
      integer(c_int), intent(out), optional :: stat
    end subroutine tutti_split_group

    subroutine tutti_create_group(backend, store, rank, world_size, group, name, algorithm, timeout_ms, device, stat) &
      bind(c, name="tuttif_create_group")
      import :: tutti_group, tutti_store, tutti_device, c_char, c_int, c_int64_t
      character(kind=c_char, len=*), intent(in) :: backend
      type(tutti_store), intent(in) :: store
      integer(c_int), intent(in), value :: rank
      integer(c_int), intent(in), value :: world_size
      type(tutti_group), intent(out) :: group
      character(kind=c_char, len=*), intent(in), optional :: name
      character(kind=c_char, len=*), intent(in), optional :: algorithm
      integer(c_int64_t), intent(in), optional :: timeout_ms
      type(tutti_device), intent(in), optional :: device
      integer(c_int), intent(out), optional :: stat
    end subroutine tutti_create_group

    subroutine tutti_join_group(backend, store, group, name, algorithm, timeout_ms, stat) &
      bind(c, name="tuttif_join_group")
      import :: tutti_group, tutti_store, c_char, c_int, c_int64_t
      character(kind=c_char, len=*), intent(in) :: backend
      type(tutti_store), intent(in) :: store
      type(tutti_group), intent(out) :: group
      character(kind=c_char, len=*), intent(in), optional :: name
      character(kind=c_char, len=*), intent(in), optional :: algorithm
      integer(c_int64_t), intent(in), optional :: timeout_ms
      integer(c_int), intent(out), optional :: stat
    end subroutine tutti_join_group

    subroutine tutti_shrink_group(smaller, group, stat) bind(c, name="tuttif_shrink_group")
      import :: tutti_group, c_int
      type(tutti_group), intent(out) :: smaller
      type(tutti_group), intent(in), optional :: group
      integer(c_int), intent(out), optional :: stat
    end subroutine tutti_shrink_group

    !> Without group and next, the default group becomes the new one.
    subroutine tutti_regroup(group, next, timeout_ms, world_size, stat) bind(c, name="tuttif_regroup")
      import :: tutti_group, c_int, c_int64_t
      type(tutti_group), intent(in), optional :: group
      type(tutti_group), intent(out), optional :: next
      integer(c_int64_t), intent(in), optional :: timeout_ms
      integer(c_int), intent(in), optional :: world_size
      integer(c_int), intent(out), optional :: stat
    end subroutine tutti_regroup

    function tutti_regroup_wanted(group) bind(c, name="tuttif_regroup_wanted") result(wanted)
      import :: tutti_group, c_bool
      type(tutti_group), intent(in), optional :: group
      logical(c_bool) :: wanted
    end function tutti_regroup_wanted

    function tutti_get_old_rank(group_rank, group) bind(c, name="tuttif_get_old_rank") result(rank)
      import :: tutti_group, c_int
      integer(c_int), intent(in), value :: group_rank
      type(tutti_group), intent(in), optional :: group
      integer(c_int) :: rank
    end function tutti_get_old_rank

    function tutti_get_generation(group) bind(c, name="tuttif_get_generation") result(generation)
      import :: tutti_group, c_int64_t
      type(tutti_group), intent(in), optional :: group
      integer(c_int64_t) :: generation
    end function tutti_get_generation

    ! ---- ranks ---------------------------------------------------------------------------------------------------

    function tutti_get_rank(group) bind(c, name="tuttif_get_rank") result(rank)
      import :: tutti_group, c_int
      type(tutti_group), intent(in), optional :: group
      integer(c_int) :: rank
    end function tutti_get_rank

    function tutti_get_world_size(group) bind(c, name="tuttif_get_world_size") result(n)
      import :: tutti_group, c_int
      type(tutti_group), intent(in), optional :: group
      integer(c_int) :: n
    end function tutti_get_world_size

    function tutti_get_local_rank() bind(c, name="tutti_get_local_rank") result(rank)
      import :: c_int
      integer(c_int) :: rank
    end function tutti_get_local_rank

    function tutti_get_local_world_size() bind(c, name="tutti_get_local_world_size") result(n)
      import :: c_int
      integer(c_int) :: n
    end function tutti_get_local_world_size

    function tutti_get_node_rank() bind(c, name="tutti_get_node_rank") result(rank)
      import :: c_int
      integer(c_int) :: rank
    end function tutti_get_node_rank

    function tutti_get_global_rank(group_rank, group) bind(c, name="tuttif_get_global_rank") result(rank)
      import :: tutti_group, c_int
      integer(c_int), intent(in), value :: group_rank
      type(tutti_group), intent(in), optional :: group
      integer(c_int) :: rank
    end function tutti_get_global_rank

    function tutti_get_group_rank(global_rank, group) bind(c, name="tuttif_get_group_rank") result(rank)
      import :: tutti_group, c_int
      integer(c_int), intent(in), value :: global_rank
      type(tutti_group), intent(in), optional :: group
      integer(c_int) :: rank
    end function tutti_get_group_rank

    function tutti_get_host(group_rank, group) bind(c, name="tuttif_get_host") result(host)
      import :: tutti_group, c_int
      integer(c_int), intent(in), value :: group_rank
      type(tutti_group), intent(in), optional :: group
      integer(c_int) :: host
    end function tutti_get_host

    subroutine tutti_get_device(device, group) bind(c, name="tuttif_get_device")
      import :: tutti_device, tutti_group
      type(tutti_device), intent(out) :: device
      type(tutti_group), intent(in), optional :: group
    end subroutine tutti_get_device

    function tutti_get_sequence(group) bind(c, name="tuttif_get_sequence") result(sequence)
      import :: tutti_group, c_int64_t
      type(tutti_group), intent(in), optional :: group
      integer(c_int64_t) :: sequence
    end function tutti_get_sequence

    !> ranks has an entry for each rank of the group.
    subroutine tutti_group_health(ranks, group, stat) bind(c, name="tuttif_group_health")
      import :: tutti_rank_health, tutti_group, c_int
      type(tutti_rank_health), intent(inout) :: ranks(:)
      type(tutti_group), intent(in), optional :: group
      integer(c_int), intent(out), optional :: stat
    end subroutine tutti_group_health

    subroutine tutti_get_stats(stats, group, stat) bind(c, name="tuttif_get_stats")
      import :: tutti_stats, tutti_group, c_int
      type(tutti_stats), intent(out) :: stats
      type(tutti_group), intent(in), optional :: group
      integer(c_int), intent(out), optional :: stat
    end subroutine tutti_get_stats

    ! ---- marks and log -------------------------------------------------------------------------------------------

    subroutine tutti_mark(text, stat) bind(c, name="tuttif_mark")
      import :: c_char, c_int
      character(kind=c_char, len=*), intent(in) :: text
      integer(c_int), intent(out), optional :: stat
    end subroutine tutti_mark

    subroutine tutti_record_write(folder, stat) bind(c, name="tuttif_record_write")
      import :: c_char, c_int
      character(kind=c_char, len=*), intent(in), optional :: folder
      integer(c_int), intent(out), optional :: stat
    end subroutine tutti_record_write

    subroutine tutti_range_push(name) bind(c, name="tuttif_range_push")
      import :: c_char
      character(kind=c_char, len=*), intent(in) :: name
    end subroutine tutti_range_push

    subroutine tutti_range_pop() bind(c, name="tutti_range_pop")
    end subroutine tutti_range_pop

    subroutine tutti_log(subsystem, level, text) bind(c, name="tuttif_log")
      import :: c_char, c_int
      character(kind=c_char, len=*), intent(in) :: subsystem
      integer(c_int), intent(in), value :: level
      character(kind=c_char, len=*), intent(in) :: text
    end subroutine tutti_log


    function tutti_abi_version_of_library() bind(c, name="tutti_abi_version") result(version)
      import :: c_int
      integer(c_int) :: version
    end function tutti_abi_version_of_library
  end interface

  integer(c_int), parameter :: describe_the_group = 0, explain_kind = 1, describe_plug_in = 2, list_plug_ins = 3

  private :: last_error, status_string, library_version, kind_name, dtype_name, op_name, group_name, group_backend
  private :: describe, description, report_no_memory, describe_the_group, explain_kind, describe_plug_in, list_plug_ins

contains

  !> The error message of this thread's last failed call.
  function tutti_last_error() result(text)
    character(kind=c_char, len=:), allocatable :: text
    text = tutti_c_text(last_error())
  end function tutti_last_error

  function tutti_status_string(status) result(text)
    integer(c_int), intent(in) :: status
    character(kind=c_char, len=:), allocatable :: text
    text = tutti_c_text(status_string(status))
  end function tutti_status_string

  function tutti_version() result(text)
    character(kind=c_char, len=:), allocatable :: text
    text = tutti_c_text(library_version())
  end function tutti_version

  function tutti_kind_name(kind) result(text)
    integer(c_int), intent(in) :: kind
    character(kind=c_char, len=:), allocatable :: text
    text = tutti_c_text(kind_name(kind))
  end function tutti_kind_name

  function tutti_dtype_name(dtype) result(text)
    type(tutti_dtype), intent(in) :: dtype
    character(kind=c_char, len=:), allocatable :: text
    text = tutti_c_text(dtype_name(dtype%value))
  end function tutti_dtype_name

  function tutti_reduce_op_name(op) result(text)
    type(tutti_reduce_op), intent(in) :: op
    character(kind=c_char, len=:), allocatable :: text
    text = tutti_c_text(op_name(op%value))
  end function tutti_reduce_op_name

  function tutti_get_name(group) result(text)
    type(tutti_group), intent(in), optional :: group
    character(kind=c_char, len=:), allocatable :: text
    text = tutti_c_text(group_name(group))
  end function tutti_get_name

  function tutti_get_backend(group) result(text)
    type(tutti_group), intent(in), optional :: group
    character(kind=c_char, len=:), allocatable :: text
    text = tutti_c_text(group_backend(group))
  end function tutti_get_backend

  !> These four return lines for people, or "" after an error, which tutti_last_error describes.
  function tutti_describe_group(group) result(text)
    type(tutti_group), intent(in), optional :: group
    character(kind=c_char, len=:), allocatable :: text
    text = description(describe_the_group, group=group)
  end function tutti_describe_group

  !> kind is one of the constants TUTTI_.._KIND, and bytes the size of the larger tensor.
  function tutti_explain(kind, bytes, group) result(text)
    integer(c_int), intent(in) :: kind
    integer(c_int64_t), intent(in) :: bytes
    type(tutti_group), intent(in), optional :: group
    character(kind=c_char, len=:), allocatable :: text
    text = description(explain_kind, kind, bytes, group)
  end function tutti_explain

  function tutti_describe_backend(name) result(text)
    character(kind=c_char, len=*), intent(in) :: name
    character(kind=c_char, len=:), allocatable :: text
    text = description(describe_plug_in, name=name)
  end function tutti_describe_backend

  function tutti_list_backends() result(text)
    character(kind=c_char, len=:), allocatable :: text
    text = description(list_plug_ins)
  end function tutti_list_backends

  function description(what, kind, bytes, group, name) result(text)
    integer(c_int), intent(in) :: what
    integer(c_int), intent(in), optional :: kind
    integer(c_int64_t), intent(in), optional :: bytes
    type(tutti_group), intent(in), optional :: group
    character(kind=c_char, len=*), intent(in), optional :: name
    character(kind=c_char, len=:), allocatable :: text
    integer(c_size_t), parameter :: capacity = 65536
    character(kind=c_char), allocatable, target :: buffer(:)
    character(kind=c_char, len=:), allocatable :: plug_in
    integer(c_int) :: status, chosen
    integer :: failed
    integer(c_int64_t) :: n
    chosen = 0
    n = 0
    if (present(kind)) chosen = kind
    if (present(bytes)) n = bytes
    plug_in = ""
    if (present(name)) plug_in = name
    text = ""
    allocate (buffer(capacity), stat=failed)
    if (failed /= 0) then
      call report_no_memory("a description", capacity, status)
      return
    end if
    buffer(1) = c_null_char
    status = describe(what, group, chosen, n, plug_in, buffer, capacity)
    if (status >= 0) text = tutti_c_text(c_loc(buffer))
  end function description

end module tutti_groups
