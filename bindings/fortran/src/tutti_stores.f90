!> Tutti: stores.  Each is the C function of the same name, which include/tutti/store.h describes.
!>
!> Trailing blanks of keys are not part of them; those of values are.
module tutti_stores
  use tutti_types
  use tutti_raw, only: open_named, get_bytes, compare_set, free_bytes, report_no_memory, copy_text
  implicit none

  interface
    subroutine tutti_store_tcp(host, port, store, server, token, insecure, world_size, timeout_ms, stat) &
      bind(c, name="tuttif_store_tcp")
      import :: tutti_store, c_char, c_int, c_int64_t, c_bool
      character(kind=c_char, len=*), intent(in) :: host
      integer(c_int), intent(in), value :: port
      type(tutti_store), intent(out) :: store
      logical(c_bool), intent(in), optional :: server
      character(kind=c_char, len=*), intent(in), optional :: token
      logical(c_bool), intent(in), optional :: insecure
      integer(c_int), intent(in), optional :: world_size
      integer(c_int64_t), intent(in), optional :: timeout_ms
      integer(c_int), intent(out), optional :: stat
    end subroutine tutti_store_tcp

    subroutine tutti_store_memory(store, timeout_ms, stat) bind(c, name="tuttif_store_memory")
      import :: tutti_store, c_int, c_int64_t
      type(tutti_store), intent(out) :: store
      integer(c_int64_t), intent(in), optional :: timeout_ms
      integer(c_int), intent(out), optional :: stat
    end subroutine tutti_store_memory

    subroutine tutti_store_prefix(base, prefix, store, stat) bind(c, name="tuttif_store_prefix")
      import :: tutti_store, c_char, c_int
      type(tutti_store), intent(in) :: base
      character(kind=c_char, len=*), intent(in) :: prefix
      type(tutti_store), intent(out) :: store
      integer(c_int), intent(out), optional :: stat
    end subroutine tutti_store_prefix

    !> Frees the handle and makes it null.
    subroutine tutti_store_free(store) bind(c, name="tuttif_store_free")
      import :: tutti_store
      type(tutti_store), intent(inout) :: store
    end subroutine tutti_store_free

    function tutti_store_port(store) bind(c, name="tuttif_store_port") result(port)
      import :: tutti_store, c_int
      type(tutti_store), intent(in) :: store
      integer(c_int) :: port
    end function tutti_store_port

    ! ---- keys and values -----------------------------------------------------------------------------------------

    subroutine tutti_store_set(store, key, value, stat) bind(c, name="tuttif_store_set")
      import :: tutti_store, c_char, c_int
      type(tutti_store), intent(in) :: store
      character(kind=c_char, len=*), intent(in) :: key
      character(kind=c_char, len=*), intent(in) :: value
      integer(c_int), intent(out), optional :: stat
    end subroutine tutti_store_set

    subroutine tutti_store_append(store, key, value, stat) bind(c, name="tuttif_store_append")
      import :: tutti_store, c_char, c_int
      type(tutti_store), intent(in) :: store
      character(kind=c_char, len=*), intent(in) :: key
      character(kind=c_char, len=*), intent(in) :: value
      integer(c_int), intent(out), optional :: stat
    end subroutine tutti_store_append

    subroutine tutti_store_add(store, key, delta, value, stat) bind(c, name="tuttif_store_add")
      import :: tutti_store, c_char, c_int, c_int64_t
      type(tutti_store), intent(in) :: store
      character(kind=c_char, len=*), intent(in) :: key
      integer(c_int64_t), intent(in), value :: delta
      integer(c_int64_t), intent(out), optional :: value
      integer(c_int), intent(out), optional :: stat
    end subroutine tutti_store_add

    subroutine tutti_store_wait(store, keys, timeout_ms, stat) bind(c, name="tuttif_store_wait")
      import :: tutti_store, c_char, c_int, c_int64_t
      type(tutti_store), intent(in) :: store
      character(kind=c_char, len=*), intent(in) :: keys(:)
      integer(c_int64_t), intent(in), optional :: timeout_ms
      integer(c_int), intent(out), optional :: stat
    end subroutine tutti_store_wait

    subroutine tutti_store_check(store, keys, present, stat) bind(c, name="tuttif_store_check")
      import :: tutti_store, c_char, c_int, c_bool
      type(tutti_store), intent(in) :: store
      character(kind=c_char, len=*), intent(in) :: keys(:)
      logical(c_bool), intent(out) :: present
      integer(c_int), intent(out), optional :: stat
    end subroutine tutti_store_check

    subroutine tutti_store_delete(store, key, existed, stat) bind(c, name="tuttif_store_delete")
      import :: tutti_store, c_char, c_int, c_bool
      type(tutti_store), intent(in) :: store
      character(kind=c_char, len=*), intent(in) :: key
      logical(c_bool), intent(out), optional :: existed
      integer(c_int), intent(out), optional :: stat
    end subroutine tutti_store_delete

    subroutine tutti_store_num_keys(store, count, stat) bind(c, name="tuttif_store_num_keys")
      import :: tutti_store, c_int, c_int64_t
      type(tutti_store), intent(in) :: store
      integer(c_int64_t), intent(out) :: count
      integer(c_int), intent(out), optional :: stat
    end subroutine tutti_store_num_keys

    subroutine tutti_store_barrier(store, name, world_size, timeout_ms, stat) bind(c, name="tuttif_store_barrier")
      import :: tutti_store, c_char, c_int, c_int64_t
      type(tutti_store), intent(in) :: store
      character(kind=c_char, len=*), intent(in) :: name
      integer(c_int), intent(in), value :: world_size
      integer(c_int64_t), intent(in), optional :: timeout_ms
      integer(c_int), intent(out), optional :: stat
    end subroutine tutti_store_barrier
  end interface

  private :: open_named, get_bytes, compare_set, free_bytes, report_no_memory, copy_text

contains

  subroutine tutti_store_file(path, store, timeout_ms, stat)
    character(kind=c_char, len=*), intent(in) :: path
    type(tutti_store), intent(out) :: store
    integer(c_int64_t), intent(in), optional :: timeout_ms
    integer(c_int), intent(out), optional :: stat
    call open_named(TUTTI_FALSE, path, store, timeout_ms, stat)
  end subroutine tutti_store_file

  subroutine tutti_store_redis(url, store, timeout_ms, stat)
    character(kind=c_char, len=*), intent(in) :: url
    type(tutti_store), intent(out) :: store
    integer(c_int64_t), intent(in), optional :: timeout_ms
    integer(c_int), intent(out), optional :: stat
    call open_named(TUTTI_TRUE, url, store, timeout_ms, stat)
  end subroutine tutti_store_redis

  !> Waits until the key exists, and returns its value.
  subroutine tutti_store_get(store, key, value, timeout_ms, stat)
    type(tutti_store), intent(in) :: store
    character(kind=c_char, len=*), intent(in) :: key
    character(kind=c_char, len=:), allocatable, intent(out) :: value
    integer(c_int64_t), intent(in), optional :: timeout_ms
    integer(c_int), intent(out), optional :: stat
    type(tutti_bytes) :: bytes(1)
    call get_bytes(store, key, bytes(1), timeout_ms, stat)
    call copy_text("tutti_store_get", bytes(1)%data, bytes(1)%bytes, value, stat)
    call free_bytes(bytes, 1_c_int)
  end subroutine tutti_store_get

  !> Sets key to desired if its value is expected.  value becomes the key's value after the call.
  subroutine tutti_store_compare_set(store, key, expected, desired, value, stat)
    type(tutti_store), intent(in) :: store
    character(kind=c_char, len=*), intent(in) :: key
    character(kind=c_char, len=*), intent(in) :: expected
    character(kind=c_char, len=*), intent(in) :: desired
    character(kind=c_char, len=:), allocatable, intent(out) :: value
    integer(c_int), intent(out), optional :: stat
    character(kind=c_char), allocatable, target :: buffer(:)
    type(c_ptr) :: data
    integer(c_size_t) :: bytes, capacity
    integer(c_size_t), parameter :: least = 4096
    integer :: failed
    capacity = max(least, len(desired, c_size_t))
    allocate (buffer(capacity), stat=failed)
    if (failed /= 0) then
      value = ""
      call report_no_memory("tutti_store_compare_set", capacity, stat)
      return
    end if
    call compare_set(store, key, expected, desired, buffer, capacity, bytes, stat)
    if (bytes > capacity) then
      call tutti_store_get(store, key, value, stat=stat)
    else
      data = c_loc(buffer) ! as an argument, gfortran 12 passes a length with it that the procedure does not expect
      call copy_text("tutti_store_compare_set", data, bytes, value, stat)
    end if
  end subroutine tutti_store_compare_set

end module tutti_stores
