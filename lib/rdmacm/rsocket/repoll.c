/* repoll.c: repoll_create, repoll_ctl, repoll_wait (RDMACM_1.5): epoll over rsockets and ordinary
 * descriptors.
 * In:    numbers and the events wanted     Out: struct epoll_event
 * Runs:  the application's threads         Locks: repoll.lock, a leaf but for what user_copy does
 *
 * A set is an rsocket of a kind of its own, so that rclose ends it. The kernel's epoll inside it
 * keeps the ordinary descriptors; items keep the rsockets, by number and serial: one that is closed
 * leaves the set by itself. A wait looks at all items, as rpoll does, and sleeps in the wait queue
 * of each and in that of the set, which repoll_ctl wakes.
 *
 * EPOLLET: an item that has reported an event reports it again when something new has arrived (IN),
 * when a call has been told EAGAIN since (IN, OUT), or when the event has been gone in between.
 */
#include <stdlib.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "rsocket.h"
#include "user.h"

enum {
	REPOLL_IN = POLLIN | POLLRDNORM | POLLRDBAND | POLLPRI,
	REPOLL_OUT = POLLOUT | POLLWRNORM | POLLWRBAND,
	REPOLL_EVENTS = REPOLL_IN | REPOLL_OUT | POLLRDHUP,
	REPOLL_DRIVES_ALL = 16, /* of so many rsockets each is driven, whatever it has told */
};

/* What tells one edge from the next. */
struct repoll_stamp {
	u64 arrivals;
	u32 refused[2];
} OWNED_BY(the item, or the wait that has read it);

struct repoll_item {
	struct list_head node; /* repoll.items; on no list once gone */
	u32 refs;	       /* the list's, and one of each wait */
	bool gone;
	bool off; /* EPOLLONESHOT has fired */
	int fd;
	u64 serial; /* of the rsocket */
	u32 events;
	epoll_data_t data;
	short reported; /* EPOLLET: at `stamp` */
	struct repoll_stamp stamp;
} OWNED_BY(repoll.lock);

struct repoll {
	struct rsocket rs GUARDS_ITSELF; /* first */
	int kernel FIXED;		 /* an epoll; rs.fd is a duplicate */
	bool has_ordinary ATOMIC_ONLY;	 /* the kernel's epoll has had a descriptor */
	bool closed ATOMIC_ONLY;
	u32 changes ATOMIC_ONLY; /* of the set */
	u32 turns ATOMIC_ONLY;	 /* waits: every second one begins with the ordinary descriptors */
	struct lock lock;
	struct list_head items GUARDED_BY(lock);
	u32 count GUARDED_BY(lock);
};

/* ---- the set --------------------------------------------------------------------------------- */

static struct repoll *repoll_of(struct rsocket *rs)
{
	return (struct repoll *)rs;
}

static void repoll_item_put(struct repoll_item *item)
{
	if (--item->refs == 0)
		free(item);
}

static void repoll_item_remove(struct repoll *rp, struct repoll_item *item) REQUIRES(rp->lock)
{
	list_remove(&item->node);
	item->gone = true;
	rp->count--;
	repoll_item_put(item);
}

static struct repoll_item *repoll_find(struct repoll *rp, const struct rsocket *rs)
	REQUIRES(rp->lock)
{
	list_for_each(item, &rp->items, struct repoll_item, node)
		if (item->fd == rs->fd && item->serial == rs->serial)
			return item;
	return NULL;
}

static void repoll_changed(struct repoll *rp)
{
	__atomic_add_fetch(&rp->changes, 1, __ATOMIC_SEQ_CST);
	wait_wake(&rp->rs.waiters);
}

/* ---- the kind of rsocket --------------------------------------------------------------------- */

/* A set cannot be waited for by rpoll, nor be in another set. */
static short repoll_poll(struct rsocket *rs, short events, bool look)
{
	(void)rs, (void)events, (void)look;
	return POLLNVAL;
}

static void repoll_arm(struct rsocket *rs)
{
	(void)rs;
}

static int repoll_poll_fd(struct rsocket *rs)
{
	(void)rs;
	return -1;
}

static void repoll_close(struct rsocket *rs)
{
	__atomic_store_n(&repoll_of(rs)->closed, true, __ATOMIC_SEQ_CST);
	repoll_changed(repoll_of(rs));
}

static void repoll_forget(struct rsocket *rs)
{
	close(repoll_of(rs)->kernel);
	close(rs->fd);
}

static void repoll_free(struct rsocket *rs) NO_THREAD_SAFETY /* its last user */
{
	struct repoll *rp = repoll_of(rs);

	while (!list_empty(&rp->items))
		repoll_item_remove(rp, list_entry(rp->items.next, struct repoll_item, node));
	repoll_forget(rs);
	free(rp);
}

static const struct rsocket_ops repoll_ops = {
	.poll = repoll_poll,
	.arm = repoll_arm,
	.poll_fd = repoll_poll_fd,
	.close = repoll_close,
	.free = repoll_free,
	.forget = repoll_forget,
};

static int repoll_open(int flags, struct repoll **out) NO_THREAD_SAFETY /* nobody else has it */
{
	struct repoll *rp = calloc(1, sizeof(*rp));
	int err;

	if (rp == NULL)
		return -ENOMEM;
	rsocket_init(&rp->rs, &repoll_ops, 0);
	lock_init(&rp->lock);
	list_init(&rp->items);
	rp->kernel = fd_own(epoll_create1(flags));
	if (rp->kernel < 0)
		goto fail;
	rp->rs.fd = fcntl(rp->kernel, flags & EPOLL_CLOEXEC ? F_DUPFD_CLOEXEC : F_DUPFD, 0);
	*out = rp;
	if (rp->rs.fd >= 0)
		return 0;
	err = -errno;
	close(rp->kernel);
	free(rp);
	return err;
fail:
	err = -errno;
	free(rp);
	return err;
}

/* The set of a number, held. -EBADF, -EINVAL. */
static int repoll_get(int fd, struct repoll **out)
{
	struct rsocket *rs = table_get(fd);

	if (rs == NULL)
		return fcntl(fd, F_GETFD) < 0 || table_is_parents(fd) ? -EBADF : -EINVAL;
	if (rs->ops == &repoll_ops) {
		*out = repoll_of(rs);
		return 0;
	}
	table_put(rs);
	return -EINVAL;
}

/* ---- repoll_ctl ------------------------------------------------------------------------------ */

static int repoll_add(struct repoll *rp, struct rsocket *rs, const struct epoll_event *e)
	REQUIRES(rp->lock)
{
	struct repoll_item *item;

	if (repoll_find(rp, rs) != NULL)
		return -EEXIST;
	item = malloc(sizeof(*item));
	if (item == NULL)
		return -ENOMEM;
	*item = (struct repoll_item){ .refs = 1,
				      .fd = rs->fd,
				      .serial = rs->serial,
				      .events = e->events,
				      .data = e->data };
	/* before the first look at it, which tells all that came before; pairs with call_told */
	__atomic_store_n(&rs->in_set, true, __ATOMIC_SEQ_CST);
	list_push_back(&rp->items, &item->node);
	rp->count++;
	return 0;
}

static int repoll_set(struct repoll *rp, int op, struct rsocket *rs,
		      const struct epoll_event *e) REQUIRES(rp->lock)
{
	struct repoll_item *item;

	if (op == EPOLL_CTL_ADD)
		return repoll_add(rp, rs, e);
	item = repoll_find(rp, rs);
	if (item == NULL)
		return -ENOENT;
	if (op == EPOLL_CTL_DEL) {
		repoll_item_remove(rp, item);
		return 0;
	}
	item->events = e->events;
	item->data = e->data;
	item->off = false;
	item->reported = 0;
	return 0;
}

static int repoll_control(struct repoll *rp, int op, int fd, struct epoll_event *event)
{
	struct rsocket *rs = table_get(fd);
	struct epoll_event e = { .events = 0 };
	int err;

	if (rs == NULL) {
		if (op == EPOLL_CTL_ADD)
			__atomic_store_n(&rp->has_ordinary, true, __ATOMIC_SEQ_CST);
		err = epoll_ctl(rp->kernel, op, fd, event) < 0 ? -errno : 0;
	} else if (op != EPOLL_CTL_ADD && op != EPOLL_CTL_MOD && op != EPOLL_CTL_DEL) {
		err = -EINVAL;
	} else if (op != EPOLL_CTL_DEL && user_copy(&e, event, sizeof(e)) < 0) {
		err = -EFAULT;
	} else if (rs->ops == &repoll_ops) {
		err = rs == &rp->rs ? -EINVAL : -ELOOP;
	} else {
		lock_acquire(&rp->lock);
		err = repoll_set(rp, op, rs, &e);
		lock_release(&rp->lock);
	}
	if (rs != NULL)
		table_put(rs);
	if (err == 0)
		repoll_changed(rp);
	return err;
}

/* ---- repoll_wait: what holds now ------------------------------------------------------------- */

struct repoll_watch {
	struct rsocket *rs;	  /* held */
	struct repoll_item *item; /* with a reference; NULL: another rsocket has its number */
	u32 events;
	short revents;
	bool told; /* EPOLLET: what it is ready for has been reported */
	struct repoll_stamp stamp;
	struct waiter place;
} OWNED_BY(the thread that waits);

struct repoll_wait {
	struct repoll *rp;
	struct epoll_event *events; /* the application's */
	int most;
	struct repoll_watch *watches;
	struct pollfd *system;
	u32 count, room; /* of watches */
	u32 changes;	 /* of the set, when they were collected */
	bool joined;
	struct waiter place;
	struct sleeper me;
} OWNED_BY(the thread that waits);

/* Room for n watches, and nothing in it. */
static int repoll_reserve(struct repoll_wait *w, u32 n)
{
	size_t size = n * sizeof(*w->watches) + (n + 1 + SLEEPER_FDS) * sizeof(*w->system);

	if (n <= w->room && w->watches != NULL)
		return 0;
	free(w->watches);
	w->watches = malloc(size);
	if (w->watches == NULL)
		return -ENOMEM;
	w->system = (struct pollfd *)(w->watches + n);
	w->room = n;
	return 0;
}

/* The item of a number that another rsocket has, or nobody, is gone. */
static void repoll_watch_item(struct repoll_wait *w, struct repoll_item *item)
	REQUIRES(w->rp->lock)
{
	struct repoll_watch *watch = &w->watches[w->count];
	struct rsocket *rs = table_get(item->fd);

	watch->rs = rs;
	watch->item = NULL;
	w->count += rs != NULL;
	if (rs == NULL || rs->serial != item->serial) {
		repoll_item_remove(w->rp, item);
		return;
	}
	watch->item = item;
	watch->events = item->off ? 0 : item->events;
	item->refs++;
}

/* The items of the set as it is now. 0 or -ENOMEM. */
static int repoll_collect(struct repoll_wait *w)
{
	int err;

	w->count = 0;
	lock_acquire(&w->rp->lock);
	while (w->rp->count > w->room || w->watches == NULL) {
		u32 n = w->rp->count + w->rp->count / 2 + 1;

		lock_release(&w->rp->lock);
		err = repoll_reserve(w, n);
		if (err < 0)
			return err;
		lock_acquire(&w->rp->lock);
	}
	w->changes = __atomic_load_n(&w->rp->changes, __ATOMIC_SEQ_CST);
	list_for_each_safe(item, &w->rp->items, struct repoll_item, node)
		repoll_watch_item(w, item);
	lock_release(&w->rp->lock);
	return 0;
}

static void repoll_release(struct repoll_wait *w)
{
	lock_acquire(&w->rp->lock);
	for (u32 i = 0; i < w->count; i++)
		if (w->watches[i].item != NULL)
			repoll_item_put(w->watches[i].item);
	lock_release(&w->rp->lock);
	for (u32 i = 0; i < w->count; i++)
		table_put(w->watches[i].rs);
	w->count = 0;
}

static void repoll_look_at(struct repoll_watch *watch, bool look)
{
	struct rsocket *rs = watch->rs;

	watch->revents = rs->ops->poll(rs, (short)(watch->events & REPOLL_EVENTS), look);
	watch->revents &= ~POLLNVAL;
	/* Behind poll(), which takes what has come. The program, which is told later, reads what
	 * the stamp counts; what comes after it wakes this thread. */
	watch->stamp.arrivals = rs->ops->arrivals != NULL ? rs->ops->arrivals(rs) : 0;
	for (int way = RSOCKET_IN; way <= RSOCKET_OUT; way++)
		watch->stamp.refused[way] = __atomic_load_n(&rs->refused[way], __ATOMIC_SEQ_CST);
}

static void repoll_look(struct repoll_wait *w)
{
	for (u32 i = 0; i < w->count; i++) {
		w->watches[i].revents = 0;
		w->watches[i].told = false;
		if (w->watches[i].item != NULL)
			repoll_look_at(&w->watches[i], i == 0 || w->count <= REPOLL_DRIVES_ALL);
	}
}

/* What of `watch->revents` is told: all, or none if EPOLLET has told it before. */
static short repoll_fresh(struct repoll_item *item, const struct repoll_watch *watch)
{
	const struct repoll_stamp *now = &watch->stamp, *then = &item->stamp;
	short fresh;

	if (item->off)
		return 0;
	if (!(item->events & EPOLLET))
		return watch->revents;
	if (now->arrivals != then->arrivals ||
	    now->refused[RSOCKET_IN] != then->refused[RSOCKET_IN])
		item->reported &= ~REPOLL_IN;
	if (now->refused[RSOCKET_OUT] != then->refused[RSOCKET_OUT])
		item->reported &= ~REPOLL_OUT;
	item->reported &= watch->revents;
	fresh = (short)(watch->revents & ~item->reported);
	return fresh != 0 ? watch->revents : 0;
}

/* Writes one event. 1, 0: there is none, or -EFAULT. */
static int repoll_report(struct repoll_wait *w, struct repoll_watch *watch, int at)
	REQUIRES(w->rp->lock)
{
	struct repoll_item *item = watch->item;
	short revents = item == NULL || item->gone ? 0 : repoll_fresh(item, watch);
	struct epoll_event e;

	watch->told = revents == 0;
	if (revents == 0)
		return 0;
	e = (struct epoll_event){ .events = (u16)revents, .data = item->data };
	if (user_copy(&w->events[at], &e, sizeof(e)) < 0)
		return -EFAULT;
	item->reported = revents;
	item->stamp = watch->stamp;
	item->off = item->events & EPOLLONESHOT;
	/* the others come first the next time */
	list_remove(&item->node);
	list_push_back(&w->rp->items, &item->node);
	return 1;
}

/* Events of rsockets, from the n-th on. How many there are now, or -EFAULT. */
static int repoll_take_rsockets(struct repoll_wait *w, int n)
{
	int got = 0;

	repoll_look(w);
	lock_acquire(&w->rp->lock);
	for (u32 i = 0; i < w->count && n < w->most && got >= 0; i++) {
		got = w->watches[i].revents != 0 ? repoll_report(w, &w->watches[i], n) : 0;
		n += MAX(got, 0);
	}
	lock_release(&w->rp->lock);
	return got < 0 && n == 0 ? got : n;
}

/* The same of ordinary descriptors. */
static int repoll_take_ordinary(struct repoll_wait *w, int n)
{
	int got;

	if (n == w->most || !__atomic_load_n(&w->rp->has_ordinary, __ATOMIC_SEQ_CST))
		return n;
	got = epoll_wait(w->rp->kernel, w->events + n, w->most - n, 0);
	if (got < 0)
		return n > 0 ? n : -errno;
	return n + got;
}

static int repoll_take(struct repoll_wait *w)
{
	bool first = __atomic_fetch_add(&w->rp->turns, 1, __ATOMIC_RELAXED) & 1;
	int n = first ? repoll_take_ordinary(w, 0) : 0;

	if (n >= 0)
		n = repoll_take_rsockets(w, n);
	return n >= 0 && !first ? repoll_take_ordinary(w, n) : n;
}

/* ---- repoll_wait: sleeping ------------------------------------------------------------------- */

/* One that is no listener; NULL: there is none. */
static struct rsocket *repoll_driven(const struct repoll_wait *w)
{
	for (u32 i = 0; i < w->count; i++)
		if (w->watches[i].rs->ops->poll_fd(w->watches[i].rs) < 0)
			return w->watches[i].rs;
	return NULL;
}

static int repoll_join(struct repoll_wait *w)
{
	int err = sleeper_begin(&w->me, repoll_driven(w) != NULL ? SLEEP_POLL : SLEEP_LISTEN);

	if (err < 0)
		return err;
	w->joined = true;
	wait_join(&w->rp->rs.waiters, &w->place, &w->me);
	for (u32 i = 0; i < w->count; i++)
		wait_join(&w->watches[i].rs->waiters, &w->watches[i].place, &w->me);
	return 0;
}

static void repoll_leave(struct repoll_wait *w)
{
	if (!w->joined)
		return;
	w->joined = false;
	wait_leave(&w->rp->rs.waiters, &w->place);
	for (u32 i = 0; i < w->count; i++)
		wait_leave(&w->watches[i].rs->waiters, &w->watches[i].place);
	sleeper_end(&w->me);
}

/* 0 or -EINTR. */
static int repoll_sleep(struct repoll_wait *w, u64 until)
{
	struct rsocket *driven = repoll_driven(w);
	nfds_t count = 0;
	u64 now;

	if (driven != NULL && sleeper_spin(&w->me, driven))
		return 0;
	w->system[count++] = (struct pollfd){ .fd = w->rp->kernel, .events = POLLIN };
	for (u32 i = 0; i < w->count; i++) {
		const struct repoll_watch *watch = &w->watches[i];
		bool wanted = (watch->events & POLLIN) && !watch->told;
		int fd = wanted ? watch->rs->ops->poll_fd(watch->rs) : -1;

		if (fd >= 0)
			w->system[count++] = (struct pollfd){ .fd = fd, .events = POLLIN };
	}
	now = clock_now_ns();
	return sleeper_poll(&w->me, w->system, count,
			    until == UINT64_MAX ? 0 : until > now ? until - now : 1);
}

static bool repoll_is_closed(const struct repoll_wait *w)
{
	return __atomic_load_n(&w->rp->closed, __ATOMIC_SEQ_CST);
}

static bool repoll_has_changed(const struct repoll_wait *w)
{
	return __atomic_load_n(&w->rp->changes, __ATOMIC_SEQ_CST) != w->changes;
}

/* Sleeps and looks until there are events, the time is over, or the set has changed (0). */
static int repoll_watch(struct repoll_wait *w, u64 until)
{
	int n = repoll_take(w), err;

	if (n != 0 || clock_now_ns() >= until)
		return n;
	err = repoll_join(w);
	for (;;) {
		sleeper_reset(&w->me);
		for (u32 i = 0; i < w->count; i++)
			w->watches[i].rs->ops->arm(w->watches[i].rs);
		n = repoll_take(w);
		if (n != 0)
			return n;
		if (err < 0 || repoll_has_changed(w) || clock_now_ns() >= until)
			return err;
		err = repoll_sleep(w, until);
	}
}

/* How many events, or a negative errno. */
static int repoll_run(struct repoll_wait *w, u64 until)
{
	int n;

	do {
		n = repoll_collect(w);
		if (n == 0)
			n = repoll_watch(w, until);
		repoll_leave(w);
		repoll_release(w);
		if (n == 0 && repoll_is_closed(w))
			n = -EBADF;
	} while (n == 0 && clock_now_ns() < until);
	return n;
}

/* ---- the calls ------------------------------------------------------------------------------- */

static int repoll_result(int result)
{
	if (result >= 0)
		return result;
	errno = -result;
	return -1;
}

/* Of a newer release, whose header is not the one that this library is built with. */
AV_EXPORT int repoll_create(int flags);
AV_EXPORT int repoll_ctl(int epfd, int op, int fd, struct epoll_event *event);
AV_EXPORT int repoll_wait(int epfd, struct epoll_event *events, int maxevents, int timeout);

AV_EXPORT int repoll_create(int flags)
{
	struct repoll *rp = NULL;
	int err = repoll_open(flags, &rp), fd;

	if (err < 0)
		return repoll_result(err);
	fault_guard();
	fd = rp->rs.fd;
	err = table_insert(&rp->rs);
	if (err == 0)
		return fd;
	repoll_free(&rp->rs);
	return repoll_result(err);
}

AV_EXPORT int repoll_ctl(int epfd, int op, int fd, struct epoll_event *event)
{
	struct repoll *rp;
	int err = repoll_get(epfd, &rp);

	if (err < 0)
		return repoll_result(err);
	err = repoll_control(rp, op, fd, event);
	table_put(&rp->rs);
	return repoll_result(err);
}

/* Also when the thread is cancelled. */
static void repoll_end(struct repoll_wait *w)
{
	if (w->rp == NULL)
		return;
	repoll_leave(w);
	repoll_release(w);
	free(w->watches);
	table_put(&w->rp->rs);
}

AV_EXPORT int repoll_wait(int epfd, struct epoll_event *events, int maxevents, int timeout)
{
	struct repoll_wait w CLEANUP(repoll_end) = { .events = events, .most = maxevents };
	u64 until = timeout < 0 ? UINT64_MAX : clock_now_ns() + (u64)timeout * NS_PER_MS;
	int n = repoll_get(epfd, &w.rp);

	if (n < 0)
		return repoll_result(n);
	if (maxevents <= 0 || maxevents > (int)(INT32_MAX / sizeof(*events)))
		n = -EINVAL;
	else
		n = repoll_run(&w, until);
	return repoll_result(n);
}
