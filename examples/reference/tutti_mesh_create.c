#include <tutti/train/mesh.h>

int main(void)
{
    TUTTI_CHECK(tutti_init_process_group("tcp", NULL));
    int rank = tutti_get_rank(NULL);

    tutti_mesh *mesh;
    tutti_mesh_dim dims[] = {{"data", 0}, {"tensor", 2}}; /* 0: what the others leave */
    TUTTI_CHECK(tutti_mesh_create(dims, 2, NULL, &mesh));
    printf("rank %d is %d of %d in tensor, %d of %d in data\n", rank, tutti_mesh_rank(mesh, "tensor"),
           tutti_mesh_size(mesh, "tensor"), tutti_mesh_rank(mesh, "data"), tutti_mesh_size(mesh, "data"));
    TUTTI_CHECK(tutti_mesh_destroy(mesh));
    return tutti_destroy_process_group(NULL);
}

/* Prints:
 *
 *     rank 0 is 0 of 2 in tensor, 0 of 1 in data
 *     rank 1 is 1 of 2 in tensor, 0 of 1 in data
 */
