/* interposed_test.c: a library that the user preloads may have a socket() of its own, as
 * librspreload has: it keeps each number as a socket of the program until the program closes it
 * there. The libraries close theirs past it, so they open them past it, too. Else it takes the next
 * file of that number for the socket, and its fcntl() does nothing to that file.
 */
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <rdma/rsocket.h>

#include "pair.h"

static int socket_calls; /* atomic */

/* In place of the C library's, for this program and its libraries. */
int socket(int family, int type, int protocol)
{
	__atomic_add_fetch(&socket_calls, 1, __ATOMIC_RELAXED);
	return (int)syscall(SYS_socket, family, type, protocol);
}

static int calls_now(void)
{
	return __atomic_load_n(&socket_calls, __ATOMIC_RELAXED);
}

static void socket__of_the_program_is_counted(void **state)
{
	int before = calls_now(), fd = socket(AF_INET, SOCK_DGRAM, 0);

	assert_true(fd >= 0);
	close(fd);
	assert_int_equal(calls_now(), before + 1);
}

/* The RDMA CM asks the kernel for neighbours, the path opens its sockets. */
static void socket__is_not_called_for_a_connection(void **state)
{
	int before = calls_now();
	struct pair p;

	make_pair(&p);
	end_pair(&p);
	assert_int_equal(calls_now(), before);
}

/* One is its UDP socket; another finds its source. */
static void socket__is_not_called_for_datagrams(void **state)
{
	struct sockaddr_in to = { .sin_family = AF_INET,
				  .sin_port = htons(7),
				  .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	int before = calls_now(), fd = rsocket(AF_INET, SOCK_DGRAM, 0);

	assert_true(fd >= 0);
	assert_int_equal(rconnect(fd, (struct sockaddr *)&to, sizeof(to)), 0);
	assert_int_equal(rclose(fd), 0);
	assert_int_equal(calls_now(), before);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(socket__of_the_program_is_counted),
		cmocka_unit_test(socket__is_not_called_for_a_connection),
		cmocka_unit_test(socket__is_not_called_for_datagrams),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
