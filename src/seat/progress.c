/* progress.c: who drives the engine.
 *
 * A thread that polls drives it itself; each pass renews a lease (`drives`). A thread that waits
 * for events drives it while it waits (`claims`). Else the engine's own thread does: while the
 * lease is fresh it polls once per tick; when the lease has run out, or a consumer may sleep
 * (`sleepers`), it arms the doorbell, polls once more, and sleeps until a peer rings.
 *
 * In: doorbells, ticks, the node's events, deaths of peers    Out: passes of the engine
 * Locks: none of its own
 */
#include "seat/seat.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/cancel.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/thread.h"
#include "shared/shared.h"

enum {
	PROGRESS_TICK_MS = 1,
	PROGRESS_BUDGET = 16, /* packets per pass of a poller, which waits for one completion */
	PROGRESS_THREAD_BUDGET = 256,
	PROGRESS_LOOKS = 16, /* passes of PROGRESS_BUDGET before the engine's thread takes over */
	PROGRESS_RECOVER_MS = 200, /* between attempts to find a new node */
	PROGRESS_SPINS = 1000,	   /* empty polls in a row before a poller yields ... */
	PROGRESS_SPINS_MIN = 16,   /* ... and where its peer shares the core */
	PROGRESS_YIELD_EVERY = 16,
	PROGRESS_YIELD_NONE_US = 2,    /* no other thread has run */
	PROGRESS_YIELD_SHORT_US = 200, /* shorter than a time slice */
	/* passes of pollers per tick: such a process receives its own datagrams */
	PROGRESS_STEADY = 64,
	/* passes of pollers since an arm: the consumer's last polls before it sleeps */
	PROGRESS_LAST_POLLS = 64,
	PROGRESS_PAUSE_US = 20, /* and what the kernel adds, 50 by default */
	PROGRESS_LINGER_US = 50,
	PROGRESS_LINGER_MOST_MS = 1, /* then doorbells and the node have their turn */
	PROGRESS_LINGER_SKIPS = 1023,
};

/* Tags of the epoll set's descriptors; any other value is a link. */
enum { TAG_BELL = 1, TAG_KICK, TAG_NODE, TAG_UDP, TAG_LAST };

/* How a polling thread shares its core. */
static __thread struct {
	u32 idle;    /* empty polls in a row */
	u32 early;   /* by how many fewer than PROGRESS_SPINS empty polls the poller yields */
	bool yielded; /* the last yield let others run, for a short time */
} progress_turn OWNED_BY(its thread);

/* A completion right behind a short yield came from a thread that shares the core: yield sooner the
 * next time. A completion without a yield: yield later. */
static inline void progress_turn_found(void)
{
	progress_turn.idle = 0;
	if (unlikely(progress_turn.yielded))
		progress_turn.early +=
			(PROGRESS_SPINS - PROGRESS_SPINS_MIN - progress_turn.early + 1) / 2;
	else if (unlikely(progress_turn.early != 0))
		progress_turn.early -= (progress_turn.early + 15) / 16;
	progress_turn.yielded = false;
}

/* A thread that uses up a whole time slice is not the poller's peer. */
static void progress_turn_yield(void)
{
	u64 begin = clock_now_ns(), ns;

	sched_yield();
	ns = clock_now_ns() - begin;
	progress_turn.yielded = ns >= PROGRESS_YIELD_NONE_US * NS_PER_US &&
				ns < PROGRESS_YIELD_SHORT_US * NS_PER_US;
	if (ns >= PROGRESS_YIELD_SHORT_US * NS_PER_US)
		progress_turn.early = 0;
}

static inline void progress_turn_empty(void)
{
	if (unlikely(++progress_turn.idle > PROGRESS_SPINS - progress_turn.early) &&
	    progress_turn.idle % PROGRESS_YIELD_EVERY == 0)
		progress_turn_yield();
}

/* A thread that does not belong to the engine begins a pass. */
static inline void progress_renew(struct seat *s)
{
	u32 drives = __atomic_load_n(&s->drives, __ATOMIC_RELAXED) + 1;

	__atomic_store_n(&s->drives, drives, __ATOMIC_RELAXED);
	/* for peers: pairs with drive_count */
	__atomic_store_n(&s->a.board->drives, drives, __ATOMIC_RELEASE);
}

int progress_drive(void)
{
	struct seat *s = &the_seat;
	int n;

	progress_renew(s);
	n = ibt_poll(s->a.ibt, PROGRESS_BUDGET);
	if (likely(n != 0))
		progress_turn_found();
	else
		progress_turn_empty();
	return n;
}

void progress_kick(void *arg)
{
	struct seat *s = arg;
	u64 one = 1;

	/* syscall(): write() is a cancellation point, and the caller may hold locks. */
	if (syscall(SYS_write, s->a.kick_fd, &one, sizeof(one)) < 0)
		log_debug("seat", "kick: errno %d", errno);
}

/* While a thread polls, the engine's thread polls at every tick and needs no kick for a timer: the
 * poller runs timers, or else the timer is one tick late. */
void progress_timer_kick(void *arg)
{
	struct seat *s = arg;

	__atomic_thread_fence(__ATOMIC_SEQ_CST); /* pairs with progress_set_ticking's */
	if (!__atomic_load_n(&s->ticking, __ATOMIC_RELAXED))
		progress_kick(s);
}

/* Set before the thread reads when the next timer is due: either it sees the timer, or the timer's
 * kick sees `ticking`. */
static void progress_set_ticking(struct seat *s, bool ticking)
{
	if (__atomic_load_n(&s->ticking, __ATOMIC_RELAXED) == ticking)
		return;
	__atomic_store_n(&s->ticking, ticking, __ATOMIC_RELAXED);
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
}

static void progress_clear(int fd)
{
	u64 rings[64]; /* rings of a pipe; an eventfd yields one number */

	if (read(fd, rings, sizeof(rings)) < 0 && errno != EAGAIN)
		log_debug("seat", "doorbell: errno %d", errno);
}

static int progress_timer_ms(struct seat *s, int limit_ms)
{
	u64 next = timer_next_ns(&s->a.timers), now;

	if (next == TIMER_NEVER)
		return limit_ms;
	now = clock_now_ns();
	if (next <= now)
		return 0;
	next = (next - now + NS_PER_MS - 1) / NS_PER_MS;
	return limit_ms >= 0 && (u64)limit_ms < next ? limit_ms : (int)MIN(next, (u64)60000);
}

/* Has the next datagram wake the engine's thread, once, since it sleeps while another thread
 * polls. */
static void progress_arm_udp(struct seat *s)
{
	struct epoll_event ev = { .events = EPOLLIN | EPOLLONESHOT, .data.u64 = TAG_UDP };

	if (__atomic_exchange_n(&s->udp_armed, true, __ATOMIC_SEQ_CST))
		return;
	if (epoll_ctl(s->a.epoll_fd, EPOLL_CTL_MOD, udp_wait_fd(s->a.udp), &ev) != 0)
		log_debug("seat", "datagrams: errno %d", errno);
}

/* Arms the doorbell of the sleeper: a thread in wait_fd if there is one, else the engine's thread.
 * A thread that begins or ends waiting counts itself before it arms. So if the count is unchanged
 * after this arm, a later arm of that thread is the right one. */
static void progress_arm_for_sleeper(struct seat *s)
{
	bool waiter;

	do {
		waiter = __atomic_load_n(&s->claims, __ATOMIC_SEQ_CST) != 0;
		shm_bell_arm(s->a.shm, waiter);
		if (!waiter)
			progress_arm_udp(s);
	} while (waiter != (__atomic_load_n(&s->claims, __ATOMIC_SEQ_CST) != 0));
}

/* After an arm: polls until nothing is left, or has the engine's thread do the rest. */
static void progress_last_look(struct seat *s)
{
	for (int i = 0; i < PROGRESS_LOOKS; i++)
		if (ibt_look(s->a.ibt, PROGRESS_BUDGET) == 0)
			return;
	progress_kick(s);
}

/* Behind the count of a sleeper: what has come while the engine's thread ticks without an arm would
 * wait for the tick. That thread reads `sleepers` behind its store to `ticking`: either it sees the
 * sleeper, arms and looks, or this thread sees that it ticks. */
static void progress_look_in_tick(struct seat *s)
{
	if (__atomic_load_n(&s->ticking, __ATOMIC_SEQ_CST))
		progress_last_look(s);
}

/* ---- waiting with a claim ---- */

static bool progress_fd_ready(int fd)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };

	return poll(&p, 1, 0) > 0;
}

/* The next sleeper must be rung: the engine's thread, or another waiter whose ring this thread has
 * consumed. */
static void progress_end_claim(void *arg)
{
	struct seat *s = arg;

	progress_renew(s);
	__atomic_fetch_sub(&s->claims, 1, __ATOMIC_SEQ_CST);
	progress_arm_for_sleeper(s);
	progress_last_look(s);
}

/* The only place where a waiting thread may be cancelled, if its program permits it (`cancel`): the
 * thread holds nothing but its claim. */
static int progress_sleep(struct seat *s, struct pollfd *p, nfds_t n, int timeout,
			  int cancel)
{
	int ready;

	pthread_cleanup_push(progress_end_claim, s);
	pthread_setcancelstate(cancel, NULL);
	ready = cancellable_poll(p, n, timeout);
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL);
	pthread_cleanup_pop(0);
	return ready;
}

/* After a sleep on the second doorbell and the sockets. */
static void progress_take_rings(struct seat *s, const struct pollfd fds[2], int timeout)
{
	if (fds[1].revents != 0)
		udp_look(s->a.udp);
	if (fds[0].revents != 0)
		progress_clear(s->a.bell_fd[1]);
	if (timeout >= 0)
		timer_run(&s->a.timers, clock_now_ns());
}

/* One round: poll, arm, poll, sleep. 0: fd is readable; -EAGAIN: again; -EINTR. */
static int progress_wait_round(struct seat *s, int fd, int cancel)
{
	struct pollfd p[3] = { { .fd = fd, .events = POLLIN },
			       { .fd = s->a.bell_fd[1], .events = POLLIN },
			       { .fd = udp_wait_fd(s->a.udp), .events = POLLIN } };
	int timeout;

	if (ibt_poll(s->a.ibt, PROGRESS_THREAD_BUDGET) != 0 && progress_fd_ready(fd))
		return 0;
	shm_bell_arm(s->a.shm, 1);
	if (ibt_look(s->a.ibt, PROGRESS_THREAD_BUDGET) != 0)
		return progress_fd_ready(fd) ? 0 : -EAGAIN;
	timeout = progress_timer_ms(s, -1);
	if (progress_sleep(s, p, ARRAY_LEN(p), timeout, cancel) < 0)
		return errno == EINTR ? -EINTR : -EAGAIN;
	progress_take_rings(s, p + 1, timeout);
	return p[0].revents != 0 ? 0 : -EAGAIN;
}

static bool progress_has_ended(const bool *end)
{
	/* pairs with the store in soft_unplug */
	return __atomic_load_n(end, __ATOMIC_SEQ_CST);
}

void progress_wake_waiters(struct seat *s)
{
	u64 one = 1;

	if (syscall(SYS_write, s->a.bell_fd[1], &one, sizeof(one)) < 0)
		log_debug("seat", "waiters: errno %d", errno);
}

int progress_wait_fd(struct seat *s, int fd, const bool *end)
{
	int flags = fcntl(fd, F_GETFL), cancel, err;

	if (flags < 0)
		return -errno;
	if (progress_fd_ready(fd))
		return 0;
	if (!seat_is_attached(s) || progress_has_ended(end))
		return flags & O_NONBLOCK ? -EAGAIN : -EIO;
	if (flags & O_NONBLOCK) {
		progress_drive();
		return progress_fd_ready(fd) ? 0 : -EAGAIN;
	}
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel);
	__atomic_fetch_add(&s->claims, 1, __ATOMIC_SEQ_CST);
	do
		err = progress_wait_round(s, fd, cancel);
	while (err == -EAGAIN && !progress_has_ended(end));
	progress_end_claim(s);
	if (err == -EAGAIN)
		err = progress_fd_ready(fd) ? 0 : -EIO;
	pthread_setcancelstate(cancel, NULL);
	return err;
}

/* ---- sleeping on descriptors of the caller's ---- */

bool progress_sleep_begin(void)
{
	struct seat *s = &the_seat;
	u32 none = 0;

	/* before the claim is tried: pairs with progress_sleep_end */
	__atomic_fetch_add(&s->sleepers, 1, __ATOMIC_SEQ_CST);
	if (!seat_is_attached(s))
		return false;
	if (__atomic_compare_exchange_n(&s->claims, &none, 1, false, __ATOMIC_SEQ_CST,
					__ATOMIC_RELAXED))
		return true;
	progress_look_in_tick(s);
	return false;
}

bool progress_sleep_prepare(struct pollfd fds[2], int *timeout_ms)
{
	struct seat *s = &the_seat;

	shm_bell_arm(s->a.shm, 1);
	if (ibt_look(s->a.ibt, PROGRESS_THREAD_BUDGET) != 0)
		return false;
	fds[0] = (struct pollfd){ .fd = s->a.bell_fd[1], .events = POLLIN };
	fds[1] = (struct pollfd){ .fd = udp_wait_fd(s->a.udp), .events = POLLIN };
	*timeout_ms = progress_timer_ms(s, -1);
	return true;
}

void progress_sleep_wake(const struct pollfd fds[2], int timeout_ms)
{
	progress_take_rings(&the_seat, fds, timeout_ms);
}

/* Such a thread goes on to use what it has received, and then mostly sleeps again. If the engine's
 * thread polls at every tick (it does while other threads drive), it does for what comes meanwhile,
 * and a ring would only make it compete for the cores. But another sleeper waits for its wake-up,
 * and no tick is to delay that. */
void progress_sleep_end(bool claimed)
{
	struct seat *s = &the_seat;
	bool others = __atomic_sub_fetch(&s->sleepers, 1, __ATOMIC_SEQ_CST) != 0;

	if (!claimed)
		return;
	progress_renew(s);
	others |= __atomic_sub_fetch(&s->claims, 1, __ATOMIC_SEQ_CST) != 0;
	others |= __atomic_load_n(&s->sleepers, __ATOMIC_SEQ_CST) != 0;
	/* pairs with progress_set_ticking's fence: either the engine's thread sees the claim gone,
	 * or this thread sees that it does not tick */
	if (!others && __atomic_load_n(&s->ticking, __ATOMIC_SEQ_CST))
		return;
	progress_arm_for_sleeper(s);
	progress_last_look(s);
}

/* A thread with a claim arms for this consumer when the claim ends: it counts `sleepers` behind
 * that, and this one was counted before it looks at the claims. */
void progress_armed(struct seat *s)
{
	if (!seat_is_attached(s))
		return;
	__atomic_store_n(&s->armed_at, __atomic_load_n(&s->drives, __ATOMIC_RELAXED),
			 __ATOMIC_RELAXED);
	if (__atomic_load_n(&s->claims, __ATOMIC_SEQ_CST) == 0) {
		shm_bell_arm(s->a.shm, 0);
		progress_arm_udp(s);
	}
	progress_look_in_tick(s);
}

/* ---- the engine's thread ---- */

static void progress_mind_node(struct seat *s, u32 events)
{
	struct epoll_event ev = { .events = events, .data.u64 = TAG_NODE };

	if (epoll_ctl(s->a.epoll_fd, EPOLL_CTL_MOD, node_event_fd(s->a.node), &ev) != 0)
		log_debug("seat", "node events: errno %d", errno);
}

/* Retries until a node answers. */
static void *progress_recover(void *arg)
{
	struct seat *s = arg;
	int err;

	pthread_setname_np(pthread_self(), "anyverbs/node");
	while ((err = node_recover(s->a.node)) != 0) {
		log_warn("seat", "no node: error %d; trying again", -err);
		usleep(PROGRESS_RECOVER_MS * 1000);
	}
	progress_mind_node(s, EPOLLIN);
	return NULL;
}

/* Finding a node may take long, and peers need the engine meanwhile: a thread of its own finds it.
 * The engine's thread watches the node's events again when that thread has ended. */
static void progress_node_lost(struct seat *s)
{
	progress_mind_node(s, 0);
	if (thread_start("anyverbs/node", THREAD_STACK, NULL, progress_recover, s) == 0)
		return;
	/* no thread available: between two passes, then */
	if (node_recover(s->a.node) != 0)
		usleep(PROGRESS_TICK_MS * 1000);
	progress_mind_node(s, EPOLLIN);
}

/* Recording begins before packets test for it, and ends after. */
void progress_capture(struct seat *s, int fd)
{
	int err = fd >= 0 ? capture_start(&s->a.capture, fd) : 0;

	if (fd >= 0)
		close(fd);
	if (err != 0)
		log_warn("seat", "what is sent cannot be captured: error %d", -err);
	shm_set_watched(s->a.shm, fd >= 0 && err == 0);
	if (fd < 0 || err != 0)
		capture_stop(&s->a.capture);
}

/* A datagram to QP1 that came by way of the node. */
static void progress_mad(struct seat *s, const struct node_mad *mad)
{
	const u8 *payload;
	struct pkt p;

	if (udp_unpack_mad(s->a.udp, mad, &p, &payload))
		s->ops->general(s, &p, payload);
}

static void progress_node_event(struct seat *s, struct node_event *ev)
{
	switch (ev->type) {
	case NODE_EVENT_PEER_NEW:
		if (shm_peer_new(s->a.shm, &ev->peer) != 0)
			log_warn("seat", "a peer could not be added");
		break;
	case NODE_EVENT_PEER_GONE:
		shm_peer_gone(s->a.shm, ev->peer.process, ev->error);
		break;
	case NODE_EVENT_CONFIG:
	case NODE_EVENT_DEVICE_ADDED:
	case NODE_EVENT_DEVICE_REMOVED:
		s->ops->config(s);
		break;
	case NODE_EVENT_CAPTURE:
		progress_capture(s, ev->capture_fd);
		break;
	case NODE_EVENT_FABRIC:
		if (s->ops->fabric != NULL)
			s->ops->fabric(s, ev->fabric.port, ev->fabric.what);
		break;
	case NODE_EVENT_MAD:
		progress_mad(s, &ev->mad);
		break;
	case NODE_EVENT_LOST:
		progress_capture(s, -1); /* the recorder asks the next node */
		progress_node_lost(s);
		break;
	default:
		break;
	}
}

static void progress_node(struct seat *s)
{
	struct node_event ev;

	for (int i = 0; i < 256 && node_event_next(s->a.node, &ev); i++) {
		progress_node_event(s, &ev);
		if (ev.type == NODE_EVENT_LOST)
			break;
	}
}

static void progress_handle(struct seat *s, const struct epoll_event *e)
{
	switch (e->data.u64) {
	case TAG_BELL:
		progress_clear(s->a.bell_fd[0]);
		break;
	case TAG_KICK:
		progress_clear(s->a.kick_fd);
		break;
	case TAG_NODE:
		progress_node(s);
		break;
	case TAG_UDP:
		__atomic_store_n(&s->udp_armed, false, __ATOMIC_SEQ_CST);
		udp_look(s->a.udp);
		break;
	default:
		shm_peer_dead(s->a.shm, e->data.ptr);
		break;
	}
}

/* Polls until nothing comes. */
static void progress_pass(struct seat *s)
{
	udp_look(s->a.udp);
	for (int i = 0; i < 64 && ibt_poll(s->a.ibt, PROGRESS_THREAD_BUDGET) != 0; i++)
		continue;
	if (timer_next_ns(&s->a.timers) != TIMER_NEVER)
		timer_run(&s->a.timers, clock_now_ns());
	shm_background(s->a.shm);
	udp_background(s->a.udp);
}

/* The pollers' activity, as the engine's thread has seen it. */
struct progress_lease {
	u32 seen;  /* of s->drives */
	u32 woken; /* likewise, when the thread woke last */
	u64 since_ns;
	bool steady;
} OWNED_BY(the engine thread);

/* A process that polls steadily receives its own datagrams. One that polls now and then, such as
 * the target of WRITEs that watches its memory, leaves them to this thread. Judged once per tick,
 * since a datagram may have woken this thread earlier. */
static void progress_judge(struct progress_lease *lease, u32 drives)
{
	u64 now = clock_now_ns(), passed = now - lease->since_ns;

	if (passed < PROGRESS_TICK_MS * NS_PER_MS / 2)
		return;
	lease->steady = (drives - lease->seen) * (PROGRESS_TICK_MS * NS_PER_MS) >=
			PROGRESS_STEADY * passed;
	lease->seen = drives;
	lease->since_ns = now;
}

/* Tells whether no thread has polled since `drives`. This thread may have taken the core of one
 * that polls, which has it back while this one sleeps. */
static bool progress_has_stopped(struct seat *s, u32 drives)
{
	const struct timespec pause = { .tv_nsec = PROGRESS_PAUSE_US * (long)NS_PER_US };

	nanosleep(&pause, NULL);
	return __atomic_load_n(&s->drives, __ATOMIC_RELAXED) == drives;
}

/* Tells whether a thread may sleep that must not wait for a tick: one with a claim, whose arm a
 * consumer's may just have replaced, or a consumer. A consumer polls a few times more between its
 * arm and its sleep. Polls beyond those that still go on are of a thread that receives whatever
 * comes, and rings would cost its peers a system call for each message; when it stops, what comes
 * within that tick waits for the tick. */
static bool progress_has_sleeper(struct seat *s, const struct progress_lease *lease, u32 drives)
{
	u32 since_arm = drives - __atomic_load_n(&s->armed_at, __ATOMIC_RELAXED);

	if (__atomic_load_n(&s->claims, __ATOMIC_SEQ_CST) != 0)
		return true;
	return __atomic_load_n(&s->sleepers, __ATOMIC_SEQ_CST) != 0 &&
	       (since_arm <= PROGRESS_LAST_POLLS ||
		(drives == lease->woken && progress_has_stopped(s, drives)));
}

/* Returns how long to sleep; arms the doorbell if no other thread polls, or a consumer sleeps. */
static int progress_prepare_sleep(struct seat *s, struct progress_lease *lease)
{
	u32 drives = __atomic_load_n(&s->drives, __ATOMIC_RELAXED);
	bool ticks = drives != lease->seen;

	if (ticks)
		progress_judge(lease, drives);
	progress_set_ticking(s, ticks);
	if (ticks && !progress_has_sleeper(s, lease, drives)) {
		if (!lease->steady)
			progress_arm_udp(s);
		return progress_timer_ms(s, PROGRESS_TICK_MS);
	}
	progress_arm_for_sleeper(s);
	if (ibt_look(s->a.ibt, PROGRESS_THREAD_BUDGET) != 0)
		return 0;
	return progress_timer_ms(s, ticks ? PROGRESS_TICK_MS : -1);
}

/* Whether spinning for the next datagram pays. */
struct progress_linger {
	u32 skips;   /* sleeps at once for so many times more */
	u32 backoff; /* how many times after the last spin that found nothing */
} OWNED_BY(the engine thread);

static bool progress_is_alone(struct seat *s, const struct progress_lease *lease)
{
	return __atomic_load_n(&s->drives, __ATOMIC_RELAXED) == lease->seen &&
	       __atomic_load_n(&s->claims, __ATOMIC_RELAXED) == 0;
}

/* Datagrams have come and no other thread drives. Within a stream it pays to spin some microseconds
 * for the next one, since a sleep and a wake-up cost more, for the sender too. Each spin that finds
 * nothing doubles how often this thread sleeps at once, so a shared core loses nothing. */
static void progress_linger(struct seat *s, const struct progress_lease *lease,
			    struct progress_linger *linger)
{
	u64 now = clock_now_ns(), begin = now, heard = now;

	if (linger->skips != 0) {
		linger->skips--;
		return;
	}
	while (progress_is_alone(s, lease)) {
		int n = ibt_poll(s->a.ibt, PROGRESS_THREAD_BUDGET);

		now = clock_now_ns();
		if (n != 0) {
			heard = now;
			linger->backoff = 0;
		}
		if (now - begin >= PROGRESS_LINGER_MOST_MS * NS_PER_MS)
			return;
		if (now - heard >= PROGRESS_LINGER_US * NS_PER_US) {
			linger->backoff =
				MIN(2 * linger->backoff + 1, (u32)PROGRESS_LINGER_SKIPS);
			linger->skips = linger->backoff;
			return;
		}
	}
}

static void *progress_main(void *arg)
{
	struct seat *s = arg;
	struct progress_lease lease = { .seen = 0 };
	struct progress_linger linger = { .skips = 0 };
	struct epoll_event ev[16];
	bool datagrams = false;

	pthread_setname_np(pthread_self(), "anyverbs/engine");
	adopt_engine_begin();
	for (;;) {
		int n, timeout;

		adopt_engine_enter();
		lease.woken = __atomic_load_n(&s->drives, __ATOMIC_RELAXED);
		progress_pass(s);
		if (datagrams)
			progress_linger(s, &lease, &linger);
		thread_retry();
		timeout = thread_wait_ms(progress_prepare_sleep(s, &lease));
		adopt_engine_leave();
		n = epoll_wait(s->a.epoll_fd, ev, (int)ARRAY_LEN(ev), timeout);
		adopt_engine_enter();
		datagrams = datagrams && timeout == 0;
		for (int i = 0; i < n; i++) {
			progress_handle(s, &ev[i]);
			datagrams |= ev[i].data.u64 == TAG_UDP;
		}
		adopt_engine_leave();
	}
	return NULL;
}

static int progress_watch(struct seat *s, int fd, u64 tag, u32 once)
{
	struct epoll_event ev = { .events = EPOLLIN | once, .data.u64 = tag };

	return epoll_ctl(s->a.epoll_fd, EPOLL_CTL_ADD, fd, &ev) != 0 ? -errno : 0;
}

static void progress_wake_engine(void)
{
	if (seat_is_attached(&the_seat))
		progress_kick(&the_seat);
}

int progress_start(struct seat *s)
{
	int err = progress_watch(s, s->a.bell_fd[0], TAG_BELL, 0);

	if (err == 0)
		err = progress_watch(s, s->a.kick_fd, TAG_KICK, 0);
	if (err == 0)
		err = progress_watch(s, node_event_fd(s->a.node), TAG_NODE, 0);
	__atomic_store_n(&s->udp_armed, true, __ATOMIC_RELAXED);
	__atomic_store_n(&s->ticking, false, __ATOMIC_RELAXED);
	if (err == 0)
		err = progress_watch(s, udp_wait_fd(s->a.udp), TAG_UDP, EPOLLONESHOT);
	if (err != 0)
		return err;
	thread_on_waiting(progress_wake_engine);
	adopt_engine_expect(true);
	err = thread_start("anyverbs/engine", THREAD_STACK, NULL, progress_main, s);
	if (err != 0)
		adopt_engine_expect(false);
	return err;
}
