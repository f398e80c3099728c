/* shared.c: what several consumers of a port share: a multicast group, a trap. It lives from its
 * first consumer until the last has ended and no query is under way.
 * In:    consumers that come and end    Out: steps of the shared thing, on sa_queue
 * Runs:  consumers; sa_queue            Locks: sa_lock
 */
#include <errno.h>
#include <stdlib.h>

#include "sa/sa_priv.h"

static struct cond sa_shared_news GUARDED_BY(sa_lock); /* a callback or a shared thing has ended */

/* ---- steps, on the queue --------------------------------------------------------------------- */

static void sa_shared_on_work(struct work *w)
{
	struct sa_shared *s = container_of(w, struct sa_shared, work);
	bool ends;

	lock_acquire(&sa_lock);
	while (s->kind->step(s))
		;
	ends = !s->asking && list_empty(&s->consumers);
	if (ends) {
		list_remove(&s->node);
		cond_wake(&sa_shared_news);
	}
	lock_release(&sa_lock);
	if (ends) {
		(void)work_cancel(&s->work);
		free(s);
	}
}

void sa_shared_init(struct sa_shared *s, const struct sa_kind *kind, struct sa_port *port)
	NO_THREAD_SAFETY
{
	s->kind = kind;
	s->port = port;
	list_init(&s->consumers);
	work_init(&s->work, &sa_queue, sa_shared_on_work);
}

void sa_shared_wait(struct list_head *all)
{
	while (!list_empty(all))
		cond_wait(&sa_shared_news, &sa_lock);
}

/* ---- consumers ------------------------------------------------------------------------------- */

static struct sa_shared *sa_consumer_find(struct list_head *all, const struct sa_shared *fresh)
	REQUIRES(sa_lock)
{
	list_for_each(s, all, struct sa_shared, node)
		if (s->kind->same(s, fresh))
			return s;
	return NULL;
}

int sa_consumer_enter(struct sa_consumer *c, struct list_head *all, struct sa_shared *fresh)
{
	struct sa_shared *s = NULL;
	int err = work_queue_begin(&sa_queue);

	lock_acquire(&sa_lock);
	if (err == 0 && !sa_client_hold(c->client))
		err = -EINVAL;
	if (err == 0) {
		s = sa_consumer_find(all, fresh);
		if (s == NULL) {
			s = fresh;
			list_push_back(all, &s->node);
		}
		c->shared = s;
		list_push_back(&s->consumers, &c->node);
		if (s->kind->entered != NULL)
			s->kind->entered(s, c);
		work_push(&s->work);
	}
	lock_release(&sa_lock);
	if (s != fresh)
		free(fresh);
	return err;
}

void sa_consumer_begin_callback(struct sa_consumer *c)
{
	c->in_callback = true;
	c->caller = pthread_self();
	lock_release(&sa_lock);
}

void sa_consumer_end_callback(struct sa_consumer *c, int ends)
{
	lock_acquire(&sa_lock);
	c->in_callback = false;
	c->ending |= ends != 0;
	cond_wake(&sa_shared_news);
}

void sa_consumer_end(struct sa_consumer *c)
{
	lock_acquire(&sa_lock);
	while (c->in_callback && !pthread_equal(c->caller, pthread_self()))
		cond_wait(&sa_shared_news, &sa_lock);
	c->ending = true;
	work_push(&c->shared->work);
	lock_release(&sa_lock);
}

void sa_consumer_free(struct sa_consumer *c)
{
	list_remove(&c->node);
	sa_client_drop(c->client);
	free(c);
}
