/* streams_verbs.c: what rsocket streams use of verbs, over the engines of test/engine/net.c.
 * In: calls of lib/rdmacm/rsocket    Out: queue pairs, completion queues and regions of the engines
 */
#include <stdlib.h>

#include "streams.h"

#undef ibv_reg_mr

enum { VERBS_QPS = 1 << 13, VERBS_WRS = 16384, VERBS_TIMEOUT = 14 };

struct verbs_pd {
	struct ibv_pd ibv; /* first */
	u32 number;
	u32 users; /* queue pairs and regions */
};

struct verbs_qp {
	struct ibv_qp ibv; /* first */
	struct ibt_qp *engine;
	struct verbs_pd *pd;
	int side;
	u32 psn;
};

struct verbs_cq {
	struct ibv_cq ibv; /* first */
	struct cq cq;
};

struct verbs_mr {
	struct ibv_mr ibv; /* first */
	struct verbs_pd *pd;
	int side;
};

static struct ibv_context contexts[STREAMS_SIDES];
static u32 live;

static struct verbs_qp *verbs_qp(struct ibv_qp *qp)
{
	return (struct verbs_qp *)qp;
}

static int verbs_side(const struct ibv_context *c)
{
	return (int)(c - contexts);
}

u32 verbs_live(void)
{
	return live;
}

/* ---- the data path ---- */

static int verbs_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	return -ibt_post_send(verbs_qp(qp)->engine, wr, bad, NULL);
}

static int verbs_post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	return -ibt_post_recv(verbs_qp(qp)->engine, wr, bad);
}

static int verbs_poll_cq(struct ibv_cq *cq, int n, struct ibv_wc *wc)
{
	return cq_pop(&((struct verbs_cq *)cq)->cq, n, wc);
}

struct ibv_context *verbs_context(int side)
{
	contexts[side].ops.post_send = verbs_post_send;
	contexts[side].ops.post_recv = verbs_post_recv;
	contexts[side].ops.poll_cq = verbs_poll_cq;
	return &contexts[side];
}

struct ibv_pd *ibv_alloc_pd(struct ibv_context *context)
{
	static u32 numbers;
	struct verbs_pd *pd = calloc(1, sizeof(*pd));

	if (pd == NULL)
		abort();
	pd->ibv.context = context;
	pd->number = ++numbers;
	live++;
	return &pd->ibv;
}

int ibv_dealloc_pd(struct ibv_pd *ibv)
{
	struct verbs_pd *pd = (struct verbs_pd *)ibv;

	streams_check(pd->users == 0, "a domain ends before %u of its users", pd->users);
	free(pd);
	live--;
	return 0;
}

int ibv_query_device(struct ibv_context *context, struct ibv_device_attr *attr)
{
	*attr = (struct ibv_device_attr){ .max_qp_wr = VERBS_WRS };
	return 0;
}

/* ---- completion queues: lib/rdmacm/rsocket/cq.h ---- */

int rsocket_cq_create(struct rsocket_cq *c, struct ibv_context *verbs, u32 entries,
		      struct wait_queue *waiters)
{
	struct verbs_cq *cq = calloc(1, sizeof(*cq));

	if (cq == NULL || cq_init(&cq->cq, entries) != 0)
		abort();
	cq->cq.credit = ibt_credit;
	cq->ibv.context = verbs;
	c->cq = &cq->ibv;
	c->waiters = waiters;
	live++;
	return 0;
}

void rsocket_cq_destroy(struct rsocket_cq *c)
{
	struct verbs_cq *cq = (struct verbs_cq *)c->cq;

	c->cq = NULL;
	if (cq == NULL)
		return;
	cq_fini(&cq->cq);
	free(cq);
	live--;
}

/* Sleeping calls look after each thing that happens (streams_wait.c). */
void rsocket_cq_arm(struct rsocket_cq *c)
{
}

/* ---- queue pairs ---- */

static void verbs_init_qp(struct verbs_qp *q)
{
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_INIT,
				 .port_num = 1,
				 .qp_access_flags = IBV_ACCESS_REMOTE_WRITE };
	int err = ibt_qp_modify(q->engine, &a,
				IBV_QP_STATE | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS |
					IBV_QP_PKEY_INDEX,
				NULL, NULL);

	streams_check(err == 0, "a queue pair does not reach INIT: %d", err);
}

int rsocket_qp_create(struct rdma_cm_id *id, struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
	static u32 numbers;
	struct verbs_qp *q = calloc(1, sizeof(*q));
	struct ibt_qp_init init = { .type = IBV_QPT_RC,
				    .pd = ((struct verbs_pd *)pd)->number,
				    .cap = attr->cap,
				    .send_cq = &((struct verbs_cq *)attr->send_cq)->cq,
				    .recv_cq = &((struct verbs_cq *)attr->recv_cq)->cq,
				    .sq_sig_all = attr->sq_sig_all };
	int err;

	if (q == NULL)
		abort();
	q->pd = (struct verbs_pd *)pd;
	q->pd->users++;
	q->side = verbs_side(id->verbs);
	q->ibv.context = id->verbs;
	q->ibv.qp_num = init.qpn = 2 + numbers++ % VERBS_QPS;
	init.counters = &streams_net.side[q->side].qp_counters;
	err = ibt_qp_create(streams_net.side[q->side].ibt, &init, &q->engine);
	streams_check(err == 0, "a queue pair cannot be created: %d", err);
	attr->cap = init.cap;
	verbs_init_qp(q);
	id->qp = &q->ibv;
	live++;
	return 0;
}

void rdma_destroy_qp(struct rdma_cm_id *id)
{
	struct verbs_qp *q = verbs_qp(id->qp);

	ibt_qp_destroy(q->engine);
	q->pd->users--;
	free(q);
	id->qp = NULL;
	live--;
}

void verbs_connect_qp(struct ibv_qp *qp, u32 peer, u32 psn, u32 peer_psn)
{
	struct net_qp how = net_qp_defaults(IBV_QPT_RC);
	struct verbs_qp *q = verbs_qp(qp);

	how.sq_psn = psn;
	how.rq_psn = peer_psn;
	how.timeout = VERBS_TIMEOUT;
	net_qp_connect(&streams_net, q->side, q->engine, peer, &how);
}

void verbs_break_qp(struct ibv_qp *qp)
{
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_ERR };

	(void)ibt_qp_modify(verbs_qp(qp)->engine, &a, IBV_QP_STATE, NULL, NULL);
}

/* ---- memory ---- */

struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *addr, size_t length, int access)
{
	struct verbs_mr *mr = calloc(1, sizeof(*mr));
	struct mem_region region = { .addr = (u64)(uintptr_t)addr,
				     .length = length,
				     .iova = (u64)(uintptr_t)addr,
				     .access = (u32)access,
				     .pd = ((struct verbs_pd *)pd)->number,
				     .flags = MEM_CONTIGUOUS };
	u32 key;
	int err;

	if (mr == NULL)
		abort();
	mr->pd = (struct verbs_pd *)pd;
	mr->pd->users++;
	mr->side = verbs_side(pd->context);
	err = mem_register(&streams_net.side[mr->side].mem, &region, &key);
	streams_check(err == 0, "memory cannot be registered: %d", err);
	mr->ibv.lkey = mr->ibv.rkey = key;
	live++;
	return &mr->ibv;
}

struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *pd, void *addr, size_t length, u64 iova,
				unsigned access)
{
	return ibv_reg_mr(pd, addr, length, (int)access);
}

int ibv_dereg_mr(struct ibv_mr *ibv)
{
	struct verbs_mr *mr = (struct verbs_mr *)ibv;
	int err = mem_deregister(&streams_net.side[mr->side].mem, ibv->lkey);

	streams_check(err == 0, "memory cannot be deregistered: %d", err);
	mr->pd->users--;
	free(mr);
	live--;
	return 0;
}

/* ---- lib/rdmacm/rsocket/device.h ---- */

int rsocket_buffer_create(struct rsocket_buffer *b, struct ibv_pd *pd, size_t size, int access)
{
	b->at = calloc(1, size);
	if (b->at == NULL)
		abort();
	b->mr = ibv_reg_mr(pd, b->at, size, access);
	return 0;
}

void rsocket_buffer_destroy(struct rsocket_buffer *b)
{
	if (b->at == NULL)
		return;
	ibv_dereg_mr(b->mr);
	free(b->at);
	*b = (struct rsocket_buffer){ .at = NULL };
}

bool rsocket_store(struct ibv_qp *qp, u32 rkey, u64 va, const void *from, u32 length)
{
	return false;
}

/* Nor is any peer on this host. */
bool rsocket_hears_of_death(struct ibv_qp *qp)
{
	return false;
}

void rsocket_device_use(struct ibv_context *verbs)
{
}
