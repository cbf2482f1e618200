/* Simulated seconds of one all-reduce of as many floats as the first argument says. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <smpi/smpi.h>

int main(int argc, char **argv)
{
    int rank, count = atoi(argv[1]);
    double seconds, slowest;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    /* One buffer for all ranks: what is in it does not matter. */
    float *own = SMPI_SHARED_MALLOC(count * sizeof(float));
    float *sum = SMPI_SHARED_MALLOC(count * sizeof(float));
    MPI_Barrier(MPI_COMM_WORLD);
    seconds = MPI_Wtime();
    MPI_Allreduce(own, sum, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    seconds = MPI_Wtime() - seconds;
    MPI_Reduce(&seconds, &slowest, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    if (rank == 0)
        printf("%.9f\n", slowest);
    SMPI_SHARED_FREE(own);
    SMPI_SHARED_FREE(sum);
    MPI_Finalize();
    return 0;
}
