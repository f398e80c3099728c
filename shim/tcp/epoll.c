/* epoll.c: epoll over descriptors of all kinds.
 * In: the program's calls    Out: events    Runs: any thread
 * Locks: epoll.lock, a leaf but for table.lock
 *
 * The kernel's epoll keeps the kernel's descriptors; an item here is a socket of ours, or an epoll
 * inside an epoll, which the kernel's epoll has, too: the item stands for the inner one's sockets
 * of ours. A wait without items is the kernel's. With some it is one rpoll() of the kernel's epoll
 * and the items. Libraries wait by system calls of their own: what they add stays the kernel's.
 *
 * EPOLLET: what an item has reported it does not report again until the program has read (IN), or
 * was told that writing would block (OUT). The kernel reports IN also when more comes before the
 * program reads; programs that wait for an edge have read all.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "rsockets.h"

NEXT_SLOT(epoll_create);
NEXT_SLOT(epoll_create1);
NEXT_SLOT(epoll_ctl);
NEXT_SLOT(epoll_wait);
NEXT_SLOT(epoll_pwait);
NEXT_SLOT(read);
NEXT_SLOT(write);

enum { EP_DEPTH = 5, EP_KINDS = 0xffff, EP_LISTENERS = 16, EP_WANT_MS = 100 };

struct ep {
	u32 refs;	/* the table's, and waits' */
	u32 slots;	/* descriptors */
	u32 count;	/* items */
	u32 waiting;	/* waits under way */
	u32 outer;	/* items that are this epoll */
	int wake;	/* an eventfd in the kernel's epoll: what it waits for has changed */
	u64 wanted_ms;	/* when listeners were looked at last */
	struct list_head items;
} OWNED_BY(epoll.lock);

struct item {
	struct list_head in_ep;
	struct list_head in_sock; /* of a sock */
	u32 refs;		  /* the list's, and waits' */
	bool gone;		  /* no longer in the list */
	bool off;		  /* EPOLLONESHOT has fired */
	struct ep *ep;
	struct sock *s;	  /* NULL: an epoll, `inner` */
	struct ep *inner; /* its descriptor is `fd` */
	int fd;
	u32 events;
	short reported; /* EPOLLET */
	epoll_data_t data;
} OWNED_BY(epoll.lock);

static struct {
	struct lock lock ONE_AT_A_TIME; /* every struct ep and struct item */
} epoll;

struct ep *ep_table[FD_LIMIT];

/* The mark of `wake` among the kernel's events: an address that no program knows. */
#define EP_WAKE ((u64)(uintptr_t)&epoll ^ 0x9e3779b97f4a7c15ULL)

static void ep_ring(struct ep *e)
{
	u64 one = 1;
	QUIET();

	(void)!NEXT(write)(e->wake, &one, sizeof(one));
}

/* ---- lives, all REQUIRES(epoll.lock) ---- */

static void item_put(struct item *it)
{
	if (--it->refs == 0)
		free(it);
}

static void item_remove(struct item *it)
{
	list_remove(&it->in_ep);
	if (it->s != NULL)
		list_remove(&it->in_sock);
	if (it->inner != NULL)
		it->inner->outer--;
	it->gone = true;
	it->ep->count--;
	item_put(it);
}

static void ep_put(struct ep *e)
{
	if (--e->refs != 0)
		return;
	list_for_each_safe(it, &e->items, struct item, in_ep)
		item_remove(it);
	if (e->wake >= 0)
		close(e->wake);
	free(e);
}

static struct ep *ep_find(int fd)
{
	return (unsigned)fd < FD_LIMIT ? ep_table[fd] : NULL;
}

static struct item *item_find(struct ep *e, int fd, const struct sock *s, const struct ep *inner)
{
	list_for_each(it, &e->items, struct item, in_ep)
		if (it->fd == fd && it->s == s && it->inner == inner)
			return it;
	return NULL;
}

/* ---- descriptors ---- */

static int ep_created(int fd)
{
	struct epoll_event wake = { .events = EPOLLIN, .data.u64 = EP_WAKE };
	struct ep *e;
	int saved = errno;

	if (fd < 0 || fd >= FD_LIMIT)
		return fd;
	e = calloc(1, sizeof(*e));
	if (e == NULL)
		return fd;
	list_init(&e->items);
	e->refs = e->slots = 1;
	e->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (e->wake >= 0)
		e->wake = fd_own(e->wake);
	if (e->wake < 0 || NEXT(epoll_ctl)(fd, EPOLL_CTL_ADD, e->wake, &wake) != 0) {
		ep_put(e);
	} else {
		lock_acquire(&epoll.lock);
		__atomic_store_n(&ep_table[fd], e, __ATOMIC_RELEASE);
		lock_release(&epoll.lock);
	}
	errno = saved;
	return fd;
}

AV_EXPORT int epoll_create(int size)
{
	QUIET();

	return ep_created(NEXT(epoll_create)(size));
}

AV_EXPORT int epoll_create1(int flags)
{
	QUIET();

	return ep_created(NEXT(epoll_create1)(flags));
}

/* An epoll that is closed leaves those that it was in. */
static void ep_leave(const struct ep *inner)
{
	for (int fd = 0; fd < FD_LIMIT; fd++) {
		if (ep_table[fd] == NULL)
			continue;
		list_for_each_safe(it, &ep_table[fd]->items, struct item, in_ep)
			if (it->inner == inner)
				item_remove(it);
	}
}

void ep_closed(int fd)
{
	struct ep *e;

	lock_acquire(&epoll.lock);
	e = ep_find(fd);
	if (e != NULL) {
		__atomic_store_n(&ep_table[fd], NULL, __ATOMIC_RELEASE);
		if (--e->slots == 0 && e->outer > 0)
			ep_leave(e);
		ep_put(e);
	}
	lock_release(&epoll.lock);
}

void ep_copied(int from, int to)
{
	struct ep *e;

	if ((unsigned)to >= FD_LIMIT)
		return;
	lock_acquire(&epoll.lock);
	e = ep_find(from);
	if (e != NULL) {
		e->refs++;
		e->slots++;
		__atomic_store_n(&ep_table[to], e, __ATOMIC_RELEASE);
	}
	lock_release(&epoll.lock);
}

bool ep_is_ours(int fd)
{
	struct ep *e = (unsigned)fd < FD_LIMIT ? __atomic_load_n(&ep_table[fd], __ATOMIC_ACQUIRE) :
						 NULL;
	bool ours;

	if (e == NULL)
		return false;
	lock_acquire(&epoll.lock);
	e = ep_find(fd);
	ours = e != NULL && e->count > 0;
	lock_release(&epoll.lock);
	return ours;
}

void ep_rearm(struct sock *s, u8 what)
{
	short bits = (short)((what & REARM_IN ? POLLIN | POLLRDNORM | POLLRDHUP : 0) |
			     (what & REARM_OUT ? POLLOUT | POLLWRNORM : 0));

	lock_acquire(&epoll.lock);
	__atomic_fetch_and(&s->et_reported, (u8)~what, __ATOMIC_ACQ_REL);
	list_for_each(it, &s->items, struct item, in_sock) {
		if ((it->reported & bits) == 0)
			continue;
		it->reported &= (short)~bits;
		if (it->ep->waiting > 0)
			ep_ring(it->ep);
	}
	lock_release(&epoll.lock);
}

void ep_moved(struct sock *s)
{
	lock_acquire(&epoll.lock);
	list_for_each(it, &s->items, struct item, in_sock)
		if (it->ep->waiting > 0)
			ep_ring(it->ep);
	lock_release(&epoll.lock);
}

void ep_forget(struct sock *s)
{
	lock_acquire(&epoll.lock);
	list_for_each_safe(it, &s->items, struct item, in_sock) {
		struct ep *e = it->ep;

		item_remove(it);
		if (e->waiting > 0)
			ep_ring(e);
	}
	lock_release(&epoll.lock);
}

FORK_TAKES(FORK_SHIM_EPOLL, &epoll.lock);

/* ---- epoll_ctl ---- */

/* Waits for this epoll, and for those that it is in, begin anew. */
static void ep_changed(struct ep *e) REQUIRES(epoll.lock)
{
	if (e->waiting > 0)
		ep_ring(e);
	for (int fd = 0; e->outer > 0 && fd < FD_LIMIT; fd++) {
		struct ep *outer = ep_table[fd];

		if (outer == NULL || outer->waiting == 0)
			continue;
		list_for_each(it, &outer->items, struct item, in_ep)
			if (it->inner == e) {
				ep_ring(outer);
				break;
			}
	}
}

static int ep_add(struct ep *e, int fd, struct sock *s, struct ep *inner,
		  const struct epoll_event *event) REQUIRES(epoll.lock)
{
	struct item *it;

	if (item_find(e, fd, s, inner) != NULL)
		return -EEXIST;
	it = calloc(1, sizeof(*it));
	if (it == NULL)
		return -ENOMEM;
	it->refs = 1;
	it->ep = e;
	it->s = s;
	it->inner = inner;
	it->fd = fd;
	it->events = event->events;
	it->data = event->data;
	list_push_back(&e->items, &it->in_ep);
	if (s != NULL)
		list_push_back(&s->items, &it->in_sock);
	else
		inner->outer++;
	e->count++;
	return 0;
}

static int ep_change(struct ep *e, int op, int fd, struct sock *s, struct ep *inner,
		     const struct epoll_event *event) REQUIRES(epoll.lock)
{
	struct item *it;

	if (op != EPOLL_CTL_DEL && event == NULL)
		return -EFAULT;
	if (op == EPOLL_CTL_ADD)
		return ep_add(e, fd, s, inner, event);
	it = item_find(e, fd, s, inner);
	if (it == NULL)
		return -ENOENT;
	if (op == EPOLL_CTL_DEL) {
		item_remove(it);
		return 0;
	}
	if (op != EPOLL_CTL_MOD)
		return -EINVAL;
	it->events = event->events;
	it->data = event->data;
	it->reported = 0;
	it->off = false;
	return 0;
}

/* One of ours, in an epoll that we know. 1: neither, the kernel has the call. */
static int ep_ctl(int epfd, int op, int fd, struct sock *s, struct epoll_event *event)
{
	struct ep *e, *inner;
	int err = 1;

	lock_acquire(&epoll.lock);
	e = ep_find(epfd);
	inner = s == NULL ? ep_find(fd) : NULL;
	if (e != NULL && (s != NULL || inner != NULL))
		err = e == inner ? -EINVAL : ep_change(e, op, fd, s, inner, event);
	if (err == 0)
		ep_changed(e);
	lock_release(&epoll.lock);
	return err;
}

AV_EXPORT int epoll_ctl(int epfd, int op, int fd, struct epoll_event *event)
{
	struct sock *s;
	int err;
	QUIET();

	s = sock_get(fd);
	if (s == NULL && ((unsigned)fd >= FD_LIMIT ||
			  __atomic_load_n(&ep_table[fd], __ATOMIC_ACQUIRE) == NULL))
		return NEXT(epoll_ctl)(epfd, op, fd, event);
	if (s != NULL && op == EPOLL_CTL_ADD && sock_kind(s) == SOCK_LISTENER)
		listener_want(s, fd);
	if (s == NULL && NEXT(epoll_ctl)(epfd, op, fd, event) != 0)
		return -1;
	err = ep_ctl(epfd, op, fd, s, event);
	if (s != NULL)
		sock_put(s);
	if (err == 1 && s != NULL)
		return NEXT(epoll_ctl)(epfd, op, fd, event);
	if (err == 0 || s == NULL)
		return 0;
	errno = -err;
	return -1;
}

/* ---- waiting ---- */

/* What a wait has of one item. */
struct look {
	struct item *item; /* held */
	u32 at, end;	   /* entries of the wait */
} OWNED_BY(the caller);

static int ep_add_entries(struct ep *e, struct wait *w, struct look *looks, u32 *count, int depth);

static int item_add(struct item *it, struct wait *w, int depth)
{
	short mute = it->events & EPOLLET ? it->reported : 0;
	short want = (short)(it->events & EP_KINDS & ~mute);

	if (it->s != NULL)
		return wait_add_sock(w, it->s, it->fd, want, mute);
	return depth == 0 ? 0 : ep_add_entries(it->inner, w, NULL, NULL, depth - 1);
}

static int ep_add_entries(struct ep *e, struct wait *w, struct look *looks, u32 *count, int depth)
{
	list_for_each(it, &e->items, struct item, in_ep) {
		u32 at = w->count;

		if (it->off)
			continue;
		if (item_add(it, w, depth) < 0)
			return -1;
		if (looks == NULL)
			continue;
		it->refs++;
		looks[(*count)++] = (struct look){ it, at, w->count };
	}
	return 0;
}

/* Has the listeners among the items take their ports, now and then: not under the lock. */
static void ep_want(int fd)
{
	struct {
		struct sock *s OWNED_BY(the caller);
		int fd OWNED_BY(the caller);
	} found[EP_LISTENERS];
	u32 count = 0;
	u64 now = now_ms();
	struct ep *e;

	lock_acquire(&epoll.lock);
	e = ep_find(fd);
	if (e != NULL && now - e->wanted_ms >= EP_WANT_MS) {
		e->wanted_ms = now;
		list_for_each(it, &e->items, struct item, in_ep) {
			if (it->s == NULL || sock_kind(it->s) != SOCK_LISTENER ||
			    count == EP_LISTENERS)
				continue;
			sock_hold(it->s);
			found[count].s = it->s;
			found[count++].fd = it->fd;
		}
	}
	lock_release(&epoll.lock);
	while (count-- > 0) {
		listener_want(found[count].s, found[count].fd);
		sock_put(found[count].s);
	}
}

int ep_wait_add(struct wait *w, int fd, short events)
{
	int at = wait_add_plain(w, fd, events), err = at;
	struct ep *e;

	ep_want(fd);
	lock_acquire(&epoll.lock);
	e = ep_find(fd);
	if (at >= 0 && e != NULL)
		err = ep_add_entries(e, w, NULL, NULL, EP_DEPTH);
	lock_release(&epoll.lock);
	return err < 0 ? -1 : at;
}

static u8 item_rearm_bits(short told)
{
	return (u8)((told & (POLLIN | POLLRDNORM | POLLRDHUP) ? REARM_IN : 0) |
		    (told & (POLLOUT | POLLWRNORM) ? REARM_OUT : 0));
}

/* The events of one item, and what they change in it. */
static u32 item_take(struct item *it, const struct wait *w, const struct look *l)
{
	short told = it->s != NULL ? wait_result(w, l->at, l->end) : 0;

	for (u32 i = l->at; it->s == NULL && i < l->end; i++)
		told |= w->fds[i].revents != 0 ? POLLIN : 0;
	told &= (short)((it->events & EP_KINDS) | POLLERR | POLLHUP);
	if (it->gone || it->off || told == 0)
		return 0;
	if (it->events & EPOLLET) {
		it->reported |= told;
		if (it->s != NULL)
			__atomic_fetch_or(&it->s->et_reported, item_rearm_bits(told),
					  __ATOMIC_ACQ_REL);
	}
	if (it->events & EPOLLONESHOT)
		it->off = true;
	return (u16)told;
}

/* Items that were told go to the end, so that a short array of events serves all in turn. */
static int ep_collect(struct ep *e, const struct wait *w, const struct look *looks, u32 count,
		      struct epoll_event *events, int most)
{
	int n = 0;

	lock_acquire(&epoll.lock);
	for (u32 i = 0; i < count; i++) {
		struct item *it = looks[i].item;
		u32 told = n < most ? item_take(it, w, &looks[i]) : 0;

		if (told != 0) {
			events[n++] = (struct epoll_event){ .events = told, .data = it->data };
			list_remove(&it->in_ep);
			list_push_back(&e->items, &it->in_ep);
		}
		item_put(it);
	}
	lock_release(&epoll.lock);
	return n;
}

/* Takes the mark of `wake` out of the kernel's events; -1 stays -1. */
static int ep_clean(struct ep *e, struct epoll_event *events, int n)
{
	int kept = 0;
	u64 rings;

	if (n < 0)
		return n;
	for (int i = 0; i < n; i++) {
		if (events[i].data.u64 == EP_WAKE)
			(void)!NEXT(read)(e->wake, &rings, sizeof(rings));
		else
			events[kept++] = events[i];
	}
	return kept;
}

/* What a wait holds. */
struct ep_sleep {
	struct ep *e;
	struct wait w;
	struct look *looks;
	u32 count; /* of looks whose items are held */
} OWNED_BY(the caller);

static void ep_sleep_end(struct ep_sleep *p)
{
	int saved = errno;

	(void)ep_collect(p->e, &p->w, p->looks, p->count, NULL, 0);
	wait_end(&p->w);
	free(p->looks);
	errno = saved;
}

/* One wait with items: the number of events, 0 also if something has changed, or -1. */
static int ep_wait_once(struct ep *e, int epfd, struct epoll_event *events, int most, int timeout,
			const sigset_t *mask, bool *over)
{
	struct ep_sleep p CLEANUP(ep_sleep_end);
	int n = -1, kernel;

	p.e = e;
	p.count = 0;
	wait_begin(&p.w);
	ep_want(epfd);
	lock_acquire(&epoll.lock);
	p.looks = malloc((e->count + 1) * sizeof(*p.looks));
	if (p.looks != NULL && wait_add_plain(&p.w, epfd, POLLIN) >= 0)
		n = ep_add_entries(e, &p.w, p.looks, &p.count, EP_DEPTH);
	lock_release(&epoll.lock);
	if (n == 0)
		n = wait_run(&p.w, timeout, mask);
	*over = n == 0 && !p.w.early;
	if (n < 0)
		return n;
	kernel = n > 0 ? p.w.fds[0].revents : 0;
	n = ep_collect(e, &p.w, p.looks, p.count, events, MAX(most - (kernel != 0), 1));
	p.count = 0;
	if (kernel != 0 && n >= 0 && n < most) {
		int more = NEXT(epoll_wait)(epfd, events + n, most - n, 0);

		if (more > 0)
			n += ep_clean(e, events + n, more);
	}
	return n;
}

static int ep_wait_native(int epfd, struct epoll_event *events, int most, int timeout,
			  const sigset_t *mask)
{
	return mask == NULL ? NEXT(epoll_wait)(epfd, events, most, timeout) :
			      NEXT(epoll_pwait)(epfd, events, most, timeout, mask);
}

/* For a wait, until ep_release. */
static struct ep *ep_hold(int epfd, bool *items)
{
	struct ep *e;

	lock_acquire(&epoll.lock);
	e = ep_find(epfd);
	if (e != NULL) {
		e->refs++;
		e->waiting++;
		*items = e->count > 0;
	}
	lock_release(&epoll.lock);
	return e;
}

static void ep_release(struct ep **e)
{
	int saved = errno;
	QUIET();

	if (*e == NULL)
		return;
	lock_acquire(&epoll.lock);
	(*e)->waiting--;
	ep_put(*e);
	lock_release(&epoll.lock);
	errno = saved;
}

static int ep_wait(int epfd, struct epoll_event *events, int most, int timeout,
		   const sigset_t *mask)
{
	u64 until = timeout > 0 ? now_ms() + (u64)timeout : 0;
	CALL c = call_begin_plain();
	int n, left;

	if (most <= 0) {
		errno = EINVAL;
		return -1;
	}
	do {
		bool items = false, over = false;
		struct ep *e CLEANUP(ep_release) = ep_hold(epfd, &items);

		left = wait_left(timeout < 0 ? -1 : timeout, until);
		if (e == NULL)
			return ep_wait_native(epfd, events, most, left, mask);
		if (items) {
			n = ep_wait_once(e, epfd, events, most, left, mask, &over);
		} else {
			n = ep_wait_native(epfd, events, most, left, mask);
			over = n == 0;
			n = ep_clean(e, events, n);
		}
		if (over)
			left = 0;
	} while (n == 0 && left != 0);
	return n;
}

AV_EXPORT int epoll_wait(int epfd, struct epoll_event *events, int most, int timeout)
{
	return ep_wait(epfd, events, most, timeout, NULL);
}

AV_EXPORT int epoll_pwait(int epfd, struct epoll_event *events, int most, int timeout,
			  const sigset_t *mask)
{
	return ep_wait(epfd, events, most, timeout, mask);
}

AV_EXPORT int epoll_pwait2(int epfd, struct epoll_event *events, int most,
			   const struct timespec *timeout, const sigset_t *mask)
{
	int ms = -1;

	if (timeout != NULL)
		ms = timeout->tv_sec >= 2000000 ?
			     2000000000 :
			     (int)(timeout->tv_sec * 1000 + (timeout->tv_nsec + 999999) / 1000000);
	return ep_wait(epfd, events, most, ms, mask);
}
