/* Non-blocking point to point: a send and a receive, then exchanges of 4 bytes and of 64 MiB in which both ranks send
 * first.  No size deadlocks.
 *
 *     tutti-run -n 4 build/examples/isend_irecv [tcp|mpi|nccl]
 */
#include "example.h"

/* Exchanges numel floats between ranks 0 and 1.  Returns true if the peer's floats have arrived. */
static bool exchange(int rank, int64_t numel)
{
    int peer = 1 - rank;
    float *values = malloc((size_t)numel * sizeof *values);
    if (!values) abort();
    tutti_tensor mine = ZEROS(float, numel), theirs = ZEROS(float, numel);
    for (int64_t i = 0; i < numel; i++) values[i] = (float)(rank + i % 1000);
    tensor_set(mine, values);

    tutti_work *sent = NULL, *received = NULL;
    TUTTI_CHECK(tutti_isend(mine, peer, NULL, &sent));
    TUTTI_CHECK(tutti_irecv(theirs, peer, NULL, &received));
    TUTTI_CHECK(tutti_wait(&received, TUTTI_DEFAULT_TIMEOUT));
    TUTTI_CHECK(tutti_wait(&sent, TUTTI_DEFAULT_TIMEOUT));

    tensor_get(values, theirs);
    int64_t right = 0;
    for (int64_t i = 0; i < numel; i++) right += values[i] == (float)(peer + i % 1000);
    tensor_free(mine);
    tensor_free(theirs);
    free(values);
    return right == numel;
}

int main(int argc, char **argv)
{
    TUTTI_CHECK(tutti_init_process_group(argc > 1 ? argv[1] : "tcp", NULL));
    int rank = tutti_get_rank(NULL);
    tutti_tensor x = ZEROS(float, 1);
    tutti_work *request = NULL;

    if (rank == 0) {
        tensor_set(x, (float[]){42});
        TUTTI_CHECK(tutti_isend(x, 1, NULL, &request));
        printf("Rank 0 started sending\n");
    } else if (rank == 1) {
        printf("Rank 1 has %.1f before\n", tensor_item(x, 0));
        TUTTI_CHECK(tutti_irecv(x, 0, NULL, &request));
        printf("Rank 1 started receiving\n");
    }
    if (request) TUTTI_CHECK(tutti_wait(&request, TUTTI_DEFAULT_TIMEOUT)); /* x must not be used before this line */
    if (rank < 2) printf("Rank %d has %.1f after\n", rank, tensor_item(x, 0));
    tensor_free(x);

    bool right = true;
    const int64_t sizes[] = {4, 64 << 20};
    for (int i = 0; i < 2 && rank < 2; i++) {
        right &= exchange(rank, sizes[i] / 4);
        printf("Rank %d exchanged %lld bytes: %s\n", rank, (long long)sizes[i], right ? "right" : "WRONG");
    }

    TUTTI_CHECK(tutti_destroy_process_group(NULL));
    return right ? 0 : 1;
}
