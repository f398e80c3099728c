/* tm_test.c: a tag-matching SRQ: what takes a message, and how it completes, over each kind of
 * path.
 */
#include "tm_kit.h"

enum {
	BOTH = IBV_WC_TM_MATCH | IBV_WC_TM_DATA_VALID,
	MATCH = IBV_WC_TM_MATCH,
	VALID = IBV_WC_TM_DATA_VALID,
};
#define ALL UINT64_MAX

static struct tm_bed bed;

static void run_on_each(void (*test)(enum tm_path path))
{
	for (enum tm_path path = 0; path < TM_PATHS; path++)
		test(path);
}

/* ---- EAGER ---- */

/* In one packet or in pieces, pulled where the path can. */
static void eager_of(u32 length)
{
	struct tm_got got;

	memset(bed.net.side[1].memory, 0xee, length + 8);
	tm_add(&bed, 1, 5, ALL, 0, length, -1);
	tm_expect_op(&bed, IBV_WC_TM_ADD, 0);
	tm_eager(&bed, 5, 77, length);
	tm_run(&bed);
	got = tm_next(&bed);
	assert_int_equal(got.wc.opcode, IBV_WC_TM_RECV);
	assert_int_equal(got.wc.wr_id, 1);
	assert_int_equal(got.wc.wc_flags & MATCH, MATCH);
	assert_true(got.tag == 5 && got.priv == 77);
	if (got.wc.wc_flags == MATCH)
		got = tm_expect(&bed, IBV_WC_TM_RECV, 1, VALID);
	assert_int_equal(got.wc.byte_len, length);
	tm_expect_payload(&bed, 0, 5, length);
	assert_int_equal(bed.net.side[1].memory[length], 0xee);
	tm_expect_none(&bed);
	assert_int_equal(net_wc(&bed.net.side[0].send_cq).status, IBV_WC_SUCCESS);
}

static void eager_sizes(enum tm_path path)
{
	static const u32 sizes[] = { 0,	   1,	 8,	15,    17,    1008,  1009,
				     4080, 4096, 65519, 65520, 65536, 1500000 };

	tm_open(&bed, path);
	for (u32 i = 0; i < ARRAY_LEN(sizes); i++)
		eager_of(sizes[i]);
	tm_close(&bed);
}

static void eager__lies_behind_its_header_in_the_first_entry(void **state)
{
	run_on_each(eager_sizes);
}

static void eager_first(enum tm_path path)
{
	tm_open(&bed, path);
	tm_add(&bed, 1, 0x500, 0xff00, 0, 100, -1);
	tm_add(&bed, 2, 0x512, ALL, 1000, 100, -1);
	tm_add(&bed, 3, 0x513, ALL, 2000, 100, -1);
	for (int i = 0; i < 3; i++)
		tm_expect_op(&bed, IBV_WC_TM_ADD, 0);
	tm_eager(&bed, 0x513, 0, 10);
	tm_eager(&bed, 0x513, 0, 20);
	tm_eager(&bed, 0x512, 0, 30);
	tm_run(&bed);
	assert_int_equal(tm_expect(&bed, IBV_WC_TM_RECV, 1, BOTH).tag, 0x513);
	assert_int_equal(tm_expect(&bed, IBV_WC_TM_RECV, 3, BOTH).wc.byte_len, 20);
	assert_int_equal(tm_expect(&bed, IBV_WC_TM_RECV, 2, BOTH).wc.byte_len, 30);
	tm_expect_payload(&bed, 2000, 0x513, 20);
	tm_close(&bed);
}

static void eager__takes_the_first_entry_that_matches(void **state)
{
	run_on_each(eager_first);
}

/* Several elements; the payload does not end with one. */
static void eager_scatters(enum tm_path path)
{
	struct net_side *s = &bed.net.side[1];
	struct ibv_sge sge[IBT_TM_MAX_SGE];
	struct ibv_ops_wr wr = { .opcode = IBV_WR_TAG_ADD,
				 .tm.add = { .recv_wr_id = 4,
					     .sg_list = sge,
					     .num_sge = IBT_TM_MAX_SGE,
					     .tag = 9,
					     .mask = ALL } };

	tm_open(&bed, path);
	for (u32 i = 0; i < IBT_TM_MAX_SGE; i++)
		sge[i] = (struct ibv_sge){ .addr = (u64)(uintptr_t)s->memory + i * 20000,
					   .length = 10000,
					   .lkey = s->key };
	assert_int_equal(tm_op(&bed, &wr), 0);
	tm_eager(&bed, 9, 0, 155000);
	tm_run(&bed);
	if (tm_next(&bed).wc.wc_flags == MATCH)
		tm_expect(&bed, IBV_WC_TM_RECV, 4, VALID);
	for (u32 i = 0; i < 155000; i++)
		assert_int_equal(s->memory[i / 10000 * 20000 + i % 10000], (u8)(i + 9));
	tm_close(&bed);
}

static void eager__fills_sixteen_elements(void **state)
{
	run_on_each(eager_scatters);
}

static void eager_immediate(enum tm_path path)
{
	u8 message[TM_TMH + 4] = { IBV_TMH_EAGER, [15] = 3 };
	struct tm_got got;

	tm_open(&bed, path);
	tm_add(&bed, 1, 3, ALL, 0, 4, -1);
	tm_expect_op(&bed, IBV_WC_TM_ADD, 0);
	tm_send(&bed, message, sizeof(message), IBV_WR_SEND_WITH_IMM);
	tm_run(&bed);
	got = tm_expect(&bed, IBV_WC_TM_RECV, 1, BOTH | IBV_WC_WITH_IMM);
	assert_int_equal(got.wc.imm_data, 1);
	tm_close(&bed);
}

static void eager__brings_immediate_data(void **state)
{
	run_on_each(eager_immediate);
}

static void eager_too_long(enum tm_path path)
{
	tm_open(&bed, path);
	tm_add(&bed, 1, 3, ALL, 0, 99, -1);
	tm_expect_op(&bed, IBV_WC_TM_ADD, 0);
	tm_eager(&bed, 3, 0, 100);
	tm_run(&bed);
	tm_expect_status(&bed, 1, IBV_WC_LOC_LEN_ERR);
	assert_int_equal(ibt_qp_state(bed.qp[1]), IBV_QPS_ERR);
	assert_int_equal(net_wc(&bed.net.side[0].send_cq).status, IBV_WC_REM_INV_REQ_ERR);
	tm_close(&bed);
}

static void eager__too_long_for_its_entry_fails_the_queue_pair(void **state)
{
	run_on_each(eager_too_long);
}

/* The header can be read, the payload cannot any more: it comes in packets, into the same entry. */
static void eager_unreadable(u32 length, u32 pulls)
{
	struct tm_got got;

	tm_open(&bed, TM_DIRECT);
	bed.net.cfg.pulls = pulls;
	tm_add(&bed, 1, 5, ALL, 0, length, -1);
	tm_add(&bed, 2, 5, ALL, 0, length, -1);
	tm_expect_op(&bed, IBV_WC_TM_ADD, 0);
	tm_expect_op(&bed, IBV_WC_TM_ADD, 0);
	tm_eager(&bed, 5, 0, length);
	tm_run(&bed);
	assert_true(bed.net.cfg.unreadable);
	got = tm_next(&bed);
	assert_true(got.wc.wr_id == 1 && (got.wc.wc_flags & MATCH) != 0);
	if (got.wc.wc_flags == MATCH)
		got = tm_expect(&bed, IBV_WC_TM_RECV, 1, VALID);
	assert_int_equal(got.wc.byte_len, length);
	tm_expect_payload(&bed, 0, 5, length);
	tm_close(&bed);
}

static void eager__that_cannot_be_pulled_keeps_its_entry(void **state)
{
	eager_unreadable(100000, 1);
	eager_unreadable(100000, 2);
	eager_unreadable(1500000, 1);
	eager_unreadable(1500000, 2);
}

/* ---- what no entry takes ---- */

static void unexpected(enum tm_path path)
{
	struct tm_got got;

	tm_open(&bed, path);
	tm_buffer(&bed, 1);
	tm_buffer(&bed, 2);
	tm_eager(&bed, 5, 6, 40000);
	tm_rndv(&bed, 5, 100, 7);
	tm_run(&bed);
	got = tm_expect(&bed, IBV_WC_TM_RECV, 1, 0);
	assert_int_equal(got.wc.byte_len, TM_TMH + 40000);
	assert_int_equal(tm_buffer_at(&bed, 1)[0], IBV_TMH_EAGER);
	assert_int_equal(tm_buffer_at(&bed, 1)[TM_TMH + 39999], (u8)(39999 + 5));
	got = tm_expect(&bed, IBV_WC_TM_RECV, 2, 0);
	assert_int_equal(got.wc.byte_len, TM_REQUEST + 7);
	/* A count that is behind keeps an entry from matching. */
	tm_add(&bed, 9, 5, ALL, 0, 100, 1);
	tm_expect_op(&bed, IBV_WC_TM_ADD, IBV_WC_TM_SYNC_REQ);
	tm_buffer(&bed, 3);
	tm_eager(&bed, 5, 6, 8);
	tm_run(&bed);
	tm_expect(&bed, IBV_WC_TM_RECV, 3, 0);
	assert_int_equal(tm_sync(&bed, 3), 0);
	tm_expect_op(&bed, IBV_WC_TM_SYNC, 0);
	tm_eager(&bed, 5, 6, 8);
	tm_run(&bed);
	tm_expect(&bed, IBV_WC_TM_RECV, 9, BOTH);
	tm_close(&bed);
}

static void unexpected__lies_whole_in_a_buffer_and_stops_new_entries(void **state)
{
	run_on_each(unexpected);
}

static void untagged(enum tm_path path)
{
	u8 message[TM_REQUEST] = { IBV_TMH_NO_TAG, [15] = 5 };

	tm_open(&bed, path);
	tm_add(&bed, 1, 0, 0, 0, 100, -1); /* matches everything */
	tm_expect_op(&bed, IBV_WC_TM_ADD, 0);
	for (u64 i = 1; i <= 5; i++)
		tm_buffer(&bed, i);
	tm_send(&bed, message, sizeof(message), IBV_WR_SEND);
	message[0] = IBV_TMH_FIN;
	tm_send(&bed, message, sizeof(message), IBV_WR_SEND);
	message[0] = 200;
	tm_send(&bed, message, sizeof(message), IBV_WR_SEND);
	message[0] = IBV_TMH_EAGER;
	tm_send(&bed, message, TM_TMH - 1, IBV_WR_SEND);
	tm_send(&bed, message, 0, IBV_WR_SEND);
	tm_run(&bed);
	for (u64 i = 1; i <= 3; i++)
		assert_int_equal(tm_expect(&bed, IBV_WC_TM_NO_TAG, i, 0).wc.byte_len, TM_REQUEST);
	assert_int_equal(tm_expect(&bed, IBV_WC_TM_NO_TAG, 4, 0).wc.byte_len, TM_TMH - 1);
	assert_int_equal(tm_expect(&bed, IBV_WC_TM_NO_TAG, 5, 0).wc.byte_len, 0);
	/* none of them counts */
	assert_int_equal(tm_sync(&bed, 0), 0);
	tm_expect_op(&bed, IBV_WC_TM_SYNC, 0);
	tm_close(&bed);
}

static void untagged__is_not_looked_up(void **state)
{
	run_on_each(untagged);
}

/* A WRITE with immediate data uses up an ordinary buffer, whatever lies in it. */
static void notice(enum tm_path path)
{
	struct net_side *s = &bed.net.side[0];
	struct ibv_sge sge;
	struct ibv_send_wr wr;
	struct tm_got got;

	tm_open(&bed, path);
	tm_add(&bed, 1, 0, 0, 0, 100, -1);
	tm_expect_op(&bed, IBV_WC_TM_ADD, 0);
	tm_buffer(&bed, 4);
	s->memory[0] = IBV_TMH_EAGER;
	wr = net_wr(&sge, s, IBV_WR_RDMA_WRITE_WITH_IMM, 9, 0, 5000);
	net_wr_remote(&wr, &bed.net.side[1], 10000);
	net_post(bed.qp[0], &wr);
	tm_run(&bed);
	got = tm_expect(&bed, IBV_WC_RECV_RDMA_WITH_IMM, 4, IBV_WC_WITH_IMM);
	assert_int_equal(got.wc.imm_data, 9);
	assert_int_equal(bed.net.side[1].memory[10000], IBV_TMH_EAGER);
	assert_int_equal(tm_sync(&bed, 0), 0);
	tm_expect_op(&bed, IBV_WC_TM_SYNC, 0);
	tm_close(&bed);
}

static void notice__is_no_message(void **state)
{
	run_on_each(notice);
}

/* The entry's key is not valid. */
static void bad_key(enum tm_path path, bool rndv)
{
	struct ibv_sge sge = { .addr = 4096, .length = 100, .lkey = 12345 };
	struct ibv_ops_wr wr = { .opcode = IBV_WR_TAG_ADD,
				 .tm.add = { .recv_wr_id = 4,
					     .sg_list = &sge,
					     .num_sge = 1,
					     .tag = 9,
					     .mask = UINT64_MAX } };

	tm_open(&bed, path);
	assert_int_equal(tm_op(&bed, &wr), 0);
	if (rndv)
		tm_rndv(&bed, 9, 100, 0);
	else
		tm_eager(&bed, 9, 0, 100);
	tm_run(&bed);
	if (rndv)
		tm_expect(&bed, IBV_WC_TM_RECV, 4, MATCH);
	tm_expect_status(&bed, 4, IBV_WC_LOC_PROT_ERR);
	assert_int_equal(ibt_qp_state(bed.qp[1]), IBV_QPS_ERR);
	tm_close(&bed);
}

static void bad_keys(enum tm_path path)
{
	bad_key(path, false);
	bad_key(path, true);
}

static void entry__with_a_bad_key_fails_the_queue_pair(void **state)
{
	run_on_each(bad_keys);
}

/* Refused for lack of a buffer, then matched when it is sent again. */
static void rnr(enum tm_path path)
{
	tm_open(&bed, path);
	tm_eager(&bed, 5, 6, 3000);
	net_run(&bed.net, NS_PER_MS / 4);
	tm_expect_none(&bed);
	tm_add(&bed, 9, 5, ALL, 0, 3000, 0);
	tm_expect_op(&bed, IBV_WC_TM_ADD, 0);
	tm_run(&bed);
	if (tm_next(&bed).wc.wc_flags == MATCH)
		tm_expect(&bed, IBV_WC_TM_RECV, 9, VALID);
	tm_expect_payload(&bed, 0, 5, 3000);
	tm_close(&bed);
}

static void rnr__message_is_looked_up_again(void **state)
{
	run_on_each(rnr);
}

static void limit(enum tm_path path)
{
	struct ibv_srq_attr a = { .srq_limit = 2 };

	tm_open(&bed, path);
	for (u64 i = 1; i <= 3; i++)
		tm_buffer(&bed, i);
	assert_int_equal(ibt_srq_modify(bed.srq, &a, IBV_SRQ_LIMIT), 0);
	tm_eager(&bed, 5, 6, 8);
	tm_run(&bed);
	assert_int_equal(bed.net.side[1].events[IBV_EVENT_SRQ_LIMIT_REACHED], 0);
	tm_eager(&bed, 5, 6, 8);
	tm_run(&bed);
	assert_int_equal(bed.net.side[1].events[IBV_EVENT_SRQ_LIMIT_REACHED], 1);
	tm_expect(&bed, IBV_WC_TM_RECV, 1, 0);
	tm_expect(&bed, IBV_WC_TM_RECV, 2, 0);
	tm_close(&bed);
}

static void limit__counts_ordinary_buffers(void **state)
{
	run_on_each(limit);
}

/* ---- rendezvous ---- */

static void rndv_of(u32 length, u32 header)
{
	struct tm_got got;
	u8 *fin = bed.net.side[0].memory;

	memset(bed.net.side[1].memory, 0xee, length + 8);
	memset(fin, 0, TM_REQUEST);
	tm_add(&bed, 1, 5, ALL, 0, length + 4, -1);
	tm_expect_op(&bed, IBV_WC_TM_ADD, 0);
	tm_rndv(&bed, 5, length, header);
	tm_run(&bed);
	got = tm_expect(&bed, IBV_WC_TM_RECV, 1, MATCH);
	assert_true(got.tag == 5 && got.priv == 99);
	got = tm_expect(&bed, IBV_WC_TM_RECV, 1, VALID);
	assert_int_equal(got.wc.byte_len, length);
	tm_expect_data(&bed, 0, length);
	assert_int_equal(bed.net.side[1].memory[length], 0xee);
	tm_expect_none(&bed);
	assert_int_equal(net_wc(&bed.net.side[0].send_cq).status, IBV_WC_SUCCESS);
	assert_int_equal(net_wc(&bed.net.side[0].recv_cq).byte_len, TM_REQUEST);
	assert_int_equal(fin[0], IBV_TMH_FIN);
	assert_int_equal(fin[15], 5);
	assert_int_equal(fin[31], (u8)length);
}

static void rndv_sizes(enum tm_path path)
{
	static const u32 sizes[] = { 0, 1, 1024, 5000, 1 << 20 };

	tm_open(&bed, path);
	for (u32 i = 0; i < ARRAY_LEN(sizes); i++)
		rndv_of(sizes[i], 11);
	rndv_of(100, IBT_TM_MAX_RNDV_HDR - TM_REQUEST);
	tm_close(&bed);
}

static void rndv__is_read_and_finished_by_the_adapter(void **state)
{
	run_on_each(rndv_sizes);
}

/* More than there are slots; none of the queue pair's own. */
static void rndv_many(enum tm_path path)
{
	u64 valid = 0, matched = 0;

	tm_open(&bed, path);
	for (u64 i = 0; i < 30; i++) {
		tm_add(&bed, i, i, ALL, (u32)i * 5000, 5000, -1);
		tm_expect_op(&bed, IBV_WC_TM_ADD, 0);
	}
	for (u64 i = 0; i < 30; i++)
		tm_rndv(&bed, i, 5000, 0);
	tm_run(&bed);
	for (int i = 0; i < 60; i++) {
		struct tm_got got = tm_next(&bed);

		assert_int_equal(got.wc.status, IBV_WC_SUCCESS);
		if (got.wc.wc_flags == MATCH)
			assert_int_equal(got.wc.wr_id, matched++);
		else
			assert_int_equal(got.wc.wr_id, valid++);
	}
	assert_int_equal(valid, 30);
	for (u32 i = 0; i < 30; i++) {
		tm_expect_data(&bed, i * 5000, 5000);
		assert_int_equal(net_wc(&bed.net.side[0].recv_cq).wr_id, 1000 + i);
	}
	tm_close(&bed);
}

static void rndv__waits_in_order_for_a_slot(void **state)
{
	run_on_each(rndv_many);
}

static void rndv_too_long(enum tm_path path)
{
	struct tm_got got;

	tm_open(&bed, path);
	tm_add(&bed, 1, 5, ALL, 0, 100, -1);
	tm_add(&bed, 2, 6, ALL, 1000, 35, -1);
	tm_add(&bed, 3, 7, ALL, 2000, TM_REQUEST - 1, -1);
	for (int i = 0; i < 3; i++)
		tm_expect_op(&bed, IBV_WC_TM_ADD, 0);
	tm_rndv(&bed, 5, 101, 11);
	tm_rndv(&bed, 6, 3u << 30, 11);
	tm_run(&bed);
	got = tm_next(&bed);
	assert_int_equal(got.wc.status, IBV_WC_TM_RNDV_INCOMPLETE);
	assert_int_equal(got.wc.wc_flags, BOTH);
	assert_int_equal(got.wc.byte_len, TM_REQUEST + 11);
	assert_true(got.wc.wr_id == 1 && got.tag == 5);
	assert_int_equal(bed.net.side[1].memory[0], IBV_TMH_RNDV);
	assert_int_equal(bed.net.side[1].memory[31], 101);
	got = tm_next(&bed);
	assert_int_equal(got.wc.status, IBV_WC_TM_RNDV_INCOMPLETE);
	assert_int_equal(got.wc.byte_len, 35);
	assert_int_equal(ibt_qp_state(bed.qp[1]), IBV_QPS_RTS);
	tm_rndv(&bed, 7, 101, 0);
	tm_run(&bed);
	tm_expect_status(&bed, 3, IBV_WC_LOC_LEN_ERR);
	assert_int_equal(ibt_qp_state(bed.qp[1]), IBV_QPS_ERR);
	tm_close(&bed);
}

static void rndv__too_long_for_its_entry_leaves_the_request_there(void **state)
{
	run_on_each(rndv_too_long);
}

/* Without an entry it lies in a buffer, for software. */
static void rndv_refused(enum tm_path path, u32 length)
{
	static u8 message[100000] = { IBV_TMH_RNDV, [15] = 5 };

	tm_open(&bed, path);
	tm_buffer(&bed, 2);
	tm_send(&bed, message, MIN(length, 40000u), IBV_WR_SEND);
	tm_run(&bed);
	assert_int_equal(tm_expect(&bed, IBV_WC_TM_RECV, 2, 0).wc.byte_len, MIN(length, 40000u));
	assert_int_equal(net_wc(&bed.net.side[0].send_cq).status, IBV_WC_SUCCESS);
	tm_add(&bed, 1, 5, ALL, 0, 100, 1);
	tm_expect_op(&bed, IBV_WC_TM_ADD, 0);
	tm_send(&bed, message, length, IBV_WR_SEND);
	tm_run(&bed);
	assert_int_equal(net_wc(&bed.net.side[0].send_cq).status, IBV_WC_REM_INV_REQ_ERR);
	tm_expect_status(&bed, 1, IBV_WC_LOC_LEN_ERR);
	tm_expect_none(&bed);
	tm_close(&bed);
}

static void rndv_bad_length(enum tm_path path)
{
	rndv_refused(path, TM_REQUEST - 1);
	rndv_refused(path, IBT_TM_MAX_RNDV_HDR + 1);
	rndv_refused(path, 2000);
	rndv_refused(path, 100000);
}

static void rndv__of_no_possible_length_is_refused(void **state)
{
	run_on_each(rndv_bad_length);
}

/* The sender's key does not allow it. */
static void rndv_foreign_key(enum tm_path path)
{
	u8 message[TM_REQUEST] = { IBV_TMH_RNDV, [15] = 5, [24] = 0xab, [31] = 99 };

	if (path >= TM_DIRECT) /* the direct copies of net.c look at no key */
		return;

	tm_open(&bed, path);
	tm_add(&bed, 1, 5, ALL, 0, 100, -1);
	tm_expect_op(&bed, IBV_WC_TM_ADD, 0);
	memset(bed.net.side[1].memory, 0xee, 100);
	tm_send(&bed, message, sizeof(message), IBV_WR_SEND);
	tm_run(&bed);
	tm_expect(&bed, IBV_WC_TM_RECV, 1, MATCH);
	tm_expect_status(&bed, 1, IBV_WC_REM_ACCESS_ERR);
	assert_int_equal(ibt_qp_state(bed.qp[1]), IBV_QPS_ERR);
	assert_int_equal(bed.net.side[1].memory[0], 0xee);
	tm_close(&bed);
}

static void rndv__with_a_foreign_key_fails_the_queue_pair(void **state)
{
	run_on_each(rndv_foreign_key);
}

/* A receiver that cannot send yet. */
static void rndv_early(enum tm_path path)
{
	tm_open_with(&bed, path,
		     (struct tm_options){ .cqe = NET_COMPLETIONS, .receives = true });
	tm_add(&bed, 1, 5, ALL, 0, 5000, -1);
	tm_expect_op(&bed, IBV_WC_TM_ADD, 0);
	tm_rndv(&bed, 5, 5000, 0);
	tm_run(&bed);
	tm_expect(&bed, IBV_WC_TM_RECV, 1, MATCH);
	tm_expect_none(&bed);
	tm_start(&bed);
	tm_run(&bed);
	tm_expect(&bed, IBV_WC_TM_RECV, 1, VALID);
	tm_expect_data(&bed, 0, 5000);
	tm_close(&bed);
}

static void rndv__waits_for_rts(void **state)
{
	run_on_each(rndv_early);
}

/* ---- the end of a queue pair ---- */

static bool lose_answers(struct net *net, int from, struct pkt *p)
{
	return from == 0 && p->opcode >= PKT_READ_FIRST && p->opcode <= PKT_READ_ONLY;
}

/* Twenty rendezvous whose data does not come: some have a slot, some wait for one. */
static void end_begin(enum tm_path path)
{
	tm_open(&bed, path);
	bed.net.tap = lose_answers;
	for (u64 i = 0; i < 20; i++) {
		tm_add(&bed, i, i, ALL, (u32)i * 5000, 5000, -1);
		tm_expect_op(&bed, IBV_WC_TM_ADD, 0);
		tm_rndv(&bed, i, 5000, 0);
	}
	net_run(&bed.net, NS_PER_MS / 2);
	for (u64 i = 0; i < 20; i++)
		tm_expect(&bed, IBV_WC_TM_RECV, i, MATCH);
	tm_expect_none(&bed);
}

static void end_expect(enum ibv_wc_status first)
{
	u64 sum = 0;

	for (u64 i = 0; i < 20; i++) {
		struct tm_got got = tm_next(&bed);

		assert_int_equal(got.wc.status, i == 0 ? first : IBV_WC_WR_FLUSH_ERR);
		sum += 1ull << got.wc.wr_id;
	}
	assert_int_equal(sum, (1 << 20) - 1);
}

/* What the adapter has in the send queue takes no place from the consumer. */
static void rndv_beside(enum tm_path path)
{
	struct net_side *s = &bed.net.side[1];
	struct ibv_sge sge;
	struct ibv_send_wr wr, *bad;

	if (path >= TM_DIRECT)
		return;
	tm_open_with(&bed, path, (struct tm_options){ .cqe = NET_COMPLETIONS, .depth = 3 });
	bed.net.tap = lose_answers;
	for (u64 i = 0; i < 20; i++) {
		tm_add(&bed, i, i, UINT64_MAX, (u32)i * 5000, 5000, -1);
		tm_rndv(&bed, i, 5000, 0);
	}
	net_run(&bed.net, NS_PER_MS / 2);
	for (u64 id = 1; id <= 3; id++) {
		wr = net_wr(&sge, s, IBV_WR_SEND, id, 0, 8);
		net_post(bed.qp[1], &wr);
	}
	assert_int_equal(ibt_post_send(bed.qp[1], &wr, &bad, NULL), -ENOMEM);
	bed.net.tap = NULL;
	if (path == TM_LOSSY)
		tm_run(&bed);
	else
		ibt_qp_suspect_loss(bed.qp[1]);
	net_run(&bed.net, NS_PER_S);
	for (u64 id = 1; id <= 3; id++)
		assert_int_equal(net_wc(&s->send_cq).wr_id, id);
	for (int i = 0; i < 60; i++)
		assert_int_equal(tm_next(&bed).wc.status, IBV_WC_SUCCESS);
	for (u64 id = 1; id <= 3; id++) {
		wr = net_wr(&sge, s, IBV_WR_SEND, id, 0, 8);
		net_post(bed.qp[1], &wr);
	}
	assert_int_equal(ibt_post_send(bed.qp[1], &wr, &bad, NULL), -ENOMEM);
	tm_run(&bed);
	tm_close(&bed);
}

static void rndv__takes_no_place_from_the_consumer(void **state)
{
	run_on_each(rndv_beside);
}

static void end_in_error(enum tm_path path)
{
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_ERR };

	if (path >= TM_DIRECT)
		return;
	end_begin(path);
	assert_int_equal(ibt_qp_modify(bed.qp[1], &a, IBV_QP_STATE, NULL, NULL), 0);
	end_expect(IBV_WC_WR_FLUSH_ERR);
	/* all entries are free again */
	for (u64 i = 0; i < TM_TAGS; i++) {
		tm_add(&bed, i, i, ALL, 0, 0, -1);
		tm_expect_op(&bed, IBV_WC_TM_ADD, 0);
	}
	tm_close(&bed);
}

static void end__in_error_completes_each_entry_once(void **state)
{
	run_on_each(end_in_error);
}

static void end_destroyed(enum tm_path path)
{
	if (path >= TM_DIRECT)
		return;
	end_begin(path);
	ibt_qp_destroy(bed.qp[1]);
	bed.qp[1] = NULL;
	end_expect(IBV_WC_WR_FLUSH_ERR);
	tm_close(&bed);
}

static void end__by_destruction_completes_each_entry_once(void **state)
{
	run_on_each(end_destroyed);
}

static void end_by_death(enum tm_path path)
{
	struct net_side *s = &bed.net.side[1];

	if (path >= TM_DIRECT)
		return;
	end_begin(path);
	s->path.user_ops->dead(s->path.user, &s->from.dest);
	end_expect(IBV_WC_RETRY_EXC_ERR);
	tm_close(&bed);
}

static void end__by_the_death_of_the_peer_completes_each_entry_once(void **state)
{
	run_on_each(end_by_death);
}

static void end_by_unplugging(enum tm_path path)
{
	if (path >= TM_DIRECT)
		return;
	end_begin(path);
	ibt_qp_unplug(bed.qp[1]);
	end_expect(IBV_WC_WR_FLUSH_ERR);
	tm_close(&bed);
}

static void end__by_unplugging_completes_each_entry_once(void **state)
{
	run_on_each(end_by_unplugging);
}

static void end_reset(enum tm_path path)
{
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_RESET };

	if (path >= TM_DIRECT)
		return;
	end_begin(path);
	assert_int_equal(ibt_qp_modify(bed.qp[1], &a, IBV_QP_STATE, NULL, NULL), 0);
	end_expect(IBV_WC_WR_FLUSH_ERR);
	tm_close(&bed);
}

static void end__by_reset_completes_each_entry_once(void **state)
{
	run_on_each(end_reset);
}

/* Two completions fit. */
static void end_overflow(enum tm_path path)
{
	struct ibv_wc wc;

	tm_open_with(&bed, path, (struct tm_options){ .cqe = 2 });
	for (u64 i = 1; i <= 3; i++)
		tm_buffer(&bed, i);
	for (int i = 0; i < 3; i++)
		tm_eager(&bed, 5, 0, 8);
	tm_run(&bed);
	assert_int_equal(ibt_qp_state(bed.qp[1]), IBV_QPS_ERR);
	assert_int_equal(bed.net.side[1].events[IBV_EVENT_QP_FATAL], 1);
	assert_int_equal(cq_pop(&bed.cq, 1, &wc), 1);
	assert_int_equal(cq_pop(&bed.cq, 1, &wc), 1);
	tm_close(&bed);
}

static void end__by_a_full_cq(void **state)
{
	run_on_each(end_overflow);
}

/* What has completed stays, though the queue pair goes before it is polled. */
static void end_polled_later(enum tm_path path)
{
	tm_open(&bed, path);
	tm_add(&bed, 1, 5, ALL, 0, 100, -1);
	tm_expect_op(&bed, IBV_WC_TM_ADD, 0);
	tm_buffer(&bed, 2);
	tm_eager(&bed, 5, 0, 100);
	tm_eager(&bed, 5, 0, 100);
	tm_run(&bed);
	ibt_qp_destroy(bed.qp[1]);
	bed.qp[1] = NULL;
	tm_expect(&bed, IBV_WC_TM_RECV, 1, BOTH);
	tm_expect(&bed, IBV_WC_TM_RECV, 2, 0);
	tm_close(&bed);
}

static void end__leaves_what_is_not_polled(void **state)
{
	run_on_each(end_polled_later);
}

static bool lose_the_rest(struct net *net, int from, struct pkt *p)
{
	return p->opcode == PKT_SEND_MIDDLE || p->opcode == PKT_SEND_LAST;
}

/* Half of an EAGER has come, and half of an unexpected one. */
static void end_half_way(enum tm_path path)
{
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_ERR };

	if (path >= TM_DIRECT)
		return;
	tm_open(&bed, path);
	bed.net.tap = lose_the_rest;
	tm_add(&bed, 1, 5, ALL, 0, 20000, -1);
	tm_expect_op(&bed, IBV_WC_TM_ADD, 0);
	tm_eager(&bed, 5, 3, 20000);
	net_run(&bed.net, NS_PER_MS / 2);
	assert_int_equal(tm_expect(&bed, IBV_WC_TM_RECV, 1, MATCH).priv, 3);
	assert_int_equal(ibt_qp_modify(bed.qp[1], &a, IBV_QP_STATE, NULL, NULL), 0);
	tm_expect_status(&bed, 1, IBV_WC_WR_FLUSH_ERR);
	tm_close(&bed);
	tm_open(&bed, path);
	bed.net.tap = lose_the_rest;
	tm_buffer(&bed, 1);
	tm_eager(&bed, 5, 3, 20000);
	net_run(&bed.net, NS_PER_MS / 2);
	/* counted already */
	tm_add(&bed, 9, 5, ALL, 0, 20000, 0);
	tm_expect_op(&bed, IBV_WC_TM_ADD, IBV_WC_TM_SYNC_REQ);
	assert_int_equal(ibt_qp_modify(bed.qp[1], &a, IBV_QP_STATE, NULL, NULL), 0);
	tm_expect_status(&bed, 1, IBV_WC_WR_FLUSH_ERR);
	/* and no more */
	assert_int_equal(tm_sync(&bed, 0), 0);
	tm_expect_op(&bed, IBV_WC_TM_SYNC, 0);
	tm_close(&bed);
}

static void end__half_way_takes_back_the_count(void **state)
{
	run_on_each(end_half_way);
}

#define CASE(f) cmocka_unit_test(f)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(eager__lies_behind_its_header_in_the_first_entry),
		CASE(eager__takes_the_first_entry_that_matches),
		CASE(eager__fills_sixteen_elements),
		CASE(eager__brings_immediate_data),
		CASE(eager__too_long_for_its_entry_fails_the_queue_pair),
		CASE(eager__that_cannot_be_pulled_keeps_its_entry),
		CASE(unexpected__lies_whole_in_a_buffer_and_stops_new_entries),
		CASE(untagged__is_not_looked_up),
		CASE(notice__is_no_message),
		CASE(entry__with_a_bad_key_fails_the_queue_pair),
		CASE(rnr__message_is_looked_up_again),
		CASE(limit__counts_ordinary_buffers),
		CASE(rndv__is_read_and_finished_by_the_adapter),
		CASE(rndv__waits_in_order_for_a_slot),
		CASE(rndv__too_long_for_its_entry_leaves_the_request_there),
		CASE(rndv__of_no_possible_length_is_refused),
		CASE(rndv__with_a_foreign_key_fails_the_queue_pair),
		CASE(rndv__waits_for_rts),
		CASE(rndv__takes_no_place_from_the_consumer),
		CASE(end__in_error_completes_each_entry_once),
		CASE(end__by_destruction_completes_each_entry_once),
		CASE(end__by_the_death_of_the_peer_completes_each_entry_once),
		CASE(end__by_unplugging_completes_each_entry_once),
		CASE(end__by_reset_completes_each_entry_once),
		CASE(end__by_a_full_cq),
		CASE(end__leaves_what_is_not_polled),
		CASE(end__half_way_takes_back_the_count),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
