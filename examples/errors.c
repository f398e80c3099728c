/* errors.c: provokes errors one by one, and prints what the completions of both ends say.
 *
 *   cc errors.c -libverbs -o errors
 *   anyverbs run ./errors
 *
 * A request that is wrong in itself is refused by ibv_post_send with an errno: nothing was posted.
 * Whatever shows later completes with a status, on either end or both. Then the queue pair is in
 * the error state: all that is still posted completes with IBV_WC_WR_FLUSH_ERR, and only a new
 * connection helps. docs/learn.md has the table of all statuses.
 */
#include <infiniband/verbs.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CQE = 16, PORT = 1, MEMORY = 4096, LOOKS = 100000000, FIRST = 1, SECOND = 2 };

static struct ibv_context *context;
static struct ibv_pd *pd;
static struct ibv_mr *mr, *read_only;
static union ibv_gid gid;
static char memory[MEMORY];

/* Two queue pairs of this process, connected; requests go from `client` to `server`. */
static struct ibv_cq *client_cq, *server_cq;
static struct ibv_qp *client, *server;

static void must(int ok, const char *what)
{
	if (ok)
		return;
	perror(what);
	exit(1);
}

static struct ibv_qp *make_qp(struct ibv_cq *cq)
{
	struct ibv_qp_init_attr init = { .send_cq = cq,
					 .recv_cq = cq,
					 .cap = { 4, 4, 1, 1, 0 },
					 .qp_type = IBV_QPT_RC };
	struct ibv_qp *qp = ibv_create_qp(pd, &init);

	must(qp != NULL, "ibv_create_qp");
	return qp;
}

static void connect_qp(struct ibv_qp *qp, uint32_t peer)
{
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_INIT,
				 .port_num = PORT,
				 .path_mtu = IBV_MTU_1024,
				 .dest_qp_num = peer,
				 .max_dest_rd_atomic = 1,
				 .max_rd_atomic = 1,
				 .qp_access_flags = IBV_ACCESS_REMOTE_WRITE,
				 .min_rnr_timer = 1,
				 .timeout = 8,	   /* 1 ms, the first of so many: */
				 .retry_cnt = 2,
				 .rnr_retry = 2 }; /* not for ever, as the other examples have it */

	a.ah_attr.is_global = 1;
	a.ah_attr.port_num = PORT;
	a.ah_attr.grh.dgid = gid;
	a.ah_attr.grh.hop_limit = 64;
	must(ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
					   IBV_QP_ACCESS_FLAGS) == 0, "to INIT");
	a.qp_state = IBV_QPS_RTR;
	must(ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
					   IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
					   IBV_QP_MIN_RNR_TIMER) == 0, "to RTR");
	a.qp_state = IBV_QPS_RTS;
	must(ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT |
					   IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
					   IBV_QP_MAX_QP_RD_ATOMIC) == 0, "to RTS");
}

static void open_device(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);

	must(list != NULL && list[0] != NULL, "no device: was this started by `anyverbs run`?");
	context = ibv_open_device(list[0]);
	must(context != NULL && ibv_query_gid(context, PORT, 0, &gid) == 0, "ibv_open_device");
	ibv_free_device_list(list);
	pd = ibv_alloc_pd(context);
	client_cq = ibv_create_cq(context, CQE, NULL, NULL, 0);
	server_cq = ibv_create_cq(context, CQE, NULL, NULL, 0);
	must(pd && client_cq && server_cq, "objects");
	mr = ibv_reg_mr(pd, memory, MEMORY, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	read_only = ibv_reg_mr(pd, memory, MEMORY, 0);
	must(mr && read_only, "ibv_reg_mr");
}

static void post(uint64_t id, enum ibv_wr_opcode opcode, uint32_t length, uint32_t lkey,
		 uint32_t rkey)
{
	struct ibv_sge piece = { (uintptr_t)memory, length, lkey };
	struct ibv_send_wr wr = { .wr_id = id,
				  .sg_list = &piece,
				  .num_sge = 1,
				  .opcode = opcode,
				  .send_flags = IBV_SEND_SIGNALED }, *bad;

	wr.wr.rdma.remote_addr = (uintptr_t)memory;
	wr.wr.rdma.rkey = rkey;
	must(ibv_post_send(client, &wr, &bad) == 0, "ibv_post_send");
}

static void post_receive(uint32_t length, uint32_t lkey)
{
	struct ibv_sge piece = { (uintptr_t)memory + MEMORY / 2, length, lkey };
	struct ibv_recv_wr wr = { .sg_list = &piece, .num_sge = 1 }, *bad;

	must(ibv_post_recv(server, &wr, &bad) == 0, "ibv_post_recv");
}

/* ---- the mistakes ---- */

static void too_long(void)
{
	post_receive(10, mr->lkey);
	post(FIRST, IBV_WR_SEND, 20, mr->lkey, 0);
}

static void no_receive(void)
{
	post(FIRST, IBV_WR_SEND, 20, mr->lkey, 0);
}

static void foreign_lkey(void)
{
	post(FIRST, IBV_WR_SEND, 20, mr->lkey ^ 0x5500, 0);
}

static void read_only_receive(void)
{
	post_receive(20, read_only->lkey);
	post(FIRST, IBV_WR_SEND, 20, mr->lkey, 0);
}

static void wrong_rkey(void)
{
	post(FIRST, IBV_WR_RDMA_WRITE, 20, mr->lkey, mr->rkey ^ 0x5500);
}

static void read_not_allowed(void)
{
	post(FIRST, IBV_WR_RDMA_READ, 20, mr->lkey, mr->rkey);
}

static void behind_a_failure(void)
{
	wrong_rkey();
	post(SECOND, IBV_WR_RDMA_WRITE, 20, mr->lkey, mr->rkey); /* nothing wrong with it */
}

static void peer_is_gone(void)
{
	must(ibv_destroy_qp(server) == 0, "ibv_destroy_qp");
	server = NULL;
	post(FIRST, IBV_WR_SEND, 20, mr->lkey, 0);
}

/* ---- what completes ---- */

static void print(const char *end, struct ibv_cq *cq, int count)
{
	struct ibv_wc wc;
	int n = 0;

	for (int looks = 0; count > 0 && looks < LOOKS; looks++) {
		n = ibv_poll_cq(cq, 1, &wc);
		must(n >= 0, "ibv_poll_cq");
		if (n == 0)
			continue;
		printf("  %s: %s (%d)\n", end, ibv_wc_status_str(wc.status), wc.status);
		count--;
	}
	must(count == 0, "a completion is missing");
}

static void try(const char *what, void (*mistake)(void), int at_client, int at_server)
{
	client = make_qp(client_cq);
	server = make_qp(server_cq);
	connect_qp(client, server->qp_num);
	connect_qp(server, client->qp_num);
	printf("%s\n", what);
	mistake();
	print("client", client_cq, at_client);
	print("server", server_cq, at_server);
	must(ibv_destroy_qp(client) == 0, "ibv_destroy_qp");
	must(server == NULL || ibv_destroy_qp(server) == 0, "ibv_destroy_qp");
}

int main(void)
{
	open_device();
	try("a message longer than the receive buffer", too_long, 1, 1);
	try("no receive is posted", no_receive, 1, 0);
	try("a key that is no key of ours", foreign_lkey, 1, 0);
	try("a receive buffer that may not be written", read_only_receive, 1, 1);
	try("a key that the peer does not have", wrong_rkey, 1, 0);
	try("a READ, where the peer allows WRITEs", read_not_allowed, 1, 0);
	try("a good request behind a failed one", behind_a_failure, 2, 0);
	try("a peer that is gone", peer_is_gone, 1, 0);
	must(ibv_dereg_mr(mr) == 0 && ibv_dereg_mr(read_only) == 0, "ibv_dereg_mr");
	must(ibv_destroy_cq(client_cq) == 0 && ibv_destroy_cq(server_cq) == 0, "ibv_destroy_cq");
	must(ibv_dealloc_pd(pd) == 0 && ibv_close_device(context) == 0, "closing");
	return 0;
}
