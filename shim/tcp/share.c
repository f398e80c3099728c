/* share.c: connections that a forked child uses while its parent keeps the descriptor, too.
 * In: calls of a child    Out: connections that the parent relays    Runs: any thread
 * Locks: share.lock
 *
 * The child has the pair, and the parent would go on to use the rsocket. So a child asks the
 * connection's owner to relay it before the child first uses the pair, and waits until the owner
 * does: what the child writes then comes before what the parent writes later. A descriptor comes
 * with the question. Its end is the answer, and comes as well if the owner ends.
 */
#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "rsockets.h"

NEXT_SLOT(poll);
NEXT_SLOT(recvmsg);
NEXT_SLOT(sendmsg);

enum { SHARE_WAIT_MS = 1000 }; /* an owner that is stopped does not answer */

/* A pair of datagram sockets: children ask at `out`, the owner's service thread hears at `in`. */
static struct {
	struct lock lock ONE_AT_A_TIME; /* the pair is made once, then shown by `in` */
	int in ATOMIC_ONLY;		/* -1: none */
	int out FIXED;
	struct stat made FIXED; /* of `out`: a child may close it, and its number be another's */
	int parent FIXED;	/* in a child: its parent's `out` */
} share = { .in = -1, .out = -1, .parent = -1 };

int share_fd(void)
{
	return __atomic_load_n(&share.in, __ATOMIC_ACQUIRE);
}

void share_prepare(void)
{
	int pair[2];

	if (share_fd() >= 0 || !table_has(SOCK_DIRECT) || !service_begin())
		return;
	lock_acquire(&share.lock);
	if (share_fd() < 0 && socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0, pair) == 0) {
		share.out = fd_own(pair[1]);
		(void)fstat(share.out, &share.made);
		__atomic_store_n(&share.in, fd_own(pair[0]), __ATOMIC_RELEASE);
		service_wake();
	}
	lock_release(&share.lock);
}

static void share_child(void) NO_THREAD_SAFETY /* the only thread */
{
	share.parent = share.out;
	if (share.in >= 0)
		close(share.in);
	share.in = share.out = -1;
}
FORK_MAKES_ANEW(FORK_SHIM_SHARE, &share.lock, .child = share_child);

int share_parent(void)
{
	return share.parent;
}

/* ---- asking and answering ---- */

/* A question: the sock, which has the same address in the owner, and a descriptor. */
struct question {
	struct sock *s;
	struct iovec v;
	struct msghdr msg;
	union {
		struct cmsghdr head;
		u8 bytes[CMSG_SPACE(sizeof(int))];
	} control;
} OWNED_BY(the caller);

static void question_begin(struct question *q)
{
	memset(q, 0, sizeof(*q));
	q->v = (struct iovec){ &q->s, sizeof(q->s) };
	q->msg = (struct msghdr){ .msg_iov = &q->v,
				  .msg_iovlen = 1,
				  .msg_control = &q->control,
				  .msg_controllen = sizeof(q->control) };
}

static bool share_send(int fd, struct sock *s, int answer)
{
	struct question q;

	question_begin(&q);
	q.s = s;
	q.control.head = (struct cmsghdr){ .cmsg_len = CMSG_LEN(sizeof(int)),
					   .cmsg_level = SOL_SOCKET,
					   .cmsg_type = SCM_RIGHTS };
	memcpy(CMSG_DATA(&q.control.head), &answer, sizeof(answer));
	return NEXT(sendmsg)(fd, &q.msg, MSG_NOSIGNAL | MSG_DONTWAIT) == (ssize_t)sizeof(q.s);
}

/* The descriptor is still the one that the owner has made; all generations share `made`. */
static bool share_is_there(int fd)
{
	struct stat now;

	return fstat(fd, &now) == 0 && S_ISSOCK(now.st_mode) && now.st_dev == share.made.st_dev;
}

void share_ask(struct sock *s)
{
	int fd = __atomic_exchange_n(&s->ask, -1, __ATOMIC_ACQ_REL), saved = errno, pair[2];
	struct pollfd p = { .events = POLLIN };
	QUIET();

	if (fd < 0)
		return;
	if (share_is_there(fd) && socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) == 0) {
		bool asked = share_send(fd, s, pair[1]);

		close(pair[1]);
		p.fd = pair[0];
		while (asked && NEXT(poll)(&p, 1, SHARE_WAIT_MS) < 0 && errno == EINTR)
			;
		close(pair[0]);
	}
	errno = saved;
}

/* The connection may have ended meanwhile, and its sock be another's: that is relayed then. */
static void share_give(const struct sock *asked)
{
	for (int fd = 0; fd < FD_LIMIT; fd++) {
		struct sock *s = sock_get(fd);

		if (s == NULL)
			continue;
		if (s == asked) {
			sock_give_away(s);
			fd = FD_LIMIT;
		}
		sock_put(s);
	}
}

void share_serve(void)
{
	struct question q;
	int answer;

	for (;;) {
		question_begin(&q);
		if (NEXT(recvmsg)(share_fd(), &q.msg, MSG_DONTWAIT | MSG_CMSG_CLOEXEC) < 0)
			return;
		if (q.msg.msg_controllen >= sizeof(q.control.head) &&
		    q.control.head.cmsg_type == SCM_RIGHTS) {
			share_give(q.s);
			memcpy(&answer, CMSG_DATA(&q.control.head), sizeof(answer));
			close(answer);
		}
	}
}
