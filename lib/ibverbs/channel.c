/* channel.c: completion channels, and waiting for their events.
 * In: events that CQs post      Out: ibv_get_cq_event      Runs: the application's threads
 * Locks: none
 */
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>

#include "door.h"

/* Signals of faults: crash reporters catch them, and none of them ends a wait. */
static bool channel_is_fault(int number)
{
	return number == SIGSEGV || number == SIGBUS || number == SIGFPE || number == SIGILL ||
	       number == SIGTRAP || number == SIGSYS || number == SIGABRT;
}

/* True if every handler that the program has installed has SA_RESTART. A read() from a device would
 * continue after such a signal; programs that use signal() (perftest's timer) rely on it. Which
 * signal came is unknown, so one handler without the flag decides.
 */
static bool channel_may_restart(void)
{
	struct sigaction action;

	for (int number = 1; number <= SIGRTMAX; number++) {
		if (channel_is_fault(number) || sigaction(number, NULL, &action))
			continue;
		if (action.sa_handler == SIG_DFL || action.sa_handler == SIG_IGN)
			continue;
		if (!(action.sa_flags & SA_RESTART))
			return false;
	}
	return true;
}

int channel_wait_fd(struct door_context *c, int fd)
{
	int error;

	do
		error = c->ops->wait_fd(c->ib, fd);
	while (error == -EINTR && channel_may_restart());
	return error;
}

AV_EXPORT struct ibv_comp_channel *ibv_create_comp_channel(struct ibv_context *context)
{
	struct door_channel *channel = calloc(1, sizeof(*channel));
	int error = ENOMEM;

	if (!channel)
		return door_null(-ENOMEM);
	context = old_or_new_context(context);
	channel->ch = channel_create(&error);
	if (!channel->ch) {
		free(channel);
		return door_null(error > 0 ? -error : error);
	}
	channel->ibv.context = context;
	channel->ibv.fd = channel_fd(channel->ch);
	context_get(door_context(context));
	return &channel->ibv;
}

AV_EXPORT int ibv_destroy_comp_channel(struct ibv_comp_channel *channel)
{
	struct door_context *c = door_context(channel->context);
	int error = -EBUSY;

	/* Pairs with the release in cq_count_on_channel: the last CQ is done with the channel. */
	if (__atomic_load_n(&channel->refcnt, __ATOMIC_ACQUIRE) == 0)
		error = channel_destroy(door_channel(channel)->ch);
	if (error)
		return door_errno(error);
	free(channel);
	context_put(c);
	return 0;
}

AV_EXPORT int ibv_get_cq_event(struct ibv_comp_channel *channel, struct ibv_cq **cq,
			       void **cq_context)
{
	struct channel *ch = door_channel(channel)->ch;
	void *cookie;
	int error;

	pthread_testcancel(); /* as read() would */
	while ((error = channel_next(ch, &cookie))) {
		if (error == -EAGAIN)
			error = channel_wait_fd(door_context(channel->context), channel->fd);
		if (error)
			return door_minus_one(error);
	}
	*cq = cookie;
	*cq_context = (*cq)->cq_context;
	return 0;
}
DOOR_DEFAULT(ibv_get_cq_event);

AV_EXPORT void ibv_ack_cq_events(struct ibv_cq *cq, unsigned int nevents)
{
	if (!nevents)
		return;
	DOOR_COUNT_EVENTS(cq, comp_events_completed, nevents);
	door_context(cq->context)->ops->ack_cq_events(door_cq(cq)->ib, nevents);
}
DOOR_DEFAULT(ibv_ack_cq_events);
