/* table.c: which descriptors are ours, and the life of a struct sock.
 * In: descriptors    Out: their socks    Runs: any thread, also in signal handlers
 * Locks: table.lock, a leaf
 *
 * A sock goes back to a pool and never to malloc: table_hold may look at one that just ends.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "rsockets.h"

static struct {
	struct lock lock;
	struct sock *free GUARDED_BY(lock);
} table;

pid_t table_pid;
struct sock *table_socks[FD_LIMIT];

__attribute__((constructor)) static void table_begin(void)
{
	table_pid = getpid();
}

static bool sock_try_hold(struct sock *s)
{
	u32 refs = __atomic_load_n(&s->refs, __ATOMIC_RELAXED);

	while (refs != 0)
		if (__atomic_compare_exchange_n(&s->refs, &refs, refs + 1, true, __ATOMIC_ACQ_REL,
						__ATOMIC_RELAXED))
			return true;
	return false;
}

struct sock *table_hold(int fd)
{
	for (;;) {
		struct sock *s = __atomic_load_n(&table_socks[fd], __ATOMIC_ACQUIRE);

		if (s == NULL)
			return NULL;
		if (!sock_try_hold(s))
			continue; /* another thread has just taken it out */
		if (__atomic_load_n(&table_socks[fd], __ATOMIC_ACQUIRE) == s)
			return s;
		sock_put(s);
	}
}

void sock_hold(struct sock *s)
{
	__atomic_fetch_add(&s->refs, 1, __ATOMIC_ACQ_REL);
}

struct sock *sock_new(enum sock_kind kind, int domain)
{
	struct sock *s;

	lock_acquire(&table.lock);
	s = table.free;
	if (s != NULL)
		table.free = s->free;
	lock_release(&table.lock);
	if (s == NULL)
		s = malloc(sizeof(*s));
	if (s == NULL)
		return NULL;
	/* refs stays 0 meanwhile: threads that look at a stale slot let it be */
	memset((char *)s + sizeof(s->refs), 0, sizeof(*s) - sizeof(s->refs));
	sock_set_kind(s, kind);
	s->domain = domain;
	s->rfd = s->far = s->bell = -1;
	__atomic_store_n(&s->ask, -1, __ATOMIC_RELAXED);
	list_init(&s->items);
	list_init(&s->accepted);
	list_init(&s->service);
	__atomic_store_n(&s->refs, 1, __ATOMIC_RELEASE);
	return s;
}

static NOINLINE void sock_free(struct sock *s)
{
	int saved = errno;
	QUIET();

	if (s->rfd >= 0)
		rsocket_end(s->rfd);
	if (s->far >= 0)
		close(s->far);
	if (s->bell >= 0)
		close(s->bell);
	option_free(s);
	lock_acquire(&table.lock);
	s->free = table.free;
	table.free = s;
	lock_release(&table.lock);
	errno = saved;
}

void sock_put(struct sock *s)
{
	if (__atomic_sub_fetch(&s->refs, 1, __ATOMIC_ACQ_REL) == 0)
		sock_free(s);
}

void table_add(int fd, struct sock *s)
{
	lock_acquire(&table.lock);
	s->slots++;
	__atomic_store_n(&table_socks[fd], s, __ATOMIC_RELEASE);
	lock_release(&table.lock);
}

struct sock *table_remove(int fd)
{
	struct sock *s;
	bool last;

	if ((unsigned)fd >= FD_LIMIT)
		return NULL;
	lock_acquire(&table.lock);
	s = table_socks[fd];
	__atomic_store_n(&table_socks[fd], NULL, __ATOMIC_RELEASE);
	last = s != NULL && --s->slots == 0;
	lock_release(&table.lock);
	return last ? s : NULL;
}

void table_each(void (*fn)(struct sock *s))
{
	for (int fd = 0; fd < FD_LIMIT; fd++) {
		struct sock *s = sock_get(fd);

		if (s == NULL)
			continue;
		fn(s);
		sock_put(s);
	}
}

bool table_has(enum sock_kind kind)
{
	bool has = false;

	for (int fd = 0; fd < FD_LIMIT && !has; fd++) {
		struct sock *s = sock_get(fd);

		if (s == NULL)
			continue;
		has = sock_kind(s) == kind;
		sock_put(s);
	}
	return has;
}

/* Whatever the parent's threads did is over. */
static void table_child(void)
{
	table_pid = getpid();
}
FORK_TAKES(FORK_SHIM_TABLE, &table.lock, .child = table_child);

u64 now_ms(void)
{
	return clock_now_ns() / 1000000;
}

/* A fault of the program's own instructions, never what ends a wait. */
static bool signal_is_fault(int number)
{
	return number == SIGSEGV || number == SIGBUS || number == SIGFPE || number == SIGILL ||
	       number == SIGTRAP || number == SIGSYS;
}

bool signal_restarts(void)
{
	struct sigaction act;
	bool some = false;
	int saved = errno;

	for (int number = 1; number < 32; number++) {
		if (signal_is_fault(number) || sigaction(number, NULL, &act) != 0 ||
		    act.sa_handler == SIG_DFL || act.sa_handler == SIG_IGN)
			continue;
		some = true;
		if ((act.sa_flags & SA_RESTART) == 0) {
			some = false;
			break;
		}
	}
	errno = saved;
	return some;
}
