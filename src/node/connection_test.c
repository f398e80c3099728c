/* connection_test.c: what a listener at the node's abstract name can have a client hold. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "node/client_priv.h"

/* The listener, whose answers come while the client asks for its user. */
static struct {
	int fd;
	u32 asked;
	u32 own;      /* so many times it is this user's, then another's */
	int accepted; /* the last connection */
	bool took;    /* the client could be sent something */
} listener;

static char name[NODE_NAME_MAX];

/* The client's pauses. */
static struct {
	u32 count;
	bool stand_still; /* the first one lasts longer than a client waits */
} pauses;

/* In place of the C library's: accepts, and sends before the client knows whose the listener is. */
int getsockopt(int fd, int level, int option, void *value, socklen_t *size)
{
	struct ucred *cred = value;

	if (level != SOL_SOCKET || option != SO_PEERCRED)
		return (int)syscall(SYS_getsockopt, fd, level, option, value, size);
	close(listener.accepted);
	listener.accepted = accept(listener.fd, NULL, NULL);
	listener.took |= send(listener.accepted, "x", 1, MSG_NOSIGNAL | MSG_DONTWAIT) == 1;
	memset(cred, 0, sizeof(*cred));
	cred->uid = geteuid() + (listener.asked++ < listener.own ? 0 : 1);
	return 0;
}

/* In place of the C library's: while the client rests, the listener accepts what fills its backlog,
 * but not in the first pause. */
int nanosleep(const struct timespec *ts, struct timespec *rest)
{
	struct timespec long_time = { .tv_sec = NODE_ATTACH_S, .tv_nsec = 200000000 };

	if (pauses.count++ == 0 && pauses.stand_still)
		ts = &long_time;
	else if (pauses.stand_still)
		close(accept4(listener.fd, NULL, NULL, SOCK_CLOEXEC));
	return (int)syscall(SYS_nanosleep, ts, rest);
}

static int listener_open(void **state)
{
	struct sockaddr_un addr;
	socklen_t length;

	snprintf(name, sizeof(name), "unit-%d", (int)getpid());
	length = address_make(name, 0, &addr);
	memset(&listener, 0, sizeof(listener));
	listener.accepted = -1;
	listener.fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	return bind(listener.fd, (void *)&addr, length) < 0 ? -1 : listen(listener.fd, 8);
}

static int listener_close(void **state)
{
	close(listener.accepted);
	return close(listener.fd);
}

static int client_open(u32 own)
{
	listener.own = own;
	return connection_open(name, PLACE_NETWORK, false);
}

static void connection_open__takes_nothing_from_another_user(void **state)
{
	assert_int_equal(client_open(0), -ECONNREFUSED);
	assert_int_equal(listener.asked, 1);
	assert_false(listener.took);
}

static void connection_open__is_connected_with_its_own_node(void **state)
{
	int fd = client_open(2);
	char byte;

	assert_true(fd >= 0);
	assert_true(listener.took);
	assert_int_equal(recv(fd, &byte, 1, 0), 1);
	close(fd);
}

/* Its close might wait. */
static void connection_open__leaves_a_socket_open_that_another_user_got_meanwhile(void **state)
{
	char byte;

	assert_int_equal(client_open(1), -ECONNREFUSED);
	assert_int_equal(listener.asked, 2);
	assert_int_equal(recv(listener.accepted, &byte, 1, MSG_DONTWAIT), -1);
	assert_int_equal(errno, EAGAIN);
}

/* As on a host of a hundred processes that start at a time: the node is there, accepts nobody, and
 * neither it nor this process gets a CPU for longer than a client waits. */
static void connection_open__asks_more_than_twice(void **state)
{
	struct sockaddr_un addr;
	socklen_t length = address_make(name, 0, &addr);
	int waiting[16], count = 0, fd;

	do {
		waiting[count] = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	} while (connect(waiting[count++], (void *)&addr, length) == 0 && count < 16);
	assert_int_equal(errno, EAGAIN);
	pauses.count = 0;
	pauses.stand_still = true;
	fd = client_open(2);
	pauses.stand_still = false;
	assert_true(fd >= 0);
	assert_true(pauses.count >= 2);
	close(fd);
	for (int i = 0; i < count; i++)
		close(waiting[i]);
}

#define LISTENER_TEST(test) cmocka_unit_test_setup_teardown(test, listener_open, listener_close)

int main(void)
{
	const struct CMUnitTest tests[] = {
		LISTENER_TEST(connection_open__takes_nothing_from_another_user),
		LISTENER_TEST(connection_open__is_connected_with_its_own_node),
		LISTENER_TEST(
			connection_open__leaves_a_socket_open_that_another_user_got_meanwhile),
		LISTENER_TEST(connection_open__asks_more_than_twice),
	};

	unsetenv("XDG_RUNTIME_DIR");
	return cmocka_run_group_tests(tests, NULL, NULL);
}
