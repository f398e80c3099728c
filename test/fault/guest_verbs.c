/* guest_verbs.c: a few verbs in a few lines.
 * In: calls of the guest programs    Out: objects, messages, or the end of the program
 * Runs: the caller                   Locks: none
 */
#include "guest.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { GUEST_SECONDS = 60 };

void guest_die(const char *format, ...)
{
	int error = errno;
	va_list ap;

	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL);
	va_start(ap, format);
	vdprintf(2, format, ap);
	va_end(ap);
	dprintf(2, " (errno %d)\n", error);
	_exit(3);
}

struct ibv_context *guest_open_device(void)
{
	struct ibv_context *context = device_open(NULL);

	guest_need(context != NULL, "open_device");
	return context;
}

void guest_create(struct guest *g, struct ibv_context *context)
{
	struct ibv_qp_attr attr = { .port_num = CONN_PORT,
				    .qp_access_flags = IBV_ACCESS_REMOTE_WRITE |
						       IBV_ACCESS_REMOTE_READ };
	struct ibv_qp_init_attr init = { .qp_type = IBV_QPT_RC,
					 .cap = { 16, 16, 1, 1, 0 },
					 .sq_sig_all = 1 };

	memset(g, 0, sizeof(*g));
	g->context = context;
	g->memory = calloc(1, GUEST_BYTES);
	g->pd = ibv_alloc_pd(context);
	guest_need(g->pd != NULL, "alloc_pd");
	g->channel = ibv_create_comp_channel(context);
	guest_need(g->channel != NULL, "create_comp_channel");
	g->cq = ibv_create_cq(context, 64, NULL, g->channel, 0);
	guest_need(g->cq != NULL, "create_cq");
	g->mr = ibv_reg_mr(g->pd, g->memory, GUEST_BYTES,
			   IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
				   IBV_ACCESS_REMOTE_READ);
	guest_need(g->mr != NULL, "reg_mr");
	init.send_cq = init.recv_cq = g->cq;
	g->qp = ibv_create_qp(g->pd, &init);
	guest_need(g->qp != NULL, "create_qp");
	guest_need(conn_to(g->qp, &attr, IBV_QPS_INIT) == 0, "to INIT");
	guest_need(ibv_query_gid(context, 1, 0, &g->gid) == 0, "query_gid");
	guest_post_receive(g);
}

struct guest_address guest_address(const struct guest *g)
{
	return (struct guest_address){ .gid = g->gid,
				       .qpn = g->qp->qp_num,
				       .rkey = g->mr->rkey,
				       .addr = (uintptr_t)g->memory };
}

void guest_connect(struct guest *g, const struct guest_address *to)
{
	struct ibv_qp_attr attr = conn_attr(to->qpn, &to->gid, 0);

	attr.rq_psn = attr.sq_psn = GUEST_PSN;
	attr.min_rnr_timer = 1;
	guest_need(conn_to(g->qp, &attr, IBV_QPS_RTR) == 0, "to RTR");
	guest_need(conn_to(g->qp, &attr, IBV_QPS_RTS) == 0, "to RTS");
}

void guest_connect_pair(struct guest *a, struct guest *b)
{
	struct guest_address to_a = guest_address(a), to_b = guest_address(b);

	guest_connect(a, &to_b);
	guest_connect(b, &to_a);
}

void guest_post_receive(struct guest *g)
{
	struct ibv_sge sge = { (uintptr_t)g->memory, GUEST_BYTES, g->mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = 1, .sg_list = &sge, .num_sge = 1 }, *bad;
	int err = ibv_post_recv(g->qp, &wr, &bad);

	guest_need(err == 0, "post_recv: %d", err);
}

void guest_post_send(struct guest *g, uint32_t length)
{
	struct ibv_sge sge = { (uintptr_t)g->memory, length, g->mr->lkey };
	struct ibv_send_wr wr = { .wr_id = 2,
				  .sg_list = &sge,
				  .num_sge = 1,
				  .opcode = IBV_WR_SEND },
			   *bad;
	int err = ibv_post_send(g->qp, &wr, &bad);

	guest_need(err == 0, "post_send: %d", err);
}

int guest_poll(struct guest *g)
{
	time_t end = time(NULL) + GUEST_SECONDS;
	struct ibv_wc wc;

	while (ibv_poll_cq(g->cq, 1, &wc) == 0)
		guest_need(time(NULL) < end, "no completion");
	return (int)wc.status;
}

int guest_await(struct guest *g)
{
	struct pollfd p = { .fd = g->channel->fd, .events = POLLIN };
	struct ibv_cq *cq;
	struct ibv_wc wc;
	void *cookie;
	int n;

	guest_need(ibv_req_notify_cq(g->cq, 0) == 0, "req_notify_cq");
	n = ibv_poll_cq(g->cq, 1, &wc);
	if (n == 1)
		return (int)wc.status;
	guest_need(poll(&p, 1, GUEST_SECONDS * 1000) == 1, "no event");
	guest_need(ibv_get_cq_event(g->channel, &cq, &cookie) == 0, "get_cq_event");
	ibv_ack_cq_events(cq, 1);
	guest_need(ibv_poll_cq(g->cq, 1, &wc) == 1, "an event without a completion");
	return (int)wc.status;
}

void guest_talk(struct guest *a, struct guest *b)
{
	int status;

	memset(a->memory, 0x5a, 1000);
	guest_post_send(a, 1000);
	status = guest_poll(b);
	guest_need(status == 0, "the receiver's status is %d", status);
	guest_need(b->memory[999] == 0x5a, "the message did not arrive whole");
	status = guest_poll(a);
	guest_need(status == 0, "the sender's status is %d", status);
	guest_post_receive(b);
}

void guest_destroy(struct guest *g)
{
	guest_need(ibv_destroy_qp(g->qp) == 0, "destroy_qp");
	guest_need(ibv_dereg_mr(g->mr) == 0, "dereg_mr");
	guest_need(ibv_destroy_cq(g->cq) == 0, "destroy_cq");
	guest_need(ibv_destroy_comp_channel(g->channel) == 0, "destroy_comp_channel");
	guest_need(ibv_dealloc_pd(g->pd) == 0, "dealloc_pd");
	free(g->memory);
}

void guest_use_everything(struct guest pair[2])
{
	struct ibv_context *context = guest_open_device();

	guest_create(&pair[0], context);
	guest_create(&pair[1], context);
	guest_connect_pair(&pair[0], &pair[1]);
	guest_talk(&pair[0], &pair[1]);
	guest_post_send(&pair[0], 100);
	guest_need(guest_await(&pair[1]) == 0, "by events");
	guest_need(guest_poll(&pair[0]) == 0, "by events, the sender");
	guest_post_receive(&pair[1]);
}
