/* streams_wait.c: stands in for lib/rdmacm/rsocket/wait.c: a call that sleeps lets virtual time
 * pass; packets, timers and the connection manager go on meanwhile, other programs do not.
 * In: calls that wait    Out: time    Runs: the one thread
 */
#include "streams.h"

void wait_queue_init(struct wait_queue *q) NO_THREAD_SAFETY
{
	lock_init(&q->lock);
	list_init(&q->waiters);
	q->count = 0;
}

void wait_join(struct wait_queue *q, struct waiter *w, struct sleeper *who)
{
}

bool wait_leave(struct wait_queue *q, struct waiter *w)
{
	return true;
}

void wait_wake(struct wait_queue *q)
{
}

int sleeper_begin(struct sleeper *s, enum sleep_kind kind)
{
	return 0;
}

void sleeper_end(struct sleeper *s)
{
}

void sleeper_reset(struct sleeper *s)
{
}

/* Until the next thing happens: the caller looks again after each. */
int sleeper_sleep(struct sleeper *s, u64 ns)
{
	bool more = agenda_step(ns != 0 ? net_now() + ns : UINT64_MAX, false);

	streams_check(more, "a call waits for ever");
	return 0;
}

bool sleeper_is_woken(const struct sleeper *s)
{
	return false;
}

bool sleeper_spin(const struct sleeper *s, struct rsocket *rs)
{
	return false;
}

/* raccept, of a listener whose programs never block. */
int sleeper_poll(struct sleeper *s, struct pollfd *fds, nfds_t count, u64 ns)
{
	streams_fail("raccept blocks");
}

bool sleeper_restarts(void)
{
	return false;
}

struct rsocket *dgram_open(int domain, int *err)
{
	*err = -EPROTONOSUPPORT;
	return NULL;
}

/* Virtual time does not pass while a thread polls. */
const struct rsocket_defaults *rsocket_defaults(void)
{
	static const struct rsocket_defaults defaults = { .receive_bytes = 1 << 17,
							  .send_bytes = 1 << 17,
							  .send_queue = 384,
							  .receive_queue = 384,
							  .inline_bytes = 64 };

	return &defaults;
}
