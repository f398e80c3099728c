/* net.c: the path in memory, virtual time, and two sides to test with. */
#include "net.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static u64 net_clock = 1000 * NS_PER_S;

u64 net_now(void)
{
	return net_clock;
}

void net_freeze(u64 ns)
{
	net_clock += ns;
}

u32 net_random(struct net *net, u32 below)
{
	net->random = net->random * 6364136223846793005ull + 1442695040888963407ull;
	return (u32)((net->random >> 33) % below);
}

static struct net_dest *net_dest_of(const struct path_dest *d)
{
	return container_of((struct path_dest *)(uintptr_t)d, struct net_dest, dest);
}

/* ---- the path ---- */

static void net_dest_hold(struct path_dest *d)
{
	net_dest_of(d)->net->side[net_dest_of(d)->side].refs++;
}

static void net_dest_put(struct path_dest *d)
{
	net_dest_of(d)->net->side[net_dest_of(d)->side].refs--;
}

/* What a packet counts in the receiver's buffer: some 256 bytes more than it has, or a page. */
static u64 net_weight(const struct pkt *p)
{
	return p->length <= 256 ? 768 : p->length + 512;
}

static bool net_has_room(const struct net *net, int to)
{
	u32 n = 0;

	for (u32 i = 0; i < net->count; i++)
		n += net->flying[i]->to == to;
	return net->cfg.room[to] == 0 || n < net->cfg.room[to];
}

static void net_fly(struct net *net, int to, const struct pkt *p, const struct iovec *iov, int n,
		    u64 delay_ns)
{
	struct net_packet *f = malloc(sizeof(*f));
	u32 at = 0;

	assert_non_null(f);
	assert_true(net->count < NET_MAX);
	*f = (struct net_packet){
		.to = to, .plane = net->sending, .pkt = *p, .order = net->order++
	};
	f->due_ns = net_clock + delay_ns;
	for (int i = 0; i < n; i++) {
		assert_true(at + iov[i].iov_len <= NET_PAYLOAD);
		memcpy(f->payload + at, iov[i].iov_base, iov[i].iov_len);
		at += (u32)iov[i].iov_len;
	}
	assert_int_equal(at, p->length);
	net->flying[net->count++] = f;
	if (net->cfg.batches_lost && net->distrusted[1 - to] == 0) {
		assert_true(net->batch_count < NET_BATCH);
		net->batch[net->batch_count++] = f;
	}
	net->buffered[to] += net_weight(p);
	net->most_buffered = MAX(net->most_buffered, net->buffered[to]);
}

static u64 net_delay(struct net *net)
{
	bool late = net_random(net, 10000) < net->cfg.late;

	return net->cfg.delay_ns + (late ? net_random(net, (u32)net->cfg.late_ns) : 0);
}

/* The switch: what it has not sent yet is its queue. False: there is no room for one more. */
static bool net_switch(struct net *net, int to, struct pkt *p, u64 *delay_ns)
{
	const struct net_config *c = &net->cfg;
	u64 busy = MAX(net->busy_ns[to], net_clock);
	u64 queued = (busy - net_clock) * c->bottleneck / NS_PER_S, bytes = p->length + 60;

	if (queued + bytes > c->queue)
		return false;
	net->most_queued = MAX(net->most_queued, queued + bytes);
	if (queued >= c->mark_from &&
	    (queued >= c->mark_to || net_random(net, 10 * (c->mark_to - c->mark_from)) <
						     queued - c->mark_from)) {
		p->traffic_class = PATH_ECN_MARKED;
		net->marked++;
	}
	net->busy_ns[to] = busy + bytes * NS_PER_S / c->bottleneck;
	*delay_ns += net->busy_ns[to] - net_clock;
	return true;
}

/* What the wire does not carry the receiver does not see. */
static struct pkt net_on_wire(const struct net *net, const struct pkt *p)
{
	struct pkt q = *p;

	if (net->cfg.reliable)
		return q;
	assert_int_not_equal(p->opcode, PKT_ABSENT);
	assert_int_equal(p->flags & (PKT_HAS_ACK | PKT_PULL | PKT_PLACED), 0);
	q.psn &= 0xffffff;
	assert_int_equal(q.psn, p->psn);
	if (p->qp_type != IBV_QPT_UD)
		q.sqpn = 0;
	if (p->opcode == PKT_CNP)
		q.qp_type = 0;
	q.traffic_class = PATH_ECN_CAPABLE;
	return q;
}

static int net_send(struct path_dest *d, const struct pkt *p, const struct iovec *iov, int n)
{
	struct net *net = net_dest_of(d)->net;
	int from = net_dest_of(d)->side, to = net_dest_of(d)->to;
	struct pkt q = net_on_wire(net, p);
	u64 delay;

	if (!net_has_room(net, to))
		return -EAGAIN;
	net->sent++;
	net->sending = net_dest_of(d)->plane;
	if (net->cut[net->sending]) {
		net->lost++;
		return 0;
	}
	if (net->tap != NULL && net->tap(net, from, &q)) {
		net->lost++;
		return 0;
	}
	if (net_random(net, 10000) < net->cfg.loss) {
		net->lost++;
		return 0;
	}
	delay = net_delay(net);
	if (net->cfg.bottleneck != 0 && !net_switch(net, to, &q, &delay)) {
		net->lost++;
		return 0;
	}
	net_fly(net, to, &q, iov, n, delay);
	if (net_random(net, 10000) < net->cfg.doubling)
		net_fly(net, to, &q, iov, n, net_delay(net));
	return 0;
}

static u32 net_send_briefs(struct path_dest *d, const struct pkt_brief *b,
			   const void *const *payload, u32 n)
{
	for (u32 i = 0; i < n; i++) {
		struct iovec iov = { (void *)(uintptr_t)payload[i], b[i].length };
		struct pkt p = pkt_from_brief(&b[i]);

		if (net_send(d, &p, &iov, 1) != 0)
			return i;
	}
	return n;
}

static bool net_same(const struct path_dest *d, const struct path_dest *from)
{
	return net_dest_of(d)->side == net_dest_of(from)->side &&
	       net_dest_of(d)->plane == net_dest_of(from)->plane;
}

/* Of those that will be received. */
static struct net_packet *net_next(struct net *net, int to)
{
	struct net_packet *next = NULL;

	for (u32 i = 0; i < net->count; i++) {
		struct net_packet *f = net->flying[i];

		if ((to < 0 || f->to == to) && !net->side[f->to].held_up &&
		    (next == NULL || f->due_ns < next->due_ns ||
		     (f->due_ns == next->due_ns && f->order < next->order)))
			next = f;
	}
	return next;
}

static void net_land(struct net *net, struct net_packet *f)
{
	for (u32 i = 0; i < net->count; i++)
		if (net->flying[i] == f)
			net->flying[i] = net->flying[--net->count];
	net->buffered[f->to] -= net_weight(&f->pkt);
}

/* The one way or the other, as the path of this host does. */
static void net_give(struct path *p, struct path_dest *from, const struct net_packet *f)
{
	struct pkt_brief b;

	if (pkt_to_brief(&f->pkt, &b) && p->user_ops->receive_brief(p->user, from, &b, f->payload))
		net_dest_of(from)->net->briefs++;
	else
		p->user_ops->receive(p->user, from, &f->pkt, f->payload);
}

/* Those at the front that the engine takes together: how many. */
static u32 net_give_run(struct path *p, struct path_dest *from, struct net_packet **due, u32 n)
{
	struct net *net = net_dest_of(from)->net;
	struct pkt_brief b[NET_RUN];
	const void *payload[NET_RUN];
	u32 count = 0;

	while (!net->cfg.singly && count < n && pkt_to_brief(&due[count]->pkt, &b[count])) {
		payload[count] = due[count]->payload;
		count++;
	}
	if (count != 0)
		count = p->user_ops->receive_run(p->user, from, b, payload, count);
	net->briefs += count;
	net->in_runs += count;
	return count;
}

static void net_give_all(struct path *p, struct path_dest *from, struct net_packet **due, u32 n)
{
	u32 at = 0;

	while (at < n) {
		u32 taken = net_give_run(p, from, due + at, n - at);

		if (taken == 0)
			net_give(p, from, due[at++]);
		at += taken;
	}
}

static void net_flush(struct path_dest *d)
{
	struct net *net = net_dest_of(d)->net;

	for (u32 i = 0; i < net->batch_count && net->batch_count > 1; i++) {
		net_land(net, net->batch[i]);
		free(net->batch[i]);
		net->lost++;
	}
	net->batch_count = 0;
}

static void net_batches_lost(struct path_dest *d)
{
	net_dest_of(d)->net->distrusted[net_dest_of(d)->side]++;
}

/* What has arrived leaves the path: up to `most` at once where none is lost or late. */
static u32 net_take_due(struct net_side *s, struct net_packet **due, u32 most)
{
	u32 n = 0;

	most = s->net->cfg.reliable ? MIN(most, (u32)NET_RUN) : 1;
	while (n < most && (due[n] = net_next(s->net, s->index)) != NULL &&
	       due[n]->due_ns <= net_clock)
		net_land(s->net, due[n++]);
	return n;
}

static int net_poll(struct path *p, int budget, bool must)
{
	struct net_side *s = container_of(p, struct net_side, path);
	struct net_packet *due[NET_RUN];
	u32 got;
	int n = 0;

	if (s->held_up)
		return 0;
	while (n < budget && (got = net_take_due(s, due, (u32)(budget - n))) != 0) {
		net_give_all(p, due[0]->plane == 0 ? &s->from.dest : &s->from_second.dest, due,
			     got);
		for (u32 i = 0; i < got; i++)
			free(due[i]);
		n += (int)got;
	}
	p->user_ops->batch_end(p->user, &s->from.dest, n == 0);
	if (s->net->cfg.planes)
		p->user_ops->batch_end(p->user, &s->from_second.dest, n == 0);
	if (path_is_awaited(&s->dest.dest) && net_has_room(s->net, 1 - s->index))
		p->user_ops->writable(p->user, &s->dest.dest);
	if (n == 0 && !s->flooded)
		path_found_empty(p);
	return n;
}

/* Keys are not looked at. */
static int net_direct(struct path_dest *d, const struct path_target *t, const struct iovec *iov,
		      int n)
{
	u8 *at = (u8 *)(uintptr_t)t->va;

	if (!net_dest_of(d)->net->cfg.direct)
		return -EOPNOTSUPP;
	for (int i = 0; i < n; at += iov[i++].iov_len)
		memcpy(t->write ? at : iov[i].iov_base, t->write ? iov[i].iov_base : at,
		       iov[i].iov_len);
	return 0;
}

static bool net_pullable(struct path_dest *d)
{
	return net_dest_of(d)->net->cfg.direct;
}

static bool net_can_pull(struct net_config *cfg)
{
	if (cfg->pulls != 0 && --cfg->pulls == 0)
		cfg->unreadable = true;
	return cfg->direct && !cfg->unreadable;
}

static int net_pull(struct path_dest *from, u32 sqpn, u32 dqpn, const struct iovec *theirs, int n,
		    const struct iovec *ours, int m, u64 bytes)
{
	const struct iovec *end = ours + m;
	size_t done = 0;

	if (!net_can_pull(&net_dest_of(from)->net->cfg))
		return -EOPNOTSUPP;
	for (int i = 0; i < n; i++)
		for (size_t k, at = 0; at < theirs[i].iov_len; at += k) {
			if (done == ours->iov_len) {
				ours++;
				done = 0;
			}
			assert_true(ours < end);
			k = MIN(theirs[i].iov_len - at, ours->iov_len - done);
			memcpy((u8 *)ours->iov_base + done, (u8 *)theirs[i].iov_base + at, k);
			done += k;
			bytes -= k;
		}
	assert_true(ours + 1 == end && done == ours->iov_len && bytes == 0);
	return 0;
}

/* Of the numbers of its tests all queue pairs are, also those of a process that has died. */
static bool net_holds(const struct path_dest *d, u32 qpn, u32 type)
{
	return true;
}

static void net_exclude(struct path *p, void (*fn)(void *arg), void *arg)
{
	fn(arg);
}

static const struct path_ops net_ops = {
	.name = "net",
	.dest_hold = net_dest_hold,
	.dest_put = net_dest_put,
	.send = net_send,
	.send_briefs = net_send_briefs,
	.flush = net_flush,
	.batches_lost = net_batches_lost,
	.direct = net_direct,
	.pullable = net_pullable,
	.pull = net_pull,
	.poll = net_poll,
	.same = net_same,
	.holds = net_holds,
	.exclude = net_exclude,
};

/* ---- sides ---- */

static void net_kick(void *arg)
{
}

static void net_publish(void *arg, struct ibt_qp *qp)
{
}

static void net_async(void *arg, struct ibt_qp *qp, struct ibt_srq *srq, enum ibv_event_type type)
{
	struct net_side *s = arg;

	s->events[type]++;
}

static struct path_dest *net_route(void *arg, const struct path_av *av, const struct pkt *p)
{
	struct net_side *s = arg;
	struct path_dest *d = p->dqpn == NET_SECOND_QPN ? &s->second.dest : &s->dest.dest;

	net_dest_hold(d);
	return d;
}

static int net_multicast(void *arg, const struct path_av *av, const struct pkt *p, u32 from,
		  struct ibt_member *out, int max)
{
	struct net_side *s = arg;
	int n = 0;

	/* members have come and gone: there is an empty place before each */
	for (u32 i = from / 2; i < s->members && n < max; i++) {
		net_dest_hold(&s->dest.dest);
		out[n++] = (struct ibt_member){ &s->dest.dest, NET_MEMBER + i, 2 * i + 1 };
	}
	return n;
}

static void net_open_side(struct net *net, int index)
{
	struct net_side *s = &net->side[index];
	struct ibt_config cfg = { .mem = &s->mem,
				  .timers = &s->timers,
				  .kick = net_kick,
				  .publish = net_publish,
				  .async = net_async,
				  .multicast = net_multicast,
				  .route = net_route,
				  .arg = s };
	struct mem_region region;

	s->net = net;
	s->index = index;
	s->path.ops = &net_ops;
	s->path.counters = s->counters;
	s->path.guarantees.ordered = s->path.guarantees.reliable = net->cfg.reliable;
	s->path.guarantees.direct = net->cfg.direct;
	s->path.guarantees.mtu = net->cfg.mtu != 0 ? net->cfg.mtu : 4096;
	s->dest = (struct net_dest){ .side = index, .to = 1 - index, .net = net };
	s->second = s->from = s->from_second = s->dest;
	s->second.plane = s->from_second.plane = net->cfg.planes;
	path_dest_init(&s->dest.dest, &s->path);
	path_dest_init(&s->from.dest, &s->path);
	path_dest_init(&s->second.dest, &s->path);
	path_dest_init(&s->from_second.dest, &s->path);
	timer_set_init(&s->timers);
	assert_int_equal(mem_table_init(&s->mem, NULL), 0);
	s->memory = calloc(1, NET_MEMORY);
	assert_non_null(s->memory);
	region = (struct mem_region){ .addr = (u64)(uintptr_t)s->memory,
				      .length = NET_MEMORY,
				      .iova = (u64)(uintptr_t)s->memory,
				      .access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
						IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC |
						MEM_ACCESS_FLUSH,
				      .pd = 1,
				      .flags = MEM_CONTIGUOUS };
	assert_int_equal(mem_register(&s->mem, &region, &s->key), 0);
	assert_int_equal(cq_init(&s->send_cq, NET_COMPLETIONS), 0);
	assert_int_equal(cq_init(&s->recv_cq, NET_COMPLETIONS), 0);
	s->send_cq.credit = s->recv_cq.credit = ibt_credit;
	s->ibt = ibt_create(&cfg);
	assert_non_null(s->ibt);
	ibt_add_path(s->ibt, &s->path);
}

void net_open(struct net *net, const struct net_config *cfg)
{
	memset(net, 0, sizeof(*net));
	net->cfg = *cfg;
	net->random = cfg->seed * 2654435761u + 1;
	clock_set_source(net_now);
	net_open_side(net, 0);
	net_open_side(net, 1);
}

void net_close(struct net *net)
{
	for (u32 i = 0; i < net->count; i++)
		free(net->flying[i]);
	for (int i = 0; i < 2; i++) {
		struct net_side *s = &net->side[i];

		assert_int_equal(s->refs, 0);
		ibt_destroy(s->ibt);
		timer_set_destroy(&s->timers);
		cq_fini(&s->send_cq);
		cq_fini(&s->recv_cq);
		mem_table_fini(&s->mem);
		free(s->memory);
	}
	clock_set_source(NULL);
}

/* ---- time ---- */

static void net_poll_all(struct net *net)
{
	int n;

	do {
		n = 0;
		for (int i = 0; i < 2; i++) {
			n += ibt_poll(net->side[i].ibt, 16);
			n += timer_run(&net->side[i].timers, net_clock);
		}
	} while (n != 0);
}

bool net_step(struct net *net)
{
	struct net_packet *f = net_next(net, -1);
	u64 next = MIN(timer_next_ns(&net->side[0].timers), timer_next_ns(&net->side[1].timers));

	if (f != NULL)
		next = MIN(next, f->due_ns);
	if (next == TIMER_NEVER)
		return false;
	net_clock = MAX(net_clock, next);
	net_poll_all(net);
	return true;
}

void net_run(struct net *net, u64 limit_ns)
{
	u64 end = net_clock + limit_ns;

	net_poll_all(net);
	for (;;) {
		struct net_packet *f = net_next(net, -1);
		u64 next = MIN(timer_next_ns(&net->side[0].timers),
			       timer_next_ns(&net->side[1].timers));

		next = f == NULL ? next : MIN(next, f->due_ns);
		if (next == TIMER_NEVER)
			return;
		if (next > end) {
			net_clock = end;
			return;
		}
		net_step(net);
	}
}

u32 net_in_flight(const struct net_side *s) NO_THREAD_SAFETY /* there is one thread */
{
	return s->dest.dest.window->in_flight;
}

void net_inject(struct net *net, int to, const struct pkt *p, const void *payload)
{
	struct path *path = &net->side[to].path;

	if (payload == NULL) /* a path says where it would be */
		payload = "";
	path->user_ops->receive(path->user, &net->side[to].from.dest, p, payload);
	path->user_ops->batch_end(path->user, &net->side[to].from.dest, true);
}

/* ---- queue pairs ---- */

struct net_qp net_qp_defaults(enum ibv_qp_type type)
{
	return (struct net_qp){ .type = type,
				.mtu = IBV_MTU_1024,
				.depth = 128,
				.rq_psn = 100,
				.sq_psn = 100,
				.timeout = 14,
				.retry_cnt = 7,
				.rnr_retry = 7,
				.min_rnr_timer = 12,
				.rd_atomic = 4,
				.all_signalled = true };
}

struct ibt_qp *net_qp_create(struct net *net, int side, u32 qpn, const struct net_qp *q)
{
	struct net_side *s = &net->side[side];
	struct ibt_qp_init init = { .type = q->type,
				    .qpn = qpn,
				    .pd = 1,
				    .cap = { .max_send_wr = q->depth,
					     .max_recv_wr = q->depth,
					     .max_send_sge = 4,
					     .max_recv_sge = 4,
					     .max_inline_data = 128 },
				    .send_cq = &s->send_cq,
				    .recv_cq = &s->recv_cq,
				    .srq = q->srq,
				    .sq_sig_all = q->all_signalled,
				    .counters = &s->qp_counters };
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_INIT,
				 .port_num = 1,
				 .qp_access_flags = IBV_ACCESS_REMOTE_WRITE |
						    IBV_ACCESS_REMOTE_READ |
						    IBV_ACCESS_REMOTE_ATOMIC | MEM_ACCESS_FLUSH };
	struct ibt_qp *qp;

	assert_int_equal(ibt_qp_create(s->ibt, &init, &qp), 0);
	assert_int_equal(ibt_qp_modify(qp, &a,
				       IBV_QP_STATE | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS |
					       IBV_QP_PKEY_INDEX,
				       NULL, NULL),
			 0);
	return qp;
}

void net_qp_connect(struct net *net, int side, struct ibt_qp *qp, u32 peer,
		    const struct net_qp *q)
{
	struct net_side *s = &net->side[side];
	struct path_av av = { .hop_limit = 64 };
	struct path_dest *dest = q->second ? &s->second.dest : &s->dest.dest;
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_RTR,
				 .path_mtu = q->mtu,
				 .dest_qp_num = peer,
				 .rq_psn = q->rq_psn,
				 .max_dest_rd_atomic = q->rd_atomic,
				 .min_rnr_timer = q->min_rnr_timer };

	net_dest_hold(dest);
	assert_int_equal(ibt_qp_modify(qp, &a,
				       IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU |
					       IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
					       IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER,
				       &av, dest),
			 0);
	if (q->receives)
		return;
	a = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTS,
				  .sq_psn = q->sq_psn,
				  .timeout = q->timeout,
				  .retry_cnt = q->retry_cnt,
				  .rnr_retry = q->rnr_retry,
				  .max_rd_atomic = q->rd_atomic };
	assert_int_equal(ibt_qp_modify(qp, &a,
				       IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT |
					       IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
					       IBV_QP_MAX_QP_RD_ATOMIC,
				       NULL, NULL),
			 0);
}

void net_qp_datagrams(struct ibt_qp *qp, u32 qkey, enum ibv_qp_state until)
{
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_RTR, .qkey = qkey };

	assert_int_equal(ibt_qp_modify(qp, &a, IBV_QP_STATE | IBV_QP_QKEY, NULL, NULL), 0);
	if (until == IBV_QPS_RTR)
		return;
	a.qp_state = IBV_QPS_RTS;
	assert_int_equal(ibt_qp_modify(qp, &a, IBV_QP_STATE | IBV_QP_SQ_PSN, NULL, NULL), 0);
}

void net_pair(struct net *net, struct ibt_qp *qp[2], const struct net_qp *q)
{
	qp[0] = net_qp_create(net, 0, 0x11, q);
	qp[1] = net_qp_create(net, 1, 0x22, q);
	net_qp_connect(net, 0, qp[0], 0x22, q);
	net_qp_connect(net, 1, qp[1], 0x11, q);
}

void net_post_recv(struct net_side *s, struct ibt_qp *qp, u64 wr_id, u32 offset, u32 length)
{
	struct ibv_sge sge = { .addr = (u64)(uintptr_t)s->memory + offset,
			       .length = length,
			       .lkey = s->key };
	struct ibv_recv_wr wr = { .wr_id = wr_id, .sg_list = &sge, .num_sge = 1 }, *bad;

	assert_int_equal(ibt_post_recv(qp, &wr, &bad), 0);
}

struct ibv_send_wr net_wr(struct ibv_sge *sge, struct net_side *s, enum ibv_wr_opcode opcode,
			  u64 wr_id, u32 offset, u32 length)
{
	*sge = (struct ibv_sge){ .addr = (u64)(uintptr_t)s->memory + offset,
				 .length = length,
				 .lkey = s->key };
	return (struct ibv_send_wr){ .wr_id = wr_id,
				     .opcode = opcode,
				     .sg_list = sge,
				     .num_sge = 1,
				     .imm_data = (u32)wr_id };
}

void net_wr_remote(struct ibv_send_wr *wr, struct net_side *other, u32 offset)
{
	u64 va = (u64)(uintptr_t)other->memory + offset;

	if (wr->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD || wr->opcode == IBV_WR_ATOMIC_CMP_AND_SWP) {
		wr->wr.atomic.remote_addr = va;
		wr->wr.atomic.rkey = other->key;
	} else {
		wr->wr.rdma.remote_addr = va;
		wr->wr.rdma.rkey = other->key;
	}
}

void net_post(struct ibt_qp *qp, struct ibv_send_wr *wr)
{
	struct ibv_send_wr *bad;

	assert_int_equal(ibt_post_send(qp, wr, &bad, NULL), 0);
}

struct ibv_wc net_wc(struct cq *cq)
{
	struct ibv_wc wc;

	assert_int_equal(cq_pop(cq, 1, &wc), 1);
	return wc;
}
