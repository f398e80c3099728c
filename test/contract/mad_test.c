/* mad_test.c: MADs between agents: of one process, and of two by the identity in their MADs.
 * In:    a socket pair for what the two processes must tell each other    Out: -
 * Runs:  the test's thread, the child's main thread, the MAD layer's queue of both
 */
#include "rig.h"

#include <arpa/inet.h>
#include <endian.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include <rdma/ib_mad.h>

enum {
	SLOT_SHIFT = 22,
	CM_RTU = 0x14, /* names its receiver by the remote communication ID */
	OWN_CLASS = 0x35, /* of vendors, with an OUI */
	OWN_METHOD = 0x10, /* nobody answers for an agent that does not serve it, as for a Get */
	ATTRIBUTE = 0x1234,
};

static int channel; /* to the other process */

static void tell_number(u64 number)
{
	assert_int_equal(write(channel, &number, sizeof(number)), sizeof(number));
}

static u64 hear_number(void)
{
	u64 number = 0;

	assert_int_equal(recv(channel, &number, sizeof(number), MSG_WAITALL), sizeof(number));
	return number;
}

/* ---- an agent that keeps what it gets -------------------------------------------------------- */

static struct {
	struct ib_mad mad;
	struct ib_wc wc;
	struct ib_grh grh;
	int received, sent; /* atomic */
	enum ib_wc_status status;
	bool answers;
} got;

static void on_sent(struct ib_mad_agent *agent, struct ib_mad_send_wc *wc)
{
	struct ib_ah *ah = wc->send_buf->ah;

	got.status = wc->status;
	ib_free_send_mad(wc->send_buf);
	ib_destroy_ah(ah);
	count_add(&got.sent);
}

static struct ib_mad_send_buf *prepare(struct ib_mad_agent *agent, struct ib_ah *ah, u8 class,
				       u8 version, u8 method, u16 attribute)
{
	struct ib_mad_send_buf *buf = rig_ok(ib_create_send_mad(agent, 1, 0, 0, IB_MGMT_MAD_HDR,
								IB_MGMT_MAD_DATA, 0));
	struct ib_mad *mad = buf->mad;

	mad->mad_hdr = (struct ib_mad_hdr){ .base_version = IB_MGMT_BASE_VERSION,
					    .mgmt_class = class,
					    .class_version = version,
					    .method = method,
					    .attr_id = htons(attribute) };
	buf->ah = ah;
	return buf;
}

/* The other end's reply to a request, or to a message of the CM. */
static void answer(struct ib_mad_agent *agent, struct ib_mad_recv_wc *recv)
{
	const struct ib_mad *in = recv->recv_buf.mad;
	struct ib_mad_send_buf *buf;
	struct ib_mad *out;

	buf = prepare(agent,
		      rig_ok(ib_create_ah_from_wc(rig.pd, recv->wc, recv->recv_buf.grh, 1)),
		      in->mad_hdr.mgmt_class, in->mad_hdr.class_version,
		      in->mad_hdr.mgmt_class == IB_MGMT_CLASS_CM
			      ? IB_MGMT_METHOD_SEND
			      : in->mad_hdr.method | IB_MGMT_METHOD_RESP,
		      ntohs(in->mad_hdr.attr_id));
	out = buf->mad;
	out->mad_hdr.tid = in->mad_hdr.tid;
	memcpy(out->data, in->data, sizeof(out->data));
	/* local and remote communication ID change places */
	memcpy(out->data, in->data + 4, 4);
	memcpy(out->data + 4, in->data, 4);
	assert_int_equal(ib_post_send_mad(buf, NULL), 0);
}

static void on_received(struct ib_mad_agent *agent, struct ib_mad_recv_wc *recv)
{
	got.mad = *recv->recv_buf.mad;
	got.wc = *recv->wc;
	got.grh = *recv->recv_buf.grh;
	/* pairs with answer_requests */
	if (__atomic_load_n(&got.answers, __ATOMIC_ACQUIRE) &&
	    (recv->recv_buf.mad->mad_hdr.method & IB_MGMT_METHOD_RESP) == 0)
		answer(agent, recv);
	ib_free_recv_mad(recv);
	count_add(&got.received);
}

static struct ib_mad_agent *open_agent(u8 class, u8 version, u8 method)
{
	struct ib_mad_reg_req request = { .mgmt_class = class,
					  .mgmt_class_version = version,
					  .oui = { 0, 0x14, 5 } };

	memset(&got, 0, sizeof(got));
	request.method_mask[0] = 1ul << method;
	return rig_ok(ib_register_mad_agent(rig.dev, 1, IB_QPT_GSI, &request, 0, on_sent,
					    on_received, NULL));
}

/* The agent is registered already: its handler may run. */
static void answer_requests(void)
{
	__atomic_store_n(&got.answers, true, __ATOMIC_RELEASE);
}

static void close_agent(struct ib_mad_agent *agent)
{
	assert_int_equal(ib_unregister_mad_agent(agent), 0);
}

static struct ib_ah *way_here(void)
{
	struct ib_ah_attr attr = rig_way(&rig.gid);

	return rig_ok(ib_create_ah(rig.pd, &attr));
}

static u32 slot_bits(const struct ib_mad_agent *agent)
{
	return agent->hi_tid >> SLOT_SHIFT << SLOT_SHIFT;
}

/* A message of the CM to whoever has this communication ID. */
static void send_rtu(struct ib_mad_agent *agent, u32 local_id, u32 remote_id)
{
	struct ib_mad_send_buf *buf = prepare(agent, way_here(), IB_MGMT_CLASS_CM, 2,
					      IB_MGMT_METHOD_SEND, CM_RTU);
	struct ib_mad *mad = buf->mad;
	__be32 id = htonl(local_id);

	memcpy(mad->data, &id, sizeof(id));
	id = htonl(remote_id);
	memcpy(mad->data + 4, &id, sizeof(id));
	for (u32 i = 8; i < sizeof(mad->data); i++)
		mad->data[i] = (u8)(i * 7);
	assert_int_equal(ib_post_send_mad(buf, NULL), 0);
}

static void check_rtu(u32 local_id, u32 remote_id)
{
	__be32 local = htonl(local_id), remote = htonl(remote_id);

	assert_memory_equal(got.mad.data, &local, 4);
	assert_memory_equal(got.mad.data + 4, &remote, 4);
	for (u32 i = 8; i < sizeof(got.mad.data); i++)
		assert_int_equal(got.mad.data[i], (u8)(i * 7));
	assert_int_equal(got.mad.mad_hdr.attr_id, htons(CM_RTU));
}

/* ---- messages of many MADs ------------------------------------------------------------------- */

enum {
	LONG_CLASS = 0x36, /* of vendors, with an OUI */
	LONG_BYTES = 200001,
	LONG_METHOD = 0x12,
};

static struct {
	int received, sent; /* atomic */
	u32 bytes, wrong;
	enum ib_wc_status status;
} whole;

static u8 long_byte(u32 at)
{
	return (u8)(at * 11 + at / 199);
}

static void on_long_sent(struct ib_mad_agent *agent, struct ib_mad_send_wc *wc)
{
	struct ib_ah *ah = wc->send_buf->ah;

	if (wc->status != IB_WC_SUCCESS || count_get(&whole.sent) == 0)
		whole.status = wc->status;
	ib_free_send_mad(wc->send_buf);
	ib_destroy_ah(ah);
	count_add(&whole.sent);
}

static void post_long(struct ib_mad_agent *agent, struct ib_ah *ah, u8 method, __be64 tid,
		      int timeout_ms)
{
	struct ib_mad_send_buf *buf = rig_ok(
		ib_create_send_mad(agent, 1, 0, 1, IB_MGMT_VENDOR_HDR, LONG_BYTES, 0));
	struct ib_vendor_mad *mad = buf->mad;

	mad->mad_hdr = (struct ib_mad_hdr){ .base_version = IB_MGMT_BASE_VERSION,
					    .mgmt_class = LONG_CLASS,
					    .class_version = 1,
					    .method = method,
					    .tid = tid };
	mad->rmpp_hdr.rmpp_type = IB_MGMT_RMPP_TYPE_DATA;
	memcpy(mad->oui, (u8[]){ 0, 0x14, 5 }, 3);
	for (u32 i = 0; i < LONG_BYTES; i++)
		((u8 *)ib_get_rmpp_segment(buf, (int)(i / IB_MGMT_VENDOR_DATA) +
							1))[i % IB_MGMT_VENDOR_DATA] = long_byte(i);
	buf->ah = ah;
	buf->timeout_ms = timeout_ms;
	buf->retries = 5;
	assert_int_equal(ib_post_send_mad(buf, NULL), 0);
}

static void on_long_received(struct ib_mad_agent *agent, struct ib_mad_recv_wc *recv)
{
	const struct ib_mad_hdr *hdr = &recv->recv_buf.mad->mad_hdr;
	u32 at = 0, bytes = (u32)recv->mad_len - IB_MGMT_VENDOR_HDR;

	for (struct list_head *node = recv->rmpp_list.next; node != &recv->rmpp_list;
	     node = node->next) {
		const struct ib_vendor_mad *mad =
			(const void *)((struct ib_mad_recv_buf *)node)->mad;

		for (u32 i = 0; i < IB_MGMT_VENDOR_DATA && at < bytes; i++, at++)
			whole.wrong += mad->data[i] != long_byte(at);
	}
	whole.bytes += at;
	if ((hdr->method & IB_MGMT_METHOD_RESP) == 0)
		post_long(agent,
			  rig_ok(ib_create_ah_from_wc(rig.pd, recv->wc, recv->recv_buf.grh, 1)),
			  hdr->method | IB_MGMT_METHOD_RESP, hdr->tid, 0);
	ib_free_recv_mad(recv);
	count_add(&whole.received);
}

static void rmpp__carries_a_long_request_and_its_response(void **state)
{
	struct ib_mad_reg_req request = { .mgmt_class = LONG_CLASS,
					  .mgmt_class_version = 1,
					  .oui = { 0, 0x14, 5 } };
	struct ib_mad_agent *agent;

	memset(&whole, 0, sizeof(whole));
	request.method_mask[0] = 1ul << LONG_METHOD;
	agent = rig_ok(ib_register_mad_agent(rig.dev, 1, IB_QPT_GSI, &request, 1, on_long_sent,
					     on_long_received, NULL));
	post_long(agent, way_here(), LONG_METHOD, htobe64((u64)agent->hi_tid << 32 | 5),
		  RIG_WAIT_MS);
	assert_true(rig_await(&whole.sent, 2));
	assert_int_equal(count_get(&whole.received), 2);
	assert_int_equal(whole.status, IB_WC_SUCCESS);
	assert_int_equal(whole.bytes, 2 * LONG_BYTES);
	assert_int_equal(whole.wrong, 0);
	close_agent(agent);
}

/* ---- tests ----------------------------------------------------------------------------------- */

static void post_send_mad__reaches_an_agent_of_the_same_process(void **state)
{
	struct ib_mad_agent *agent = open_agent(IB_MGMT_CLASS_CM, 2, IB_MGMT_METHOD_SEND);
	u32 id = slot_bits(agent) | 5;

	assert_int_not_equal(slot_bits(agent), 0);
	send_rtu(agent, 77, id);
	assert_true(rig_await(&got.received, 1));
	assert_true(rig_await(&got.sent, 1));
	assert_int_equal(got.status, IB_WC_SUCCESS);
	check_rtu(77, id);
	assert_int_equal(got.wc.src_qp, 1);
	assert_int_equal(got.wc.pkey_index, 0);
	assert_int_equal(got.wc.wc_flags & IB_WC_GRH, IB_WC_GRH);
	assert_memory_equal(got.grh.sgid.raw, rig.gid.raw, 16);
	assert_memory_equal(got.grh.dgid.raw, rig.gid.raw, 16);
	close_agent(agent);
}

static void child_serve(void)
{
	struct ib_mad_agent *agent = open_agent(IB_MGMT_CLASS_CM, 2, IB_MGMT_METHOD_SEND);

	answer_requests();
	tell_number(slot_bits(agent) | 9);
	assert_int_equal(hear_number(), 1);
	assert_true(rig_await(&got.received, 1));
	close_agent(agent);
}

static void post_send_mad__reaches_the_process_that_its_id_names(void **state)
{
	struct ib_mad_agent *agent;
	u32 theirs, ours;

	tell_number(1);
	agent = open_agent(IB_MGMT_CLASS_CM, 2, IB_MGMT_METHOD_SEND);
	theirs = (u32)hear_number();
	ours = slot_bits(agent) | 3;
	assert_int_not_equal(ours >> SLOT_SHIFT, theirs >> SLOT_SHIFT);
	send_rtu(agent, ours, theirs);
	assert_true(rig_await(&got.received, 1));
	check_rtu(theirs, ours);
	tell_number(1);
	close_agent(agent);
}

static void send_request(struct ib_mad_agent *agent, int timeout_ms, int retries)
{
	struct ib_mad_send_buf *buf =
		prepare(agent, way_here(), OWN_CLASS, 1, OWN_METHOD, ATTRIBUTE);
	struct ib_vendor_mad *mad = buf->mad;

	memcpy(mad->oui, (u8[]){ 0, 0x14, 5 }, 3);
	mad->mad_hdr.tid = htobe64((u64)agent->hi_tid << 32 | 0xabcd);
	buf->timeout_ms = timeout_ms;
	buf->retries = retries;
	assert_int_equal(ib_post_send_mad(buf, NULL), 0);
}

static void request__answered_by_its_transaction_id(void **state)
{
	struct ib_mad_agent *agent = open_agent(OWN_CLASS, 1, OWN_METHOD);

	answer_requests();
	send_request(agent, RIG_WAIT_MS, 0);
	/* the request, answered by the same agent, and the response */
	assert_true(rig_await(&got.sent, 2));
	assert_int_equal(count_get(&got.received), 2);
	assert_int_equal(got.status, IB_WC_SUCCESS);
	assert_int_equal(got.mad.mad_hdr.method, OWN_METHOD | IB_MGMT_METHOD_RESP);
	assert_int_not_equal(got.wc.wr_id, 0);
	close_agent(agent);
}

static void request__ends_with_a_timeout(void **state)
{
	struct ib_mad_agent *agent = open_agent(OWN_CLASS, 1, IB_MGMT_METHOD_SET);
	u64 begin = rig_now_ms();

	send_request(agent, 20, 3);
	assert_true(rig_await(&got.sent, 1));
	assert_int_equal(got.status, IB_WC_RESP_TIMEOUT_ERR);
	assert_true(rig_now_ms() - begin >= 80);
	close_agent(agent);
}

/* A process whose slot is free: nobody is there, and nothing is waited for. */
static void post_send_mad__to_nobody_ends_with_an_error(void **state)
{
	struct ib_mad_agent *agent = open_agent(IB_MGMT_CLASS_CM, 2, IB_MGMT_METHOD_SEND);

	/* what a wire loses, nobody tells of */
	if (!rig_on_wire()) {
		send_rtu(agent, slot_bits(agent) | 1, 1000u << SLOT_SHIFT | 1);
		assert_true(rig_await(&got.sent, 1));
		assert_int_equal(got.status, IB_WC_RETRY_EXC_ERR);
	}
	close_agent(agent);
}

static void unregister__flushes_what_is_outstanding(void **state)
{
	struct ib_mad_agent *agent = open_agent(OWN_CLASS, 1, IB_MGMT_METHOD_SET);

	send_request(agent, RIG_WAIT_MS, 0);
	close_agent(agent);
	assert_int_equal(count_get(&got.sent), 1);
	assert_int_equal(got.status, IB_WC_WR_FLUSH_ERR);
}

/* ---- the other process ----------------------------------------------------------------------- */

static void child_main(void)
{
	u64 number;

	if (rig_group_setup(NULL))
		_exit(3);
	while (recv(channel, &number, sizeof(number), MSG_WAITALL) == sizeof(number))
		child_serve();
	_exit(rig_group_teardown(NULL) ? 4 : 0);
}

static void fork_peer(void)
{
	rig_fork_peer(&channel, child_main);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(post_send_mad__reaches_an_agent_of_the_same_process),
		cmocka_unit_test(post_send_mad__reaches_the_process_that_its_id_names),
		cmocka_unit_test(request__answered_by_its_transaction_id),
		cmocka_unit_test(request__ends_with_a_timeout),
		cmocka_unit_test(rmpp__carries_a_long_request_and_its_response),
		cmocka_unit_test(post_send_mad__to_nobody_ends_with_an_error),
		cmocka_unit_test(unregister__flushes_what_is_outstanding),
	};

	return rig_run(tests, sizeof(tests) / sizeof(tests[0]), fork_peer);
}
