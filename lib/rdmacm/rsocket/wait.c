/* wait.c: threads that sleep until an rsocket changes.
 * In:    changes, told in any context      Out: threads that run again
 * Runs:  any thread                        Locks: wait_queue.lock, a leaf
 *
 * A thread joins the queue, then looks whether it must wait at all, then sleeps. Whoever changes
 * something does so first and then reads the count of waiters: one of the two sees the other.
 */
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/fork.h"
#include "core/uverbs.h"
#include "device.h"
#include "rsocket.h"

_Static_assert(SLEEPER_FDS == 1 + IB_SLEEP_FDS, "the eventfd and the device's descriptors");

static __thread char sleeper_thread; /* its address names the thread */

void wait_queue_init(struct wait_queue *q) NO_THREAD_SAFETY /* nobody else has it */
{
	lock_init(&q->lock);
	list_init(&q->waiters);
	q->count = 0;
}

void wait_join(struct wait_queue *q, struct waiter *w, struct sleeper *who)
{
	w->who = who;
	w->hit = false;
	lock_acquire(&q->lock);
	list_push_back(&q->waiters, &w->node);
	/* before the caller looks; pairs with wait_wake */
	__atomic_add_fetch(&q->count, 1, __ATOMIC_SEQ_CST);
	lock_release(&q->lock);
}

bool wait_leave(struct wait_queue *q, struct waiter *w)
{
	bool hit;

	lock_acquire(&q->lock);
	list_remove(&w->node);
	__atomic_sub_fetch(&q->count, 1, __ATOMIC_RELAXED);
	hit = w->hit;
	lock_release(&q->lock);
	return hit;
}

void sleeper_wake(struct sleeper *s)
{
	u64 one = 1;
	int saved = errno;

	/* pairs with sleeper_is_woken */
	if (__atomic_exchange_n(&s->woken, 1, __ATOMIC_SEQ_CST) != 0)
		return;
	if (s->fd < 0)
		syscall(SYS_futex, &s->woken, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
	else if (s->thread != &sleeper_thread)
		while (write(s->fd, &one, sizeof(one)) < 0 && errno == EINTR)
			;
	errno = saved;
}

void wait_wake(struct wait_queue *q)
{
	/* An addition, which is ordered with that of wait_join: either this one sees the waiter, or
	 * the waiter, which looks afterwards, sees what has changed. */
	if (__atomic_fetch_add(&q->count, 0, __ATOMIC_SEQ_CST) == 0)
		return;
	lock_acquire(&q->lock);
	list_for_each(w, &q->waiters, struct waiter, node) {
		w->hit = true;
		sleeper_wake(w->who);
	}
	lock_release(&q->lock);
}

void sleeper_reset(struct sleeper *s)
{
	__atomic_store_n(&s->woken, 0, __ATOMIC_SEQ_CST);
}

bool sleeper_is_woken(const struct sleeper *s)
{
	/* pairs with sleeper_wake */
	return __atomic_load_n(&s->woken, __ATOMIC_SEQ_CST) != 0;
}

bool sleeper_spin(const struct sleeper *s, struct rsocket *rs)
{
	u64 until = clock_now_ns() + rsocket_defaults()->polling_us * NS_PER_US;

	while (!sleeper_is_woken(s) && clock_now_ns() < until) {
		(void)rs->ops->poll(rs, 0, true);
		cpu_relax();
	}
	return sleeper_is_woken(s);
}

/* A bare system call is no cancellation point: the thread may be cancelled at any instruction
 * between the two changes of the type. What it holds its callers give back. */
static int sleeper_on_futex(struct sleeper *s, u64 ns)
{
	struct timespec limit = { .tv_sec = (time_t)(ns / NS_PER_S),
				  .tv_nsec = (long)(ns % NS_PER_S) };
	int saved = errno, err = 0, type;

	pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, &type);
	if (syscall(SYS_futex, &s->woken, FUTEX_WAIT_PRIVATE, 0, ns != 0 ? &limit : NULL, NULL,
		    0) < 0)
		err = errno == ETIMEDOUT || errno == EINTR ? -errno : 0;
	pthread_setcanceltype(type, NULL);
	errno = saved;
	return sleeper_is_woken(s) ? 0 : err;
}

/* A fault of the program's own instructions, never what ends a sleep. Sanitizers and reporters of
 * crashes handle them. */
static bool sleeper_is_fault(int number)
{
	return number == SIGSEGV || number == SIGBUS || number == SIGFPE || number == SIGILL ||
	       number == SIGTRAP || number == SIGSYS;
}

/* Which signal it was is not known any more: every handler that this thread may have run has
 * SA_RESTART. */
bool sleeper_restarts(void)
{
	struct sigaction act;
	sigset_t blocked;
	bool handled = false;

	pthread_sigmask(SIG_SETMASK, NULL, &blocked);
	for (int number = 1; number < _NSIG; number++) {
		if (sleeper_is_fault(number) || sigismember(&blocked, number) == 1 ||
		    sigaction(number, NULL, &act) != 0 || act.sa_handler == SIG_DFL ||
		    act.sa_handler == SIG_IGN)
			continue;
		if (!(act.sa_flags & SA_RESTART))
			return false;
		handled = true;
	}
	return handled;
}

int sleeper_sleep(struct sleeper *s, u64 ns)
{
	struct pollfd fds[SLEEPER_FDS];
	int err = s->fd < 0 ? sleeper_on_futex(s, ns) : sleeper_poll(s, fds, 0, ns);

	return err == -EINTR && sleeper_restarts() ? 0 : err;
}

static int sleeper_ppoll(struct pollfd *fds, nfds_t count, u64 ns, int most_ms)
{
	u64 most = most_ms < 0 ? UINT64_MAX : (u64)most_ms * NS_PER_MS;
	struct timespec limit;

	most = MIN(most, ns != 0 ? ns : UINT64_MAX);
	limit.tv_sec = (time_t)(most / NS_PER_S);
	limit.tv_nsec = (long)(most % NS_PER_S);
	return ppoll(fds, count, most == UINT64_MAX ? NULL : &limit, NULL) < 0 ? -errno : 0;
}

static void sleeper_empty(int fd)
{
	u64 value;

	while (read(fd, &value, sizeof(value)) < 0 && errno == EINTR)
		;
}

/* One sleep on descriptors, also one that ends with the thread. */
struct sleeper_turn {
	struct sleeper *s;
	struct pollfd *mine;
	int most_ms;
} OWNED_BY(the thread that sleeps);

static void sleeper_turn_end(struct sleeper_turn *t)
{
	if (t->s->claimed)
		t->s->ops->wake(t->mine + 1, t->most_ms);
	if (t->mine->revents != 0)
		sleeper_empty(t->s->fd);
}

static int sleeper_turn(struct sleeper *s, struct pollfd *fds, nfds_t count, u64 ns, int most_ms)
{
	struct sleeper_turn turn CLEANUP(sleeper_turn_end) = { s, &fds[count], most_ms };

	return sleeper_ppoll(fds, count + (s->claimed ? SLEEPER_FDS : 1), ns, most_ms);
}

int sleeper_poll(struct sleeper *s, struct pollfd *fds, nfds_t count, u64 ns)
{
	struct pollfd *mine = &fds[count];
	int most_ms = -1, saved = errno, err;

	if (s->claimed && !s->ops->prepare(mine + 1, &most_ms))
		return 0;
	mine->fd = s->fd;
	mine->events = POLLIN;
	mine->revents = 0;
	if (sleeper_is_woken(s))
		return 0;
	err = sleeper_turn(s, fds, count, ns, most_ms);
	errno = saved;
	return err;
}

/* ---- the thread's eventfd -------------------------------------------------------------------- */

static struct sleeper_fds {
	pthread_once_t once;
	pthread_key_t key;
	u32 forks; /* changes in a child that has one thread */
} GUARDS_ITSELF sleeper_fds = { .once = PTHREAD_ONCE_INIT };
static __thread int sleeper_own_fd;	/* plus 1; 0: none */
static __thread u32 sleeper_own_forks; /* an older one is the parent's */

static void sleeper_close(void *fd)
{
	close((int)(intptr_t)fd - 1);
}

static void sleeper_drop_in_child(void)
{
	sleeper_fds.forks++;
}
FORK_HOOK(FORK_SLEEPER, .child = sleeper_drop_in_child);

static void sleeper_start(void)
{
	(void)pthread_key_create(&sleeper_fds.key, sleeper_close);
}

/* An eventfd, or a negative errno. It ends with the thread. */
static int sleeper_fd(void)
{
	int fd = sleeper_own_fd - 1;

	pthread_once(&sleeper_fds.once, sleeper_start);
	if (fd >= 0 && sleeper_own_forks == sleeper_fds.forks)
		return fd;
	if (fd >= 0)
		close(fd);
	sleeper_own_fd = 0;
	fd = fd_own(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
	if (fd < 0)
		return -errno;
	sleeper_own_fd = fd + 1;
	sleeper_own_forks = sleeper_fds.forks;
	pthread_setspecific(sleeper_fds.key, (void *)(intptr_t)(fd + 1));
	return fd;
}

/* ---- driving the device meanwhile ------------------------------------------------------------ */

/* Without a descriptor it cannot. */
static void sleeper_give_up(struct sleeper *s)
{
	if (s->ops != NULL)
		s->ops->end(s->claimed);
	s->ops = NULL;
	s->claimed = false;
}

int sleeper_begin(struct sleeper *s, enum sleep_kind kind)
{
	bool polls = kind != SLEEP_CALL;
	int fd;

	*s = (struct sleeper){ .fd = -1,
			       .thread = &sleeper_thread,
			       .ops = kind != SLEEP_LISTEN ? rsocket_device_sleep() : NULL };
	s->claimed = s->ops != NULL && s->ops->begin();
	if (!s->claimed && !polls)
		return 0;
	fd = sleeper_fd();
	if (fd < 0)
		sleeper_give_up(s);
	else
		s->fd = fd;
	return fd < 0 && polls ? fd : 0;
}

void sleeper_end(struct sleeper *s)
{
	sleeper_give_up(s);
}
