/* tag_bed.c: the receiver and the senders of the tag matching tests.
 * In:    calls of tests    Out: verbs, checked
 * Runs:  each process' only thread    Locks: none
 */
#include "tag_bed.h"
#include "../late.h"

#include <endian.h>
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
	GID = 1,
	ACCESS = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE
};

enum call_op { CALL_OPEN, CALL_CONNECT, CALL_SEND, CALL_RECV, CALL_POLL, CALL_CLOSE };

struct call {
	enum call_op op;
	uint32_t qp;
	struct tag_message message;
	struct tag_options options;
	char device[32];
	uint32_t peer[TAG_QPS];
	union ibv_gid gid;
	int timeout_ms;
};

struct answer {
	uint32_t qpn[TAG_QPS];
	union ibv_gid gid;
	uint64_t address;
	struct tag_sent sent;
};

/* A sender's own. */
struct sender {
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_qp *qp[TAG_QPS];
	struct ibv_mr *mr;
	uint8_t *bytes;
	uint32_t recvs;
	uint32_t built, read; /* bytes handed out for messages, and for data to be read */
};

struct tag_bed bed;

/* What this process knows of the senders. */
static struct {
	int pid[TAG_SENDERS], fd[TAG_SENDERS];
	struct sender local;
	uint64_t address;
	bool open;
} senders;

static uint8_t *memory_of_a_side(void)
{
	uint8_t *p = mmap(NULL, TAG_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
			  0);

	must(p != MAP_FAILED);
	return p;
}

static uint8_t pattern(uint32_t seed, uint32_t i)
{
	return (uint8_t)(seed * 31 + i * 7 + (i >> 8));
}

/* ---- the sender, in its process -------------------------------------------------------------- */

static void sender_open(struct sender *s, const struct call *c, struct answer *a)
{
	struct ibv_qp_init_attr init = { .qp_type = IBV_QPT_RC,
					 .cap = { TAG_DEPTH, TAG_DEPTH, 1, 1, 0 } };

	*s = (struct sender){ .ctx = device_open(c->device[0] ? c->device : NULL) };
	must(s->ctx != NULL);
	s->pd = ibv_alloc_pd(s->ctx);
	s->cq = ibv_create_cq(s->ctx, 4 * TAG_DEPTH, NULL, NULL, 0);
	must(s->pd != NULL && s->cq != NULL);
	s->bytes = memory_of_a_side();
	s->mr = ibv_reg_mr(s->pd, s->bytes, TAG_BYTES, ACCESS);
	must(s->mr != NULL);
	init.send_cq = init.recv_cq = s->cq;
	for (int i = 0; i < TAG_QPS; i++) {
		s->qp[i] = ibv_create_qp(s->pd, &init);
		must(s->qp[i] != NULL);
		a->qpn[i] = s->qp[i]->qp_num;
	}
	must(ibv_query_gid(s->ctx, CONN_PORT, GID, &a->gid) == 0);
	a->address = (uintptr_t)s->bytes;
}

static struct ibv_qp_attr way_to(uint32_t qpn, const union ibv_gid *gid)
{
	struct ibv_qp_attr a = conn_attr(qpn, gid, GID);

	a.qp_access_flags = ACCESS;
	a.max_rd_atomic = a.max_dest_rd_atomic = 8;
	a.min_rnr_timer = 1;
	a.timeout = 16;
	return a;
}

static void sender_connect(struct sender *s, const struct call *c)
{
	for (int i = 0; i < TAG_QPS; i++) {
		struct ibv_qp_attr a = way_to(c->peer[i], &c->gid);

		a.rnr_retry = c->options.rnr_retry ? (uint8_t)c->options.rnr_retry : 7;
		must(conn_up(s->qp[i], &a, IBV_QPS_RTS) == 0);
	}
}

static void fill(uint8_t *to, uint32_t bytes, uint32_t seed)
{
	for (uint32_t i = 0; i < bytes; i++)
		to[i] = pattern(seed, i);
}

/* Bytes of a part of the sender's buffer that were not handed out lately. An acknowledgement can
 * come long after the message: what lies there may still be sent again. */
static uint8_t *fresh(uint8_t *part, uint32_t part_bytes, uint32_t *used, uint32_t bytes)
{
	uint32_t at = *used + bytes <= part_bytes ? *used : 0;

	*used = at + (bytes + 63) / 64 * 64;
	return part + at;
}

/* Writes the message and the data that it names. */
static struct ibv_sge sender_build(struct sender *s, const struct tag_message *m)
{
	bool has_rvh = m->opcode == IBV_TMH_RNDV || m->opcode == IBV_TMH_FIN;
	uint32_t headers = has_rvh ? TAG_HEADERS : TAG_TMH;
	uint8_t *to = fresh(s->bytes, TAG_DATA, &s->built, headers + m->bytes);
	uint8_t *data = fresh(s->bytes + TAG_DATA, TAG_BYTES - TAG_DATA - TAG_RECVS, &s->read,
			      m->data_bytes);
	struct ibv_tmh tmh = { .opcode = m->opcode,
			       .app_ctx = htobe32(m->app_ctx),
			       .tag = htobe64(m->tag) };
	struct ibv_rvh rvh = { .va = htobe64((uintptr_t)data),
			       .rkey = htobe32(m->rkey ? m->rkey : s->mr->rkey),
			       .len = htobe32(m->data_bytes) };

	memcpy(to, &tmh, sizeof(tmh));
	if (has_rvh)
		memcpy(to + sizeof(tmh), &rvh, sizeof(rvh));
	fill(to + headers, m->bytes, m->seed);
	if (m->opcode == IBV_TMH_RNDV)
		fill(data, m->data_bytes, m->seed);
	return (struct ibv_sge){ (uintptr_t)to, m->cut ? m->cut : headers + m->bytes, s->mr->lkey };
}

static void sender_send(struct sender *s, const struct tag_message *m)
{
	struct ibv_sge sge = sender_build(s, m);
	struct ibv_send_wr wr = { .sg_list = &sge,
				  .num_sge = 1,
				  .opcode = m->imm ? IBV_WR_SEND_WITH_IMM : IBV_WR_SEND,
				  .send_flags = IBV_SEND_SIGNALED,
				  .imm_data = htobe32(m->imm_value) },
			   *bad;

	must(ibv_post_send(s->qp[m->qp], &wr, &bad) == 0);
}

/* Receives lie at the end of the buffer, one behind the other. */
static void sender_recv(struct sender *s, uint32_t qp)
{
	uint64_t at = TAG_BYTES - TAG_RECVS + (uint64_t)(s->recvs++ % 64) * 64;
	struct ibv_sge sge = { (uintptr_t)s->bytes + at, 64, s->mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = at, .sg_list = &sge, .num_sge = 1 }, *bad;

	must(ibv_post_recv(s->qp[qp], &wr, &bad) == 0);
}

static void sender_poll(struct sender *s, int timeout_ms, struct tag_sent *sent)
{
	sent->count = cq_wait(s->cq, &sent->wc, 1, timeout_ms);
	if (sent->count == 1 && sent->wc.status == IBV_WC_SUCCESS &&
	    (sent->wc.opcode & IBV_WC_RECV))
		memcpy(sent->bytes, s->bytes + sent->wc.wr_id, TAG_HEADERS);
}

static void sender_close(struct sender *s)
{
	for (int i = 0; i < TAG_QPS; i++)
		must(ibv_destroy_qp(s->qp[i]) == 0);
	must(ibv_dereg_mr(s->mr) == 0 && ibv_destroy_cq(s->cq) == 0);
	must(ibv_dealloc_pd(s->pd) == 0 && ibv_close_device(s->ctx) == 0);
	munmap(s->bytes, TAG_BYTES);
	*s = (struct sender){ 0 };
}

static void sender_serve(struct sender *s, const struct call *c, struct answer *a)
{
	switch (c->op) {
	case CALL_OPEN:
		sender_open(s, c, a);
		break;
	case CALL_CONNECT:
		sender_connect(s, c);
		break;
	case CALL_SEND:
		sender_send(s, &c->message);
		break;
	case CALL_RECV:
		sender_recv(s, c->qp);
		break;
	case CALL_POLL:
		sender_poll(s, c->timeout_ms, &a->sent);
		break;
	case CALL_CLOSE:
		sender_close(s);
		break;
	}
}

/* A sender ends when the receiver does: none may hold the receiver's ends of the others'
 * sockets. */
static _Noreturn void sender_run(int index)
{
	int fd = senders.fd[index];
	struct sender s = { 0 };
	struct call c;

	for (int i = 0; i < index; i++)
		close(senders.fd[i]);
	while (other_hear(fd, &c, sizeof(c)) == sizeof(c)) {
		struct answer a = { 0 };

		sender_serve(&s, &c, &a);
		if (!other_tell(fd, &a, sizeof(a)))
			break;
	}
	_exit(0);
}

/* ---- the sender, as tests see it ------------------------------------------------------------- */

bool tag_has_child(void)
{
	return !pair_is_one_process();
}

static struct answer sender_call(struct call *c)
{
	struct answer a = { 0 };
	int fd = senders.fd[bed.sender];

	if (!tag_has_child()) {
		sender_serve(&senders.local, c, &a);
		return a;
	}
	assert_true(other_tell(fd, c, sizeof(*c)));
	assert_int_equal(other_hear(fd, &a, sizeof(a)), sizeof(a));
	return a;
}

void tag_send(const struct tag_message *m)
{
	struct call c = { .op = CALL_SEND, .message = *m };

	sender_call(&c);
}

struct tag_sent tag_sender_poll(int timeout_ms)
{
	struct call c = { .op = CALL_POLL, .timeout_ms = timeout_ms };

	return sender_call(&c).sent;
}

void tag_sent_ok(void)
{
	struct tag_sent sent = tag_sender_poll(PAIR_WAIT_MS);

	assert_int_equal(sent.count, 1);
	assert_int_equal(sent.wc.status, IBV_WC_SUCCESS);
	assert_int_equal(sent.wc.opcode, IBV_WC_SEND);
}

void tag_sender_recv(uint32_t qp)
{
	struct call c = { .op = CALL_RECV, .qp = qp };

	sender_call(&c);
}

uint64_t tag_sender_address(void)
{
	return senders.address;
}

void tag_sender_signal(int signal)
{
	int status;

	assert_int_equal(kill(senders.pid[bed.sender], signal), 0);
	if (signal != SIGKILL)
		return;
	assert_int_equal(waitpid(senders.pid[bed.sender], &status, 0), senders.pid[bed.sender]);
	close(senders.fd[bed.sender]);
	senders.open = false;
	bed.sender++;
	assert_true(bed.sender < TAG_SENDERS);
}

/* ---- the receiver ---------------------------------------------------------------------------- */

int tag_group_setup(void **state)
{
	for (int i = 0; tag_has_child() && i < TAG_SENDERS; i++) {
		senders.pid[i] = other_fork(&senders.fd[i]);
		if (senders.pid[i] == 0)
			sender_run(i);
		if (senders.pid[i] < 0)
			return -1;
	}
	return 0;
}

int tag_group_teardown(void **state)
{
	for (int i = bed.sender; tag_has_child() && i < TAG_SENDERS; i++) {
		close(senders.fd[i]);
		waitpid(senders.pid[i], NULL, 0);
	}
	return 0;
}

static uint32_t or_else(uint32_t value, uint32_t instead)
{
	return value ? value : instead;
}

static void receiver_make_srq(const struct tag_options *o)
{
	struct ibv_cq_init_attr_ex attr = { .cqe = 4096,
					    .wc_flags = IBV_WC_STANDARD_FLAGS |
							IBV_WC_EX_WITH_TM_INFO };
	struct ibv_srq_init_attr_ex init = {
		.attr = { .max_wr = or_else(o->max_wr, 64), .max_sge = or_else(o->max_sge, 2) },
		.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_CQ |
			     IBV_SRQ_INIT_ATTR_TM,
		.srq_type = IBV_SRQT_TM,
		.pd = bed.pd,
		.tm_cap = { or_else(o->max_num_tags, 64), or_else(o->max_ops, 64) },
	};

	bed.cq = ibv_create_cq_ex(bed.ctx, &attr);
	assert_non_null(bed.cq);
	init.cq = ibv_cq_ex_to_cq(bed.cq);
	bed.srq = ibv_create_srq_ex(bed.ctx, &init);
	assert_non_null(bed.srq);
}

static void receiver_open(const struct tag_options *o)
{
	struct ibv_qp_init_attr init = { .qp_type = IBV_QPT_RC };

	bed.ctx = device_open(o->device);
	assert_non_null(bed.ctx);
	bed.pd = ibv_alloc_pd(bed.ctx);
	assert_non_null(bed.pd);
	receiver_make_srq(o);
	bed.sends = ibv_create_cq(bed.ctx, 8, NULL, NULL, 0);
	bed.bytes = memory_of_a_side();
	bed.mr = ibv_reg_mr(bed.pd, bed.bytes, TAG_BYTES, ACCESS);
	assert_non_null(bed.mr);
	init.send_cq = init.recv_cq = bed.sends;
	init.srq = bed.srq;
	for (int i = 0; i < TAG_QPS; i++) {
		init.cap = (struct ibv_qp_cap){ 0 };
		bed.qp[i] = ibv_create_qp(bed.pd, &init);
		assert_non_null(bed.qp[i]);
	}
}

void tag_open(const struct tag_options *o)
{
	const struct tag_options none = { 0 };
	struct call c = { .op = CALL_OPEN, .options = o ? *o : none };
	struct answer a;

	if (c.options.device)
		strncpy(c.device, c.options.device, sizeof(c.device) - 1);
	receiver_open(&c.options);
	a = sender_call(&c);
	senders.open = true;
	senders.address = a.address;
	c.op = CALL_CONNECT;
	assert_int_equal(ibv_query_gid(bed.ctx, CONN_PORT, GID, &c.gid), 0);
	for (int i = 0; i < TAG_QPS; i++) {
		struct ibv_qp_attr attr = way_to(a.qpn[i], &a.gid);

		c.peer[i] = bed.qp[i]->qp_num;
		assert_int_equal(conn_up(bed.qp[i], &attr, IBV_QPS_RTS), 0);
	}
	sender_call(&c);
}

static void sender_end(void)
{
	struct call c = { .op = CALL_CLOSE };

	if (senders.open)
		sender_call(&c);
	senders.open = false;
}

void tag_close(void)
{
	sender_end();
	for (int i = 0; i < TAG_QPS; i++)
		if (bed.qp[i])
			assert_int_equal(ibv_destroy_qp(bed.qp[i]), 0);
	if (bed.srq)
		assert_int_equal(ibv_destroy_srq(bed.srq), 0);
	assert_int_equal(ibv_destroy_cq(ibv_cq_ex_to_cq(bed.cq)), 0);
	assert_int_equal(ibv_destroy_cq(bed.sends), 0);
	assert_int_equal(ibv_dereg_mr(bed.mr), 0);
	assert_int_equal(ibv_dealloc_pd(bed.pd), 0);
	assert_int_equal(ibv_close_device(bed.ctx), 0);
	munmap(bed.bytes, TAG_BYTES);
	bed = (struct tag_bed){ .sender = bed.sender };
}

int tag_teardown(void **state)
{
	if (bed.ctx)
		tag_close();
	return 0;
}

struct ibv_ops_wr tag_add_wr(uint64_t wr_id, uint64_t tag, uint64_t mask, struct ibv_sge *sge,
			     uint32_t at, uint32_t bytes)
{
	*sge = (struct ibv_sge){ (uintptr_t)bed.bytes + at, bytes, bed.mr->lkey };
	return (struct ibv_ops_wr){ .wr_id = wr_id,
				    .opcode = IBV_WR_TAG_ADD,
				    .tm.add = { .recv_wr_id = wr_id,
						.sg_list = sge,
						.num_sge = bytes ? 1 : 0,
						.tag = tag,
						.mask = mask } };
}

uint32_t tag_add(uint64_t wr_id, uint64_t tag, uint64_t mask, uint32_t at, uint32_t bytes)
{
	struct ibv_sge sge;
	struct ibv_ops_wr wr = tag_add_wr(wr_id, tag, mask, &sge, at, bytes), *bad;

	assert_int_equal(ibv_post_srq_ops(bed.srq, &wr, &bad), 0);
	return wr.tm.handle;
}

int tag_try_op(enum ibv_ops_wr_opcode opcode, uint64_t wr_id, uint32_t handle, int flags,
	       uint32_t count)
{
	struct ibv_ops_wr wr = { .wr_id = wr_id, .opcode = opcode, .flags = flags }, *bad = NULL;
	int error;

	wr.tm.handle = handle;
	wr.tm.unexpected_cnt = count;
	error = ibv_post_srq_ops(bed.srq, &wr, &bad);
	assert_true(!error || bad == &wr);
	return error;
}

void tag_recv(uint64_t wr_id, uint32_t at, uint32_t bytes)
{
	struct ibv_sge sge = { (uintptr_t)bed.bytes + at, bytes, bed.mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = wr_id, .sg_list = &sge, .num_sge = 1 }, *bad;

	assert_int_equal(ibv_post_srq_recv(bed.srq, &wr, &bad), 0);
}

static void got_read(struct tag_got *got)
{
	struct ibv_wc_tm_info info;

	ibv_wc_read_tm_info(bed.cq, &info);
	*got = (struct tag_got){ .wr_id = bed.cq->wr_id,
				 .status = bed.cq->status,
				 .opcode = ibv_wc_read_opcode(bed.cq),
				 .flags = ibv_wc_read_wc_flags(bed.cq),
				 .bytes = ibv_wc_read_byte_len(bed.cq),
				 .qp_num = ibv_wc_read_qp_num(bed.cq),
				 .src_qp = ibv_wc_read_src_qp(bed.cq),
				 .imm = be32toh(ibv_wc_read_imm_data(bed.cq)),
				 .tag = info.tag,
				 .priv = info.priv };
}

bool tag_try_next(struct tag_got *got, int timeout_ms)
{
	uint64_t end = now_ms() + (uint64_t)timeout_ms;
	struct ibv_poll_cq_attr attr = { 0 };
	int error;

	while ((error = ibv_start_poll(bed.cq, &attr)) == ENOENT && now_ms() < end)
		;
	if (error == ENOENT) {
		late("completion", timeout_ms);
		return false;
	}
	assert_int_equal(error, 0);
	got_read(got);
	ibv_end_poll(bed.cq);
	return true;
}

struct tag_got tag_next(void)
{
	struct tag_got got = { 0 };

	assert_true(tag_try_next(&got, PAIR_WAIT_MS));
	return got;
}

void tag_await_error(uint32_t qp)
{
	uint64_t end = now_ms() + PAIR_WAIT_MS;
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;

	do
		assert_int_equal(ibv_query_qp(bed.qp[qp], &attr, IBV_QP_STATE, &init), 0);
	while (attr.qp_state != IBV_QPS_ERR && now_ms() < end);
	if (now_ms() >= end)
		late("error state", PAIR_WAIT_MS);
	assert_int_equal(attr.qp_state, IBV_QPS_ERR);
}

void tag_expect_none(void)
{
	struct tag_got got;

	assert_false(tag_try_next(&got, PAIR_QUIET_MS));
}

struct tag_got tag_expect_op(enum ibv_wc_opcode opcode, uint64_t wr_id, enum ibv_wc_status status)
{
	struct tag_got got = tag_next();

	assert_int_equal(got.opcode, opcode);
	assert_int_equal(got.wr_id, wr_id);
	assert_int_equal(got.status, status);
	assert_int_equal(got.tag | got.priv, 0);
	return got;
}

/* Of a message: what all its completions have. */
static struct tag_got got_of_message(uint64_t wr_id, const struct tag_message *m,
				     enum ibv_wc_opcode opcode)
{
	struct tag_got got = tag_next();

	assert_int_equal(got.status, IBV_WC_SUCCESS);
	assert_int_equal(got.opcode, opcode);
	assert_int_equal(got.wr_id, wr_id);
	assert_int_equal(got.qp_num, bed.qp[m->qp]->qp_num);
	return got;
}

void tag_expect_match(uint64_t wr_id, const struct tag_message *m)
{
	struct tag_got got = got_of_message(wr_id, m, IBV_WC_TM_RECV);
	bool whole = got.flags & IBV_WC_TM_DATA_VALID;

	assert_true(got.flags & IBV_WC_TM_MATCH);
	assert_int_equal(got.tag, m->tag);
	assert_int_equal(got.priv, m->app_ctx);
	if (!whole) {
		got = got_of_message(wr_id, m, IBV_WC_TM_RECV);
		assert_int_equal(got.flags & (IBV_WC_TM_MATCH | IBV_WC_TM_DATA_VALID),
				 IBV_WC_TM_DATA_VALID);
		assert_int_equal(got.tag | got.priv, 0);
	}
	assert_int_equal(got.bytes, m->opcode == IBV_TMH_RNDV ? m->data_bytes : m->bytes);
	if (m->opcode != IBV_TMH_RNDV)
		assert_int_equal(!!(got.flags & IBV_WC_WITH_IMM), m->imm);
	if (m->imm)
		assert_int_equal(got.imm, m->imm_value);
	if (m->opcode == IBV_TMH_RNDV)
		assert_false(whole);
}

void tag_expect_unmatched(uint64_t wr_id, const struct tag_message *m, uint32_t at)
{
	bool tagged = m->opcode == IBV_TMH_EAGER || m->opcode == IBV_TMH_RNDV;
	uint32_t headers = m->opcode == IBV_TMH_RNDV || m->opcode == IBV_TMH_FIN ? TAG_HEADERS :
										   TAG_TMH;
	struct tag_got got =
		got_of_message(wr_id, m, tagged ? IBV_WC_TM_RECV : IBV_WC_TM_NO_TAG);
	struct ibv_tmh tmh;

	assert_int_equal(got.flags & (IBV_WC_TM_MATCH | IBV_WC_TM_DATA_VALID), 0);
	assert_int_equal(got.tag | got.priv, 0);
	assert_int_equal(got.bytes, headers + m->bytes);
	memcpy(&tmh, bed.bytes + at, sizeof(tmh));
	assert_int_equal(tmh.opcode, m->opcode);
	assert_int_equal(be64toh(tmh.tag), m->tag);
	assert_int_equal(be32toh(tmh.app_ctx), m->app_ctx);
	tag_check(at + headers, m->bytes, m->seed);
}

void tag_check(uint32_t at, uint32_t bytes, uint32_t seed)
{
	for (uint32_t i = 0; i < bytes; i++)
		if (bed.bytes[at + i] != pattern(seed, i))
			fail_msg("byte %u of %u at %u is wrong", i, bytes, at);
}
