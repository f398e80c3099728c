/* mad_test.c: agents on two ports with a wire between them, in virtual time.
 * In:    MADs of any content    Out: verdicts
 * Runs:  one thread             Locks: none
 */
#include <arpa/inet.h>
#include <endian.h>
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/clock.h"
#include "core/test_support/fake_device.h"
#include "mad/mad_priv.h"

enum { SLOT_A = 5, SLOT_B = 1023, CLASS = 0x0a, VERSION = 2, PARTITION = 0x8002 };

struct side {
	struct fake_device *fake;
	struct mad_port *port;
	struct ib_ah ah;
	u32 sent;
	int lose; /* so many more are lost */
	u64 listens;
	struct side *peer;
};

/* What an agent has seen. */
struct seen {
	u32 received, ended;
	enum ib_wc_status status;
	struct ib_mad mad;
	struct ib_wc wc;
	u32 order; /* of the last receive handler and the last end, as digits 1 and 2 */
	bool keeps; /* what it receives is freed at the end of the test */
	struct ib_mad_recv_wc *kept;
};

static struct side a, b;
static struct work_queue queue;
static u64 now_ns;

static u64 virtual_time(void)
{
	return now_ns;
}

/* Runs everything up to a time. */
static void run_to(u64 ms)
{
	u64 end = ms * NS_PER_MS;

	for (;;) {
		u64 next;

		work_queue_run(&queue, now_ns);
		next = work_queue_next_ns(&queue);
		if (next > end)
			break;
		now_ns = MAX(now_ns, next);
	}
	now_ns = end;
}

/* ---- two ports and a wire -------------------------------------------------------------------- */

static struct mad_arrival arrive(const struct side *at, const void *mad)
{
	return (struct mad_arrival){ .src_qp = 1,
				     .qkey = IB_QP1_QKEY,
				     .pkey = PARTITION,
				     .has_grh = true,
				     .grh = { .sgid = at->peer->fake->gids[0],
					      .dgid = at->fake->gids[0] },
				     .mad = mad,
				     .length = IB_MGMT_MAD_SIZE };
}

static int wire_send(void *arg, const struct mad_departure *d)
{
	struct side *from = arg;
	struct mad_arrival arrival = arrive(from->peer, d->mad);

	from->sent++;
	assert_int_equal(d->remote_qpn, 1);
	assert_int_equal(d->qkey, IB_QP1_QKEY);
	assert_ptr_equal(d->ah, &from->ah);
	if (from->lose > 0) {
		from->lose--;
		return 0;
	}
	mad_port_receive(from->peer->port, &arrival);
	return 0;
}

static int wire_listen(void *arg, u64 service_id, u64 mask, bool on)
{
	struct side *s = arg;

	s->listens += on ? service_id & mask : -(service_id & mask);
	return 0;
}

static int wire_slot(void *arg)
{
	return arg == &a ? SLOT_A : SLOT_B;
}

static const struct mad_port_ops wire_ops = { .send = wire_send,
					      .listen = wire_listen,
					      .slot = wire_slot };

static void side_begin(struct side *s, struct side *peer, u8 gid)
{
	struct mad_port_config config = { .port_num = 1,
					  .qp_type = IB_QPT_GSI,
					  .ops = &wire_ops,
					  .arg = s,
					  .queue = &queue };
	int err;

	memset(s, 0, sizeof(*s));
	s->peer = peer;
	s->fake = fake_create("fake%d");
	s->fake->gids[0].raw[15] = gid;
	assert_int_equal(ib_register_device(&s->fake->ib), 0);
	s->ah.device = &s->fake->ib;
	config.device = &s->fake->ib;
	s->port = mad_port_add(&config, &err);
	assert_non_null(s->port);
	assert_null(mad_port_add(&config, &err));
	assert_int_equal(err, -EEXIST);
}

static void side_end(struct side *s)
{
	if (s->port != NULL)
		mad_port_remove(s->port);
	ib_unregister_device(&s->fake->ib);
	fake_destroy(s->fake);
}

static int setup(void **state)
{
	now_ns = NS_PER_S;
	clock_set_source(virtual_time);
	work_queue_init(&queue, "test", true);
	side_begin(&a, &b, 0xa);
	side_begin(&b, &a, 0xb);
	return 0;
}

static int teardown(void **state)
{
	side_end(&a);
	side_end(&b);
	assert_int_equal(work_queue_next_ns(&queue), TIMER_NEVER);
	timer_set_destroy(&queue.timers);
	clock_set_source(NULL);
	return 0;
}

/* ---- agents ---------------------------------------------------------------------------------- */

static void on_sent(struct ib_mad_agent *agent, struct ib_mad_send_wc *wc)
{
	struct seen *seen = agent->context;

	seen->ended++;
	seen->status = wc->status;
	seen->order = seen->order * 10 + 2;
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

static struct ib_mad_reg_req request_for(u8 class, u8 version, u8 method)
{
	struct ib_mad_reg_req r = { .mgmt_class = class, .mgmt_class_version = version };

	r.method_mask[method / 64] = 1ul << method % 64;
	return r;
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

static u64 tid_of(const struct ib_mad_agent *agent, u32 low)
{
	return (u64)agent->hi_tid << 32 | low;
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
	assert_int_equal(PTR_ERR(ib_register_mad_agent(&a.fake->ib, 1, IB_QPT_GSI, NULL, 1, on_sent,
						       on_received, &seen)),
			 -EOPNOTSUPP);
	assert_int_equal(ib_unregister_mad_agent(agent), 0);
}

static void listen__reaches_the_port(void **state)
{
	struct seen seen = { .received = 0 };
	struct ib_mad_agent *agent = agent_on(&a, 0, &seen);

	assert_int_equal(mad_listen(agent, 0x123, UINT64_MAX), 0);
	assert_int_equal(a.listens, 0x123);
	mad_unlisten(agent, 0x123, UINT64_MAX);
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
	assert_int_equal(mad_count(MAD_DROP_NO_AGENT) - before[MAD_DROP_NO_AGENT], 1);
	/* a limited member of the partition is heard by a full one */
	mad.mad_hdr.class_version = VERSION;
	good.pkey = PARTITION & 0x7fff;
	mad_port_receive(b.port, &good);
	run_to(1002);
	assert_int_equal(seen.received, 1);
	ib_unregister_mad_agent(agent);
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
	assert_int_equal(ib_post_send_mad(buf, NULL), 0);
	run_to(1399);
	assert_int_equal(from.ended, 0);
	assert_int_equal(a.sent, 4);
	run_to(1400);
	assert_int_equal(from.ended, 1);
	assert_int_equal(from.status, IB_WC_RESP_TIMEOUT_ERR);
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
	struct seen from = { .received = 0 }, to = from, snooped = from;
	struct ib_mad_agent *sender = agent_on(&a, 0, &from), *server = agent_on(&b, 1, &to);
	struct ib_mad_agent *snoop, *other;

	assert_int_equal(PTR_ERR(ib_register_mad_snoop(&b.fake->ib, 1, IB_QPT_GSI, 0, NULL, NULL,
						       NULL)),
			 -EINVAL);
	assert_int_equal(PTR_ERR(ib_register_mad_snoop(&b.fake->ib, 1, IB_QPT_GSI,
						       IB_MAD_SNOOP_RECVS, on_snooped_send, NULL,
						       NULL)),
			 -EINVAL);
	snoop = ib_register_mad_snoop(&b.fake->ib, 1, IB_QPT_GSI, IB_MAD_SNOOP_RECVS, NULL,
				      on_snooped_receive, &snooped);
	other = ib_register_mad_snoop(&a.fake->ib, 1, IB_QPT_GSI, IB_MAD_SNOOP_SEND_COMPLETIONS,
				      on_snooped_send, NULL, &snooped);
	assert_int_equal(ib_post_send_mad(mad_to_send(sender, &a, 1, 3), NULL), 0);
	run_to(1001);
	assert_int_equal(to.received, 1);
	assert_int_equal(snooped.received, 1);
	assert_int_equal(snooped.ended, 1);
	assert_int_equal(from.ended, 1);
	ib_unregister_mad_agent(snoop);
	ib_unregister_mad_agent(other);
	ib_unregister_mad_agent(sender);
	ib_unregister_mad_agent(server);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	static const struct CMUnitTest tests[] = {
		TEST(register_mad_agent__judges_its_arguments),
		TEST(listen__reaches_the_port),
		TEST(post_send_mad__reaches_the_agent_of_its_method),
		TEST(port_receive__drops_what_breaks_a_rule),
		TEST(port_receive__bounds_what_waits),
		TEST(request__ends_with_its_response),
		TEST(request__times_out_after_all_retries),
		TEST(modify_mad__moves_the_timeout),
		TEST(cancel_mad__ends_it_with_flush),
		TEST(unregister__flushes_and_leaves_received_mads),
		TEST(port_remove__flushes_and_refuses),
		TEST(create_send_mad__judges_lengths),
		TEST(register_mad_snoop__sees_both_ways_and_takes_nothing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
