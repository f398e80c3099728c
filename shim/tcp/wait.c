/* wait.c: one wait for rsockets, listeners, epolls and the kernel's descriptors together, by
 * rpoll(); poll and ppoll.
 * In: descriptors and events    Out: events as TCP has them    Runs: any thread
 * Locks: none; epoll.c's while it adds an epoll
 *
 * rpoll() may say POLLHUP as soon as the peer has closed, as rdma-core's does. TCP says then that
 * there is something to read (the end) and that writing does not block (it fails); POLLHUP comes
 * when this end has shut down, too. An event that nobody wants to know would end every wait at
 * once: its entry leaves the wait.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "rsockets.h"

NEXT_SLOT(poll);
NEXT_SLOT(ppoll);

/* This thread is in rpoll(), whose own poll() is the kernel's. */
static __thread bool wait_inside;

void wait_begin(struct wait *w)
{
	w->fds = w->small_fds;
	w->entries = w->small_entries;
	w->count = 0;
	w->room = WAIT_SMALL;
	w->direct = w->early = false;
	w->most_ms = -1;
}

static bool wait_grow(struct wait *w)
{
	u32 room = w->room * 2;
	struct pollfd *fds = malloc(room * sizeof(*fds));
	struct wait_entry *entries = malloc(room * sizeof(*entries));

	if (fds == NULL || entries == NULL) {
		free(fds);
		free(entries);
		errno = ENOMEM;
		return false;
	}
	memcpy(fds, w->fds, w->count * sizeof(*fds));
	memcpy(entries, w->entries, w->count * sizeof(*entries));
	if (w->fds != w->small_fds) {
		free(w->fds);
		free(w->entries);
	}
	w->fds = fds;
	w->entries = entries;
	w->room = room;
	return true;
}

static int wait_push(struct wait *w, int fd, short events, struct wait_entry entry)
{
	if (w->count == w->room && !wait_grow(w))
		return -1;
	w->fds[w->count] = (struct pollfd){ .fd = fd, .events = events };
	w->entries[w->count] = entry;
	return (int)w->count++;
}

int wait_add_plain(struct wait *w, int fd, short events)
{
	return wait_push(w, fd, events, (struct wait_entry){ .want = events });
}

/* An rsocket knows three events that a program may want. */
static short wait_direct_events(short events)
{
	return (short)((events & (POLLIN | POLLRDNORM) ? POLLIN : 0) | (events & POLLRDHUP) |
		       (events & (POLLOUT | POLLWRNORM) ? POLLOUT : 0));
}

static int wait_add_listener(struct wait *w, struct sock *s, int fd, short events, short mute)
{
	int retry, at = wait_push(w, fd, events, (struct wait_entry){ s, events, mute });

	if (at < 0)
		return -1;
	sock_hold(s);
	if (wait_push(w, __atomic_load_n(&s->bell, __ATOMIC_ACQUIRE), events & POLLIN,
		      (struct wait_entry){ NULL, events, mute }) < 0)
		return -1;
	retry = listener_retry_ms(s);
	if (retry >= 0 && (w->most_ms < 0 || retry < w->most_ms))
		w->most_ms = retry;
	return at;
}

int wait_add_sock(struct wait *w, struct sock *s, int fd, short events, short mute)
{
	struct wait_entry entry = { s, events, mute };
	int at;

	switch (sock_kind(s)) {
	case SOCK_LISTENER:
		return wait_add_listener(w, s, fd, events, mute);
	case SOCK_DIRECT:
		at = wait_push(w, s->rfd, wait_direct_events(events), entry);
		w->direct = true;
		break;
	default:
		sock_use(s);
		at = wait_push(w, fd, events, entry);
	}
	if (at >= 0)
		sock_hold(s);
	return at;
}

int wait_add(struct wait *w, int fd, short events)
{
	struct sock *s = sock_get(fd);
	int at;

	if (s == NULL)
		return ep_is_ours(fd) ? ep_wait_add(w, fd, events) : wait_add_plain(w, fd, events);
	if (sock_kind(s) == SOCK_LISTENER)
		listener_want(s, fd);
	at = wait_add_sock(w, s, fd, events, 0);
	sock_put(s);
	return at;
}

bool wait_is_ours(int fd)
{
	return (unsigned)fd < FD_LIMIT &&
	       (__atomic_load_n(&table_socks[fd], __ATOMIC_ACQUIRE) != NULL || ep_is_ours(fd));
}

/* As TCP says it. */
static short wait_translate(const struct sock *s, short want, short got)
{
	bool gone = got & POLLHUP, error = got & POLLERR;
	short told = (short)(got & (POLLERR | POLLNVAL));

	if (got & POLLIN || gone || error)
		told |= (short)(want & (POLLIN | POLLRDNORM));
	if (got & POLLOUT || gone || error)
		told |= (short)(want & (POLLOUT | POLLWRNORM));
	if (got & POLLRDHUP || gone)
		told |= (short)(want & POLLRDHUP);
	if (gone && __atomic_load_n(&s->shut_write, __ATOMIC_ACQUIRE))
		told |= POLLHUP;
	return told;
}

static short wait_told(const struct wait *w, u32 i)
{
	const struct wait_entry *e = &w->entries[i];
	short got = w->fds[i].revents;

	if (e->sock != NULL && sock_kind(e->sock) == SOCK_DIRECT && w->fds[i].fd == e->sock->rfd)
		got = wait_translate(e->sock, e->want, got);
	return (short)(got & ~e->mute);
}

short wait_result(const struct wait *w, u32 at, u32 end)
{
	short any = 0;

	if (end == at + 1)
		return w->fds[at].revents;
	if (end == at + 2 && w->entries[at].sock != NULL)
		return (short)(w->fds[at].revents | (w->fds[at + 1].revents & POLLIN));
	for (u32 i = at; i < end; i++)
		any |= w->fds[i].revents;
	return any != 0 ? (short)(POLLIN & w->entries[at].want) : 0;
}

static void wait_outside(const bool *inside)
{
	wait_inside = !*inside;
}

static int wait_rpoll(struct wait *w, int timeout_ms)
{
	bool inside CLEANUP(wait_outside) = true;

	wait_inside = inside;
	return rcalls.poll(w->fds, w->count, timeout_ms);
}

/* Signals that are blocked meanwhile, and a signalfd of some of them. */
struct wait_signals {
	sigset_t old;
	struct wait *w;
	int fd, at; /* the signalfd, and its entry; -1: none */
} OWNED_BY(the caller);

static void wait_signals_end(struct wait_signals *m)
{
	int saved = errno;
	QUIET();

	pthread_sigmask(SIG_SETMASK, &m->old, NULL);
	if (m->at >= 0)
		m->w->count--;
	if (m->fd >= 0)
		close(m->fd);
	errno = saved;
}

/* rpoll() has no mask of signals. Those that the mask lets through stay blocked, and a signalfd
 * among the descriptors says that one is pending; then its handler runs, and the wait ends. */
static int wait_rpoll_masked(struct wait *w, int timeout_ms, const sigset_t *mask)
{
	struct wait_signals m CLEANUP(wait_signals_end) = { .w = w, .fd = -1, .at = -1 };
	sigset_t open;
	int n;

	pthread_sigmask(SIG_BLOCK, mask, &m.old);
	sigemptyset(&open);
	for (int number = 1; number < 65; number++)
		if (sigismember(&m.old, number) == 1 && sigismember(mask, number) == 0)
			sigaddset(&open, number);
	m.fd = signalfd(-1, &open, SFD_CLOEXEC | SFD_NONBLOCK);
	if (m.fd >= 0)
		m.at = wait_add_plain(w, m.fd, POLLIN);
	n = wait_rpoll(w, timeout_ms);
	if (n > 0 && m.at >= 0 && w->fds[m.at].revents != 0) {
		pthread_sigmask(SIG_SETMASK, mask, NULL);
		errno = EINTR;
		n = -1;
	}
	return n;
}

static int wait_kernel(struct pollfd *fds, u32 count, int timeout_ms, const sigset_t *mask)
{
	struct timespec t = { timeout_ms / 1000, timeout_ms % 1000 * 1000000L };

	return NEXT(ppoll)(fds, count, timeout_ms < 0 ? NULL : &t, mask);
}

int wait_left(int timeout_ms, u64 until)
{
	u64 now;

	if (timeout_ms <= 0)
		return timeout_ms;
	now = now_ms();
	return now >= until ? 0 : (int)(until - now);
}

int wait_run(struct wait *w, int timeout_ms, const sigset_t *mask)
{
	u64 until = timeout_ms > 0 ? now_ms() + (u64)timeout_ms : 0;

	for (;;) {
		int left = wait_left(timeout_ms, until), n, ready = 0;

		w->early = w->most_ms >= 0 && (left < 0 || left > w->most_ms);
		if (w->early)
			left = w->most_ms;
		if (!w->direct)
			n = wait_kernel(w->fds, w->count, left, mask);
		else
			n = mask == NULL ? wait_rpoll(w, left) : wait_rpoll_masked(w, left, mask);
		if (n <= 0)
			return n;
		for (u32 i = 0; i < w->count; i++) {
			if (w->fds[i].revents == 0)
				continue;
			w->fds[i].revents = wait_told(w, i);
			if (w->fds[i].revents != 0)
				ready++;
			else
				w->fds[i].fd = -1;
		}
		if (ready > 0)
			return 1;
	}
}

void wait_end(struct wait *w)
{
	int saved = errno;

	for (u32 i = 0; i < w->count; i++)
		if (w->entries[i].sock != NULL)
			sock_put(w->entries[i].sock);
	if (w->fds != w->small_fds) {
		free(w->fds);
		free(w->entries);
	}
	w->fds = w->small_fds;
	w->count = 0;
	errno = saved;
}

int wait_one(struct sock *s, short events, int timeout_ms)
{
	struct wait w CLEANUP(wait_end);

	wait_begin(&w);
	if (wait_add_sock(&w, s, -1, events, 0) < 0)
		return -1;
	return wait_run(&w, timeout_ms > 0 ? timeout_ms : -1, NULL);
}

/* One poll(): a wait, and where the entries of each descriptor begin. */
struct poll_state {
	struct wait w;
	u32 *at; /* `small`, or malloc'ed */
	u32 small[WAIT_SMALL + 1];
} OWNED_BY(the caller);

static void poll_end(struct poll_state *p)
{
	wait_end(&p->w);
	if (p->at != p->small)
		free(p->at);
}

/* How many are ready; 0 with *over: the time is over; -1: errno. */
static int poll_once(struct poll_state *p, struct pollfd *fds, nfds_t count, int timeout,
		     const sigset_t *mask, bool *over)
{
	int n = 0;

	for (nfds_t i = 0; i < count; i++) {
		p->at[i] = p->w.count;
		if (wait_add(&p->w, fds[i].fd, fds[i].events) < 0)
			return -1;
	}
	p->at[count] = p->w.count;
	n = wait_run(&p->w, timeout, mask);
	if (n < 0)
		return -1;
	*over = n == 0 && !p->w.early;
	n = 0;
	for (nfds_t i = 0; i < count; i++) {
		fds[i].revents = wait_result(&p->w, p->at[i], p->at[i + 1]);
		n += fds[i].revents != 0;
	}
	return n;
}

static int poll_ours(struct pollfd *fds, nfds_t count, int timeout, const sigset_t *mask)
{
	u64 until = timeout > 0 ? now_ms() + (u64)timeout : 0;
	struct poll_state p CLEANUP(poll_end);
	bool over = false;
	int n;

	wait_begin(&p.w);
	p.at = count <= WAIT_SMALL ? p.small : malloc((count + 1) * sizeof(*p.at));
	if (p.at == NULL)
		return -1;
	for (;;) {
		n = poll_once(&p, fds, count, wait_left(timeout, until), mask, &over);
		if (n != 0 || over || timeout == 0)
			return n;
		wait_end(&p.w);
		wait_begin(&p.w);
	}
}

static bool poll_is_ours(const struct pollfd *fds, nfds_t count)
{
	if (wait_inside)
		return false;
	for (nfds_t i = 0; i < count; i++)
		if (wait_is_ours(fds[i].fd))
			return true;
	return false;
}

AV_EXPORT int poll(struct pollfd *fds, nfds_t count, int timeout)
{
	CALL c = call_begin_plain();

	return poll_is_ours(fds, count) ? poll_ours(fds, count, timeout < 0 ? -1 : timeout, NULL) :
					  NEXT(poll)(fds, count, timeout);
}

/* Up to the next ms, as a timer does that is not to end early. */
static int poll_ms(const struct timespec *t)
{
	if (t == NULL)
		return -1;
	return t->tv_sec >= 2000000 ? 2000000000 :
				      (int)(t->tv_sec * 1000 + (t->tv_nsec + 999999) / 1000000);
}

AV_EXPORT int ppoll(struct pollfd *fds, nfds_t count, const struct timespec *timeout,
		    const sigset_t *mask)
{
	CALL c = call_begin_plain();

	return poll_is_ours(fds, count) ?
		       poll_ours(fds, count, poll_ms(timeout), mask) :
		       NEXT(ppoll)(fds, count, timeout, mask);
}
