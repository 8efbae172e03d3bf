!> Every rank says hello.  tutti-run -n 4 hello [tcp|mpi|nccl]
program hello
  use tutti
  implicit none
  character(len=64) :: backend
  call get_command_argument(1, backend)
  if (backend == "") backend = "tcp"
  call tutti_init_process_group(backend)
  print "(a, i0, a, i0, a)", "Hello from rank ", tutti_get_rank(), " out of ", tutti_get_world_size(), " processes!"
  call tutti_destroy_process_group()
end program hello
