/* sa_test.c: queries and memberships of a port whose SA is a model in this file.
 * In:    calls of consumers, answers of the model    Out: verdicts
 * Runs:  the test's thread; the queues of the MAD layer and of the SA client
 * Locks: test_lock guards what the model and the consumers have seen
 */
#include <endian.h>
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/test_support/fake_device.h"
#include "mad/mad_priv.h"
#include "sa/sa_priv.h"

enum { MLID = 0xc005, WAIT_MS = 5000 };

static struct {
	struct fake_device *fake;
	struct mad_port *port;
	struct ib_sa_client client;
	int asked, joins, leaves; /* atomic: requests that came to the SA */
	u8 joined;		  /* atomic: what the SA keeps of this port */
	u8 shared;		  /* atomic: what those who share the port know of */
	int shared_joins;	  /* joins before the last of it */
	int subscribed, unsubscribed; /* atomic: InformInfo that came */
	bool both_traps;	      /* it is for GIDs out of service, too */
	int report_answers;	      /* atomic */
	int pkey_index;		      /* atomic: that the latest MAD had */
	bool silent;		  /* atomic */
	u16 status;		  /* atomic: of the answers */
} t;

/* Its thread outlives a test. */
static struct work_queue mad_queue;

/* ---- the model of an SA ---------------------------------------------------------------------- */

static void model_judge_member(struct ib_sa_mad *mad)
{
	struct ib_sa_mcmember_rec rec;

	ib_sa_unpack_mcmember(mad->data, &rec);
	assert_int_equal(rec.port_gid.raw[15], 7);
	if (mad->mad_hdr.method == IB_MGMT_METHOD_SET) {
		__atomic_or_fetch(&t.joined, rec.join_state, __ATOMIC_SEQ_CST);
		fake_bump(&t.joins);
	} else {
		assert_int_equal(mad->mad_hdr.method, IB_SA_METHOD_DELETE);
		__atomic_and_fetch(&t.joined, (u8)~rec.join_state, __ATOMIC_SEQ_CST);
		fake_bump(&t.leaves);
	}
	rec.mlid = htobe16(MLID);
	rec.qkey = htobe32(0x0b1b);
	ib_sa_pack_mcmember(&rec, mad->data);
}

static void model_judge_inform(struct ib_sa_mad *mad)
{
	struct ib_sa_inform rec;

	ib_sa_unpack_inform(mad->data, &rec);
	assert_int_equal(mad->mad_hdr.method, IB_MGMT_METHOD_SET);
	assert_int_equal(rec.lid_range_begin, 0xffff);
	assert_int_equal(rec.is_generic, 1);
	if (!t.both_traps || be16toh(rec.trap_num) != IB_SA_TRAP_GID_OUT_OF_SERVICE)
		assert_int_equal(be16toh(rec.trap_num), IB_SA_TRAP_GID_IN_SERVICE);
	assert_int_equal(be32toh(rec.qpn), 1);
	fake_bump(rec.subscribe ? &t.subscribed : &t.unsubscribed);
}

static void model_judge(struct ib_sa_mad *mad)
{
	struct ib_sa_path_rec rec;

	switch (be16toh(mad->mad_hdr.attr_id)) {
	case IB_SA_ATTR_PATH_REC:
		ib_sa_unpack_path(mad->data, &rec);
		rec.dlid = htobe16((u16)(rec.dgid.raw[15] * 2));
		ib_sa_pack_path(&rec, mad->data);
		break;
	case IB_SA_ATTR_MC_MEMBER_REC:
		model_judge_member(mad);
		break;
	case IB_SA_ATTR_INFORM_INFO:
		model_judge_inform(mad);
		break;
	default:
		assert_int_equal(be16toh(mad->mad_hdr.attr_id), IB_SA_ATTR_SERVICE_REC);
	}
}

static int model_send(void *arg, const struct mad_departure *d)
{
	struct mad_arrival a = { .src_qp = 1,
				 .qkey = IB_QP1_QKEY,
				 .slid = 9,
				 .length = IB_MGMT_MAD_SIZE };
	struct ib_sa_mad mad;

	memcpy(&mad, d->mad, sizeof(mad));
	__atomic_store_n(&t.pkey_index, d->pkey_index, __ATOMIC_SEQ_CST);
	a.pkey = t.fake->pkeys[d->pkey_index] | 0x8000;
	assert_int_equal(container_of(d->ah, struct fake_ah, ib)->attr.dlid, 9);
	assert_int_equal(mad.mad_hdr.mgmt_class, IB_MGMT_CLASS_SUBN_ADM);
	assert_int_equal(mad.mad_hdr.class_version, 2);
	if (mad.mad_hdr.method == IB_MGMT_METHOD_REPORT_RESP) {
		assert_int_equal(be16toh(mad.mad_hdr.attr_id), IB_SA_ATTR_NOTICE);
		fake_bump(&t.report_answers);
		return 0;
	}
	fake_bump(&t.asked);
	if (__atomic_load_n(&t.silent, __ATOMIC_SEQ_CST))
		return 0;
	if (__atomic_load_n(&t.status, __ATOMIC_SEQ_CST) == 0)
		model_judge(&mad);
	mad.mad_hdr.status = htobe16(__atomic_load_n(&t.status, __ATOMIC_SEQ_CST));
	mad.mad_hdr.method |= IB_MGMT_METHOD_RESP;
	if (mad.mad_hdr.method == (IB_MGMT_METHOD_SET | IB_MGMT_METHOD_RESP))
		mad.mad_hdr.method = IB_MGMT_METHOD_GET_RESP;
	a.mad = &mad;
	mad_port_receive(t.port, &a);
	return 0;
}

static struct mad_port_ops model_ops = { .send = model_send };

/* Others share the port: they leave for it, as the node of a fabric does. */
static int model_share(void *arg, const struct mad_member *m)
{
	assert_true(m->subscribes ? m->trap == IB_SA_TRAP_GID_IN_SERVICE : m->mgid.raw[0] == 0xff);
	t.shared_joins = fake_count(&t.joins);
	__atomic_store_n(&t.shared, m->states, __ATOMIC_SEQ_CST);
	return 0;
}

/* ---- the bed --------------------------------------------------------------------------------- */

static int test_query_port(struct ib_device *device, u8 port, struct ib_port_attr *attr)
{
	*attr = (struct ib_port_attr){ .state = IB_PORT_ACTIVE,
				       .gid_tbl_len = FAKE_GIDS,
				       .pkey_tbl_len = FAKE_PKEYS,
				       .lid = 3,
				       .sm_lid = fake_of(device)->lmc == 0 ? 9 : 0,
				       .link_layer = IB_LINK_LAYER_INFINIBAND };
	return 0;
}

static int test_setup(void **state)
{
	struct mad_port_config config = { .port_num = 1,
					  .qp_type = IB_QPT_GSI,
					  .ops = &model_ops,
					  .queue = &mad_queue };
	int err;

	memset(&t, 0, sizeof(t));
	t.fake = fake_create("fake%d");
	t.fake->ib.query_port = test_query_port;
	t.fake->gids[0].raw[15] = 7;
	t.fake->pkeys[0] = 0xffff;
	config.device = &t.fake->ib;
	t.port = mad_port_add(&config, &err);
	assert_non_null(t.port);
	assert_int_equal(ib_register_device(&t.fake->ib), 0);
	ib_sa_register_client(&t.client);
	return 0;
}

static int test_teardown(void **state)
{
	ib_sa_unregister_client(&t.client);
	ib_unregister_device(&t.fake->ib);
	mad_port_remove(t.port);
	fake_destroy(t.fake);
	return 0;
}

/* What a consumer has heard. */
struct heard {
	int calls;  /* atomic */
	int status; /* of the last one */
	struct ib_sa_path_rec path;
	int answer; /* that the callback returns */
};

static void path_heard(int status, struct ib_sa_path_rec *resp, void *context)
{
	struct heard *h = context;

	h->status = status;
	if (resp != NULL)
		h->path = *resp;
	fake_bump(&h->calls);
}

static int mcast_heard(int status, struct ib_sa_multicast *multicast)
{
	struct heard *h = multicast->context;
	int answer = h->answer;

	h->status = status;
	fake_bump(&h->calls);
	return answer;
}

static int ask_path(struct heard *h, int timeout_ms, struct ib_sa_query **query)
{
	struct ib_sa_path_rec rec = { .dgid.raw = { [15] = 21 }, .numb_path = 1 };

	return ib_sa_path_rec_get(&t.client, &t.fake->ib, 1, &rec,
				  IB_SA_PATH_REC_DGID | IB_SA_PATH_REC_NUMB_PATH, timeout_ms, 0,
				  path_heard, h, query);
}

static struct ib_sa_multicast *join(struct heard *h, u8 states, u8 group)
{
	struct ib_sa_mcmember_rec rec = { .mgid.raw = { 0xff, [15] = group },
					  .join_state = states };

	return ib_sa_join_multicast(&t.client, &t.fake->ib, 1, &rec, 0, 0, mcast_heard, h);
}

/* ---- queries --------------------------------------------------------------------------------- */

static void path_rec_get__answers(void **state)
{
	struct heard h = { .calls = 0 };
	struct ib_sa_query *query;

	assert_true(ask_path(&h, 1000, &query) > 0);
	assert_true(fake_await(&h.calls, 1));
	assert_int_equal(h.status, 0);
	assert_int_equal(be16toh(h.path.dlid), 42);
	assert_int_equal(h.path.numb_path, 1);
}

static void path_rec_get__refused(void **state)
{
	struct heard h = { .calls = 0 };
	struct ib_sa_query *query;

	t.status = 0x0300; /* no records */
	assert_true(ask_path(&h, 1000, &query) > 0);
	assert_true(fake_await(&h.calls, 1));
	assert_int_equal(h.status, -EINVAL);
}

static void path_rec_get__times_out_after_retries(void **state)
{
	struct heard h = { .calls = 0 };
	struct ib_sa_query *query;

	t.silent = true;
	assert_true(ask_path(&h, 5, &query) > 0);
	assert_true(fake_await(&h.calls, 1));
	assert_int_equal(h.status, -ETIMEDOUT);
	assert_int_equal(fake_count(&t.asked), 1 + SA_RETRIES);
}

/* The SA is in the default partition: its full P_Key is taken before the limited one, wherever both
 * lie in the table. A port without either asks by its first P_Key. */
static void path_rec_get__asks_in_the_default_partition(void **state)
{
	static const struct {
		u16 pkeys[FAKE_PKEYS];
		int index;
	} rows[] = { { { 0x8001, 0x7fff, 0x8002 }, 1 },
		     { { 0x7fff, 0x8001, 0xffff }, 2 },
		     { { 0x8001, 0x8002, 0x8003 }, 0 } };

	for (u32 i = 0; i < ARRAY_LEN(rows); i++) {
		struct heard h = { .calls = 0 };
		struct ib_sa_query *query;

		fake_set_pkeys(t.fake, rows[i].pkeys);
		assert_true(ask_path(&h, 1000, &query) > 0);
		assert_true(fake_await(&h.calls, 1));
		assert_int_equal(h.status, 0);
		assert_int_equal(fake_count(&t.pkey_index), rows[i].index);
	}
}

static void cancel_query__ends_it_once(void **state)
{
	struct heard h = { .calls = 0 };
	struct ib_sa_query *query;
	int id;

	t.silent = true;
	id = ask_path(&h, 60000, &query);
	assert_true(id > 0);
	ib_sa_cancel_query(id + 1, query); /* nobody's */
	ib_sa_cancel_query(id, query);
	assert_true(fake_await(&h.calls, 1));
	assert_int_equal(h.status, -EINTR);
	ib_sa_cancel_query(id, query); /* it has ended */
	usleep(2000);
	assert_int_equal(h.calls, 1);
}

static void cancel_query__ends_the_one_that_it_names(void **state)
{
	static const int order[] = { 1, 2, 0 };
	struct heard h[3] = { { .calls = 0 } };
	struct ib_sa_query *query[3];
	int id[3], ended[3];

	t.silent = true;
	for (int i = 0; i < 3; i++)
		id[i] = ask_path(&h[i], 60000, &query[i]);
	for (int i = 0; i < 3; i++) {
		ib_sa_cancel_query(id[order[i]], query[order[i]]);
		do
			ended[i] = fake_count(&h[0].calls) | fake_count(&h[1].calls) << 1 |
				   fake_count(&h[2].calls) << 2;
		while (__builtin_popcount((u32)ended[i]) <= i && usleep(1000) == 0);
	}
	assert_int_equal(ended[0], 1 << 1);
	assert_int_equal(ended[1], 1 << 1 | 1 << 2);
	assert_int_equal(ended[2], 7);
}

static void path_rec_get__judges_its_arguments(void **state)
{
	struct heard h = { .calls = 0 };
	struct ib_sa_query *query;
	struct ib_sa_client stranger = { .registered = 0 };
	struct ib_sa_path_rec rec = { .numb_path = 1 };

	assert_int_equal(ask_path(&h, 0, &query), -EINVAL);
	assert_int_equal(ib_sa_path_rec_get(&t.client, &t.fake->ib, 2, &rec, 0, 1, 0, path_heard,
					    &h, &query),
			 -ENODEV);
	assert_int_equal(ib_sa_path_rec_get(&stranger, &t.fake->ib, 1, &rec, 0, 1, 0, path_heard,
					    &h, &query),
			 -EINVAL);
	t.fake->lmc = 1; /* no SM */
	assert_int_equal(ask_path(&h, 1, &query), -EAGAIN);
	t.fake->lmc = 0;
	assert_int_equal(h.calls, 0);
}

/* ---- memberships ----------------------------------------------------------------------------- */

static void join_multicast__is_shared(void **state)
{
	struct heard first = { .calls = 0 }, second = { .calls = 0 };
	struct ib_sa_multicast *a, *b;
	struct ib_sa_mcmember_rec rec;

	a = join(&first, IB_SA_FULL_MEMBER, 1);
	assert_false(IS_ERR(a));
	assert_true(fake_await(&first.calls, 1));
	assert_int_equal(first.status, 0);
	assert_int_equal(be16toh(a->rec.mlid), MLID);
	b = join(&second, IB_SA_FULL_MEMBER, 1);
	assert_true(fake_await(&second.calls, 1));
	assert_int_equal(second.status, 0);
	assert_int_equal(be16toh(b->rec.mlid), MLID);
	assert_int_equal(t.joins, 1);
	assert_int_equal(ib_sa_get_mcmember_rec(&t.fake->ib, 1, &a->rec.mgid, &rec), 0);
	assert_int_equal(be16toh(rec.mlid), MLID);
	ib_sa_free_multicast(a);
	usleep(2000);
	assert_int_equal(fake_count(&t.leaves), 0);
	ib_sa_free_multicast(b);
	assert_true(fake_await(&t.leaves, 1));
	assert_int_equal(t.joined, 0);
	assert_int_equal(first.calls + second.calls, 2);
}

static void join_multicast__leaves_states_one_by_one(void **state)
{
	struct heard first = { .calls = 0 }, second = { .calls = 0 };
	struct ib_sa_multicast *a = join(&first, IB_SA_FULL_MEMBER, 1), *b;

	assert_true(fake_await(&first.calls, 1));
	b = join(&second, IB_SA_SEND_ONLY_NON_MEMBER, 1);
	assert_true(fake_await(&second.calls, 1));
	assert_int_equal(t.joined, IB_SA_FULL_MEMBER | IB_SA_SEND_ONLY_NON_MEMBER);
	ib_sa_free_multicast(a);
	assert_true(fake_await(&t.leaves, 1));
	assert_int_equal(t.joined, IB_SA_SEND_ONLY_NON_MEMBER);
	ib_sa_free_multicast(b);
	assert_true(fake_await(&t.leaves, 2));
	assert_int_equal(t.joined, 0);
}

/* The SA keeps each state until its last member leaves. */
static void join_multicast__counts_each_state(void **state)
{
	struct heard h = { .calls = 0 };
	struct ib_sa_multicast *members[4];

	for (int i = 0; i < 4; i++) {
		members[i] = join(&h, (u8)(1 << i), 1);
		assert_true(fake_await(&h.calls, i + 1));
		assert_int_equal(h.status, 0);
	}
	for (int i = 0; i < 4; i++) {
		assert_int_equal(__atomic_load_n(&t.joined, __ATOMIC_SEQ_CST), 0xf << i & 0xf);
		assert_int_equal(fake_count(&t.leaves), i);
		ib_sa_free_multicast(members[i]);
		assert_true(fake_await(&t.leaves, i + 1));
	}
	assert_int_equal(t.joined, 0);
	assert_int_equal(t.joins, 4);
}

/* The group has MTU 4. */
static void join_multicast__compares_values_as_the_selector_says(void **state)
{
	static const struct {
		u8 selector, mtu;
		bool fits;
	} rows[] = {
		{ IB_SA_GT, 3, true }, { IB_SA_GT, 4, false },	{ IB_SA_GT, 5, false },
		{ IB_SA_LT, 3, false }, { IB_SA_LT, 4, false }, { IB_SA_LT, 5, true },
		{ IB_SA_EQ, 3, false }, { IB_SA_EQ, 4, true },	{ IB_SA_EQ, 5, false },
	};
	struct ib_sa_mcmember_rec rec = { .mgid.raw = { 0xff },
					  .join_state = IB_SA_FULL_MEMBER,
					  .mtu = 4 };
	struct heard h = { .calls = 0 };
	struct ib_sa_multicast *founder, *m;

	founder = ib_sa_join_multicast(&t.client, &t.fake->ib, 1, &rec, 0, 0, mcast_heard, &h);
	assert_true(fake_await(&h.calls, 1));
	for (int i = 0; i < (int)(sizeof(rows) / sizeof(rows[0])); i++) {
		rec.mtu_selector = rows[i].selector;
		rec.mtu = rows[i].mtu;
		m = ib_sa_join_multicast(&t.client, &t.fake->ib, 1, &rec,
					 IB_SA_MCMEMBER_REC_MTU_SELECTOR | IB_SA_MCMEMBER_REC_MTU,
					 0, mcast_heard, &h);
		assert_true(fake_await(&h.calls, i + 2));
		assert_int_equal(h.status, rows[i].fits ? 0 : -EINVAL);
		ib_sa_free_multicast(m);
	}
	ib_sa_free_multicast(founder);
	assert_true(fake_await(&t.leaves, 1));
}

static void join_multicast__other_values_than_the_group(void **state)
{
	struct heard first = { .calls = 0 }, second = { .calls = 0 };
	struct ib_sa_mcmember_rec rec = { .mgid.raw = { 0xff, [15] = 1 },
					  .join_state = IB_SA_FULL_MEMBER,
					  .qkey = htobe32(5) };
	struct ib_sa_multicast *a = join(&first, IB_SA_FULL_MEMBER, 1), *b;

	assert_true(fake_await(&first.calls, 1));
	b = ib_sa_join_multicast(&t.client, &t.fake->ib, 1, &rec, IB_SA_MCMEMBER_REC_QKEY, 0,
				 mcast_heard, &second);
	assert_true(fake_await(&second.calls, 1));
	assert_int_equal(second.status, -EINVAL);
	ib_sa_free_multicast(b);
	ib_sa_free_multicast(a);
	assert_true(fake_await(&t.leaves, 1));
}

static void join_multicast__refused(void **state)
{
	struct heard h = { .calls = 0, .answer = 1 /* ends the membership */ };

	t.status = 0x0200;
	assert_false(IS_ERR(join(&h, IB_SA_FULL_MEMBER, 1)));
	assert_true(fake_await(&h.calls, 1));
	assert_int_equal(h.status, -EINVAL);
	assert_int_equal(fake_count(&t.leaves), 0);
}

static void port_event(enum ib_event_type type)
{
	struct ib_event event = { .device = &t.fake->ib, .event = type, .element.port_num = 1 };

	ib_dispatch_event(&event);
}

static void port_event__resets_members(void **state)
{
	static const enum ib_event_type types[] = { IB_EVENT_CLIENT_REREGISTER, IB_EVENT_LID_CHANGE,
						    IB_EVENT_SM_CHANGE, IB_EVENT_PORT_ERR };

	for (int i = 0; i < (int)ARRAY_LEN(types); i++) {
		struct heard h = { .calls = 0 }, again = { .calls = 0 };
		struct ib_sa_multicast *a = join(&h, IB_SA_FULL_MEMBER, 1), *b;
		bool reset;

		assert_true(fake_await(&h.calls, 1));
		port_event(types[i]);
		reset = fake_await(&h.calls, 2);
		b = join(&again, IB_SA_FULL_MEMBER, 1);
		assert_true(fake_await(&again.calls, 1));
		ib_sa_free_multicast(a);
		ib_sa_free_multicast(b);
		assert_true(reset);
		assert_int_equal(h.status, -ENETRESET);
		assert_int_equal(again.status, 0);
		assert_int_equal(t.joins, 2 * i + 2);
		assert_true(fake_await(&t.leaves, i + 1));
	}
}

static bool await_shared(u8 states)
{
	for (int i = 0; i < WAIT_MS && __atomic_load_n(&t.shared, __ATOMIC_SEQ_CST) != states; i++)
		usleep(1000);
	return __atomic_load_n(&t.shared, __ATOMIC_SEQ_CST) == states;
}

/* They know of a member before the SA does, and the SA is asked to leave by them alone. */
static void free_multicast__of_a_shared_port(void **state)
{
	struct heard first = { .calls = 0 }, second = { .calls = 0 };
	struct ib_sa_multicast *a, *b;

	model_ops.member = model_share;
	a = join(&first, IB_SA_FULL_MEMBER, 1);
	assert_true(fake_await(&first.calls, 1));
	assert_int_equal(t.shared, IB_SA_FULL_MEMBER);
	assert_int_equal(t.shared_joins, 0);
	b = join(&second, IB_SA_SEND_ONLY_NON_MEMBER, 1);
	assert_true(fake_await(&second.calls, 1));
	assert_int_equal(t.shared, IB_SA_FULL_MEMBER | IB_SA_SEND_ONLY_NON_MEMBER);
	ib_sa_free_multicast(a);
	assert_true(await_shared(IB_SA_SEND_ONLY_NON_MEMBER));
	ib_sa_free_multicast(b);
	assert_true(await_shared(0));
	assert_int_equal(fake_count(&t.leaves), 0);
	t.status = 0x0200; /* refused: no member any more */
	a = join(&first, IB_SA_FULL_MEMBER, 2);
	assert_true(fake_await(&first.calls, 2));
	assert_int_equal(first.status, -EINVAL);
	assert_true(await_shared(0));
	ib_sa_free_multicast(a);
	model_ops.member = NULL;
}

static void mcmember_heard(int status, struct ib_sa_mcmember_rec *resp, void *context)
{
	struct heard *h = context;

	h->status = status;
	h->answer = resp != NULL ? be16toh(resp->mlid) : 0;
	fake_bump(&h->calls);
}

static void mcmember_rec_query__asks(void **state)
{
	struct ib_sa_mcmember_rec rec = { .port_gid.raw = { [15] = 7 }, .join_state = 1 };
	struct heard h = { .calls = 0 };
	struct ib_sa_query *query;

	assert_true(ib_sa_mcmember_rec_query(&t.client, &t.fake->ib, 1, IB_MGMT_METHOD_SET, &rec,
					     IB_SA_MCMEMBER_REC_PORT_GID, 1000, 0, mcmember_heard,
					     &h, &query) > 0);
	assert_true(fake_await(&h.calls, 1));
	assert_int_equal(h.status, 0);
	assert_int_equal(h.answer, MLID);
	assert_int_equal(t.joined, 1);
	assert_int_equal(ib_sa_mcmember_rec_query(&t.client, &t.fake->ib, 1,
						  IB_SA_METHOD_GET_TABLE, &rec, 0, 1000, 0,
						  mcmember_heard, &h, &query),
			 -EINVAL);
}

static void free_multicast__while_it_joins(void **state)
{
	struct heard h = { .calls = 0 };

	for (int i = 0; i < 200; i++) {
		struct ib_sa_multicast *a = join(&h, IB_SA_FULL_MEMBER, (u8)(i % 3));

		assert_false(IS_ERR(a));
		ib_sa_free_multicast(a);
	}
	for (int i = 0; i < WAIT_MS && __atomic_load_n(&t.joined, __ATOMIC_SEQ_CST) != 0; i++)
		usleep(1000);
	assert_int_equal(__atomic_load_n(&t.joined, __ATOMIC_SEQ_CST), 0);
}

/* A member whose callback ends the membership, or looks whether another thread can meanwhile. */
struct leaver {
	int entered, left; /* atomic: callbacks that have begun, and that have ended */
	int freed;	   /* atomic: the other thread's ib_sa_free_multicast has returned */
	bool frees;
	bool overtaken;
};

static int leaver_heard(int status, struct ib_sa_multicast *multicast)
{
	struct leaver *l = multicast->context;

	fake_bump(&l->entered);
	if (l->frees)
		ib_sa_free_multicast(multicast);
	for (int i = 0; i < 20 && !l->frees && fake_count(&l->freed) == 0; i++)
		usleep(1000);
	l->overtaken = fake_count(&l->freed) != 0;
	fake_bump(&l->left);
	return 0;
}

static void free_multicast__inside_a_callback(void **state)
{
	struct ib_sa_mcmember_rec rec = { .mgid.raw = { 0xff }, .join_state = IB_SA_FULL_MEMBER };
	struct leaver own = { .frees = true }, other = { .frees = false };
	struct ib_sa_multicast *m;

	assert_false(IS_ERR(ib_sa_join_multicast(&t.client, &t.fake->ib, 1, &rec, 0, 0,
						 leaver_heard, &own)));
	assert_true(fake_await(&own.left, 1));
	assert_true(fake_await(&t.leaves, 1));
	m = ib_sa_join_multicast(&t.client, &t.fake->ib, 1, &rec, 0, 0, leaver_heard, &other);
	assert_false(IS_ERR(m));
	assert_true(fake_await(&other.entered, 1));
	ib_sa_free_multicast(m);
	fake_bump(&other.freed);
	assert_true(fake_await(&other.left, 1));
	assert_false(other.overtaken);
	assert_true(fake_await(&t.leaves, 2));
	assert_int_equal(own.entered + other.entered, 2);
}

/* ---- subscriptions --------------------------------------------------------------------------- */

/* What a subscriber has heard. */
struct subscriber {
	int calls;    /* atomic: in which it was told a status */
	int failures; /* atomic: of these calls */
	int notices;  /* atomic */
	int status;   /* of the last call */
	int gid_byte; /* of the last notice */
	int answer;   /* that the callback returns */
	int entered;  /* atomic: callbacks that have begun */
	bool blocks;  /* atomic: a callback waits while it is set */
};

static int inform_heard(int status, struct ib_inform_info *info, struct ib_sa_notice *notice)
{
	struct subscriber *s = info->context;
	int answer = s->answer;

	fake_bump(&s->entered);
	while (__atomic_load_n(&s->blocks, __ATOMIC_SEQ_CST))
		usleep(1000);
	s->status = status;
	if (notice != NULL) {
		assert_int_equal(be16toh(notice->trap_num), IB_SA_TRAP_GID_IN_SERVICE);
		s->gid_byte = notice->data.gid_event.gid.raw[15];
	}
	if (status != 0)
		fake_bump(&s->failures);
	fake_bump(notice != NULL ? &s->notices : &s->calls);
	return answer;
}

static struct ib_inform_info *subscribe_to(u16 trap, struct subscriber *s)
{
	struct ib_inform_info *info = ib_sa_register_inform_info(&t.client, &t.fake->ib, 1, trap, 0,
								 inform_heard, s);

	assert_false(IS_ERR(info));
	return info;
}

static struct ib_inform_info *subscribe(struct subscriber *s)
{
	return subscribe_to(IB_SA_TRAP_GID_IN_SERVICE, s);
}

/* A report of the SA about a GID that ends in `gid_byte`. */
static void report(u16 trap, u8 gid_byte)
{
	static u32 tids;
	struct ib_sa_notice notice = { .is_generic = 1,
				       .type = IB_NOTICE_TYPE_INFO & 0x7f,
				       .producer_type = htobe32(4),
				       .trap_num = htobe16(trap),
				       .data.gid_event.gid.raw = { [15] = gid_byte } };
	struct ib_sa_mad mad = { .mad_hdr = { .base_version = IB_MGMT_BASE_VERSION,
					      .mgmt_class = IB_MGMT_CLASS_SUBN_ADM,
					      .class_version = IB_SA_CLASS_VERSION,
					      .method = IB_MGMT_METHOD_REPORT,
					      .tid = htobe64(++tids),
					      .attr_id = htobe16(IB_SA_ATTR_NOTICE) } };
	struct mad_arrival a = { .src_qp = 1,
				 .qkey = IB_QP1_QKEY,
				 .pkey = 0xffff,
				 .slid = 9,
				 .mad = &mad,
				 .length = IB_MGMT_MAD_SIZE };

	ib_sa_pack_notice(&notice, mad.data);
	mad_port_receive(t.port, &a);
}

static void register_inform_info__is_shared(void **state)
{
	struct subscriber first = { .calls = 0 }, second = { .calls = 0 };
	struct ib_inform_info *a = subscribe(&first), *b;

	assert_true(fake_await(&first.calls, 1));
	assert_int_equal(first.status, 0);
	b = subscribe(&second);
	assert_true(fake_await(&second.calls, 1));
	assert_int_equal(second.status, 0);
	assert_int_equal(t.subscribed, 1);
	report(IB_SA_TRAP_GID_OUT_OF_SERVICE, 1); /* not theirs, and answered like the next one */
	report(IB_SA_TRAP_GID_IN_SERVICE, 2);
	assert_true(fake_await(&first.notices, 1));
	assert_true(fake_await(&second.notices, 1));
	assert_true(fake_await(&t.report_answers, 2));
	assert_int_equal(first.gid_byte, 2);
	assert_int_equal(second.gid_byte, 2);
	assert_int_equal(ib_sa_unregister_inform_info(a), 0);
	report(IB_SA_TRAP_GID_IN_SERVICE, 3);
	assert_true(fake_await(&second.notices, 2));
	assert_true(fake_await(&t.report_answers, 3));
	assert_int_equal(fake_count(&first.notices), 1);
	assert_int_equal(fake_count(&t.unsubscribed), 0);
	assert_int_equal(ib_sa_unregister_inform_info(b), 0);
	assert_true(fake_await(&t.unsubscribed, 1));
	assert_int_equal(first.calls + second.calls, 2);
}

static void register_inform_info__judges_its_arguments(void **state)
{
	struct ib_sa_client stranger = { .registered = 0 };
	struct ib_inform_info *info;

	info = ib_sa_register_inform_info(&t.client, &t.fake->ib, 2, 64, 0, inform_heard, NULL);
	assert_int_equal(PTR_ERR(info), -ENODEV);
	info = ib_sa_register_inform_info(&stranger, &t.fake->ib, 1, 64, 0, inform_heard, NULL);
	assert_int_equal(PTR_ERR(info), -EINVAL);
}

/* Another SM: one that takes the subscription, and then one that is there too late for it. */
static void register_inform_info__subscribes_again(void **state)
{
	struct subscriber s = { .calls = 0 };
	struct ib_inform_info *info = subscribe(&s);
	int asked;

	assert_true(fake_await(&s.calls, 1));
	port_event(IB_EVENT_CLIENT_REREGISTER);
	assert_true(fake_await(&s.calls, 2));
	assert_int_equal(s.status, 0);
	assert_int_equal(t.subscribed, 2);
	__atomic_store_n(&t.silent, true, __ATOMIC_SEQ_CST);
	asked = fake_count(&t.asked);
	port_event(IB_EVENT_SM_CHANGE);
	assert_true(fake_await(&t.asked, asked + 1));
	__atomic_store_n(&t.silent, false, __ATOMIC_SEQ_CST);
	port_event(IB_EVENT_CLIENT_REREGISTER);
	assert_true(fake_await(&s.calls, 3));
	assert_int_equal(s.status, 0);
	port_event(IB_EVENT_PORT_ERR);
	port_event(IB_EVENT_PORT_ACTIVE);
	assert_true(fake_await(&s.calls, 4));
	port_event(IB_EVENT_LID_CHANGE);
	assert_true(fake_await(&s.calls, 5));
	(void)ib_sa_unregister_inform_info(info);
	assert_true(fake_await(&t.unsubscribed, 1));
	assert_int_equal(fake_count(&s.failures), 0); /* one that was overtaken is none */
}

static void register_inform_info__subscribes_to_each_trap_again(void **state)
{
	static const u16 traps[] = { IB_SA_TRAP_GID_IN_SERVICE, IB_SA_TRAP_GID_OUT_OF_SERVICE };
	struct subscriber s[2] = { { .calls = 0 } };
	struct ib_inform_info *info[2];

	t.both_traps = true;
	for (int i = 0; i < 2; i++) {
		info[i] = subscribe_to(traps[i], &s[i]);
		assert_true(fake_await(&s[i].calls, 1));
	}
	port_event(IB_EVENT_CLIENT_REREGISTER);
	for (int i = 0; i < 2; i++) {
		assert_true(fake_await(&s[i].calls, 2));
		assert_int_equal(s[i].status, 0);
	}
	assert_int_equal(t.subscribed, 4);
	for (int i = 0; i < 2; i++)
		(void)ib_sa_unregister_inform_info(info[i]);
	assert_true(fake_await(&t.unsubscribed, 2));
}

/* Without an SM, and refused: the next event has it tried again. */
static void register_inform_info__fails_and_tries_again(void **state)
{
	struct subscriber s = { .calls = 0 };
	struct ib_inform_info *info;

	t.fake->lmc = 1;
	info = subscribe(&s);
	assert_true(fake_await(&s.calls, 1));
	assert_int_equal(s.status, -EAGAIN);
	t.fake->lmc = 0;
	__atomic_store_n(&t.status, 0x0200, __ATOMIC_SEQ_CST);
	port_event(IB_EVENT_SM_CHANGE);
	assert_true(fake_await(&s.calls, 2));
	assert_int_equal(s.status, -EINVAL);
	__atomic_store_n(&t.status, 0, __ATOMIC_SEQ_CST);
	port_event(IB_EVENT_CLIENT_REREGISTER);
	assert_true(fake_await(&s.calls, 3));
	assert_int_equal(s.status, 0);
	(void)ib_sa_unregister_inform_info(info);
	assert_true(fake_await(&t.unsubscribed, 1));
}

static void register_inform_info__another_agent_has_the_reports(void **state)
{
	struct ib_mad_reg_req taken = { .mgmt_class = IB_MGMT_CLASS_SUBN_ADM,
					.mgmt_class_version = IB_SA_CLASS_VERSION,
					.method_mask = { 1ul << IB_MGMT_METHOD_REPORT } };
	struct ib_mad_agent *agent = ib_register_mad_agent(&t.fake->ib, 1, IB_QPT_GSI, &taken, 0,
							   sa_query_on_sent, sa_query_on_received,
							   NULL);
	struct subscriber s = { .calls = 0, .answer = 1 /* ends the subscription */ };

	assert_false(IS_ERR(agent));
	(void)subscribe(&s);
	assert_true(fake_await(&s.calls, 1));
	assert_int_equal(s.status, -EBUSY);
	(void)ib_unregister_mad_agent(agent);
}

/* The node answers reports and unsubscribes. */
static void register_inform_info__of_a_kept_port(void **state)
{
	struct subscriber s = { .calls = 0 };
	struct ib_inform_info *info;

	model_ops.member = model_share;
	info = subscribe(&s);
	assert_true(fake_await(&s.calls, 1));
	assert_int_equal(t.shared, 1);
	assert_int_equal(t.subscribed, 1);
	report(IB_SA_TRAP_GID_IN_SERVICE, 5);
	assert_true(fake_await(&s.notices, 1));
	(void)ib_sa_unregister_inform_info(info);
	assert_true(await_shared(0));
	assert_int_equal(fake_count(&t.report_answers), 0);
	assert_int_equal(fake_count(&t.unsubscribed), 0);
	model_ops.member = NULL;
}

/* A consumer that takes its time misses notices, and is told to look anew. */
static void register_inform_info__too_many_reports(void **state)
{
	enum { REPORTS = 2000 };
	struct subscriber s = { .calls = 0 };
	struct ib_inform_info *info = subscribe(&s);

	assert_true(fake_await(&s.calls, 1));
	__atomic_store_n(&s.blocks, true, __ATOMIC_SEQ_CST);
	report(IB_SA_TRAP_GID_IN_SERVICE, 1);
	assert_true(fake_await(&s.entered, 2));
	for (int i = 1; i < REPORTS; i++)
		report(IB_SA_TRAP_GID_IN_SERVICE, 1);
	assert_true(fake_await(&t.report_answers, REPORTS));
	__atomic_store_n(&s.blocks, false, __ATOMIC_SEQ_CST);
	assert_true(fake_await(&s.calls, 2));
	assert_int_equal(t.subscribed, 1);
	(void)ib_sa_unregister_inform_info(info);
	assert_true(fake_await(&t.unsubscribed, 1));
	assert_in_range(fake_count(&s.notices), 1, REPORTS - 1);
}

/* Only reports that wait are limited: a consumer that keeps up misses none. */
static void register_inform_info__hears_any_number_of_reports(void **state)
{
	enum { AT_ONCE = 200 };
	struct subscriber s = { .calls = 0 };
	struct ib_inform_info *info = subscribe(&s);

	assert_true(fake_await(&s.calls, 1));
	for (int i = 1; i <= 3 * AT_ONCE; i++) {
		report(IB_SA_TRAP_GID_IN_SERVICE, 1);
		if (i % AT_ONCE == 0)
			assert_true(fake_await(&s.notices, i));
	}
	assert_int_equal(fake_count(&s.calls), 1);
	(void)ib_sa_unregister_inform_info(info);
	assert_true(fake_await(&t.unsubscribed, 1));
}

/* What the first notice has the callback below register. */
static struct subscriber later;
static struct ib_inform_info *later_info;

static int inform_enlists(int status, struct ib_inform_info *info, struct ib_sa_notice *notice)
{
	if (notice != NULL && later_info == NULL)
		later_info = subscribe(&later);
	return inform_heard(status, info, notice);
}

/* A subscriber hears what happens after its registration, also if a notice had it register. */
static void register_inform_info__hears_nothing_from_before(void **state)
{
	struct subscriber s = { .calls = 0 };
	struct ib_inform_info *info =
		ib_sa_register_inform_info(&t.client, &t.fake->ib, 1, IB_SA_TRAP_GID_IN_SERVICE, 0,
					   inform_enlists, &s);

	later = (struct subscriber){ .calls = 0 };
	later_info = NULL;
	assert_false(IS_ERR(info));
	assert_true(fake_await(&s.calls, 1));
	report(IB_SA_TRAP_GID_IN_SERVICE, 1);
	assert_true(fake_await(&later.calls, 1));
	report(IB_SA_TRAP_GID_IN_SERVICE, 2);
	assert_true(fake_await(&s.notices, 2));
	assert_true(fake_await(&later.notices, 1));
	(void)ib_sa_unregister_inform_info(info);
	(void)ib_sa_unregister_inform_info(later_info);
	assert_true(fake_await(&t.unsubscribed, 1));
	assert_int_equal(fake_count(&later.notices), 1);
	assert_int_equal(later.gid_byte, 2);
}

static void unregister_inform_info__while_it_subscribes(void **state)
{
	struct subscriber s = { .calls = 0 };

	for (int i = 0; i < 200; i++)
		(void)ib_sa_unregister_inform_info(subscribe(&s));
	for (int i = 0; i < WAIT_MS && fake_count(&t.unsubscribed) < fake_count(&t.subscribed); i++)
		usleep(1000);
	assert_int_equal(fake_count(&t.unsubscribed), fake_count(&t.subscribed));
}

#define SA_TEST(f) cmocka_unit_test_setup_teardown(f, test_setup, test_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		SA_TEST(path_rec_get__answers),
		SA_TEST(path_rec_get__refused),
		SA_TEST(path_rec_get__times_out_after_retries),
		SA_TEST(path_rec_get__asks_in_the_default_partition),
		SA_TEST(cancel_query__ends_it_once),
		SA_TEST(cancel_query__ends_the_one_that_it_names),
		SA_TEST(path_rec_get__judges_its_arguments),
		SA_TEST(join_multicast__is_shared),
		SA_TEST(join_multicast__leaves_states_one_by_one),
		SA_TEST(join_multicast__counts_each_state),
		SA_TEST(join_multicast__compares_values_as_the_selector_says),
		SA_TEST(join_multicast__other_values_than_the_group),
		SA_TEST(join_multicast__refused),
		SA_TEST(port_event__resets_members),
		SA_TEST(free_multicast__while_it_joins),
		SA_TEST(free_multicast__inside_a_callback),
		SA_TEST(free_multicast__of_a_shared_port),
		SA_TEST(mcmember_rec_query__asks),
		SA_TEST(register_inform_info__is_shared),
		SA_TEST(register_inform_info__judges_its_arguments),
		SA_TEST(register_inform_info__subscribes_again),
		SA_TEST(register_inform_info__subscribes_to_each_trap_again),
		SA_TEST(register_inform_info__fails_and_tries_again),
		SA_TEST(register_inform_info__another_agent_has_the_reports),
		SA_TEST(register_inform_info__of_a_kept_port),
		SA_TEST(register_inform_info__too_many_reports),
		SA_TEST(register_inform_info__hears_any_number_of_reports),
		SA_TEST(register_inform_info__hears_nothing_from_before),
		SA_TEST(unregister_inform_info__while_it_subscribes),
	};

	work_queue_init(&mad_queue, "test/mad", false);
	return cmocka_run_group_tests_name("sa", tests, NULL, NULL);
}
