/* mpi_all.c: every rank sends every other one a block of its own, and all check what has come.
 * usage: mpi_all BYTES ROUNDS */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static unsigned char value(int from, int to, int round)
{
	return (unsigned char)(from * 31 + to * 7 + round);
}

static int exchange(int rank, int ranks, int bytes, int round, unsigned char *out,
		    unsigned char *in)
{
	int wrong = 0;

	for (int to = 0; to < ranks; to++)
		memset(out + (size_t)to * bytes, value(rank, to, round), bytes);
	MPI_Alltoall(out, bytes, MPI_BYTE, in, bytes, MPI_BYTE, MPI_COMM_WORLD);
	for (int from = 0; from < ranks; from++)
		for (int i = 0; i < bytes; i++)
			wrong += in[(size_t)from * bytes + i] != value(from, rank, round);
	return wrong;
}

int main(int argc, char **argv)
{
	int rank, ranks, wrong = 0, all, bytes, rounds;
	unsigned char *out, *in;

	MPI_Init(&argc, &argv);
	bytes = argc > 1 ? atoi(argv[1]) : 4096;
	rounds = argc > 2 ? atoi(argv[2]) : 3;
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	out = malloc((size_t)ranks * bytes);
	in = malloc((size_t)ranks * bytes);
	if (out == NULL || in == NULL)
		MPI_Abort(MPI_COMM_WORLD, 1);
	for (int round = 0; round < rounds; round++)
		wrong += exchange(rank, ranks, bytes, round, out, in);
	MPI_Allreduce(&wrong, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
	if (rank == 0)
		printf("%s %d ranks %d bytes\n", all == 0 ? "ok" : "wrong", ranks, bytes);
	MPI_Barrier(MPI_COMM_WORLD);
	MPI_Finalize();
	free(out);
	free(in);
	return all != 0;
}
