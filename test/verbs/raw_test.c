/* raw_test.c: raw packet queue pairs, their flow rules, work queues and tables, in one process.
 * In: frames of this process and of the wire, mistakes    Out: verdicts    Runs: cmocka
 * Locks: none
 */
#include "raw_bed.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <linux/capability.h>
#include <poll.h>
#include <unistd.h>

static struct raw_end a, b;

#define NULL_WITH(call, error)                                                                     \
	do {                                                                                       \
		errno = 0;                                                                         \
		assert_null(call);                                                                 \
		assert_int_equal(errno, error);                                                    \
	} while (0)

static int setup(void **state)
{
	raw_bed_open();
	raw_open(&a, 4);
	raw_open(&b, 4);
	return 0;
}

static int teardown(void **state)
{
	raw_close(&a);
	raw_close(&b);
	raw_bed_close();
	return 0;
}

static void drop(struct ibv_flow *flow)
{
	assert_int_equal(ibv_destroy_flow(flow), 0);
}

/* ---- creation ---- */

static void create__what_the_device_says(void **state)
{
	struct ibv_device_attr_ex attr;

	assert_int_equal(ibv_query_device_ex(raw_ctx, NULL, &attr), 0);
	assert_true(attr.orig_attr.device_cap_flags & IBV_DEVICE_MANAGED_FLOW_STEERING);
	assert_true(attr.orig_attr.max_raw_ethy_qp > 0);
	assert_int_equal(attr.raw_packet_caps, 0);
	assert_int_equal(attr.rss_caps.supported_qpts, 1 << IBV_QPT_RAW_PACKET);
	assert_int_equal(attr.rss_caps.rx_hash_function, IBV_RX_HASH_FUNC_TOEPLITZ);
	assert_int_equal(attr.rss_caps.rx_hash_fields_mask, 0xff);
	assert_int_equal(attr.rss_caps.max_rwq_indirection_table_size, 512);
	assert_true(attr.max_wq_type_rq > 0);
}

static void create__limits_and_their_neighbours(void **state)
{
	struct ibv_device_attr dev;
	struct {
		uint32_t *field;
		uint32_t most;
	} limit[5];
	struct ibv_qp_init_attr init = raw_init(&a), good = init;
	struct ibv_qp *qp;

	assert_int_equal(ibv_query_device(raw_ctx, &dev), 0);
	limit[0].field = &init.cap.max_send_wr, limit[0].most = (uint32_t)dev.max_qp_wr;
	limit[1].field = &init.cap.max_recv_wr, limit[1].most = (uint32_t)dev.max_qp_wr;
	limit[2].field = &init.cap.max_send_sge, limit[2].most = (uint32_t)dev.max_sge;
	limit[3].field = &init.cap.max_recv_sge, limit[3].most = (uint32_t)dev.max_sge;
	limit[4].field = &init.cap.max_inline_data, limit[4].most = 1024;
	for (uint32_t i = 0; i < 5; i++) {
		init = good;
		*limit[i].field = limit[i].most;
		qp = ibv_create_qp(a.pd, &init);
		assert_non_null(qp);
		assert_true(*limit[i].field >= limit[i].most);
		assert_int_equal(ibv_destroy_qp(qp), 0);
		init = good;
		*limit[i].field = limit[i].most + 1;
		NULL_WITH(ibv_create_qp(a.pd, &init), EINVAL);
	}
}

static void create__other_objects(void **state)
{
	struct ibv_srq_init_attr sattr = { .attr = { .max_wr = 4, .max_sge = 1 } };
	struct ibv_srq *srq = ibv_create_srq(a.pd, &sattr);
	struct ibv_qp_init_attr init = raw_init(&a);
	struct ibv_qp_init_attr_ex ex = { .qp_type = IBV_QPT_RAW_PACKET, .send_cq = a.scq,
					  .recv_cq = a.cq, .pd = a.pd,
					  .comp_mask = IBV_QP_INIT_ATTR_PD |
						       IBV_QP_INIT_ATTR_CREATE_FLAGS,
					  .create_flags = IBV_QP_CREATE_SCATTER_FCS };

	init.srq = srq;
	NULL_WITH(ibv_create_qp(a.pd, &init), EOPNOTSUPP);
	assert_int_equal(ibv_destroy_srq(srq), 0);
	init = raw_init(&a);
	init.send_cq = NULL;
	NULL_WITH(ibv_create_qp(a.pd, &init), EINVAL);
	NULL_WITH(ibv_create_qp_ex(raw_ctx, &ex), EOPNOTSUPP);
	ex.create_flags = 0;
	ex.comp_mask |= IBV_QP_INIT_ATTR_MAX_TSO_HEADER;
	ex.max_tso_header = 64;
	NULL_WITH(ibv_create_qp_ex(raw_ctx, &ex), EOPNOTSUPP);
}

/* In a child that has given the capability away. */
static int create_without_capability(void)
{
	struct __user_cap_header_struct head = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct data[2];
	struct raw_end e = { .pd = NULL };
	struct ibv_qp_init_attr init;
	struct ibv_device_attr dev;

	if (syscall(SYS_capget, &head, data) != 0)
		return 2;
	data[0].effective &= ~(1u << CAP_NET_RAW);
	if (syscall(SYS_capset, &head, data) != 0)
		return 3;
	raw_bed_open();
	if (ibv_query_device(raw_ctx, &dev) != 0)
		return 6;
	e.pd = ibv_alloc_pd(raw_ctx);
	e.scq = e.cq = ibv_create_cq(raw_ctx, 4, NULL, NULL, 0);
	init = raw_init(&e);
	errno = EPERM;
	for (int i = 0; i <= dev.max_qp && errno == EPERM; i++)
		if (ibv_create_qp(e.pd, &init) != NULL)
			return 4;
	init.qp_type = IBV_QPT_RC; /* none of those that were refused counts */
	return errno != EPERM || ibv_create_qp(e.pd, &init) == NULL ? 5 : 0;
}

static void create__needs_cap_net_raw(void **state)
{
	int status, pid = fork();

	if (pid == 0)
		_exit(create_without_capability());
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

/* ---- states ---- */

static void states__of_the_queue_pair(void **state)
{
	struct ibv_qp_init_attr init = raw_init(&a);
	struct ibv_qp *qp = ibv_create_qp(a.pd, &init);
	struct ibv_recv_wr rwr = { .num_sge = 0 }, *rbad;
	struct ibv_send_wr swr = { .opcode = IBV_WR_SEND }, *sbad;
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 2 };

	assert_non_null(qp);
	assert_int_equal(ibv_post_recv(qp, &rwr, &rbad), EINVAL);
	assert_ptr_equal(rbad, &rwr);
	assert_int_equal(ibv_post_send(qp, &swr, &sbad), EINVAL);
	assert_int_equal(ibv_modify_qp(qp, &attr, IBV_QP_STATE), EINVAL); /* a port is needed */
	assert_int_equal(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PORT), EINVAL);
	assert_int_equal(raw_modify(qp, IBV_QPS_RTR), EINVAL);
	assert_int_equal(raw_modify(qp, IBV_QPS_INIT), 0);
	assert_int_equal(ibv_post_recv(qp, &rwr, &rbad), 0);
	assert_int_equal(ibv_post_send(qp, &swr, &sbad), EINVAL);
	assert_int_equal(raw_modify(qp, IBV_QPS_RTR), 0);
	attr.qp_state = IBV_QPS_RTS;
	attr.rate_limit = 1000;
	attr.rate_limit = UINT32_MAX;
	assert_int_equal(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_RATE_LIMIT), EINVAL);
	attr.rate_limit = 1000;
	assert_int_equal(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_RATE_LIMIT), 0);
	assert_int_equal(ibv_query_qp(qp, &attr, IBV_QP_STATE, &init), 0);
	assert_int_equal(attr.rate_limit, 1000);
	assert_int_equal(raw_modify(qp, IBV_QPS_ERR), 0);
	assert_int_equal(ibv_query_qp(qp, &attr, IBV_QP_STATE, &init), 0);
	assert_int_equal(attr.qp_state, IBV_QPS_ERR);
	assert_int_equal(raw_modify(qp, IBV_QPS_RTS), EINVAL);
	assert_int_equal(raw_modify(qp, IBV_QPS_RESET), 0);
	assert_int_equal(ibv_destroy_qp(qp), 0);
}

static void states__receives_from_rtr_on(void **state)
{
	struct ibv_flow *flow = raw_flow(&b, 1, 0);

	assert_int_equal(raw_modify(b.qp, IBV_QPS_RESET), 0);
	assert_int_equal(raw_modify(b.qp, IBV_QPS_INIT), 0);
	raw_post_recv(&b, 0, RAW_ROOM);
	raw_send(&a, 1, 1);
	raw_expect_none(&b);
	assert_int_equal(raw_modify(b.qp, IBV_QPS_RTR), 0);
	raw_send(&a, 1, 2);
	raw_expect_to(&b, 1, 2);
	drop(flow);
}

static void states__an_error_flushes_both_queues(void **state)
{
	struct ibv_wc wc;
	uint8_t frame[RAW_FRAME];

	assert_int_equal(raw_modify(b.qp, IBV_QPS_ERR), 0);
	for (uint64_t i = 0; i < 4; i++) {
		assert_true(raw_poll(b.cq, &wc));
		assert_int_equal(wc.status, IBV_WC_WR_FLUSH_ERR);
		assert_int_equal(wc.wr_id, i);
	}
	raw_frame(frame, 1, 1);
	raw_send_bytes(&b, frame, sizeof(frame));
	assert_int_equal(raw_sent(&b), IBV_WC_WR_FLUSH_ERR);
	raw_post_recv(&b, 5, RAW_ROOM);
	assert_true(raw_poll(b.cq, &wc));
	assert_int_equal(wc.status, IBV_WC_WR_FLUSH_ERR);
	assert_int_equal(wc.wr_id, 5);
}

/* ---- frames ---- */

static void frames__to_the_rule_that_names_them(void **state)
{
	struct ibv_flow *flow = raw_flow(&b, 1, 0);

	raw_send(&a, 1, 1);
	raw_expect_to(&b, 1, 1);
	raw_send(&a, 2, 2);
	raw_send(&b, 1, 3); /* its own */
	raw_expect_to(&b, 1, 3);
	raw_expect_none(&a);
	drop(flow);
	raw_send(&a, 1, 4);
	raw_expect_none(&b);
}

static void frames__of_the_wire(void **state)
{
	struct ibv_flow *flow = raw_flow(&b, 1, 0);
	uint8_t frame[RAW_FRAME + 4], tagged[RAW_FRAME + 4], got[RAW_ROOM];
	int wire = raw_wire();

	raw_frame(frame, 1, 9);
	raw_wire_send(wire, frame, RAW_FRAME);
	raw_expect(&b, frame, RAW_FRAME);
	/* a VLAN tag, which the kernel takes out */
	memcpy(tagged, frame, 12);
	memcpy(tagged + 12, (uint8_t[]){ 0x81, 0x00, 0xac, 0x0c }, 4);
	memcpy(tagged + 16, frame + 12, RAW_FRAME - 12);
	raw_wire_send(wire, tagged, sizeof(tagged));
	raw_expect(&b, tagged, sizeof(tagged));
	/* and to it */
	raw_frame(frame, 5, 10);
	raw_send_bytes(&a, frame, RAW_FRAME);
	assert_int_equal(raw_wire_receive(wire, 5, got), RAW_FRAME);
	assert_memory_equal(got, frame, RAW_FRAME);
	close(wire);
	drop(flow);
}

static void frames__what_the_host_sends_is_not_received(void **state)
{
	struct raw_rule all = raw_rule(IBV_FLOW_ATTR_ALL_DEFAULT, 0);
	struct ibv_flow *flow = ibv_create_flow(b.qp, &all.attr);

	assert_non_null(flow);
	assert_int_not_equal(system("ping -c 1 -W 1 10.99.0.7 > /dev/null 2>&1"), -1);
	raw_expect_none(&b);
	drop(flow);
}

static void frames__inline_gathered_and_scattered(void **state)
{
	struct ibv_flow *flow = raw_flow(&b, 1, 0);
	uint8_t frame[RAW_FRAME];
	struct ibv_sge to[2] = { { (uintptr_t)b.memory, 20, b.mr->lkey },
				 { (uintptr_t)b.memory + 4096, 2000, b.mr->lkey } };
	struct ibv_recv_wr rwr = { .wr_id = 9, .sg_list = to, .num_sge = 2 }, *rbad;
	struct ibv_sge from[3] = { { (uintptr_t)frame, 1, 0 }, { (uintptr_t)frame + 1, 60, 0 },
				   { (uintptr_t)frame + 61, RAW_FRAME - 61, 0 } };
	struct ibv_send_wr wr = { .wr_id = 7, .sg_list = from, .num_sge = 3,
				  .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_INLINE }, *bad;
	struct ibv_wc wc;

	for (uint32_t i = 0; i < 4; i++) { /* the simple ones first */
		raw_send(&a, 1, (uint16_t)i);
		raw_expect_to(&b, 1, (uint16_t)i);
	}
	assert_int_equal(ibv_post_recv(b.qp, &rwr, &rbad), 0);
	raw_frame(frame, 1, 77);
	assert_int_equal(ibv_post_send(a.qp, &wr, &bad), 0); /* not signalled */
	assert_true(raw_poll(b.cq, &wc));
	assert_int_equal(wc.wr_id, 9);
	assert_int_equal(wc.byte_len, RAW_FRAME);
	assert_memory_equal(b.memory, frame, 20);
	assert_memory_equal(b.memory + 4096, frame + 20, RAW_FRAME - 20);
	assert_int_equal(ibv_poll_cq(a.scq, 1, &wc), 0);
	drop(flow);
}

static void frames__without_a_request_are_lost(void **state)
{
	struct ibv_flow *flow = raw_flow(&b, 1, 0);

	for (uint16_t i = 0; i < 6; i++)
		raw_send(&a, 1, i);
	for (uint16_t i = 0; i < 4; i++)
		raw_expect_to(&b, 1, i);
	raw_expect_none(&b);
	raw_post_recv(&b, 0, RAW_ROOM);
	raw_send(&a, 1, 8);
	raw_expect_to(&b, 1, 8);
	drop(flow);
}

static void frames__too_long_for_the_request(void **state)
{
	struct ibv_flow *flow = raw_flow(&b, 1, 0);
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;
	struct ibv_wc wc;

	assert_int_equal(raw_modify(b.qp, IBV_QPS_RESET), 0);
	assert_int_equal(raw_modify(b.qp, IBV_QPS_INIT), 0);
	raw_post_recv(&b, 0, RAW_FRAME);
	raw_post_recv(&b, 1, RAW_FRAME - 1);
	raw_post_recv(&b, 2, RAW_FRAME);
	assert_int_equal(raw_modify(b.qp, IBV_QPS_RTR), 0);
	raw_send(&a, 1, 1);
	raw_expect_to(&b, 1, 1);
	raw_send(&a, 1, 1);
	assert_true(raw_poll(b.cq, &wc));
	assert_int_equal(wc.status, IBV_WC_LOC_LEN_ERR);
	assert_int_equal(wc.wr_id, 1);
	assert_true(raw_poll(b.cq, &wc));
	assert_int_equal(wc.status, IBV_WC_WR_FLUSH_ERR);
	assert_int_equal(wc.wr_id, 2);
	assert_int_equal(ibv_query_qp(b.qp, &attr, IBV_QP_STATE, &init), 0);
	assert_int_equal(attr.qp_state, IBV_QPS_ERR);
	drop(flow);
}

static void send_expect(uint32_t length, uint32_t lkey, enum ibv_wc_status status)
{
	struct ibv_sge sge = { .addr = (uintptr_t)a.memory, .length = length, .lkey = lkey };
	struct ibv_send_wr wr = { .wr_id = 7, .sg_list = &sge, .num_sge = 1,
				  .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED }, *bad;
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;

	assert_int_equal(ibv_post_send(a.qp, &wr, &bad), 0);
	assert_int_equal(raw_sent(&a), status);
	assert_int_equal(ibv_query_qp(a.qp, &attr, IBV_QP_STATE, &init), 0);
	assert_int_equal(attr.qp_state, status == IBV_WC_SUCCESS ? IBV_QPS_RTS : IBV_QPS_SQE);
	if (status == IBV_WC_SUCCESS)
		return;
	assert_int_equal(ibv_post_send(a.qp, &wr, &bad), 0);
	assert_int_equal(raw_sent(&a), IBV_WC_WR_FLUSH_ERR);
	assert_int_equal(raw_modify(a.qp, IBV_QPS_RTS), 0);
}

static void frames__that_cannot_be_sent(void **state)
{
	send_expect(13, a.mr->lkey, IBV_WC_LOC_LEN_ERR);
	send_expect(14, a.mr->lkey, IBV_WC_SUCCESS);
	send_expect(1514, a.mr->lkey, IBV_WC_SUCCESS);
	send_expect(1600, a.mr->lkey, IBV_WC_LOC_LEN_ERR);
	send_expect(64, a.mr->lkey + 1, IBV_WC_LOC_PROT_ERR);
	send_expect(64, b.mr->lkey, IBV_WC_LOC_PROT_ERR); /* of another domain */
	send_expect(64, a.mr->lkey, IBV_WC_SUCCESS);
}

static void frames__requests_that_are_refused(void **state)
{
	struct ibv_sge sge[4] = { { (uintptr_t)a.memory, 64, a.mr->lkey } };
	struct ibv_send_wr wr = { .sg_list = sge, .num_sge = 1, .opcode = IBV_WR_SEND }, *bad;

	wr.opcode = IBV_WR_SEND_WITH_IMM;
	assert_int_equal(ibv_post_send(a.qp, &wr, &bad), EINVAL);
	assert_ptr_equal(bad, &wr);
	wr.opcode = IBV_WR_TSO;
	assert_int_equal(ibv_post_send(a.qp, &wr, &bad), EINVAL);
	wr.opcode = IBV_WR_SEND;
	wr.send_flags = IBV_SEND_IP_CSUM;
	assert_int_equal(ibv_post_send(a.qp, &wr, &bad), EINVAL);
	wr.send_flags = IBV_SEND_INLINE;
	sge[0].length = 257;
	assert_int_equal(ibv_post_send(a.qp, &wr, &bad), EINVAL);
	sge[0].length = 256;
	assert_int_equal(ibv_post_send(a.qp, &wr, &bad), 0);
	wr.send_flags = 0;
	wr.num_sge = 4;
	assert_int_equal(ibv_post_send(a.qp, &wr, &bad), EINVAL);
}

static void frames__by_ibv_wr(void **state)
{
	struct ibv_qp_init_attr_ex ex = { .qp_type = IBV_QPT_RAW_PACKET, .send_cq = a.scq,
					  .recv_cq = a.cq, .pd = a.pd, .cap = raw_init(&a).cap,
					  .comp_mask = IBV_QP_INIT_ATTR_PD |
						       IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
					  .send_ops_flags = IBV_QP_EX_WITH_SEND };
	struct ibv_flow *flow = raw_flow(&b, 1, 0);
	struct ibv_qp *qp = ibv_create_qp_ex(raw_ctx, &ex);
	struct ibv_qp_ex *qpx = ibv_qp_to_qp_ex(qp);
	uint8_t frame[RAW_FRAME];

	assert_non_null(qpx);
	for (int to = IBV_QPS_INIT; to <= IBV_QPS_RTS; to++)
		assert_int_equal(raw_modify(qp, (enum ibv_qp_state)to), 0);
	ibv_wr_start(qpx);
	for (uint16_t i = 0; i < 2; i++) {
		raw_frame(frame, 1, i);
		qpx->wr_id = i;
		ibv_wr_send(qpx);
		ibv_wr_set_inline_data(qpx, frame, sizeof(frame));
	}
	assert_int_equal(ibv_wr_complete(qpx), 0);
	raw_expect_to(&b, 1, 0);
	raw_expect_to(&b, 1, 1);
	assert_int_equal(ibv_destroy_qp(qp), 0);
	ex.send_ops_flags = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_RDMA_WRITE;
	NULL_WITH(ibv_create_qp_ex(raw_ctx, &ex), EOPNOTSUPP);
	drop(flow);
}

static void frames__raise_events(void **state)
{
	struct ibv_comp_channel *channel = ibv_create_comp_channel(raw_ctx);
	struct ibv_cq *cq = ibv_create_cq(raw_ctx, 16, NULL, channel, 0), *got;
	struct ibv_qp_init_attr init = raw_init(&a);
	struct pollfd p = { .fd = channel->fd, .events = POLLIN };
	struct raw_end e = b;
	struct ibv_flow *flow;
	void *context;

	init.recv_cq = e.cq = cq;
	e.qp = ibv_create_qp(b.pd, &init);
	for (int to = IBV_QPS_INIT; to <= IBV_QPS_RTS; to++)
		assert_int_equal(raw_modify(e.qp, (enum ibv_qp_state)to), 0);
	raw_post_recv(&e, 0, RAW_ROOM);
	flow = raw_flow(&e, 3, 0);
	assert_int_equal(ibv_req_notify_cq(cq, 0), 0);
	assert_int_equal(poll(&p, 1, 20), 0);
	raw_send(&a, 3, 1);
	assert_int_equal(poll(&p, 1, RAW_WAIT_MS), 1);
	assert_int_equal(ibv_get_cq_event(channel, &got, &context), 0);
	ibv_ack_cq_events(got, 1);
	raw_expect_to(&e, 3, 1);
	drop(flow);
	assert_int_equal(ibv_destroy_qp(e.qp), 0);
	assert_int_equal(ibv_destroy_cq(cq), 0);
	assert_int_equal(ibv_destroy_comp_channel(channel), 0);
}

/* ---- rules ---- */

static struct ibv_flow_spec_ipv4_ext spec_ip4(uint8_t proto)
{
	return (struct ibv_flow_spec_ipv4_ext){ .type = IBV_FLOW_SPEC_IPV4_EXT,
						.size = sizeof(struct ibv_flow_spec_ipv4_ext),
						.val.proto = proto,
						.mask.proto = 0xff };
}

static struct ibv_flow_spec_tcp_udp spec_port(enum ibv_flow_spec_type type, uint16_t port)
{
	return (struct ibv_flow_spec_tcp_udp){ .type = type,
					       .size = sizeof(struct ibv_flow_spec_tcp_udp),
					       .val.dst_port = __builtin_bswap16(port),
					       .mask.dst_port = 0xffff };
}

static struct ibv_flow_spec_eth spec_type(uint16_t ether_type)
{
	return (struct ibv_flow_spec_eth){ .type = IBV_FLOW_SPEC_ETH,
					   .size = sizeof(struct ibv_flow_spec_eth),
					   .val.ether_type = __builtin_bswap16(ether_type),
					   .mask.ether_type = 0xffff };
}

static void rules__that_are_refused(void **state)
{
	struct raw_rule good = raw_rule(IBV_FLOW_ATTR_NORMAL, 0), r;
	struct ibv_flow_spec_ipv6 ip6 = { .type = IBV_FLOW_SPEC_IPV6, .size = sizeof(ip6) };
	struct ibv_flow_spec_tunnel tunnel = { .type = IBV_FLOW_SPEC_VXLAN_TUNNEL,
					       .size = sizeof(tunnel) };
	struct ibv_flow_spec_eth eth = spec_type(0x86dd);
	struct ibv_flow_spec_ipv4_ext ip4 = spec_ip4(17);
	struct ibv_flow_spec_tcp_udp tcp = spec_port(IBV_FLOW_SPEC_TCP, 1);

#define REFUSED(change, error)                                                                     \
	do {                                                                                       \
		r = good;                                                                          \
		change;                                                                            \
		NULL_WITH(ibv_create_flow(b.qp, &r.attr), error);                                  \
	} while (0)
	REFUSED(r.attr.type = (enum ibv_flow_attr_type)4, EINVAL);
	REFUSED(r.attr.comp_mask = 1, EINVAL);
	REFUSED(r.attr.flags = 1, EINVAL);
	REFUSED(r.attr.flags = 8, EINVAL);
	REFUSED(r.attr.flags = IBV_FLOW_ATTR_FLAGS_EGRESS, EOPNOTSUPP);
	REFUSED(r.attr.port = 0, EINVAL);
	REFUSED(r.attr.port = 2, EINVAL);
	REFUSED(r.attr.num_of_specs = 11, EINVAL);
	REFUSED((r.attr.type = IBV_FLOW_ATTR_MC_DEFAULT, raw_add_mac(&r, 1)), EINVAL);
	REFUSED((r.attr.type = IBV_FLOW_ATTR_ALL_DEFAULT,
		 r.attr.flags = IBV_FLOW_ATTR_FLAGS_DONT_TRAP), EINVAL);
	REFUSED((raw_add_mac(&r, 1), raw_add_mac(&r, 2)), EINVAL);
	REFUSED((raw_add(&r, &ip4, sizeof(ip4)), raw_add(&r, &ip6, sizeof(ip6))), EINVAL);
	REFUSED((raw_add(&r, &eth, sizeof(eth)), raw_add(&r, &ip4, sizeof(ip4))), EINVAL);
	REFUSED((raw_add(&r, &ip4, sizeof(ip4)), raw_add(&r, &tcp, sizeof(tcp))), EINVAL);
	REFUSED(raw_add(&r, &tunnel, sizeof(tunnel)), EOPNOTSUPP);
	eth.type = (enum ibv_flow_spec_type)(IBV_FLOW_SPEC_ETH | IBV_FLOW_SPEC_INNER);
	REFUSED(raw_add(&r, &eth, sizeof(eth)), EOPNOTSUPP);
	eth.type = (enum ibv_flow_spec_type)0x77;
	REFUSED(raw_add(&r, &eth, sizeof(eth)), EINVAL);
	eth.type = IBV_FLOW_SPEC_ETH;
	eth.size = sizeof(eth) - 1;
	REFUSED(raw_add(&r, &eth, sizeof(eth)), EINVAL);
}

static void rules__of_other_queue_pairs(void **state)
{
	struct raw_rule r = raw_rule(IBV_FLOW_ATTR_NORMAL, 0);
	struct ibv_qp_init_attr init = raw_init(&a);
	struct ibv_qp *qp;

	init.qp_type = IBV_QPT_RC;
	qp = ibv_create_qp(a.pd, &init);
	NULL_WITH(ibv_create_flow(qp, &r.attr), EINVAL);
	assert_int_equal(ibv_destroy_qp(qp), 0);
	init.qp_type = IBV_QPT_UD;
	qp = ibv_create_qp(a.pd, &init);
	NULL_WITH(ibv_create_flow(qp, &r.attr), EOPNOTSUPP);
	assert_int_equal(ibv_destroy_qp(qp), 0);
}

static void rules__keep_their_queue_pair(void **state)
{
	struct ibv_flow *flow = raw_flow(&b, 1, 0);

	assert_int_equal(ibv_destroy_qp(b.qp), EBUSY);
	raw_send(&a, 1, 1);
	raw_expect_to(&b, 1, 1);
	drop(flow);
	assert_int_equal(ibv_destroy_qp(b.qp), 0);
	b.qp = NULL;
}

static bool is_promiscuous(void)
{
	return system("ip -d link show va | grep -q 'promiscuity [1-9]'") == 0;
}

/* The interface is promiscuous as long as there is a rule, however many there have been. */
static void rules__end_with_the_last(void **state)
{
	for (int i = 0; i < 3; i++) {
		struct ibv_flow *flow[2];

		assert_false(is_promiscuous());
		for (int k = 0; k < 2; k++)
			flow[k] = raw_flow(&b, 1 + k, 0);
		assert_true(is_promiscuous());
		drop(flow[i % 2]);
		assert_true(is_promiscuous());
		raw_send(&a, (uint8_t)(2 - i % 2), (uint16_t)i);
		raw_expect_to(&b, (uint8_t)(2 - i % 2), (uint16_t)i);
		drop(flow[1 - i % 2]);
	}
	assert_false(is_promiscuous());
}

#ifndef __SANITIZE_THREAD__ /* its runtime starts no thread in a forked child */
/* Of the parent's objects the child has none; with a device that it opens itself it has all. */
static int child_has_its_own(void)
{
	static struct raw_end c, d;
	struct ibv_flow *flow;

	signal(SIGSEGV, SIG_DFL); /* cmocka would go on with the next test here */
	raw_bed_open();
	raw_open(&c, 1);
	raw_open(&d, 4);
	flow = raw_flow(&d, 5, 0);
	raw_send(&c, 5, 50);
	raw_expect_to(&d, 5, 50);
	drop(flow);
	raw_send(&c, 5, 51);
	raw_expect_none(&d);
	raw_close(&c);
	raw_close(&d);
	return 0;
}

static void fork__a_child_begins_anew(void **state)
{
	struct ibv_flow *flow = raw_flow(&b, 1, 0);
	int status, pid = fork();

	if (pid == 0)
		_exit(child_has_its_own());
	assert_int_equal(waitpid(pid, &status, 0), pid);
	raw_send(&a, 1, 1);
	raw_expect_to(&b, 1, 1);
	drop(flow);
	assert_int_equal(status, 0);
}
#endif

#ifndef __SANITIZE_THREAD__
/* A child that takes all rules of the node, says so, and ends with `stay`. */
static int take_all_rules(int said, int stay)
{
	static struct raw_end c;
	struct raw_rule r = raw_rule(IBV_FLOW_ATTR_NORMAL, 0);
	char byte = 0;

	raw_bed_open();
	raw_open(&c, 0);
	raw_add_mac(&r, 1);
	while (ibv_create_flow(c.qp, &r.attr) != NULL)
		;
	return write(said, &byte, 1) != 1 || read(stay, &byte, 1) != 0;
}

/* A rule that the node has no room for leaves the interface as it was. */
static void rules__that_find_no_room(void **state)
{
	struct raw_rule r = raw_rule(IBV_FLOW_ATTR_NORMAL, 0);
	int said[2], stay[2], status, pid;
	char byte;

	assert_int_equal(pipe(said) | pipe(stay), 0);
	pid = fork();
	if (pid == 0) {
		close(stay[1]);
		_exit(take_all_rules(said[1], stay[0]));
	}
	close(said[1]);
	assert_int_equal(read(said[0], &byte, 1), 1);
	raw_add_mac(&r, 1);
	NULL_WITH(ibv_create_flow(b.qp, &r.attr), ENOMEM);
	close(stay[1]);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	assert_false(is_promiscuous());
	close(said[0]);
	close(stay[0]);
}
#endif

/* A lower number is tried first; then the older rule; equal rules share. */
static void rules__priorities(void **state)
{
	struct ibv_flow *low = raw_flow(&a, 1, 5), *high = raw_flow(&b, 1, 4);

	raw_send(&a, 1, 1);
	raw_expect_to(&b, 1, 1);
	raw_expect_none(&a);
	drop(high);
	raw_send(&a, 1, 2);
	raw_expect_to(&a, 1, 2);
	high = raw_flow(&b, 1, 5);
	raw_send(&a, 1, 3);
	raw_expect_to(&a, 1, 3);
	raw_expect_to(&b, 1, 3);
	drop(low);
	drop(high);
}

/* Of rules of one priority that match differently, the older one takes the frame. */
static void rules__of_one_priority_by_age(void **state)
{
	for (int first_is_mac = 0; first_is_mac < 2; first_is_mac++) {
		struct raw_rule r = raw_rule(IBV_FLOW_ATTR_NORMAL, 5);
		struct ibv_flow_spec_tcp_udp udp = spec_port(IBV_FLOW_SPEC_UDP, 7);
		struct ibv_flow *mac = NULL, *port;

		raw_add(&r, &udp, sizeof(udp));
		if (first_is_mac)
			mac = raw_flow(&a, 1, 5);
		port = ibv_create_flow(b.qp, &r.attr);
		assert_non_null(port);
		if (!first_is_mac)
			mac = raw_flow(&a, 1, 5);
		raw_send(&a, 1, 7);
		raw_expect_to(first_is_mac ? &a : &b, 1, 7);
		raw_expect_none(first_is_mac ? &b : &a);
		drop(mac);
		drop(port);
	}
}

static void rules__that_let_the_frame_pass(void **state)
{
	struct raw_rule r = raw_rule(IBV_FLOW_ATTR_NORMAL, 0);
	struct ibv_flow *first, *second;

	r.attr.flags = IBV_FLOW_ATTR_FLAGS_DONT_TRAP;
	raw_add_mac(&r, 1);
	first = ibv_create_flow(a.qp, &r.attr);
	second = raw_flow(&b, 1, 9);
	raw_send(&a, 1, 1);
	raw_expect_to(&a, 1, 1);
	raw_expect_to(&b, 1, 1);
	drop(first);
	drop(second);
}

static void rules__defaults_and_sniffers(void **state)
{
	struct raw_rule all = raw_rule(IBV_FLOW_ATTR_ALL_DEFAULT, 0);
	struct raw_rule multicast = raw_rule(IBV_FLOW_ATTR_MC_DEFAULT, 0);
	struct raw_rule sniffer = raw_rule(IBV_FLOW_ATTR_SNIFFER, 0);
	struct ibv_flow *f = ibv_create_flow(a.qp, &all.attr);
	struct ibv_flow *g = ibv_create_flow(b.qp, &multicast.attr), *h;
	uint8_t frame[RAW_FRAME];

	raw_send(&a, 1, 1);
	raw_expect_to(&a, 1, 1);
	raw_expect_none(&b);
	raw_frame(frame, 1, 2);
	frame[0] = 1;
	raw_send_bytes(&a, frame, sizeof(frame));
	assert_int_equal(raw_sent(&a), IBV_WC_SUCCESS);
	raw_expect(&b, frame, sizeof(frame));
	raw_expect_none(&a);
	drop(g);
	h = ibv_create_flow(b.qp, &sniffer.attr);
	raw_send(&a, 1, 3);
	raw_expect_to(&a, 1, 3);
	raw_expect_to(&b, 1, 3);
	drop(f);
	drop(h);
}

static void rules__that_drop(void **state)
{
	struct ibv_flow_spec_action_drop action = { .type = IBV_FLOW_SPEC_ACTION_DROP,
						    .size = sizeof(action) };
	struct raw_rule r = raw_rule(IBV_FLOW_ATTR_NORMAL, 0);
	struct ibv_flow *first, *second = raw_flow(&b, 1, 9);

	raw_add_mac(&r, 1);
	raw_add(&r, &action, sizeof(action));
	first = ibv_create_flow(a.qp, &r.attr);
	assert_non_null(first);
	raw_send(&a, 1, 1);
	raw_expect_none(&b);
	drop(first);
	raw_send(&a, 1, 2);
	raw_expect_to(&b, 1, 2);
	drop(second);
}

static void rules__by_ports(void **state)
{
	struct ibv_flow_spec_tcp_udp udp = spec_port(IBV_FLOW_SPEC_UDP, 80);
	struct ibv_flow_spec_ipv4_ext ip4 = spec_ip4(17);
	struct raw_rule r = raw_rule(IBV_FLOW_ATTR_NORMAL, 0);
	struct ibv_flow *flow;

	raw_add(&r, &udp, sizeof(udp)); /* in any order */
	raw_add(&r, &ip4, sizeof(ip4));
	flow = ibv_create_flow(b.qp, &r.attr);
	assert_non_null(flow);
	raw_send(&a, 1, 80);
	raw_expect_to(&b, 1, 80);
	raw_send(&a, 1, 81);
	raw_expect_none(&b);
	drop(flow);
}

/* Of two frames the rule takes the one with its hop limit. */
static void rules__by_hop_limit(void **state)
{
	struct ibv_flow_spec_ipv6 ip6 = { .type = IBV_FLOW_SPEC_IPV6, .size = sizeof(ip6),
					  .val.hop_limit = 7, .mask.hop_limit = 0xff };
	struct raw_rule r = raw_rule(IBV_FLOW_ATTR_NORMAL, 0);
	uint8_t frame[RAW_FRAME] = { 0 };
	struct ibv_flow *flow;

	raw_add(&r, &ip6, sizeof(ip6));
	flow = ibv_create_flow(b.qp, &r.attr);
	assert_non_null(flow);
	memcpy(frame, (uint8_t[]){ 2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 1, 1, 0x86, 0xdd, 0x60, 0, 0, 0,
				   0, RAW_FRAME - 54, 59, 8 }, 22); /* nothing follows the header */
	for (int i = 0; i < 2; i++, frame[21]--) {
		raw_send_bytes(&a, frame, sizeof(frame));
		assert_int_equal(raw_sent(&a), IBV_WC_SUCCESS);
	}
	frame[21] = 7;
	raw_expect(&b, frame, sizeof(frame));
	raw_expect_none(&b);
	drop(flow);
}

/* ---- counters ---- */

static struct ibv_counters *counters_make(void)
{
	struct ibv_counters_init_attr attr = { 0 };
	struct ibv_counters *counters = ibv_create_counters(raw_ctx, &attr);

	assert_non_null(counters);
	return counters;
}

static int counters_add(struct ibv_counters *c, enum ibv_counter_description what, uint32_t index)
{
	struct ibv_counter_attach_attr attr = { .counter_desc = what, .index = index };

	return ibv_attach_counters_point_flow(c, &attr, NULL);
}

static void counters_spec(struct raw_rule *r, struct ibv_counters *counters)
{
	struct ibv_flow_spec_counter_action count = { .type = IBV_FLOW_SPEC_ACTION_COUNT,
						      .size = sizeof(count),
						      .counters = counters };

	raw_add(r, &count, sizeof(count));
}

static struct ibv_flow *counters_flow(struct raw_end *e, uint8_t to, struct ibv_counters *counters)
{
	struct raw_rule r = raw_rule(IBV_FLOW_ATTR_NORMAL, 0);
	struct ibv_flow *flow;

	raw_add_mac(&r, to);
	counters_spec(&r, counters);
	flow = ibv_create_flow(e->qp, &r.attr);
	assert_non_null(flow);
	return flow;
}

static void counters_expect(struct ibv_counters *c, uint64_t bytes, uint64_t packets)
{
	uint64_t values[5] = { 7, 7, 7, 7, 7 };

	assert_int_equal(ibv_read_counters(c, values, 4, 0), 0);
	assert_int_equal(values[0], bytes);
	assert_int_equal(values[1], packets);
	assert_int_equal(values[2], 0);
	assert_int_equal(values[3], packets + bytes); /* two on one index add up */
	assert_int_equal(values[4], 7);
}

static void counters__of_what_rules_take(void **state)
{
	struct ibv_counters *c = counters_make();
	struct ibv_flow *flow, *other;
	uint64_t values[4];

	assert_int_equal(counters_add(c, IBV_COUNTER_BYTES, 0), 0);
	assert_int_equal(counters_add(c, IBV_COUNTER_PACKETS, 1), 0);
	assert_int_equal(counters_add(c, IBV_COUNTER_BYTES, 3), 0);
	assert_int_equal(counters_add(c, IBV_COUNTER_PACKETS, 3), 0);
	counters_expect(c, 0, 0);
	flow = counters_flow(&b, 1, c);
	assert_int_equal(counters_add(c, IBV_COUNTER_BYTES, 0), EBUSY);
	assert_int_equal(ibv_destroy_counters(c), EBUSY);
	raw_send(&a, 1, 1);
	raw_expect_to(&b, 1, 1);
	raw_send(&a, 2, 1); /* not the rule's */
	counters_expect(c, RAW_FRAME, 1);
	other = counters_flow(&a, 2, c);
	raw_send(&a, 2, 1);
	raw_expect_to(&a, 2, 1);
	counters_expect(c, 2 * RAW_FRAME, 2);
	drop(flow);
	raw_send(&a, 1, 1);
	counters_expect(c, 2 * RAW_FRAME, 2);
	drop(other);
	counters_expect(c, 2 * RAW_FRAME, 2);
	assert_int_equal(ibv_read_counters(c, values, 3, 0), EINVAL); /* index 3 exists */
	assert_int_equal(ibv_read_counters(c, values, 4, 1), 0);
	assert_int_equal(ibv_read_counters(c, values, 4, 2), EINVAL);
	assert_int_equal(counters_add(c, IBV_COUNTER_BYTES, 0), 0); /* no rule names it */
	assert_int_equal(ibv_destroy_counters(c), 0);
}

static void counters__of_what_has_no_receiver(void **state)
{
	struct ibv_flow_spec_action_drop action = { .type = IBV_FLOW_SPEC_ACTION_DROP,
						    .size = sizeof(action) };
	struct raw_rule r = raw_rule(IBV_FLOW_ATTR_NORMAL, 0);
	struct ibv_counters *c = counters_make();
	struct ibv_flow *flow, *empty;
	uint64_t value;

	assert_int_equal(counters_add(c, IBV_COUNTER_PACKETS, 0), 0);
	raw_add_mac(&r, 1);
	raw_add(&r, &action, sizeof(action));
	counters_spec(&r, c);
	flow = ibv_create_flow(b.qp, &r.attr);
	assert_non_null(flow);
	for (uint16_t i = 0; i < 3; i++)
		raw_send(&a, 1, i);
	raw_expect_none(&b);
	empty = counters_flow(&b, 2, c);
	for (uint16_t i = 0; i < 6; i++) /* of which two find no request */
		raw_send(&a, 2, i);
	assert_int_equal(ibv_read_counters(c, &value, 1, 0), 0);
	assert_int_equal(value, 9);
	drop(empty);
	drop(flow);
	assert_int_equal(ibv_destroy_counters(c), 0);
}

static void counters__that_are_refused(void **state)
{
	struct ibv_counters_init_attr init = { .comp_mask = 1 };
	struct ibv_counter_attach_attr attr = { .counter_desc = IBV_COUNTER_PACKETS };
	struct ibv_counters *c = counters_make(), *foreign;
	struct ibv_context *ctx = ibv_open_device(raw_ctx->device);
	struct ibv_flow *flow = raw_flow(&b, 1, 0);
	struct raw_rule r = raw_rule(IBV_FLOW_ATTR_NORMAL, 0);

	NULL_WITH(ibv_create_counters(raw_ctx, &init), EINVAL);
	assert_int_equal(ibv_attach_counters_point_flow(c, &attr, flow), EOPNOTSUPP);
	attr.comp_mask = 1;
	assert_int_equal(ibv_attach_counters_point_flow(c, &attr, NULL), EOPNOTSUPP);
	assert_int_equal(counters_add(c, (enum ibv_counter_description)2, 0), EOPNOTSUPP);
	assert_int_equal(counters_add(c, IBV_COUNTER_PACKETS, UINT32_MAX), EINVAL);
	assert_int_equal(ibv_read_counters(c, NULL, 1, 0), EINVAL);
	counters_spec(&r, NULL);
	NULL_WITH(ibv_create_flow(b.qp, &r.attr), EINVAL);
	r = raw_rule(IBV_FLOW_ATTR_NORMAL, 0);
	counters_spec(&r, c);
	counters_spec(&r, c);
	NULL_WITH(ibv_create_flow(b.qp, &r.attr), EINVAL);
	init.comp_mask = 0;
	foreign = ibv_create_counters(ctx, &init);
	r = raw_rule(IBV_FLOW_ATTR_NORMAL, 0);
	counters_spec(&r, foreign);
	NULL_WITH(ibv_create_flow(b.qp, &r.attr), EINVAL);
	assert_int_equal(ibv_destroy_counters(foreign), 0);
	assert_int_equal(ibv_close_device(ctx), 0);
	assert_int_equal(ibv_destroy_counters(c), 0);
	drop(flow);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
		cmocka_unit_test(create__needs_cap_net_raw),
		TEST(create__what_the_device_says),
		TEST(create__limits_and_their_neighbours),
		TEST(create__other_objects),
		TEST(states__of_the_queue_pair),
		TEST(states__receives_from_rtr_on),
		TEST(states__an_error_flushes_both_queues),
		TEST(frames__to_the_rule_that_names_them),
		TEST(frames__of_the_wire),
		TEST(frames__what_the_host_sends_is_not_received),
		TEST(frames__inline_gathered_and_scattered),
		TEST(frames__without_a_request_are_lost),
		TEST(frames__too_long_for_the_request),
		TEST(frames__that_cannot_be_sent),
		TEST(frames__requests_that_are_refused),
		TEST(frames__by_ibv_wr),
		TEST(frames__raise_events),
		TEST(rules__that_are_refused),
		TEST(rules__of_other_queue_pairs),
		TEST(rules__keep_their_queue_pair),
		TEST(rules__end_with_the_last),
#ifndef __SANITIZE_THREAD__
		TEST(fork__a_child_begins_anew),
		TEST(rules__that_find_no_room),
#endif
		TEST(rules__priorities),
		TEST(rules__of_one_priority_by_age),
		TEST(rules__that_let_the_frame_pass),
		TEST(rules__defaults_and_sniffers),
		TEST(rules__that_drop),
		TEST(rules__by_ports),
		TEST(rules__by_hop_limit),
		TEST(counters__of_what_rules_take),
		TEST(counters__of_what_has_no_receiver),
		TEST(counters__that_are_refused),
	};

	if (!raw_bed_make()) {
		fprintf(stderr, "SKIPPED: no network namespace with a veth pair can be made\n");
		return RAW_SKIPPED;
	}
	return cmocka_run_group_tests(tests, NULL, NULL);
}
