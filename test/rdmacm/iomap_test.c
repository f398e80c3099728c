/* iomap_test.c: riomap, riounmap, riowrite: memory that the other end of a stream writes to.
 * In:    -    Out: cmocka's report    Runs: the test's thread, and one that connects
 */
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <rdma/rsocket.h>

#include "cm.h"

enum { PLACES = 4, MANY = 128, LARGE = 3 << 20, SOON_MS = 5000 };

/* `reader` has the memory, `writer` writes to it. */
static int reader, writer;
static int reader_inline = 64;

static void *connects(void *port)
{
	assert_int_equal(rconnect(writer, local(*(int *)port), sizeof(struct sockaddr_in)), 0);
	return NULL;
}

/* The writer offers so many places for the reader's mappings. */
static void join(int places)
{
	int listener = rsocket(AF_INET, SOCK_STREAM, 0), port;
	struct sockaddr_in name;
	socklen_t len = sizeof(name);
	pthread_t thread;

	writer = rsocket(AF_INET, SOCK_STREAM, 0);
	assert_int_equal(rsetsockopt(writer, SOL_RDMA, RDMA_IOMAPSIZE, &places, sizeof(places)), 0);
	assert_int_equal(rsetsockopt(listener, SOL_RDMA, RDMA_INLINE, &reader_inline,
				     sizeof(reader_inline)),
			 0);
	assert_int_equal(rbind(listener, local(0), sizeof(name)), 0);
	assert_int_equal(rlisten(listener, 1), 0);
	assert_int_equal(rgetsockname(listener, (struct sockaddr *)&name, &len), 0);
	port = ntohs(name.sin_port);
	assert_int_equal(pthread_create(&thread, NULL, connects, &port), 0);
	reader = raccept(listener, NULL, NULL);
	assert_true(reader >= 0);
	pthread_join(thread, NULL);
	assert_int_equal(rclose(listener), 0);
}

static void part(void)
{
	assert_int_equal(rclose(writer), 0);
	assert_int_equal(rclose(reader), 0);
}

/* What an end sent before is complete once the other has this. */
static void says(int from, int to)
{
	char byte;

	assert_int_equal(rsend(from, "!", 1, 0), 1);
	assert_int_equal(rrecv(to, &byte, 1, MSG_WAITALL), 1);
}

static ssize_t writes(const void *data, size_t bytes, off_t offset)
{
	return (ssize_t)riowrite(writer, data, bytes, offset, 0);
}

static void iowrite__reaches_the_mapped_memory(void **state)
{
	char memory[64] = "";

	join(PLACES);
	assert_int_equal(riomap(reader, memory, sizeof(memory), PROT_WRITE, 0, 1000), 1000);
	says(reader, writer);
	assert_int_equal(writes("begin", 5, 1000), 5);
	assert_int_equal(writes("end", 3, 1061), 3);
	says(writer, reader);
	assert_memory_equal(memory, "begin", 5);
	assert_memory_equal(memory + 61, "end", 3);
	part();
}

static void iowrite__stops_at_the_end_of_a_mapping(void **state)
{
	char memory[16] = "";

	join(PLACES);
	assert_int_equal(riomap(reader, memory, 8, PROT_WRITE, 0, 100), 100);
	says(reader, writer);
	assert_int_equal(writes("0123456789", 10, 100), 8);
	fails((int)writes("x", 1, 99), EINVAL);
	fails((int)writes("x", 1, 108), EINVAL);
	fails((int)writes("x", 1, -5), EINVAL);
	says(writer, reader);
	assert_memory_equal(memory, "01234567\0\0", 10);
	part();
}

static void iowrite__goes_on_in_the_next_mapping(void **state)
{
	char *a = calloc(1, LARGE), *b = calloc(1, LARGE), *data = malloc(2 * LARGE);

	for (size_t i = 0; i < 2 * LARGE; i++)
		data[i] = (char)(i * 7 + i / 4096);
	join(PLACES);
	assert_int_equal(riomap(reader, a, LARGE, PROT_WRITE, 0, 0), 0);
	assert_int_equal(riomap(reader, b, LARGE, PROT_WRITE, 0, LARGE), LARGE);
	says(reader, writer);
	assert_int_equal(writes(data, 2 * LARGE, 0), 2 * LARGE);
	says(writer, reader);
	assert_memory_equal(a, data, LARGE);
	assert_memory_equal(b, data + LARGE, LARGE);
	part();
	free(a);
	free(b);
	free(data);
}

static void iomap__takes_no_more_than_the_peer_offers(void **state)
{
	char memory[PLACES + 1][32];

	join(PLACES);
	for (int round = 0; round < 3; round++) {
		for (int i = 0; i < PLACES; i++)
			assert_int_equal(riomap(reader, memory[i], 32, PROT_WRITE, 0, -1),
					 (off_t)(uintptr_t)memory[i]);
		fails((int)riomap(reader, memory[PLACES], 32, PROT_WRITE, 0, -1), ENOMEM);
		assert_int_equal(riomap(reader, memory[PLACES], 32, PROT_NONE, 0, 7), 7);
		says(reader, writer);
		assert_int_equal(writes("there", 5, (off_t)(uintptr_t)memory[PLACES - 1]), 5);
		fails((int)writes("not", 3, 7), EINVAL);
		for (int i = 0; i <= PLACES; i++)
			assert_int_equal(riounmap(reader, memory[i], 32), 0);
		fails(riounmap(reader, memory[0], 32), EINVAL);
		says(reader, writer);
		fails((int)writes("gone", 4, (off_t)(uintptr_t)memory[0]), EINVAL);
	}
	/* the other way nothing is offered */
	fails((int)riomap(writer, memory[0], 32, PROT_WRITE, 0, -1), ENOMEM);
	says(writer, reader);
	part();
}

static void iomap__tells_of_mappings_without_inline_data_too(void **state)
{
	char memory[MANY][8];

	reader_inline = 0;
	join(MANY);
	reader_inline = 64;
	for (int round = 0; round < 4; round++) {
		for (int i = 0; i < MANY; i++)
			assert_int_equal(riomap(reader, memory[i], 8, PROT_WRITE, 0, i * 8), i * 8);
		says(reader, writer);
		for (int i = 0; i < MANY; i++)
			assert_int_equal(writes(&i, sizeof(i), i * 8), sizeof(i));
		says(writer, reader);
		for (int i = 0; i < MANY; i++) {
			assert_memory_equal(memory[i], &i, sizeof(i));
			assert_int_equal(riounmap(reader, memory[i], 8), 0);
		}
	}
	part();
}

/* The writer has not heard that the memory is gone: nothing is written, and the connection breaks
 * as it does with every access that is refused. */
static void iounmap__ends_the_peers_access_at_once(void **state)
{
	char memory[8] = "before", byte;

	join(PLACES);
	assert_int_equal(riomap(reader, memory, sizeof(memory), PROT_WRITE, 0, 0), 0);
	says(reader, writer);
	assert_int_equal(riounmap(reader, memory, sizeof(memory)), 0);
	(void)writes("after", 5, 0);
	fails((int)rrecv(writer, &byte, 1, 0), ECONNRESET);
	assert_string_equal(memory, "before");
	part();
}

static void iowrite__does_not_block_when_it_shall_not(void **state)
{
	char *memory = calloc(1, LARGE), *data = malloc(LARGE);
	size_t done = 0;

	memset(data, 'd', LARGE);
	join(PLACES);
	assert_int_equal(riomap(reader, memory, LARGE, PROT_WRITE, 0, 0), 0);
	says(reader, writer);
	while (done < LARGE) {
		ssize_t got = (ssize_t)riowrite(writer, data + done, LARGE - done, (off_t)done,
						MSG_DONTWAIT);

		if (got < 0)
			assert_int_equal(errno, EAGAIN);
		else
			done += (size_t)got;
	}
	says(writer, reader);
	assert_memory_equal(memory, data, LARGE);
	part();
	free(memory);
	free(data);
}

static void iomap__refuses_bad_arguments(void **state)
{
	int lone = rsocket(AF_INET, SOCK_STREAM, 0), datagrams = rsocket(AF_INET, SOCK_DGRAM, 0);
	char memory[8];

	fails((int)riomap(lone, memory, 8, PROT_WRITE, 0, 0), EINVAL);
	fails((int)riowrite(lone, memory, 8, 0, 0), ENOTCONN);
	fails((int)riomap(datagrams, memory, 8, PROT_WRITE, 0, 0), EOPNOTSUPP);
	fails((int)riowrite(datagrams, memory, 8, 0, 0), EOPNOTSUPP);
	fails((int)riomap(-1, memory, 8, PROT_WRITE, 0, 0), EBADF);
	fails(riounmap(-1, memory, 8), EBADF);
	assert_int_equal(rclose(lone), 0);
	assert_int_equal(rclose(datagrams), 0);
	join(PLACES);
	fails((int)riomap(reader, memory, 8, PROT_READ, 0, 0), EINVAL);
	fails((int)riomap(reader, memory, 8, PROT_WRITE | PROT_READ, 0, 0), EINVAL);
	fails((int)riomap(reader, memory, 0, PROT_WRITE, 0, 0), EINVAL);
	fails((int)riomap(reader, memory, 8, PROT_WRITE, 0, -2), EINVAL);
	says(reader, writer);
	part();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(iowrite__reaches_the_mapped_memory),
		cmocka_unit_test(iowrite__stops_at_the_end_of_a_mapping),
		cmocka_unit_test(iowrite__goes_on_in_the_next_mapping),
		cmocka_unit_test(iomap__takes_no_more_than_the_peer_offers),
		cmocka_unit_test(iomap__tells_of_mappings_without_inline_data_too),
		cmocka_unit_test(iounmap__ends_the_peers_access_at_once),
		cmocka_unit_test(iowrite__does_not_block_when_it_shall_not),
		cmocka_unit_test(iomap__refuses_bad_arguments),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
