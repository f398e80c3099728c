/* service.c: the thread of the stream rsockets: takes the CM's events of each, and keeps
 * connections alive. It begins with the first listener or connection.
 * In:    descriptors of the CM's channels  Out: stream_take_events, stream_keepalive, linger_run
 * Runs:  a thread of its own               Locks: service.lock
 */
#include <pthread.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/cond.h"
#include "base/fd.h"
#include "base/fork.h"
#include "base/thread.h"
#include "stream.h"

enum { SERVICE_BATCH = 64 };

static struct service {
	struct lock lock;
	bool started GUARDED_BY(lock);
	int epoll GUARDED_BY(lock); /* fixed once started */
	int bell GUARDED_BY(lock);  /* an eventfd: the list has changed. Fixed likewise */
	int *alive GUARDED_BY(lock); /* numbers of rsockets to keep alive */
	u32 alive_count GUARDED_BY(lock);
	u32 alive_room GUARDED_BY(lock);
	int at GUARDED_BY(lock); /* the number whose rsocket the thread holds; -1: none */
	struct cond left GUARDED_BY(lock); /* `at` is another */
} service;

/* ---- the thread ------------------------------------------------------------------------------ */

static void service_go_to(int fd)
{
	lock_acquire(&service.lock);
	service.at = fd;
	cond_wake(&service.left);
	lock_release(&service.lock);
}

static void service_put(struct rsocket *rs)
{
	if (rs != NULL)
		table_put(rs);
	service_go_to(-1);
}

/* The stream of a number, held until service_put. */
static struct stream *service_get(int fd)
{
	struct rsocket *rs;

	service_go_to(fd);
	rs = table_get_leaving(fd);
	if (rs != NULL && rs->type == SOCK_STREAM)
		return stream_of(rs);
	service_put(rs);
	return NULL;
}

static void service_take_events(int fd)
{
	struct stream *s = service_get(fd);

	if (s == NULL)
		return;
	stream_take_events(s);
	service_put(&s->rs);
}

static u32 service_alive_count(void)
{
	u32 count;

	lock_acquire(&service.lock);
	count = service.alive_count;
	lock_release(&service.lock);
	return count;
}

/* The number at a place of the list; -1: behind its end. */
static int service_alive_at(u32 i)
{
	int fd = -1;

	lock_acquire(&service.lock);
	if (i < service.alive_count)
		fd = service.alive[i];
	lock_release(&service.lock);
	return fd;
}

/* Returns how many ms there are until the next one is due; -1: there is none. Any thread may
 * shorten the list meanwhile: the last number takes the place of the one that leaves. The pass goes
 * from the end to the beginning, so that a number that it has not seen moves to where it comes yet.
 */
static int service_keep_alive(void)
{
	u64 now = clock_now_ns(), next = UINT64_MAX;

	for (u32 i = service_alive_count(); i-- > 0;) {
		int fd = service_alive_at(i);
		struct stream *s = fd < 0 ? NULL : service_get(fd);

		if (s == NULL)
			continue;
		accept_look(s, now, &next);
		stream_judge_left(s, now, &next);
		stream_keepalive(s, now, &next);
		service_put(&s->rs);
	}
	linger_run(now, &next);
	if (next == UINT64_MAX)
		return -1;
	return (int)MIN((MAX(next, now) - now) / NS_PER_MS + 1, (u64)INT32_MAX);
}

static void *service_main(void *arg)
{
	int epoll = (int)(intptr_t)arg, bell, n, timeout_ms = -1;
	struct epoll_event events[SERVICE_BATCH];
	u64 value;

	pthread_setname_np(pthread_self(), "anyverbs/rs");
	lock_acquire(&service.lock);
	bell = service.bell;
	lock_release(&service.lock);
	for (;;) {
		n = epoll_wait(epoll, events, SERVICE_BATCH, timeout_ms);
		if (n < 0 && errno != EINTR)
			return NULL;
		for (int i = 0; i < n; i++) {
			if (events[i].data.fd == bell)
				(void)!read(bell, &value, sizeof(value));
			else
				service_take_events(events[i].data.fd);
		}
		timeout_ms = service_keep_alive();
	}
}

/* ---- starting -------------------------------------------------------------------------------- */

static void service_drop_in_child(void) NO_THREAD_SAFETY /* the only thread */
{
	if (service.started) {
		close(service.epoll);
		close(service.bell);
	}
	service.started = false;
	service.left = (struct cond){ .turn = 0 };
	service.alive_count = 0;
}
FORK_MAKES_ANEW(FORK_SERVICE, &service.lock, .child = service_drop_in_child);

static int service_spawn(void) REQUIRES(service.lock)
{
	return thread_start("anyverbs/rs", 0, NULL, service_main, (void *)(intptr_t)service.epoll);
}

static int service_open(void) REQUIRES(service.lock)
{
	struct epoll_event event = { .events = EPOLLIN };
	int err;

	service.at = -1;
	service.epoll = fd_own(epoll_create1(EPOLL_CLOEXEC));
	if (service.epoll < 0)
		return -errno;
	service.bell = event.data.fd = fd_own(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
	err = service.bell < 0 ||
			      epoll_ctl(service.epoll, EPOLL_CTL_ADD, service.bell, &event) != 0
		      ? -errno
		      : service_spawn();
	if (err == 0)
		return 0;
	if (service.bell >= 0)
		close(service.bell);
	close(service.epoll);
	return err;
}

static int service_start(void) REQUIRES(service.lock)
{
	int err = 0;

	if (!service.started)
		err = service_open();
	service.started = err == 0;
	return err;
}

int service_begin(void)
{
	int err;

	lock_acquire(&service.lock);
	err = service_start();
	lock_release(&service.lock);
	return err;
}

/* ---- what it watches ------------------------------------------------------------------------- */

static int service_add(int fd, int number) REQUIRES(service.lock)
{
	struct epoll_event event = { .events = EPOLLIN, .data.fd = number };

	return epoll_ctl(service.epoll, EPOLL_CTL_ADD, fd, &event) != 0 && errno != EEXIST ? -errno
											   : 0;
}

int service_watch(struct stream *s)
{
	int err;

	lock_acquire(&service.lock);
	err = service_start();
	if (err == 0)
		err = service_add(s->rs.fd, s->rs.fd);
	if (err == 0 && s->early != NULL)
		err = service_add(s->early->fd, s->rs.fd);
	lock_release(&service.lock);
	return err;
}

int service_hear(int fd, struct sleeper *bell)
{
	int err;

	lock_acquire(&service.lock);
	err = service_start();
	if (err == 0)
		err = service_add(fd, fd);
	if (err == 0)
		*bell = (struct sleeper){ .fd = service.bell };
	lock_release(&service.lock);
	return err;
}

static void service_remove(int fd)
{
	lock_acquire(&service.lock);
	if (service.started)
		(void)epoll_ctl(service.epoll, EPOLL_CTL_DEL, fd, NULL);
	lock_release(&service.lock);
}

void service_pause(struct stream *s)
{
	service_remove(s->rs.fd);
}

void service_unwatch(struct stream *s)
{
	service_remove(s->rs.fd);
	if (s->early != NULL)
		service_remove(s->early->fd);
}

void service_leave(int fd)
{
	lock_acquire(&service.lock);
	while (service.started && service.at == fd)
		cond_wait(&service.left, &service.lock);
	lock_release(&service.lock);
}

static u32 service_alive_find(int fd) REQUIRES(service.lock)
{
	u32 i = 0;

	while (i < service.alive_count && service.alive[i] != fd)
		i++;
	return i;
}

static int service_alive_add(int fd) REQUIRES(service.lock)
{
	u32 room = MAX(service.alive_room * 2, 16u);
	int *grown;

	if (service.alive_count == service.alive_room) {
		grown = realloc(service.alive, room * sizeof(*grown));
		if (grown == NULL)
			return -ENOMEM;
		service.alive = grown;
		service.alive_room = room;
	}
	service.alive[service.alive_count++] = fd;
	return 0;
}

int service_keepalive(struct stream *s, bool on)
{
	u64 one = 1;
	u32 i;
	int err;

	lock_acquire(&service.lock);
	i = service_alive_find(s->rs.fd);
	err = on ? service_start() : 0;
	if (err == 0 && on && i == service.alive_count)
		err = service_alive_add(s->rs.fd);
	if (!on && i < service.alive_count)
		service.alive[i] = service.alive[--service.alive_count];
	if (err == 0 && service.started && on)
		(void)!write(service.bell, &one, sizeof(one));
	lock_release(&service.lock);
	return err;
}
