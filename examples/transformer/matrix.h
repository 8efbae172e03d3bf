/* Products of matrices, for transformer.c.  Nothing here is distributed. */
#ifndef MATRIX_H
#define MATRIX_H

/* Element [i][j] is at data[i * row + j * column]. */
struct matrix {
    float *data;
    int rows, columns, row, column;
};

/* Return a matrix whose rows are `row` floats apart, and the transpose of a matrix.  Both refer to the same memory. */
struct matrix matrix_of(const float *data, int rows, int columns, int row);
struct matrix matrix_transposed(struct matrix x);

/* Adds x y to out.  The rows of out are contiguous; the number of its columns is a multiple of 16. */
void matrix_add_product(struct matrix out, struct matrix x, struct matrix y);

#endif
