/* stream_send.c: sending: bytes go into the peer's buffer by RDMA writes: copied there at once, if
 * this process reaches the peer's memory, else through the send buffer.
 * In:    the application's bytes           Out: writes with immediate data
 * Runs:  the application's threads         Locks: stream.send_lock, not while it waits
 */
#include <string.h>

#include "stream.h"
#include "user.h"

enum {
	/* The first piece is small, so that the transfer starts early; each next one is twice as
	 * large. */
	SEND_FIRST = 16384,
	SEND_SMALL = 256,
	SEND_STORE = 2048, /* bytes in a row: fewer go through the send buffer */
	SEND_SIGNAL_PART = 4, /* of the send queue: a message completes at least so often */
};

/* What is still to be sent of the caller's vector. */
struct send_rest {
	const struct iovec *iov;
	size_t at; /* bytes of iov[0] that have been taken */
	size_t left;
} OWNED_BY(the caller);

u32 stream_send_room(struct stream *s)
{
	return s->send_size - (u32)(__atomic_load_n(&s->sent_bytes, __ATOMIC_RELAXED) -
				    __atomic_load_n(&s->done_bytes, __ATOMIC_ACQUIRE));
}

/* Places in the send queue, some kept for control messages. */
static bool send_has_place(struct stream *s)
{
	return __atomic_load_n(&s->sent_wrs, __ATOMIC_RELAXED) -
		       __atomic_load_n(&s->done_wrs, __ATOMIC_ACQUIRE) <
	       s->sq_size - STREAM_CONTROLS - STREAM_FAREWELLS;
}

/* Reads `target` without the lock, as a hint: only the sender under send_lock decides. */
static bool send_has_target(struct stream *s) NO_THREAD_SAFETY
{
	return __atomic_load_n(&s->target.length, __ATOMIC_RELAXED) > 0 ||
	       __atomic_load_n(&s->entries_used, __ATOMIC_RELAXED) !=
		       __atomic_load_n(&s->entries_given, __ATOMIC_ACQUIRE);
}

bool stream_can_send(struct stream *s)
{
	return stream_send_room(s) >= STREAM_SEND_LOW && send_has_place(s) &&
	       __atomic_load_n(&s->sent_messages, __ATOMIC_RELAXED) !=
		       __atomic_load_n(&s->allowed_messages, __ATOMIC_ACQUIRE) &&
	       send_has_target(s);
}

bool stream_is_out_of_room(struct stream *s)
{
	return !send_has_target(s) ||
	       __atomic_load_n(&s->sent_messages, __ATOMIC_RELAXED) ==
		       __atomic_load_n(&s->allowed_messages, __ATOMIC_ACQUIRE);
}

static bool send_is_ready(struct stream *s)
{
	return (stream_ended(s) & STREAM_NO_SEND) || stream_can_send(s);
}

/* The next entry of the table, which the peer does not touch before this one is used up. */
static void send_take_entry(struct stream *s) REQUIRES(s->send_lock)
{
	volatile struct stream_sge *entry = &s->table[s->entries_used % STREAM_ENTRIES];

	s->target.addr = entry->addr;
	s->target.key = entry->key;
	__atomic_store_n(&s->entries_used, s->entries_used + 1, __ATOMIC_RELAXED);
	__atomic_store_n(&s->target.length, entry->length, __ATOMIC_RELAXED);
}

static int send_copy(u8 *to, struct send_rest *rest, u32 len)
{
	while (len > 0) {
		size_t n = MIN(rest->iov->iov_len - rest->at, (size_t)len);

		if (user_copy(to, (const u8 *)rest->iov->iov_base + rest->at, n) < 0)
			return -EFAULT;
		to += n;
		len -= (u32)n;
		rest->left -= n;
		rest->at += n;
		if (rest->at == rest->iov->iov_len) {
			rest->iov++;
			rest->at = 0;
		}
	}
	return 0;
}

/* Copies `len` bytes to the send buffer, a ring, and says where they are: in one piece or two.
 * Returns the number of pieces, or -EFAULT. */
static int send_fill(struct stream *s, struct send_rest *rest, u32 len, struct ibv_sge sges[2])
	REQUIRES(s->send_lock)
{
	u32 first = MIN(len, s->send_size - s->send_at);

	sges[0] = (struct ibv_sge){ .addr = (uintptr_t)(s->send_buf + s->send_at),
				    .length = first,
				    .lkey = s->send_mem.mr->lkey };
	sges[1] = (struct ibv_sge){ .addr = (uintptr_t)s->send_buf,
				    .length = len - first,
				    .lkey = s->send_mem.mr->lkey };
	if (send_copy(s->send_buf + s->send_at, rest, first) < 0 ||
	    send_copy(s->send_buf, rest, len - first) < 0)
		return -EFAULT;
	s->send_at = (s->send_at + len) % s->send_size;
	counter_add(&s->sent_bytes, len);
	return len > first ? 2 : 1;
}

static size_t send_in_a_row(struct send_rest *rest)
{
	while (rest->at == rest->iov->iov_len) {
		rest->iov++;
		rest->at = 0;
	}
	return rest->iov->iov_len - rest->at;
}

/* Copies up to *len bytes from the caller's memory to the target; *len becomes how many. The
 * message that follows carries none. False: not possible now. */
static bool send_store(struct stream *s, struct send_rest *rest, u32 *len) REQUIRES(s->send_lock)
{
	u32 n = (u32)MIN(send_in_a_row(rest), (size_t)*len);

	if (n < SEND_STORE ||
	    !rsocket_store(s->id->qp, s->target.key, s->target.addr,
			   (const u8 *)rest->iov->iov_base + rest->at, n))
		return false;
	rest->at += n;
	rest->left -= n;
	*len = n;
	return true;
}

/* Does the next message complete? One that takes no room in the send buffer need not: those behind
 * it say that it has gone, and without a completion it costs less at this end. */
static bool send_signals(struct stream *s, bool takes_room) REQUIRES(s->send_lock)
{
	return takes_room || s->signals_all ||
	       s->unsignaled + 1 >= s->sq_size / SEND_SIGNAL_PART;
}

/* Writes `len` bytes to the target, or fewer. Small ones go inline, and like those that are copied
 * at once take no room in the send buffer. -EFAULT: nothing has been sent, and *rest is as it
 * was. */
static int send_piece(struct stream *s, struct send_rest *rest, u32 len) REQUIRES(s->send_lock)
{
	bool small = len <= MIN(s->sq_inline, (u32)SEND_SMALL);
	bool stored = !small && send_store(s, rest, &len);
	u32 message = stream_message(STREAM_DATA, len);
	struct send_rest after = *rest;
	u8 copy[SEND_SMALL];
	struct ibv_sge sges[2] = { { .addr = (uintptr_t)copy, .length = len } };
	struct ibv_send_wr *bad, wr = {
		.sg_list = sges,
		.opcode = IBV_WR_RDMA_WRITE_WITH_IMM,
		.send_flags = small ? IBV_SEND_INLINE : 0,
		.imm_data = stream_host_is_network() ? message : __builtin_bswap32(message),
		.wr.rdma = { .remote_addr = s->target.addr, .rkey = s->target.key },
	};

	if (!stored) {
		wr.num_sge = small ? 1 : send_fill(s, &after, len, sges);
		if (wr.num_sge < 0 || (small && send_copy(copy, &after, len) < 0))
			return -EFAULT;
		*rest = after;
	}
	if (send_signals(s, !small && !stored)) {
		wr.send_flags |= IBV_SEND_SIGNALED;
		wr.wr_id = stream_signal(
			s, stream_message(STREAM_DATA, small || stored ? 0 : len), true);
	} else {
		s->unsignaled++;
	}
	counter_add(&s->sent_wrs, 1);
	counter_add(&s->sent_messages, 1);
	s->target.addr += len;
	__atomic_store_n(&s->target.length, s->target.length - len, __ATOMIC_RELAXED);
	return ibv_post_send(s->id->qp, &wr, &bad) != 0 ? -ECONNRESET : 0;
}

/* As much as there is room for now. 0, -EFAULT, or why the connection fails. */
static int send_now(struct stream *s, struct send_rest *rest, u32 *piece) REQUIRES(s->send_lock)
{
	while (rest->left > 0 && !(stream_ended(s) & STREAM_NO_SEND) && stream_can_send(s)) {
		u32 len = (u32)MIN(rest->left, (size_t)*piece);
		int err;

		if (s->target.length == 0)
			send_take_entry(s);
		if (s->target.length == 0)
			return -EPROTO; /* the peer has given a buffer of nothing */
		len = MIN(MIN(len, s->target.length), stream_send_room(s));
		err = send_piece(s, rest, len);
		if (err == -EFAULT && len > SEND_SMALL) {
			*piece = len / 2; /* what lies before the fault is sent, as by TCP */
			continue;
		}
		if (err < 0)
			return err;
		if (*piece < STREAM_PIECE_MAX)
			*piece *= 2;
	}
	return 0;
}

static int send_check(struct stream *s, int flags, const struct sockaddr *addr)
{
	if (flags & MSG_OOB)
		return -EOPNOTSUPP;
	if (stream_phase(s) != STREAM_CONNECTED) {
		int err = stream_await(s, rsocket_is_nonblocking(&s->rs, flags));

		if (err < 0)
			return err;
	}
	return addr != NULL ? -EISCONN : 0;
}

static size_t send_total(const struct iovec *iov, int count)
{
	size_t total = 0;

	for (int i = 0; i < count; i++)
		total += iov[i].iov_len;
	return total;
}

ssize_t stream_send(struct rsocket *rs, const struct iovec *iov, int count, int flags,
		    const struct sockaddr *addr, socklen_t len)
{
	struct stream *s = stream_of(rs);
	size_t total = send_total(iov, count);
	struct send_rest rest = { .iov = iov, .left = total };
	bool nonblock = rsocket_is_nonblocking(rs, flags);
	u32 piece = SEND_FIRST;
	int err = send_check(s, flags, addr);

	(void)len;
	if (err < 0)
		return err;
	if (stream_ended(s) & STREAM_NO_SEND)
		return stream_send_error(s);
	if (__atomic_load_n(&s->maps_untold, __ATOMIC_RELAXED)) {
		err = stream_tell_maps(s, nonblock);
		if (err < 0)
			return err;
	}
	while (rest.left > 0) {
		lock_acquire(&s->send_lock);
		err = send_now(s, &rest, &piece);
		lock_release(&s->send_lock);
		if (err == -EFAULT || rest.left == 0)
			break;
		if (err < 0)
			stream_break(s, err);
		if (stream_ended(s) & STREAM_NO_SEND) {
			err = stream_send_error(s);
			break;
		}
		err = stream_wait(s, send_is_ready, nonblock, 0);
		if (err < 0)
			break;
	}
	return rest.left < total || total == 0 ? (ssize_t)(total - rest.left) : err;
}
