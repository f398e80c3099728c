/* connection.c: finds the node, or starts it. It listens in its private folder, and at an abstract
 * address for processes that do not see the folder. Any user can take those addresses.
 * In:    the node's name              Out: a socket connected to a process of this user
 * Runs:  any thread; may block        Locks: none
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"
#include "node/await.h"
#include "node/client_priv.h"
#include "node/place.h"
#include "node/spawn.h"

static void connection_sleep(u64 ns)
{
	struct timespec ts = { .tv_sec = (time_t)(ns / NS_PER_S),
			       .tv_nsec = (long)(ns % NS_PER_S) };

	/* a signal only makes the next attempt come earlier */
	nanosleep(&ts, NULL);
}

/* Returns the socket, -EACCES if another user's process listens there, or connect()'s error. *pid:
 * that process', 0 where this process cannot see it. */
static int connection_connect(const struct sockaddr_un *addr, socklen_t length, s32 *pid)
{
	int err, fd = fd_own(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));

	if (fd < 0)
		return -errno;
	err = connect(fd, (const struct sockaddr *)addr, length) < 0 ? -errno : 0;
	if (err == 0 && address_peer_is_mine(fd, pid))
		return fd;
	/* Another user has taken the address since the probe: closing could wait for what he has
	 * sent (address_probe), so the socket stays. */
	if (err == 0)
		return -EACCES;
	close(fd);
	return err;
}

/* -ECONNREFUSED: no node listens in a folder. */
static int connection_in_folder(enum place_scope scope, const char *name)
{
	char path[PLACE_PATH];
	struct sockaddr_un addr;
	s32 pid;

	for (int i = 0; i < PLACE_COUNT; i++) {
		int fd, folder = place_open(i, scope, name, false, path);

		if (folder < 0)
			continue;
		fd = connection_connect(&addr, place_address(folder, path, &addr), &pid);
		close(folder);
		if (fd >= 0 || fd == -EAGAIN || fd == -EMFILE || fd == -ENFILE)
			return fd;
	}
	return -ECONNREFUSED;
}

/* Tries each abstract address, for one that no process listens at says nothing of the next. Sets
 * *taken if another user has one, and *pid then. -EAGAIN: one is bound, and no process accepts;
 * -ECONNREFUSED: no node. */
static int connection_at_names(const char *name, bool *taken, s32 *pid)
{
	struct sockaddr_un addr;
	bool full = false;

	for (u32 i = 0; i < ADDRESS_NAMES; i++) {
		socklen_t length = address_make(name, i, &addr);
		s32 peer;
		int fd = address_probe(&addr, length, &peer);

		if (fd == 0)
			fd = connection_connect(&addr, length, &peer);
		if (fd == -EACCES && !*taken)
			*pid = peer;
		*taken |= fd == -EACCES;
		full |= fd == -EAGAIN;
		if (fd != -EACCES && fd != -ECONNREFUSED && fd != -EAGAIN)
			return fd;
	}
	return full && !*taken ? -EAGAIN : -ECONNREFUSED;
}

/* One attempt: the socket or a negative errno, as connection_at_names. The folder comes first: it
 * is this user's alone. */
static int connection_try(const char *name, enum place_scope scope, bool *taken, s32 *pid)
{
	int at_names, fd = connection_in_folder(scope, name);

	if (scope == PLACE_MACHINE || fd != -ECONNREFUSED)
		return fd;
	at_names = address_user_is_unique() ? connection_at_names(name, taken, pid) : fd;
	if (at_names != -ECONNREFUSED && at_names != -EAGAIN)
		return at_names;
	fd = connection_in_folder(PLACE_MACHINE, name);
	return fd == -ECONNREFUSED ? at_names : fd;
}

static int connection_give_up(const char *name, bool taken, s32 pid)
{
	char whose[32] = "";

	if (!taken) {
		log_error("node", "node %s does not answer", name);
		return -ECONNREFUSED;
	}
	if (pid > 0)
		snprintf(whose, sizeof(whose), " %d", (int)pid);
	log_error("node",
		  "addresses of node %s are taken by another user's process%s, and it does not "
		  "answer in a folder of its own",
		  name, whose);
	return -EACCES;
}

enum {
	CONNECTION_PAUSE_MS = 100,
	/* at least so many attempts: some more than 5 seconds have while the host is idle */
	CONNECTION_TRIES = NODE_ATTACH_S * 1000 / CONNECTION_PAUSE_MS,
};

/* Tells whether the time is over, but the node may still begin to listen, or to accept: it gets no
 * CPU. The node's state tells if this thread started it. If another process did, this thread's own
 * attempts tell: there are fewer of them in the time. */
static bool connection_is_late(u64 begin, u64 now, u32 tries, s32 daemon)
{
	return now < begin + AWAIT_BUSY_S * NS_PER_S &&
	       (tries < CONNECTION_TRIES || await_is_busy(daemon));
}

/* Tells whether waiting may help. */
static bool connection_may_come(int err)
{
	return err == -ECONNREFUSED || err == -EAGAIN || err == -EINTR;
}

int connection_open(const char *name, enum place_scope scope, bool start)
{
	u64 begin = clock_now_ns(), deadline = begin + NODE_ATTACH_S * NS_PER_S;
	u64 pause = 500 * NS_PER_US, respawn = begin;
	u32 tries = 0, daemons = 0;
	int err = 0, fd;
	bool taken = false;
	s32 pid = 0, daemon = 0;

	for (;;) {
		u64 now;

		fd = connection_try(name, scope, &taken, &pid);
		if (fd >= 0 || !connection_may_come(fd) || (!start && fd == -ECONNREFUSED))
			return fd;
		now = clock_now_ns();
		tries++;
		if (now >= deadline) {
			if (!connection_is_late(begin, now, taken ? CONNECTION_TRIES : tries,
						daemon))
				break;
			if (tries >= CONNECTION_TRIES)
				deadline = now + NS_PER_S;
		}
		/* a node that was just leaving, or died again: try for another second. An address
		 * where none accepts for a second may be another user's */
		if ((fd == -ECONNREFUSED || (start && now >= begin + NS_PER_S)) && now >= respawn &&
		    !await_is_busy(daemon) && daemons++ < 3) {
			err = spawn_daemon(name, scope, &daemon);
			if (err < 0)
				return err == -EMFILE || err == -ENFILE || err == -ENOMEM
					       ? err
					       : -ECONNREFUSED;
			respawn = clock_now_ns() + NS_PER_S;
		}
		connection_sleep(pause);
		pause = MIN(pause * 3 / 2, CONNECTION_PAUSE_MS * NS_PER_MS);
	}
	return connection_give_up(name, taken, pid);
}
