/* send.c: MADs on their way out: posted, sent by the port's queue or at once, repeated until they
 * are answered or have been repeated often enough.
 * In:    send buffers of consumers    Out: datagrams, calls of send handlers
 * Runs:  posts, and what leaves at once, on any thread, all else on the port's queue
 * Locks: mad_lock
 * Spec:  IBA vol 1, 13.4.6 (timeouts and repetition), 13.4.6.4 (transaction IDs)
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "mad/mad_priv.h"

static struct cond mad_departed; /* with mad_lock: a send has left */

/* ---- ends ------------------------------------------------------------------------------------ */

void mad_send_end(struct mad_send *send, enum ib_wc_status status, u32 vendor_err)
{
	struct mad_agent *agent = mad_agent_of(send->buf.mad_agent);
	struct ib_mad_send_wc wc = { .send_buf = &send->buf,
				     .status = status,
				     .vendor_err = vendor_err };

	lock_acquire(&mad_lock);
	while (send->departing)
		cond_wait(&mad_departed, &mad_lock);
	send->outstanding = send->waiting = false;
	send->buf.retries = send->retried;
	list_remove(&send->node);
	lock_release(&mad_lock);
	work_cancel(&send->work);
	if (send->answer != NULL)
		rmpp_recv_drop(send->answer);
	if (status == IB_WC_RESP_TIMEOUT_ERR)
		mad_count_one(MAD_TIMED_OUT);
	mad_snoop_send(agent->port, &wc);
	agent->pub.send_handler(&agent->pub, &wc);
	mad_agent_put(agent);
}

void mad_send_flush(struct mad_send *send)
{
	send->cancelled = true;
	work_push(&send->work);
}

/* ---- on the queue ---------------------------------------------------------------------------- */

enum mad_send_step { SEND_NOTHING, SEND_FLUSH, SEND_TIMEOUT, SEND_TRANSMIT };

/* What is due for a send whose work runs. */
static enum mad_send_step mad_send_next_step(struct mad_send *send) REQUIRES(mad_lock)
{
	if (!send->outstanding)
		return SEND_NOTHING;
	if (send->cancelled || mad_agent_of(send->buf.mad_agent)->port->gone)
		return SEND_FLUSH;
	if (!send->waiting)
		return SEND_TRANSMIT;
	if (send->retries_left == 0)
		return SEND_TIMEOUT;
	send->retries_left--;
	send->retried++;
	send->waiting = false;
	if (send->out.count != 0)
		rmpp_send_rewind(send);
	mad_count_one(MAD_RETRIED);
	return SEND_TRANSMIT;
}

bool mad_send_delay(struct mad_send *send)
{
	struct mad_agent *agent = mad_agent_of(send->buf.mad_agent);
	bool delay;

	lock_acquire(&mad_lock);
	delay = send->delays_left > 0 && agent->refs <= MAD_DELAYED;
	if (delay) {
		send->delays_left--;
		work_push_at(&send->work, clock_now_ns() + MAD_DELAY_MS * NS_PER_MS);
	}
	lock_release(&mad_lock);
	return delay;
}

static ALWAYS_INLINE int mad_send_depart(struct mad_send *send, const void *mad)
{
	struct mad_port *port = mad_agent_of(send->buf.mad_agent)->port;
	const struct mad_port_config *cfg = &port->cfg;
	struct mad_departure d = { .ah = send->buf.ah,
				   .remote_qpn = send->remote_qpn,
				   .qkey = mad_port_qkey(port),
				   .pkey_index = send->pkey_index,
				   .mad = mad };

	if (!send->local)
		return cfg->ops->send(cfg->arg, &d);
	mad_hop_here(port, mad);
	return 0;
}

int mad_send_try(struct mad_send *send, const void *mad)
{
	return mad_send_depart(send, mad);
}

/* A datagram that the port refuses is one that was lost on the way, and a request is repeated. Who
 * expects no response hears that nobody is there. */
enum ib_wc_status mad_send_judge(int err)
{
	mad_count_one(err == 0 ? MAD_SENT : MAD_SEND_FAILED);
	return err == -ENETUNREACH || err == -EPIPE ? IB_WC_RETRY_EXC_ERR : IB_WC_SUCCESS;
}

/* How long it waits now; 0: for nothing. */
static u64 mad_send_timeout_ms(const struct mad_send *send) REQUIRES(mad_lock)
{
	return send->out.count == 0 ? (u64)send->buf.timeout_ms : rmpp_send_timeout_ms(send);
}

/* False: it waits for nothing. */
static ALWAYS_INLINE bool mad_send_arm(struct mad_send *send) REQUIRES(mad_lock)
{
	u64 timeout_ms = mad_send_timeout_ms(send);

	send->waiting = timeout_ms != 0;
	if (send->waiting)
		work_push_at(&send->work, clock_now_ns() + timeout_ms * NS_PER_MS);
	return send->waiting;
}

static ALWAYS_INLINE bool mad_send_wait(struct mad_send *send)
{
	bool waits;

	lock_acquire(&mad_lock);
	waits = mad_send_arm(send);
	lock_release(&mad_lock);
	return waits;
}

bool mad_send_await(struct mad_send *send)
{
	return mad_send_wait(send);
}

/* A cancelled send keeps its work: that ends it. */
void mad_send_pause(struct mad_send *send)
{
	lock_acquire(&mad_lock);
	send->waiting = false;
	if (!send->cancelled)
		work_cancel(&send->work);
	lock_release(&mad_lock);
}

void mad_send_expire(struct mad_send *send)
{
	lock_acquire(&mad_lock);
	send->waiting = true;
	work_push(&send->work);
	lock_release(&mad_lock);
}

static void mad_send_give_up(struct mad_send *send)
{
	rmpp_send_abort(send, IB_MGMT_RMPP_STATUS_TMR);
	mad_send_end(send, IB_WC_RESP_TIMEOUT_ERR, 0);
}

static void mad_send_transmit(struct mad_send *send)
{
	int err = mad_send_depart(send, send->buf.mad);
	enum ib_wc_status status;

	if (err == -EAGAIN && mad_send_delay(send))
		return;
	status = mad_send_judge(err);
	if (!mad_send_wait(send))
		mad_send_end(send, status, 0);
}

static void mad_send_on_work(struct work *w)
{
	struct mad_send *send = container_of(w, struct mad_send, work);
	enum mad_send_step step;

	lock_acquire(&mad_lock);
	step = mad_send_next_step(send);
	lock_release(&mad_lock);
	switch (step) {
	case SEND_NOTHING:
		return;
	case SEND_FLUSH:
		rmpp_send_abort(send, IB_MGMT_RMPP_STATUS_UNSPEC);
		mad_send_end(send, IB_WC_WR_FLUSH_ERR, 0);
		return;
	case SEND_TIMEOUT:
		mad_send_give_up(send);
		return;
	case SEND_TRANSMIT:
		if (send->out.count != 0)
			rmpp_send_transmit(send);
		else
			mad_send_transmit(send);
	}
}

/* ---- responses ------------------------------------------------------------------------------- */

/* The response comes from where the request went. Without a GRH at either end only the transaction
 * ID tells. */
bool mad_send_is_peer(const struct mad_send *send, const struct mad_message *m)
{
	return !send->has_dgid || (m->wc.wc_flags & IB_WC_GRH) == 0 ||
	       memcmp(send->dgid.raw, m->grh.sgid.raw, sizeof(send->dgid.raw)) == 0;
}

struct mad_send *mad_send_find(struct mad_agent *agent, const struct mad_message *response)
{
	const struct ib_mad_hdr *hdr = &response->mad.mad_hdr;

	list_for_each(send, &agent->sends, struct mad_send, node) {
		const struct ib_mad_hdr *request = send->buf.mad;

		if (request->tid == hdr->tid && request->mgmt_class == hdr->mgmt_class &&
		    send->buf.timeout_ms != 0 && !send->cancelled &&
		    mad_send_is_peer(send, response))
			return send;
	}
	return NULL;
}

/* ---- for consumers --------------------------------------------------------------------------- */

static int mad_send_check_lengths(const struct ib_mad_agent *agent, int rmpp_active, int hdr_len,
			      int data_len)
{
	if (hdr_len < IB_MGMT_MAD_HDR || hdr_len >= IB_MGMT_MAD_SIZE || data_len < 0 ||
	    data_len > MAD_SEND_BYTES)
		return -EINVAL;
	if (rmpp_active)
		return hdr_len >= IB_MGMT_RMPP_HDR && agent->rmpp_version != 0 ? 0 : -EINVAL;
	return hdr_len + data_len <= IB_MGMT_MAD_SIZE ? 0 : -EINVAL;
}

/* Bytes behind the header: whole segments. */
static u32 mad_send_segments(int rmpp_active, int hdr_len, int data_len)
{
	u32 size = (u32)(IB_MGMT_MAD_SIZE - hdr_len);

	return rmpp_active && data_len != 0 ? ((u32)data_len + size - 1) / size : 1;
}

struct ib_mad_send_buf *ib_create_send_mad(struct ib_mad_agent *mad_agent, u32 remote_qpn,
					   u16 pkey_index, int rmpp_active, int hdr_len,
					   int data_len, unsigned int gfp_mask)
{
	int err = mad_send_check_lengths(mad_agent, rmpp_active, hdr_len, data_len);
	struct mad_send *send;
	u32 segments;

	if (err != 0)
		return ERR_PTR(err);
	segments = mad_send_segments(rmpp_active, hdr_len, data_len);
	send = calloc(1, sizeof(*send) + (size_t)hdr_len +
				 (size_t)segments * (size_t)(IB_MGMT_MAD_SIZE - hdr_len));
	if (send == NULL)
		return ERR_PTR(-ENOMEM);
	list_init(&send->node);
	work_init(&send->work, mad_agent_of(mad_agent)->port->cfg.queue, mad_send_on_work);
	send->remote_qpn = remote_qpn;
	send->pkey_index = pkey_index;
	send->rmpp = rmpp_active != 0;
	send->buf = (struct ib_mad_send_buf){ .mad = send->bytes,
					      .mad_agent = mad_agent,
					      .hdr_len = hdr_len,
					      .data_len = data_len,
					      .seg_size = IB_MGMT_MAD_SIZE - hdr_len,
					      .seg_rmpp_size = IB_MGMT_RMPP_DATA };
	if (rmpp_active) {
		struct ib_rmpp_mad *mad = send->buf.mad;

		send->buf.seg_count = (int)segments;
		mad->rmpp_hdr.rmpp_version = mad_agent->rmpp_version;
		ib_set_rmpp_resptime(&mad->rmpp_hdr, IB_MGMT_RMPP_NO_RESPTIME);
		ib_set_rmpp_flags(&mad->rmpp_hdr, IB_MGMT_RMPP_FLAG_ACTIVE);
	}
	return &send->buf;
}

void *ib_get_rmpp_segment(struct ib_mad_send_buf *send_buf, int seg_num)
{
	if (seg_num < 1 || seg_num > send_buf->seg_count)
		return NULL;
	return (u8 *)send_buf->mad + send_buf->hdr_len + (seg_num - 1) * send_buf->seg_size;
}

void ib_free_send_mad(struct ib_mad_send_buf *send_buf)
{
	struct mad_send *send = mad_send_of(send_buf);

	work_cancel(&send->work);
	free(send);
}

/* Where the response will come from. */
static bool mad_send_destination(struct ib_ah *ah, union ib_gid *dgid)
{
	struct ib_ah_attr attr;

	if (ah->device->query_ah == NULL || ib_query_ah(ah, &attr) != 0 ||
	    (attr.ah_flags & IB_AH_GRH) == 0)
		return false;
	*dgid = attr.grh.dgid;
	return true;
}

/* A directed-route SMP goes its first hop when it is posted, not again when it is repeated. */
static int mad_send_hop(struct mad_send *send)
{
	enum mad_hop hop = mad_hop(mad_agent_of(send->buf.mad_agent)->port, send->buf.mad, true);

	send->local = hop == MAD_HOP_HERE;
	return hop == MAD_HOP_DROP ? -EINVAL : 0;
}

/* A request that the thread which posts it sends by itself, which costs no switch of threads. What
 * ends without an answer tells its consumer, and that does the queue. */
static bool mad_send_is_at_once(const struct mad_send *send)
{
	return mad_agent_of(send->buf.mad_agent)->port->cfg.at_once && !send->local &&
	       send->out.count == 0 && send->buf.timeout_ms != 0;
}

/* Its answer may come, and its timeout, before the call to send it has returned. */
static void mad_send_prepare(struct mad_send *send) REQUIRES(mad_lock)
{
	send->departing = true;
	(void)mad_send_arm(send);
}

/* The queue tries again what the port has no room for. */
static void mad_send_leave(struct mad_send *send)
{
	int err = mad_send_depart(send, send->buf.mad);

	if (err != -EAGAIN)
		(void)mad_send_judge(err);
	lock_acquire(&mad_lock);
	if (err == -EAGAIN) {
		send->waiting = false;
		work_push(&send->work);
	}
	send->departing = false;
	cond_wake(&mad_departed);
	lock_release(&mad_lock);
}

static int mad_send_post(struct mad_send *send)
{
	struct mad_agent *agent = mad_agent_of(send->buf.mad_agent);
	union ib_gid dgid = { .raw = { 0 } };
	bool has_dgid, at_once;
	int err = 0;

	if (agent->snoops != 0 || send->buf.ah == NULL || send->buf.timeout_ms < 0 ||
	    send->buf.retries < 0 ||
	    (send->buf.timeout_ms != 0 && agent->pub.recv_handler == NULL))
		return -EINVAL;
	if (send->rmpp)
		rmpp_send_begin(send);
	if (send->out.count != 0 &&
	    !ib_is_mad_class_rmpp(((struct ib_mad_hdr *)send->buf.mad)->mgmt_class))
		return -EINVAL;
	err = mad_send_hop(send);
	if (err != 0)
		return err;
	has_dgid = (send->buf.timeout_ms != 0 || send->out.count != 0) &&
		   mad_send_destination(send->buf.ah, &dgid);
	at_once = mad_send_is_at_once(send);
	lock_acquire(&mad_lock);
	if (agent->ending || agent->port->gone) {
		err = -ENODEV;
	} else {
		send->outstanding = true;
		send->cancelled = send->waiting = false;
		send->retries_left = send->buf.retries;
		send->retried = 0;
		send->delays_left = MAD_DELAYS;
		send->has_dgid = has_dgid;
		send->dgid = dgid;
		list_push_back(&agent->sends, &send->node);
		mad_agent_hold(agent);
		if (at_once)
			mad_send_prepare(send);
		else
			work_push(&send->work);
	}
	lock_release(&mad_lock);
	if (err == 0 && at_once)
		mad_send_leave(send);
	return err;
}

int ib_post_send_mad(struct ib_mad_send_buf *send_buf, struct ib_mad_send_buf **bad_send_buf)
{
	while (send_buf != NULL) {
		struct ib_mad_send_buf *next = send_buf->next; /* after the post it may be freed */
		int err = mad_send_post(mad_send_of(send_buf));

		if (err != 0) {
			if (bad_send_buf != NULL)
				*bad_send_buf = send_buf;
			return err;
		}
		send_buf = next;
	}
	return 0;
}

static struct mad_send *mad_send_outstanding(struct ib_mad_agent *agent,
					 const struct ib_mad_send_buf *buf) REQUIRES(mad_lock)
{
	list_for_each(send, &mad_agent_of(agent)->sends, struct mad_send, node)
		if (&send->buf == buf)
			return send;
	return NULL;
}

int ib_modify_mad(struct ib_mad_agent *mad_agent, struct ib_mad_send_buf *send_buf,
		  u32 timeout_ms)
{
	struct mad_send *send;

	if (timeout_ms > INT32_MAX)
		return -EINVAL;
	lock_acquire(&mad_lock);
	send = mad_send_outstanding(mad_agent, send_buf);
	if (send != NULL && !send->cancelled) {
		if (timeout_ms == 0)
			mad_send_flush(send);
		else
			send->buf.timeout_ms = (int)timeout_ms;
		if (timeout_ms != 0 && send->waiting)
			work_push_at(&send->work, clock_now_ns() +
							  mad_send_timeout_ms(send) * NS_PER_MS);
	}
	lock_release(&mad_lock);
	return send == NULL ? -EINVAL : 0;
}

void ib_cancel_mad(struct ib_mad_agent *mad_agent, struct ib_mad_send_buf *send_buf)
{
	(void)ib_modify_mad(mad_agent, send_buf, 0);
}
