/* netlink.c: one question to the kernel by rtnetlink, and a socket for what it announces.
 * In:    a request               Out: each message of the answer
 * Runs:  any thread              Locks: none
 * Spec:  netlink(7), rtnetlink(7)
 */
#include "host/netlink.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "base/fd.h"

enum { NETLINK_BUFFER = 32768, NETLINK_TIMEOUT_S = 2 };

void netlink_begin(struct netlink_request *q, u16 type, size_t size)
{
	memset(q, 0, sizeof(*q));
	q->head.nlmsg_len = (u32)NLMSG_LENGTH(size);
	q->head.nlmsg_type = type;
	q->head.nlmsg_flags = NLM_F_REQUEST;
	q->head.nlmsg_seq = 1;
}

void netlink_add(struct netlink_request *q, u16 type, const void *data, size_t size)
{
	struct rtattr *a = (struct rtattr *)(void *)((char *)q + NLMSG_ALIGN(q->head.nlmsg_len));

	a->rta_type = type;
	a->rta_len = (unsigned short)RTA_LENGTH(size);
	memcpy(RTA_DATA(a), data, size);
	q->head.nlmsg_len = NLMSG_ALIGN(q->head.nlmsg_len) + (u32)RTA_ALIGN(a->rta_len);
}

void netlink_add_gid(struct netlink_request *q, u16 type, const u8 gid[16])
{
	size_t size = netlink_gid_is_v4(gid) ? 4 : 16;

	netlink_add(q, type, gid + 16 - size, size);
}

bool netlink_take_gid(const struct rtattr *a, u8 gid[16])
{
	size_t size = RTA_PAYLOAD(a);

	if (size != 4 && size != 16)
		return false;
	memset(gid, 0, 16);
	if (size == 4)
		gid[10] = gid[11] = 0xff;
	memcpy(gid + 16 - size, RTA_DATA(a), size);
	return true;
}

/* The messages of one datagram. 1: more datagrams come. */
static int netlink_read(const struct nlmsghdr *m, ssize_t n, u16 type,
			void (*take)(const struct nlmsghdr *m, void *context), void *context)
{
	u32 left = (u32)n;
	int more = -EPROTO;

	for (; NLMSG_OK(m, left); m = NLMSG_NEXT(m, left)) {
		if (m->nlmsg_type == NLMSG_ERROR &&
		    m->nlmsg_len >= NLMSG_LENGTH(sizeof(struct nlmsgerr)))
			return MIN(((const struct nlmsgerr *)NLMSG_DATA(m))->error, 0);
		if (m->nlmsg_type == NLMSG_DONE)
			return 0;
		if (m->nlmsg_flags & NLM_F_DUMP_INTR)
			return -EINTR;
		more = (m->nlmsg_flags & NLM_F_MULTI) != 0;
		if (m->nlmsg_type == type)
			take(m, context);
	}
	return more;
}

static int netlink_exchange(int fd, char *buffer, const struct netlink_request *q, u16 type,
			    void (*take)(const struct nlmsghdr *m, void *context), void *context)
{
	struct timeval limit = { .tv_sec = NETLINK_TIMEOUT_S };
	int more;

	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
	if (send(fd, q, q->head.nlmsg_len, 0) < 0)
		return -errno;
	do {
		ssize_t n = recv(fd, buffer, NETLINK_BUFFER, 0);

		if (n < 0 && errno != EINTR)
			return -errno;
		more = n < 0 ? 1 : netlink_read((const void *)buffer, n, type, take, context);
	} while (more > 0);
	return more;
}

int netlink_ask(struct netlink_request *q, u16 type,
		void (*take)(const struct nlmsghdr *m, void *context), void *context)
{
	/* not on the stack, which is the application's and may be small */
	char *buffer = malloc(NETLINK_BUFFER);
	int fd, err;

	if (buffer == NULL)
		return -ENOMEM;
	fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
	err = fd < 0 ? -errno : netlink_exchange(fd, buffer, q, type, take, context);
	if (fd >= 0)
		close(fd);
	free(buffer);
	return err;
}

int netlink_watch(u32 groups)
{
	struct sockaddr_nl addr = { .nl_family = AF_NETLINK, .nl_groups = groups };
	int fd = fd_own(socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, NETLINK_ROUTE)),
	    err;

	if (fd < 0)
		return -errno;
	if (bind(fd, (const void *)&addr, sizeof(addr)) == 0)
		return fd;
	err = -errno;
	close(fd);
	return err;
}
