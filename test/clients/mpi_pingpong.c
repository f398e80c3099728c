/* mpi_pingpong.c: two MPI ranks pass a checked message to and fro. usage: mpirun -np 2 mpi_pingpong
 * BYTES ROUNDS
 * In: sizes    Out: "ok BYTES, N us one way" and both hosts' names from rank 0
 * Runs: one thread per rank
 * Locks: none
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void pattern_fill(unsigned char *buf, int bytes, int round)
{
	for (int i = 0; i < bytes; i++)
		buf[i] = (unsigned char)(i * 31 + round);
}

static int pattern_errors(const unsigned char *buf, int bytes, int round)
{
	int errors = 0;

	for (int i = 0; i < bytes; i++)
		errors += buf[i] != (unsigned char)(i * 31 + round);
	return errors;
}

static int rank_exchange(int rank, unsigned char *buf, int bytes, int round)
{
	int errors;

	if (rank == 0) {
		pattern_fill(buf, bytes, round);
		MPI_Send(buf, bytes, MPI_BYTE, 1, round, MPI_COMM_WORLD);
		memset(buf, 0, (size_t)bytes);
		MPI_Recv(buf, bytes, MPI_BYTE, 1, round, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
		return pattern_errors(buf, bytes, round + 1);
	}
	MPI_Recv(buf, bytes, MPI_BYTE, 0, round, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
	errors = pattern_errors(buf, bytes, round);
	pattern_fill(buf, bytes, round + 1);
	MPI_Send(buf, bytes, MPI_BYTE, 0, round, MPI_COMM_WORLD);
	return errors;
}

/* Rank 0 says which hosts the two run on. */
static void hosts_show(int rank)
{
	char name[MPI_MAX_PROCESSOR_NAME] = "", other[MPI_MAX_PROCESSOR_NAME] = "";
	int length;

	MPI_Get_processor_name(name, &length);
	if (rank != 0) {
		MPI_Send(name, sizeof(name), MPI_CHAR, 0, 0, MPI_COMM_WORLD);
		return;
	}
	MPI_Recv(other, sizeof(other), MPI_CHAR, 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
	printf("between %s and %s\n", name, other);
}

int main(int argc, char **argv)
{
	int bytes = argc > 1 ? atoi(argv[1]) : 8, rounds = argc > 2 ? atoi(argv[2]) : 100;
	int rank, ranks, errors = 0, all = 0;
	unsigned char *buf = malloc((size_t)bytes);
	double begin;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	if (ranks != 2 || buf == NULL)
		MPI_Abort(MPI_COMM_WORLD, 2);
	hosts_show(rank);
	begin = MPI_Wtime();
	for (int round = 0; round < rounds; round++)
		errors += rank_exchange(rank, buf, bytes, round);
	begin = (MPI_Wtime() - begin) / rounds / 2 * 1e6;
	MPI_Reduce(&errors, &all, 1, MPI_INT, MPI_SUM, 0, MPI_COMM_WORLD);
	if (rank == 0)
		printf("%s %d bytes, %.2f us one way, %d wrong bytes\n", all ? "wrong" : "ok",
		       bytes, begin, all);
	MPI_Bcast(&all, 1, MPI_INT, 0, MPI_COMM_WORLD);
	MPI_Finalize();
	free(buf);
	return all != 0;
}
