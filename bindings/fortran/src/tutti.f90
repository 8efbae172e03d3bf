!> Tutti for Fortran: process groups, collectives and messages, with the C library's names.
!>
!>     use tutti
!>     real :: x(4)
!>     call tutti_init_process_group("tcp")
!>     x = tutti_get_rank()
!>     call tutti_all_reduce(x, TUTTI_SUM)
!>     call tutti_destroy_process_group()
!>
!> Every subroutine takes an optional stat.  Without it, an error is printed and the program ends with status 1.
!> docs/fortran.md describes the module.  It also gives the names of iso_c_binding.
module tutti
  use tutti_types
  use tutti_groups
  use tutti_collectives
  use tutti_messages
  use tutti_works
  use tutti_stores
  implicit none
  public
end module tutti
