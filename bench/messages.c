/* messages.c: so many messages of one kind, between two queue pairs of one thread, for a tool that
 * counts instructions (bench/instructions).
 *
 * In:    a kind and a count    Out: nothing but the exit status
 * Runs:  one thread            Locks: none
 *
 * The two ends answer each other in turn, as in a ping-pong, so that acknowledgements ride on the
 * answers. Nothing is polled in vain: what is polled for has been sent before.
 */
#include "client.h"

#include <sched.h>
#include <stdbool.h>

enum { LIST = 16, DEPTH = 64, BYTES = 8 };

struct end {
	struct ibv_qp *qp;
	struct ibv_cq *send_cq, *recv_cq;
};

struct talk {
	struct client c;
	struct end end[2];
	struct ibv_mr *mr;
	char *memory;
	int list;   /* requests handed over together */
	struct ibv_send_wr send[LIST];
	struct ibv_sge from, to;
};

static void talk_open_end(struct talk *t, struct end *e)
{
	struct ibv_qp_init_attr init = { .qp_type = IBV_QPT_RC,
					 .cap = { .max_send_wr = DEPTH,
						  .max_recv_wr = DEPTH,
						  .max_send_sge = 1,
						  .max_recv_sge = 1,
						  .max_inline_data = BYTES } };

	e->send_cq = init.send_cq = ibv_create_cq(t->c.context, 2 * DEPTH, NULL, NULL, 0);
	e->recv_cq = init.recv_cq = ibv_create_cq(t->c.context, 2 * DEPTH, NULL, NULL, 0);
	if (!e->send_cq || !e->recv_cq)
		client_fail("ibv_create_cq");
	e->qp = ibv_create_qp(t->c.pd, &init);
	if (!e->qp)
		client_fail("ibv_create_qp");
}

static void talk_fill(struct talk *t, enum ibv_wr_opcode opcode, unsigned int flags)
{
	for (int i = 0; i < t->list; i++)
		t->send[i] = (struct ibv_send_wr){
			.next = i + 1 < t->list ? &t->send[i + 1] : NULL,
			.sg_list = &t->from,
			.num_sge = 1,
			.opcode = opcode,
			.send_flags = flags | (i + 1 == t->list ? IBV_SEND_SIGNALED : 0),
			.wr.rdma = { (uintptr_t)t->memory + 2048, t->mr->rkey },
		};
}

static void talk_open(struct talk *t, int gid_index, int list, enum ibv_wr_opcode opcode,
		      unsigned int flags)
{
	t->c.gid_index = gid_index;
	client_open(&t->c, DEPTH);
	talk_open_end(t, &t->end[0]);
	talk_open_end(t, &t->end[1]);
	client_connect(&t->c, t->end[0].qp, t->end[1].qp->qp_num);
	client_connect(&t->c, t->end[1].qp, t->end[0].qp->qp_num);
	t->memory = aligned_alloc(4096, 4096);
	t->mr = ibv_reg_mr(t->c.pd, t->memory, 4096,
			   IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	if (!t->memory || !t->mr)
		client_fail("ibv_reg_mr");
	t->from = (struct ibv_sge){ (uintptr_t)t->memory, BYTES, t->mr->lkey };
	t->to = (struct ibv_sge){ (uintptr_t)t->memory + 1024, BYTES, t->mr->lkey };
	t->list = list;
	talk_fill(t, opcode, flags);
}

/* Until `wanted` completions have come. */
static void talk_poll(struct ibv_cq *cq, int wanted)
{
	struct ibv_wc wc[LIST];

	while (wanted > 0) {
		int n = ibv_poll_cq(cq, wanted, wc);

		if (n == 0)
			sched_yield(); /* the engine's thread has it */
		for (int i = 0; i < n; i++)
			if (wc[i].status != IBV_WC_SUCCESS)
				client_fail(ibv_wc_status_str(wc[i].status));
		wanted -= n;
	}
}

static void talk_post(struct talk *t, struct end *e)
{
	struct ibv_send_wr *bad;

	errno = ibv_post_send(e->qp, t->send, &bad);
	if (errno)
		client_fail("ibv_post_send");
}

/* A list of SENDs to the other end; its acknowledgement has come with the one before. */
static void talk_send(struct talk *t, struct end *from, struct end *to, bool answer)
{
	struct ibv_recv_wr wr = { .sg_list = &t->to, .num_sge = 1 }, *bad;

	for (int i = 0; i < t->list; i++) {
		errno = ibv_post_recv(to->qp, &wr, &bad);
		if (errno)
			client_fail("ibv_post_recv");
	}
	talk_post(t, from);
	talk_poll(to->recv_cq, t->list);
	if (answer)
		talk_poll(to->send_cq, 1);
}

static void talk_write(struct talk *t, struct end *from)
{
	talk_post(t, from);
	talk_poll(from->send_cq, 1);
}

static int usage(void)
{
	fputs("usage: messages send|send_inline|send_list|write COUNT [GID INDEX]\n", stderr);
	return 2;
}

int main(int argc, char **argv)
{
	const char *kind = argc >= 3 ? argv[1] : "";
	int count = argc >= 3 ? atoi(argv[2]) : 0;
	bool write = strcmp(kind, "write") == 0, list = strcmp(kind, "send_list") == 0;
	bool in_line = strcmp(kind, "send_inline") == 0;
	struct talk t = { 0 };

	if (argc > 4 || count < 1 || (!write && !list && !in_line && strcmp(kind, "send") != 0))
		return usage();
	talk_open(&t, argc == 4 ? atoi(argv[3]) : 0, list ? LIST : 1,
		  write ? IBV_WR_RDMA_WRITE : IBV_WR_SEND, in_line ? IBV_SEND_INLINE : 0);
	for (int i = 0; i < count / t.list; i++) {
		if (write)
			talk_write(&t, &t.end[i & 1]);
		else
			talk_send(&t, &t.end[i & 1], &t.end[!(i & 1)], i != 0);
	}
	return 0;
}
