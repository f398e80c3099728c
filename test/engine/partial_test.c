/* partial_test.c: a WRITE whose own memory is refused in the middle: what was sent before that is
 * in the peer's memory, as far as whole packets go, and nothing else. */
#include "net.h"

#include <string.h>

enum {
	FIRST = 2 * 4096 + 100, /* bytes that may be read, in front of those that may not */
	SECOND = 2 * 4096,
	SLOT = 32 << 10,
	EDGE = 512, /* of the target's slot */
	POISON = 0xdb,
};

struct partial {
	enum ibv_qp_type type;
	bool reliable, direct;
	u32 there; /* bytes that have been written */
};

static const struct partial cases[] = {
	{ IBV_QPT_UC, .there = 2 * 4096 },
	{ IBV_QPT_RC, .there = 2 * 4096 },
	{ IBV_QPT_UC, .reliable = true, .there = 2 * 4096 },
	{ IBV_QPT_RC, .reliable = true, .there = 2 * 4096 },
	/* Who copies by himself looks at all of it first. */
	{ IBV_QPT_UC, .reliable = true, .direct = true },
	{ IBV_QPT_RC, .reliable = true, .direct = true },
};

static u8 partial_byte(u32 i)
{
	return (u8)(i * 7 + i / 256 + 1);
}

/* A WRITE of two pieces to the middle of the target; the second one's key is of nothing. */
static void partial_post(struct net *net, struct ibt_qp *qp)
{
	struct net_side *s = &net->side[0];
	struct ibv_sge sge[2];
	struct ibv_send_wr wr = net_wr(sge, s, IBV_WR_RDMA_WRITE, 1, 0, FIRST);

	for (u32 i = 0; i < FIRST + SECOND; i++)
		s->memory[i] = partial_byte(i);
	sge[1] = (struct ibv_sge){ .addr = sge[0].addr + FIRST,
				   .length = SECOND,
				   .lkey = s->key ^ 1 };
	wr.num_sge = 2;
	wr.send_flags = IBV_SEND_SIGNALED;
	net_wr_remote(&wr, &net->side[1], EDGE);
	net_post(qp, &wr);
}

static void partial_check(const struct net *net, u32 there)
{
	const u8 *at = net->side[1].memory;

	for (u32 i = 0; i < SLOT; i++)
		if (i >= EDGE && i - EDGE < there)
			assert_int_equal(at[i], partial_byte(i - EDGE));
		else
			assert_int_equal(at[i], POISON);
}

/* The queue pair goes on, and the next message is a whole one from its first packet on. */
static void partial_go_on(struct net *net, struct ibt_qp *qp[2])
{
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_RTS };
	struct ibv_sge sge;
	struct ibv_send_wr wr = net_wr(&sge, &net->side[0], IBV_WR_SEND, 2, 0, FIRST);
	struct ibv_wc wc;

	net_post_recv(&net->side[1], qp[1], 2, SLOT, SLOT);
	assert_int_equal(ibt_qp_modify(qp[0], &a, IBV_QP_STATE, NULL, NULL), 0);
	wr.send_flags = IBV_SEND_SIGNALED;
	net_post(qp[0], &wr);
	net_run(net, NS_PER_S);
	assert_int_equal(net_wc(&net->side[0].send_cq).status, IBV_WC_SUCCESS);
	wc = net_wc(&net->side[1].recv_cq);
	assert_int_equal(wc.status, IBV_WC_SUCCESS);
	assert_int_equal(wc.byte_len, FIRST);
	assert_memory_equal(net->side[1].memory + SLOT, net->side[0].memory, FIRST);
}

static void partial__beginning_is_there_and_nothing_else(void **state)
{
	for (u32 i = 0; i < ARRAY_LEN(cases); i++) {
		const struct partial *c = &cases[i];
		struct net_config cfg = { .delay_ns = 10000,
					  .reliable = c->reliable,
					  .direct = c->direct };
		struct net_qp q = net_qp_defaults(c->type);
		struct ibt_qp *qp[2];
		static struct net net;

		net_open(&net, &cfg);
		net_pair(&net, qp, &q);
		memset(net.side[1].memory, POISON, SLOT);
		partial_post(&net, qp[0]);
		net_run(&net, NS_PER_S);
		assert_int_equal(net_wc(&net.side[0].send_cq).status, IBV_WC_LOC_PROT_ERR);
		partial_check(&net, c->there);
		assert_int_equal(ibt_qp_state(qp[0]),
				 c->type == IBV_QPT_UC ? IBV_QPS_SQE : IBV_QPS_ERR);
		assert_int_equal(ibt_qp_state(qp[1]), IBV_QPS_RTS);
		if (c->type == IBV_QPT_UC) {
			partial_go_on(&net, qp);
			partial_check(&net, c->there);
		}
		ibt_qp_destroy(qp[0]);
		ibt_qp_destroy(qp[1]);
		net_close(&net);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(partial__beginning_is_there_and_nothing_else),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
