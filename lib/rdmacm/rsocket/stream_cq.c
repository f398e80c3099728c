/* stream_cq.c: a stream's queue pair: made, its completions, credits for the peer, waiting.
 * In:    completions                       Out: arrived messages, room to send, credits
 * Runs:  the application's threads         Locks: stream.cq_lock; stream.send_lock before it
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "stream.h"

enum {
	CQ_BATCH = 16,
	CQ_DUE_PART = 4, /* of the receive queue: no more receives are due at once */
	KEEPALIVE_DEFAULT_S = 7200,
};

/* In the ids of work requests: a receive. Others have the type and the bytes of the send buffer. */
#define CQ_RECEIVE (1ull << 63)

/* ---- making ---------------------------------------------------------------------------------- */

static u32 cq_queue_size(u32 want, u32 most)
{
	return MAX(MIN(MIN(want, most), (u32)STREAM_MOST_QUEUE), (u32)STREAM_LEAST_QUEUE);
}

static int cq_make_sizes(struct stream *s) REQUIRES(s->conn_lock)
{
	struct ibv_device_attr attr;
	int err = ibv_query_device(s->id->verbs, &attr);

	if (err != 0)
		return -err;
	s->sq_size = cq_queue_size(s->want.sq, (u32)attr.max_qp_wr);
	s->rq_size = cq_queue_size(s->want.rq, (u32)attr.max_qp_wr - STREAM_SPARE_RECEIVES);
	s->send_size = s->want.send_bytes;
	s->recv_size = s->want.recv_bytes;
	s->iomaps = s->want.iomaps;
	return 0;
}

static u32 cq_receives(const struct stream *s)
{
	return s->rq_size + STREAM_SPARE_RECEIVES;
}

/* Each connection has a domain of its own, so a key of it admits its peer only. */
static int cq_make_domain(struct stream *s) REQUIRES(s->conn_lock)
{
	s->pd = ibv_alloc_pd(s->id->verbs);
	return s->pd == NULL ? -errno : 0;
}

static int cq_make_queues(struct stream *s) REQUIRES(s->conn_lock)
{
	struct ibv_qp_init_attr attr = {
		.qp_context = s,
		.qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = s->sq_size,
			 .max_recv_wr = cq_receives(s),
			 .max_send_sge = 2,
			 .max_recv_sge = 1,
			 .max_inline_data = MAX(s->want.inline_bytes,
						(u32)sizeof(struct stream_iomap)) },
	};

	int err = rsocket_cq_create(&s->cq, s->id->verbs, s->sq_size + cq_receives(s),
				    &s->rs.waiters);

	if (err < 0)
		return err;
	attr.send_cq = attr.recv_cq = s->cq.cq;
	err = rsocket_qp_create(s->id, s->pd, &attr);
	if (err < 0)
		return err;
	s->sq_inline = attr.cap.max_inline_data;
	return 0;
}

static int cq_make_buffers(struct stream *s) REQUIRES(s->conn_lock)
{
	const int remote = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
	int err;

	s->messages = calloc(s->rq_size + 1, sizeof(*s->messages));
	if (s->messages == NULL)
		return -ENOMEM;
	err = rsocket_buffer_create(&s->send_mem, s->pd,
				    (size_t)s->send_size +
					    STREAM_CONTROLS * sizeof(struct stream_sge),
				    IBV_ACCESS_LOCAL_WRITE);
	if (err == 0)
		err = rsocket_buffer_create(&s->recv_mem, s->pd, s->recv_size, remote);
	if (err == 0)
		err = rsocket_buffer_create(&s->table_mem, s->pd,
					    STREAM_ENTRIES * sizeof(struct stream_sge) +
						    s->iomaps * sizeof(struct stream_iomap),
					    remote);
	s->send_buf = s->send_mem.at;
	s->recv_buf = s->recv_mem.at;
	s->table = (volatile struct stream_sge *)s->table_mem.at;
	return err;
}

/* Receives carry immediate data only. */
static int cq_post_receives(struct stream *s, u32 count)
{
	struct ibv_recv_wr wrs[CQ_BATCH], *bad;

	while (count > 0) {
		u32 n = MIN(count, (u32)CQ_BATCH);

		for (u32 i = 0; i < n; i++)
			wrs[i] = (struct ibv_recv_wr){ .wr_id = CQ_RECEIVE,
						       .next = i + 1 < n ? &wrs[i + 1] : NULL };
		if (ibv_post_recv(s->id->qp, wrs, &bad) != 0)
			return -EIO;
		count -= n;
	}
	return 0;
}

/* Nobody else uses what is made here: the phase is not STREAM_CONNECTED yet. */
static void cq_make_state(struct stream *s) NO_THREAD_SAFETY
{
	s->granted_bytes = s->recv_size / 2; /* by the hello */
	s->grant_half = 1;
	s->peer_entry = 1;
	s->credits_at = (u16)(s->rq_size / 2);
}

int stream_make(struct stream *s)
{
	int err = cq_make_sizes(s);

	if (err == 0)
		err = cq_make_domain(s);
	if (err == 0)
		err = cq_make_queues(s);
	if (err == 0)
		err = cq_make_buffers(s);
	if (err == 0)
		err = cq_post_receives(s, cq_receives(s));
	if (err == 0)
		cq_make_state(s);
	return err;
}

void stream_unmake(struct stream *s)
{
	if (s->id != NULL && s->id->qp != NULL)
		rdma_destroy_qp(s->id);
	rsocket_cq_destroy(&s->cq);
	rsocket_buffer_destroy(&s->send_mem);
	rsocket_buffer_destroy(&s->recv_mem);
	rsocket_buffer_destroy(&s->table_mem);
	/* EBUSY, and the domain stays: a buffer is left, since a stopped peer may write there. */
	if (s->pd != NULL)
		(void)ibv_dealloc_pd(s->pd);
	free(s->messages);
	s->pd = NULL;
	s->send_buf = s->recv_buf = NULL;
	s->table = NULL;
	s->messages = NULL;
}

void stream_hello(struct stream *s, struct stream_hello *out)
{
	*out = (struct stream_hello){
		.credits = (u16)s->rq_size,
		.iomaps = s->iomaps,
		.network_order = stream_host_is_network(),
		.has_iomaps = true,
		.table = { .addr = (uintptr_t)s->table,
			   .key = s->table_mem.mr->rkey,
			   .length = STREAM_ENTRIES },
		.buffer = { .addr = (uintptr_t)s->recv_buf,
			    .key = s->recv_mem.mr->rkey,
			    .length = s->recv_size / 2 },
	};
}

void stream_begin(struct stream *s, const struct stream_hello *peer)
{
	s->swap = peer->network_order != stream_host_is_network();
	s->peer_table = peer->table;
	s->peer_iomaps = (struct stream_sge){
		.addr = peer->table.addr + (u64)peer->table.length * sizeof(struct stream_sge),
		.key = peer->table.key,
		.length = peer->iomaps,
	};
	s->table[0].addr = peer->buffer.addr;
	s->table[0].key = peer->buffer.key;
	s->table[0].length = peer->buffer.length;
	__atomic_store_n(&s->allowed_messages, peer->credits, __ATOMIC_RELAXED);
	__atomic_store_n(&s->entries_given, 1, __ATOMIC_RELEASE);
}

/* ---- credits and control --------------------------------------------------------------------- */

static bool cq_has_control(struct stream *s)
{
	return __atomic_load_n(&s->controls_sent, __ATOMIC_RELAXED) -
		       __atomic_load_n(&s->controls_done, __ATOMIC_ACQUIRE) <
	       STREAM_CONTROLS;
}

/* `id`: of the work request, with what it says in its lower half. */
static int cq_post_control(struct stream *s, u64 id, const struct stream_sge *entry)
	REQUIRES(s->cq_lock)
{
	u32 at = __atomic_load_n(&s->controls_sent, __ATOMIC_RELAXED), message = (u32)id;
	struct stream_sge *copy =
		(struct stream_sge *)(s->send_buf + s->send_size) + at % STREAM_CONTROLS;
	struct ibv_sge sge = { .length = sizeof(*entry), .lkey = s->send_mem.mr->lkey };
	struct ibv_send_wr *bad, wr = { .wr_id = id,
					.opcode = IBV_WR_RDMA_WRITE_WITH_IMM,
					.send_flags = IBV_SEND_SIGNALED,
					.imm_data = __builtin_bswap32(message) };

	if (stream_host_is_network())
		wr.imm_data = message;
	if (entry != NULL) {
		memcpy(copy, entry, sizeof(*copy));
		sge.addr = (uintptr_t)copy;
		wr.sg_list = &sge;
		wr.num_sge = 1;
		wr.send_flags |= s->sq_inline >= sizeof(*entry) ? IBV_SEND_INLINE : 0;
		wr.wr.rdma.remote_addr = s->peer_table.addr + (u64)s->peer_entry * sizeof(*entry);
		wr.wr.rdma.rkey = s->peer_table.key;
	}
	__atomic_store_n(&s->controls_sent, at + 1, __ATOMIC_RELAXED);
	return ibv_post_send(s->id->qp, &wr, &bad) != 0 ? -ECONNRESET : 0;
}

/* Several at once cost less than one by one. All of them before the peer is allowed more messages:
 * so it finds one for each, and while some are due, it has others. */
static void cq_renew_receives(struct stream *s) REQUIRES(s->cq_lock)
{
	u32 count = s->receives_due;

	s->receives_due = 0;
	if (!(stream_ended(s) & STREAM_NO_CONTROL) && cq_post_receives(s, count) < 0)
		stream_break(s, -ECONNRESET);
}

/* The place of the half that the reader has emptied. */
static void cq_grant(struct stream *s, u16 read) REQUIRES(s->cq_lock)
{
	u32 half = s->recv_size / 2;
	struct stream_sge entry = {
		.addr = (uintptr_t)s->recv_buf + s->grant_half * half,
		.key = s->recv_mem.mr->rkey,
		.length = half,
	};

	if (s->swap)
		entry = stream_sge_swap(entry);
	if (cq_post_control(s, stream_message(STREAM_CREDITS, (u16)(read + s->rq_size)), &entry) <
	    0)
		stream_break(s, -ECONNRESET);
	counter_add(&s->granted_bytes, half);
	s->grant_half ^= 1;
	if (++s->peer_entry >= s->peer_table.length)
		s->peer_entry = 0;
}

static void cq_give_credits(struct stream *s) REQUIRES(s->cq_lock)
{
	u16 read = __atomic_load_n(&s->read_messages, __ATOMIC_ACQUIRE);
	u64 unread = __atomic_load_n(&s->granted_bytes, __ATOMIC_RELAXED) -
		     __atomic_load_n(&s->read_bytes, __ATOMIC_ACQUIRE);
	u16 due = __atomic_load_n(&s->credits_at, __ATOMIC_RELAXED);
	bool half = unread <= s->recv_size / 2;

	if (!half && (int16_t)(u16)(read - due) < 0)
		return;
	if (!cq_has_control(s) || (stream_ended(s) & STREAM_NO_CONTROL))
		return;
	__atomic_store_n(&s->credits_at, (u16)(read + s->rq_size / 2), __ATOMIC_RELAXED);
	cq_renew_receives(s);
	if (half)
		cq_grant(s, read);
	else if (cq_post_control(s, stream_message(STREAM_CREDITS, (u16)(read + s->rq_size)),
				 NULL) < 0)
		stream_break(s, -ECONNRESET);
}

/* A third farewell is one of threads that end the stream together: the peer hears of the others. */
static bool cq_has_farewell(struct stream *s)
{
	return __atomic_load_n(&s->controls_sent, __ATOMIC_RELAXED) -
		       __atomic_load_n(&s->controls_done, __ATOMIC_ACQUIRE) <
	       STREAM_CONTROLS + STREAM_FAREWELLS;
}

int stream_say_end(struct stream *s, enum stream_control what)
{
	int err = 0;

	lock_acquire(&s->send_lock);
	lock_acquire(&s->cq_lock);
	if (!(stream_ended(s) & STREAM_NO_CONTROL) && cq_has_farewell(s)) {
		u64 id = stream_signal(s, stream_message(STREAM_CONTROL, what), false);

		s->signals_all = true;
		err = cq_post_control(s, id, NULL);
	}
	lock_release(&s->cq_lock);
	lock_release(&s->send_lock);
	return err;
}

/* A write of nothing: a peer that has gone does not acknowledge it, and the connection breaks. */
void stream_keepalive(struct stream *s, u64 now_ns, u64 *next_ns)
{
	struct ibv_send_wr *bad, wr = { .wr_id = stream_message(STREAM_CONTROL, STREAM_KEEPALIVE),
					.opcode = IBV_WR_RDMA_WRITE,
					.send_flags = IBV_SEND_SIGNALED };
	u64 period, due;
	bool on;

	lock_acquire(&s->conn_lock);
	on = s->so_options & 1u << SO_KEEPALIVE;
	period = (u64)MAX(s->keepalive_s, 1u) * NS_PER_S;
	lock_release(&s->conn_lock);
	if (!on)
		return;
	lock_acquire(&s->cq_lock);
	due = s->alive_ns + period;
	if (now_ns >= due && stream_phase(s) == STREAM_CONNECTED && cq_has_control(s) &&
	    !(stream_ended(s) & STREAM_NO_CONTROL)) {
		counter_add(&s->controls_sent, 1);
		if (ibv_post_send(s->id->qp, &wr, &bad) != 0)
			stream_break(s, -ECONNRESET);
	}
	if (now_ns >= due || s->alive_ns == 0) {
		s->alive_ns = now_ns;
		due = now_ns + period;
	}
	lock_release(&s->cq_lock);
	*next_ns = MIN(*next_ns, due);
	stream_drive(s);
}

/* ---- completions ----------------------------------------------------------------------------- */

/* The peer says that bytes lie behind the last ones: no more than were granted, in no more
 * messages. */
static void cq_take_data(struct stream *s, u32 length) REQUIRES(s->cq_lock)
{
	u32 tail = __atomic_load_n(&s->tail, __ATOMIC_RELAXED);
	u32 next = tail == s->rq_size ? 0 : tail + 1;

	if (length == 0 ||
	    length > __atomic_load_n(&s->granted_bytes, __ATOMIC_RELAXED) -
			     __atomic_load_n(&s->arrived_bytes, __ATOMIC_RELAXED) ||
	    next == __atomic_load_n(&s->head, __ATOMIC_ACQUIRE)) {
		stream_break(s, -EPROTO);
		return;
	}
	counter_add(&s->arrived_bytes, length);
	s->messages[tail] = length;
	/* pairs with stream_has_data */
	__atomic_store_n(&s->tail, next, __ATOMIC_RELEASE);
}

static void cq_take_control(struct stream *s, u32 what)
{
	switch (what) {
	case STREAM_DISCONNECT:
		stream_end(s, STREAM_PEER_DONE | STREAM_PEER_GONE);
		break;
	case STREAM_SHUTDOWN:
		stream_end(s, STREAM_PEER_DONE);
		break;
	default:
		break;
	}
}

/* What the peer says. `bytes`: how many it wrote with it. */
static void cq_take_message(struct stream *s, u32 message, u32 bytes) REQUIRES(s->cq_lock)
{
	switch (stream_type(message)) {
	case STREAM_DATA:
		cq_take_data(s, stream_value(message));
		break;
	case STREAM_CREDITS:
		__atomic_store_n(&s->allowed_messages, (u16)stream_value(message),
				 __ATOMIC_RELEASE);
		/* pairs with send_take_entry */
		if (bytes == sizeof(struct stream_sge))
			counter_add(&s->entries_given, 1);
		break;
	case STREAM_CONTROL:
		cq_take_control(s, stream_value(message));
		break;
	case STREAM_IOMAP:
		break; /* it is in the table */
	default:
		stream_break(s, -EPROTO);
		break;
	}
}

/* `id`: as stream_signal made it; 0: of a message that does not complete, which has been
 * flushed. */
static void cq_take_sent(struct stream *s, u64 id) REQUIRES(s->cq_lock)
{
	u32 message = (u32)id;

	switch (stream_type(message)) {
	case STREAM_CREDITS:
	case STREAM_CONTROL:
		/* pairs with cq_has_control */
		counter_add(&s->controls_done, 1);
		break;
	default:
		counter_add(&s->done_bytes, stream_value(message));
		break;
	}
	counter_add(&s->done_wrs, (u32)(id >> 32));
}

/* The peer's process has ended without a word. What it sent has been taken. So the stream ends as
 * TCP's does, where the kernel closes for the process: in order, unless the process had bytes to
 * read, or to send: those that found no receive are lost with it. */
static void cq_take_death(struct stream *s) REQUIRES(s->cq_lock)
{
	if (s->starved || stream_is_out_of_room(s) || !rsocket_hears_of_death(s->id->qp))
		stream_break(s, -ECONNRESET);
	else
		stream_end(s, STREAM_PEER_DONE | STREAM_PEER_GONE);
}

/* The path has put the queue pair of a near peer into error: if that process has died, the next
 * request says so, and else that it has been flushed. */
static bool cq_probe(struct stream *s) REQUIRES(s->cq_lock)
{
	struct ibv_send_wr *bad, wr = { .wr_id = stream_message(STREAM_CONTROL, STREAM_KEEPALIVE),
					.opcode = IBV_WR_RDMA_WRITE,
					.send_flags = IBV_SEND_SIGNALED };

	if (!s->near || s->probed || !cq_has_control(s) || (stream_ended(s) & STREAM_NO_CONTROL))
		return false;
	s->probed = true;
	counter_add(&s->controls_sent, 1);
	return ibv_post_send(s->id->qp, &wr, &bad) == 0;
}

/* A connection that ends in order has been announced as such, so what is flushed then is no
 * error. */
static void cq_take_failure(struct stream *s, const struct ibv_wc *wc) REQUIRES(s->cq_lock)
{
	bool received = wc->wr_id & CQ_RECEIVE;

	if (stream_has_parted(s))
		return;
	if (s->near && !received && wc->status == IBV_WC_RETRY_EXC_ERR)
		cq_take_death(s);
	else if (!received || wc->status != IBV_WC_WR_FLUSH_ERR || (!s->probed && !cq_probe(s)))
		stream_break(s, -ECONNRESET);
}

/* Returns whether it was a receive, which is to be posted anew. */
static bool cq_take(struct stream *s, const struct ibv_wc *wc) REQUIRES(s->cq_lock)
{
	u32 message = wc->imm_data;

	if (wc->status != IBV_WC_SUCCESS)
		cq_take_failure(s, wc);
	if (!(wc->wr_id & CQ_RECEIVE)) {
		cq_take_sent(s, wc->wr_id);
		return false;
	}
	if (wc->status != IBV_WC_SUCCESS)
		return false;
	if (!stream_host_is_network())
		message = __builtin_bswap32(message);
	if (wc->opcode == IBV_WC_RECV_RDMA_WITH_IMM)
		cq_take_message(s, message, wc->byte_len);
	else
		stream_break(s, -EPROTO);
	return true;
}

/* Takes all that was there when it began: as much as the CQ can hold, and no more. A peer may send
 * control messages, which use up no credits, as fast as they are taken. */
static void cq_take_all(struct stream *s) REQUIRES(s->cq_lock)
{
	u32 batches = (s->sq_size + cq_receives(s)) / CQ_BATCH + 1;
	u32 posted = cq_receives(s) - s->receives_due, taken = 0;
	struct ibv_wc wcs[CQ_BATCH];
	int n;

	do {
		u32 receives = 0;

		n = ibv_poll_cq(s->cq.cq, CQ_BATCH, wcs);
		for (int i = 0; i < n; i++)
			receives += cq_take(s, &wcs[i]);
		s->receives_due += receives;
		taken += receives;
		if (taken != 0)
			s->starved = taken == posted;
		if (s->receives_due >= MIN((u32)CQ_BATCH, s->rq_size / CQ_DUE_PART))
			cq_renew_receives(s);
		if (n < 0 && !stream_has_parted(s))
			stream_break(s, -ECONNRESET);
	} while (n == CQ_BATCH && --batches > 0);
	if (n == CQ_BATCH)
		rsocket_cq_tell(&s->cq);
}

void stream_drive(struct stream *s)
{
	if (stream_phase(s) != STREAM_CONNECTED)
		return;
	lock_acquire(&s->cq_lock);
	cq_take_all(s);
	cq_give_credits(s);
	lock_release(&s->cq_lock);
}

bool stream_hears(struct stream *s)
{
	lock_acquire(&s->cq_lock);
	cq_take_all(s);
	lock_release(&s->cq_lock);
	return stream_has_data(s) || (stream_ended(s) & (STREAM_PEER_DONE | STREAM_PEER_GONE));
}

/* ---- waiting --------------------------------------------------------------------------------- */

bool stream_has_data(struct stream *s)
{
	/* pairs with cq_take_data */
	return __atomic_load_n(&s->head, __ATOMIC_RELAXED) !=
	       __atomic_load_n(&s->tail, __ATOMIC_ACQUIRE);
}

bool stream_is_flushed(struct stream *s)
{
	if (stream_ended(s) & STREAM_NO_CONTROL)
		return true;
	return __atomic_load_n(&s->sent_wrs, __ATOMIC_RELAXED) ==
		       __atomic_load_n(&s->done_wrs, __ATOMIC_ACQUIRE) &&
	       __atomic_load_n(&s->controls_sent, __ATOMIC_RELAXED) ==
		       __atomic_load_n(&s->controls_done, __ATOMIC_ACQUIRE);
}

bool stream_has_parted(struct stream *s)
{
	const u32 done = STREAM_END_SEND | STREAM_PEER_DONE;
	u32 ended = stream_ended(s);

	return (ended & STREAM_PEER_GONE) || ((ended & done) == done && stream_is_flushed(s));
}

void stream_arm(struct rsocket *rs)
{
	struct stream *s = stream_of(rs);

	if (stream_phase(s) != STREAM_CONNECTED || rsocket_cq_is_armed(&s->cq))
		return;
	lock_acquire(&s->cq_lock);
	rsocket_cq_arm(&s->cq);
	cq_take_all(s);
	cq_give_credits(s);
	lock_release(&s->cq_lock);
}

static bool cq_spin(struct stream *s, bool (*ready)(struct stream *s))
{
	u64 until = clock_now_ns() + rsocket_defaults()->polling_us * NS_PER_US;

	do {
		stream_drive(s);
		if (ready(s))
			return true;
		cpu_relax();
	} while (clock_now_ns() < until);
	return false;
}

/* A thread that sleeps. Its end is also that of a thread that is cancelled. */
struct cq_sleep {
	struct stream *s;
	struct sleeper me;
	struct waiter place;
	int cancel; /* the thread's state of cancellation before */
} OWNED_BY(the thread that sleeps);

/* A sleep with a limit, that of a close or a shutdown, is none in which a thread is cancelled. */
static void cq_sleep_begin(struct cq_sleep *w, bool limited)
{
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &w->cancel);
	(void)sleeper_begin(&w->me, SLEEP_CALL);
	wait_join(&w->s->rs.waiters, &w->place, &w->me);
	if (!limited)
		pthread_setcancelstate(w->cancel, NULL);
}

static void cq_sleep_end(struct cq_sleep *w)
{
	wait_leave(&w->s->rs.waiters, &w->place);
	sleeper_end(&w->me);
	pthread_setcancelstate(w->cancel, NULL);
}

static int cq_sleep(struct stream *s, bool (*ready)(struct stream *s), u64 ns, u64 until)
{
	struct cq_sleep w CLEANUP(cq_sleep_end) = { .s = s };
	int err = 0;
	u64 now;

	cq_sleep_begin(&w, ns != 0);
	for (;;) {
		sleeper_reset(&w.me);
		stream_arm(&s->rs);
		stream_drive(s);
		if (ready(s))
			return 0;
		if (err < 0)
			return err;
		now = clock_now_ns();
		if (ns != 0 && now >= until)
			err = -ETIMEDOUT;
		else
			err = sleeper_sleep(&w.me, ns != 0 ? until - now : 0);
	}
}

int stream_wait(struct stream *s, bool (*ready)(struct stream *s), bool nonblock, u64 ns)
{
	u64 until;

	stream_drive(s);
	if (ready(s))
		return 0;
	if (nonblock)
		return -EAGAIN;
	until = clock_now_ns() + ns;
	if (stream_phase(s) == STREAM_CONNECTED && cq_spin(s, ready))
		return 0;
	return cq_sleep(s, ready, ns, until);
}
