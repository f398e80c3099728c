/* successor.c: a node inherits the hard limit of descriptors of the program that started it. A
 * process whose own limit is much higher asks such a node to end, and starts its successor.
 *
 * The node passes its listening socket and its locked folder to the process, which passes them on
 * to the successor. So the node's address is bound and its folder locked all the time: nobody else
 * can start a node in between, and connections wait in the socket's backlog.
 * In:    a new connection               Out: the node's successor
 * Runs:  any thread; may block          Locks: the caller's request_lock
 */
#include "node/successor.h"

#include <errno.h>
#include <string.h>
#include <sys/resource.h>

#include "base/log.h"
#include "node/client_priv.h"
#include "node/spawn.h"

u64 successor_limit(void)
{
	struct rlimit own;

	return getrlimit(RLIMIT_NOFILE, &own) == 0 ? own.rlim_max : 0;
}

bool successor_is_better(u64 limit, u64 now)
{
	return now < SUCCESSOR_ENOUGH && limit / SUCCESSOR_FACTOR >= now;
}

/* The node's limit, without asking the node: it may be out of descriptors. 0: unknown. */
static u64 successor_limit_of(int control)
{
	struct rlimit its;
	s32 pid;

	if (!address_peer_is_mine(control, &pid) || pid <= 0 ||
	    prlimit(pid, RLIMIT_NOFILE, NULL, &its) < 0)
		return 0;
	return its.rlim_max;
}

static int successor_ask(int control, u64 limit, struct message *m)
{
	struct proto_succeed request = { .limit = limit };
	struct proto_plain reply;

	client_head(&request.head, PROTO_SUCCEED);
	return client_exchange(control, &request.head, sizeof(request), NULL, 0, &reply.head,
			       sizeof(reply), m);
}

int successor_start(const char *name, enum place_scope scope, int control)
{
	u64 limit = successor_limit(), now = successor_limit_of(control);
	struct message m;
	s32 pid;
	int err;

	if (now == 0 || !successor_is_better(limit, now))
		return 0;
	err = successor_ask(control, limit, &m);
	if (err == -ECONNRESET || err == -ETIMEDOUT)
		return err;
	if (err == -EMFILE) /* it has ended, and its address is free */
		return -ECONNRESET;
	if (err < 0) {
		log_debug("node", "node %s stays: %s", name, strerror(-err));
		return 0;
	}
	log_info("node", "node %s may have %llu descriptors: a successor may have %llu", name,
		 (unsigned long long)now, (unsigned long long)limit);
	/* logged there; then the address is free once the descriptors are closed */
	(void)spawn_successor(name, scope, m.fds, m.fd_count, &pid);
	message_close(&m);
	return -ECONNRESET;
}
