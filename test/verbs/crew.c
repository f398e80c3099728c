/* crew.c: the processes of crew.h, and their parent's side.
 * In: orders    Out: verbs    Runs: single-threaded processes    Locks: none
 */
#include "crew.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../pairs/pairs.h"
#include "../late.h"

#define CREW_MARK "--crew"

static struct {
	int file;
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_mr *mr;
	struct ibv_xrcd *xrcd;
	struct ibv_srq *srq;
	struct ibv_qp *qp;
	union ibv_gid gid, peer;
	uint8_t *memory;
} my;

static void crew_need(bool right, const char *what)
{
	if (right)
		return;
	fprintf(stderr, "crew: %s: %s\n", what, strerror(errno));
	abort();
}

/* ThreadSanitizer does not see that another process' word, by a socket, lies between what the test
 * writes or reads here and the copies of this process' engine.
 */
#define BETWEEN_PROCESSES __attribute__((no_sanitize_thread))

BETWEEN_PROCESSES void crew_fill(uint8_t *at, uint64_t length, uint64_t seed)
{
	for (uint64_t i = 0; i < length; i++)
		at[i] = (uint8_t)((i * 131 + (i >> 9) + seed * 29) & 0xff);
}

BETWEEN_PROCESSES bool crew_is_filled(const uint8_t *at, uint64_t length, uint64_t seed)
{
	for (uint64_t i = 0; i < length; i++)
		if (at[i] != (uint8_t)((i * 131 + (i >> 9) + seed * 29) & 0xff))
			return false;
	return true;
}

int crew_connect(struct ibv_qp *qp, uint32_t peer, const union ibv_gid *gid, unsigned access,
		 uint8_t rnr_timer)
{
	struct ibv_qp_attr a = { .port_num = 1,
				 .qp_access_flags = access,
				 .path_mtu = IBV_MTU_1024,
				 .dest_qp_num = peer,
				 .rq_psn = CREW_PSN,
				 .sq_psn = CREW_PSN,
				 .max_rd_atomic = 4,
				 .max_dest_rd_atomic = 4,
				 .min_rnr_timer = rnr_timer,
				 .timeout = 18,
				 .retry_cnt = 7,
				 .rnr_retry = rnr_timer == 0 ? 0 : 7,
				 .ah_attr = conn_address(gid, 1) };
	int error;

	a.qp_state = IBV_QPS_INIT;
	error = ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
					      IBV_QP_ACCESS_FLAGS);
	a.qp_state = IBV_QPS_RTR;
	if (error == 0)
		error = ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU |
						      IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
						      IBV_QP_MAX_DEST_RD_ATOMIC |
						      IBV_QP_MIN_RNR_TIMER);
	a.qp_state = IBV_QPS_RTS;
	if (error == 0)
		error = ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
						      IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
						      IBV_QP_MAX_QP_RD_ATOMIC);
	return error;
}

/* ---- a process of the crew ------------------------------------------------------------------- */

static int crew_open_domain(int oflags)
{
	struct ibv_xrcd_init_attr attr = { .comp_mask = IBV_XRCD_INIT_ATTR_FD |
							IBV_XRCD_INIT_ATTR_OFLAGS,
					   .fd = my.file,
					   .oflags = oflags };

	my.xrcd = ibv_open_xrcd(my.ctx, &attr);
	return my.xrcd == NULL ? errno : 0;
}

static int crew_make_srq(struct crew_reply *r)
{
	struct ibv_srq_init_attr_ex attr = { .attr = { .max_wr = 256, .max_sge = 2 },
					     .comp_mask = IBV_SRQ_INIT_ATTR_TYPE |
							  IBV_SRQ_INIT_ATTR_PD |
							  IBV_SRQ_INIT_ATTR_XRCD |
							  IBV_SRQ_INIT_ATTR_CQ,
					     .srq_type = IBV_SRQT_XRC,
					     .pd = my.pd,
					     .xrcd = my.xrcd,
					     .cq = my.cq };
	uint32_t number;

	my.srq = ibv_create_srq_ex(my.ctx, &attr);
	if (my.srq == NULL)
		return errno;
	r->value[1] = my.mr->rkey;
	r->value[2] = (uintptr_t)my.memory;
	if (ibv_get_srq_num(my.srq, &number) != 0)
		return EPROTO;
	r->value[0] = number;
	return 0;
}

static int crew_make_target(struct crew_reply *r)
{
	struct ibv_qp_init_attr_ex init = { .qp_type = IBV_QPT_XRC_RECV,
					    .comp_mask = IBV_QP_INIT_ATTR_XRCD,
					    .xrcd = my.xrcd };

	my.qp = ibv_create_qp_ex(my.ctx, &init);
	if (my.qp == NULL)
		return errno;
	r->value[0] = my.qp->qp_num;
	return 0;
}

static int crew_open_qp(uint32_t number)
{
	struct ibv_qp_open_attr attr = { .comp_mask = IBV_QP_OPEN_ATTR_NUM |
						      IBV_QP_OPEN_ATTR_XRCD |
						      IBV_QP_OPEN_ATTR_TYPE,
					 .qp_num = number,
					 .xrcd = my.xrcd,
					 .qp_type = IBV_QPT_XRC_RECV };

	my.qp = ibv_open_qp(my.ctx, &attr);
	return my.qp == NULL ? errno : 0;
}

static int crew_query(struct crew_reply *r)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RESET };
	int error = ibv_query_qp(my.qp, &attr, IBV_QP_STATE | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN,
				 &init);

	r->value[0] = attr.qp_state;
	r->value[1] = attr.dest_qp_num;
	r->value[2] = attr.rq_psn;
	return error;
}

static int crew_post(const struct crew_order *o)
{
	struct ibv_sge sge = { (uintptr_t)my.memory + o->b, (uint32_t)o->c, my.mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = o->a, .sg_list = &sge, .num_sge = 1 }, *bad;

	return ibv_post_srq_recv(my.srq, &wr, &bad);
}

static int crew_poll(struct crew_reply *r, uint64_t ms)
{
	for (uint64_t i = 0; i <= ms; i++) {
		for (int k = 0; k < 200; k++)
			if (ibv_poll_cq(my.cq, 1, &r->wc) == 1)
				return 0;
		usleep(1000);
	}
	return CREW_NOTHING;
}

static int crew_event(struct crew_reply *r, int ms)
{
	struct pollfd fd = { .fd = my.ctx->async_fd, .events = POLLIN };
	struct ibv_async_event event;

	r->value[0] = CREW_NOTHING;
	if (poll(&fd, 1, ms) != 1) {
		late("event", ms);
		return 0;
	}
	if (ibv_get_async_event(my.ctx, &event) != 0)
		return errno;
	r->value[0] = event.event_type;
	ibv_ack_async_event(&event);
	return 0;
}

static int crew_obey(const struct crew_order *o, struct crew_reply *r)
{
	struct ibv_qp_attr state = { .qp_state = (enum ibv_qp_state)o->a };
	struct ibv_srq_attr limit = { .srq_limit = (uint32_t)o->a };

	switch (o->op) {
	case CREW_DOMAIN:
		return crew_open_domain((int)o->a);
	case CREW_CLOSE_DOMAIN:
		return ibv_close_xrcd(my.xrcd);
	case CREW_SRQ:
		return crew_make_srq(r);
	case CREW_END_SRQ:
		return ibv_destroy_srq(my.srq);
	case CREW_TARGET:
		return crew_make_target(r);
	case CREW_OPEN_QP:
		return crew_open_qp((uint32_t)o->a);
	case CREW_END_QP:
		return ibv_destroy_qp(my.qp);
	case CREW_NAME:
		memcpy(r->value, &my.gid, sizeof(my.gid));
		return 0;
	case CREW_PEER:
		memcpy(&my.peer, &o->a, sizeof(o->a));
		memcpy(my.peer.raw + sizeof(o->a), &o->b, sizeof(o->b));
		return 0;
	case CREW_CONNECT:
		return crew_connect(my.qp, (uint32_t)o->a, &my.peer, (unsigned)o->b,
				    (uint8_t)o->c);
	case CREW_MODIFY:
		return ibv_modify_qp(my.qp, &state, IBV_QP_STATE);
	case CREW_QUERY:
		return crew_query(r);
	case CREW_POST:
		return crew_post(o);
	case CREW_POLL:
		return crew_poll(r, o->a);
	case CREW_FILL:
		crew_fill(my.memory + o->a, o->b, o->c);
		return 0;
	case CREW_CHECK:
		return crew_is_filled(my.memory + o->a, o->b, o->c) ? 0 : EBADMSG;
	case CREW_EVENT:
		return crew_event(r, (int)o->a);
	case CREW_LIMIT:
		return ibv_modify_srq(my.srq, &limit, IBV_SRQ_LIMIT);
	}
	return EINVAL;
}

static void crew_begin(const char *path)
{
	struct ibv_device **list = ibv_get_device_list(NULL);

	my.file = open(path, O_RDWR | O_CLOEXEC);
	crew_need(my.file >= 0 && list != NULL && list[0] != NULL, "file, device");
	my.ctx = ibv_open_device(list[0]);
	ibv_free_device_list(list);
	crew_need(my.ctx != NULL, "ibv_open_device");
	my.memory = aligned_alloc(4096, CREW_BYTES);
	crew_need(my.memory != NULL, "memory");
	memset(my.memory, 0, CREW_BYTES);
	my.pd = ibv_alloc_pd(my.ctx);
	my.cq = ibv_create_cq(my.ctx, 512, NULL, NULL, 0);
	my.mr = ibv_reg_mr(my.pd, my.memory, CREW_BYTES,
			   IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
				   IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC);
	crew_need(my.cq != NULL && my.mr != NULL, "objects");
	crew_need(ibv_query_gid(my.ctx, 1, 1, &my.gid) == 0, "GID");
	my.peer = my.gid;
}

void crew_main(int argc, char **argv)
{
	struct crew_order order;
	int socket;

	if (argc != 4 || strcmp(argv[1], CREW_MARK) != 0)
		return;
	socket = atoi(argv[2]);
	crew_begin(argv[3]);
	while (recv(socket, &order, sizeof(order), 0) == (ssize_t)sizeof(order)) {
		struct crew_reply reply;

		memset(&reply, 0, sizeof(reply));
		reply.error = crew_obey(&order, &reply);
		if (send(socket, &reply, sizeof(reply), MSG_NOSIGNAL) != (ssize_t)sizeof(reply))
			break;
	}
	_exit(0);
}

/* ---- the test -------------------------------------------------------------------------------- */

struct crew_hand crew_start(const char *path, const char *node, bool is_peer)
{
	const char *paths = getenv("VERBS_PEER_PATHS");
	struct crew_hand h;
	char number[16];
	int ends[2];

	crew_need(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends) == 0, "socketpair");
	fcntl(ends[0], F_SETFD, FD_CLOEXEC);
	snprintf(number, sizeof(number), "%d", ends[1]);
	h.socket = ends[0];
	h.pid = fork();
	crew_need(h.pid >= 0, "fork");
	if (h.pid == 0) {
		if (node != NULL)
			setenv("ANYVERBS_NODE", node, 1);
		if (paths != NULL && is_peer)
			setenv("ANYVERBS_PATHS", paths, 1);
		execl("/proc/self/exe", "crew", CREW_MARK, number, path, (char *)NULL);
		_exit(127);
	}
	close(ends[1]);
	return h;
}

void crew_end(struct crew_hand *h)
{
	if (h->pid == 0)
		return;
	close(h->socket);
	waitpid(h->pid, NULL, 0);
	h->pid = 0;
}

void crew_kill(struct crew_hand *h)
{
	kill(h->pid, SIGKILL);
	crew_end(h);
}

void crew_tell(const struct crew_hand *h, enum crew_op op, uint64_t a, uint64_t b, uint64_t c)
{
	struct crew_order order;

	memset(&order, 0, sizeof(order));
	order.op = op;
	order.a = a;
	order.b = b;
	order.c = c;
	crew_need(send(h->socket, &order, sizeof(order), MSG_NOSIGNAL) == (ssize_t)sizeof(order),
		  "send");
}

struct crew_reply crew_hear(const struct crew_hand *h)
{
	struct crew_reply reply;

	crew_need(recv(h->socket, &reply, sizeof(reply), 0) == (ssize_t)sizeof(reply), "recv");
	return reply;
}

struct crew_reply crew_try(const struct crew_hand *h, enum crew_op op, uint64_t a, uint64_t b,
			   uint64_t c)
{
	crew_tell(h, op, a, b, c);
	return crew_hear(h);
}

struct crew_reply crew_do(const struct crew_hand *h, enum crew_op op, uint64_t a, uint64_t b,
			  uint64_t c)
{
	struct crew_reply reply = crew_try(h, op, a, b, c);

	errno = reply.error;
	crew_need(reply.error == 0, "an order failed");
	return reply;
}
