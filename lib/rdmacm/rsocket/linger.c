/* linger.c: streams that linger: the application has closed them (RDMA_CLOSE_AT_ONCE), and their
 * peers have not acknowledged everything. They have no number any more. The service's thread frees
 * each once that has happened, or once its time is over.
 *
 * A peer decides how long that takes, so their number is bounded: a further one ends the oldest.
 * Their completion queues are armed, and ring the service's bell. The ids of the CM have one
 * channel.
 *
 * In:    streams that their last users free      Out: freed ones
 * Runs:  the service's thread; the application's threads as they close     Locks: linger_list.lock
 */
#include <sys/resource.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fork.h"
#include "stream.h"

enum { LINGER_MAX = 1024 };
/* At most one for so many descriptors that the process may have: the streams of the application,
 * which have one each, keep most of what there is. */
enum { LINGER_DESCRIPTORS = 4 };

static struct linger_list {
	struct lock lock;
	struct list_head streams GUARDED_BY(lock); /* oldest first */
	u32 count ATOMIC_ONLY;			   /* changes under `lock` */
	struct rdma_event_channel *channel GUARDED_BY(lock); /* made once */
	struct sleeper bell GUARDS_ITSELF; /* the service's; ready with the channel */
} linger = { .streams = LIST_HEAD_INIT(linger.streams) };

/* The parent's streams are the parent's to deliver. */
static void linger_drop_in_child(void) NO_THREAD_SAFETY /* the only thread */
{
	if (linger.channel != NULL)
		close(linger.channel->fd);
	linger.channel = NULL;
	list_init(&linger.streams);
	linger.count = 0;
}
FORK_MAKES_ANEW(FORK_LINGER, &linger.lock, .child = linger_drop_in_child);

static int linger_open(void) REQUIRES(linger.lock)
{
	struct rdma_event_channel *channel = rdma_create_event_channel();
	int err;

	if (channel == NULL)
		return -errno;
	err = fcntl(channel->fd, F_SETFL, O_NONBLOCK) != 0 ? -errno : 0;
	if (err == 0)
		err = service_hear(channel->fd, &linger.bell);
	if (err < 0)
		rdma_destroy_event_channel(channel);
	else
		linger.channel = channel;
	return err;
}

int linger_begin(void)
{
	int err = 0;

	lock_acquire(&linger.lock);
	if (linger.channel == NULL)
		err = linger_open();
	lock_release(&linger.lock);
	return err;
}

u32 linger_count(void)
{
	return __atomic_load_n(&linger.count, __ATOMIC_ACQUIRE);
}

/* stream_destroy follows, without the lock. */
static void linger_remove(struct stream *s) REQUIRES(linger.lock)
{
	s->lingers = false;
	list_remove(&s->lingering);
	counter_add(&linger.count, -1);
	wait_leave(&s->rs.waiters, &s->linger_place);
}

/* The number becomes free. Of an id that must stay in its channel no event is heard any more, and
 * the stream keeps its number. */
static void linger_leave_number(struct stream *s) REQUIRES(linger.lock)
{
	s->rs.fd = -1;
	if (rdma_migrate_id(s->id, linger.channel) != 0)
		return;
	rdma_destroy_event_channel(s->channel);
	s->channel = NULL;
}

static u32 linger_most(void)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) != 0)
		return LINGER_MAX;
	return (u32)MAX(MIN(limit.rlim_cur / LINGER_DESCRIPTORS, (rlim_t)LINGER_MAX), 1ul);
}

void linger_keep(struct stream *s)
{
	struct stream *oldest = NULL;

	lock_acquire(&linger.lock);
	if (linger_count() >= linger_most()) {
		oldest = list_first(&linger.streams, struct stream, lingering);
		linger_remove(oldest);
	}
	counter_add(&linger.count, 1);
	linger_leave_number(s);
	wait_join(&s->rs.waiters, &s->linger_place, &linger.bell);
	list_push_back(&linger.streams, &s->lingering);
	sleeper_reset(&linger.bell); /* the last of others may have rung, and nobody looked */
	lock_release(&linger.lock);
	sleeper_wake(&linger.bell);
	if (oldest != NULL)
		stream_destroy(oldest);
}

/* ---- the service's thread -------------------------------------------------------------------- */

/* The event's stream is there until the event is acknowledged. A peer that has left takes no more.
 */
static void linger_take_event(const struct rdma_cm_event *event) REQUIRES(linger.lock)
{
	struct stream *s = event->id->context;

	if (!s->lingers)
		return;
	lock_acquire(&s->conn_lock);
	stream_event(s, event);
	lock_release(&s->conn_lock);
	if (event->event == RDMA_CM_EVENT_DISCONNECTED)
		s->lingers_until_ns = 0;
}

static void linger_take_events(void) REQUIRES(linger.lock)
{
	struct rdma_cm_event *event;

	while (rdma_get_cm_event(linger.channel, &event) == 0) {
		linger_take_event(event);
		rdma_ack_cm_event(event);
	}
}

static bool linger_is_over(struct stream *s, u64 now_ns) REQUIRES(linger.lock)
{
	u32 phase = stream_phase(s);

	if (now_ns >= s->lingers_until_ns)
		return true;
	if (phase == STREAM_ACCEPTING)
		return false;
	stream_arm(&s->rs);
	return phase != STREAM_CONNECTED || stream_is_flushed(s);
}

void linger_run(u64 now_ns, u64 *next_ns)
{
	struct list_head over = LIST_HEAD_INIT(over);

	if (linger_count() == 0)
		return;
	lock_acquire(&linger.lock);
	sleeper_reset(&linger.bell); /* before a look at anything */
	linger_take_events();
	list_for_each_safe(s, &linger.streams, struct stream, lingering) {
		if (linger_is_over(s, now_ns)) {
			linger_remove(s);
			list_push_back(&over, &s->lingering);
		} else {
			*next_ns = MIN(*next_ns, s->lingers_until_ns);
		}
	}
	lock_release(&linger.lock);
	list_for_each_safe(s, &over, struct stream, lingering)
		stream_destroy(s);
}
