/* watch.c: the kernel's announcements of interfaces and addresses.
 * In:    rtnetlink messages            Out: whether to look again
 * Runs:  the daemon's only thread      Locks: none
 */
#include "node/daemon/watch.h"

#include <errno.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <sys/socket.h>
#include <unistd.h>

enum { WATCH_READS = 64 };

int watch_open(void)
{
	struct sockaddr_nl addr = { .nl_family = AF_NETLINK,
				    .nl_groups = RTMGRP_LINK | RTMGRP_IPV4_IFADDR |
						 RTMGRP_IPV6_IFADDR };
	int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, NETLINK_ROUTE);
	int err;

	if (fd < 0)
		return -errno;
	if (bind(fd, (struct sockaddr *)&addr, sizeof(addr)) == 0)
		return fd;
	err = -errno;
	close(fd);
	return err;
}

bool watch_read(int fd)
{
	char dropped[4096];
	bool any = false;
	ssize_t n = 1;

	/* the addresses are read anew anyway; so they are after an overflow (ENOBUFS) */
	for (int i = 0; i < WATCH_READS && n > 0; i++) {
		n = recv(fd, dropped, sizeof(dropped), 0);
		any |= n > 0 || (n < 0 && errno == ENOBUFS);
	}
	return any;
}
