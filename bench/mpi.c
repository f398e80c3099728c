/* mpi.c: two MPI ranks: ping-pong, or a stream of messages. usage: mpirun -np 2 mpi
 * latency|bandwidth BYTES ROUNDS
 *
 * In: which, sizes    Out: "latency US" (half a round trip, the median of blocks), or "bandwidth
 *     MIB_S" (the average), from rank 0; nothing is said if a byte is not what was sent
 * Runs: one thread per rank    Locks: none
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCKS = 21, WINDOW = 16, WARM_UP = 10 }; /* rounds: 1 in WARM_UP beforehand */

static int doubles_compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static void rounds_ping_pong(int rank, char *buf, int bytes, int rounds)
{
	for (int i = 0; i < rounds; i++) {
		if (rank == 0)
			MPI_Send(buf, bytes, MPI_BYTE, 1, 0, MPI_COMM_WORLD);
		MPI_Recv(buf, bytes, MPI_BYTE, 1 - rank, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
		if (rank == 1)
			MPI_Send(buf, bytes, MPI_BYTE, 0, 0, MPI_COMM_WORLD);
	}
}

/* Microseconds one way. */
static double latency_take(int rank, char *buf, int bytes, int rounds)
{
	double blocks[BLOCKS];

	rounds_ping_pong(rank, buf, bytes, rounds / WARM_UP + 1);
	for (int i = 0; i < BLOCKS; i++) {
		double begin = MPI_Wtime();

		rounds_ping_pong(rank, buf, bytes, rounds / BLOCKS + 1);
		blocks[i] = (MPI_Wtime() - begin) / (rounds / BLOCKS + 1) / 2 * 1e6;
	}
	qsort(blocks, BLOCKS, sizeof(blocks[0]), doubles_compare);
	return blocks[BLOCKS / 2];
}

/* WINDOW messages are under way at once, all from and to one buffer, as perftest's are. */
static void rounds_stream(int rank, char *buf, int bytes, int rounds)
{
	MPI_Request requests[WINDOW];

	for (int i = 0; i < rounds; i++) {
		for (int k = 0; k < WINDOW; k++)
			if (rank == 0)
				MPI_Isend(buf, bytes, MPI_BYTE, 1, 0, MPI_COMM_WORLD, &requests[k]);
			else
				MPI_Irecv(buf, bytes, MPI_BYTE, 0, 0, MPI_COMM_WORLD, &requests[k]);
		MPI_Waitall(WINDOW, requests, MPI_STATUSES_IGNORE);
	}
	MPI_Barrier(MPI_COMM_WORLD);
}

/* MiB a second. */
static double bandwidth_take(int rank, char *buf, int bytes, int rounds)
{
	double begin;

	rounds = rounds / WINDOW + 1;
	rounds_stream(rank, buf, bytes, rounds / WARM_UP + 1);
	begin = MPI_Wtime();
	rounds_stream(rank, buf, bytes, rounds);
	return (double)bytes * rounds * WINDOW / (MPI_Wtime() - begin) / (1 << 20);
}

static int buffer_is(const char *buf, int bytes, char value)
{
	for (int i = 0; i < bytes; i++)
		if (buf[i] != value)
			return 0;
	return 1;
}

int main(int argc, char **argv)
{
	int rank, size, bytes, rounds, lat;
	double value;
	char *buf;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &size);
	bytes = argc == 4 ? atoi(argv[2]) : 0;
	rounds = argc == 4 ? atoi(argv[3]) : 0;
	if (size != 2 || bytes <= 0 || rounds <= 0) {
		fprintf(stderr, "usage: mpirun -np 2 mpi latency|bandwidth BYTES ROUNDS\n");
		MPI_Abort(MPI_COMM_WORLD, 2);
	}
	buf = malloc((size_t)bytes);
	if (buf == NULL)
		MPI_Abort(MPI_COMM_WORLD, 1);
	memset(buf, 'a' + rank, (size_t)bytes);
	lat = strcmp(argv[1], "latency") == 0;
	value = (lat ? latency_take : bandwidth_take)(rank, buf, bytes, rounds);
	if (!buffer_is(buf, bytes, 'a'))
		MPI_Abort(MPI_COMM_WORLD, 1);
	if (rank == 0)
		printf("%s %.3f %s\n", lat ? "latency" : "bandwidth", value, lat ? "us" : "MiB/s");
	free(buf);
	return MPI_Finalize();
}
