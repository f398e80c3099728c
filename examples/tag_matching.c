/* tag_matching.c: the smallest receiver with a tag-matching SRQ, and its sender, in one process.
 * Prints what becomes of an eager message, a rendezvous and an unexpected message.
 *
 *   anyverbs run ./tag_matching      cc tag_matching.c -libverbs builds it elsewhere
 */
#include <endian.h>
#include <errno.h>
#include <infiniband/tm_types.h>
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PORT = 1, GID = 1, BIG = 1 << 20, BUFFER = 4 << 20, DATA = 1 << 20, UNEXPECTED = 2 << 20 };

static struct ibv_context *context;
static struct ibv_pd *pd;
static struct ibv_mr *mr;
static uint8_t *memory; /* the sender's first 2 MiB, then the receiver's */
static struct ibv_cq *sender_cq;
static struct ibv_cq_ex *cq; /* the SRQ's */
static struct ibv_srq *srq;
static struct ibv_qp *sender, *receiver;

#define MUST(condition) ((condition) ? (void)0 : give_up(#condition))

static void give_up(const char *what)
{
	fprintf(stderr, "failed: %s (%s)\n", what, strerror(errno));
	exit(1);
}

static void open_device(void)
{
	int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ;
	struct ibv_device **list = ibv_get_device_list(NULL);

	MUST(list && list[0]);
	MUST((context = ibv_open_device(list[0])) != NULL);
	ibv_free_device_list(list);
	MUST((pd = ibv_alloc_pd(context)) != NULL);
	MUST((memory = aligned_alloc(4096, BUFFER)) != NULL);
	MUST((mr = ibv_reg_mr(pd, memory, BUFFER, access)) != NULL);
}

/* The receiver's queue pair has no send queue of its own: the SRQ reads and answers by it. */
static void make_queues(void)
{
	struct ibv_cq_init_attr_ex extended = { .cqe = 64,
						.wc_flags = IBV_WC_STANDARD_FLAGS |
							    IBV_WC_EX_WITH_TM_INFO };
	struct ibv_srq_init_attr_ex tags = { .attr = { .max_wr = 16, .max_sge = 1 },
					     .comp_mask =
						     IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD |
						     IBV_SRQ_INIT_ATTR_CQ | IBV_SRQ_INIT_ATTR_TM,
					     .srq_type = IBV_SRQT_TM,
					     .tm_cap = { .max_num_tags = 64, .max_ops = 16 } };
	struct ibv_qp_init_attr init = { .qp_type = IBV_QPT_RC, .cap = { 16, 16, 1, 1, 0 } };

	MUST((sender_cq = ibv_create_cq(context, 64, NULL, NULL, 0)) != NULL);
	MUST((cq = ibv_create_cq_ex(context, &extended)) != NULL);
	tags.pd = pd;
	tags.cq = ibv_cq_ex_to_cq(cq);
	MUST((srq = ibv_create_srq_ex(context, &tags)) != NULL);
	init.send_cq = init.recv_cq = sender_cq;
	MUST((sender = ibv_create_qp(pd, &init)) != NULL);
	init = (struct ibv_qp_init_attr){ .qp_type = IBV_QPT_RC,
					  .send_cq = tags.cq,
					  .recv_cq = tags.cq,
					  .srq = srq };
	MUST((receiver = ibv_create_qp(pd, &init)) != NULL);
}

static void connect_to(struct ibv_qp *qp, uint32_t peer)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT,
				    .port_num = PORT,
				    .qp_access_flags = IBV_ACCESS_REMOTE_READ };

	MUST(!ibv_modify_qp(qp, &attr,
			    IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
	attr = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTR,
				     .path_mtu = IBV_MTU_1024,
				     .dest_qp_num = peer,
				     .max_dest_rd_atomic = 4,
				     .min_rnr_timer = 12,
				     .ah_attr = { .is_global = 1,
						  .port_num = PORT,
						  .grh = { .sgid_index = GID, .hop_limit = 64 } } };
	MUST(!ibv_query_gid(context, PORT, GID, &attr.ah_attr.grh.dgid));
	MUST(!ibv_modify_qp(qp, &attr,
			    IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
				    IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
				    IBV_QP_MIN_RNR_TIMER));
	attr = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTS,
				     .timeout = 14,
				     .retry_cnt = 7,
				     .rnr_retry = 7,
				     .max_rd_atomic = 4 };
	MUST(!ibv_modify_qp(qp, &attr,
			    IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
				    IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC));
}

/* An ordinary SEND: header, then the payload or, of a rendezvous, where to read the data. */
static void send_message(uint8_t opcode, uint64_t tag, const char *text)
{
	struct ibv_tmh tmh = { .opcode = opcode, .app_ctx = htobe32(7), .tag = htobe64(tag) };
	struct ibv_rvh rvh = { htobe64((uintptr_t)memory + DATA), htobe32(mr->rkey), htobe32(BIG) };
	uint32_t length = opcode == IBV_TMH_RNDV ? sizeof(rvh) : (uint32_t)strlen(text) + 1;
	struct ibv_sge sge = { (uintptr_t)memory, (uint32_t)sizeof(tmh) + length, mr->lkey };
	struct ibv_send_wr wr = { .sg_list = &sge,
				  .num_sge = 1,
				  .opcode = IBV_WR_SEND,
				  .send_flags = IBV_SEND_SIGNALED },
			   *bad;
	struct ibv_wc wc;
	int got;

	memcpy(memory, &tmh, sizeof(tmh));
	memcpy(memory + sizeof(tmh), opcode == IBV_TMH_RNDV ? (const void *)&rvh : text, length);
	MUST(!ibv_post_send(sender, &wr, &bad));
	while ((got = ibv_poll_cq(sender_cq, 1, &wc)) == 0)
		;
	MUST(got == 1 && wc.status == IBV_WC_SUCCESS);
}

static void add_tag(uint64_t wr_id, uint64_t tag, uint32_t length)
{
	struct ibv_sge sge = { (uintptr_t)memory + UNEXPECTED + 4096, length, mr->lkey };
	struct ibv_ops_wr wr = { .opcode = IBV_WR_TAG_ADD,
				 .tm.add = { .recv_wr_id = wr_id,
					     .sg_list = &sge,
					     .num_sge = 1,
					     .tag = tag,
					     .mask = ~0ull } },
			  *bad;

	MUST(!ibv_post_srq_ops(srq, &wr, &bad));
}

static void post_buffer(struct ibv_qp *qp, uint64_t wr_id, uint32_t at)
{
	struct ibv_sge sge = { (uintptr_t)memory + at, 4096, mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = wr_id, .sg_list = &sge, .num_sge = 1 }, *bad;

	MUST(!(qp ? ibv_post_recv(qp, &wr, &bad) : ibv_post_srq_recv(srq, &wr, &bad)));
}

/* Prints one completion of the SRQ's CQ. */
static void print_next(void)
{
	struct ibv_poll_cq_attr attr = { 0 };
	struct ibv_wc_tm_info info;
	unsigned int flags;
	int error;

	while ((error = ibv_start_poll(cq, &attr)) == ENOENT)
		;
	MUST(error == 0 && cq->status == IBV_WC_SUCCESS);
	flags = ibv_wc_read_wc_flags(cq);
	ibv_wc_read_tm_info(cq, &info);
	printf("buffer %d:%s%s%s tag %d, %u bytes\n", (int)cq->wr_id,
	       flags & IBV_WC_TM_MATCH ? " matched," : "",
	       flags & IBV_WC_TM_DATA_VALID ? " data is there," : "",
	       flags & (IBV_WC_TM_MATCH | IBV_WC_TM_DATA_VALID) ? "" : " unexpected,",
	       (int)info.tag, ibv_wc_read_byte_len(cq));
	ibv_end_poll(cq);
}

int main(void)
{
	struct ibv_ops_wr sync = { .opcode = IBV_WR_TAG_SYNC, .flags = IBV_OPS_TM_SYNC }, *bad;
	struct ibv_wc wc;

	open_device();
	make_queues();
	connect_to(sender, receiver->qp_num);
	connect_to(receiver, sender->qp_num);
	add_tag(1, 0x11, 4096);
	add_tag(2, 0x22, BIG);
	post_buffer(NULL, 3, UNEXPECTED);
	post_buffer(sender, 0, DATA - 4096); /* the adapter answers a rendezvous by FIN */

	send_message(IBV_TMH_EAGER, 0x11, "hello");
	print_next();
	send_message(IBV_TMH_RNDV, 0x22, NULL);
	print_next();
	print_next();
	while (ibv_poll_cq(sender_cq, 1, &wc) == 0)
		;
	MUST(wc.status == IBV_WC_SUCCESS && wc.opcode == IBV_WC_RECV);
	printf("the sender may use its memory again\n");
	send_message(IBV_TMH_EAGER, 0x33, "who are you");
	print_next();

	/* One unexpected message has been handled: entries that follow match again. */
	sync.tm.unexpected_cnt = 1;
	MUST(!ibv_post_srq_ops(srq, &sync, &bad));
	add_tag(4, 0x33, 4096);
	send_message(IBV_TMH_EAGER, 0x33, "again");
	print_next();
	return 0;
}
