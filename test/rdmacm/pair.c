/* pair.c: two ends of a stream rsocket in one process.
 * In: calls      Out: verdicts      Runs: the test's thread
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>

#include <rdma/rsocket.h>

#include "pair.h"

void listen_at(struct pair *p, const char *ip)
{
	struct sockaddr_in *in = (struct sockaddr_in *)&p->addr;
	struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)&p->addr;
	socklen_t len = sizeof(p->addr);

	memset(&p->addr, 0, sizeof(p->addr));
	p->addr.ss_family = strchr(ip, ':') != NULL ? AF_INET6 : AF_INET;
	assert_int_equal(inet_pton(p->addr.ss_family, ip,
				   p->addr.ss_family == AF_INET ? (void *)&in->sin_addr
								: (void *)&in6->sin6_addr),
			 1);
	p->listener = rsocket(p->addr.ss_family, SOCK_STREAM, 0);
	assert_true(p->listener >= 0);
	assert_int_equal(rbind(p->listener, (struct sockaddr *)&p->addr, sizeof(p->addr)), 0);
	assert_int_equal(rgetsockname(p->listener, (struct sockaddr *)&p->addr, &len), 0);
}

short ready(int fd, short events, int timeout_ms)
{
	struct pollfd f = { .fd = fd, .events = events };
	int n = rpoll(&f, 1, timeout_ms);

	assert_in_range(n, 0, 1);
	return f.revents;
}

int error_of(int fd)
{
	int error = -1;
	socklen_t len = sizeof(error);

	assert_int_equal(rgetsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &len), 0);
	return error;
}

void connect_client(struct pair *p)
{
	assert_int_equal(rfcntl(p->client, F_SETFL, O_NONBLOCK), 0);
	fails(rconnect(p->client, (struct sockaddr *)&p->addr, sizeof(p->addr)), EINPROGRESS);
	p->server = raccept(p->listener, NULL, NULL);
	assert_true(p->server >= 0);
	assert_true(ready(p->client, POLLOUT, WAIT_MS) == POLLOUT);
	assert_int_equal(error_of(p->client), 0);
	assert_int_equal(rfcntl(p->client, F_SETFL, 0), 0);
}

void connect_to(struct pair *p)
{
	p->client = rsocket(p->addr.ss_family, SOCK_STREAM, 0);
	assert_true(p->client >= 0);
	connect_client(p);
}

void make_pair_at(struct pair *p, const char *ip)
{
	listen_at(p, ip);
	assert_int_equal(rlisten(p->listener, 8), 0);
	connect_to(p);
}

void make_pair(struct pair *p)
{
	make_pair_at(p, "127.0.0.1");
}

void end_pair(struct pair *p)
{
	assert_int_equal(rclose(p->client), 0);
	assert_int_equal(rclose(p->server), 0);
	assert_int_equal(rclose(p->listener), 0);
}
