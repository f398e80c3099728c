/* loop.c: an epoll loop that takes one event per turn, so that a handler may free any source.
 * In:    descriptors      Out: calls of their handlers
 * Runs:  the daemon's only thread      Locks: none
 */
#include "daemon/loop.h"

#include <errno.h>
#include <sys/epoll.h>
#include <unistd.h>

int loop_init(struct loop *l)
{
	l->stop = false;
	l->fd = epoll_create1(EPOLL_CLOEXEC);
	return l->fd < 0 ? -errno : 0;
}

void loop_destroy(struct loop *l)
{
	close(l->fd);
}

int loop_add(struct loop *l, struct loop_source *s, int fd, u32 events,
	     void (*fn)(struct loop_source *s, u32 events))
{
	struct epoll_event ev = { .events = events, .data.ptr = s };

	if (epoll_ctl(l->fd, EPOLL_CTL_ADD, fd, &ev) < 0)
		return -errno;
	s->fd = fd;
	s->fn = fn;
	return 0;
}

void loop_change(struct loop *l, struct loop_source *s, u32 events)
{
	struct epoll_event ev = { .events = events, .data.ptr = s };

	epoll_ctl(l->fd, EPOLL_CTL_MOD, s->fd, &ev);
}

void loop_remove(struct loop *l, struct loop_source *s)
{
	epoll_ctl(l->fd, EPOLL_CTL_DEL, s->fd, NULL);
}

void loop_turn(struct loop *l, int timeout_ms)
{
	struct epoll_event ev;

	if (epoll_wait(l->fd, &ev, 1, timeout_ms) == 1) {
		struct loop_source *s = ev.data.ptr;

		s->fn(s, ev.events);
	}
}
