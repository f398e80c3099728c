/* mad_test.c: agents on two ports with a wire between them.
 * In:    MADs of any content    Out: verdicts
 * Runs:  one thread             Locks: none
 */
#include <arpa/inet.h>
#include <endian.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#include "mad/test_support/sides.h"

enum { CLASS = 0x0a, VERSION = 2 };

/* What an agent has seen. */
struct seen {
	u32 received, ended;
	enum ib_wc_status status;
	struct ib_mad mad;
	struct ib_wc wc;
	u32 order; /* of the last receive handler and the last end, as digits 1 and 2 */
	int retries; /* of the latest send that ended */
	int posts_again; /* sends that the handler posts anew */
	bool keeps; /* what it receives is freed at the end of the test */
	struct ib_mad_recv_wc *kept;
};

/* ---- agents ---------------------------------------------------------------------------------- */

static void on_sent(struct ib_mad_agent *agent, struct ib_mad_send_wc *wc)
{
	struct seen *seen = agent->context;

	seen->ended++;
	seen->status = wc->status;
	seen->order = seen->order * 10 + 2;
	seen->retries = wc->send_buf->retries;
	if (seen->posts_again-- > 0)
		assert_int_equal(ib_post_send_mad(wc->send_buf, NULL), 0);
	else
		ib_free_send_mad(wc->send_buf);
}

static void on_received(struct ib_mad_agent *agent, struct ib_mad_recv_wc *recv)
{
	struct seen *seen = agent->context;

	assert_ptr_equal(recv->rmpp_list.next, &recv->recv_buf.list);
	assert_int_equal(recv->mad_len, IB_MGMT_MAD_SIZE);
	seen->received++;
	seen->mad = *recv->recv_buf.mad;
	seen->wc = *recv->wc;
	seen->order = seen->order * 10 + 1;
	if (seen->keeps)
		seen->kept = recv;
	else
		ib_free_recv_mad(recv);
}

static struct ib_mad_agent *try_agent(struct side *s, struct ib_mad_reg_req *r, struct seen *seen)
{
	return ib_register_mad_agent(&s->fake->ib, 1, IB_QPT_GSI, r, 0, on_sent, on_received,
				     seen);
}

static struct ib_mad_agent *agent_on(struct side *s, u8 method, struct seen *seen)
{
	struct ib_mad_reg_req r = request_for(CLASS, VERSION, method);
	struct ib_mad_agent *agent = try_agent(s, method == 0 ? NULL : &r, seen);

	assert_false(IS_ERR(agent));
	return agent;
}

static struct ib_mad_send_buf *mad_to_send(struct ib_mad_agent *agent, struct side *s, u8 method,
					   u64 tid)
{
	struct ib_mad_send_buf *buf =
		ib_create_send_mad(agent, 1, 0, 0, IB_MGMT_MAD_HDR, IB_MGMT_MAD_DATA, 0);
	struct ib_mad *mad = buf->mad;

	assert_false(IS_ERR(buf));
	mad->mad_hdr = (struct ib_mad_hdr){ .base_version = 1,
					    .mgmt_class = CLASS,
					    .class_version = VERSION,
					    .method = method,
					    .tid = htobe64(tid) };
	buf->ah = &s->ah;
	return buf;
}

/* ---- registration ---------------------------------------------------------------------------- */

static void register_mad_agent__judges_its_arguments(void **state)
{
	struct ib_mad_reg_req good = request_for(CLASS, VERSION, 1), r;
	struct seen seen = { .received = 0 };
	struct ib_mad_agent *agent = try_agent(&a, &good, &seen), *other;

	assert_false(IS_ERR(agent));
	assert_int_equal(agent->hi_tid >> MAD_SLOT_SHIFT, SLOT_A);
	assert_int_equal(mad_id_bits(agent), (u32)SLOT_A << MAD_SLOT_SHIFT);
	/* one method has one agent; another version or method is free */
	assert_int_equal(PTR_ERR(try_agent(&a, &good, &seen)), -EINVAL);
	r = request_for(CLASS, VERSION + 1, 1);
	other = try_agent(&a, &r, &seen);
	assert_false(IS_ERR(other));
	assert_int_not_equal(other->hi_tid, agent->hi_tid);
	assert_int_equal(ib_unregister_mad_agent(other), 0);
	for (u32 i = 0; i < 4; i++) {
		static const u8 classes[] = { 0, IB_MGMT_CLASS_SUBN_LID_ROUTED,
					      IB_MGMT_CLASS_SUBN_DIRECTED_ROUTE, 0x90 };

		r = request_for(classes[i], 1, 1);
		assert_int_equal(PTR_ERR(try_agent(&a, &r, &seen)), -EINVAL);
	}
	r = request_for(0x30, 1, 1); /* without OUI */
	assert_int_equal(PTR_ERR(try_agent(&a, &r, &seen)), -EINVAL);
	r = request_for(CLASS, MAD_VERSIONS, 1);
	assert_int_equal(PTR_ERR(try_agent(&a, &r, &seen)), -EINVAL);
	assert_int_equal(PTR_ERR(ib_register_mad_agent(&a.fake->ib, 2, IB_QPT_GSI, NULL, 0, on_sent,
						       on_received, &seen)),
			 -ENODEV);
	assert_int_equal(PTR_ERR(ib_register_mad_agent(&a.fake->ib, 1, IB_QPT_SMI, NULL, 0, on_sent,
						       on_received, &seen)),
			 -ENODEV);
	assert_int_equal(PTR_ERR(ib_register_mad_agent(&a.fake->ib, 1, IB_QPT_UD, NULL, 0, on_sent,
						       on_received, &seen)),
			 -EINVAL);
	assert_int_equal(PTR_ERR(ib_register_mad_agent(&a.fake->ib, 1, IB_QPT_GSI, NULL, 2, on_sent,
						       on_received, &seen)),
			 -EINVAL);
	r = request_for(CLASS, VERSION, 1);
	assert_int_equal(PTR_ERR(ib_register_mad_agent(&a.fake->ib, 1, IB_QPT_GSI, &r, 1, on_sent,
						       on_received, &seen)),
			 -EINVAL); /* a class without RMPP */
	assert_int_equal(ib_unregister_mad_agent(agent), 0);
}

/* Other processes of the port hear of what an agent takes, and may have it already. */
static void register_mad_agent__asks_the_port(void **state)
{
	struct ib_mad_reg_req r = request_for(CLASS, VERSION, 1), none = r;
	struct seen seen = { .received = 0 };
	struct ib_mad_agent *agent = try_agent(&a, &r, &seen), *mute = agent_on(&a, 0, &seen);
	struct ib_mad_agent *deaf;

	assert_false(IS_ERR(agent));
	assert_int_equal(a.agents, 1);
	/* one that this process refuses by itself leaves nothing behind */
	assert_int_equal(PTR_ERR(try_agent(&a, &r, &seen)), -EINVAL);
	assert_int_equal(a.agents, 1);
	/* without a method nothing comes, and nobody needs to know */
	memset(none.method_mask, 0, sizeof(none.method_mask));
	deaf = try_agent(&a, &none, &seen);
	assert_false(IS_ERR(deaf));
	assert_int_equal(a.agents, 1);
	ib_unregister_mad_agent(deaf);
	ib_unregister_mad_agent(mute);
	ib_unregister_mad_agent(agent);
	assert_int_equal(a.agents, 0);
	a.taken = true;
	assert_int_equal(PTR_ERR(try_agent(&a, &r, &seen)), -EINVAL);
	assert_int_equal(a.agents, 0);
	/* responses need no place in the table */
	mute = agent_on(&a, 0, &seen);
	ib_unregister_mad_agent(mute);
}

static void listen__reaches_the_port(void **state)
{
	struct seen seen = { .received = 0 };
	struct ib_mad_agent *agent = agent_on(&a, 0, &seen);

	assert_int_equal(mad_listen(agent, 0x123, UINT64_MAX, NULL), 0);
	assert_int_equal(a.listens, 0x123);
	mad_unlisten(agent, 0x123, UINT64_MAX, NULL);
	assert_int_equal(a.listens, 0);
	ib_unregister_mad_agent(agent);
}

/* ---- unsolicited ----------------------------------------------------------------------------- */

static void post_send_mad__reaches_the_agent_of_its_method(void **state)
{
	struct seen from = { .received = 0 }, to = from, other = from;
	struct ib_mad_agent *sender = agent_on(&a, 0, &from), *first = agent_on(&b, 1, &to),
			    *second = agent_on(&b, 2, &other);
	struct ib_mad_send_buf *buf = mad_to_send(sender, &a, 1, 7);

	buf->next = mad_to_send(sender, &a, 1, 8);
	assert_int_equal(ib_post_send_mad(buf, NULL), 0);
	assert_int_equal(from.ended, 0); /* not from inside the call */
	run_to(1001);
	assert_int_equal(from.ended, 2);
	assert_int_equal(from.status, IB_WC_SUCCESS);
	assert_int_equal(to.received, 2);
	assert_int_equal(other.received, 0);
	assert_int_equal(be64toh(to.mad.mad_hdr.tid), 8);
	assert_int_equal(to.wc.wr_id, 0);
	assert_int_equal(to.wc.src_qp, 1);
	assert_int_equal(to.wc.pkey_index, 1);
	ib_unregister_mad_agent(sender);
	ib_unregister_mad_agent(first);
	ib_unregister_mad_agent(second);
}

/* Each byte of an OUI counts. */
static void port_receive__reaches_the_agent_of_its_vendor(void **state)
{
	static const u8 ouis[][3] = { { 1, 2, 3 }, { 9, 2, 3 }, { 1, 9, 3 }, { 1, 2, 9 } };
	struct ib_mad_reg_req r = request_for(0x30, 1, 1);
	struct seen seen[ARRAY_LEN(ouis)] = { { .received = 0 } };
	struct ib_mad_agent *agents[ARRAY_LEN(ouis)];

	for (u32 i = 0; i < ARRAY_LEN(ouis); i++) {
		memcpy(r.oui, ouis[i], sizeof(r.oui));
		agents[i] = try_agent(&b, &r, &seen[i]);
		assert_false(IS_ERR(agents[i]));
	}
	for (u32 i = 0; i < ARRAY_LEN(ouis); i++) {
		struct ib_vendor_mad mad = { .mad_hdr = { 1, 0x30, 1, .method = 1 } };
		struct mad_arrival arrival = arrive(&b, &mad);

		memcpy(mad.oui, ouis[i], sizeof(mad.oui));
		mad_port_receive(b.port, &arrival);
		run_to(1001 + i);
		for (u32 k = 0; k < ARRAY_LEN(ouis); k++)
			assert_int_equal(seen[k].received, k <= i);
	}
	for (u32 i = 0; i < ARRAY_LEN(ouis); i++)
		ib_unregister_mad_agent(agents[i]);
}

static void port_receive__drops_what_breaks_a_rule(void **state)
{
	struct seen seen = { .received = 0 };
	struct ib_mad_agent *agent = agent_on(&b, 1, &seen);
	struct ib_mad mad = { .mad_hdr = { .base_version = 1,
					   .mgmt_class = CLASS,
					   .class_version = VERSION,
					   .method = 1 } };
	struct mad_arrival good = arrive(&b, &mad), bad = good;
	u64 before[MAD_COUNTERS];

	for (int c = 0; c < MAD_COUNTERS; c++)
		before[c] = mad_count(c);
	bad.length = 255;
	mad_port_receive(b.port, &bad);
	bad.length = 0;
	mad_port_receive(b.port, &bad);
	bad = good;
	bad.qkey = 0x11111111;
	mad_port_receive(b.port, &bad);
	bad = good;
	bad.pkey = 0x9999;
	mad_port_receive(b.port, &bad);
	mad.mad_hdr.base_version = 2;
	mad_port_receive(b.port, &good);
	mad.mad_hdr.base_version = 1;
	mad.mad_hdr.mgmt_class = IB_MGMT_CLASS_SUBN_DIRECTED_ROUTE;
	mad_port_receive(b.port, &good);
	mad.mad_hdr.mgmt_class = CLASS;
	mad.mad_hdr.class_version = 3;
	mad_port_receive(b.port, &good);
	run_to(1001);
	assert_int_equal(seen.received, 0);
	assert_int_equal(mad_count(MAD_DROP_LENGTH) - before[MAD_DROP_LENGTH], 2);
	assert_int_equal(mad_count(MAD_DROP_QKEY) - before[MAD_DROP_QKEY], 1);
	assert_int_equal(mad_count(MAD_DROP_PKEY) - before[MAD_DROP_PKEY], 1);
	assert_int_equal(mad_count(MAD_DROP_VERSION) - before[MAD_DROP_VERSION], 2);
	/* the MAD of another version, and the answer that nobody serves it */
	assert_int_equal(mad_count(MAD_DROP_NO_AGENT) - before[MAD_DROP_NO_AGENT], 2);
	/* a limited member of the partition is heard by a full one */
	mad.mad_hdr.class_version = VERSION;
	good.pkey = PARTITION & 0x7fff;
	mad_port_receive(b.port, &good);
	run_to(1002);
	assert_int_equal(seen.received, 1);
	ib_unregister_mad_agent(agent);
}

/* A port that is a limited and a full member answers as the full one, which limited ones hear. */
static void port_receive__prefers_full_membership(void **state)
{
	static const u16 tables[][FAKE_PKEYS] = { { 0x0002, 0x8002, 0xffff },
						  { 0x8002, 0x0002, 0xffff },
						  { 0x0002, 0xffff, 0x0002 } };
	static const u16 expected[] = { 1, 0, 0 };
	struct ib_mad mad = { .mad_hdr = { .base_version = 1,
					   .mgmt_class = CLASS,
					   .class_version = VERSION,
					   .method = 1 } };
	u64 before = mad_count(MAD_DROP_PKEY);

	for (u32 i = 0; i < ARRAY_LEN(tables); i++) {
		struct seen seen = { .received = 0 };
		struct mad_arrival full = arrive(&b, &mad), limited = full;
		struct ib_mad_agent *agent;

		fake_set_pkeys(b.fake, tables[i]);
		agent = agent_on(&b, 1, &seen);
		mad_port_receive(b.port, &full);
		run_to(1001 + i);
		assert_int_equal(seen.received, 1);
		assert_int_equal(seen.wc.pkey_index, expected[i]);
		/* two limited members do not hear each other */
		limited.pkey = 0x0002;
		mad_port_receive(b.port, &limited);
		run_to(1001 + i);
		assert_int_equal(seen.received, i == 2 ? 1 : 2);
		ib_unregister_mad_agent(agent);
	}
	assert_int_equal(mad_count(MAD_DROP_PKEY) - before, 1);
}

/* A flood is bounded, and what was taken is delivered. */
static void port_receive__bounds_what_waits(void **state)
{
	struct seen seen = { .received = 0 };
	struct ib_mad_agent *agent = agent_on(&b, 1, &seen);
	struct ib_mad mad = { .mad_hdr = { .base_version = 1,
					   .mgmt_class = CLASS,
					   .class_version = VERSION,
					   .method = 1 } };
	struct mad_arrival flood = arrive(&b, &mad);

	for (int i = 0; i < MAD_ARRIVALS + 100; i++)
		mad_port_receive(b.port, &flood);
	run_to(1001);
	assert_int_equal(seen.received, MAD_ARRIVALS);
	/* and what waits when the port goes is freed */
	for (int i = 0; i < 10; i++)
		mad_port_receive(b.port, &flood);
	mad_port_remove(b.port);
	b.port = NULL;
	run_to(1002);
	assert_int_equal(seen.received, MAD_ARRIVALS);
	ib_unregister_mad_agent(agent);
}

/* A MAD that finds no room goes later; the next one does not wait for it. */
static void post_send_mad__waits_for_room(void **state)
{
	struct seen from = { .received = 0 }, to = from;
	struct ib_mad_agent *sender = agent_on(&a, 0, &from), *receiver = agent_on(&b, 1, &to);

	a.full = 1;
	assert_int_equal(ib_post_send_mad(mad_to_send(sender, &a, 1, 7), NULL), 0);
	assert_int_equal(ib_post_send_mad(mad_to_send(sender, &a, 1, 8), NULL), 0);
	run_to(1001);
	assert_int_equal(to.received, 1);
	assert_int_equal(be64toh(to.mad.mad_hdr.tid), 8);
	run_to(1000 + MAD_DELAY_MS);
	assert_int_equal(to.received, 2);
	assert_int_equal(from.ended, 2);
	ib_unregister_mad_agent(sender);
	ib_unregister_mad_agent(receiver);
}

/* Where there is none for long the MAD counts as lost on the way. */
static void post_send_mad__does_not_wait_for_ever(void **state)
{
	u64 failed = mad_count(MAD_SEND_FAILED);
	struct seen from = { .received = 0 };
	struct ib_mad_agent *sender = agent_on(&a, 0, &from);

	a.full = MAD_DELAYS + 1;
	assert_int_equal(ib_post_send_mad(mad_to_send(sender, &a, 1, 7), NULL), 0);
	run_to(1000 + MAD_DELAYS * MAD_DELAY_MS - 1);
	assert_int_equal(from.ended, 0);
	run_to(1001 + MAD_DELAYS * MAD_DELAY_MS);
	assert_int_equal(from.ended, 1);
	assert_int_equal(a.full, 0);
	assert_int_equal(a.sent, 0);
	assert_int_equal(mad_count(MAD_SEND_FAILED) - failed, 1);
	ib_unregister_mad_agent(sender);
}

/* What a flood of beginnings leaves is for exchanges that exist. */
static void port_receive__drops_beginnings_first(void **state)
{
	struct seen seen = { .received = 0 };
	struct ib_mad_agent *agent = agent_on(&b, 1, &seen);
	struct ib_mad mad = { .mad_hdr = { .base_version = 1,
					   .mgmt_class = CLASS,
					   .class_version = VERSION,
					   .method = 1 } };
	struct mad_arrival flood = arrive(&b, &mad);

	flood.begins = true;
	for (int i = 0; i < MAD_ARRIVALS; i++)
		mad_port_receive(b.port, &flood);
	flood.begins = false;
	for (int i = 0; i < 100; i++)
		mad_port_receive(b.port, &flood);
	run_to(1001);
	assert_int_equal(seen.received, MAD_BEGINNINGS + 100);
	ib_unregister_mad_agent(agent);
}

/* ---- requests -------------------------------------------------------------------------------- */

static void respond(struct side *s, struct ib_mad_agent *agent, const struct ib_mad *request)
{
	struct ib_mad_send_buf *buf =
		mad_to_send(agent, s, request->mad_hdr.method | IB_MGMT_METHOD_RESP,
			    be64toh(request->mad_hdr.tid));

	assert_int_equal(ib_post_send_mad(buf, NULL), 0);
}

static void request__ends_with_its_response(void **state)
{
	struct seen from = { .received = 0 }, to = from;
	struct ib_mad_agent *sender = agent_on(&a, 0, &from), *server = agent_on(&b, 1, &to);
	struct ib_mad_send_buf *buf = mad_to_send(sender, &a, 1, tid_of(sender, 77));

	buf->timeout_ms = 100;
	buf->retries = 3;
	a.lose = 2;
	assert_int_equal(ib_post_send_mad(buf, NULL), 0);
	run_to(1150);
	assert_int_equal(to.received, 0);
	run_to(1201); /* the second repetition arrives */
	assert_int_equal(to.received, 1);
	assert_int_equal(from.ended, 0);
	/* of another transaction, then the right one, twice */
	to.mad.mad_hdr.tid = htobe64(tid_of(sender, 78));
	respond(&b, server, &to.mad);
	run_to(1202);
	assert_int_equal(from.received, 0);
	to.mad.mad_hdr.tid = htobe64(tid_of(sender, 77));
	respond(&b, server, &to.mad);
	respond(&b, server, &to.mad);
	run_to(2000);
	assert_int_equal(from.received, 1);
	assert_int_equal(from.wc.wr_id, (uintptr_t)buf);
	assert_int_equal(from.ended, 1);
	assert_int_equal(from.status, IB_WC_SUCCESS);
	assert_int_equal(from.order, 12);
	assert_int_equal(a.sent, 3);
	ib_unregister_mad_agent(sender);
	ib_unregister_mad_agent(server);
}

static void request__times_out_after_all_retries(void **state)
{
	struct seen from = { .received = 0 };
	struct ib_mad_agent *sender = agent_on(&a, 0, &from);
	struct ib_mad_send_buf *buf = mad_to_send(sender, &a, 1, tid_of(sender, 1));

	buf->timeout_ms = 100;
	buf->retries = 3;
	from.posts_again = 1;
	assert_int_equal(ib_post_send_mad(buf, NULL), 0);
	run_to(1399);
	assert_int_equal(from.ended, 0);
	assert_int_equal(a.sent, 4);
	run_to(1400);
	assert_int_equal(from.ended, 1);
	assert_int_equal(from.status, IB_WC_RESP_TIMEOUT_ERR);
	assert_int_equal(from.retries, 3);
	run_to(1800); /* posted again, it begins anew */
	assert_int_equal(from.ended, 2);
	assert_int_equal(from.retries, 3);
	assert_int_equal(a.sent, 8);
	ib_unregister_mad_agent(sender);
}

static void modify_mad__moves_the_timeout(void **state)
{
	struct seen from = { .received = 0 };
	struct ib_mad_agent *sender = agent_on(&a, 0, &from);
	struct ib_mad_send_buf *buf = mad_to_send(sender, &a, 1, tid_of(sender, 1));

	assert_int_equal(ib_modify_mad(sender, buf, 5), -EINVAL);
	buf->timeout_ms = 100;
	assert_int_equal(ib_post_send_mad(buf, NULL), 0);
	run_to(1050);
	assert_int_equal(ib_modify_mad(sender, buf, 1000), 0);
	run_to(2049);
	assert_int_equal(from.ended, 0);
	run_to(2050);
	assert_int_equal(from.status, IB_WC_RESP_TIMEOUT_ERR);
	ib_unregister_mad_agent(sender);
}

static void cancel_mad__ends_it_with_flush(void **state)
{
	struct seen from = { .received = 0 };
	struct ib_mad_agent *sender = agent_on(&a, 0, &from);
	struct ib_mad_send_buf *buf = mad_to_send(sender, &a, 1, tid_of(sender, 1));

	buf->timeout_ms = 100;
	assert_int_equal(ib_post_send_mad(buf, NULL), 0);
	run_to(1001);
	ib_cancel_mad(sender, buf);
	ib_cancel_mad(sender, buf);
	assert_int_equal(from.ended, 0); /* not from inside the call */
	run_to(1002);
	assert_int_equal(from.ended, 1);
	assert_int_equal(from.status, IB_WC_WR_FLUSH_ERR);
	/* one that was not yet sent never is */
	buf = mad_to_send(sender, &a, 1, tid_of(sender, 2));
	assert_int_equal(ib_post_send_mad(buf, NULL), 0);
	ib_cancel_mad(sender, buf);
	run_to(2000);
	assert_int_equal(from.ended, 2);
	assert_int_equal(a.sent, 1);
	ib_unregister_mad_agent(sender);
}

static void unregister__flushes_and_leaves_received_mads(void **state)
{
	struct seen from = { .received = 0 }, to = { .keeps = true };
	struct ib_mad_agent *sender = agent_on(&a, 0, &from), *server = agent_on(&b, 1, &to);
	struct ib_mad_send_buf *buf = mad_to_send(sender, &a, 1, tid_of(sender, 1));

	buf->timeout_ms = 100;
	assert_int_equal(ib_post_send_mad(buf, NULL), 0);
	run_to(1001);
	assert_int_equal(ib_unregister_mad_agent(sender), 0);
	assert_int_equal(from.ended, 1);
	assert_int_equal(from.status, IB_WC_WR_FLUSH_ERR);
	assert_int_equal(ib_unregister_mad_agent(server), 0);
	assert_non_null(to.kept);
	assert_int_equal(to.kept->recv_buf.mad->mad_hdr.mgmt_class, CLASS);
	ib_free_recv_mad(to.kept);
}

static void port_remove__flushes_and_refuses(void **state)
{
	struct seen from = { .received = 0 };
	struct ib_mad_agent *sender = agent_on(&a, 0, &from);
	struct ib_mad_send_buf *buf = mad_to_send(sender, &a, 1, tid_of(sender, 1)), *bad = NULL;

	buf->timeout_ms = 100;
	assert_int_equal(ib_post_send_mad(buf, NULL), 0);
	run_to(1001);
	mad_port_remove(a.port);
	a.port = NULL;
	run_to(1002);
	assert_int_equal(from.status, IB_WC_WR_FLUSH_ERR);
	buf = mad_to_send(sender, &a, 1, 1);
	assert_int_equal(ib_post_send_mad(buf, &bad), -ENODEV);
	assert_ptr_equal(bad, buf);
	ib_free_send_mad(buf);
	ib_unregister_mad_agent(sender);
}

/* ---- what the MAD layer answers itself ------------------------------------------------------- */

static struct ib_mad_send_buf *send_get(struct ib_mad_agent *sender, u32 tid)
{
	struct ib_mad_send_buf *buf =
		mad_to_send(sender, &a, IB_MGMT_METHOD_GET, tid_of(sender, tid));

	buf->timeout_ms = 100;
	assert_int_equal(ib_post_send_mad(buf, NULL), 0);
	return buf;
}

static void request__is_refused_where_nobody_serves_it(void **state)
{
	struct seen from = { .received = 0 }, to = from;
	struct ib_mad_agent *sender = agent_on(&a, 0, &from), *server = agent_on(&b, 2, &to);
	struct ib_mad_send_buf *buf = send_get(sender, 4);

	run_to(1001);
	assert_int_equal(from.status, IB_WC_SUCCESS);
	assert_int_equal(from.received, 1);
	assert_int_equal(from.wc.wr_id, (uintptr_t)buf);
	assert_int_equal(from.mad.mad_hdr.method, IB_MGMT_METHOD_GET_RESP);
	assert_int_equal(ntohs(from.mad.mad_hdr.status),
			 IB_MGMT_MAD_STATUS_UNSUPPORTED_METHOD_ATTRIB);
	/* of other methods nobody can tell whether they want an answer */
	buf = mad_to_send(sender, &a, 5, tid_of(sender, 5));
	buf->timeout_ms = 100;
	assert_int_equal(ib_post_send_mad(buf, NULL), 0);
	run_to(1200);
	assert_int_equal(from.status, IB_WC_RESP_TIMEOUT_ERR);
	assert_int_equal(to.received, 0);
	ib_unregister_mad_agent(sender);
	ib_unregister_mad_agent(server);
}

static int process_result;

static int on_process(struct ib_device *device, int flags, u8 port_num, struct ib_wc *in_wc,
		      struct ib_grh *in_grh, struct ib_mad *in, struct ib_mad *out)
{
	assert_ptr_equal(device, &b.fake->ib);
	assert_int_equal(event_driver_depth, 1);
	assert_int_equal(port_num, 1);
	assert_int_equal(in_wc->pkey_index, 1);
	assert_memory_equal(in_grh->sgid.raw, a.fake->gids[0].raw, 16);
	*out = *in;
	out->mad_hdr.method |= IB_MGMT_METHOD_RESP;
	out->data[0] = 0x77;
	return process_result;
}

static void port_receive__asks_the_driver_first(void **state)
{
	static const struct {
		int result;
		u32 agent, answers; /* MADs that the agent and the requester get */
	} cases[] = {
		{ IB_MAD_RESULT_SUCCESS, 1, 0 },
		{ IB_MAD_RESULT_SUCCESS | IB_MAD_RESULT_REPLY, 0, 1 },
		{ IB_MAD_RESULT_SUCCESS | IB_MAD_RESULT_CONSUMED, 0, 0 },
		{ IB_MAD_RESULT_SUCCESS | IB_MAD_RESULT_CONSUMED | IB_MAD_RESULT_REPLY, 0, 0 },
		{ IB_MAD_RESULT_FAILURE, 1, 0 },
		{ IB_MAD_RESULT_FAILURE | IB_MAD_RESULT_REPLY, 1, 0 },
	};

	b.fake->ib.process_mad = on_process;
	for (u32 i = 0; i < ARRAY_LEN(cases); i++) {
		struct seen from = { .received = 0 }, to = from;
		struct ib_mad_agent *sender = agent_on(&a, 0, &from),
				    *server = agent_on(&b, IB_MGMT_METHOD_GET, &to);

		process_result = cases[i].result;
		send_get(sender, i);
		run_to(1200 + 200 * i);
		assert_int_equal(to.received, cases[i].agent);
		assert_int_equal(from.received, cases[i].answers);
		assert_int_equal(from.received == 0 ? 0 : from.mad.data[0],
				 cases[i].answers * 0x77);
		assert_int_equal(from.status, cases[i].answers != 0 ? IB_WC_SUCCESS
								    : IB_WC_RESP_TIMEOUT_ERR);
		ib_unregister_mad_agent(sender);
		ib_unregister_mad_agent(server);
	}
	b.fake->ib.process_mad = NULL;
}

/* ---- buffers --------------------------------------------------------------------------------- */

static void create_send_mad__judges_lengths(void **state)
{
	struct seen seen = { .received = 0 };
	struct ib_mad_agent *agent = agent_on(&a, 0, &seen);
	struct ib_mad_send_buf *buf;
	static const int bad[][2] = { { 23, 10 }, { 24, 233 }, { 256, 0 }, { -1, 4 }, { 24, -1 } };

	for (size_t i = 0; i < ARRAY_LEN(bad); i++)
		assert_int_equal(PTR_ERR(ib_create_send_mad(agent, 1, 0, 0, bad[i][0], bad[i][1],
							    0)),
				 -EINVAL);
	buf = ib_create_send_mad(agent, 1, 0, 0, 24, 0, 0);
	assert_false(IS_ERR(buf));
	assert_int_equal(ib_post_send_mad(buf, NULL), -EINVAL); /* no address */
	buf->ah = &a.ah;
	buf->timeout_ms = -1;
	assert_int_equal(ib_post_send_mad(buf, NULL), -EINVAL);
	ib_free_send_mad(buf);
	ib_unregister_mad_agent(agent);
}

/* ---- QP0 ------------------------------------------------------------------------------------- */

static struct {
	enum mad_hop answer;
	u32 hops, sent;
	bool leaves;
} smi;

static enum mad_hop smi_hop(void *arg, void *smp, bool leaves)
{
	((struct ib_mad *)smp)->data[0]++; /* as a hop pointer */
	smi.hops++;
	smi.leaves = leaves;
	return smi.answer;
}

static int smi_send(void *arg, const struct mad_departure *d)
{
	smi.sent++;
	assert_int_equal(d->qkey, 0);
	assert_int_equal(d->pkey_index, 0);
	return 0;
}

static struct mad_port *smi_port_that(const struct mad_port_ops *ops, bool at_once)
{
	struct mad_port_config config = { .device = &a.fake->ib,
					  .port_num = 1,
					  .qp_type = IB_QPT_SMI,
					  .ops = ops,
					  .queue = &queue,
					  .at_once = at_once };
	struct mad_port *port;
	int err;

	memset(&smi, 0, sizeof(smi));
	port = mad_port_add(&config, &err);
	assert_non_null(port);
	return port;
}

static struct mad_port *smi_port(const struct mad_port_ops *ops)
{
	return smi_port_that(ops, false);
}

static struct ib_mad_agent *smi_agent(u8 class, u8 method, struct seen *seen)
{
	struct ib_mad_reg_req r = request_for(class, 1, method);
	struct ib_mad_agent *agent = ib_register_mad_agent(&a.fake->ib, 1, IB_QPT_SMI, &r, 0,
							   on_sent, on_received, seen);

	assert_false(IS_ERR(agent));
	return agent;
}

static struct ib_mad_send_buf *smp_to_send(struct ib_mad_agent *agent, u8 class)
{
	struct ib_mad_send_buf *buf = mad_to_send(agent, &a, IB_MGMT_METHOD_GET, tid_of(agent, 1));
	struct ib_mad *mad = buf->mad;

	mad->mad_hdr.mgmt_class = class;
	mad->mad_hdr.class_version = 1;
	mad_send_of(buf)->pkey_index = 0;
	buf->timeout_ms = 100;
	return buf;
}

static void qp0__has_neither_keys_nor_other_classes(void **state)
{
	static const struct mad_port_ops ops = { .send = smi_send };
	struct mad_port *port = smi_port(&ops);
	struct seen seen = { .received = 0 };
	struct ib_mad_agent *agent = smi_agent(IB_MGMT_CLASS_SUBN_LID_ROUTED, 3, &seen);
	struct ib_mad mad = { .mad_hdr = { .base_version = 1,
					   .mgmt_class = IB_MGMT_CLASS_SUBN_LID_ROUTED,
					   .class_version = 1,
					   .method = 3 } };
	struct mad_arrival arrival = { .mad = &mad, .length = IB_MGMT_MAD_SIZE, .slid = 7 };

	mad_port_receive(port, &arrival);
	mad.mad_hdr.mgmt_class = IB_MGMT_CLASS_SUBN_ADM;
	mad_port_receive(port, &arrival);
	mad.mad_hdr.mgmt_class = IB_MGMT_CLASS_SUBN_DIRECTED_ROUTE;
	mad_port_receive(port, &arrival); /* this port knows no directed routes */
	run_to(1001);
	assert_int_equal(seen.received, 1);
	assert_int_equal(seen.wc.slid, 7);
	assert_int_equal(ib_post_send_mad(smp_to_send(agent, IB_MGMT_CLASS_SUBN_LID_ROUTED), NULL),
			 0);
	run_to(1002);
	assert_int_equal(smi.sent, 1);
	run_to(2000);
	ib_unregister_mad_agent(agent);
	mad_port_remove(port);
}

/* ---- requests that leave on the thread that posts them --------------------------------------- */

static struct {
	struct mad_port *port;
	struct ib_mad answer;
	struct seen *seen;
	pthread_t queue;
} early;

static void *early_queue(void *arg)
{
	work_queue_run(&queue, now_ns);
	return arg;
}

/* The answer is there, and the queue handles it, before this has returned. */
static int early_send(void *arg, const struct mad_departure *d)
{
	struct mad_arrival arrival = { .mad = &early.answer, .length = IB_MGMT_MAD_SIZE };

	smi.sent++;
	memcpy(&early.answer, d->mad, sizeof(early.answer));
	early.answer.mad_hdr.method |= IB_MGMT_METHOD_RESP;
	mad_port_receive(early.port, &arrival);
	assert_int_equal(pthread_create(&early.queue, NULL, early_queue, NULL), 0);
	usleep(30000);
	assert_int_equal(early.seen->ended, 0); /* its consumer would free what `d` shows */
	return 0;
}

static void post_send_mad__at_once_keeps_the_request_until_it_has_left(void **state)
{
	static const struct mad_port_ops ops = { .send = early_send };
	struct seen seen = { .received = 0 };
	struct ib_mad_agent *agent;

	early.port = smi_port_that(&ops, true);
	early.seen = &seen;
	agent = smi_agent(IB_MGMT_CLASS_SUBN_LID_ROUTED, 3, &seen);
	assert_int_equal(ib_post_send_mad(smp_to_send(agent, IB_MGMT_CLASS_SUBN_LID_ROUTED), NULL),
			 0);
	assert_int_equal(smi.sent, 1);
	pthread_join(early.queue, NULL);
	assert_int_equal(seen.ended, 1);
	assert_int_equal(seen.received, 1);
	assert_int_equal(seen.status, IB_WC_SUCCESS);
	ib_unregister_mad_agent(agent);
	mad_port_remove(early.port);
}

static int full_at_first(void *arg, const struct mad_departure *d)
{
	return smi.sent++ == 0 ? -EAGAIN : 0;
}

/* The queue tries again at once what finds no room; what is not answered ends as ever. */
static void post_send_mad__at_once_finds_no_room(void **state)
{
	static const struct mad_port_ops ops = { .send = full_at_first };
	struct seen seen = { .received = 0 };
	struct ib_mad_agent *agent;
	struct mad_port *port;

	port = smi_port_that(&ops, true);
	agent = smi_agent(IB_MGMT_CLASS_SUBN_LID_ROUTED, 3, &seen);
	assert_int_equal(ib_post_send_mad(smp_to_send(agent, IB_MGMT_CLASS_SUBN_LID_ROUTED), NULL),
			 0);
	assert_int_equal(smi.sent, 1);
	run_to(1001);
	assert_int_equal(smi.sent, 2);
	assert_int_equal(seen.ended, 0);
	run_to(1200);
	assert_int_equal(seen.ended, 1);
	assert_int_equal(seen.status, IB_WC_RESP_TIMEOUT_ERR);
	ib_unregister_mad_agent(agent);
	mad_port_remove(port);
}

static int smi_process(struct ib_device *device, int flags, u8 port_num, struct ib_wc *in_wc,
		       struct ib_grh *in_grh, struct ib_mad *in, struct ib_mad *out)
{
	if ((in->mad_hdr.method & IB_MGMT_METHOD_RESP) != 0)
		return IB_MAD_RESULT_SUCCESS;
	assert_int_equal(in_wc->slid, 0xffff);
	*out = *in;
	out->mad_hdr.method |= IB_MGMT_METHOD_RESP;
	return IB_MAD_RESULT_SUCCESS | IB_MAD_RESULT_REPLY;
}

/* The hops are the port's: here each is answered by `smi.answer`. */
static void qp0__takes_directed_routes_hop_by_hop(void **state)
{
	static const struct mad_port_ops ops = { .send = smi_send, .hop = smi_hop };
	static const struct mad_port_ops none = { .send = smi_send };
	struct mad_port *port = smi_port(&none);
	struct seen seen = { .received = 0 };
	struct ib_mad_agent *agent = smi_agent(IB_MGMT_CLASS_SUBN_DIRECTED_ROUTE, 3, &seen);
	struct ib_mad_send_buf *buf = smp_to_send(agent, IB_MGMT_CLASS_SUBN_DIRECTED_ROUTE);

	assert_int_equal(ib_post_send_mad(buf, NULL), -EINVAL);
	ib_free_send_mad(buf);
	ib_unregister_mad_agent(agent);
	mad_port_remove(port);
	port = smi_port(&ops);
	agent = smi_agent(IB_MGMT_CLASS_SUBN_DIRECTED_ROUTE, 3, &seen);
	a.fake->ib.process_mad = smi_process;
	smi.answer = MAD_HOP_DROP;
	buf = smp_to_send(agent, IB_MGMT_CLASS_SUBN_DIRECTED_ROUTE);
	assert_int_equal(ib_post_send_mad(buf, NULL), -EINVAL);
	/* to this node: four hops, out and in, there and back */
	smi.answer = MAD_HOP_HERE;
	((struct ib_mad *)buf->mad)->data[0] = 0;
	smi.hops = 0;
	assert_int_equal(ib_post_send_mad(buf, NULL), 0);
	run_to(1001);
	assert_int_equal(smi.sent, 0);
	assert_int_equal(smi.hops, 4);
	assert_false(smi.leaves);
	assert_int_equal(seen.status, IB_WC_SUCCESS);
	assert_int_equal(seen.mad.data[0], 4);
	assert_int_equal(seen.mad.mad_hdr.method, IB_MGMT_METHOD_GET_RESP);
	/* over the wire: one hop, however often it is repeated */
	smi.answer = MAD_HOP_ON;
	smi.hops = 0;
	buf = smp_to_send(agent, IB_MGMT_CLASS_SUBN_DIRECTED_ROUTE);
	buf->retries = 2;
	assert_int_equal(ib_post_send_mad(buf, NULL), 0);
	run_to(2000);
	assert_int_equal(smi.sent, 3);
	assert_int_equal(smi.hops, 1);
	assert_int_equal(seen.status, IB_WC_RESP_TIMEOUT_ERR);
	a.fake->ib.process_mad = NULL;
	ib_unregister_mad_agent(agent);
	mad_port_remove(port);
}

static void calls__without_a_way_say_so(void **state)
{
	struct ib_wc wc = { .status = IB_WC_SUCCESS };

	assert_int_equal(PTR_ERR(ib_redirect_mad_qp(NULL, 0, on_sent, on_received, NULL)),
			 -ENOSYS);
	assert_int_equal(ib_process_mad_wc(NULL, &wc), -ENOSYS);
	assert_int_equal(sizeof(struct ib_mad_notice_attr), 64);
	assert_int_equal(sizeof(struct ib_class_port_info), 72);
	assert_int_equal(sizeof(struct ib_sa_mad), 256);
	assert_int_equal(sizeof(struct ib_vendor_mad), 256);
}

/* ---- snooping -------------------------------------------------------------------------------- */

static void on_snooped_send(struct ib_mad_agent *agent, struct ib_mad_send_buf *buf,
			    struct ib_mad_send_wc *wc)
{
	struct seen *seen = agent->context;

	assert_ptr_equal(wc->send_buf, buf);
	seen->ended++;
}

static void on_snooped_receive(struct ib_mad_agent *agent, struct ib_mad_recv_wc *recv)
{
	struct seen *seen = agent->context;

	seen->received++;
	seen->mad = *recv->recv_buf.mad;
}

static void register_mad_snoop__sees_both_ways_and_takes_nothing(void **state)
{
	struct seen from = { .received = 0 }, to = from, snooped = from, too = from;
	struct ib_mad_agent *sender = agent_on(&a, 0, &from), *server = agent_on(&b, 1, &to);
	struct ib_mad_agent *snoop, *second, *other;

	assert_int_equal(PTR_ERR(ib_register_mad_snoop(&b.fake->ib, 1, IB_QPT_GSI, 0, NULL, NULL,
						       NULL)),
			 -EINVAL);
	assert_int_equal(PTR_ERR(ib_register_mad_snoop(&b.fake->ib, 1, IB_QPT_GSI,
						       IB_MAD_SNOOP_RECVS, on_snooped_send, NULL,
						       NULL)),
			 -EINVAL);
	snoop = ib_register_mad_snoop(&b.fake->ib, 1, IB_QPT_GSI, IB_MAD_SNOOP_RECVS, NULL,
				      on_snooped_receive, &snooped);
	second = ib_register_mad_snoop(&b.fake->ib, 1, IB_QPT_GSI, IB_MAD_SNOOP_RECVS, NULL,
				       on_snooped_receive, &too);
	other = ib_register_mad_snoop(&a.fake->ib, 1, IB_QPT_GSI, IB_MAD_SNOOP_SEND_COMPLETIONS,
				      on_snooped_send, NULL, &snooped);
	assert_int_equal(ib_post_send_mad(mad_to_send(sender, &a, 1, 3), NULL), 0);
	run_to(1001);
	assert_int_equal(to.received, 1);
	assert_int_equal(snooped.received, 1);
	assert_int_equal(too.received, 1);
	assert_int_equal(snooped.ended, 1);
	assert_int_equal(from.ended, 1);
	ib_unregister_mad_agent(snoop);
	ib_unregister_mad_agent(second);
	ib_unregister_mad_agent(other);
	ib_unregister_mad_agent(sender);
	ib_unregister_mad_agent(server);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, sides_setup, sides_teardown)
	static const struct CMUnitTest tests[] = {
		TEST(register_mad_agent__judges_its_arguments),
		TEST(register_mad_agent__asks_the_port),
		TEST(listen__reaches_the_port),
		TEST(post_send_mad__reaches_the_agent_of_its_method),
		TEST(port_receive__reaches_the_agent_of_its_vendor),
		TEST(port_receive__drops_what_breaks_a_rule),
		TEST(port_receive__prefers_full_membership),
		TEST(port_receive__bounds_what_waits),
		TEST(port_receive__drops_beginnings_first),
		TEST(post_send_mad__waits_for_room),
		TEST(post_send_mad__does_not_wait_for_ever),
		TEST(request__ends_with_its_response),
		TEST(request__times_out_after_all_retries),
		TEST(modify_mad__moves_the_timeout),
		TEST(cancel_mad__ends_it_with_flush),
		TEST(unregister__flushes_and_leaves_received_mads),
		TEST(port_remove__flushes_and_refuses),
		TEST(request__is_refused_where_nobody_serves_it),
		TEST(port_receive__asks_the_driver_first),
		TEST(create_send_mad__judges_lengths),
		TEST(qp0__has_neither_keys_nor_other_classes),
		TEST(post_send_mad__at_once_keeps_the_request_until_it_has_left),
		TEST(post_send_mad__at_once_finds_no_room),
		TEST(qp0__takes_directed_routes_hop_by_hop),
		TEST(calls__without_a_way_say_so),
		TEST(register_mad_snoop__sees_both_ways_and_takes_nothing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
