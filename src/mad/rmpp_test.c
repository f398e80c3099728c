/* rmpp_test.c: RMPP between two ports over a wire that loses, doubles and reorders.
 * In:    messages, packets of any content    Out: verdicts
 * Runs:  one thread                          Locks: none
 */
#include <arpa/inet.h>
#include <endian.h>
#include <errno.h>
#include <stdlib.h>

#include "mad/test_support/sides.h"

enum {
	CLASS = 0x35,
	VERSION = 1,
	METHOD = 0x12, /* GetTable */
	HDR = IB_MGMT_VENDOR_HDR,
	SEGMENT = IB_MGMT_VENDOR_DATA,
	CLASS_HEADER = HDR - IB_MGMT_RMPP_HDR,
	BIG = 2 << 20,
};

/* What an agent has seen. */
struct seen {
	u32 received, ended, bytes, segments;
	enum ib_wc_status status;
	u32 vendor_err;
	int retries;
	u64 wr_id;
	struct side *side;   /* whose agent it is */
	u32 answer_bytes;    /* the size of its response; 0: none */
	bool bad;	     /* a byte was wrong */
	struct ib_mad_hdr hdr;
};

static u8 pattern(u32 at)
{
	return (u8)(at * 7 + at / 251);
}

static void on_sent(struct ib_mad_agent *agent, struct ib_mad_send_wc *wc)
{
	struct seen *seen = agent->context;

	seen->ended++;
	seen->status = wc->status;
	seen->vendor_err = wc->vendor_err;
	seen->retries = wc->send_buf->retries;
	ib_free_send_mad(wc->send_buf);
}

static struct ib_mad_send_buf *message(struct ib_mad_agent *agent, struct side *s, u8 method,
				       u64 tid, u32 bytes)
{
	struct ib_mad_send_buf *buf = ib_create_send_mad(agent, 1, 1, 1, HDR, (int)bytes, 0);
	struct ib_vendor_mad *mad;

	assert_false(IS_ERR(buf));
	mad = buf->mad;
	mad->mad_hdr = (struct ib_mad_hdr){ .base_version = 1,
					    .mgmt_class = CLASS,
					    .class_version = VERSION,
					    .method = method,
					    .tid = htobe64(tid) };
	mad->oui[2] = 5;
	mad->rmpp_hdr.rmpp_type = IB_MGMT_RMPP_TYPE_DATA;
	for (u32 i = 0; i < bytes; i++)
		((u8 *)ib_get_rmpp_segment(buf, (int)(i / SEGMENT + 1)))[i % SEGMENT] = pattern(i);
	assert_null(ib_get_rmpp_segment(buf, 0));
	assert_null(ib_get_rmpp_segment(buf, buf->seg_count + 1));
	buf->ah = &s->ah;
	return buf;
}

/* Checks every byte of a received message. */
static void look(struct seen *seen, const struct ib_mad_recv_wc *recv)
{
	u32 at = 0, bytes = (u32)recv->mad_len - HDR;

	seen->segments = 0;
	list_for_each(buf, &recv->rmpp_list, struct ib_mad_recv_buf, list) {
		const struct ib_vendor_mad *mad = (const void *)buf->mad;

		for (u32 i = 0; i < SEGMENT && at < bytes; i++, at++)
			seen->bad = seen->bad || mad->data[i] != pattern(at);
		seen->bad = seen->bad || ntohl(mad->rmpp_hdr.seg_num) != ++seen->segments;
	}
	seen->bad = seen->bad || at != bytes ||
		    recv->rmpp_list.next != &recv->recv_buf.list;
	seen->bytes = bytes;
}

static void on_received(struct ib_mad_agent *agent, struct ib_mad_recv_wc *recv)
{
	struct seen *seen = agent->context;

	seen->received++;
	seen->wr_id = recv->wc->wr_id;
	seen->hdr = recv->recv_buf.mad->mad_hdr;
	look(seen, recv);
	ib_free_recv_mad(recv);
	if (seen->answer_bytes != 0) {
		struct ib_mad_send_buf *buf =
			message(agent, seen->side, METHOD | IB_MGMT_METHOD_RESP,
				be64toh(seen->hdr.tid), seen->answer_bytes);

		buf->retries = 100;
		assert_int_equal(ib_post_send_mad(buf, NULL), 0);
	}
}

static struct ib_mad_agent *agent_of(struct side *s, u8 rmpp_version, struct seen *seen)
{
	struct ib_mad_reg_req r = request_for(CLASS, VERSION, METHOD);
	struct ib_mad_agent *agent;

	r.oui[2] = 5;
	seen->side = s;
	agent = ib_register_mad_agent(&s->fake->ib, 1, IB_QPT_GSI, &r, rmpp_version, on_sent,
				      on_received, seen);
	assert_false(IS_ERR(agent));
	return agent;
}

/* What both tests of every kind need. */
static struct pair {
	struct seen from, to;
	struct ib_mad_agent *sender, *receiver;
	struct ib_mad_send_buf *buf;
} p;

static int pair_setup(void **state)
{
	memset(&p, 0, sizeof(p));
	sides_setup(state);
	p.sender = agent_of(&a, 1, &p.from);
	p.receiver = agent_of(&b, 1, &p.to);
	return 0;
}

static int pair_teardown(void **state)
{
	a.watch = b.watch = NULL;
	if (p.sender != NULL)
		ib_unregister_mad_agent(p.sender);
	if (p.receiver != NULL)
		ib_unregister_mad_agent(p.receiver);
	return sides_teardown(state);
}

static void send_message(u32 bytes, int timeout_ms, int retries)
{
	static u32 number;

	p.buf = message(p.sender, &a, METHOD, tid_of(p.sender, ++number), bytes);
	p.buf->timeout_ms = timeout_ms;
	p.buf->retries = retries;
	assert_int_equal(ib_post_send_mad(p.buf, NULL), 0);
}

static u64 now_ms(void)
{
	return now_ns / NS_PER_MS;
}

static void run_for(u64 ms)
{
	run_to(now_ms() + ms);
}

/* Until so many sends of the first agent have ended, at most so long. */
static void run_until_ended(u32 ended, u64 ms)
{
	u64 end = now_ms() + ms;

	while (p.from.ended < ended && now_ms() < end)
		run_for(10);
}

/* Nothing is left of messages that arrive, but for what is kept to acknowledge. */
static void check_empty(const struct side *s)
{
	assert_int_equal(s->port->rmpp.segments, 0);
	assert_int_equal(s->port->rmpp.counts[RMPP_STATE_HALF_OPEN], 0);
	assert_int_equal(s->port->rmpp.counts[RMPP_STATE_OPEN], 0);
}

/* ---- a good wire ----------------------------------------------------------------------------- */

static void transfer__of_every_size(void **state)
{
	static const u32 sizes[] = { 0,	     1,	  215,	    216,	  217,
				     432,    433, 64 * 216, 64 * 216 + 1, 65 * 216,
				     100003, BIG, BIG + 1 };

	for (u32 i = 0; i < ARRAY_LEN(sizes); i++) {
		send_message(sizes[i], 0, 0);
		run_for(1);
		assert_int_equal(p.from.ended, i + 1);
		assert_int_equal(p.from.status, IB_WC_SUCCESS);
		assert_int_equal(p.from.retries, 0);
		assert_int_equal(p.to.received, i + 1);
		assert_int_equal(p.to.bytes, sizes[i]);
		assert_int_equal(p.to.segments, MAX(1, (sizes[i] + SEGMENT - 1) / SEGMENT));
		assert_false(p.to.bad);
	}
	check_empty(&b);
}

/* Every segment is as the specification has it. */
static struct {
	u32 next, count, total, last_paylen;
} format;

static bool watch_format(struct side *from, struct ib_rmpp_mad *mad)
{
	const struct ib_rmpp_hdr *hdr = &mad->rmpp_hdr;
	u32 number = ntohl(hdr->seg_num);
	u8 flags = IB_MGMT_RMPP_FLAG_ACTIVE;

	assert_int_equal(hdr->rmpp_version, 1);
	assert_int_equal(hdr->rmpp_type, IB_MGMT_RMPP_TYPE_DATA);
	assert_int_equal(hdr->rmpp_status, 0);
	assert_int_equal(ib_get_rmpp_resptime(hdr), IB_MGMT_RMPP_NO_RESPTIME);
	assert_int_equal(number, format.next++);
	assert_int_equal(mad->mad_hdr.method, METHOD);
	if (number == 1) {
		flags |= IB_MGMT_RMPP_FLAG_FIRST;
		assert_int_equal(ntohl(hdr->paylen_newwin), format.total);
	}
	if (number == format.count) {
		flags |= IB_MGMT_RMPP_FLAG_LAST;
		assert_int_equal(ntohl(hdr->paylen_newwin), format.last_paylen);
	}
	assert_int_equal(ib_get_rmpp_flags(hdr), flags);
	return true;
}

static bool watch_acks(struct side *from, struct ib_rmpp_mad *mad)
{
	assert_int_equal(mad->mad_hdr.method, METHOD | IB_MGMT_METHOD_RESP);
	assert_int_equal(mad->rmpp_hdr.rmpp_type, IB_MGMT_RMPP_TYPE_ACK);
	assert_true(ntohl(mad->rmpp_hdr.seg_num) <= ntohl(mad->rmpp_hdr.paylen_newwin));
	return true;
}

static void transfer__has_the_fields_of_the_specification(void **state)
{
	format.next = 1;
	format.count = 5;
	format.total = 5 * CLASS_HEADER + 4 * SEGMENT + 9;
	format.last_paylen = CLASS_HEADER + 9;
	a.watch = watch_format;
	b.watch = watch_acks;
	send_message(4 * SEGMENT + 9, 0, 0);
	run_for(1);
	assert_int_equal(p.from.status, IB_WC_SUCCESS);
	assert_int_equal(format.next, 6);
	assert_int_equal(p.to.received, 1);
}

/* An ACK for half a window, no more. */
static void transfer__is_acknowledged_by_half_windows(void **state)
{
	wire.delay_us = 100;
	send_message(640 * SEGMENT, 0, 0);
	run_until_ended(1, 1000);
	assert_int_equal(p.from.status, IB_WC_SUCCESS);
	assert_int_equal(a.sent, 640);
	assert_in_range(b.sent, 640 / RMPP_WINDOW, 640 / (RMPP_WINDOW / 2) + 2);
}

/* ---- a bad wire ------------------------------------------------------------------------------ */

static void transfer__survives_loss_duplicates_and_reorder(void **state)
{
	static const u32 sizes[] = { 1, 217, 5000, 30001, 200000 };
	u32 messages = 0;

	for (u32 lose = 0; lose <= 30; lose += 10)
		for (u32 i = 0; i < ARRAY_LEN(sizes); i++) {
			sides_seed(lose * 100 + i);
			wire = (struct wire){ .delay_us = 500,
					      .jitter_us = lose % 20 == 0 ? 3000 : 200,
					      .lose = lose,
					      .duplicate = 20 };
			send_message(sizes[i], 0, 60);
			run_until_ended(++messages, 10000000);
			assert_int_equal(p.from.ended, messages);
			assert_int_equal(p.from.status, IB_WC_SUCCESS);
			assert_int_equal(p.to.received, messages);
			assert_int_equal(p.to.bytes, sizes[i]);
			assert_false(p.to.bad);
		}
	run_for(100);
	check_empty(&b);
}

static void transfer__of_the_largest_over_loss(void **state)
{
	wire = (struct wire){ .delay_us = 100, .jitter_us = 100, .lose = 5, .duplicate = 5 };
	send_message(BIG + 77, 50, 30);
	/* a request of which the response never comes: its segments are acknowledged */
	run_until_ended(1, 10000000);
	assert_int_equal(p.from.status, IB_WC_RESP_TIMEOUT_ERR);
	assert_int_equal(p.to.received, 1);
	assert_int_equal(p.to.bytes, BIG + 77);
	assert_false(p.to.bad);
}

/* One lost segment costs no timeout: the receiver tells of the gap. */
static u32 lose_segment;

static bool watch_lose_one(struct side *from, struct ib_rmpp_mad *mad)
{
	if (mad->rmpp_hdr.rmpp_type != IB_MGMT_RMPP_TYPE_DATA ||
	    ntohl(mad->rmpp_hdr.seg_num) != lose_segment)
		return true;
	lose_segment = 0;
	return false;
}

static void transfer__repeats_one_lost_segment_at_once(void **state)
{
	wire.delay_us = 1000;
	a.watch = watch_lose_one;
	lose_segment = 20;
	send_message(50 * SEGMENT, 0, 3);
	run_for(20);
	assert_int_equal(p.from.ended, 1);
	assert_int_equal(p.from.status, IB_WC_SUCCESS);
	assert_int_equal(p.from.retries, 0);
	assert_int_equal(a.sent, 51);
}

/* A port without room for a while: the segments go later, and none is lost. Each burst may wait as
 * long as the one before. */
static void transfer__waits_for_room(void **state)
{
	wire.delay_us = 1000;
	send_message(BIG, 0, 0);
	for (int waits = 0; waits < 3 * MAD_DELAYS; waits += 5 - a.full) {
		assert_int_equal(p.from.ended, 0);
		a.full = 5;
		run_for(13);
	}
	run_until_ended(1, 1000);
	assert_int_equal(p.from.status, IB_WC_SUCCESS);
	assert_int_equal(p.to.received, 1);
	assert_false(p.to.bad);
	assert_true(now_ms() > 1200);
}

/* ---- requests and responses ------------------------------------------------------------------ */

static void request__and_response_of_many_segments(void **state)
{
	u32 count = 0;

	for (u32 lose = 0; lose <= 30; lose += 15) {
		wire = (struct wire){ .delay_us = 200, .jitter_us = 300, .lose = lose };
		p.to.answer_bytes = 50001;
		send_message(3001, 300, 100);
		run_until_ended(++count, 1000000);
		assert_int_equal(p.from.status, IB_WC_SUCCESS);
		assert_int_equal(p.from.received, count);
		assert_int_equal(p.from.bytes, 50001);
		assert_int_equal(p.from.wr_id, (uintptr_t)p.buf);
		assert_int_equal(p.from.hdr.method, METHOD | IB_MGMT_METHOD_RESP);
		assert_int_equal(p.to.bytes, 3001);
		assert_false(p.from.bad || p.to.bad);
		wire.lose = 0;
		run_for(60000);
		assert_int_equal(p.to.ended, p.to.received);
	}
	check_empty(&a);
	check_empty(&b);
}

/* A response that arrives slowly is not asked for again. */
static void request__waits_while_its_response_arrives(void **state)
{
	wire.delay_us = 40000;
	p.to.answer_bytes = 600 * SEGMENT;
	send_message(10, 100, 3);
	run_until_ended(1, 100000);
	assert_int_equal(p.from.status, IB_WC_SUCCESS);
	assert_int_equal(p.from.received, 1);
	assert_true(now_ms() > 1600);
	assert_int_equal(p.to.received, 1);
	assert_int_equal(p.from.retries, 0);
}

/* Says ACK once more for the message that the last MAD of the peer was about. */
static u32 turns;

static bool watch_turns(struct side *from, struct ib_rmpp_mad *mad)
{
	if (mad->rmpp_hdr.rmpp_type == IB_MGMT_RMPP_TYPE_ACK && mad->rmpp_hdr.seg_num == 0) {
		assert_int_equal(mad->mad_hdr.method, METHOD);
		mad->rmpp_hdr.paylen_newwin = htonl(3); /* the response begins with three */
		turns++;
	}
	return true;
}

static bool watch_answers(struct side *from, struct ib_rmpp_mad *mad)
{
	if (mad->rmpp_hdr.rmpp_type == IB_MGMT_RMPP_TYPE_DATA)
		format.next = MAX(format.next, ntohl(mad->rmpp_hdr.seg_num));
	return true;
}

static void request__tells_the_responder_to_begin(void **state)
{
	struct ib_mad_send_buf *buf;

	wire.delay_us = 10000;
	turns = format.next = 0;
	a.watch = watch_turns;
	b.watch = watch_answers;
	send_message(10, 1000, 0);
	run_for(35);
	assert_int_equal(turns, 1);
	buf = message(p.receiver, &b, METHOD | IB_MGMT_METHOD_RESP, be64toh(p.to.hdr.tid),
		      10 * SEGMENT);
	assert_int_equal(ib_post_send_mad(buf, NULL), 0);
	run_for(1);
	assert_int_equal(format.next, 3);
	run_for(200);
	assert_int_equal(p.from.status, IB_WC_SUCCESS);
	assert_int_equal(p.from.bytes, 10 * SEGMENT);
}

/* ---- ends ------------------------------------------------------------------------------------ */

static u32 leave_after; /* MADs until something happens */
static bool due;

static bool watch_count(struct side *from, struct ib_rmpp_mad *mad)
{
	if (leave_after != 0 && --leave_after == 0)
		due = true;
	return true;
}

enum end { END_CANCEL, END_UNREGISTER_SENDER, END_UNREGISTER_RECEIVER, END_PORT, END_ABORT, ENDS };

static void inject_abort(void)
{
	struct ib_rmpp_mad mad = { .mad_hdr = ((struct ib_rmpp_mad *)p.buf->mad)->mad_hdr,
				   .rmpp_hdr = { .rmpp_version = 1,
						 .rmpp_type = IB_MGMT_RMPP_TYPE_ABORT,
						 .rmpp_rtime_flags = IB_MGMT_RMPP_FLAG_ACTIVE,
						 .rmpp_status = IB_MGMT_RMPP_STATUS_UNSPEC } };
	struct mad_arrival arrival = arrive(&a, &mad);

	mad.mad_hdr.method |= IB_MGMT_METHOD_RESP;
	mad_port_receive(a.port, &arrival);
}

static void end_by(enum end how)
{
	switch (how) {
	case END_CANCEL:
		ib_cancel_mad(p.sender, p.buf);
		break;
	case END_UNREGISTER_SENDER:
		ib_unregister_mad_agent(p.sender);
		p.sender = NULL;
		break;
	case END_UNREGISTER_RECEIVER:
		ib_unregister_mad_agent(p.receiver);
		p.receiver = NULL;
		break;
	case END_PORT:
		mad_port_remove(a.port);
		a.port = NULL;
		break;
	default:
		inject_abort();
	}
}

static void end_at_stage(void **state, enum end how, u32 stage)
{
	static const enum ib_wc_status expected[ENDS] = { IB_WC_WR_FLUSH_ERR, IB_WC_WR_FLUSH_ERR,
							  IB_WC_RESP_TIMEOUT_ERR,
							  IB_WC_WR_FLUSH_ERR, IB_WC_REM_ABORT_ERR };

	assert_int_equal(pair_setup(state), 0);
	wire.delay_us = 500;
	a.watch = b.watch = watch_count;
	leave_after = stage;
	due = false;
	p.to.answer_bytes = 3 * SEGMENT;
	send_message(3 * SEGMENT, 100, 1);
	while (!due && p.from.ended == 0)
		run_for(1);
	if (due && p.from.ended == 0) {
		end_by(how);
		run_for(1000);
		assert_int_equal(p.from.ended, 1);
		/* what had left may have sufficed; a receiver that ends aborts its response */
		if (p.from.status != IB_WC_SUCCESS && p.from.vendor_err == 0)
			assert_int_equal(p.from.status, expected[how]);
		if (how == END_CANCEL)
			assert_int_equal(p.from.status, IB_WC_WR_FLUSH_ERR);
		run_for(300000);
		if (a.port != NULL)
			check_empty(&a);
		check_empty(&b);
	}
	assert_int_equal(pair_teardown(state), 0);
}

static void transfer__ends_at_every_stage(void **state)
{
	for (enum end how = 0; how < ENDS; how++)
		for (u32 stage = 1; stage <= 14; stage++)
			end_at_stage(state, how, stage);
}

/* The last control packet that each side has sent. */
static struct ib_rmpp_hdr last_a, last_b;

static bool watch_control(struct side *from, struct ib_rmpp_mad *mad)
{
	if (mad->rmpp_hdr.rmpp_type != IB_MGMT_RMPP_TYPE_DATA)
		*(from == &a ? &last_a : &last_b) = mad->rmpp_hdr;
	return true;
}

static bool watch_nothing_passes(struct side *from, struct ib_rmpp_mad *mad)
{
	(void)watch_control(from, mad);
	return false;
}

/* ---- packets by hand ------------------------------------------------------------------------- */

static struct ib_rmpp_mad packet(u32 tid, u8 type, u8 flags, u32 number, u32 paylen)
{
	struct ib_vendor_mad mad = { .mad_hdr = { .base_version = 1,
						  .mgmt_class = CLASS,
						  .class_version = VERSION,
						  .method = METHOD,
						  .tid = htobe64(tid) },
				     .rmpp_hdr = { .rmpp_version = 1,
						   .rmpp_type = type,
						   .rmpp_rtime_flags = flags | 1 | 0x1f << 3,
						   .seg_num = htonl(number),
						   .paylen_newwin = htonl(paylen) },
				     .oui = { 0, 0, 5 } };
	struct ib_rmpp_mad out;

	memcpy(&out, &mad, sizeof(out));
	return out;
}

/* A packet of the source with this number comes to b. */
static void inject(u8 source, const struct ib_rmpp_mad *mad)
{
	struct mad_arrival arrival = arrive(&b, mad);

	arrival.grh.sgid.raw[14] = source;
	mad_port_receive(b.port, &arrival);
}

static void inject_data(u8 source, u32 tid, u8 flags, u32 number, u32 paylen)
{
	struct ib_rmpp_mad mad = packet(tid, IB_MGMT_RMPP_TYPE_DATA, flags, number, paylen);

	for (u32 i = 0; i < SEGMENT; i++)
		mad.data[CLASS_HEADER + i] = pattern((number - 1) * SEGMENT + i);
	inject(source, &mad);
}

enum { FIRST = IB_MGMT_RMPP_FLAG_FIRST, LAST = IB_MGMT_RMPP_FLAG_LAST, FULL = IB_MGMT_RMPP_DATA };

static void receiver__keeps_sources_apart(void **state)
{
	b.watch = watch_nothing_passes;
	for (u8 source = 0; source < 2; source++)
		inject_data(source, 7, FIRST, 1, 0);
	inject_data(0, 7, LAST, 3, FULL);
	inject_data(1, 7, LAST, 2, CLASS_HEADER + 4);
	run_for(1);
	assert_int_equal(p.to.received, 1);
	assert_int_equal(p.to.bytes, SEGMENT + 4);
	inject_data(0, 7, 0, 2, 0);
	run_for(1);
	assert_int_equal(p.to.received, 2);
	assert_int_equal(p.to.bytes, 3 * SEGMENT);
	assert_false(p.to.bad);
}

static void receiver__acknowledges_again_what_is_complete(void **state)
{
	b.watch = watch_nothing_passes;
	for (int i = 0; i < 3; i++) {
		inject_data(0, 7, FIRST | LAST, 1, FULL);
		run_for(1);
		assert_int_equal(b.sent, i + 1);
		assert_int_equal(last_b.rmpp_type, IB_MGMT_RMPP_TYPE_ACK);
		assert_int_equal(ntohl(last_b.seg_num), 1);
		assert_int_equal(p.to.received, 1);
	}
	run_for(RMPP_KEEP_MS);
	assert_int_equal(b.port->rmpp.counts[RMPP_STATE_KEPT], 0);
	inject_data(0, 7, FIRST | LAST, 1, FULL);
	run_for(1);
	assert_int_equal(p.to.received, 2);
}

/* Each breach is answered by its status, and nothing is left of the message. */
static void receiver__refuses_what_breaks_a_rule(void **state)
{
	static const struct {
		struct {
			u8 flags;
			u32 number, paylen;
		} step[3]; /* number 0 in the second and third: no such step */
		u8 type, status;
	} cases[] = {
		{ { { 0, 0, 0 } }, 4, IB_MGMT_RMPP_STATUS_BAD_SEG },
		{ { { FIRST, 2, 0 } }, 4, IB_MGMT_RMPP_STATUS_BAD_SEG },
		{ { { 0, 1, 0 } }, 4, IB_MGMT_RMPP_STATUS_BAD_SEG },
		{ { { FIRST | LAST, 1, FULL + 1 } }, 4, IB_MGMT_RMPP_STATUS_BAD_LEN },
		{ { { FIRST | LAST, 1, UINT32_MAX } }, 4, IB_MGMT_RMPP_STATUS_BAD_LEN },
		{ { { FIRST | LAST, 1, CLASS_HEADER - 1 } }, 4, IB_MGMT_RMPP_STATUS_BAD_LEN },
		{ { { FIRST, 1, FULL } }, 4, IB_MGMT_RMPP_STATUS_BAD_LEN },
		{ { { FIRST, 1, UINT32_MAX } }, 3, IB_MGMT_RMPP_STATUS_RESX },
		{ { { FIRST, 1, 0 }, { LAST, 2, 0 } }, 4, IB_MGMT_RMPP_STATUS_BAD_LEN },
		/* the total says three segments */
		{ { { FIRST, 1, 3 * FULL }, { LAST, 2, FULL } }, 4, IB_MGMT_RMPP_STATUS_BAD_LEN },
		{ { { FIRST, 1, 3 * FULL }, { 0, 3, 0 } }, 4, IB_MGMT_RMPP_STATUS_BAD_LEN },
		{ { { FIRST, 1, 3 * FULL }, { 0, 4, 0 } }, 4, IB_MGMT_RMPP_STATUS_BAD_LEN },
		{ { { FIRST, 1, 3 * FULL }, { LAST, 3, FULL - 1 } }, 4,
		  IB_MGMT_RMPP_STATUS_BAD_LEN },
		/* a last segment in front of others */
		{ { { FIRST, 1, 0 }, { 0, 5, 0 }, { LAST, 3, FULL } }, 4,
		  IB_MGMT_RMPP_STATUS_BAD_LEN },
		{ { { FIRST, 1, 0 }, { LAST, 3, FULL }, { 0, 4, 0 } }, 4,
		  IB_MGMT_RMPP_STATUS_BAD_LEN },
	};

	b.watch = watch_nothing_passes;
	for (u32 i = 0; i < ARRAY_LEN(cases); i++) {
		memset(&last_b, 0, sizeof(last_b));
		for (u32 s = 0; s < 3 && (s == 0 || cases[i].step[s].number != 0); s++) {
			inject_data(0, i, cases[i].step[s].flags, cases[i].step[s].number,
				    cases[i].step[s].paylen);
			run_for(1);
		}
		assert_int_equal(last_b.rmpp_type, cases[i].type);
		assert_int_equal(last_b.rmpp_status, cases[i].status);
		check_empty(&b);
	}
	assert_int_equal(p.to.received, 0);
}

static void receiver__refuses_headers_it_does_not_know(void **state)
{
	struct ib_rmpp_mad mad = packet(9, 9, FIRST | LAST, 1, FULL);

	b.watch = watch_nothing_passes;
	inject(0, &mad);
	run_for(1);
	assert_int_equal(last_b.rmpp_status, IB_MGMT_RMPP_STATUS_BADT);
	mad.rmpp_hdr.rmpp_type = IB_MGMT_RMPP_TYPE_DATA;
	mad.rmpp_hdr.rmpp_version = 2;
	inject(0, &mad);
	run_for(1);
	assert_int_equal(last_b.rmpp_status, IB_MGMT_RMPP_STATUS_UNV);
	mad.rmpp_hdr.rmpp_version = 1;
	mad.rmpp_hdr.rmpp_status = 5;
	inject(0, &mad);
	run_for(1);
	assert_int_equal(last_b.rmpp_status, IB_MGMT_RMPP_STATUS_BAD_STATUS);
	assert_int_equal(b.sent, 3);
	/* an ABORT, even a senseless one, is never answered */
	mad.rmpp_hdr.rmpp_type = IB_MGMT_RMPP_TYPE_ABORT;
	inject(0, &mad);
	run_for(1);
	assert_int_equal(b.sent, 3);
	/* nor is a segment of which the first has never come, or one beyond the window */
	inject_data(0, 10, 0, 2, 0);
	inject_data(0, 11, FIRST, 1, 0);
	inject_data(0, 11, 0, 1 + RMPP_WINDOW + 1, 0);
	run_for(1);
	assert_int_equal(b.sent, 4);
	assert_int_equal(b.port->rmpp.segments, 1);
	assert_int_equal(p.to.received, 0);
}

/* Both ends send with one transaction ID: a bad segment ends what arrives, not what leaves. */
static void receiver__refuses_beside_a_send_of_the_same_transaction(void **state)
{
	struct ib_mad_send_buf *buf =
		message(p.receiver, &b, METHOD | IB_MGMT_METHOD_RESP, 7, 1000);

	b.watch = watch_nothing_passes;
	buf->retries = 100;
	assert_int_equal(ib_post_send_mad(buf, NULL), 0);
	inject_data(0, 7, FIRST, 1, UINT32_MAX);
	run_for(1);
	assert_int_equal(last_b.rmpp_type, IB_MGMT_RMPP_TYPE_STOP);
	check_empty(&b);
	inject_data(0, 7, FIRST, 1, 0);
	inject_data(0, 7, LAST, 2, 0);
	run_for(2 * RMPP_IDLE_MS);
	check_empty(&b);
	assert_int_equal(p.to.ended, 0);
}

static void receiver__gives_up_a_silent_sender(void **state)
{
	b.watch = watch_nothing_passes;
	inject_data(0, 7, FIRST, 1, 0);
	run_for(15000);
	inject_data(0, 7, 0, 2, 0);
	run_for(RMPP_IDLE_MS - 1);
	assert_int_equal(b.port->rmpp.segments, 2);
	run_for(1);
	assert_int_equal(last_b.rmpp_type, IB_MGMT_RMPP_TYPE_ABORT);
	assert_int_equal(last_b.rmpp_status, IB_MGMT_RMPP_STATUS_T2L);
	check_empty(&b);
}

/* ---- floods ---------------------------------------------------------------------------------- */

/* `sources`: how many there are; `rate`: first segments in a millisecond. */
static void flood_with_first_segments(u32 sources, u32 rate, u32 limit)
{
	u32 before = p.from.ended;

	send_message(300 * SEGMENT, 0, 3);
	for (u32 i = 0; i < 20000; i++) {
		inject_data((u8)(1 + i % sources), 1000 + i, FIRST, 1, 0);
		if (i % rate == 0)
			run_for(1);
		assert_true(b.port->rmpp.counts[RMPP_STATE_HALF_OPEN] <= limit);
	}
	run_until_ended(before + 1, 10000);
	assert_int_equal(p.from.status, IB_WC_SUCCESS);
	assert_int_equal(p.to.received, before + 1);
	assert_false(p.to.bad);
}

static void flood__of_first_segments_stops_nobody(void **state)
{
	wire.delay_us = 1000;
	flood_with_first_segments(1, 2000, RMPP_SOURCE + 1);
	flood_with_first_segments(200, 200, RMPP_HALF_OPEN);
	run_for(2 * RMPP_IDLE_MS);
	check_empty(&b);
}

static void flood__of_one_source_has_its_share(void **state)
{
	b.watch = watch_nothing_passes;
	for (u32 i = 0; i <= RMPP_SOURCE; i++) {
		memset(&last_b, 0, sizeof(last_b));
		inject_data(1, 1000 + i, FIRST, 1, 0);
		inject_data(1, 1000 + i, 0, 2, 0);
		run_for(1);
	}
	assert_int_equal(b.port->rmpp.counts[RMPP_STATE_OPEN], RMPP_SOURCE);
	assert_int_equal(last_b.rmpp_type, IB_MGMT_RMPP_TYPE_STOP);
	assert_int_equal(last_b.rmpp_status, IB_MGMT_RMPP_STATUS_RESX);
	/* another source is served */
	inject_data(2, 1, FIRST, 1, 0);
	inject_data(2, 1, LAST, 2, FULL);
	run_for(1);
	assert_int_equal(p.to.received, 1);
}

/* A message without end gets half of the port's memory, a second one half of the rest. */
static void flood__of_segments_ends_at_the_memory_that_is_left(void **state)
{
	const u32 shares[] = { RMPP_SEGMENTS / 2, RMPP_SEGMENTS / 4 };

	b.watch = watch_nothing_passes;
	memset(&last_b, 0, sizeof(last_b));
	for (u32 m = 0; m < 2; m++) {
		for (u32 i = 1; i <= shares[m]; i++) {
			inject_data((u8)m, 1, i == 1 ? FIRST : 0, i, 0);
			run_for(0);
		}
		assert_int_equal(last_b.rmpp_type, IB_MGMT_RMPP_TYPE_ACK);
	}
	assert_int_equal(b.port->rmpp.segments, shares[0] + shares[1]);
	for (int m = 1; m >= 0; m--) {
		inject_data((u8)m, 1, 0, shares[m] + 1, 0);
		run_for(0);
		assert_int_equal(last_b.rmpp_type, IB_MGMT_RMPP_TYPE_STOP);
		assert_int_equal(last_b.rmpp_status, IB_MGMT_RMPP_STATUS_RESX);
	}
	check_empty(&b);
}

static void flood__of_complete_messages_is_forgotten(void **state)
{
	b.watch = watch_nothing_passes;
	for (u32 i = 0; i < 3 * RMPP_KEPT; i++) {
		inject_data(1, i, FIRST | LAST, 1, FULL);
		run_for(1);
	}
	assert_int_equal(p.to.received, 3 * RMPP_KEPT);
	assert_int_equal(b.port->rmpp.counts[RMPP_STATE_KEPT], RMPP_KEPT);
}

/* ---- ACKs of any content --------------------------------------------------------------------- */

static void inject_ack(u8 type, u8 status, u8 resptime, u32 number, u32 window)
{
	struct ib_rmpp_mad mad = packet(0, type, 0, number, window);
	struct mad_arrival arrival = arrive(&a, &mad);

	mad.mad_hdr = ((struct ib_rmpp_mad *)p.buf->mad)->mad_hdr;
	mad.mad_hdr.method |= IB_MGMT_METHOD_RESP;
	mad.rmpp_hdr.rmpp_status = status;
	ib_set_rmpp_resptime(&mad.rmpp_hdr, resptime);
	mad_port_receive(a.port, &arrival);
	run_for(1);
}

/* Each segment that arrives gives the next one all tries. */
static void sender__gives_up_without_acks(void **state)
{
	a.watch = watch_nothing_passes;
	send_message(2 * SEGMENT, 0, 2);
	for (u32 acked = 0; acked < 2; acked++) {
		inject_ack(IB_MGMT_RMPP_TYPE_ACK, 0, IB_MGMT_RMPP_NO_RESPTIME, acked, acked + 1);
		run_for(5998);
		assert_int_equal(p.from.ended, 0);
		assert_int_equal(a.sent, 3 * (acked + 1));
	}
	run_for(1);
	assert_int_equal(p.from.status, IB_WC_RESP_TIMEOUT_ERR);
	assert_int_equal(p.from.retries, 4);
	assert_int_equal(last_a.rmpp_type, IB_MGMT_RMPP_TYPE_ABORT);
	assert_int_equal(last_a.rmpp_status, IB_MGMT_RMPP_STATUS_TMR);
}

static void sender__refuses_acks_that_break_a_rule(void **state)
{
	static const struct {
		u8 type, status;
		u32 number, window;
		u8 told, ends; /* the ABORT's status (0: none), and the vendor_err */
	} cases[] = {
		{ 2, 0, 2, 1, IB_MGMT_RMPP_STATUS_W2S, IB_MGMT_RMPP_STATUS_W2S },
		{ 2, 0, 2, 66, IB_MGMT_RMPP_STATUS_S2B, IB_MGMT_RMPP_STATUS_S2B },
		{ 2, 0, UINT32_MAX, UINT32_MAX, IB_MGMT_RMPP_STATUS_S2B, IB_MGMT_RMPP_STATUS_S2B },
		{ 2, 9, 1, 64, IB_MGMT_RMPP_STATUS_BAD_STATUS, IB_MGMT_RMPP_STATUS_BAD_STATUS },
		{ 3, IB_MGMT_RMPP_STATUS_RESX, 0, 0, 0, IB_MGMT_RMPP_STATUS_RESX },
		{ 3, 0, 0, 0, 0, IB_MGMT_RMPP_STATUS_BAD_STATUS },
		{ 4, IB_MGMT_RMPP_STATUS_T2L, 0, 0, 0, IB_MGMT_RMPP_STATUS_T2L },
		{ 4, 3, 0, 0, 0, IB_MGMT_RMPP_STATUS_BAD_STATUS },
	};

	a.watch = watch_nothing_passes;
	for (u32 i = 0; i < ARRAY_LEN(cases); i++) {
		memset(&last_a, 0, sizeof(last_a));
		send_message(1000, 0, 0);
		run_for(1);
		inject_ack(cases[i].type, cases[i].status, IB_MGMT_RMPP_NO_RESPTIME,
			   cases[i].number, cases[i].window);
		assert_int_equal(p.from.ended, i + 1);
		assert_int_equal(p.from.status, IB_WC_REM_ABORT_ERR);
		assert_int_equal(p.from.vendor_err, cases[i].ends);
		assert_int_equal(last_a.rmpp_status, cases[i].told);
	}
}

/* However often the receiver says where a gap is, the segment leaves once. */
static void sender__fills_a_gap_once(void **state)
{
	a.watch = watch_nothing_passes;
	send_message(30 * SEGMENT, 0, 0);
	run_for(1);
	inject_ack(IB_MGMT_RMPP_TYPE_ACK, 0, IB_MGMT_RMPP_NO_RESPTIME, 1, 65);
	assert_int_equal(a.sent, 30);
	for (u32 at = 5; at < 7; at++)
		for (u32 i = 0; i < 6; i++) {
			inject_ack(IB_MGMT_RMPP_TYPE_ACK, 0, IB_MGMT_RMPP_NO_RESPTIME, at, at + 64);
			assert_int_equal(a.sent, 30 + (at - 5) + (i != 0));
		}
}

/* The response time of an ACK: 4.096 us * 2^20 is 4.3 s. */
static void sender__waits_as_long_as_the_peer_asks(void **state)
{
	a.watch = watch_nothing_passes;
	send_message(1000, 0, 0);
	run_for(1);
	inject_ack(IB_MGMT_RMPP_TYPE_ACK, 0, 20, 1, 64);
	run_for(6200);
	assert_int_equal(p.from.ended, 0);
	run_for(200);
	assert_int_equal(p.from.status, IB_WC_RESP_TIMEOUT_ERR);
	/* but not for an hour */
	send_message(1000, 0, 0);
	run_for(1);
	inject_ack(IB_MGMT_RMPP_TYPE_ACK, 0, 0x1e, 1, 64);
	run_for(RMPP_ACK_MS + RMPP_RESP_MAX_MS);
	assert_int_equal(p.from.ended, 2);
}

/* ---- agents that do RMPP themselves ---------------------------------------------------------- */

static void agent__of_version_0_gets_every_packet(void **state)
{
	struct seen raw = { .received = 0 };
	struct ib_mad_send_buf *buf;
	struct ib_mad_agent *agent;
	struct ib_mad *mad;

	ib_unregister_mad_agent(p.sender);
	agent = agent_of(&a, 0, &raw);
	p.sender = NULL;
	assert_int_equal(PTR_ERR(ib_create_send_mad(agent, 1, 1, 1, HDR, 10, 0)), -EINVAL);
	/* its request of one packet; the midlayer's side answers by four */
	buf = ib_create_send_mad(agent, 1, 1, 0, HDR, SEGMENT, 0);
	assert_false(IS_ERR(buf));
	mad = buf->mad;
	*(struct ib_rmpp_mad *)buf->mad = packet(0, IB_MGMT_RMPP_TYPE_DATA, FIRST | LAST, 1, FULL);
	mad->mad_hdr.tid = htobe64(tid_of(agent, 3));
	buf->ah = &a.ah;
	buf->timeout_ms = 100;
	p.to.answer_bytes = 4 * SEGMENT;
	assert_int_equal(ib_post_send_mad(buf, NULL), 0);
	run_for(1);
	assert_int_equal(p.to.received, 1);
	/* the ACK of its request matches it, as any packet of that transaction ID does */
	assert_int_equal(raw.received, 2);
	assert_int_equal(raw.ended, 1);
	assert_int_equal(raw.status, IB_WC_SUCCESS);
	/* the first segment of the response is its own to acknowledge */
	assert_int_equal(raw.wr_id, 0);
	assert_int_equal(raw.hdr.method, METHOD | IB_MGMT_METHOD_RESP);
	ib_unregister_mad_agent(agent);
}

static void create_send_mad__rmpp(void **state)
{
	struct ib_mad_send_buf *buf;

	assert_int_equal(PTR_ERR(ib_create_send_mad(p.sender, 1, 0, 1, 24, 10, 0)), -EINVAL);
	buf = ib_create_send_mad(p.sender, 1, 0, 1, HDR, 2 * SEGMENT + 1, 0);
	assert_int_equal(buf->seg_count, 3);
	assert_int_equal(buf->seg_size, SEGMENT);
	assert_int_equal(buf->seg_rmpp_size, IB_MGMT_RMPP_DATA);
	buf->ah = &a.ah;
	((struct ib_rmpp_mad *)buf->mad)->rmpp_hdr.rmpp_type = IB_MGMT_RMPP_TYPE_DATA;
	((struct ib_rmpp_mad *)buf->mad)->mad_hdr.mgmt_class = IB_MGMT_CLASS_CM;
	assert_int_equal(ib_post_send_mad(buf, NULL), -EINVAL); /* a class without RMPP */
	ib_free_send_mad(buf);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, pair_setup, pair_teardown)
	static const struct CMUnitTest tests[] = {
		TEST(transfer__of_every_size),
		TEST(transfer__has_the_fields_of_the_specification),
		TEST(transfer__is_acknowledged_by_half_windows),
		TEST(transfer__survives_loss_duplicates_and_reorder),
		TEST(transfer__of_the_largest_over_loss),
		TEST(transfer__repeats_one_lost_segment_at_once),
		TEST(transfer__waits_for_room),
		TEST(request__and_response_of_many_segments),
		TEST(request__waits_while_its_response_arrives),
		TEST(request__tells_the_responder_to_begin),
		cmocka_unit_test(transfer__ends_at_every_stage),
		TEST(sender__gives_up_without_acks),
		TEST(receiver__keeps_sources_apart),
		TEST(receiver__acknowledges_again_what_is_complete),
		TEST(receiver__refuses_what_breaks_a_rule),
		TEST(receiver__refuses_headers_it_does_not_know),
		TEST(receiver__refuses_beside_a_send_of_the_same_transaction),
		TEST(receiver__gives_up_a_silent_sender),
		TEST(flood__of_first_segments_stops_nobody),
		TEST(flood__of_one_source_has_its_share),
		TEST(flood__of_segments_ends_at_the_memory_that_is_left),
		TEST(flood__of_complete_messages_is_forgotten),
		TEST(sender__refuses_acks_that_break_a_rule),
		TEST(sender__fills_a_gap_once),
		TEST(sender__waits_as_long_as_the_peer_asks),
		TEST(agent__of_version_0_gets_every_packet),
		TEST(create_send_mad__rmpp),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
