/* service.c: the service thread: completes the connections of listeners before the program accepts
 * them, as TCP's backlog does, and relays connections whose descriptor is used without the shim.
 *
 * In: listeners, connections that were given away    Out: accepted rsockets, bytes
 * Runs: one thread in a process that needs it, all signals blocked    Locks: service.lock, a leaf
 */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "anyverbs/rsocket.h"
#include "base/thread.h"
#include "rsockets.h"

NEXT_SLOT(read);
NEXT_SLOT(write);
NEXT_SLOT(shutdown);

enum { RELAY_BYTES = 65536, SERVICE_YOUNG_MS = 500 };

/* One direction of a relayed connection. */
struct relay_flow {
	size_t from, to; /* of `data`, what is still to be written */
	bool ended;	 /* nothing comes any more */
	bool closed;	 /* and the other end knows */
	u8 *data;
} OWNED_BY(the service thread);

struct relay {
	struct list_head node;
	struct sock *s;
	struct relay_flow in, out; /* from the rsocket to the pair, and back */
} OWNED_BY(the service thread);

static struct {
	struct lock lock;
	struct list_head listeners GUARDED_BY(lock);
	struct list_head given GUARDED_BY(lock); /* relays that the thread has not seen */
	bool running GUARDED_BY(lock);
	int wake FIXED; /* an eventfd; set before the thread runs */
	struct list_head relays OWNED_BY(the service thread);
} service = { .listeners = LIST_HEAD_INIT(service.listeners),
	      .given = LIST_HEAD_INIT(service.given),
	      .wake = -1,
	      .relays = LIST_HEAD_INIT(service.relays) };

static void service_ring(int fd)
{
	u64 one = 1;
	QUIET();

	(void)!NEXT(write)(fd, &one, sizeof(one)); /* full: it rings already */
}

static void service_hush(int fd)
{
	u64 count;
	QUIET();

	(void)!NEXT(read)(fd, &count, sizeof(count));
}

/* A peer that does not acknowledge keeps no other connection waiting. */
static void service_end(int rfd)
{
	rsocket_forgo_linger(rfd);
	rsocket_end(rfd);
}

/* ---- listeners ---- */

/* A request has come, and the port stays this process': from now on librdmacm connects clients by
 * itself, and tells of those that it has heard again. */
static void listener_begin(struct sock *s)
{
	int off = 0;

	if (!s->begun)
		s->begun = rcalls.setsockopt(s->rfd, SOL_RDMA, RDMA_ACCEPT_ON_DEMAND, &off,
					     sizeof(off)) == 0;
}

/* Takes what has connected. False: the queue is full, or nothing is there. */
static bool listener_take(struct sock *s)
{
	struct accepted *a;
	int rfd;

	__atomic_store_n(&s->taking, 1, __ATOMIC_SEQ_CST);
	listener_begin(s);
	rfd = rcalls.accept(s->rfd, NULL, NULL);
	a = rfd >= 0 ? malloc(sizeof(*a)) : NULL;
	if (a != NULL) {
		a->rfd = rfd;
		lock_acquire(&service.lock);
		list_push_back(&s->accepted, &a->node);
		lock_release(&service.lock);
		service_ring(s->bell);
	} else if (rfd >= 0) {
		service_end(rfd);
	}
	/* pairs with service_accept_late */
	__atomic_store_n(&s->taking, 0, __ATOMIC_SEQ_CST);
	return a != NULL;
}

int service_accept(struct sock *s)
{
	struct accepted *a = NULL;
	int rfd = -1;

	if (__atomic_load_n(&s->bell, __ATOMIC_ACQUIRE) < 0)
		return -1;
	lock_acquire(&service.lock);
	if (!list_empty(&s->accepted)) {
		a = list_entry(list_pop_front(&s->accepted), struct accepted, node);
		rfd = a->rfd;
	}
	if (list_empty(&s->accepted))
		service_hush(s->bell);
	lock_release(&service.lock);
	free(a);
	return rfd;
}

int service_accept_late(struct sock *s)
{
	for (int i = 0; i < 10000 && __atomic_load_n(&s->taking, __ATOMIC_SEQ_CST); i++)
		usleep(100);
	return service_accept(s);
}

/* The rsocket is closed on the service thread, which may just wait for it. */
static void listener_end(struct sock *s)
{
	struct list_head left = LIST_HEAD_INIT(left);
	int bell = s->bell;

	service_end(s->rfd);
	lock_acquire(&service.lock);
	list_splice(&s->accepted, &left);
	s->rfd = -1;
	__atomic_store_n(&s->bell, -1, __ATOMIC_RELEASE);
	s->withdraw = false;
	lock_release(&service.lock);
	close(bell);
	while (!list_empty(&left)) {
		struct accepted *a = list_entry(list_pop_front(&left), struct accepted, node);

		service_end(a->rfd);
		free(a);
	}
	sock_put(s); /* the list's */
}

/* ---- relays ---- */

static void flow_fill(struct relay_flow *f, ssize_t got)
{
	if (got > 0) {
		f->from = 0;
		f->to = (size_t)got;
	} else if (got == 0 || (errno != EAGAIN && errno != EINTR)) {
		f->ended = true;
	}
}

static void flow_drain(struct relay_flow *f, ssize_t put)
{
	if (put > 0)
		f->from += (size_t)put;
	else if (put < 0 && errno != EAGAIN && errno != EINTR)
		f->ended = true, f->from = f->to;
}

static bool flow_empty(const struct relay_flow *f)
{
	return f->from == f->to;
}

/* True: the connection is over. */
static bool relay_step(struct relay *r, short rsocket, short pair)
{
	struct sock *s = r->s;

	if (flow_empty(&r->in) && !r->in.ended && rsocket & (POLLIN | POLLHUP | POLLERR))
		flow_fill(&r->in, rcalls.recv(s->rfd, r->in.data, RELAY_BYTES, MSG_DONTWAIT));
	if (!flow_empty(&r->in))
		flow_drain(&r->in, send(s->far, r->in.data + r->in.from, r->in.to - r->in.from,
					MSG_DONTWAIT | MSG_NOSIGNAL));
	if (flow_empty(&r->out) && !r->out.ended && pair & (POLLIN | POLLHUP | POLLERR))
		flow_fill(&r->out, NEXT(read)(s->far, r->out.data, RELAY_BYTES));
	if (!flow_empty(&r->out))
		flow_drain(&r->out, rcalls.send(s->rfd, r->out.data + r->out.from,
						r->out.to - r->out.from,
						MSG_DONTWAIT | MSG_NOSIGNAL));
	if (r->in.ended && flow_empty(&r->in) && !r->in.closed) {
		r->in.closed = true;
		(void)NEXT(shutdown)(s->far, SHUT_WR);
	}
	if (r->out.ended && flow_empty(&r->out) && !r->out.closed) {
		r->out.closed = true;
		(void)rcalls.shutdown(s->rfd, SHUT_WR);
	}
	/* the pair's other holders are gone, and all that they wrote is on its way */
	if (pair & POLLHUP && r->out.closed)
		return true;
	return r->in.closed && r->out.closed;
}

static void relay_free(struct relay *r)
{
	list_remove(&r->node);
	rsocket_forgo_linger(r->s->rfd);
	sock_put(r->s);
	free(r->in.data);
	free(r->out.data);
	free(r);
}

static void relay_add(struct wait *w, struct relay *r)
{
	short rsocket = 0, pair = 0;

	if (flow_empty(&r->in) && !r->in.ended)
		rsocket |= POLLIN;
	if (!flow_empty(&r->out))
		rsocket |= POLLOUT;
	if (flow_empty(&r->out) && !r->out.ended)
		pair |= POLLIN;
	if (!flow_empty(&r->in))
		pair |= POLLOUT;
	/* an end that hangs up and waits for nothing would end every wait at once */
	wait_add_plain(w, rsocket != 0 ? r->s->rfd : -1, rsocket);
	wait_add_plain(w, pair != 0 ? r->s->far : -1, pair);
}

static struct relay *relay_new(struct sock *s)
{
	struct relay *r = calloc(1, sizeof(*r));

	if (r == NULL)
		return NULL;
	r->in.data = malloc(RELAY_BYTES);
	r->out.data = malloc(RELAY_BYTES);
	r->s = s;
	if (r->in.data != NULL && r->out.data != NULL)
		return r;
	free(r->in.data);
	free(r->out.data);
	free(r);
	return NULL;
}

/* ---- the thread ---- */

/* A server that forks workers does so soon after listen(): until then requests wait, since what
 * this process had accepted would be lost to them. */
static bool listener_is_young(const struct sock *s, u64 now)
{
	return !__atomic_load_n(&s->wanted, __ATOMIC_ACQUIRE) &&
	       now - __atomic_load_n(&s->tried_ms, __ATOMIC_RELAXED) < SERVICE_YOUNG_MS;
}

/* The listeners of this round, each held. */
static u32 service_listeners(struct wait *w)
{
	struct list_head ended = LIST_HEAD_INIT(ended);
	u64 now = now_ms();
	u32 count = 0;

	lock_acquire(&service.lock);
	list_splice(&service.given, &service.relays);
	list_for_each_safe(s, &service.listeners, struct sock, service) {
		if (s->withdraw) {
			list_remove(&s->service);
			list_push_back(&ended, &s->service);
		} else if (listener_is_young(s, now)) {
			w->most_ms = SERVICE_YOUNG_MS;
		} else if (wait_add_plain(w, s->rfd, POLLIN) >= 0) {
			w->entries[w->count - 1].sock = s;
			sock_hold(s);
			count++;
		}
	}
	lock_release(&service.lock);
	list_for_each_safe(s, &ended, struct sock, service)
		listener_end(s);
	return count;
}

static void service_round(struct wait *w)
{
	u32 listeners, i;

	wait_begin(w);
	wait_add_plain(w, service.wake, POLLIN);
	wait_add_plain(w, share_fd(), POLLIN);
	listeners = service_listeners(w);
	list_for_each(r, &service.relays, struct relay, node)
		relay_add(w, r);
	w->direct = true;
	if (wait_run(w, -1, NULL) < 0 && errno != EINTR)
		usleep(1000);
	if (w->fds[0].revents != 0)
		service_hush(service.wake);
	exit_serve();
	if (w->fds[1].revents != 0)
		share_serve();
	for (i = 2; i < 2 + listeners; i++)
		if (w->fds[i].revents != 0)
			while (listener_take(w->entries[i].sock))
				;
	list_for_each_safe(r, &service.relays, struct relay, node) {
		if (i + 1 >= w->count)
			break; /* no memory: they wait for another round */
		if (relay_step(r, w->fds[i].revents, w->fds[i + 1].revents))
			relay_free(r);
		i += 2;
	}
	wait_end(w);
}

static void *service_thread(void *arg)
{
	static struct wait w;

	(void)arg;
	pthread_setname_np(pthread_self(), "rsockets");
	for (;;)
		service_round(&w);
	return NULL;
}

bool service_begin(void)
{
	bool there;

	lock_acquire(&service.lock);
	if (!service.running) {
		if (service.wake < 0)
			service.wake = fd_own(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
		service.running = service.wake >= 0 &&
				  thread_start("rsockets", 0, NULL, service_thread, NULL) == 0;
	}
	there = service.running;
	lock_release(&service.lock);
	return there;
}

bool service_listen(struct sock *s)
{
	if (!service_begin())
		return false;
	sock_hold(s);
	lock_acquire(&service.lock);
	list_push_back(&service.listeners, &s->service);
	lock_release(&service.lock);
	service_ring(service.wake);
	return true;
}

bool service_listens(void)
{
	bool some;

	lock_acquire(&service.lock);
	some = !list_empty(&service.listeners);
	lock_release(&service.lock);
	return some;
}

bool service_is_there(void) NO_THREAD_SAFETY
{
	return __atomic_load_n(&service.running, __ATOMIC_RELAXED);
}

void service_wake(void)
{
	service_ring(service.wake);
}

void service_withdraw(struct sock *s)
{
	bool running;

	lock_acquire(&service.lock);
	running = service.running && s->rfd >= 0;
	s->withdraw = running;
	lock_release(&service.lock);
	if (!running)
		return;
	service_ring(service.wake);
	for (int i = 0; i < 2000 && __atomic_load_n(&s->bell, __ATOMIC_ACQUIRE) >= 0; i++)
		usleep(100);
}

void service_relay(struct sock *s)
{
	struct relay *r = service_begin() ? relay_new(s) : NULL;

	if (r == NULL) {
		sock_put(s); /* as if the connection had been cut */
		return;
	}
	lock_acquire(&service.lock);
	list_push_back(&service.given, &r->node);
	lock_release(&service.lock);
	service_ring(service.wake);
}

/* The thread, its listeners and relays are the parent's. */
static void service_child(void) NO_THREAD_SAFETY
{
	exit_child();
	service.running = false;
	if (service.wake >= 0)
		close(service.wake);
	service.wake = -1;
	list_init(&service.listeners);
	list_init(&service.given);
	list_init(&service.relays);
}
FORK_TAKES(FORK_SHIM_SERVICE, &service.lock, .child = service_child);
