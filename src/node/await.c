/* await.c: tells a node that gets no CPU from one that is stopped or does not answer.
 *
 * On a busy host the kernel may leave a runnable node without a CPU for five seconds and more. Its
 * state is R then, although its stack and wchan still show epoll_wait. Its reply does come, and a
 * second connection would queue behind the first. So the wait is counted in looks at the node's
 * state, not in time. A host that stands still as a whole costs one look.
 * In:    a connected socket           Out: whether a reply is there
 * Runs:  any thread; blocks           Locks: none
 */
#include "node/await.h"

#include <errno.h>
#include <string.h>

#include "base/clock.h"
#include "base/task.h"
#include "node/address.h"
#include "node/message.h"

enum { AWAIT_LOOK_MS = 250, AWAIT_PER_S = 1000 / AWAIT_LOOK_MS };

bool await_is_busy(s32 pid)
{
	char state = task_state(pid);

	return state == 'R' || state == 'D';
}

int await_reply(int fd, struct await *a)
{
	while (a->silent < AWAIT_SILENT_S * AWAIT_PER_S &&
	       a->looks < AWAIT_BUSY_S * AWAIT_PER_S) {
		int err = message_wait(fd, clock_now_ns() + AWAIT_LOOK_MS * NS_PER_MS);
		s32 pid;

		if (err != -ETIMEDOUT)
			return err;
		a->looks++;
		if (!address_peer_is_mine(fd, &pid) || !await_is_busy(pid))
			a->silent++;
	}
	return -ETIMEDOUT;
}
