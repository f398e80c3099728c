/* run_test.c: small SENDs that are received together leave everything as if each had come by
 * itself, wherever in the row something is not as usual. Each story is told twice, and the two
 * records are compared.
 */
#include "watch.h"

#include <string.h>

enum { SENDS = 12, ODD = 5, LENGTH = 8, CQ_SMALL = 4 };

struct tale;

struct story {
	const char *name;
	bool in_run; /* at least two are taken together */
	/* What is unusual, before the list is posted and after it has gone. */
	void (*prepare)(struct tale *t);
	void (*go_on)(struct tale *t);
	bool small_cq; /* of the receiver */
	int polled;    /* so many places the receiver's own thread waits with */
};

struct tale {
	struct net net;
	struct ibt_qp *qp[2];
	struct watch watch;
	const struct story *story;
	struct ibv_wc handed[SENDS];
	u32 missing;	/* of the receive requests, from the end */
	u32 bad_key;	/* one of them; SENDS: none */
	u32 too_short;	/* the same */
	u32 solicited;	/* a request; SENDS: none */
	bool asks_twice;
};

/* What can be seen of it. */
struct record {
	u32 received, sent;
	struct {
		u64 wr_id;
		u32 status, byte_len, qp_num, src_qp;
	} wc[2][SENDS + 4];
	u64 counters[2][PATH_COUNTERS];
	struct ibt_counters counts[2];
	u32 events[2][32], state[2];
	u8 memory[64 * SENDS];
	u32 packets;
	struct {
		int from;
		u32 opcode, syndrome, psn, msn;
	} packet[8 * SENDS];
};

static void tale_post_recvs(struct tale *t, u32 from, u32 to)
{
	for (u32 i = from; i < to; i++) {
		struct net_side *s = &t->net.side[1];
		struct ibv_sge sge = { .addr = (u64)(uintptr_t)s->memory + 64 * i,
				       .length = i == t->too_short ? LENGTH - 1 : 64,
				       .lkey = i == t->bad_key ? s->key + 1 : s->key };
		struct ibv_recv_wr wr = { .wr_id = 100 + i, .sg_list = &sge, .num_sge = 1 }, *bad;

		assert_int_equal(ibt_post_recv(t->qp[1], &wr, &bad), 0);
	}
}

static void tale_post_list(struct tale *t)
{
	struct ibv_send_wr wr[SENDS];
	struct ibv_sge sge[SENDS];

	for (u32 i = 0; i < SENDS; i++) {
		memset(t->net.side[0].memory + 64 * i, (int)i + 1, LENGTH);
		wr[i] = net_wr(&sge[i], &t->net.side[0], IBV_WR_SEND, i, 64 * i, LENGTH);
		wr[i].next = i + 1 < SENDS ? &wr[i + 1] : NULL;
		if (i + 1 == SENDS || (t->asks_twice && i == ODD))
			wr[i].send_flags = IBV_SEND_SIGNALED;
		if (i == t->solicited)
			wr[i].send_flags |= IBV_SEND_SOLICITED;
	}
	net_post(t->qp[0], wr);
}

static void tale_open(struct tale *t, const struct story *story, bool singly)
{
	struct net_config cfg = {
		.seed = 1, .delay_ns = 1000, .reliable = true, .singly = singly
	};
	struct net_qp how = net_qp_defaults(IBV_QPT_RC);

	*t = (struct tale){ .story = story,
			    .bad_key = SENDS,
			    .too_short = SENDS,
			    .solicited = SENDS };
	how.depth = 2 * SENDS;
	how.all_signalled = false;
	how.min_rnr_timer = 1;
	net_open(&t->net, &cfg);
	if (story->small_cq) {
		cq_fini(&t->net.side[1].recv_cq);
		assert_int_equal(cq_init(&t->net.side[1].recv_cq, CQ_SMALL), 0);
	}
	net_pair(&t->net, t->qp, &how);
	watch_begin(&t->watch, &t->net);
}

static void tale_note_wc(struct record *r, int side, u32 at, const struct ibv_wc *wc)
{
	assert_true(at < ARRAY_LEN(r->wc[side]));
	r->wc[side][at].wr_id = wc->wr_id;
	r->wc[side][at].status = wc->status;
	r->wc[side][at].byte_len = wc->status == IBV_WC_SUCCESS ? wc->byte_len : 0;
	r->wc[side][at].qp_num = wc->qp_num;
	r->wc[side][at].src_qp = wc->src_qp;
}

static void tale_note(struct tale *t, struct record *r, u32 handed)
{
	struct ibv_wc wc;

	for (; r->received < handed; r->received++)
		tale_note_wc(r, 1, r->received, &t->handed[r->received]);
	while (cq_pop(&t->net.side[1].recv_cq, 1, &wc) == 1)
		tale_note_wc(r, 1, r->received++, &wc);
	while (cq_pop(&t->net.side[0].send_cq, 1, &wc) == 1)
		tale_note_wc(r, 0, r->sent++, &wc);
	for (int i = 0; i < 2; i++) {
		struct net_side *s = &t->net.side[i];

		memcpy(r->counters[i], s->counters, sizeof(s->counters));
		r->counts[i] = s->qp_counters;
		memcpy(r->events[i], s->events, sizeof(s->events));
		r->state[i] = ibt_qp_state(t->qp[i]);
	}
	memcpy(r->memory, t->net.side[1].memory, sizeof(r->memory));
	r->packets = t->watch.count;
	for (u32 i = 0; i < r->packets && i < ARRAY_LEN(r->packet); i++) {
		const struct pkt *p = &t->watch.seen[i].pkt;

		r->packet[i].from = t->watch.seen[i].from;
		r->packet[i].opcode = p->opcode;
		r->packet[i].psn = p->psn;
		if (p->opcode != PKT_ACK)
			continue;
		r->packet[i].syndrome = p->syndrome;
		r->packet[i].msn = p->msn;
	}
}

static void tale_tell(const struct story *story, bool singly, struct record *r)
{
	static struct tale t;
	u32 handed;

	memset(r, 0, sizeof(*r));
	tale_open(&t, story, singly);
	if (story->prepare != NULL)
		story->prepare(&t);
	tale_post_recvs(&t, 0, SENDS - t.missing);
	tale_post_list(&t);
	cq_expect(&t.net.side[1].recv_cq, story->polled, t.handed);
	net_step(&t.net);
	handed = (u32)cq_expected(story->polled);
	if (story->go_on != NULL)
		story->go_on(&t);
	net_run(&t.net, NS_PER_S);
	tale_note(&t, r, handed);
	if (singly)
		assert_int_equal(t.net.in_runs, 0);
	else
		assert_int_equal(t.net.in_runs > 1, story->in_run);
	ibt_qp_destroy(t.qp[0]);
	ibt_qp_destroy(t.qp[1]);
	net_close(&t.net);
}

/* Both ways, and the same; *r: what happened. */
static void story_compare(const struct story *story, struct record *r)
{
	static struct record single;

	tale_tell(story, true, &single);
	tale_tell(story, false, r);
	assert_memory_equal(&single, r, sizeof(*r));
}

static u32 story_count(const struct record *r, int side, enum ibv_wc_status status)
{
	u32 n = 0;

	for (u32 i = 0; i < (side == 1 ? r->received : r->sent); i++)
		n += r->wc[side][i].status == status;
	return n;
}

/* ---- stories ---- */

static struct record record;

static void run__arrives_as_one_by_one(void **state)
{
	story_compare(&(struct story){ .in_run = true }, &record);
	assert_int_equal(story_count(&record, 1, IBV_WC_SUCCESS), SENDS);
	assert_int_equal(record.sent, 1);
}

static void tale_ask_twice(struct tale *t)
{
	t->asks_twice = true;
	t->solicited = ODD;
}

static void run__an_acknowledgement_is_asked_for_in_the_middle(void **state)
{
	story_compare(&(struct story){ .in_run = true, .prepare = tale_ask_twice }, &record);
	assert_int_equal(story_count(&record, 1, IBV_WC_SUCCESS), SENDS);
	assert_int_equal(record.sent, 2);
}

static void run__poller_has_fewer_places_than_messages(void **state)
{
	story_compare(&(struct story){ .in_run = true, .polled = ODD }, &record);
	assert_int_equal(story_count(&record, 1, IBV_WC_SUCCESS), SENDS);
}

static void tale_leave_some_out(struct tale *t)
{
	t->missing = SENDS - ODD;
}

static void tale_post_the_rest(struct tale *t)
{
	tale_post_recvs(t, ODD, SENDS);
}

static void run__receive_requests_end_in_the_middle(void **state)
{
	story_compare(&(struct story){ .in_run = true,
				       .prepare = tale_leave_some_out,
				       .go_on = tale_post_the_rest },
		      &record);
	assert_int_equal(record.counters[1][COUNT_TX_RNR], 1);
	assert_int_equal(story_count(&record, 1, IBV_WC_SUCCESS), SENDS);
}

static void tale_spoil_a_key(struct tale *t)
{
	t->bad_key = ODD;
}

static void run__a_key_is_wrong_in_the_middle(void **state)
{
	story_compare(&(struct story){ .in_run = true, .prepare = tale_spoil_a_key }, &record);
	assert_int_equal(story_count(&record, 1, IBV_WC_SUCCESS), ODD);
	assert_int_equal(record.wc[1][ODD].status, IBV_WC_LOC_PROT_ERR);
	assert_int_equal(story_count(&record, 1, IBV_WC_WR_FLUSH_ERR), SENDS - ODD - 1);
}

static void tale_shorten_one(struct tale *t)
{
	t->too_short = ODD;
}

static void run__a_request_is_too_short_in_the_middle(void **state)
{
	story_compare(&(struct story){ .in_run = true, .prepare = tale_shorten_one }, &record);
	assert_int_equal(story_count(&record, 1, IBV_WC_SUCCESS), ODD);
	assert_int_equal(record.wc[1][ODD].status, IBV_WC_LOC_LEN_ERR);
}

static void run__the_completion_queue_overflows_in_the_middle(void **state)
{
	story_compare(&(struct story){ .in_run = true, .small_cq = true }, &record);
	assert_int_equal(record.received, CQ_SMALL);
	assert_int_equal(record.state[1], IBV_QPS_ERR);
}

/* Something that comes the other way is answered by a row whose first bears the acknowledgement. */
static void tale_send_back_first(struct tale *t)
{
	struct ibv_sge sge;
	struct ibv_send_wr wr;

	net_post_recv(&t->net.side[0], t->qp[0], 7, 8192, 64);
	wr = net_wr(&sge, &t->net.side[1], IBV_WR_SEND, 70, 4096, LENGTH);
	wr.send_flags = IBV_SEND_SIGNALED;
	net_post(t->qp[1], &wr);
	net_step(&t->net);
	assert_int_equal(net_wc(&t->net.side[0].recv_cq).wr_id, 7);
}

static void run__the_first_bears_an_acknowledgement(void **state)
{
	story_compare(&(struct story){ .in_run = true, .prepare = tale_send_back_first }, &record);
	assert_int_equal(story_count(&record, 1, IBV_WC_SUCCESS), SENDS);
}

/* Nothing is received in ERR, nor by another connection of the same queue pair. */
static void tale_fail(struct tale *t)
{
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_ERR };

	assert_int_equal(ibt_qp_modify(t->qp[1], &a, IBV_QP_STATE, NULL, NULL), 0);
}

static void run__the_queue_pair_has_failed(void **state)
{
	story_compare(&(struct story){ .prepare = tale_fail }, &record);
	assert_int_equal(story_count(&record, 1, IBV_WC_SUCCESS), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(run__arrives_as_one_by_one),
		cmocka_unit_test(run__an_acknowledgement_is_asked_for_in_the_middle),
		cmocka_unit_test(run__poller_has_fewer_places_than_messages),
		cmocka_unit_test(run__receive_requests_end_in_the_middle),
		cmocka_unit_test(run__a_key_is_wrong_in_the_middle),
		cmocka_unit_test(run__a_request_is_too_short_in_the_middle),
		cmocka_unit_test(run__the_completion_queue_overflows_in_the_middle),
		cmocka_unit_test(run__the_first_bears_an_acknowledgement),
		cmocka_unit_test(run__the_queue_pair_has_failed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
