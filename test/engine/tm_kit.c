/* tm_kit.c: a sender and a receiver with a tag-matching SRQ. */
#include "tm_kit.h"

static const struct net_config tm_paths[TM_PATHS] = {
	[TM_LOSSY] = { .mtu = 1024 },
	[TM_RELIABLE] = { .reliable = true },
	[TM_DIRECT] = { .reliable = true, .direct = true },
	[TM_UNREADABLE] = { .reliable = true, .direct = true, .unreadable = true },
};

void tm_open(struct tm_bed *b, enum tm_path path)
{
	tm_open_with(b, path, (struct tm_options){ .cqe = NET_COMPLETIONS });
}

void tm_start(struct tm_bed *b)
{
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_RTS,
				 .sq_psn = 100,
				 .timeout = 14,
				 .retry_cnt = 7,
				 .rnr_retry = 7,
				 .max_rd_atomic = 4 };

	assert_int_equal(ibt_qp_modify(b->qp[1], &a,
				       IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT |
					       IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
					       IBV_QP_MAX_QP_RD_ATOMIC,
				       NULL, NULL),
			 0);
}

void tm_open_with(struct tm_bed *b, enum tm_path path, struct tm_options o)
{
	struct net_config cfg = tm_paths[path];
	struct net_qp q = net_qp_defaults(IBV_QPT_RC);
	struct net_side *s = &b->net.side[1];
	struct ibt_srq_init init = { .pd = 1,
				     .max_wr = 64,
				     .max_sge = 2,
				     .tm_cq = &b->cq,
				     .max_num_tags = TM_TAGS,
				     .max_ops = TM_OPS,
				     .owner = s };

	memset(b, 0, sizeof(*b));
	cfg.seed = 1;
	cfg.delay_ns = 10000;
	net_open(&b->net, &cfg);
	assert_int_equal(cq_init(&b->cq, o.cqe), 0);
	assert_int_equal(cq_keep_sides(&b->cq), 0);
	assert_int_equal(ibt_srq_create(s->ibt, &init, &b->srq), 0);
	b->qp[0] = net_qp_create(&b->net, 0, TM_SENDER, &q);
	q.depth = o.depth;
	q.srq = b->srq;
	b->qp[1] = net_qp_create(&b->net, 1, TM_QPN, &q);
	net_qp_connect(&b->net, 0, b->qp[0], TM_QPN, &q);
	q.receives = o.receives;
	net_qp_connect(&b->net, 1, b->qp[1], TM_SENDER, &q);
	watch_begin(&b->watch, &b->net);
	for (u32 i = 0; i < NET_MEMORY - TM_DATA; i++)
		b->net.side[0].memory[TM_DATA + i] = (u8)(i * 7 + (i >> 8));
	for (u64 i = 0; i < 32; i++)
		net_post_recv(&b->net.side[0], b->qp[0], 1000 + i, 0, TM_REQUEST);
}

void tm_close(struct tm_bed *b)
{
	tm_run(b);
	tm_expect_none(b);
	if (b->qp[0] != NULL)
		ibt_qp_destroy(b->qp[0]);
	if (b->qp[1] != NULL)
		ibt_qp_destroy(b->qp[1]);
	tm_expect_none(b);
	if (b->srq != NULL)
		ibt_srq_destroy(b->srq);
	cq_fini(&b->cq);
	net_close(&b->net);
}

u8 *tm_buffer_at(struct tm_bed *b, u64 wr_id)
{
	return b->net.side[1].memory + TM_BUFFERS + wr_id * TM_BUFFER;
}

void tm_buffer(struct tm_bed *b, u64 wr_id)
{
	struct ibv_sge sge = { .addr = (u64)(uintptr_t)tm_buffer_at(b, wr_id),
			       .length = TM_BUFFER,
			       .lkey = b->net.side[1].key };
	struct ibv_recv_wr wr = { .wr_id = wr_id, .sg_list = &sge, .num_sge = 1 }, *bad;

	assert_int_equal(ibt_srq_post(b->srq, &wr, &bad), 0);
}

int tm_op(struct tm_bed *b, struct ibv_ops_wr *wr)
{
	struct ibv_ops_wr *bad = NULL;
	int err = ibt_srq_post_ops(b->srq, wr, &bad);

	assert_ptr_equal(bad, err == 0 ? NULL : wr);
	return err;
}

u32 tm_add(struct tm_bed *b, u64 recv_wr_id, u64 tag, u64 mask, u32 offset, u32 length, int count)
{
	struct ibv_sge sge = { .addr = (u64)(uintptr_t)b->net.side[1].memory + offset,
			       .length = length,
			       .lkey = b->net.side[1].key };
	struct ibv_ops_wr wr = { .wr_id = 7000 + recv_wr_id,
				 .opcode = IBV_WR_TAG_ADD,
				 .flags = IBV_OPS_SIGNALED | (count < 0 ? 0 : IBV_OPS_TM_SYNC),
				 .tm = { .unexpected_cnt = (u32)count,
					 .add = { .recv_wr_id = recv_wr_id,
						  .sg_list = &sge,
						  .num_sge = length == 0 ? 0 : 1,
						  .tag = tag,
						  .mask = mask } } };

	assert_int_equal(tm_op(b, &wr), 0);
	return wr.tm.handle;
}

int tm_sync(struct tm_bed *b, u32 count)
{
	struct ibv_ops_wr wr = { .opcode = IBV_WR_TAG_SYNC,
				 .flags = IBV_OPS_SIGNALED | IBV_OPS_TM_SYNC,
				 .tm.unexpected_cnt = count };

	return tm_op(b, &wr);
}

int tm_delete(struct tm_bed *b, u32 handle)
{
	struct ibv_ops_wr wr = { .opcode = IBV_WR_TAG_DEL,
				 .flags = IBV_OPS_SIGNALED,
				 .tm.handle = handle };

	return tm_op(b, &wr);
}

void tm_send(struct tm_bed *b, const void *message, u32 length, enum ibv_wr_opcode opcode)
{
	struct net_side *s = &b->net.side[0];
	u32 at = length <= 512 ? b->sent++ % 64 * 512 : 64 * 512;
	struct ibv_sge sge;
	struct ibv_send_wr wr = net_wr(&sge, s, opcode, 1, at, length);

	assert_true(at + length <= TM_DATA);
	memcpy(s->memory + at, message, length);
	net_post(b->qp[0], &wr);
}

void tm_eager(struct tm_bed *b, u64 tag, u32 app_ctx, u32 length)
{
	static u8 message[TM_DATA];
	struct ibv_tmh tmh = { .opcode = IBV_TMH_EAGER,
			       .app_ctx = htobe32(app_ctx),
			       .tag = htobe64(tag) };

	memcpy(message, &tmh, TM_TMH);
	for (u32 i = 0; i < length; i++)
		message[TM_TMH + i] = (u8)(i + tag);
	tm_send(b, message, TM_TMH + length, IBV_WR_SEND);
}

void tm_rndv(struct tm_bed *b, u64 tag, u32 length, u32 more)
{
	u8 message[512] = { 0 };
	struct ibv_tmh tmh = { .opcode = IBV_TMH_RNDV,
			       .app_ctx = htobe32(99),
			       .tag = htobe64(tag) };
	struct ibv_rvh rvh = { .va = htobe64((u64)(uintptr_t)b->net.side[0].memory + TM_DATA),
			       .rkey = htobe32(b->net.side[0].key),
			       .len = htobe32(length) };

	memcpy(message, &tmh, sizeof(tmh));
	memcpy(message + sizeof(tmh), &rvh, sizeof(rvh));
	tm_send(b, message, TM_REQUEST + more, IBV_WR_SEND);
}

void tm_run(struct tm_bed *b)
{
	net_run(&b->net, 100 * NS_PER_MS);
}

struct tm_got tm_next(struct tm_bed *b)
{
	struct cqe_side side;
	struct cqe e;

	assert_int_equal(cq_pop_whole(&b->cq, 1, &e, &side), 1);
	assert_null(cq_source_qp(e.source));
	return (struct tm_got){ .wc = e.wc, .tag = side.tag, .priv = side.priv };
}

struct tm_got tm_expect(struct tm_bed *b, enum ibv_wc_opcode opcode, u64 wr_id, u32 flags)
{
	struct tm_got got = tm_next(b);

	assert_int_equal(got.wc.status, IBV_WC_SUCCESS);
	assert_int_equal(got.wc.opcode, opcode);
	assert_int_equal(got.wc.wr_id, wr_id);
	assert_int_equal(got.wc.wc_flags, flags);
	if ((flags & IBV_WC_TM_MATCH) == 0)
		assert_true(got.tag == 0 && got.priv == 0);
	if (opcode == IBV_WC_TM_RECV || opcode == IBV_WC_TM_NO_TAG)
		assert_int_equal(got.wc.qp_num, TM_QPN);
	return got;
}

void tm_expect_status(struct tm_bed *b, u64 wr_id, enum ibv_wc_status status)
{
	struct tm_got got = tm_next(b);

	assert_int_equal(got.wc.status, status);
	assert_int_equal(got.wc.wr_id, wr_id);
}

void tm_expect_op(struct tm_bed *b, enum ibv_wc_opcode opcode, u32 flags)
{
	struct tm_got got = tm_next(b);

	assert_int_equal(got.wc.status, IBV_WC_SUCCESS);
	assert_int_equal(got.wc.opcode, opcode);
	assert_int_equal(got.wc.wc_flags, flags);
}

void tm_expect_none(struct tm_bed *b)
{
	assert_int_equal(cq_peek(&b->cq, 1), 0);
}

void tm_expect_payload(struct tm_bed *b, u32 offset, u64 tag, u32 length)
{
	for (u32 i = 0; i < length; i++)
		assert_int_equal(b->net.side[1].memory[offset + i], (u8)(i + tag));
}

void tm_expect_data(struct tm_bed *b, u32 offset, u32 length)
{
	assert_memory_equal(b->net.side[1].memory + offset, b->net.side[0].memory + TM_DATA,
			    length);
}
