/* tag_test.c: tag matching through libibverbs: eager and rendezvous messages, expected and not,
 * lists of operations, phases, limits and mistakes.
 * In: messages of a sender (tag_bed.h)    Out: verdicts    Runs: cmocka    Locks: none
 */
#include "tag_bed.h"

#include <endian.h>
#include <errno.h>

static struct tag_message eager(uint64_t tag, uint32_t bytes)
{
	return (struct tag_message){ .opcode = IBV_TMH_EAGER,
				     .tag = tag,
				     .app_ctx = (uint32_t)tag * 3 + 1,
				     .bytes = bytes,
				     .seed = (uint32_t)tag + bytes };
}

static struct tag_message rndv(uint64_t tag, uint32_t bytes)
{
	return (struct tag_message){ .opcode = IBV_TMH_RNDV,
				     .tag = tag,
				     .app_ctx = (uint32_t)tag * 5 + 1,
				     .seed = (uint32_t)tag + bytes,
				     .data_bytes = bytes };
}

static void query_device_ex__announces_tag_matching(void **state)
{
	struct ibv_device_attr_ex attr;
	struct ibv_context *ctx = device_open(NULL);

	assert_int_equal(ibv_query_device_ex(ctx, NULL, &attr), 0);
	assert_int_equal(attr.tm_caps.flags, IBV_TM_CAP_RC);
	assert_true(attr.tm_caps.max_num_tags >= 65536);
	assert_true(attr.tm_caps.max_ops >= 1024);
	assert_true(attr.tm_caps.max_sge >= 16);
	assert_true(attr.tm_caps.max_rndv_hdr_size >= TAG_HEADERS);
	assert_int_equal(ibv_close_device(ctx), 0);
}

/* ---- eager ----------------------------------------------------------------------------------- */

static void eager__leaves_its_header_behind(void **state)
{
	static const uint32_t sizes[] = { 0,	1,    8,     47,    48,	     49,	   1007,
					  1008, 1009, 4096,  65519, 65520,   65521,   100000,
					  1 << 20, (3 << 20) + 5 };

	tag_open(NULL);
	for (uint32_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
		struct tag_message m = eager(i + 1, sizes[i]);

		m.qp = i % TAG_QPS;
		tag_add(i, i + 1, TAG_EXACT, 4096, sizes[i]);
		tag_send(&m);
		tag_sent_ok();
		tag_expect_match(i, &m);
		tag_check(4096, sizes[i], m.seed);
	}
	tag_expect_none();
	tag_close();
}

static void eager__scatters_over_elements(void **state)
{
	struct ibv_sge sge[16];
	struct tag_message m = eager(7, 1600);
	struct ibv_ops_wr wr, *bad;

	tag_open(NULL);
	for (int i = 0; i < 16; i++)
		sge[i] = (struct ibv_sge){ (uintptr_t)bed.bytes + 100u * (15u - (unsigned)i), 100,
					   bed.mr->lkey };
	wr = (struct ibv_ops_wr){ .opcode = IBV_WR_TAG_ADD,
				  .tm.add = { .recv_wr_id = 9,
					      .sg_list = sge,
					      .num_sge = 16,
					      .tag = 7,
					      .mask = TAG_EXACT } };
	assert_int_equal(ibv_post_srq_ops(bed.srq, &wr, &bad), 0);
	memset(sge, 0, sizeof(sge)); /* read during the call only */
	tag_send(&m);
	tag_expect_match(9, &m);
	for (uint32_t i = 0; i < 16; i++) /* put together again behind it */
		memcpy(bed.bytes + 4096 + 100 * i, bed.bytes + 100 * (15 - i), 100);
	tag_check(4096, 1600, m.seed);
	tag_close();
}

static void eager__brings_immediate_data(void **state)
{
	static const uint32_t sizes[] = { 0, 100, 5000, 200000 };

	tag_open(NULL);
	for (uint32_t i = 0; i < 4; i++) {
		struct tag_message m = eager(i + 1, sizes[i]);

		m.imm = true;
		m.imm_value = 0x1000 + i;
		tag_add(i, i + 1, TAG_EXACT, 0, sizes[i]);
		tag_send(&m);
		tag_expect_match(i, &m);
	}
	tag_close();
}

static void eager__too_long_fails_the_queue_pair(void **state)
{
	struct tag_message m = eager(1, 101);
	struct tag_sent sent;
	struct tag_got got;

	tag_open(NULL);
	tag_add(5, 1, TAG_EXACT, 0, 100);
	tag_send(&m);
	got = tag_next();
	assert_int_equal(got.wr_id, 5);
	assert_int_equal(got.status, IBV_WC_LOC_LEN_ERR);
	sent = tag_sender_poll(PAIR_WAIT_MS);
	assert_int_equal(sent.count, 1);
	assert_int_equal(sent.wc.status, IBV_WC_REM_INV_REQ_ERR);
	tag_await_error(0);
	/* The list serves the other one. */
	m = eager(2, 100);
	m.qp = 1;
	tag_add(6, 2, TAG_EXACT, 0, 100);
	tag_send(&m);
	tag_expect_match(6, &m);
	tag_close();
}

/* ---- matching -------------------------------------------------------------------------------- */

static void match__first_in_the_order_of_posting(void **state)
{
	const struct tag_message a = eager(0x11, 10), b = eager(0x12, 20), c = eager(0x31, 30);

	tag_open(NULL);
	tag_add(1, 0x31, TAG_EXACT, 0, 100);
	tag_add(2, 0x10, 0xf0, 0, 100);
	tag_add(3, 0x11, TAG_EXACT, 0, 100);
	tag_add(4, 0, TAG_ANY, 0, 100);
	tag_add(5, 0x12, TAG_EXACT, 0, 100);
	tag_send(&a);
	tag_expect_match(2, &a);
	tag_send(&a);
	tag_expect_match(3, &a);
	tag_send(&a);
	tag_expect_match(4, &a);
	tag_send(&c);
	tag_expect_match(1, &c);
	tag_send(&b);
	tag_expect_match(5, &b);
	tag_expect_none();
	tag_close();
}

static void match__one_list_for_all_queue_pairs(void **state)
{
	struct tag_message m = eager(3, 64);

	tag_open(NULL);
	for (uint32_t i = 0; i < 32; i++)
		tag_add(i, 3, TAG_EXACT, 64 * i, 64);
	for (uint32_t i = 0; i < 32; i++) {
		m.qp = i % TAG_QPS;
		m.seed = i;
		tag_send(&m);
		/* one after the other: the order between the two is known */
		tag_expect_match(i, &m);
		tag_check(64 * i, 64, i);
	}
	tag_close();
}

static void match__in_the_order_of_sending(void **state)
{
	tag_open(NULL);
	for (uint32_t i = 0; i < 40; i++)
		tag_add(i, 0, TAG_ANY, 65536 * i, 65536);
	for (uint32_t i = 0; i < 40; i++) {
		struct tag_message m = eager(i + 1, i % 3 == 0 ? 60000 : i * 40);

		tag_send(&m);
	}
	for (uint32_t i = 0; i < 40; i++) {
		struct tag_message m = eager(i + 1, i % 3 == 0 ? 60000 : i * 40);

		tag_expect_match(i, &m);
		tag_check(65536 * i, m.bytes, m.seed);
	}
	tag_close();
}

/* ---- what no entry takes --------------------------------------------------------------------- */

static void unexpected__takes_an_ordinary_buffer(void **state)
{
	static const uint32_t sizes[] = { 0, 20, 3000, 100000 };

	tag_open(NULL);
	tag_add(1, 99, TAG_EXACT, 0, 64);
	for (uint32_t i = 0; i < 4; i++) {
		struct tag_message m = eager(i + 1, sizes[i]);

		tag_recv(100 + i, 4096, 200000);
		tag_send(&m);
		tag_expect_unmatched(100 + i, &m, 4096);
	}
	assert_int_equal(tag_try_op(IBV_WR_TAG_SYNC, 7, 0, IBV_OPS_SIGNALED | IBV_OPS_TM_SYNC, 4),
			 0);
	assert_int_equal(tag_expect_op(IBV_WC_TM_SYNC, 7, IBV_WC_SUCCESS).flags, 0);
	tag_close();
}

static void unexpected__no_tag_and_fin_are_not_counted(void **state)
{
	struct tag_message plain = eager(5, 200), fin = rndv(5, 100);

	plain.opcode = IBV_TMH_NO_TAG;
	fin.opcode = IBV_TMH_FIN;
	tag_open(NULL);
	tag_add(1, 0, TAG_ANY, 0, 1000);
	tag_recv(10, 4096, 1000);
	tag_recv(11, 8192, 1000);
	tag_send(&plain);
	tag_expect_unmatched(10, &plain, 4096);
	tag_send(&fin);
	tag_expect_unmatched(11, &fin, 8192);
	assert_int_equal(tag_try_op(IBV_WR_TAG_SYNC, 7, 0, IBV_OPS_SIGNALED | IBV_OPS_TM_SYNC, 0),
			 0);
	assert_int_equal(tag_expect_op(IBV_WC_TM_SYNC, 7, IBV_WC_SUCCESS).flags, 0);
	tag_close();
}

/* An entry whose poster did not know of it could overtake an unexpected message. */
static void unexpected__entry_waits_until_the_counts_agree(void **state)
{
	const struct tag_message first = eager(1, 8), second = eager(1, 16);
	struct ibv_sge sge;
	struct ibv_ops_wr late, *bad;

	tag_open(NULL);
	for (uint64_t i = 0; i < 4; i++)
		tag_recv(100 + i, 4096, 1000);
	tag_send(&first);
	tag_expect_unmatched(100, &first, 4096);
	late = tag_add_wr(1, 1, TAG_EXACT, &sge, 0, 64);
	late.flags = IBV_OPS_SIGNALED;
	assert_int_equal(ibv_post_srq_ops(bed.srq, &late, &bad), 0);
	assert_int_equal(tag_expect_op(IBV_WC_TM_ADD, 1, IBV_WC_SUCCESS).flags, IBV_WC_TM_SYNC_REQ);
	tag_send(&second);
	tag_expect_unmatched(101, &second, 4096);
	assert_int_equal(tag_try_op(IBV_WR_TAG_SYNC, 2, 0, IBV_OPS_SIGNALED | IBV_OPS_TM_SYNC, 1),
			 0);
	assert_int_equal(tag_expect_op(IBV_WC_TM_SYNC, 2, IBV_WC_SUCCESS).flags,
			 IBV_WC_TM_SYNC_REQ);
	tag_send(&second);
	tag_expect_unmatched(102, &second, 4096);
	assert_int_equal(tag_try_op(IBV_WR_TAG_SYNC, 3, 0, IBV_OPS_SIGNALED | IBV_OPS_TM_SYNC, 3),
			 0);
	assert_int_equal(tag_expect_op(IBV_WC_TM_SYNC, 3, IBV_WC_SUCCESS).flags, 0);
	tag_send(&second);
	tag_expect_match(1, &second);
	tag_close();
}

static void unexpected__waits_for_a_buffer(void **state)
{
	const struct tag_message m = eager(1, 100);

	tag_open(NULL);
	tag_send(&m);
	tag_expect_none();
	assert_int_equal(tag_sender_poll(0).count, 0); /* RNR NAKs */
	tag_recv(1, 4096, 1000);
	tag_expect_unmatched(1, &m, 4096);
	tag_sent_ok();
	tag_close();
}

static void unexpected__without_a_buffer_ends_at_the_sender(void **state)
{
	const struct tag_options few = { .rnr_retry = 1 };
	const struct tag_message m = eager(1, 100);
	struct tag_sent sent;

	tag_open(&few);
	tag_send(&m);
	sent = tag_sender_poll(PAIR_WAIT_MS);
	assert_int_equal(sent.wc.status, IBV_WC_RNR_RETRY_EXC_ERR);
	tag_expect_none();
	tag_close();
}

static void unexpected__raises_the_limit_event(void **state)
{
	struct ibv_srq_attr attr = { .srq_limit = 2 };
	const struct tag_message m = eager(1, 10);
	struct ibv_async_event event;

	tag_open(NULL);
	tag_recv(1, 4096, 1000);
	tag_recv(2, 8192, 1000);
	assert_int_equal(ibv_modify_srq(bed.srq, &attr, IBV_SRQ_LIMIT), 0);
	tag_send(&m);
	tag_expect_unmatched(1, &m, 4096);
	do { /* a queue pair may tell that it has been established */
		assert_true(fd_is_readable(bed.ctx->async_fd, PAIR_WAIT_MS));
		assert_int_equal(ibv_get_async_event(bed.ctx, &event), 0);
		ibv_ack_async_event(&event);
	} while (event.event_type == IBV_EVENT_COMM_EST);
	assert_int_equal(event.event_type, IBV_EVENT_SRQ_LIMIT_REACHED);
	assert_ptr_equal(event.element.srq, bed.srq);
	tag_close();
}

/* ---- rendezvous ------------------------------------------------------------------------------ */

/* The sender hears FIN: the request with another opcode. */
static void expect_fin(const struct tag_message *m, int sends)
{
	struct tag_sent sent = tag_sender_poll(PAIR_WAIT_MS);
	struct ibv_tmh tmh;

	for (; sends > 0 && sent.wc.opcode == IBV_WC_SEND; sends--) {
		assert_int_equal(sent.wc.status, IBV_WC_SUCCESS);
		sent = tag_sender_poll(PAIR_WAIT_MS);
	}
	assert_int_equal(sent.count, 1);
	assert_int_equal(sent.wc.status, IBV_WC_SUCCESS);
	assert_int_equal(sent.wc.opcode, IBV_WC_RECV);
	assert_int_equal(sent.wc.byte_len, TAG_HEADERS);
	memcpy(&tmh, sent.bytes, sizeof(tmh));
	assert_int_equal(tmh.opcode, IBV_TMH_FIN);
	assert_int_equal(be64toh(tmh.tag), m->tag);
	assert_int_equal(be32toh(tmh.app_ctx), m->app_ctx);
}

static void rndv__is_read_by_the_adapter(void **state)
{
	static const uint32_t sizes[] = { 1, 1000, 65536, 1 << 20, (5 << 20) + 3 };

	tag_open(NULL);
	for (uint32_t i = 0; i < 5; i++) {
		struct tag_message m = rndv(i + 1, sizes[i]);

		m.qp = i % TAG_QPS;
		tag_sender_recv(m.qp);
		tag_add(i, i + 1, TAG_EXACT, 4096, sizes[i] + i);
		tag_send(&m);
		tag_expect_match(i, &m);
		tag_check(4096, sizes[i], m.seed);
		expect_fin(&m, 1);
	}
	tag_expect_none();
	tag_close();
}

/* All of the request, also what software has put behind its headers. */
static void rndv__unexpected_goes_to_software(void **state)
{
	struct tag_message m = rndv(1, 1000);

	tag_open(NULL);
	m.bytes = 100;
	tag_recv(1, 4096, 1000);
	tag_send(&m);
	tag_expect_unmatched(1, &m, 4096);
	tag_close();
}

static void rndv__too_long_is_left_to_software(void **state)
{
	const struct tag_message m = rndv(1, 1000), next = eager(2, 100);
	struct tag_got got;
	struct ibv_rvh rvh;

	tag_open(NULL);
	tag_add(1, 1, TAG_EXACT, 4096, 999);
	tag_send(&m);
	got = tag_next();
	assert_int_equal(got.wr_id, 1);
	assert_int_equal(got.status, IBV_WC_TM_RNDV_INCOMPLETE);
	memcpy(&rvh, bed.bytes + 4096 + TAG_TMH, sizeof(rvh));
	assert_int_equal(be32toh(rvh.len), 1000);
	assert_int_equal(be64toh(rvh.va), tag_sender_address() + TAG_DATA);
	tag_sent_ok();
	tag_add(2, 2, TAG_EXACT, 4096, 100); /* nothing has failed */
	tag_send(&next);
	tag_expect_match(2, &next);
	tag_close();
}

static void rndv__without_room_for_its_headers_fails(void **state)
{
	const struct tag_message m = rndv(1, 1000);
	struct tag_got got;

	tag_open(NULL);
	tag_add(1, 1, TAG_EXACT, 4096, TAG_HEADERS - 1);
	tag_send(&m);
	got = tag_next();
	assert_int_equal(got.wr_id, 1);
	assert_int_equal(got.status, IBV_WC_LOC_LEN_ERR);
	assert_int_equal(tag_sender_poll(PAIR_WAIT_MS).wc.status, IBV_WC_REM_INV_REQ_ERR);
	tag_close();
}

/* The sender names memory that it has not registered: the entry ends with an error, once. */
static void rndv__with_a_foreign_key_fails(void **state)
{
	struct tag_message m = rndv(1, 1000);
	struct tag_got got;

	tag_open(NULL);
	m.rkey = 0x12345;
	tag_add(1, 1, TAG_EXACT, 4096, 1000);
	tag_send(&m);
	got = tag_next();
	assert_int_equal(got.status, IBV_WC_SUCCESS);
	assert_int_equal(got.flags, IBV_WC_TM_MATCH);
	got = tag_next();
	assert_int_equal(got.wr_id, 1);
	assert_int_not_equal(got.status, IBV_WC_SUCCESS);
	tag_expect_none();
	tag_close();
}

static void rndv__many_at_once_beside_eager_ones(void **state)
{
	enum { N = 16, ROOM = 20000 };
	struct tag_message m[N];

	tag_open(NULL);
	for (uint32_t i = 0; i < N; i++) {
		m[i] = i % 2 ? eager(i + 1, 100 * i) : rndv(i + 1, 1000 * (i + 1));
		tag_sender_recv(0);
		tag_add(i, i + 1, TAG_EXACT, ROOM * i, ROOM);
	}
	for (uint32_t i = 0; i < N; i++)
		tag_send(&m[i]);
	for (uint32_t matches = 0, valid = 0; matches < N || valid < N;) {
		struct tag_got got = tag_next();

		assert_int_equal(got.status, IBV_WC_SUCCESS);
		if (got.flags & IBV_WC_TM_MATCH)
			assert_int_equal(got.wr_id, matches++); /* in the order of sending */
		if (got.flags & IBV_WC_TM_DATA_VALID)
			valid++;
	}
	for (uint32_t i = 0; i < N; i++)
		tag_check(ROOM * i, i % 2 ? m[i].bytes : m[i].data_bytes, m[i].seed);
	tag_close();
}

/* ---- operations ------------------------------------------------------------------------------ */

static void ops__complete_once_and_in_order(void **state)
{
	struct ibv_sge sge[2];
	struct ibv_ops_wr wr[4], *bad;

	tag_open(NULL);
	wr[0] = tag_add_wr(1, 1, TAG_EXACT, &sge[0], 0, 64);
	wr[1] = tag_add_wr(2, 2, TAG_EXACT, &sge[1], 64, 64);
	wr[2] = (struct ibv_ops_wr){ .wr_id = 3, .opcode = IBV_WR_TAG_SYNC };
	wr[3] = (struct ibv_ops_wr){ .wr_id = 4, .opcode = IBV_WR_TAG_SYNC };
	for (int i = 0; i < 4; i++) {
		wr[i].next = i < 3 ? &wr[i + 1] : NULL;
		wr[i].flags = i == 2 ? 0 : IBV_OPS_SIGNALED;
	}
	assert_int_equal(ibv_post_srq_ops(bed.srq, wr, &bad), 0);
	assert_int_not_equal(wr[0].tm.handle, wr[1].tm.handle);
	tag_expect_op(IBV_WC_TM_ADD, 1, IBV_WC_SUCCESS);
	tag_expect_op(IBV_WC_TM_ADD, 2, IBV_WC_SUCCESS);
	tag_expect_op(IBV_WC_TM_SYNC, 4, IBV_WC_SUCCESS);
	tag_expect_none();
	tag_close();
}

static void ops__delete_what_no_message_has_taken(void **state)
{
	const struct tag_message m = eager(1, 10);
	uint32_t gone, taken;

	tag_open(NULL);
	gone = tag_add(1, 1, TAG_EXACT, 0, 64);
	taken = tag_add(2, 1, TAG_EXACT, 0, 64);
	assert_int_equal(tag_try_op(IBV_WR_TAG_DEL, 10, gone, IBV_OPS_SIGNALED, 0), 0);
	tag_expect_op(IBV_WC_TM_DEL, 10, IBV_WC_SUCCESS);
	tag_send(&m);
	tag_expect_match(2, &m);
	assert_int_equal(tag_try_op(IBV_WR_TAG_DEL, 11, taken, IBV_OPS_SIGNALED, 0), 0);
	tag_expect_op(IBV_WC_TM_DEL, 11, IBV_WC_TM_ERR);
	assert_int_equal(tag_try_op(IBV_WR_TAG_DEL, 12, 0xfffffff, IBV_OPS_SIGNALED, 0), EINVAL);
	tag_expect_none();
	tag_close();
}

static void ops__stop_at_the_first_bad_one(void **state)
{
	const struct tag_message m = eager(1, 10);
	struct ibv_sge sge[3];
	struct ibv_ops_wr wr[3], *bad = NULL;

	tag_open(NULL);
	for (uint32_t i = 0; i < 3; i++) {
		wr[i] = tag_add_wr(i, 1, TAG_EXACT, &sge[i], 0, 64);
		wr[i].flags = IBV_OPS_SIGNALED;
		wr[i].next = i < 2 ? &wr[i + 1] : NULL;
	}
	wr[1].opcode = (enum ibv_ops_wr_opcode)9;
	assert_int_equal(ibv_post_srq_ops(bed.srq, wr, &bad), EINVAL);
	assert_ptr_equal(bad, &wr[1]);
	wr[1].opcode = IBV_WR_TAG_ADD;
	wr[1].tm.add.num_sge = 17;
	assert_int_equal(ibv_post_srq_ops(bed.srq, &wr[1], &bad), EINVAL);
	assert_ptr_equal(bad, &wr[1]);
	wr[1].tm.add.num_sge = -1;
	assert_int_equal(ibv_post_srq_ops(bed.srq, &wr[1], &bad), EINVAL);
	tag_expect_op(IBV_WC_TM_ADD, 0, IBV_WC_SUCCESS);
	tag_expect_none();
	tag_send(&m);
	tag_expect_match(0, &m);
	tag_close();
}

static void ops__no_more_than_the_list_holds(void **state)
{
	const struct tag_options few = { .max_num_tags = 3 };
	const struct tag_message m = eager(1, 10);
	struct ibv_sge sge[5];
	struct ibv_ops_wr wr[5], *bad = NULL;

	tag_open(&few);
	for (uint32_t i = 0; i < 5; i++) {
		wr[i] = tag_add_wr(i, 1, TAG_EXACT, &sge[i], 0, 64);
		wr[i].next = i < 4 ? &wr[i + 1] : NULL;
	}
	assert_int_equal(ibv_post_srq_ops(bed.srq, wr, &bad), ENOMEM);
	assert_ptr_equal(bad, &wr[3]);
	tag_send(&m);
	tag_expect_match(0, &m);
	wr[4].next = NULL;
	assert_int_equal(ibv_post_srq_ops(bed.srq, &wr[4], &bad), 0);
	assert_int_equal(ibv_post_srq_ops(bed.srq, &wr[3], &bad), ENOMEM);
	assert_int_equal(tag_try_op(IBV_WR_TAG_DEL, 0, wr[4].tm.handle, 0, 0), 0);
	assert_int_equal(ibv_post_srq_ops(bed.srq, &wr[4], &bad), 0);
	tag_close();
}

/* Outstanding: signalled and not polled. */
static void ops__no_more_than_may_be_outstanding(void **state)
{
	const struct tag_options few = { .max_ops = 2 };

	tag_open(&few);
	for (uint64_t round = 0; round < 3; round++) {
		for (uint64_t i = 0; i < 2; i++)
			assert_int_equal(tag_try_op(IBV_WR_TAG_SYNC, i, 0, IBV_OPS_SIGNALED, 0), 0);
		assert_int_equal(tag_try_op(IBV_WR_TAG_SYNC, 2, 0, IBV_OPS_SIGNALED, 0), ENOMEM);
		assert_int_equal(tag_try_op(IBV_WR_TAG_SYNC, 2, 0, 0, 0), 0); /* done at once */
		tag_expect_op(IBV_WC_TM_SYNC, 0, IBV_WC_SUCCESS);
		tag_expect_op(IBV_WC_TM_SYNC, 1, IBV_WC_SUCCESS);
	}
	tag_expect_none();
	tag_close();
}

static void poll_cq__shows_the_same_opcodes_and_flags(void **state)
{
	const struct tag_message m = eager(1, 10), other = eager(2, 20);
	struct ibv_wc wc[3];

	tag_open(NULL);
	tag_add(1, 1, TAG_EXACT, 0, 64);
	tag_recv(2, 4096, 1000);
	assert_int_equal(tag_try_op(IBV_WR_TAG_SYNC, 3, 0, IBV_OPS_SIGNALED, 0), 0);
	tag_send(&m);
	tag_send(&other);
	assert_int_equal(cq_wait(ibv_cq_ex_to_cq(bed.cq), wc, 3, PAIR_WAIT_MS), 3);
	assert_int_equal(wc[0].opcode, IBV_WC_TM_SYNC);
	assert_int_equal(wc[0].wr_id, 3);
	assert_int_equal(wc[1].opcode, IBV_WC_TM_RECV);
	assert_int_equal(wc[1].wc_flags, IBV_WC_TM_MATCH | IBV_WC_TM_DATA_VALID);
	assert_int_equal(wc[1].byte_len, 10);
	assert_int_equal(wc[1].qp_num, bed.qp[0]->qp_num);
	assert_int_equal(wc[2].opcode, IBV_WC_TM_RECV);
	assert_int_equal(wc[2].wc_flags, 0);
	assert_int_equal(wc[2].wr_id, 2);
	tag_close();
}

/* ---- objects --------------------------------------------------------------------------------- */

static void srq__takes_reliable_queue_pairs_only(void **state)
{
	struct ibv_qp_init_attr init;
	struct ibv_cq *cq;

	tag_open(NULL);
	cq = bed.sends;
	for (int type = IBV_QPT_UC; type <= IBV_QPT_UD; type += IBV_QPT_UD - IBV_QPT_UC) {
		init = (struct ibv_qp_init_attr){ .qp_type = (enum ibv_qp_type)type,
						  .send_cq = cq,
						  .recv_cq = cq,
						  .srq = bed.srq };
		errno = 0;
		assert_null(ibv_create_qp(bed.pd, &init));
		assert_int_equal(errno, EINVAL);
	}
	tag_close();
}

static void srq__send_queue_is_its_own(void **state)
{
	struct ibv_sge sge = { 0 };
	struct ibv_send_wr wr = { .sg_list = &sge, .opcode = IBV_WR_SEND }, *bad;

	tag_open(NULL);
	assert_int_equal(ibv_post_send(bed.qp[0], &wr, &bad), ENOMEM); /* asked for none */
	tag_close();
}

static void srq__stays_while_it_is_used(void **state)
{
	struct ibv_cq *cq;

	tag_open(NULL);
	cq = ibv_cq_ex_to_cq(bed.cq);
	assert_int_equal(ibv_destroy_srq(bed.srq), EBUSY);
	assert_int_equal(ibv_destroy_cq(cq), EBUSY);
	for (int i = 0; i < TAG_QPS; i++) {
		assert_int_equal(ibv_destroy_qp(bed.qp[i]), 0);
		bed.qp[i] = NULL;
	}
	assert_int_equal(ibv_destroy_cq(cq), EBUSY);
	/* With entries, and with completions that nobody polls. */
	tag_add(1, 1, TAG_EXACT, 0, 64);
	assert_int_equal(tag_try_op(IBV_WR_TAG_SYNC, 1, 0, IBV_OPS_SIGNALED, 0), 0);
	assert_int_equal(ibv_destroy_srq(bed.srq), 0);
	bed.srq = NULL;
	tag_close();
}

static void create_srq_ex__keeps_to_the_limits(void **state)
{
	struct ibv_srq_init_attr_ex init;
	struct ibv_device_attr_ex attr;

	tag_open(NULL);
	assert_int_equal(ibv_query_device_ex(bed.ctx, NULL, &attr), 0);
	for (int i = 0; i < 4; i++) {
		init = (struct ibv_srq_init_attr_ex){
			.attr = { .max_wr = 8, .max_sge = 1 },
			.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD |
				     IBV_SRQ_INIT_ATTR_CQ | IBV_SRQ_INIT_ATTR_TM,
			.srq_type = IBV_SRQT_TM,
			.pd = bed.pd,
			.cq = ibv_cq_ex_to_cq(bed.cq),
			.tm_cap = { 8, 8 },
		};
		if (i < 2)
			init.tm_cap.max_num_tags = i ? attr.tm_caps.max_num_tags + 1 : 0;
		else
			init.tm_cap.max_ops = i == 3 ? attr.tm_caps.max_ops + 1 : 0;
		errno = 0;
		assert_null(ibv_create_srq_ex(bed.ctx, &init));
		assert_int_equal(errno, EINVAL);
	}
	tag_close();
}

#define TEST(name) cmocka_unit_test_teardown(name, tag_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(query_device_ex__announces_tag_matching),
		TEST(eager__leaves_its_header_behind),
		TEST(eager__scatters_over_elements),
		TEST(eager__brings_immediate_data),
		TEST(eager__too_long_fails_the_queue_pair),
		TEST(match__first_in_the_order_of_posting),
		TEST(match__one_list_for_all_queue_pairs),
		TEST(match__in_the_order_of_sending),
		TEST(unexpected__takes_an_ordinary_buffer),
		TEST(unexpected__no_tag_and_fin_are_not_counted),
		TEST(unexpected__entry_waits_until_the_counts_agree),
		TEST(unexpected__waits_for_a_buffer),
		TEST(unexpected__without_a_buffer_ends_at_the_sender),
		TEST(unexpected__raises_the_limit_event),
		TEST(rndv__is_read_by_the_adapter),
		TEST(rndv__unexpected_goes_to_software),
		TEST(rndv__too_long_is_left_to_software),
		TEST(rndv__without_room_for_its_headers_fails),
		TEST(rndv__with_a_foreign_key_fails),
		TEST(rndv__many_at_once_beside_eager_ones),
		TEST(ops__complete_once_and_in_order),
		TEST(ops__delete_what_no_message_has_taken),
		TEST(ops__stop_at_the_first_bad_one),
		TEST(ops__no_more_than_the_list_holds),
		TEST(ops__no_more_than_may_be_outstanding),
		TEST(poll_cq__shows_the_same_opcodes_and_flags),
		TEST(srq__takes_reliable_queue_pairs_only),
		TEST(srq__send_queue_is_its_own),
		TEST(srq__stays_while_it_is_used),
		TEST(create_srq_ex__keeps_to_the_limits),
	};

	pair_supervise();
	return cmocka_run_group_tests(tests, tag_group_setup, tag_group_teardown);
}
