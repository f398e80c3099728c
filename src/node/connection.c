/* connection.c: finds the node, or starts it.
 * In:    the node's name              Out: a connected socket whose other end is ours
 * Runs:  any thread; may block        Locks: none
 */
#include <errno.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "node/client_priv.h"
#include "node/spawn.h"

static void connection_sleep(u64 ns)
{
	struct timespec ts = { .tv_sec = (time_t)(ns / NS_PER_S),
			       .tv_nsec = (long)(ns % NS_PER_S) };

	/* a signal only makes the next look come earlier */
	nanosleep(&ts, NULL);
}

/* One try: the socket, -EACCES if somebody else sits there, or what connect() said. */
static int connection_try(const char *name)
{
	struct sockaddr_un addr;
	socklen_t length = address_make(name, &addr);
	int err, fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	s32 pid;

	if (fd < 0)
		return -errno;
	if (connect(fd, (struct sockaddr *)&addr, length) < 0) {
		err = -errno;
		close(fd);
		return err;
	}
	if (!address_peer_is_mine(fd, &pid)) {
		log_error("node", "the address of node %s is taken by another user's process %d",
			  name, (int)pid);
		close(fd);
		return -EACCES;
	}
	return fd;
}

/* Whether waiting may help. */
static bool connection_may_come(int err)
{
	return err == -ECONNREFUSED || err == -EAGAIN || err == -EINTR;
}

int connection_open(const char *name, bool start)
{
	u64 begin = clock_now_ns(), deadline = begin + NODE_ATTACH_S * NS_PER_S;
	u64 pause = 500 * NS_PER_US, respawn = begin;
	int err = 0, fd, tries = 0;

	for (;;) {
		u64 now;

		fd = connection_try(name);
		if (fd >= 0 || !connection_may_come(fd) || (!start && fd == -ECONNREFUSED))
			return fd;
		now = clock_now_ns();
		if (now >= deadline)
			break;
		/* a node that was just leaving, or died again: another second, another try */
		if (fd == -ECONNREFUSED && now >= respawn && tries++ < 3) {
			err = spawn_daemon(name);
			if (err < 0)
				return err == -EMFILE || err == -ENFILE || err == -ENOMEM
					       ? err
					       : -ECONNREFUSED;
			respawn = clock_now_ns() + NS_PER_S;
		}
		connection_sleep(pause);
		pause = MIN(pause * 3 / 2, 20 * NS_PER_MS);
	}
	log_error("node", "node %s does not answer", name);
	return -ECONNREFUSED;
}
