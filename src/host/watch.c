/* watch.c: the kernel's announcements of interfaces and addresses.
 * In:    rtnetlink messages            Out: whether to look again
 * Runs:  the daemon's only thread      Locks: none
 */
#include "host/watch.h"

#include <errno.h>
#include <linux/rtnetlink.h>
#include <sys/socket.h>

#include "host/netlink.h"

enum { WATCH_READS = 64 };

int watch_open(void)
{
	return netlink_watch(RTMGRP_LINK | RTMGRP_IPV4_IFADDR | RTMGRP_IPV6_IFADDR);
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
