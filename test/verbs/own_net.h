/* own_net.h: a network namespace for a test that makes interfaces. */
#ifndef TEST_VERBS_OWN_NET_H
#define TEST_VERBS_OWN_NET_H

#include <fcntl.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static inline void own_net_write(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);

	if (fd < 0)
		return;
	(void)!write(fd, text, strlen(text));
	close(fd);
}

/* Moves the calling process, which has one thread, into a network namespace of its own; as root of
 * a user namespace where it is not root already. False: the host forbids both.
 */
static inline bool own_net_enter(void)
{
	char map[64];

	if (unshare(CLONE_NEWNET) == 0)
		return true;
	snprintf(map, sizeof(map), "0 %u 1", (unsigned)geteuid());
	if (unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0)
		return false;
	own_net_write("/proc/self/setgroups", "deny");
	own_net_write("/proc/self/uid_map", map);
	return geteuid() == 0;
}

#endif /* TEST_VERBS_OWN_NET_H */
