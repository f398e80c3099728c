/* raw_bed.c: raw packet queue pairs on a veth pair of the test's own. */
#include "raw_bed.h"
#include "own_net.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/if_packet.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

struct ibv_context *raw_ctx;

bool raw_bed_make(void)
{
	if (!own_net_enter() ||
	    system("ip link set lo up && ip link add va type veth peer name vb &&"
		   " sysctl -qw net.ipv6.conf.va.disable_ipv6=1 net.ipv6.conf.vb.disable_ipv6=1;"
		   " ip link set va up && ip link set vb up && ip addr add 10.99.0.1/24 dev va") !=
		    0)
		return false;
	pair_supervise();
	setenv("ANYVERBS_ADDR", "10.99.0.1", 1);
	return true;
}

void raw_bed_open(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);

	assert_non_null(list);
	assert_non_null(list[0]);
	raw_ctx = ibv_open_device(list[0]);
	assert_non_null(raw_ctx);
	ibv_free_device_list(list);
}

void raw_bed_close(void)
{
	assert_int_equal(ibv_close_device(raw_ctx), 0);
}

/* ---- queue pairs ---- */

struct ibv_qp_init_attr raw_init(const struct raw_end *e)
{
	return (struct ibv_qp_init_attr){ .send_cq = e->scq,
					  .recv_cq = e->cq,
					  .qp_type = IBV_QPT_RAW_PACKET,
					  .sq_sig_all = 0,
					  .cap = { .max_send_wr = 16,
						   .max_recv_wr = 16,
						   .max_send_sge = 3,
						   .max_recv_sge = 2,
						   .max_inline_data = 256 } };
}

int raw_modify(struct ibv_qp *qp, enum ibv_qp_state to)
{
	struct ibv_qp_attr attr = { .qp_state = to, .port_num = 1 };

	return ibv_modify_qp(qp, &attr, IBV_QP_STATE | (to == IBV_QPS_INIT ? IBV_QP_PORT : 0));
}

void raw_post_recv(struct raw_end *e, uint64_t slot, uint32_t length)
{
	struct ibv_sge sge = { .addr = (uintptr_t)(e->memory + slot * RAW_ROOM),
			       .length = length,
			       .lkey = e->mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = slot, .sg_list = &sge, .num_sge = 1 }, *bad;

	assert_int_equal(ibv_post_recv(e->qp, &wr, &bad), 0);
}

void raw_open(struct raw_end *e, uint32_t receives)
{
	struct ibv_qp_init_attr init;

	e->pd = ibv_alloc_pd(raw_ctx);
	e->cq = ibv_create_cq(raw_ctx, 64, NULL, NULL, 0);
	e->scq = ibv_create_cq(raw_ctx, 64, NULL, NULL, 0);
	e->memory = calloc(RAW_SLOTS + 1, RAW_ROOM);
	assert_non_null(e->memory);
	e->mr = ibv_reg_mr(e->pd, e->memory, (RAW_SLOTS + 1) * RAW_ROOM, IBV_ACCESS_LOCAL_WRITE);
	assert_non_null(e->mr);
	init = raw_init(e);
	e->qp = ibv_create_qp(e->pd, &init);
	assert_non_null(e->qp);
	assert_int_equal(raw_modify(e->qp, IBV_QPS_INIT), 0);
	assert_int_equal(raw_modify(e->qp, IBV_QPS_RTR), 0);
	assert_int_equal(raw_modify(e->qp, IBV_QPS_RTS), 0);
	for (uint32_t i = 0; i < receives; i++)
		raw_post_recv(e, i, RAW_ROOM);
}

void raw_close(struct raw_end *e)
{
	if (e->qp != NULL)
		assert_int_equal(ibv_destroy_qp(e->qp), 0);
	assert_int_equal(ibv_dereg_mr(e->mr), 0);
	assert_int_equal(ibv_destroy_cq(e->cq), 0);
	assert_int_equal(ibv_destroy_cq(e->scq), 0);
	assert_int_equal(ibv_dealloc_pd(e->pd), 0);
	free(e->memory);
}

/* ---- frames ---- */

void raw_frame(uint8_t *frame, uint8_t to, uint16_t port)
{
	const uint8_t head[] = { 2, 0, 0, 0, 0, to, 2, 0, 0, 0, 1, 1, 0x08, 0x00,
				 0x45, 0, 0, RAW_FRAME - 14, 0, 0, 0, 0, 64, 17, 0, 0,
				 10, 0, 0, 1, 10, 0, 0, 2,
				 0x12, 0x34, (uint8_t)(port >> 8), (uint8_t)port,
				 0, RAW_FRAME - 34, 0, 0 };

	for (uint32_t i = 0; i < RAW_FRAME; i++)
		frame[i] = (uint8_t)(i * 7 + port);
	memcpy(frame, head, sizeof(head));
}

void raw_send_bytes(struct raw_end *e, const uint8_t *frame, uint32_t length)
{
	uint8_t *from = e->memory + RAW_SLOTS * RAW_ROOM;
	struct ibv_sge sge = { .addr = (uintptr_t)from, .length = length, .lkey = e->mr->lkey };
	struct ibv_send_wr wr = { .wr_id = 7, .sg_list = &sge, .num_sge = 1,
				  .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED };
	struct ibv_send_wr *bad;

	assert_true(length <= RAW_ROOM);
	memcpy(from, frame, length);
	assert_int_equal(ibv_post_send(e->qp, &wr, &bad), 0);
}

enum ibv_wc_status raw_sent(struct raw_end *e)
{
	struct ibv_wc wc;

	assert_true(raw_poll(e->scq, &wc));
	assert_int_equal(wc.wr_id, 7);
	assert_int_equal(wc.qp_num, e->qp->qp_num);
	return wc.status;
}

void raw_send(struct raw_end *e, uint8_t to, uint16_t port)
{
	uint8_t frame[RAW_FRAME];

	raw_frame(frame, to, port);
	raw_send_bytes(e, frame, sizeof(frame));
	assert_int_equal(raw_sent(e), IBV_WC_SUCCESS);
}

static bool bed_poll(struct ibv_cq *cq, struct ibv_wc *wc, int ms)
{
	struct timespec begin, now;

	clock_gettime(CLOCK_MONOTONIC, &begin);
	do {
		int n = ibv_poll_cq(cq, 1, wc);

		assert_true(n >= 0);
		if (n == 1)
			return true;
		usleep(100);
		clock_gettime(CLOCK_MONOTONIC, &now);
	} while ((now.tv_sec - begin.tv_sec) * 1000 + (now.tv_nsec - begin.tv_nsec) / 1000000 < ms);
	return false;
}

bool raw_poll(struct ibv_cq *cq, struct ibv_wc *wc)
{
	return bed_poll(cq, wc, RAW_WAIT_MS);
}

void raw_expect(struct raw_end *e, const uint8_t *frame, uint32_t length)
{
	struct ibv_wc wc;

	assert_true(raw_poll(e->cq, &wc));
	assert_int_equal(wc.status, IBV_WC_SUCCESS);
	assert_int_equal(wc.opcode, IBV_WC_RECV);
	assert_int_equal(wc.byte_len, length);
	assert_int_equal(wc.wc_flags, 0);
	assert_int_equal(wc.qp_num, e->qp->qp_num);
	assert_memory_equal(e->memory + wc.wr_id * RAW_ROOM, frame, length);
}

void raw_expect_to(struct raw_end *e, uint8_t to, uint16_t port)
{
	uint8_t frame[RAW_FRAME];

	raw_frame(frame, to, port);
	raw_expect(e, frame, sizeof(frame));
}

void raw_expect_none(struct raw_end *e)
{
	struct ibv_wc wc;

	assert_false(bed_poll(e->cq, &wc, RAW_QUIET));
}

/* ---- rules ---- */

struct raw_rule raw_rule(enum ibv_flow_attr_type type, uint16_t priority)
{
	struct raw_rule r = { .attr = { .type = type, .size = sizeof(r.attr),
					.priority = priority, .port = 1 } };

	return r;
}

void raw_add(struct raw_rule *r, const void *spec, uint16_t size)
{
	memcpy((uint8_t *)&r->attr + r->attr.size, spec, size);
	r->attr.size = (uint16_t)(r->attr.size + size);
	r->attr.num_of_specs++;
}

void raw_add_mac(struct raw_rule *r, uint8_t to)
{
	struct ibv_flow_spec_eth eth = { .type = IBV_FLOW_SPEC_ETH, .size = sizeof(eth),
					 .val.dst_mac = { 2, 0, 0, 0, 0, to } };

	memset(eth.mask.dst_mac, 0xff, 6);
	raw_add(r, &eth, sizeof(eth));
}

struct ibv_flow *raw_flow(struct raw_end *e, uint8_t to, uint16_t priority)
{
	struct raw_rule r = raw_rule(IBV_FLOW_ATTR_NORMAL, priority);
	struct ibv_flow *flow;

	raw_add_mac(&r, to);
	flow = ibv_create_flow(e->qp, &r.attr);
	assert_non_null(flow);
	return flow;
}

/* ---- the wire ---- */

int raw_wire(void)
{
	struct sockaddr_ll at = { .sll_family = AF_PACKET, .sll_protocol = htons(ETH_P_ALL),
				  .sll_ifindex = (int)if_nametoindex("vb") };
	int fd = socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, htons(ETH_P_ALL));

	assert_true(fd >= 0);
	assert_int_equal(bind(fd, (struct sockaddr *)&at, sizeof(at)), 0);
	return fd;
}

void raw_wire_send(int fd, const uint8_t *frame, uint32_t length)
{
	assert_int_equal(send(fd, frame, length, 0), length);
}

uint32_t raw_wire_receive(int fd, uint8_t to, uint8_t *frame)
{
	const uint8_t mac[6] = { 2, 0, 0, 0, 0, to };
	struct pollfd p = { .fd = fd, .events = POLLIN };

	while (poll(&p, 1, RAW_WAIT_MS) > 0) {
		ssize_t n = recv(fd, frame, RAW_ROOM, 0);

		if (n >= 14 && memcmp(frame, mac, 6) == 0)
			return (uint32_t)n;
	}
	return 0;
}
