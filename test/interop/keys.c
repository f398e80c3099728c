/* keys.c: windows of type 2, local invalidate and SEND_WITH_INV between two programs, each over its
 * own libibverbs: keys [-d DEVICE] [-g GID] -p PORT [HOST]
 *
 * Each side binds a window, the other one writes through it, and ends it by a SEND; then its owner
 * binds it again and ends it itself. What is written after that must be refused.
 */
#include <arpa/inet.h>
#include <infiniband/verbs.h>
#include <netdb.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { BYTES = 4096, AT = 1000, LENGTH = 64, TRIES = 400000000 };

struct place {
	uint32_t qpn, rkey;
	uint64_t addr;
	union ibv_gid gid;
};

static struct ibv_context *ctx;
static struct ibv_pd *pd;
static struct ibv_cq *cq;
static struct ibv_qp *qp;
static struct ibv_mr *mr;
static struct ibv_mw *mw;
static struct place own, peer;
static char bytes[BYTES];
static int gid_index, fd;

#define MUST(what)                                                                                 \
	do {                                                                                       \
		if (!(what)) {                                                                     \
			fprintf(stderr, "line %d: %s\n", __LINE__, #what);                         \
			exit(1);                                                                   \
		}                                                                                  \
	} while (0)

static void keys_connect_socket(const char *host, const char *port)
{
	struct addrinfo hints = { .ai_family = AF_INET, .ai_socktype = SOCK_STREAM,
				  .ai_flags = host ? 0 : AI_PASSIVE }, *at;
	int one = 1, listener;

	MUST(getaddrinfo(host, port, &hints, &at) == 0);
	for (int i = 0; host && i < 100; i++) {
		fd = socket(AF_INET, SOCK_STREAM, 0);
		if (connect(fd, at->ai_addr, at->ai_addrlen) == 0)
			return;
		close(fd);
		usleep(100000);
	}
	MUST(!host);
	listener = socket(AF_INET, SOCK_STREAM, 0);
	setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	MUST(bind(listener, at->ai_addr, at->ai_addrlen) == 0 && listen(listener, 1) == 0);
	fd = accept(listener, NULL, NULL);
	MUST(fd >= 0);
}

/* Both sides are here when it returns, and know each other's place. */
static void keys_meet(void)
{
	MUST(write(fd, &own, sizeof(own)) == sizeof(own));
	for (size_t n = 0; n < sizeof(peer);) {
		ssize_t got = read(fd, (char *)&peer + n, sizeof(peer) - n);

		MUST(got > 0);
		n += (size_t)got;
	}
}

static void keys_open(const char *name)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_qp_init_attr init = { .cap = { 16, 16, 1, 1, 0 }, .qp_type = IBV_QPT_RC };
	int i = 0;

	MUST(list);
	while (list[i] && name && strcmp(ibv_get_device_name(list[i]), name) != 0)
		i++;
	MUST(list[i] && (ctx = ibv_open_device(list[i])));
	MUST(ibv_query_gid(ctx, 1, gid_index, &own.gid) == 0);
	MUST((pd = ibv_alloc_pd(ctx)) && (cq = ibv_create_cq(ctx, 64, NULL, NULL, 0)));
	init.send_cq = init.recv_cq = cq;
	MUST((qp = ibv_create_qp(pd, &init)));
	MUST((mr = ibv_reg_mr(pd, bytes, BYTES, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND)));
	MUST((mw = ibv_alloc_mw(pd, IBV_MW_TYPE_2)));
	own.qpn = qp->qp_num;
	own.addr = (uintptr_t)bytes + AT;
}

static void keys_connect(void)
{
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_INIT, .port_num = 1,
				 .qp_access_flags = IBV_ACCESS_REMOTE_WRITE };

	MUST(ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
					   IBV_QP_ACCESS_FLAGS) == 0);
	a = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024,
				  .dest_qp_num = peer.qpn, .max_dest_rd_atomic = 1,
				  .min_rnr_timer = 12,
				  .ah_attr = { .is_global = 1, .port_num = 1,
					       .grh = { .dgid = peer.gid, .hop_limit = 64,
							.sgid_index = (uint8_t)gid_index } } };
	MUST(ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
					   IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
					   IBV_QP_MIN_RNR_TIMER) == 0);
	a = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTS, .timeout = 17, .retry_cnt = 7,
				  .rnr_retry = 7, .max_rd_atomic = 1 };
	MUST(ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT |
					   IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
					   IBV_QP_MAX_QP_RD_ATOMIC) == 0);
}

static struct ibv_wc keys_done(void)
{
	struct ibv_wc wc = { .status = IBV_WC_GENERAL_ERR };
	int got = 0;

	for (int i = 0; i < TRIES && got == 0; i++)
		got = ibv_poll_cq(cq, 1, &wc);
	MUST(got == 1);
	return wc;
}

static void keys_post(struct ibv_send_wr *wr, enum ibv_wc_status status)
{
	struct ibv_send_wr *bad;
	struct ibv_wc wc;

	wr->send_flags = IBV_SEND_SIGNALED;
	MUST(ibv_post_send(qp, wr, &bad) == 0);
	wc = keys_done();
	if (wc.status != status)
		fprintf(stderr, "%s\n", ibv_wc_status_str(wc.status));
	MUST(wc.status == status);
}

static void keys_bind(void)
{
	struct ibv_send_wr wr = { .opcode = IBV_WR_BIND_MW };

	own.rkey = mw->rkey = ibv_inc_rkey(own.rkey ? own.rkey : mw->rkey);
	wr.bind_mw.mw = mw;
	wr.bind_mw.rkey = own.rkey;
	wr.bind_mw.bind_info = (struct ibv_mw_bind_info){ mr, own.addr, LENGTH,
							  IBV_ACCESS_REMOTE_WRITE };
	/* the kernel's rxe wants to be told the old key */
	mw->rkey = (mw->rkey & ~0xffu) | ((mw->rkey - 1) & 0xff);
	keys_post(&wr, IBV_WC_SUCCESS);
	mw->rkey = own.rkey;
}

static void keys_write(char c, enum ibv_wc_status status)
{
	struct ibv_sge sge = { (uintptr_t)bytes, LENGTH, mr->lkey };
	struct ibv_send_wr wr = { .opcode = IBV_WR_RDMA_WRITE, .sg_list = &sge, .num_sge = 1 };

	memset(bytes, c, LENGTH);
	wr.wr.rdma.remote_addr = peer.addr;
	wr.wr.rdma.rkey = peer.rkey;
	keys_post(&wr, status);
}

int main(int argc, char **argv)
{
	const char *device = NULL, *port = "18515";
	struct ibv_recv_wr recv = { .wr_id = 1 }, *bad;
	struct ibv_send_wr inv = { .opcode = IBV_WR_SEND_WITH_INV };
	bool server;

	for (int c; (c = getopt(argc, argv, "d:g:p:")) != -1;)
		c == 'd' ? (void)(device = optarg) : c == 'g' ? (void)(gid_index = atoi(optarg))
							       : (void)(port = optarg);
	server = optind == argc;
	keys_connect_socket(server ? NULL : argv[optind], port);
	keys_open(device);
	keys_meet();
	keys_connect();
	keys_meet();
	for (int turn = 0; turn < 2; turn++) { /* whose window is ended by the peer */
		bool mine = server == (turn == 0);

		keys_bind();
		if (mine)
			MUST(ibv_post_recv(qp, &recv, &bad) == 0);
		keys_meet();
		keys_write((char)('a' + turn), IBV_WC_SUCCESS);
		keys_meet();
		MUST(bytes[AT] == 'a' + turn && bytes[AT + LENGTH - 1] == 'a' + turn);
		MUST(bytes[AT + LENGTH] == 0);
		inv.invalidate_rkey = mine ? own.rkey : peer.rkey;
		if (mine) {
			struct ibv_wc wc = keys_done();

			MUST(wc.status == IBV_WC_SUCCESS && wc.opcode == IBV_WC_RECV);
			/* rxe hands on the kernel's bit, which libibverbs calls IP_CSUM_OK */
			MUST(wc.wc_flags & (IBV_WC_WITH_INV | IBV_WC_IP_CSUM_OK));
			MUST(wc.invalidated_rkey == own.rkey);
		} else {
			keys_post(&inv, IBV_WC_SUCCESS);
			inv.opcode = IBV_WR_LOCAL_INV;
			inv.invalidate_rkey = own.rkey;
			keys_post(&inv, IBV_WC_SUCCESS);
			inv.opcode = IBV_WR_SEND_WITH_INV;
		}
		keys_meet();
	}
	/* Both windows are ended: a write is refused, the client's by the server. */
	if (!server)
		keys_write('z', IBV_WC_REM_ACCESS_ERR);
	keys_meet();
	MUST(bytes[AT] != 'z');
	puts("windows were bound, reached and ended");
	return 0;
}
