/* channel.c: completion channels: a descriptor and the list of sources whose events wait.
 *
 * In:    channel_post by producers                 Out: cookies, in turn among the sources
 * Runs:  any thread                                Locks: the channel's lock
 *
 * The descriptor's count equals the number of waiting events whenever the lock is free, so it is
 * written and read under the lock; neither call can sleep.
 */
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/cond.h"
#include "event/event_priv.h"

struct channel {
	struct lock lock;
	struct ready_fd ready_fd FIXED;
	struct atfork_watch watch GUARDS_ITSELF;
	u32 users GUARDED_BY(lock);               /* sources added and not removed */
	struct list_head waiting GUARDED_BY(lock); /* sources with undelivered events */
	struct cond acked GUARDED_BY(lock);       /* a source's last acknowledgement has arrived */
	void (*notify)(void *cookie) FIXED;       /* NULL: events wait behind the descriptor */
	u32 calls GUARDED_BY(lock);               /* calls of channel_next so far */
};

static __thread void (*channel_next_notify)(void *cookie);

void channel_notify_next(void (*notify)(void *cookie))
{
	channel_next_notify = notify;
}

/* The child gets a descriptor of its own, so that neither process takes the other's events. */
static void channel_drop(struct atfork_watch *w) NO_THREAD_SAFETY /* the only thread */
{
	struct channel *ch = container_of(w, struct channel, watch);
	u32 count = 0;

	if (ch->lock.word != 0)
		list_init(&ch->waiting); /* a thread of the parent was just changing it */
	lock_init(&ch->lock);
	ch->acked = (struct cond){ 0 };
	list_for_each(s, &ch->waiting, struct channel_source, node)
		count += s->undelivered;
	if (!ch->notify)
		ready_fd_renew(&ch->ready_fd, count);
}

static int channel_open(struct channel *ch) NO_THREAD_SAFETY /* not yet visible to other threads */
{
	int err;

	list_init(&ch->waiting);
	ch->notify = channel_next_notify;
	channel_next_notify = NULL;
	ch->ready_fd = (struct ready_fd){ -1, -1 };
	err = ch->notify ? 0 : ready_fd_open(&ch->ready_fd);
	if (err)
		return err;
	err = atfork_watch_add(&ch->watch, channel_drop);
	if (err && !ch->notify)
		ready_fd_close(&ch->ready_fd);
	return err;
}

struct channel *channel_create(int *err)
{
	struct channel *ch = calloc(1, sizeof(*ch));
	int result = ch ? channel_open(ch) : -ENOMEM;

	if (result == 0)
		return ch;
	*err = result;
	free(ch);
	return NULL;
}

int channel_destroy(struct channel *ch)
{
	bool busy;

	lock_acquire(&ch->lock);
	busy = ch->users > 0;
	lock_release(&ch->lock);
	if (busy)
		return -EBUSY;
	atfork_watch_remove(&ch->watch);
	if (!ch->notify)
		ready_fd_close(&ch->ready_fd);
	free(ch);
	return 0;
}

int channel_fd(const struct channel *ch)
{
	return ch->ready_fd.fd;
}

int channel_source_add(struct channel_source *s, struct channel *ch, void *cookie)
{
	*s = (struct channel_source){ .channel = ch, .cookie = cookie };
	list_init(&s->node);
	if (!ch)
		return 0;
	lock_acquire(&ch->lock);
	ch->users++;
	lock_release(&ch->lock);
	return 0;
}

void channel_post(struct channel_source *s)
{
	struct channel *ch = s->channel;

	if (!ch)
		return;
	lock_acquire(&ch->lock);
	if (ch->notify) {
		ch->notify(s->cookie);
		lock_release(&ch->lock);
		return;
	}
	if (s->undelivered++ == 0 && !s->held)
		list_push_back(&ch->waiting, &s->node);
	if (!s->held)
		ready_fd_add(&ch->ready_fd);
	lock_release(&ch->lock);
}

/* Takes one event of the source whose turn it is. */
static struct channel_source *channel_take(struct channel *ch) REQUIRES(&ch->lock)
{
	struct list_head *node = list_pop_front(&ch->waiting);
	struct channel_source *s;

	if (!node)
		return NULL;
	s = list_entry(node, struct channel_source, node);
	s->delivered++;
	if (--s->undelivered > 0)
		list_push_back(&ch->waiting, &s->node);
	ready_fd_take(&ch->ready_fd, 1);
	return s;
}

int channel_next(struct channel *ch, void **cookie)
{
	struct channel_source *s;

	lock_acquire(&ch->lock);
	ch->calls++;
	s = channel_take(ch);
	if (s) {
		*cookie = s->cookie;
		s->taken_call = ch->calls;
	} else {
		/* clears the count: a consumer that wrote to the descriptor must not spin */
		ready_fd_take(&ch->ready_fd, UINT32_MAX);
	}
	lock_release(&ch->lock);
	return s ? 0 : -EAGAIN;
}

bool channel_source_is_latest(const struct channel_source *s)
{
	struct channel *ch = s->channel;
	bool latest;

	if (!ch)
		return false;
	lock_acquire(&ch->lock);
	latest = s->delivered > 0 && s->taken_call == ch->calls;
	lock_release(&ch->lock);
	return latest;
}

/* Signed: a consumer that acknowledges too many events waits for none. */
static bool channel_source_owed(const struct channel_source *s)
{
	return (s32)(s->delivered - s->acked) > 0;
}

void channel_ack(struct channel_source *s, u32 events)
{
	struct channel *ch = s->channel;

	if (!ch)
		return;
	lock_acquire(&ch->lock);
	s->acked += events;
	if (!channel_source_owed(s))
		cond_wake(&ch->acked);
	lock_release(&ch->lock);
}

static void channel_source_withdraw(struct channel *ch, struct channel_source *s)
	REQUIRES(&ch->lock)
{
	list_remove(&s->node);
	if (!s->held)
		ready_fd_take(&ch->ready_fd, s->undelivered);
	s->held = true;
	while (channel_source_owed(s))
		cond_wait(&ch->acked, &ch->lock);
}

void channel_source_hold(struct channel_source *s)
{
	struct channel *ch = s->channel;

	if (!ch)
		return;
	lock_acquire(&ch->lock);
	channel_source_withdraw(ch, s);
	lock_release(&ch->lock);
}

void channel_source_release(struct channel_source *s)
{
	struct channel *ch = s->channel;

	if (!ch)
		return;
	lock_acquire(&ch->lock);
	s->held = false;
	if (s->undelivered > 0)
		list_push_back(&ch->waiting, &s->node);
	for (u32 i = 0; i < s->undelivered; i++)
		ready_fd_add(&ch->ready_fd);
	lock_release(&ch->lock);
}

void channel_source_remove(struct channel_source *s)
{
	struct channel *ch = s->channel;

	if (!ch)
		return;
	lock_acquire(&ch->lock);
	channel_source_withdraw(ch, s);
	s->undelivered = 0;
	ch->users--;
	s->channel = NULL;
	lock_release(&ch->lock);
}
