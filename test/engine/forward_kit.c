/* forward_kit.c: the members, their ways, their requests, and time.
 * Oracles: requests complete in the order of their posts; each SEND comes to the SRQ that it names,
 * once, in order, with its bytes; a WRITE lies where it should when it completes; a READ shows the
 * memory of the process that it names; no FETCH_ADD is lost or done twice. After a death each
 * request completes all the same, and no process has got what it should not have.
 * In: seeds    Out: verdicts    Runs: cmocka, one thread    Locks: none
 */
#include <errno.h>

#include "forward_kit.h"

struct forward h;

static u64 forward_now(void)
{
	return h.now;
}

u32 lot(u32 below)
{
	h.random = h.random * 6364136223846793005ull + 1442695040888963407ull;
	return (u32)((h.random >> 33) % below);
}

static u8 text(u64 tag, u32 i)
{
	return (u8)(tag * 131 + i * 7 + (i >> 8));
}

static void text_fill(u8 *at, u64 tag, u32 length)
{
	for (u32 i = 0; i < length; i++)
		at[i] = text(tag, i);
}

static void text_check(const u8 *at, u64 tag, u32 length)
{
	for (u32 i = 0; i < length; i++)
		if (at[i] != text(tag, i))
			fail_msg("request %u: byte %u of %u is %02x", (u32)tag, i, length, at[i]);
}

/* ---- the path ---- */

static struct way *way_of(const struct path_dest *d)
{
	return container_of((struct path_dest *)(uintptr_t)d, struct way, dest);
}

static struct member *member_of(struct path *p)
{
	return container_of(p, struct member, path);
}

static struct path_dest *forward_dest_get(struct path *p, const struct path_av *av, u32 qpn)
{
	u32 to = (qpn >> IBT_INDEX_BITS) - 1;

	member_of(p)->refs++;
	return &member_of(p)->way[to < MEMBERS ? to : 0].dest;
}

static void forward_dest_hold(struct path_dest *d)
{
	way_of(d)->owner->refs++;
}

static void forward_dest_put(struct path_dest *d)
{
	way_of(d)->owner->refs--;
}

int forward_path_send(struct path_dest *d, const struct pkt *p, const struct iovec *iov, int n)
{
	struct way *w = way_of(d);
	struct flight *f;
	u32 at = 0;

	if (h.m[w->to].dead)
		return -EPIPE;
	if (w->count >= h.room)
		return -EAGAIN;
	f = malloc(sizeof(*f) + p->length);
	assert_non_null(f);
	f->pkt = *p;
	for (int i = 0; i < n; at += (u32)iov[i++].iov_len)
		memcpy(f->payload + at, iov[i].iov_base, iov[i].iov_len);
	assert_int_equal(at, p->length);
	assert_true(p->length <= MTU);
	if (w->owner->index == 0)
		h.asked = *p;
	h.answers += w->owner->index == 1 && w->to == 0 && p->opcode != PKT_ABSENT;
	f->due_ns = MAX(w->last_ns, h.now + 500 + lot(20000));
	w->last_ns = f->due_ns;
	list_push_back(&w->flights, &f->node);
	w->count++;
	return 0;
}

static void forward_flush(struct path_dest *d)
{
}

struct flight *way_first(const struct way *w)
{
	return list_empty(&w->flights) ? NULL : list_entry(w->flights.next, struct flight, node);
}

void way_take(struct way *w, struct flight *f)
{
	list_remove(&f->node);
	w->count--;
}

static int forward_poll(struct path *p, int budget, bool must)
{
	struct member *m = member_of(p);
	int n = 0;

	for (int from = 0; from < MEMBERS; from++) {
		struct way *w = &h.m[from].way[m->index];
		struct path_dest *back = &m->way[from].dest;
		struct flight *f;

		while (n < budget && (f = way_first(w)) != NULL && f->due_ns <= h.now) {
			way_take(w, f);
			p->user_ops->receive(p->user, back, &f->pkt, f->payload);
			free(f);
			n++;
		}
		p->user_ops->batch_end(p->user, back, n == 0);
	}
	for (int to = 0; to < MEMBERS; to++)
		if (path_is_awaited(&m->way[to].dest) && m->way[to].count < h.room)
			p->user_ops->writable(p->user, &m->way[to].dest);
	if (n == 0)
		path_found_empty(p);
	return n;
}

static bool forward_same(const struct path_dest *d, const struct path_dest *from)
{
	return d == from;
}

static bool forward_holds(const struct path_dest *d, u32 qpn, u32 type)
{
	return h.crowd || type == 0 || (qpn & ((1 << IBT_INDEX_BITS) - 1)) == QPN;
}

static bool forward_pullable(struct path_dest *d)
{
	return false;
}

static void forward_exclude(struct path *p, void (*fn)(void *arg), void *arg)
{
	fn(arg);
}

static const struct path_ops forward_ops = {
	.name = "hand",
	.dest_get = forward_dest_get,
	.dest_hold = forward_dest_hold,
	.dest_put = forward_dest_put,
	.send = forward_path_send,
	.flush = forward_flush,
	.pullable = forward_pullable,
	.poll = forward_poll,
	.same = forward_same,
	.holds = forward_holds,
	.exclude = forward_exclude,
};

/* ---- members ---- */

static void forward_kick(void *arg)
{
}

static void forward_publish(void *arg, struct ibt_qp *qp)
{
}

static void forward_async(void *arg, struct ibt_qp *qp, struct ibt_srq *srq,
			  enum ibv_event_type type)
{
}

static struct path_dest *forward_route(void *arg, const struct path_av *av, const struct pkt *p)
{
	return NULL;
}

static int forward_multicast(void *arg, const struct path_av *av, const struct pkt *p, u32 from,
			     struct ibt_member *out, int max)
{
	return 0;
}

u32 number_of(int index, u32 low)
{
	return (u32)(index + 1) << IBT_INDEX_BITS | low;
}

static void member_open(int index)
{
	struct member *m = &h.m[index];
	struct ibt_config cfg = { .mem = &m->mem,
				  .timers = &m->timers,
				  .kick = forward_kick,
				  .publish = forward_publish,
				  .async = forward_async,
				  .multicast = forward_multicast,
				  .route = forward_route,
				  .arg = m };
	u64 length = index == 0 ? OUT * ROOM : MEMORY;
	struct mem_region region = {
		.length = length, .access = 15, .pd = 1, .flags = MEM_CONTIGUOUS
	};
	struct ibt_srq_init srq = { .pd = 1, .max_wr = RECEIVES, .max_sge = 1, .owner = m };

	m->index = index;
	m->path.ops = &forward_ops;
	m->path.counters = m->counters;
	m->path.guarantees.ordered = m->path.guarantees.reliable = true;
	m->path.guarantees.mtu = MTU;
	for (int to = 0; to < MEMBERS; to++) {
		m->way[to].owner = m;
		m->way[to].to = to;
		list_init(&m->way[to].flights);
		path_dest_init(&m->way[to].dest, &m->path);
	}
	timer_set_init(&m->timers);
	assert_int_equal(mem_table_init(&m->mem, NULL), 0);
	m->memory = calloc(1, length);
	assert_non_null(m->memory);
	region.addr = region.iova = (u64)(uintptr_t)m->memory;
	assert_int_equal(mem_register(&m->mem, &region, &m->key), 0);
	assert_int_equal(cq_init(&m->cq, 256), 0);
	m->ibt = ibt_create(&cfg);
	assert_non_null(m->ibt);
	ibt_add_path(m->ibt, &m->path);
	if (index == 0)
		return;
	text_fill(m->memory + AT_READS, 1000 + (u64)index, ROOM);
	assert_int_equal(ibt_srq_create(m->ibt, &srq, &m->srq), 0);
	assert_int_equal(ibt_srq_enter_domain(m->srq, &m->cq, h.domain, number_of(index, 9)), 0);
}

/* Each receive that has not completed is in the SRQ: no message has taken one along for ever. */
static void member_check_receives(const struct member *m)
{
	struct ibv_recv_wr wr = { .wr_id = RECEIVES }, *bad;
	struct ibv_srq_attr attr;
	u32 count = 0;

	ibt_srq_query(m->srq, &attr);
	for (u32 i = 0; i < RECEIVES; i++)
		count += m->receive[i] == 1;
	while (ibt_srq_post(m->srq, &wr, &bad) == 0)
		count++;
	assert_int_equal(count, attr.max_wr);
}

static void member_close(struct member *m)
{
	for (int to = 0; to < MEMBERS; to++)
		for (struct flight *f; (f = way_first(&m->way[to])) != NULL; free(f))
			way_take(&m->way[to], f);
	if (m->srq != NULL && !m->dead)
		member_check_receives(m);
	if (m->srq != NULL) {
		ibt_srq_leave_domain(m->srq);
		ibt_srq_destroy(m->srq);
	}
	ibt_destroy(m->ibt);
	/* a proxy of the target, which had turned to another process since */
	assert_in_range(m->refs, 0, h.crowd ? m->refs : m->index > 1);
	timer_set_destroy(&m->timers);
	cq_fini(&m->cq);
	mem_table_fini(&m->mem);
	free(m->memory);
}

static struct ibt_qp *qp_open(int index, enum ibv_qp_type type)
{
	bool tgt = type == IBV_QPT_XRC_RECV;
	struct ibt_qp_init init = { .type = type,
				    .qpn = number_of(index, QPN),
				    .pd = tgt ? 0 : 1,
				    .cap = { .max_send_wr = tgt ? 0 : OUT,
					     .max_send_sge = tgt ? 0 : 1 },
				    .send_cq = tgt ? NULL : &h.m[index].cq,
				    .sq_sig_all = true,
				    .xrcd = tgt ? h.domain : 0,
				    .counters = &h.qp_counters };
	struct ibt_qp *qp;

	assert_int_equal(ibt_qp_create(h.m[index].ibt, &init, &qp), 0);
	return qp;
}

static void qp_join(struct ibt_qp *qp, int index, int peer, bool tgt)
{
	struct path_av av = { .hop_limit = 64 };
	struct path_dest *dest = &h.m[index].way[peer].dest;
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_INIT,
				 .port_num = 1,
				 .qp_access_flags = 15,
				 .path_mtu = IBV_MTU_1024,
				 .dest_qp_num = number_of(peer, QPN),
				 .rq_psn = 0xfffff0,
				 .sq_psn = 0xfffff0,
				 .max_rd_atomic = 4,
				 .max_dest_rd_atomic = 4,
				 .min_rnr_timer = 1,
				 .timeout = 14,
				 .retry_cnt = 7,
				 .rnr_retry = 7 };
	const int init = IBV_QP_STATE | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX;
	const int rtr = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
			IBV_QP_RQ_PSN |
			(tgt ? IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER : 0);
	const int rts = IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT |
			(tgt ? 0 : IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC);

	assert_int_equal(ibt_qp_modify(qp, &a, init, NULL, NULL), 0);
	a.qp_state = IBV_QPS_RTR;
	forward_dest_hold(dest);
	assert_int_equal(ibt_qp_modify(qp, &a, rtr, &av, dest), 0);
	a.qp_state = IBV_QPS_RTS;
	assert_int_equal(ibt_qp_modify(qp, &a, rts, NULL, NULL), 0);
}

void forward_begin(u64 seed, u64 domain)
{
	memset(&h, 0, sizeof(h));
	h.domain = domain;
	h.now = NS_PER_S;
	h.random = seed * 2654435761u + 1;
	h.room = 2 + lot(30);
	h.long_one_in = 1 + lot(6);
	clock_set_source(forward_now);
	for (int i = 0; i < MEMBERS; i++)
		member_open(i);
	h.out = h.m[0].memory;
	h.ini = qp_open(0, IBV_QPT_XRC_SEND);
	h.tgt = qp_open(1, IBV_QPT_XRC_RECV);
	qp_join(h.tgt, 1, 0, true);
	qp_join(h.ini, 0, 1, false);
}

void forward_open(u64 seed)
{
	forward_begin(seed, DOMAIN);
}

void forward_close(void)
{
	ibt_qp_destroy(h.ini);
	ibt_qp_destroy(h.tgt);
	forward_pass(NS_PER_S / 10); /* proxies are told */
	for (int i = 0; i < MEMBERS; i++)
		member_close(&h.m[i]);
	clock_set_source(NULL);
}

/* ---- requests ---- */

static void request_draw(struct request *r)
{
	static const enum ibv_wr_opcode opcodes[] = { IBV_WR_SEND, IBV_WR_SEND_WITH_IMM,
						      IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ,
						      IBV_WR_ATOMIC_FETCH_AND_ADD };
	struct member *m;

	*r = (struct request){ .tag = h.posted + 1,
			       .opcode = opcodes[lot(ARRAY_LEN(opcodes))],
			       .to = 1 + (int)lot(MEMBERS - 1),
			       .length = lot(h.long_one_in) == 0 ? lot(ROOM) : lot(200) };
	/* mostly to whom the last one went */
	if (h.posted != 0 && lot(3) != 0)
		r->to = h.request[(h.posted - 1) % OUT].to;
	m = &h.m[r->to];
	if (r->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		r->length = 8;
		r->count = m->adds++;
	} else if (r->opcode == IBV_WR_RDMA_WRITE) {
		r->place = m->writes++ % PLACES;
	} else if (r->opcode != IBV_WR_RDMA_READ) {
		m->wanted[m->wanted_count++] = *r;
	}
}

/* Posts what h.request has at h.posted. */
void request_post(void)
{
	struct request *r = &h.request[h.posted % OUT];
	struct ibv_sge sge = { (u64)(uintptr_t)h.out + h.posted % OUT * ROOM, 0, h.m[0].key };
	struct ibv_send_wr wr = { .sg_list = &sge, .num_sge = 1 }, *bad;
	const struct member *m;
	u64 at;

	m = &h.m[r->to];
	at = (u64)(uintptr_t)m->memory + (r->opcode == IBV_WR_RDMA_READ ? AT_READS
					  : r->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD
						  ? AT_COUNT
						  : AT_WRITES + r->place * ROOM);
	if (r->opcode != IBV_WR_RDMA_READ)
		text_fill(h.out + h.posted % OUT * ROOM, r->tag, r->length);
	sge.length = r->length;
	wr.wr_id = r->tag;
	wr.opcode = r->opcode;
	wr.imm_data = (u32)r->tag;
	if (r->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		wr.wr.atomic.remote_addr = at;
		wr.wr.atomic.rkey = m->key;
		wr.wr.atomic.compare_add = 1;
	} else {
		wr.wr.rdma.remote_addr = at;
		wr.wr.rdma.rkey = m->key;
	}
	wr.qp_type.xrc.remote_srqn = number_of(r->to, 9);
	assert_int_equal(ibt_post_send(h.ini, &wr, &bad, NULL), 0);
	h.posted++;
}

/* It has completed well. */
static void request_check(const struct request *r, const u8 *out)
{
	const struct member *m = &h.m[r->to];
	u64 before;

	if (r->opcode == IBV_WR_RDMA_READ) {
		text_check(out, 1000 + (u64)r->to, r->length);
	} else if (r->opcode == IBV_WR_RDMA_WRITE) {
		text_check(m->memory + AT_WRITES + r->place * ROOM, r->tag, r->length);
	} else if (r->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		memcpy(&before, out, sizeof(before));
		assert_int_equal(before, r->count);
	}
}

static void initiator_poll(void)
{
	struct ibv_wc wc;

	while (cq_pop(&h.m[0].cq, 1, &wc) == 1) {
		const struct request *r = &h.request[h.done % OUT];

		assert_true(h.done < h.posted);
		assert_int_equal(wc.wr_id, r->tag);
		if (h.failed)
			assert_int_equal(wc.status, IBV_WC_WR_FLUSH_ERR);
		else if (wc.status == IBV_WC_SUCCESS)
			request_check(r, h.out + h.done % OUT * ROOM);
		else if (h.m[1].dead || h.gone)
			assert_int_equal(wc.status, IBV_WC_RETRY_EXC_ERR);
		else if (wc.status != IBV_WC_REM_OP_ERR && wc.status != IBV_WC_REM_INV_REQ_ERR)
			fail_msg("request %u: status %d", (u32)r->tag, wc.status);
		else /* of a process that has died */
			assert_true(h.m[r->to].dead);
		h.failed = wc.status != IBV_WC_SUCCESS;
		h.done++;
	}
}

static void member_poll(struct member *m)
{
	struct ibv_wc wc;

	while (cq_pop(&m->cq, 1, &wc) == 1) {
		const struct request *r = &m->wanted[m->wanted_next];

		assert_in_range(wc.wr_id, 0, RECEIVES - 1);
		assert_int_equal(m->receive[wc.wr_id], 1);
		m->receive[wc.wr_id] = 0;
		if (wc.status != IBV_WC_SUCCESS) {
			assert_int_equal(wc.status, IBV_WC_WR_FLUSH_ERR);
			assert_true(h.m[1].dead || h.failed);
			assert_int_equal(m->flushed++, 0);
			continue;
		}
		assert_true(m->wanted_next < m->wanted_count);
		assert_int_equal(m->flushed, 0);
		m->wanted_next++;
		assert_int_equal(wc.byte_len, r->length);
		assert_int_equal(wc.qp_num, number_of(1, QPN));
		assert_int_equal(wc.src_qp, number_of(0, QPN));
		if (r->opcode == IBV_WR_SEND_WITH_IMM)
			assert_int_equal(wc.imm_data, r->tag);
		text_check(m->memory + wc.wr_id * ROOM, r->tag, r->length);
	}
}

/* Receives that are not posted yet, by lot. */
static void member_post(struct member *m)
{
	for (u32 i = 0; i < RECEIVES; i++) {
		struct ibv_sge sge = { (u64)(uintptr_t)m->memory + i * ROOM, ROOM, m->key };
		struct ibv_recv_wr wr = { .wr_id = i, .sg_list = &sge, .num_sge = 1 }, *bad;

		if (m->receive[i] == 0 && lot(4) == 0) {
			assert_int_equal(ibt_srq_post(m->srq, &wr, &bad), 0);
			m->receive[i] = 1;
		}
	}
}

/* ---- time ---- */

/* What happens next, or a little later. */
static u64 forward_next(void)
{
	u64 next = h.now + 50000;

	for (int i = 0; i < MEMBERS; i++) {
		if (!h.m[i].dead)
			next = MIN(next, timer_next_ns(&h.m[i].timers));
		for (int to = 0; to < MEMBERS; to++) {
			const struct flight *f = way_first(&h.m[i].way[to]);

			if (f != NULL && !h.m[to].dead)
				next = MIN(next, f->due_ns);
		}
	}
	return MAX(next, h.now + 100);
}

void forward_step(void)
{
	h.now = forward_next() + lot(3000);
	for (int i = 0; i < MEMBERS; i++) {
		struct member *m = &h.m[i];

		if (lot(1000) == 0)
			m->asleep_ns = h.now + lot(5 * NS_PER_MS);
		if (m->dead || h.now < m->asleep_ns || lot(5) == 0)
			continue;
		ibt_poll(m->ibt, 1 + (int)lot(16));
		timer_run(&m->timers, h.now);
		if (i == 0) {
			initiator_poll();
			continue;
		}
		member_poll(m);
		if (lot(3) == 0)
			member_post(m);
	}
}

void forward_pass(u64 ns)
{
	for (u64 end = h.now + ns; h.now < end;)
		forward_step();
}

static bool forward_is_quiet(void)
{
	bool quiet = h.done == REQUESTS;

	for (int i = 1; i < MEMBERS; i++)
		quiet = quiet &&
			(h.m[i].dead || h.failed || h.m[i].wanted_next == h.m[i].wanted_count);
	return quiet;
}

/* Requests until there are so many, and until they have all completed. */
void forward_requests(u32 many)
{
	u64 last_ns = h.now;
	u32 done = h.done;

	while (h.posted < many || (many == REQUESTS && !forward_is_quiet())) {
		while (h.posted < many && h.posted - h.done < OUT && lot(3) != 0) {
			request_draw(&h.request[h.posted % OUT]);
			request_post();
		}
		forward_step();
		if (done != h.done)
			last_ns = h.now;
		done = h.done;
		if (h.now - last_ns > 20 * NS_PER_S)
			fail_msg("request %u of %u stands still", h.done, h.posted);
	}
}
