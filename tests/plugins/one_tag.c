/* Library to load before Open MPI (LD_PRELOAD).  MPI_Comm_create_group always uses tag 1, which a message may also
 * have. */
#include <dlfcn.h>
#include <stddef.h>

__attribute__((visibility("default"))) int MPI_Comm_create_group(void *comm, void *group, int tag, void **made);

int MPI_Comm_create_group(void *comm, void *group, int tag, void **made)
{
    int (*create_group)(void *comm, void *group, int tag, void **made) = NULL;
    void *library = dlopen("libmpi.so.40", RTLD_NOW | RTLD_NOLOAD);
    (void)tag;
    if (library == NULL) return 1;
    *(void **)&create_group = dlsym(library, "PMPI_Comm_create_group");
    return create_group(comm, group, 1, made);
}
