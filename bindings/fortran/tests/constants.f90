!> Prints the constants and layouts of the module, for run.sh to compare with those of the C headers.
program constants
  use tutti
  implicit none
  type(tutti_device), target :: device
  type(tutti_tensor), target :: tensor
  type(tutti_bytes), target :: bytes
  type(tutti_p2p_op), target :: p2p_op
  type(tutti_message), target :: message
  type(tutti_rank_health), target :: rank_health
  type(tutti_stats), target :: stats
  type(tutti_counters), target :: counters

  call value("INT8", int(TUTTI_INT8%value, c_int64_t))
  call value("INT16", int(TUTTI_INT16%value, c_int64_t))
  call value("INT32", int(TUTTI_INT32%value, c_int64_t))
  call value("INT64", int(TUTTI_INT64%value, c_int64_t))
  call value("UINT8", int(TUTTI_UINT8%value, c_int64_t))
  call value("UINT16", int(TUTTI_UINT16%value, c_int64_t))
  call value("UINT32", int(TUTTI_UINT32%value, c_int64_t))
  call value("UINT64", int(TUTTI_UINT64%value, c_int64_t))
  call value("FLOAT16", int(TUTTI_FLOAT16%value, c_int64_t))
  call value("FLOAT32", int(TUTTI_FLOAT32%value, c_int64_t))
  call value("FLOAT64", int(TUTTI_FLOAT64%value, c_int64_t))
  call value("BFLOAT16", int(TUTTI_BFLOAT16%value, c_int64_t))
  call value("COMPLEX64", int(TUTTI_COMPLEX64%value, c_int64_t))
  call value("COMPLEX128", int(TUTTI_COMPLEX128%value, c_int64_t))
  call value("BOOL", int(TUTTI_BOOL%value, c_int64_t))
  call value("FLOAT8_E4M3FN", int(TUTTI_FLOAT8_E4M3FN%value, c_int64_t))
  call value("FLOAT8_E5M2", int(TUTTI_FLOAT8_E5M2%value, c_int64_t))
  call value("SUM", int(TUTTI_SUM%value, c_int64_t))
  call value("PRODUCT", int(TUTTI_PRODUCT%value, c_int64_t))
  call value("MIN", int(TUTTI_MIN%value, c_int64_t))
  call value("MAX", int(TUTTI_MAX%value, c_int64_t))
  call value("AVG", int(TUTTI_AVG%value, c_int64_t))
  call value("PREMUL_SUM", int(TUTTI_PREMUL_SUM%value, c_int64_t))
  call value("BAND", int(TUTTI_BAND%value, c_int64_t))
  call value("BOR", int(TUTTI_BOR%value, c_int64_t))
  call value("BXOR", int(TUTTI_BXOR%value, c_int64_t))
  call value("BROADCAST_KIND", int(TUTTI_BROADCAST_KIND, c_int64_t))
  call value("ALL_REDUCE_KIND", int(TUTTI_ALL_REDUCE_KIND, c_int64_t))
  call value("REDUCE_KIND", int(TUTTI_REDUCE_KIND, c_int64_t))
  call value("ALL_GATHER_KIND", int(TUTTI_ALL_GATHER_KIND, c_int64_t))
  call value("GATHER_KIND", int(TUTTI_GATHER_KIND, c_int64_t))
  call value("SCATTER_KIND", int(TUTTI_SCATTER_KIND, c_int64_t))
  call value("REDUCE_SCATTER_KIND", int(TUTTI_REDUCE_SCATTER_KIND, c_int64_t))
  call value("ALL_TO_ALL_KIND", int(TUTTI_ALL_TO_ALL_KIND, c_int64_t))
  call value("BARRIER_KIND", int(TUTTI_BARRIER_KIND, c_int64_t))
  call value("MONITORED_BARRIER_KIND", int(TUTTI_MONITORED_BARRIER_KIND, c_int64_t))
  call value("SEND_KIND", int(TUTTI_SEND_KIND, c_int64_t))
  call value("RECV_KIND", int(TUTTI_RECV_KIND, c_int64_t))
  call value("COALESCED_KIND", int(TUTTI_COALESCED_KIND, c_int64_t))
  call value("COPY_KIND", int(TUTTI_COPY_KIND, c_int64_t))
  call value("PROBE_KIND", int(TUTTI_PROBE_KIND, c_int64_t))
  call value("SCAN_KIND", int(TUTTI_SCAN_KIND, c_int64_t))
  call value("EXSCAN_KIND", int(TUTTI_EXSCAN_KIND, c_int64_t))
  call value("OK", int(TUTTI_OK, c_int64_t))
  call value("ERR_INVALID_ARGUMENT", int(TUTTI_ERR_INVALID_ARGUMENT, c_int64_t))
  call value("ERR_UNSUPPORTED", int(TUTTI_ERR_UNSUPPORTED, c_int64_t))
  call value("ERR_TIMEOUT", int(TUTTI_ERR_TIMEOUT, c_int64_t))
  call value("ERR_PEER_LOST", int(TUTTI_ERR_PEER_LOST, c_int64_t))
  call value("ERR_MISMATCH", int(TUTTI_ERR_MISMATCH, c_int64_t))
  call value("ERR_ABORTED", int(TUTTI_ERR_ABORTED, c_int64_t))
  call value("ERR_STORE", int(TUTTI_ERR_STORE, c_int64_t))
  call value("ERR_AUTH", int(TUTTI_ERR_AUTH, c_int64_t))
  call value("ERR_NO_MEMORY", int(TUTTI_ERR_NO_MEMORY, c_int64_t))
  call value("ERR_SYSTEM", int(TUTTI_ERR_SYSTEM, c_int64_t))
  call value("ERR_BACKEND", int(TUTTI_ERR_BACKEND, c_int64_t))
  call value("ERR_NOT_FOUND", int(TUTTI_ERR_NOT_FOUND, c_int64_t))
  call value("CPU", int(TUTTI_CPU, c_int64_t))
  call value("CUDA", int(TUTTI_CUDA, c_int64_t))
  call value("ANY_SOURCE", int(TUTTI_ANY_SOURCE, c_int64_t))
  call value("ANY_TAG", int(TUTTI_ANY_TAG, c_int64_t))
  call value("RANK_ALIVE", int(TUTTI_RANK_ALIVE, c_int64_t))
  call value("RANK_LEFT", int(TUTTI_RANK_LEFT, c_int64_t))
  call value("RANK_LOST", int(TUTTI_RANK_LOST, c_int64_t))
  call value("LOG_ERROR", int(TUTTI_LOG_ERROR, c_int64_t))
  call value("LOG_WARN", int(TUTTI_LOG_WARN, c_int64_t))
  call value("LOG_INFO", int(TUTTI_LOG_INFO, c_int64_t))
  call value("LOG_DEBUG", int(TUTTI_LOG_DEBUG, c_int64_t))
  call value("ABI_VERSION", int(TUTTI_ABI_VERSION, c_int64_t))
  call value("TOKEN_BYTES", int(TUTTI_TOKEN_BYTES, c_int64_t))
  call value("INFINITE", TUTTI_INFINITE)
  call value("NOW", TUTTI_NOW)
  call value("DEFAULT_TIMEOUT", TUTTI_DEFAULT_TIMEOUT)
  call value("device", int(c_sizeof(device), c_int64_t))
  call field("device%type", c_loc(device), c_loc(device%type))
  call field("device%index", c_loc(device), c_loc(device%index))
  call value("tensor", int(c_sizeof(tensor), c_int64_t))
  call field("tensor%data", c_loc(tensor), c_loc(tensor%data))
  call field("tensor%numel", c_loc(tensor), c_loc(tensor%numel))
  call field("tensor%dtype", c_loc(tensor), c_loc(tensor%dtype))
  call field("tensor%device", c_loc(tensor), c_loc(tensor%device))
  call value("bytes", int(c_sizeof(bytes), c_int64_t))
  call field("bytes%data", c_loc(bytes), c_loc(bytes%data))
  call field("bytes%bytes", c_loc(bytes), c_loc(bytes%bytes))
  call value("p2p_op", int(c_sizeof(p2p_op), c_int64_t))
  call field("p2p_op%kind", c_loc(p2p_op), c_loc(p2p_op%kind))
  call field("p2p_op%tensor", c_loc(p2p_op), c_loc(p2p_op%tensor))
  call field("p2p_op%peer", c_loc(p2p_op), c_loc(p2p_op%peer))
  call field("p2p_op%tag", c_loc(p2p_op), c_loc(p2p_op%tag))
  call field("p2p_op%source", c_loc(p2p_op), c_loc(p2p_op%source))
  call value("message", int(c_sizeof(message), c_int64_t))
  call field("message%source", c_loc(message), c_loc(message%source))
  call field("message%tag", c_loc(message), c_loc(message%tag))
  call field("message%bytes", c_loc(message), c_loc(message%bytes))
  call value("rank_health", int(c_sizeof(rank_health), c_int64_t))
  call field("rank_health%state", c_loc(rank_health), c_loc(rank_health%state))
  call field("rank_health%silent_ms", c_loc(rank_health), c_loc(rank_health%silent_ms))
  call field("rank_health%why", c_loc(rank_health), c_loc(rank_health%why(1)))
  call value("stats", int(c_sizeof(stats), c_int64_t))
  call field("stats%operations", c_loc(stats), c_loc(stats%operations(0)))
  call field("stats%failed", c_loc(stats), c_loc(stats%failed))
  call field("stats%waits", c_loc(stats), c_loc(stats%waits))
  call field("stats%sleeps", c_loc(stats), c_loc(stats%sleeps))
  call field("stats%transport", c_loc(stats), c_loc(stats%transport))
  call value("counters", int(c_sizeof(counters), c_int64_t))
  call field("counters%shared", c_loc(counters), c_loc(counters%shared))
  call field("counters%wire", c_loc(counters), c_loc(counters%wire))
  call field("counters%retries", c_loc(counters), c_loc(counters%retries))
  call field("counters%memory", c_loc(counters), c_loc(counters%memory))
  call field("counters%library", c_loc(counters), c_loc(counters%library))

contains

  subroutine value(name, number)
    character(len=*), intent(in) :: name
    integer(c_int64_t), intent(in) :: number
    print "(a, 1x, i0)", name, number
  end subroutine value

  !> Prints the offset of a field.
  subroutine field(name, begin, at)
    character(len=*), intent(in) :: name
    type(c_ptr), intent(in) :: begin, at
    call value(name, int(transfer(at, 0_c_intptr_t) - transfer(begin, 0_c_intptr_t), c_int64_t))
  end subroutine field

end program constants
