/* stream_recv.c: receiving: bytes that the peer has written go from the receive buffer to the
 * application.
 * In:    arrived messages                  Out: the application's bytes, room for the peer
 * Runs:  the application's threads         Locks: stream.recv_lock, not while it waits
 */
#include "stream.h"
#include "user.h"

/* Where the caller wants the bytes. */
struct recv_space {
	const struct iovec *iov;
	size_t at; /* bytes of iov[0] that are filled */
	size_t left;
} OWNED_BY(the caller);

/* A place in the stream: copied, for MSG_PEEK leaves the stream's own where it is. */
struct recv_place {
	u32 head;
	u32 message_left;
	u32 at;
	u64 bytes;	/* read from there on */
	u16 messages; /* likewise, whole ones */
} OWNED_BY(the caller);

static int recv_copy(struct stream *s, struct recv_space *space, u32 from, u32 len)
{
	while (len > 0) {
		size_t n = MIN(space->iov->iov_len - space->at, (size_t)len);

		if (user_copy((u8 *)space->iov->iov_base + space->at, s->recv_buf + from, n) < 0)
			return -EFAULT;
		from += (u32)n;
		len -= (u32)n;
		space->left -= n;
		space->at += n;
		if (space->at == space->iov->iov_len) {
			space->iov++;
			space->at = 0;
		}
	}
	return 0;
}

/* Takes what fits of the message at the head. -EFAULT: nothing of it, and the place stays. */
static int recv_message(struct stream *s, struct recv_space *space, struct recv_place *p)
{
	struct recv_space after = *space;
	u32 whole = p->message_left != 0 ? p->message_left : s->messages[p->head];
	u32 len = (u32)MIN(space->left, (size_t)whole);
	u32 first = MIN(len, s->recv_size - p->at);

	if (recv_copy(s, &after, p->at, first) < 0 || recv_copy(s, &after, 0, len - first) < 0)
		return -EFAULT;
	*space = after;
	p->at = len - first > 0 ? len - first : (p->at + first) % s->recv_size;
	p->bytes += len;
	p->message_left = whole - len;
	if (p->message_left > 0)
		return 0;
	p->messages++;
	p->head = p->head == s->rq_size ? 0 : p->head + 1;
	return 0;
}

static void recv_advance(struct stream *s, const struct recv_place *p) REQUIRES(s->recv_lock)
{
	s->recv_at = p->at;
	s->message_left = p->message_left;
	/* pairs with cq_take_data: the slots are free */
	__atomic_store_n(&s->head, p->head, __ATOMIC_RELEASE);
	/* pairs with cq_give_credits: the bytes have been copied */
	counter_add(&s->read_bytes, p->bytes);
	counter_add(&s->read_messages, p->messages);
}

/* Takes what is there. 1, or 0: there was nothing, or -EFAULT: nothing could be copied. */
static int recv_now(struct stream *s, struct recv_space *space, bool peek)
{
	struct recv_place p;
	int err = 0;

	lock_acquire(&s->recv_lock);
	p = (struct recv_place){ .head = __atomic_load_n(&s->head, __ATOMIC_RELAXED),
				 .message_left = s->message_left,
				 .at = s->recv_at };
	/* pairs with cq_take_data */
	while (err == 0 && space->left > 0 && p.head != __atomic_load_n(&s->tail, __ATOMIC_ACQUIRE))
		err = recv_message(s, space, &p);
	if (!peek)
		recv_advance(s, &p);
	lock_release(&s->recv_lock);
	return p.bytes > 0 ? 1 : err;
}

static bool recv_is_ready(struct stream *s)
{
	return stream_has_data(s) || (stream_ended(s) & STREAM_NO_RECV);
}

/* Credits go out with the next completion anyway, unless half the buffer is free. */
static bool recv_owes_credits(struct stream *s)
{
	return __atomic_load_n(&s->granted_bytes, __ATOMIC_RELAXED) -
			       __atomic_load_n(&s->read_bytes, __ATOMIC_RELAXED) <=
		       s->recv_size / 2 ||
	       (int16_t)(u16)(__atomic_load_n(&s->read_messages, __ATOMIC_RELAXED) -
			  __atomic_load_n(&s->credits_at, __ATOMIC_RELAXED)) >= 0;
}

static int recv_check(struct stream *s, int flags)
{
	if (flags & MSG_OOB)
		return -EINVAL;
	if (stream_phase(s) == STREAM_CONNECTED)
		return 0;
	return stream_await(s, rsocket_is_nonblocking(&s->rs, flags));
}

static size_t recv_total(const struct iovec *iov, int count)
{
	size_t total = 0;

	for (int i = 0; i < count; i++)
		total += iov[i].iov_len;
	return total;
}

/* 0: there may be more; 1: that is all; else a negative errno. */
static int recv_step(struct stream *s, struct recv_space *space, int flags)
{
	bool nonblock = rsocket_is_nonblocking(&s->rs, flags);
	int err;

	if (flags & MSG_PEEK)
		stream_drive(s); /* a program may look until more has come */
	if (!stream_has_data(s)) {
		err = stream_wait(s, recv_is_ready, nonblock, 0);
		if (err < 0)
			return err;
	}
	if (!(stream_ended(s) & (STREAM_CLOSED | STREAM_END_RECV)) || stream_has_data(s)) {
		err = recv_now(s, space, flags & MSG_PEEK);
		if (err != 0)
			return MIN(err, 0);
	}
	if (!(stream_ended(s) & STREAM_NO_RECV) || stream_has_data(s))
		return 0; /* another thread was faster */
	err = stream_recv_error(s);
	return err < 0 ? err : 1;
}

ssize_t stream_recv(struct rsocket *rs, const struct iovec *iov, int count, int flags,
		    struct sockaddr *addr, socklen_t *len)
{
	struct stream *s = stream_of(rs);
	size_t total = recv_total(iov, count);
	struct recv_space space = { .iov = iov, .left = total };
	int err = recv_check(s, flags);

	if (err < 0)
		return err;
	while (total > 0) {
		err = recv_step(s, &space, flags);
		if (err != 0 || space.left == 0 || (flags & MSG_PEEK))
			break;
		if (space.left < total && !(flags & MSG_WAITALL))
			break;
	}
	if (recv_owes_credits(s))
		stream_drive(s);
	if (space.left == total && err < 0)
		return err;
	if (addr != NULL && len != NULL)
		(void)stream_name(rs, true, addr, len);
	return (ssize_t)(total - space.left);
}
