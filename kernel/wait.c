/* wait.c: wait queues and completions.
 * In:    tasks that wait             Out: tasks that are woken
 * Runs:  the caller's thread         Locks: wait_queue_head.lock, then a task_struct.lock
 */
#include <linux/completion.h>
#include <linux/wait.h>

void add_wait_queue(wait_queue_head_t *queue, wait_queue_entry_t *entry)
{
	spin_lock(&queue->lock);
	list_add(&entry->entry, &queue->head);
	spin_unlock(&queue->lock);
}

void remove_wait_queue(wait_queue_head_t *queue, wait_queue_entry_t *entry)
{
	spin_lock(&queue->lock);
	list_del_init(&entry->entry);
	spin_unlock(&queue->lock);
}

/* Exclusive ones stand behind all others, so that a wake-up reaches those first. */
void prepare_to_wait(wait_queue_head_t *queue, wait_queue_entry_t *entry, int state)
{
	spin_lock(&queue->lock);
	if (list_empty(&entry->entry)) {
		if (entry->is_exclusive)
			list_add_tail(&entry->entry, &queue->head);
		else
			list_add(&entry->entry, &queue->head);
	}
	set_current_state((unsigned int)state);
	spin_unlock(&queue->lock);
}

void prepare_to_wait_exclusive(wait_queue_head_t *queue, wait_queue_entry_t *entry, int state)
{
	entry->is_exclusive = true;
	prepare_to_wait(queue, entry, state);
}

void finish_wait(wait_queue_head_t *queue, wait_queue_entry_t *entry)
{
	__set_current_state(TASK_RUNNING);
	remove_wait_queue(queue, entry);
}

void anyverbs_wake_locked(wait_queue_head_t *queue, unsigned int mode, int exclusive)
{
	wait_queue_entry_t *entry, *ahead;

	list_for_each_entry_safe(entry, ahead, &queue->head, entry) {
		if (!(READ_ONCE(entry->task->state) & mode))
			continue;
		/* Off the queue before the task runs: its entry lies on its stack. */
		if (!entry->is_kept)
			list_del_init(&entry->entry);
		wake_up_process(entry->task);
		if (entry->is_exclusive && --exclusive == 0)
			return;
	}
}

void anyverbs_wake(wait_queue_head_t *queue, unsigned int mode, int exclusive)
{
	spin_lock(&queue->lock);
	anyverbs_wake_locked(queue, mode, exclusive);
	spin_unlock(&queue->lock);
}

/* ---- completions ----------------------------------------------------------------------------- */

static void completion_end(struct completion *x, bool is_for_all)
{
	spin_lock(&x->wait.lock);
	if (is_for_all)
		x->done = UINT32_MAX;
	else if (x->done != UINT32_MAX)
		x->done++;
	anyverbs_wake_locked(&x->wait, TASK_NORMAL, is_for_all ? 0 : 1);
	spin_unlock(&x->wait.lock);
}

void complete(struct completion *x)
{
	completion_end(x, false);
}

void complete_all(struct completion *x)
{
	completion_end(x, true);
}

bool try_wait_for_completion(struct completion *x)
{
	bool was_done;

	spin_lock(&x->wait.lock);
	was_done = x->done != 0;
	if (was_done && x->done != UINT32_MAX)
		x->done--;
	spin_unlock(&x->wait.lock);
	return was_done;
}

bool completion_done(struct completion *x)
{
	bool is_done;

	spin_lock(&x->wait.lock);
	is_done = x->done != 0;
	spin_unlock(&x->wait.lock);
	return is_done;
}

/* Even the first look takes the lock: complete has let go of it when a waiter returns. */
long anyverbs_completion_wait(struct completion *x, unsigned int state, long timeout)
{
	if (state == TASK_INTERRUPTIBLE)
		return anyverbs_wait(x->wait, try_wait_for_completion(x), TASK_INTERRUPTIBLE, true,
				     timeout);
	return anyverbs_wait(x->wait, try_wait_for_completion(x), TASK_UNINTERRUPTIBLE, true,
			     timeout);
}

int wait_for_completion_interruptible(struct completion *x)
{
	long end = anyverbs_completion_wait(x, TASK_INTERRUPTIBLE, MAX_SCHEDULE_TIMEOUT);

	return end < 0 ? (int)end : 0;
}
