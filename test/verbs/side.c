/* side.c: carries out a test's calls with libibverbs, and nothing but it.
 * In:    calls as plain data    Out: what the verbs said
 * Runs:  the test's thread, or the child that serves a pipe    Locks: none
 */
#include "side.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

struct side {
	struct ibv_context *ctx;
	struct ibv_pd *pd, *other_pd;
	struct ibv_comp_channel *channel;
	struct ibv_cq *cq[2]; /* send, receive */
	struct ibv_srq *srq;
	struct ibv_qp *qp[SIDE_QPS];
	struct ibv_mr *mr[SIDE_MRS];
	struct ibv_ah *ah;
	struct ibv_wc last_recv;
	struct side_options opt;
	uint8_t *buffer;
	uint64_t bytes;
};

struct side *side_create(void)
{
	return calloc(1, sizeof(struct side));
}

static uint32_t side_or(uint32_t value, uint32_t otherwise)
{
	return value != 0 ? value : otherwise;
}

/* ---- opening and closing ---- */

static void side_close(struct side *s)
{
	for (int i = 0; i < SIDE_QPS; i++)
		if (s->qp[i] != NULL)
			ibv_destroy_qp(s->qp[i]);
	if (s->srq != NULL)
		ibv_destroy_srq(s->srq);
	if (s->ah != NULL)
		ibv_destroy_ah(s->ah);
	for (int i = 0; i < SIDE_MRS; i++)
		if (s->mr[i] != NULL)
			ibv_dereg_mr(s->mr[i]);
	for (int i = 0; i < 2; i++)
		if (s->cq[i] != NULL)
			ibv_destroy_cq(s->cq[i]);
	if (s->channel != NULL)
		ibv_destroy_comp_channel(s->channel);
	if (s->pd != NULL)
		ibv_dealloc_pd(s->pd);
	if (s->other_pd != NULL)
		ibv_dealloc_pd(s->other_pd);
	if (s->ctx != NULL)
		ibv_close_device(s->ctx);
	if (s->buffer != NULL)
		munmap(s->buffer, s->bytes);
	memset(s, 0, sizeof(*s));
}

void side_destroy(struct side *s)
{
	side_close(s);
	free(s);
}

static int side_make_qp(struct side *s, uint32_t i)
{
	const struct side_options *o = &s->opt;
	struct ibv_qp_init_attr init = {
		.send_cq = s->cq[0],
		.recv_cq = s->cq[1],
		.srq = s->srq,
		.cap = { .max_send_wr = side_or(o->send_wr, 64),
			 .max_recv_wr = side_or(o->recv_wr, 64),
			 .max_send_sge = side_or(o->send_sge, 4),
			 .max_recv_sge = side_or(o->recv_sge, 4),
			 .max_inline_data = o->inline_bytes },
		.qp_type = (enum ibv_qp_type)o->type,
		.sq_sig_all = o->sig_all,
	};

	s->qp[i] = ibv_create_qp(s->pd, &init);
	return s->qp[i] == NULL ? errno : 0;
}

static int side_register(struct side *s, struct ibv_pd *pd, uint64_t offset, uint64_t length,
			 int access, uint32_t *slot)
{
	for (uint32_t i = 0; i < SIDE_MRS; i++)
		if (s->mr[i] == NULL) {
			s->mr[i] = ibv_reg_mr(pd, s->buffer + offset, length, access);
			*slot = i;
			return s->mr[i] == NULL ? errno : 0;
		}
	return ENOSPC;
}

static int side_make_buffer(struct side *s)
{
	int all = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
		  IBV_ACCESS_REMOTE_ATOMIC;
	uint32_t slot;

	s->bytes = s->opt.bytes != 0 ? s->opt.bytes : 65536;
	s->buffer = mmap(NULL, s->bytes, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (s->buffer == MAP_FAILED) {
		s->buffer = NULL;
		return ENOMEM;
	}
	return side_register(s, s->pd, 0, s->bytes, s->opt.mr_access < 0 ? all : s->opt.mr_access,
			     &slot);
}

static int side_make_queues(struct side *s)
{
	const struct side_options *o = &s->opt;
	struct ibv_srq_init_attr srq = { .attr = { .max_wr = o->srq_wr,
						   .max_sge = side_or(o->recv_sge, 4) } };

	if (o->channel && (s->channel = ibv_create_comp_channel(s->ctx)) == NULL)
		return errno;
	s->cq[0] = ibv_create_cq(s->ctx, (int)side_or(o->cqe, 1024), NULL, s->channel, 0);
	s->cq[1] = ibv_create_cq(s->ctx, (int)side_or(o->recv_cqe, 1024), NULL, s->channel, 0);
	if (s->cq[0] == NULL || s->cq[1] == NULL)
		return errno;
	if (o->srq_wr != 0 && (s->srq = ibv_create_srq(s->pd, &srq)) == NULL)
		return errno;
	for (uint32_t i = 0; i < side_or(o->qps, 1); i++)
		if (side_make_qp(s, i) != 0)
			return errno;
	return 0;
}

bool side_on_wire(void)
{
	const char *paths = getenv("ANYVERBS_PATHS");

	return (paths != NULL && strcmp(paths, "udp") == 0) || getenv("VERBS_PEER_PATHS") != NULL;
}

/* Over a wire only what has an address of the host can be reached. */
static uint8_t side_gid_index(void)
{
	return side_on_wire() ? 1 : 0;
}

static int side_address(struct side *s, struct side_address *a)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;
	int err = ibv_query_gid(s->ctx, 1, side_gid_index(), &a->gid);

	for (int i = 0; i < SIDE_QPS; i++)
		a->qpn[i] = s->qp[i] != NULL ? s->qp[i]->qp_num : 0;
	a->addr = (uintptr_t)s->buffer;
	a->lkey = s->mr[0]->lkey;
	a->rkey = s->mr[0]->rkey;
	if (err == 0 && s->qp[0] != NULL && ibv_query_qp(s->qp[0], &attr, IBV_QP_CAP, &init) == 0)
		a->max_inline = init.cap.max_inline_data;
	return err;
}

static int side_open(struct side *s, const struct side_options *o, struct side_address *a)
{
	int err;

	if (s->ctx != NULL)
		return EBUSY;
	s->opt = *o;
	s->ctx = device_open(NULL);
	if (s->ctx == NULL)
		return ENODEV;
	fcntl(s->ctx->async_fd, F_SETFL, fcntl(s->ctx->async_fd, F_GETFL) | O_NONBLOCK);
	s->pd = ibv_alloc_pd(s->ctx);
	s->other_pd = ibv_alloc_pd(s->ctx);
	if (s->pd == NULL || s->other_pd == NULL)
		return ENOMEM;
	err = side_make_buffer(s);
	if (err == 0)
		err = side_make_queues(s);
	return err != 0 ? err : side_address(s, a);
}

/* ---- states ---- */

static int side_connect(struct side *s, struct ibv_qp *qp, const struct side_link *l)
{
	int all = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC |
		  IBV_ACCESS_LOCAL_WRITE;
	struct ibv_qp_attr a = conn_attr(l->dest_qpn, &l->gid, side_gid_index());

	a.qkey = SIDE_QKEY;
	a.qp_access_flags = (unsigned int)(s->opt.qp_access < 0 ? all : s->opt.qp_access);
	a.sq_psn = l->psn;
	a.rq_psn = (l->psn + l->rq_ahead) & 0xffffff;
	if (l->mtu != 0)
		a.path_mtu = (enum ibv_mtu)l->mtu;
	a.max_dest_rd_atomic = l->dest_rd_atomic;
	a.max_rd_atomic = l->rd_atomic;
	a.min_rnr_timer = l->min_rnr_timer;
	a.timeout = l->timeout;
	a.retry_cnt = l->retry_cnt;
	a.rnr_retry = l->rnr_retry;
	return conn_up(qp, &a, l->until);
}

/* ---- posting ---- */

static void side_fill_send(struct side *s, struct ibv_send_wr *to, struct side_wr *w, int type)
{
	*to = (struct ibv_send_wr){ .wr_id = w->wr_id,
				    .sg_list = w->sge,
				    .num_sge = w->num_sge,
				    .opcode = w->opcode,
				    .send_flags = (unsigned int)w->flags,
				    .imm_data = w->imm };
	if (type == IBV_QPT_UD) {
		to->wr.ud.ah = s->ah;
		to->wr.ud.remote_qpn = w->remote_qpn;
		to->wr.ud.remote_qkey = w->qkey;
	} else if (w->opcode == IBV_WR_ATOMIC_CMP_AND_SWP ||
		   w->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		to->wr.atomic.remote_addr = w->remote_addr;
		to->wr.atomic.rkey = w->rkey;
		to->wr.atomic.compare_add = w->compare;
		to->wr.atomic.swap = w->swap;
	} else {
		to->wr.rdma.remote_addr = w->remote_addr;
		to->wr.rdma.rkey = w->rkey;
	}
}

/* One list of `count` requests, so that bad_wr can point into it. */
static void side_post_send(struct side *s, const struct side_call *c, struct side_reply *r)
{
	struct side_wr w = c->post.wr;
	struct ibv_qp *qp = s->qp[c->qp];
	uint32_t n = side_or(c->post.count, 1);
	struct ibv_send_wr *list = calloc(n, sizeof(*list)), *bad = NULL;

	for (uint32_t i = 0; i < n; i++) {
		side_fill_send(s, &list[i], &w, (int)qp->qp_type);
		list[i].wr_id = w.wr_id + i;
		list[i].next = i + 1 < n ? &list[i + 1] : NULL;
		if (c->post.signal != 0 && (i + 1) % c->post.signal == 0)
			list[i].send_flags |= IBV_SEND_SIGNALED;
	}
	r->err = ibv_post_send(qp, list, &bad);
	r->post.posted = r->err == 0 ? n : bad == NULL ? UINT32_MAX : (uint32_t)(bad - list);
	free(list);
}

static void side_post_recv(struct side *s, const struct side_call *c, struct side_reply *r)
{
	struct side_wr w = c->post.wr;
	uint32_t n = side_or(c->post.count, 1);
	struct ibv_recv_wr *list = calloc(n, sizeof(*list)), *bad = NULL;

	for (uint32_t i = 0; i < n; i++)
		list[i] = (struct ibv_recv_wr){ .wr_id = w.wr_id + i,
						.next = i + 1 < n ? &list[i + 1] : NULL,
						.sg_list = w.sge,
						.num_sge = w.num_sge };
	r->err = s->srq != NULL ? ibv_post_srq_recv(s->srq, list, &bad) :
				  ibv_post_recv(s->qp[c->qp], list, &bad);
	r->post.posted = r->err == 0 ? n : bad == NULL ? UINT32_MAX : (uint32_t)(bad - list);
	free(list);
}

/* ---- completions and events ---- */

static void side_poll(struct side *s, const struct side_call *c, struct side_reply *r)
{
	int n = cq_wait(s->cq[c->poll.recv], r->poll.wc, (int)c->poll.want, c->poll.timeout_ms);

	if (n < 0)
		r->err = EIO;
	r->poll.count = n < 0 ? 0 : (uint32_t)n;
	if (c->poll.recv && n > 0)
		s->last_recv = r->poll.wc[n - 1];
}

static uint32_t side_event_qpn(const struct ibv_async_event *ev)
{
	switch (ev->event_type) {
	case IBV_EVENT_QP_FATAL:
	case IBV_EVENT_QP_REQ_ERR:
	case IBV_EVENT_QP_ACCESS_ERR:
	case IBV_EVENT_COMM_EST:
	case IBV_EVENT_SQ_DRAINED:
	case IBV_EVENT_QP_LAST_WQE_REACHED:
		return ev->element.qp->qp_num;
	default:
		return 0;
	}
}

static void side_event(struct side *s, int timeout_ms, struct side_reply *r)
{
	struct ibv_async_event ev;

	r->event.type = -1;
	if (!fd_is_readable(s->ctx->async_fd, timeout_ms) || ibv_get_async_event(s->ctx, &ev) != 0)
		return;
	r->event.type = (int)ev.event_type;
	r->event.element = side_event_qpn(&ev);
	ibv_ack_async_event(&ev);
}

static void side_cq_event(struct side *s, int timeout_ms, struct side_reply *r)
{
	struct ibv_cq *cq;
	void *context;

	r->event.type = -1;
	if (!fd_is_readable(s->channel->fd, timeout_ms) ||
	    ibv_get_cq_event(s->channel, &cq, &context) != 0)
		return;
	r->event.type = 0;
	r->event.recv = cq == s->cq[1];
	ibv_ack_cq_events(cq, 1);
}

/* ---- bytes ----
 *
 * What orders these looks after the peer's RDMA is a completion at the peer and its word over a
 * pipe: nothing that ThreadSanitizer of this process could know. */
#define REMOTE_ORDER __attribute__((no_sanitize("thread")))

/* Eight bytes of the pattern at word i. */
REMOTE_ORDER static uint64_t side_pattern(uint64_t seed, uint64_t i)
{
	uint64_t x = (seed << 40) + i + 0x9e3779b97f4a7c15ull * (seed + i);

	x ^= x >> 29;
	return x * 0xbf58476d1ce4e5b9ull;
}

REMOTE_ORDER static void side_fill(struct side *s, uint64_t offset, uint64_t length,
				   uint64_t seed)
{
	uint8_t *to = s->buffer + offset;
	uint64_t i = 0, word;

	for (; i + 8 <= length; i += 8) {
		word = side_pattern(seed, i / 8);
		memcpy(to + i, &word, 8);
	}
	word = side_pattern(seed, i / 8);
	for (uint64_t k = 0; i + k < length; k++)
		to[i + k] = ((const uint8_t *)&word)[k];
}

/* Offset of the first byte of the word at `at`, `n` bytes of it, that the pattern does not have. */
REMOTE_ORDER static int side_wrong_byte(const uint8_t *at, uint64_t n, uint64_t word)
{
	for (uint64_t k = 0; k < n; k++)
		if (at[k] != ((const uint8_t *)&word)[k])
			return (int)k;
	return -1;
}

REMOTE_ORDER static int64_t side_check(struct side *s, uint64_t offset, uint64_t length,
				       uint64_t seed, uint64_t or_seed)
{
	const uint8_t *at = s->buffer + offset;

	for (uint64_t i = 0; i < length; i += 8) {
		uint64_t n = length - i < 8 ? length - i : 8;
		int wrong = side_wrong_byte(at + i, n, side_pattern(seed, i / 8));

		if (wrong >= 0 && side_wrong_byte(at + i, n, side_pattern(or_seed, i / 8)) >= 0)
			return (int64_t)i + wrong;
	}
	return -1;
}

/* ---- the rest ---- */

static int side_make_ah(struct side *s, const struct side_call *c)
{
	struct ibv_ah_attr attr = { .is_global = 1,
				    .port_num = 1,
				    .grh = { .dgid = c->ah.gid,
					     .sgid_index = side_gid_index(),
					     .hop_limit = 64 } };

	if (s->ah != NULL)
		ibv_destroy_ah(s->ah);
	if (c->ah.from_wc)
		s->ah = ibv_create_ah_from_wc(s->pd, &s->last_recv,
					      (struct ibv_grh *)(s->buffer + c->ah.grh), 1);
	else
		s->ah = ibv_create_ah(s->pd, &attr);
	return s->ah == NULL ? errno : 0;
}

static int side_deregister(struct side *s, uint32_t i)
{
	int err = ibv_dereg_mr(s->mr[i]);

	if (err == 0)
		s->mr[i] = NULL;
	return err;
}

static int side_destroy_qp(struct side *s, uint32_t i)
{
	int err = ibv_destroy_qp(s->qp[i]);

	if (err == 0)
		s->qp[i] = NULL;
	return err;
}

static int side_set_limit(struct side *s, uint32_t limit)
{
	struct ibv_srq_attr attr = { .srq_limit = limit };

	return ibv_modify_srq(s->srq, &attr, IBV_SRQ_LIMIT);
}

static void side_reg_call(struct side *s, const struct side_call *c, struct side_reply *r)
{
	r->err = side_register(s, c->reg.other_pd ? s->other_pd : s->pd, c->reg.offset,
			       c->reg.length, c->reg.access, &r->reg.mr);
	if (r->err != 0)
		return;
	r->reg.lkey = s->mr[r->reg.mr]->lkey;
	r->reg.rkey = s->mr[r->reg.mr]->rkey;
}

/* Calls on a queue pair. False: not one of them. */
static bool side_serve_qp(struct side *s, const struct side_call *c, struct side_reply *r)
{
	struct ibv_qp *qp = s->qp[c->qp];
	struct ibv_qp_attr attr;

	switch (c->op) {
	case SIDE_CONNECT:
		r->err = side_connect(s, qp, &c->connect);
		return true;
	case SIDE_MODIFY:
		attr = c->modify.attr;
		r->err = ibv_modify_qp(qp, &attr, c->modify.mask);
		return true;
	case SIDE_QUERY:
		r->err = ibv_query_qp(qp, &r->query.attr, IBV_QP_STATE, &r->query.init);
		return true;
	case SIDE_SEND:
		side_post_send(s, c, r);
		return true;
	case SIDE_RECV:
		side_post_recv(s, c, r);
		return true;
	case SIDE_DESTROY_QP:
		r->err = side_destroy_qp(s, c->qp);
		return true;
	case SIDE_CREATE_QP:
		r->err = side_make_qp(s, c->qp);
		if (r->err == 0)
			r->err = side_address(s, &r->address);
		return true;
	case SIDE_MCAST:
		r->err = c->mcast.leave ? ibv_detach_mcast(qp, &c->mcast.gid, 0) :
					  ibv_attach_mcast(qp, &c->mcast.gid, 0);
		return true;
	default:
		return false;
	}
}

REMOTE_ORDER static uint64_t side_word(struct side *s, uint64_t offset)
{
	return *(volatile uint64_t *)(s->buffer + offset);
}

static void side_serve_memory(struct side *s, const struct side_call *c, struct side_reply *r)
{
	switch (c->op) {
	case SIDE_FILL:
		side_fill(s, c->bytes.offset, c->bytes.length, c->bytes.seed);
		break;
	case SIDE_CHECK:
		r->check.wrong = side_check(s, c->bytes.offset, c->bytes.length, c->bytes.seed,
					    c->bytes.or_seed);
		break;
	case SIDE_REGISTER:
		side_reg_call(s, c, r);
		break;
	case SIDE_DEREGISTER:
		r->err = side_deregister(s, c->dereg.mr);
		break;
	case SIDE_WORD:
		r->word = side_word(s, c->word.offset);
		break;
	default:
		r->err = EBADRQC;
		break;
	}
}

void side_serve(struct side *s, const struct side_call *c, struct side_reply *r)
{
	memset(r, 0, sizeof(*r));
	if (side_serve_qp(s, c, r))
		return;
	switch (c->op) {
	case SIDE_OPEN:
		r->err = side_open(s, &c->open, &r->address);
		break;
	case SIDE_CLOSE:
		side_close(s);
		break;
	case SIDE_POLL:
		side_poll(s, c, r);
		break;
	case SIDE_EVENT:
		side_event(s, c->event.timeout_ms, r);
		break;
	case SIDE_CQ_EVENT:
		side_cq_event(s, c->event.timeout_ms, r);
		break;
	case SIDE_ARM:
		r->err = ibv_req_notify_cq(s->cq[1], c->arm.solicited_only);
		break;
	case SIDE_SRQ_LIMIT:
		r->err = side_set_limit(s, c->srq.limit);
		break;
	case SIDE_AH:
		r->err = side_make_ah(s, c);
		break;
	default:
		side_serve_memory(s, c, r);
		break;
	}
}

struct ibv_qp *side_qp(const struct side *s, uint32_t qp)
{
	return s->qp[qp];
}
