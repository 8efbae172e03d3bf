#include <tutti/tutti.h>

int main(void)
{
    float x[3] = {1, 3.14159f, 70000}, back[3];
    uint16_t half[3] = {0}; /* C has no type for 16-bit floats */
    tutti_tensor narrow = tutti_tensor_of(half, 3, TUTTI_FLOAT16);
    TUTTI_CHECK(tutti_cast(narrow, tutti_view(x, 3)));
    TUTTI_CHECK(tutti_cast(tutti_view(back, 3), narrow));
    printf("%g %g %g\n", (double)back[0], (double)back[1], (double)back[2]);
    return 0;
}

/* Prints:
 *
 *     1 3.14062 inf
 *     1 3.14062 inf
 */
