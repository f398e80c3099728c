/* rmpp_send.c: an RMPP message on its way out.
 *
 * One segment leaves first. Each ACK opens the window; what the window allows leaves in bursts. A
 * timeout goes back to the first segment without ACK, as Linux's sender does. A repeated ACK tells
 * of a gap: that one segment is repeated at once, and only once.
 *
 * A message that is a request ("double-sided") then tells the receiver by an ACK of segment 0 that
 * it waits for the response.
 *
 * In:    posted RMPP messages, ACKs    Out: segments
 * Runs:  the port's queue, but for rmpp_send_begin    Locks: mad_lock
 * Spec:  IBA vol 1, 13.6.4 (sender), 13.6.5.4 (double-sided)
 */
#include <arpa/inet.h>
#include <errno.h>
#include <string.h>

#include "base/clock.h"
#include "mad/mad_priv.h"

void rmpp_send_begin(struct mad_send *send)
{
	const struct ib_rmpp_mad *mad = send->buf.mad;

	send->out = (struct rmpp_send){ .window = 1 };
	if (send->rmpp &&
	    (ib_get_rmpp_flags(&mad->rmpp_hdr) & IB_MGMT_RMPP_FLAG_ACTIVE) != 0 &&
	    mad->rmpp_hdr.rmpp_type == IB_MGMT_RMPP_TYPE_DATA)
		send->out.count = (u32)send->buf.seg_count;
}

bool rmpp_send_is_under_way(const struct mad_send *send)
{
	return send->out.acked < send->out.count;
}

u64 rmpp_send_timeout_ms(const struct mad_send *send)
{
	u64 timeout_ms = (u64)send->buf.timeout_ms;

	if (!rmpp_send_is_under_way(send))
		return timeout_ms;
	if (timeout_ms == 0 || timeout_ms > RMPP_ACK_MS)
		timeout_ms = RMPP_ACK_MS;
	return timeout_ms + send->out.resp_ms;
}

void rmpp_send_rewind(struct mad_send *send)
{
	send->out.sent = send->out.acked;
	send->out.resent = 0;
}

/* ---- segments -------------------------------------------------------------------------------- */

/* Bytes behind the RMPP header: of the whole message in the first segment, its own in the last. */
static u32 rmpp_send_paylen(const struct mad_send *send, u32 segment)
{
	u32 size = (u32)send->buf.seg_size, count = send->out.count;
	u32 pad = count * size - (u32)send->buf.data_len;

	if (segment == 1)
		return count * IB_MGMT_RMPP_DATA - pad;
	return segment == count ? IB_MGMT_RMPP_DATA - pad : 0;
}

static void rmpp_send_format(const struct mad_send *send, u32 segment, struct ib_rmpp_mad *out)
{
	u8 flags = IB_MGMT_RMPP_FLAG_ACTIVE;

	if (segment == 1)
		flags |= IB_MGMT_RMPP_FLAG_FIRST;
	if (segment == send->out.count)
		flags |= IB_MGMT_RMPP_FLAG_LAST;
	memcpy(out, send->buf.mad, (size_t)send->buf.hdr_len);
	memcpy((u8 *)out + send->buf.hdr_len,
	       ib_get_rmpp_segment((struct ib_mad_send_buf *)&send->buf, (int)segment),
	       (size_t)send->buf.seg_size);
	ib_set_rmpp_flags(&out->rmpp_hdr, flags);
	out->rmpp_hdr.rmpp_status = IB_MGMT_RMPP_STATUS_SUCCESS;
	out->rmpp_hdr.seg_num = htonl(segment);
	out->rmpp_hdr.paylen_newwin = htonl(rmpp_send_paylen(send, segment));
}

static int rmpp_send_segment(struct mad_send *send, u32 segment)
{
	struct ib_rmpp_mad out;

	rmpp_send_format(send, segment, &out);
	send->out.highest = MAX(send->out.highest, segment);
	return mad_send_try(send, &out);
}

/* A packet of the sender that is no segment. */
static void rmpp_send_control(struct mad_send *send, u8 type, u8 status, u32 window)
{
	struct ib_rmpp_mad out = { .mad_hdr = { 0 } };

	memcpy(&out, send->buf.mad, (size_t)send->buf.hdr_len);
	out.rmpp_hdr.rmpp_type = type;
	out.rmpp_hdr.rmpp_status = status;
	ib_set_rmpp_flags(&out.rmpp_hdr, IB_MGMT_RMPP_FLAG_ACTIVE);
	out.rmpp_hdr.seg_num = 0;
	out.rmpp_hdr.paylen_newwin = htonl(window);
	(void)mad_send_judge(mad_send_try(send, &out));
}

void rmpp_send_abort(struct mad_send *send, u8 status)
{
	struct mad_port *port = mad_agent_of(send->buf.mad_agent)->port;
	bool gone;

	if (!rmpp_send_is_under_way(send) || send->out.highest == 0)
		return;
	lock_acquire(&mad_lock);
	gone = port->gone;
	lock_release(&mad_lock);
	if (!gone)
		rmpp_send_control(send, IB_MGMT_RMPP_TYPE_ABORT, status, 0);
}

/* Tells the receiver, which has all segments, that the response may begin. */
static void rmpp_send_turn(struct mad_send *send)
{
	rmpp_send_control(send, IB_MGMT_RMPP_TYPE_ACK, 0, 1);
}

/* A consumer may change the timeout of an outstanding send. */
static bool rmpp_send_is_request(struct mad_send *send)
{
	bool request;

	lock_acquire(&mad_lock);
	request = send->buf.timeout_ms != 0;
	lock_release(&mad_lock);
	return request;
}

enum rmpp_burst { RMPP_BURST_SENT, RMPP_BURST_DELAYED, RMPP_BURST_ENDED };

/* Sends segments up to `end`. Delayed: the way has no room. Ended: nobody is there, and the send is
 * over. */
static enum rmpp_burst rmpp_send_burst(struct mad_send *send, u32 end)
{
	for (int i = 0; i < MAD_BURST && send->out.sent < end; i++) {
		int err = rmpp_send_segment(send, send->out.sent + 1);
		enum ib_wc_status status;

		if (err == -EAGAIN && mad_send_delay(send))
			return RMPP_BURST_DELAYED;
		send->out.sent++;
		status = mad_send_judge(err);
		if (status != IB_WC_SUCCESS && !rmpp_send_is_request(send)) {
			mad_send_end(send, status, 0);
			return RMPP_BURST_ENDED;
		}
	}
	return RMPP_BURST_SENT;
}

void rmpp_send_transmit(struct mad_send *send)
{
	u32 end;

	if (!rmpp_send_is_under_way(send)) {
		(void)mad_send_await(send);
		rmpp_send_turn(send);
		return;
	}
	if (send->out.highest == 0)
		send->out.window = rmpp_recv_reply_window(send);
	end = MIN(send->out.window, send->out.count);
	if (rmpp_send_burst(send, end) != RMPP_BURST_SENT)
		return;
	if (send->out.sent < end)
		work_push(&send->work);
	else
		(void)mad_send_await(send);
}

/* ---- ACKs ------------------------------------------------------------------------------------ */

struct mad_send *rmpp_send_find(struct mad_agent *agent, const struct mad_message *m)
{
	const struct ib_mad_hdr *hdr = &m->mad.mad_hdr;
	struct mad_send *found = NULL;

	lock_acquire(&mad_lock);
	list_for_each(send, &agent->sends, struct mad_send, node) {
		const struct ib_mad_hdr *data = send->buf.mad;

		if (send->out.count != 0 && data->tid == hdr->tid &&
		    data->mgmt_class == hdr->mgmt_class &&
		    data->method == (hdr->method ^ IB_MGMT_METHOD_RESP) && !send->cancelled &&
		    mad_send_is_peer(send, m)) {
			found = send;
			break;
		}
	}
	lock_release(&mad_lock);
	return found;
}

/* The time that the peer asks for before it answers: 4.096 us * 2^value. */
static u32 rmpp_send_resp_ms(const struct ib_rmpp_hdr *hdr)
{
	u8 value = ib_get_rmpp_resptime(hdr);

	if (value == IB_MGMT_RMPP_NO_RESPTIME)
		return 0;
	return (u32)MIN((4096ull << value) / NS_PER_MS, (u64)RMPP_RESP_MAX_MS);
}

static void rmpp_send_go_on(struct mad_send *send)
{
	mad_send_pause(send);
	work_push(&send->work);
}

/* Segments up to `acked` have arrived, more than before. */
static void rmpp_send_advance(struct mad_send *send, u32 acked)
{
	send->out.acked = acked;
	send->out.sent = MAX(send->out.sent, acked);
	lock_acquire(&mad_lock);
	send->retries_left = send->buf.retries;
	send->delays_left = MAD_DELAYS;
	lock_release(&mad_lock);
}

/* The last segment has arrived. */
static void rmpp_send_finish(struct mad_send *send)
{
	mad_send_pause(send);
	if (mad_send_await(send))
		rmpp_send_turn(send);
	else
		mad_send_end(send, IB_WC_SUCCESS, 0);
}

/* An ACK that says nothing new: segments behind `acked` have come, it has not. */
static void rmpp_send_fill_gap(struct mad_send *send)
{
	u32 gap = send->out.acked + 1;

	if (send->out.acked == 0 || send->out.sent <= gap || send->out.resent == gap)
		return;
	send->out.resent = gap;
	(void)mad_send_judge(rmpp_send_segment(send, gap));
}

u8 rmpp_send_ack(struct mad_agent *agent, struct mad_message *m)
{
	const struct ib_rmpp_hdr *hdr = &((struct ib_rmpp_mad *)(void *)&m->mad)->rmpp_hdr;
	u32 segment = ntohl(hdr->seg_num), window = ntohl(hdr->paylen_newwin);
	struct mad_send *send = rmpp_send_find(agent, m);

	if (send == NULL) {
		if (segment == 0)
			rmpp_recv_turn(agent->port, m, window);
		return 0;
	}
	if (window < segment)
		return IB_MGMT_RMPP_STATUS_W2S;
	if (segment > send->out.highest)
		return IB_MGMT_RMPP_STATUS_S2B;
	if (!rmpp_send_is_under_way(send)) {
		if (segment != 0 && send->answer == NULL)
			rmpp_send_turn(send);
		return 0;
	}
	if (segment < send->out.acked || window < send->out.window)
		return 0; /* overtaken by a later one */
	send->out.resp_ms = rmpp_send_resp_ms(hdr);
	if (segment == send->out.acked && window == send->out.window) {
		rmpp_send_fill_gap(send); /* the timeout runs on */
		return 0;
	}
	if (segment > send->out.acked)
		rmpp_send_advance(send, segment);
	send->out.window = window;
	if (!rmpp_send_is_under_way(send))
		rmpp_send_finish(send);
	else
		rmpp_send_go_on(send);
	return 0;
}
